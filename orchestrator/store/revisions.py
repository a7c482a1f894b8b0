"""Bringing a database to the newest schema, once, whole, and never backwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from sqlalchemy import Column, Connection, MetaData, String, Table, delete, insert, inspect, select

from orchestrator.errors import StoreError
from orchestrator.store.database import Database
from orchestrator.store.tables import METADATA

#: The table that says at which revision a database is; its name can't be another program's in a shared database.
VERSION_TABLE: Final = "benchfarm_schema"
_VERSIONS: Final = Table(VERSION_TABLE, MetaData(), Column("version_num", String(32), primary_key=True))

#: Revision -> what brings a database of the revision before to it, oldest first. From the first release on a change of
#: tables.py comes with a revision of its own, whose function changes the tables of a store that has runs.
Revisions = Mapping[str, Callable[[Connection], object]]
REVISIONS: Final[Revisions] = {"0001": partial(METADATA.create_all, checkfirst=False)}


def current_revision(database: Database, revisions: Revisions = REVISIONS) -> str | None:
    """Return the revision that a database is at, None for one that holds nothing of ours.

    Raises StoreError when a newer benchfarm made it.
    """
    with database.reading() as connection:
        return _revision(connection, database.name, revisions)


def migrate(database: Database, revisions: Revisions, *, back_up: Callable[[str], object] | None = None) -> None:
    """Bring a database to the newest revision.

    It is one transaction under the database's write lock: of two processes, the second finds it done, and a
    process that dies leaves everything as it was.

    Args:
        database: on SQLite, opened with ``checks_references=False``: a table that is copied over to be altered
            is without its references for a moment.
        revisions: all that there are.
        back_up: called with the old revision before a database that holds something is changed.

    Raises:
        StoreError: a newer benchfarm made the database, or a migration failed (and was rolled back).
    """
    with database.writing(is_long=True) as connection:
        revision = _revision(connection, database.name, revisions)
        names = list(revisions)
        due = names[names.index(revision) + 1 :] if revision else names
        if due and revision and back_up is not None:
            back_up(revision)
        for name in due:
            revisions[name](connection)
        if due:
            _VERSIONS.create(connection, checkfirst=True)
            connection.execute(delete(_VERSIONS))
            connection.execute(insert(_VERSIONS), {"version_num": names[-1]})
        # SQLite doesn't check references while it migrates.
        if connection.dialect.name == "sqlite" and connection.exec_driver_sql("PRAGMA foreign_key_check").first():
            raise StoreError(f"{database.name}: the migration broke a reference between two rows; it was rolled back")


def _revision(connection: Connection, name: str, revisions: Revisions) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    revision = connection.scalar(select(_VERSIONS.c.version_num))
    if revision is not None and revision not in revisions:
        raise StoreError(
            f"{name}: made by a newer benchfarm (schema {revision}, this one knows up to {list(revisions)[-1]}); "
            "it was left untouched",
            hint="upgrade benchfarm, or name another store",
        )
    return revision
