"""The tables of the first release.

Until that release they are those of tables.py. From then on they are written out here and never change, and each change
of tables.py comes with a revision of its own.
"""

from __future__ import annotations

from alembic import op

from orchestrator.store.tables import METADATA

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables, each after those that it refers to."""
    METADATA.create_all(op.get_bind())
