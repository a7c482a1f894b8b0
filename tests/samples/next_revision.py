"""A revision of the store's schema that changes a table which holds rows, for tests of migrating."""

from __future__ import annotations

from sqlalchemy import Connection

from orchestrator.store.revisions import REVISIONS, Revisions


def with_next_revision(after: str = "") -> Revisions:
    """Return the shipped revisions with one more, which ends with a statement of the test's."""

    def upgrade(connection: Connection) -> None:
        connection.exec_driver_sql("ALTER TABLE runs ADD COLUMN operator TEXT DEFAULT 'nobody'")
        if after:
            connection.exec_driver_sql(after)

    return {**REVISIONS, "9999": upgrade}
