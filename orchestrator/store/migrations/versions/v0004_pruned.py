"""Which campaigns' raw output was deleted by a policy, when and by which."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Bring a store of revision 0003 to this one."""
    op.create_table(
        "pruned",
        sa.Column("campaign_no", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["campaign_no"], ["campaigns.campaign_no"], name=op.f("fk_pruned_campaign_no")),
        sa.PrimaryKeyConstraint("campaign_no", name=op.f("pk_pruned")),
    )
