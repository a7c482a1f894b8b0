"""The schema's history: complete, in one piece, never backwards, and undone by a failure."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from orchestrator.errors import StoreError
from orchestrator.store.database import postgresql_engine, sqlite_engine
from orchestrator.store.migrating import SHIPPED, VERSION_TABLE, Migrations
from orchestrator.store.opening import open_store
from orchestrator.store.tables import METADATA
from tests.samples.places import REPO

NEXT_REVISION = '''
"""A revision that changes a table which holds rows, as SQLite can only do by copying it."""
import os, signal
import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "{newest}"


def upgrade() -> None:
    with op.batch_alter_table("runs") as runs:
        runs.add_column(sa.Column("operator", sa.Text(), server_default="nobody"))
    {after}
'''


def with_next_revision(folder: Path, after: str = "pass") -> Migrations:
    """Return the shipped migrations with one more, which ends with a statement of the test's."""
    copied = folder / "migrations 100%"
    shutil.copytree(SHIPPED.folder, copied, ignore=shutil.ignore_patterns("__pycache__"))
    revision = NEXT_REVISION.format(newest=SHIPPED.revisions[-1], after=after)
    (copied / "versions" / "v9999_next.py").write_text(revision)
    return Migrations(copied)


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


def test_revisions_are_named_as_alembic_orders_them() -> None:
    config = Config()
    config.set_main_option("script_location", str(SHIPPED.folder))

    newest_first = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]

    assert list(SHIPPED.revisions) == newest_first[::-1]


def test_migrations_make_the_very_tables_that_the_store_uses(unused_database: str) -> None:
    open_store(unused_database).close()
    if "://" in unused_database:
        engine = postgresql_engine(sqlalchemy.make_url(unused_database), busy_timeout_s=1)
    else:
        engine = sqlite_engine(Path(unused_database), busy_timeout_s=1)

    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        differences = compare_metadata(context, METADATA)
        checks = {
            table: {check["name"] for check in sqlalchemy.inspect(connection).get_check_constraints(table)}
            for table in ("devices", "builds", "cases", "runs")
        }
    engine.dispose()

    assert differences == []
    if connection.dialect.name == "sqlite":
        assert checks == {table: {f"ck_{table}_is_virtual"} for table in checks}


def test_a_store_of_an_older_benchfarm_is_migrated_after_a_copy_was_made(filled: Path, tmp_path: Path, samples) -> None:
    newer = with_next_revision(tmp_path)

    store = open_store(filled, migrations=newer)

    assert list(store.runs(with_attachments=True)) == [samples.run(number) for number in range(3)]
    assert store.append_run(samples.run(3))
    store.close()
    with closing(sqlite3.connect(filled)) as connection:
        assert connection.execute("SELECT DISTINCT operator FROM runs").fetchall() == [("nobody",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    (copy,) = backups(filled.parent)
    assert copy.name == f"runs.sqlite.revision-{SHIPPED.revisions[-1]}.backup1"
    restored = open_store(copy)
    assert list(restored.runs(with_attachments=True)) == [samples.run(number) for number in range(3)]
    restored.close()


def test_a_store_at_the_newest_revision_is_neither_copied_nor_changed(filled: Path) -> None:
    before = filled.read_bytes()

    open_store(filled).close()

    assert [path.name for path in filled.parent.iterdir()] == [filled.name]
    assert filled.read_bytes() == before


def test_an_earlier_copy_is_never_replaced(filled: Path, tmp_path: Path) -> None:
    newer = with_next_revision(tmp_path)
    earlier = filled.with_name(f"{filled.name}.revision-{SHIPPED.revisions[-1]}.backup1")
    earlier.write_text("precious")

    open_store(filled, migrations=newer).close()

    assert earlier.read_text() == "precious"
    assert len(backups(filled.parent)) == 2


def test_a_store_of_a_newer_benchfarm_is_left_untouched(filled: Path, tmp_path: Path) -> None:
    open_store(filled, migrations=with_next_revision(tmp_path)).close()
    before = filled.read_bytes()

    with pytest.raises(StoreError, match=r"newer benchfarm.*9999") as refused:
        open_store(filled)

    assert "upgrade" in refused.value.hint
    assert filled.read_bytes() == before


def test_a_database_of_a_newer_benchfarm_is_refused(postgresql, postgresql_template: str, tmp_path: Path) -> None:
    url = postgresql.url(postgresql.create(postgresql_template))
    open_store(url, migrations=with_next_revision(tmp_path)).close()

    with pytest.raises(StoreError, match=r"newer benchfarm.*9999"):
        open_store(url)


@pytest.mark.parametrize(
    "after",
    ['op.execute("INSERT INTO nowhere VALUES (1)")', 'op.execute("DELETE FROM models")'],
    ids=["failing", "breaking references"],
)
def test_a_migration_that_fails_changes_nothing(filled: Path, tmp_path: Path, samples, after: str) -> None:
    with pytest.raises(StoreError, match=r"runs\.sqlite: "):
        open_store(filled, migrations=with_next_revision(tmp_path, after))

    store = open_store(filled)
    assert list(store.runs(with_attachments=True)) == [samples.run(number) for number in range(3)]
    store.close()
    with closing(sqlite3.connect(filled)) as connection:
        assert "operator" not in {row[1] for row in connection.execute("PRAGMA table_info(runs)")}


OPEN = """
import pickle, sys
from orchestrator.store.opening import open_store
where, migrations = pickle.load(sys.stdin.buffer)
print("ready", flush=True)
store = open_store(where, **({"migrations": migrations} if migrations else {}))
print(sum(1 for _ in store.runs()))
store.close()
"""


def opening_child(where: str, migrations: Migrations | None = None) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", OPEN],
        env={**os.environ, "PYTHONPATH": str(REPO)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdin.write(pickle.dumps((where, migrations)))
    process.stdin.flush()
    return process


def test_a_process_that_is_killed_while_it_migrates_changes_nothing(filled: Path, tmp_path: Path, samples) -> None:
    deadly = with_next_revision(tmp_path, "os.kill(os.getpid(), signal.SIGKILL)")

    process = opening_child(str(filled), deadly)
    _, said = process.communicate(timeout=120)

    assert process.returncode == -signal.SIGKILL, said.decode()
    store = open_store(filled)
    assert list(store.runs(with_attachments=True)) == [samples.run(number) for number in range(3)]
    store.close()


def test_processes_that_make_one_store_at_once_all_get_it(unused_database: str) -> None:
    processes = [opening_child(unused_database) for _ in range(4)]

    for process in processes:
        printed, said = process.communicate(timeout=120)
        assert (process.returncode, printed) == (0, b"ready\n0\n"), said.decode()


def test_processes_that_migrate_one_store_at_once_make_one_copy(filled: Path, tmp_path: Path) -> None:
    newer = with_next_revision(tmp_path)
    processes = [opening_child(str(filled), newer) for _ in range(3)]

    for process in processes:
        printed, said = process.communicate(timeout=120)
        assert (process.returncode, printed) == (0, b"ready\n3\n"), said.decode()
    assert len(backups(filled.parent)) == 1
