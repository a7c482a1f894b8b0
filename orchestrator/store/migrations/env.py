"""What Alembic runs for every command: on the connection that it was given, inside the transaction that is open."""

from __future__ import annotations

from alembic import context

from orchestrator.store.migrating import VERSION_TABLE
from orchestrator.store.tables import METADATA

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=VERSION_TABLE,
    # SQLite can't alter most of a table: Alembic copies it over instead.
    render_as_batch=True,
)
context.run_migrations()
