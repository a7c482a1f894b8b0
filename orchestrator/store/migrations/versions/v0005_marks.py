"""An index of the runs that the history tells beside its figures: failed ones, and comparisons of outputs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"

_IS_MARK = sa.text("run_pass = 'parity' OR run_pass = 'timing' AND (latency_us IS NULL OR quality = 'rejected')")


def upgrade() -> None:
    """Bring a store of revision 0004 to this one."""
    op.create_index("ix_runs_marks", "runs", ["campaign_no"], sqlite_where=_IS_MARK, postgresql_where=_IS_MARK)
