"""A store that is only to be read: missed where there is none, and nothing is made in its place."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from orchestrator.bootstrap import Farm, Settings
from orchestrator.errors import StoreMissingError
from orchestrator.store.opening import open_store


def test_a_file_that_is_not_there_is_missed_and_its_folder_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "runs.sqlite"

    for where in (path, str(path), f"sqlite:///{path}"):
        with pytest.raises(StoreMissingError, match=r"runs\.sqlite: there is no store"):
            open_store(where, makes_new=False)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_is_no_store_yet(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    path.touch()

    with pytest.raises(StoreMissingError):
        open_store(path, makes_new=False)
    assert path.read_bytes() == b""
    open_store(path).close()
    open_store(path, makes_new=False).close()


def test_a_database_without_our_tables_is_no_store_yet(postgresql, postgresql_template: str) -> None:
    url = postgresql.url(postgresql.create())

    with pytest.raises(StoreMissingError, match="no store in this database"):
        open_store(url, makes_new=False)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'").fetchone() == (0,)
    open_store(postgresql.url(postgresql.create(postgresql_template)), makes_new=False).close()


def test_the_default_store_is_empty_until_something_is_stored(tmp_path: Path, samples) -> None:
    settings = Settings.from_environment({}, home=tmp_path / "home")

    with Farm(settings, makes_store=False) as farm:
        assert farm.store.campaigns() == []
        assert farm.store.name == str(tmp_path / "home" / "store.sqlite")
    assert not (tmp_path / "home").exists()
    with Farm(settings) as farm:
        samples.begin(farm.store)
    with Farm(settings, makes_store=False) as farm:
        assert len(farm.store.campaigns()) == 1
        assert farm.store.name == str(tmp_path / "home" / "store.sqlite")
