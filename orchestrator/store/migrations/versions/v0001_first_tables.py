"""The first tables: campaigns and what they refer to, runs with their findings, and raw output.

Written out in plain types, apart from orchestrator.store.tables: that file changes with the schema, this one never.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_ROW_NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_MOMENT = sa.Text().with_variant(sa.TIMESTAMP(timezone=True), "postgresql")
_MARK = sa.Boolean(create_constraint=True, name="is_virtual")


def upgrade() -> None:
    """Create all tables, each after those that it refers to."""
    _create_what_is_measured()
    _create_campaigns()
    _create_runs()
    _create_findings_and_raw_output()


def _create_what_is_measured() -> None:
    op.create_table(
        "devices",
        sa.Column("device_no", _ROW_NUMBER, sa.Identity(), nullable=False),
        sa.Column("serial", sa.Text(), nullable=False),
        sa.Column("is_virtual", _MARK, nullable=False),
        sa.Column("last_seen_at", _MOMENT, nullable=False),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("device_no", name=op.f("pk_devices")),
        sa.UniqueConstraint("device_no", "is_virtual", name=op.f("uq_devices_device_no")),
        sa.UniqueConstraint("serial", name=op.f("uq_devices_serial")),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "models",
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_models")),
    )
    op.create_table(
        "builds",
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("is_virtual", _MARK, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_builds")),
    )
    op.create_table(
        "cases",
        sa.Column("case_no", _ROW_NUMBER, sa.Identity(), nullable=False),
        sa.Column("case_key", sa.Text(), nullable=False),
        sa.Column("device_no", sa.BigInteger(), nullable=False),
        sa.Column("is_virtual", _MARK, nullable=False),
        sa.Column("model_sha256", sa.Text(), nullable=False),
        sa.Column("build_sha256", sa.Text(), nullable=False),
        sa.Column("delegate", sa.Text(), nullable=False),
        sa.Column("threads", sa.Integer(), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["build_sha256"], ["builds.sha256"], name=op.f("fk_cases_build_sha256")),
        sa.ForeignKeyConstraint(
            ["device_no", "is_virtual"], ["devices.device_no", "devices.is_virtual"], name=op.f("fk_cases_device_no")
        ),
        sa.ForeignKeyConstraint(["model_sha256"], ["models.sha256"], name=op.f("fk_cases_model_sha256")),
        sa.PrimaryKeyConstraint("case_no", name=op.f("pk_cases")),
        sa.UniqueConstraint("case_key", name=op.f("uq_cases_case_key")),
        sa.UniqueConstraint("case_no", "is_virtual", name=op.f("uq_cases_case_no")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_cases_build_sha256"), "cases", ["build_sha256"])
    op.create_index("ix_cases_device_no", "cases", ["device_no", "is_virtual"])
    op.create_index(op.f("ix_cases_model_sha256"), "cases", ["model_sha256"])


def _create_campaigns() -> None:
    op.create_table(
        "campaigns",
        sa.Column("campaign_no", _ROW_NUMBER, sa.Identity(), nullable=False),
        sa.Column("campaign_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("created_at", _MOMENT, nullable=False),
        sa.Column("finished_at", _MOMENT),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("plan_text", sa.Text(), nullable=False),
        sa.Column("seed", sa.Text(), nullable=False),
        sa.Column("benchfarm_version", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("terms", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("campaign_no", name=op.f("pk_campaigns")),
        sa.UniqueConstraint("campaign_id", name=op.f("uq_campaigns_campaign_id")),
        sqlite_autoincrement=True,
    )
    op.create_index(op.f("ix_campaigns_created_at"), "campaigns", ["created_at"])
    op.create_table(
        "invocations",
        sa.Column("campaign_no", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("case_no", sa.BigInteger(), nullable=False),
        sa.Column("run_pass", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(["campaign_no"], ["campaigns.campaign_no"], name=op.f("fk_invocations_campaign_no")),
        sa.ForeignKeyConstraint(["case_no"], ["cases.case_no"], name=op.f("fk_invocations_case_no")),
        sa.PrimaryKeyConstraint("campaign_no", "position", name=op.f("pk_invocations")),
        sa.UniqueConstraint("campaign_no", "case_no", "run_pass", "number", name=op.f("uq_invocations_campaign_no")),
    )
    op.create_index("ix_invocations_case_no", "invocations", ["case_no"])
    op.create_table(
        "skips",
        sa.Column("campaign_no", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("serial", sa.Text(), nullable=False),
        sa.Column("model_name", sa.Text(), nullable=False),
        sa.Column("delegate", sa.Text(), nullable=False),
        sa.Column("threads", sa.Integer(), nullable=False),
        sa.Column("tool", sa.Text(), nullable=False),
        sa.Column("reason_code", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["campaign_no"], ["campaigns.campaign_no"], name=op.f("fk_skips_campaign_no")),
        sa.PrimaryKeyConstraint("campaign_no", "position", name=op.f("pk_skips")),
    )


def _create_runs() -> None:
    op.create_table(
        "runs",
        sa.Column("run_no", _ROW_NUMBER, sa.Identity(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("campaign_no", sa.BigInteger(), nullable=False),
        sa.Column("case_no", sa.BigInteger(), nullable=False),
        sa.Column("is_virtual", _MARK, nullable=False),
        sa.Column("run_pass", sa.Text(), nullable=False),
        sa.Column("invocation", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("reason_code", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("quality", sa.Text(), nullable=False),
        sa.Column("started_at", _MOMENT, nullable=False),
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
        sa.Column("command", sa.Text(), nullable=False),
        sa.Column("report", sa.Text()),
        sa.Column("verdict", sa.Text(), nullable=False),
        sa.Column("state_before", sa.Text()),
        sa.Column("state_after", sa.Text()),
        sa.ForeignKeyConstraint(["campaign_no"], ["campaigns.campaign_no"], name=op.f("fk_runs_campaign_no")),
        sa.ForeignKeyConstraint(
            ["case_no", "is_virtual"], ["cases.case_no", "cases.is_virtual"], name=op.f("fk_runs_case_no")
        ),
        sa.PrimaryKeyConstraint("run_no", name=op.f("pk_runs")),
        sa.UniqueConstraint("campaign_no", "case_no", "run_pass", "invocation", name=op.f("uq_runs_campaign_no")),
        sa.UniqueConstraint("run_id", name=op.f("uq_runs_run_id")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_runs_night", "runs", ["campaign_no", "run_pass", "case_no", "outcome", "quality", "latency_us"])
    op.create_index(
        "ix_runs_series",
        "runs",
        ["case_no", "run_pass", "started_at", "campaign_no", "outcome", "quality", "latency_us"],
    )


def _create_findings_and_raw_output() -> None:
    op.create_table(
        "findings",
        sa.Column("run_no", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("code", sa.Text(), nullable=False),
        sa.Column("severity", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["run_no"], ["runs.run_no"], name=op.f("fk_findings_run_no")),
        sa.PrimaryKeyConstraint("run_no", "position", name=op.f("pk_findings")),
    )
    op.create_index("ix_findings_code", "findings", ["code", "run_no"])
    op.create_table(
        "blobs",
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("size_bytes", sa.BigInteger(), nullable=False),
        sa.Column("packing", sa.Text(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("sha256", name=op.f("pk_blobs")),
    )
    op.create_table(
        "attachments",
        sa.Column("run_no", sa.BigInteger(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("blob_sha256", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["blob_sha256"], ["blobs.sha256"], name=op.f("fk_attachments_blob_sha256")),
        sa.ForeignKeyConstraint(["run_no"], ["runs.run_no"], name=op.f("fk_attachments_run_no")),
        sa.PrimaryKeyConstraint("run_no", "position", name=op.f("pk_attachments")),
    )
    op.create_index(op.f("ix_attachments_blob_sha256"), "attachments", ["blob_sha256"])
