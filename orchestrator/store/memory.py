"""A store that is gone with its process: for dry runs, and for tests of what stands above."""

from __future__ import annotations

import functools
import shutil
import tempfile
import weakref
from contextlib import closing
from pathlib import Path

from orchestrator.errors import HostStorageError
from orchestrator.store import sqlite_file
from orchestrator.store.database import Database, sqlite_engine
from orchestrator.store.sheets import watch_runs
from orchestrator.store.sql import SqlStore
from orchestrator.store.tables import METADATA


class MemoryStore(SqlStore):
    """The Store port over an SQLite file in a temporary folder, which is deleted with the store.

    Raises HostStorageError when there is no room for temporary files.
    """

    def __init__(self, name: str = ":memory:") -> None:
        try:
            folder = Path(tempfile.mkdtemp(prefix="benchfarm-store-"))
            self._remove = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            (folder / "store.sqlite").write_bytes(_empty())
        except OSError as error:
            raise HostStorageError(f"a temporary file can't be written: {error}") from error
        super().__init__(_database(folder / "store.sqlite", name))

    def close(self) -> None:
        """Let go of the database, and delete it."""
        super().close()
        self._remove()


@functools.cache
def _empty() -> bytes:
    """Return the file of an empty store."""
    with tempfile.TemporaryDirectory(prefix="benchfarm-store-") as folder:
        path = Path(folder) / "empty.sqlite"
        sqlite_file.prepare_file(path, busy_timeout_s=30.0)
        with closing(_database(path, "empty")) as database, database.writing() as connection:
            METADATA.create_all(connection)
            watch_runs(connection)
        sqlite_file.compact(path)
        return path.read_bytes()


def _database(path: Path, name: str) -> Database:
    engine = sqlite_engine(path, busy_timeout_s=30.0, is_durable=False)
    return Database(engine, name=name, path=path, busy_timeout_s=30.0)
