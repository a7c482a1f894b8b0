"""The schema's history: complete, in one piece, never backwards, and undone by a failure."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.errors import StoreError
from orchestrator.store.opening import open_store
from orchestrator.store.revisions import REVISIONS
from tests.samples.next_revision import with_next_revision
from tests.samples.places import REPO

NEWEST = [*REVISIONS][-1]


def backups(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if ".backup" in path.name]


@pytest.fixture
def filled(tmp_path: Path, samples) -> Path:
    """A closed store with three runs, at the newest shipped revision."""
    folder = tmp_path / "farm"
    store = open_store(folder / "runs.sqlite")
    samples.begin(store)
    for number in range(3):
        store.append_run(samples.run(number))
    store.close()
    return folder / "runs.sqlite"


def test_a_store_of_an_older_benchfarm_is_migrated_after_a_copy_was_made(filled: Path, samples) -> None:
    earlier = filled.with_name(f"runs.sqlite.revision-{NEWEST}.backup1")
    earlier.write_text("never replaced")
    store = open_store(filled, revisions=with_next_revision())

    assert list(store.runs(with_attachments=True)) == [samples.run(number) for number in range(3)]
    assert store.append_run(samples.run(3))
    store.close()
    with closing(sqlite3.connect(filled)) as connection:
        assert connection.execute("SELECT DISTINCT operator FROM runs").fetchall() == [("nobody",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    assert earlier.read_text() == "never replaced"
    (copy,) = {*backups(filled.parent)} - {earlier}
    assert copy.name == f"runs.sqlite.revision-{NEWEST}.backup2"
    restored = open_store(copy)
    assert list(restored.runs(with_attachments=True)) == [samples.run(number) for number in range(3)]
    restored.close()


def test_a_store_at_the_newest_revision_is_neither_copied_nor_changed(filled: Path) -> None:
    before = filled.read_bytes()

    open_store(filled).close()

    assert [path.name for path in filled.parent.iterdir()] == [filled.name]
    assert filled.read_bytes() == before


def test_a_store_of_a_newer_benchfarm_is_left_untouched(filled: Path) -> None:
    open_store(filled, revisions=with_next_revision()).close()
    before = filled.read_bytes()

    with pytest.raises(StoreError, match=r"newer benchfarm.*9999") as refused:
        open_store(filled)

    assert "upgrade" in refused.value.hint
    assert filled.read_bytes() == before


def test_a_database_of_a_newer_benchfarm_is_refused(unused_database: str) -> None:
    open_store(unused_database, revisions=with_next_revision()).close()
    with pytest.raises(StoreError, match=r"newer benchfarm.*9999"):
        open_store(unused_database)


@pytest.mark.parametrize(
    "after",
    ["INSERT INTO nowhere VALUES (1)", "DELETE FROM models"],
    ids=["failing", "breaking references"],
)
def test_a_migration_that_fails_changes_nothing(filled: Path, samples, after: str) -> None:
    with pytest.raises(StoreError, match=r"runs\.sqlite: "):
        open_store(filled, revisions=with_next_revision(after))

    store = open_store(filled)
    assert list(store.runs(with_attachments=True)) == [samples.run(number) for number in range(3)]
    store.close()
    with closing(sqlite3.connect(filled)) as connection:
        assert "operator" not in {row[1] for row in connection.execute("PRAGMA table_info(runs)")}


OPEN = """
import sys
from orchestrator.store.opening import open_store
from tests.samples.next_revision import with_next_revision
where, after = sys.argv[1:]
print("ready", flush=True)
store = open_store(where, **({"revisions": with_next_revision(after.strip())} if after else {}))
print(sum(1 for _ in store.runs()))
store.close()
"""


def opening_child(where: str, after: str = "") -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", OPEN, where, after],
        env={**os.environ, "PYTHONPATH": str(REPO)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_processes_that_make_one_store_at_once_all_get_it(unused_database: str) -> None:
    processes = [opening_child(unused_database) for _ in range(4)]

    for process in processes:
        printed, said = process.communicate(timeout=120)
        assert (process.returncode, printed) == (0, b"ready\n0\n"), said.decode()


def test_processes_that_migrate_one_store_at_once_make_one_copy(filled: Path) -> None:
    processes = [opening_child(str(filled), " ") for _ in range(3)]

    for process in processes:
        printed, said = process.communicate(timeout=120)
        assert (process.returncode, printed) == (0, b"ready\n3\n"), said.decode()
    assert len(backups(filled.parent)) == 1
