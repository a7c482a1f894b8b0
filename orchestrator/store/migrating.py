"""Bringing a database to the newest schema, once, whole, and never backwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from sqlalchemy import Column, Connection, MetaData, String, Table, inspect, select

from orchestrator.errors import StoreError
from orchestrator.store.database import Database
from orchestrator.store.sheets import watch_runs
from orchestrator.store.tables import SHEETS

#: Alembic's own table, under a name that can't be another program's in a shared database.
VERSION_TABLE: Final = "benchfarm_schema"
_VERSIONS: Final = Table(VERSION_TABLE, MetaData(), Column("version_num", String))


@dataclass(frozen=True)
class Migrations:
    """A folder of Alembic migrations whose files are named ``v<revision>_<title>.py``, in the order of their names."""

    folder: Path

    @cached_property
    def revisions(self) -> tuple[str, ...]:
        """All revisions, oldest first; read from the names, since importing Alembic takes longer than opening."""
        names = sorted(path.stem for path in (self.folder / "versions").glob("v*.py"))
        return tuple(name.removeprefix("v").split("_", 1)[0] for name in names)

    def are_due(self, database: Database) -> bool:
        """Whether a database is older than the newest revision; raises StoreError when a newer benchfarm made it."""
        with database.reading() as connection:
            return not self._is_newest(connection, database.name)

    def run(self, database: Database, *, back_up: Callable[[str], object] | None = None) -> None:
        """Migrate a database to the newest revision.

        It is one transaction under the database's write lock: of two processes, the second finds it done, and a
        process that dies leaves everything as it was.

        Args:
            database: on SQLite, opened with ``checks_references=False``: a table that is copied over to be altered
                is without its references for a moment.
            back_up: called with the old revision before a database that holds something is changed.

        Raises:
            StoreError: a newer benchfarm made the database, or a migration failed (and was rolled back).
        """
        with database.writing(is_long=True) as connection:
            if self._is_newest(connection, database.name):
                return
            revision = current_revision(connection)
            if revision is not None and back_up is not None:
                back_up(revision)
            self._upgrade(connection)
            if inspect(connection).has_table(SHEETS.name):
                watch_runs(connection)
            _check_references(connection, database.name)

    def _is_newest(self, connection: Connection, name: str) -> bool:
        revision = current_revision(connection)
        if revision is not None and revision not in self.revisions:
            raise StoreError(
                f"{name}: made by a newer benchfarm (schema {revision}, this one knows up to {self.revisions[-1]}); "
                "it was left untouched",
                hint="upgrade benchfarm, or name another store",
            )
        return revision == self.revisions[-1]

    def _upgrade(self, connection: Connection) -> None:
        from alembic import command
        from alembic.config import Config

        config = Config()
        # A percent sign would be taken for one of the configuration's own references.
        config.set_main_option("script_location", str(self.folder).replace("%", "%%"))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


#: The migrations that ship with this package.
SHIPPED: Final = Migrations(Path(__file__).parent / "migrations")


def current_revision(connection: Connection) -> str | None:
    """Return the revision that a database is at, None for one that holds nothing of ours."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.scalar(select(_VERSIONS.c.version_num))


def _check_references(connection: Connection, name: str) -> None:
    """Raise when a migration left a row without the row that it refers to; SQLite doesn't check while it migrates."""
    if connection.dialect.name == "sqlite" and connection.exec_driver_sql("PRAGMA foreign_key_check").first():
        raise StoreError(f"{name}: the migration broke a reference between two rows; it was rolled back")
