"""The tables that revision 0002 makes. Never changes; plain types, as in the first revision."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

from orchestrator.store.column_types import ROW_NUMBER, CompactTime, UtcTime

_MARK = sa.Boolean(create_constraint=True, name="is_virtual")


def same_columns() -> tuple[sa.Column[Any], ...]:
    """Return the columns of runs that stay as they are, new ones each time: a column belongs to one table."""
    return (
        sa.Column("run_pass", sa.Text(), nullable=False),
        sa.Column("invocation", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("reason_code", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("quality", sa.Text(), nullable=False),
        sa.Column("duration_s", sa.Double(), nullable=False),
        sa.Column("exit_code", sa.BigInteger()),
        sa.Column("latency_us", sa.Double()),
        sa.Column("inference_count", sa.BigInteger()),
        sa.Column("first_us", sa.Double()),
        sa.Column("min_us", sa.Double()),
        sa.Column("max_us", sa.Double()),
        sa.Column("mean_us", sa.Double()),
        sa.Column("std_us", sa.Double()),
        sa.Column("p5_us", sa.Double()),
        sa.Column("median_us", sa.Double()),
        sa.Column("p95_us", sa.Double()),
        sa.Column("init_us", sa.Double()),
        sa.Column("first_inference_us", sa.Double()),
        sa.Column("warmup_mean_us", sa.Double()),
        sa.Column("init_memory_mib", sa.Double()),
        sa.Column("overall_memory_mib", sa.Double()),
        sa.Column("peak_memory_mib", sa.Double()),
        sa.Column("delegate_actual", sa.Text()),
        sa.Column("delegate_truth", sa.Text()),
    )


def create_cases() -> None:
    """Create what cases are made of, plans, and the patterns of series."""
    op.create_table(
        "series",
        sa.Column("series_no", ROW_NUMBER, sa.Identity(), nullable=False),
        sa.Column("series_key", sa.LargeBinary(), nullable=False),
        sa.Column("device_no", sa.BigInteger(), nullable=False),
        sa.Column("is_virtual", _MARK, nullable=False),
        sa.Column("model_name", sa.Text(), nullable=False),
        sa.Column("delegate", sa.Text(), nullable=False),
        sa.Column("threads", sa.Integer(), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["device_no", "is_virtual"], ["devices.device_no", "devices.is_virtual"], name=op.f("fk_series_device_no")
        ),
        sa.PrimaryKeyConstraint("series_no", name=op.f("pk_series")),
        sa.UniqueConstraint("series_key", name=op.f("uq_series_series_key")),
        sa.UniqueConstraint("series_no", "is_virtual", name=op.f("uq_series_series_no")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_series_device_no", "series", ["device_no", "is_virtual"])
    op.create_table(
        "contents",
        sa.Column("contents_no", ROW_NUMBER, sa.Identity(), nullable=False),
        sa.Column("contents_key", sa.LargeBinary(), nullable=False),
        sa.Column("model_sha256", sa.Text(), nullable=False),
        sa.Column("build_sha256", sa.Text(), nullable=False),
        sa.Column("files", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["model_sha256"], ["models.sha256"], name=op.f("fk_contents_model_sha256")),
        sa.ForeignKeyConstraint(["build_sha256"], ["builds.sha256"], name=op.f("fk_contents_build_sha256")),
        sa.PrimaryKeyConstraint("contents_no", name=op.f("pk_contents")),
        sa.UniqueConstraint("contents_key", name=op.f("uq_contents_contents_key")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "cases",
        sa.Column("case_no", ROW_NUMBER, sa.Identity(), nullable=False),
        sa.Column("case_key", sa.LargeBinary(), nullable=False),
        sa.Column("series_no", sa.BigInteger(), nullable=False),
        sa.Column("contents_no", sa.BigInteger(), nullable=False),
        sa.Column("is_virtual", _MARK, nullable=False),
        sa.ForeignKeyConstraint(["contents_no"], ["contents.contents_no"], name=op.f("fk_cases_contents_no")),
        sa.ForeignKeyConstraint(
            ["series_no", "is_virtual"], ["series.series_no", "series.is_virtual"], name=op.f("fk_cases_series_no")
        ),
        sa.PrimaryKeyConstraint("case_no", name=op.f("pk_cases")),
        sa.UniqueConstraint("case_key", name=op.f("uq_cases_case_key")),
        sa.UniqueConstraint("case_no", "is_virtual", name=op.f("uq_cases_case_no")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_cases_series_no", "cases", ["series_no"])
    op.create_table(
        "plans",
        sa.Column("campaign_no", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("invocation_count", sa.Integer(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["campaign_no"], ["campaigns.campaign_no"], name=op.f("fk_plans_campaign_no")),
        sa.PrimaryKeyConstraint("campaign_no", name=op.f("pk_plans")),
    )
    op.create_table(
        "patterns",
        sa.Column("pattern_no", ROW_NUMBER, sa.Identity(), nullable=False),
        sa.Column("series_no", sa.BigInteger(), nullable=False),
        sa.Column("run_pass", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("usual", sa.Text()),
        sa.ForeignKeyConstraint(["series_no"], ["series.series_no"], name=op.f("fk_patterns_series_no")),
        sa.PrimaryKeyConstraint("pattern_no", name=op.f("pk_patterns")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_patterns_series", "patterns", ["series_no", "run_pass", "outcome", "pattern_no"])


def create_history() -> None:
    """Create what is known over the nights."""
    op.create_table(
        "device_history",
        sa.Column("device_no", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", UtcTime(), nullable=False),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["device_no"], ["devices.device_no"], name=op.f("fk_device_history_device_no")),
        sa.PrimaryKeyConstraint("device_no", "seen_at", name=op.f("pk_device_history")),
    )
    op.create_table(
        "annotations",
        sa.Column("annotation_no", ROW_NUMBER, sa.Identity(), nullable=False),
        sa.Column("annotation_id", sa.Text(), nullable=False),
        sa.Column("selection", sa.Text(), nullable=False),
        sa.Column("night", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("created_at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("annotation_no", name=op.f("pk_annotations")),
        sa.UniqueConstraint("annotation_id", name=op.f("uq_annotations_annotation_id")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "confirmations",
        sa.Column("series_key", sa.Text(), nullable=False),
        sa.Column("night", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text(), nullable=False),
        sa.Column("ratio", sa.Double()),
        sa.Column("at", UtcTime(), nullable=False),
        sa.PrimaryKeyConstraint("series_key", "night", name=op.f("pk_confirmations")),
    )


def create_runs() -> None:
    """Create the table of runs."""
    op.create_table(
        "runs",
        sa.Column("run_no", ROW_NUMBER, sa.Identity(), nullable=False),
        sa.Column("run_id", sa.LargeBinary(), nullable=False),
        sa.Column("campaign_no", sa.BigInteger(), nullable=False),
        sa.Column("case_no", sa.BigInteger(), nullable=False),
        sa.Column("is_virtual", _MARK, nullable=False),
        *same_columns()[:6],
        sa.Column("started_at", CompactTime(), nullable=False),
        *same_columns()[6:],
        sa.Column("pattern_no", sa.BigInteger()),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["campaign_no"], ["campaigns.campaign_no"], name=op.f("fk_runs_campaign_no")),
        sa.ForeignKeyConstraint(
            ["case_no", "is_virtual"], ["cases.case_no", "cases.is_virtual"], name=op.f("fk_runs_case_no")
        ),
        sa.ForeignKeyConstraint(["pattern_no"], ["patterns.pattern_no"], name=op.f("fk_runs_pattern_no")),
        sa.PrimaryKeyConstraint("run_no", name=op.f("pk_runs")),
        sa.UniqueConstraint("run_id", name=op.f("uq_runs_run_id")),
        sa.UniqueConstraint("case_no", "run_pass", "campaign_no", "invocation", name=op.f("uq_runs_case_no")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_runs_night", "runs", ["campaign_no", "run_pass", "case_no", "quality", "latency_us"])
    is_unfit = sa.text("outcome = 'unfit'")
    op.create_index("ix_runs_unfit", "runs", ["campaign_no"], sqlite_where=is_unfit, postgresql_where=is_unfit)
