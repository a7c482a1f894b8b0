"""Figures of a campaign in one value in the place of an index; patterns told apart from other series' patterns.

Patterns and runs that are stored stay as they are: a pattern without base stands alone, as before.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from orchestrator.store.sheets import keep_sheets, watch_runs, without_sheet

revision = "0003"
down_revision = "0002"

_IS_ALONE = sa.text("base_no IS NULL")


def upgrade() -> None:
    """Bring a store of revision 0002 to this one."""
    connection = op.get_bind()
    if connection.dialect.name == "sqlite":
        # The very statement: Alembic would copy the whole table over for the reference.
        op.execute(
            "ALTER TABLE patterns ADD COLUMN base_no BIGINT "
            "CONSTRAINT fk_patterns_base_no REFERENCES patterns (pattern_no)"
        )
    else:
        op.add_column("patterns", sa.Column("base_no", sa.BigInteger()))
        op.create_foreign_key(op.f("fk_patterns_base_no"), "patterns", "patterns", ["base_no"], ["pattern_no"])
    op.create_index(
        "ix_patterns_alone",
        "patterns",
        ["run_pass", "outcome", "pattern_no"],
        sqlite_where=_IS_ALONE,
        postgresql_where=_IS_ALONE,
    )
    op.drop_index("ix_runs_night", "runs")
    op.create_index(op.f("ix_runs_campaign_no"), "runs", ["campaign_no"])
    op.create_table(
        "sheets",
        sa.Column("campaign_no", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["campaign_no"], ["campaigns.campaign_no"], name=op.f("fk_sheets_campaign_no")),
        sa.PrimaryKeyConstraint("campaign_no", name=op.f("pk_sheets")),
    )
    watch_runs(connection)
    keep_sheets(connection, without_sheet(connection))
