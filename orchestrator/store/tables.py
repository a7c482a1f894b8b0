"""The tables of a store; revisions.py brings older ones to this form.

A run is virtual when its case is, and a case is virtual when its device is: the foreign keys carry ``is_virtual``
along, so that the database itself refuses a row that hides where its numbers come from.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from orchestrator.store.column_types import ROW_NUMBER, AnyText, ContentKey, UtcTime

METADATA = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "uq": "uq_%(table_name)s_%(column_0_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)


def _campaign_no() -> Column[int]:
    """Return the key of a table with at most one row for each campaign."""
    number = ForeignKey("campaigns.campaign_no")
    return Column("campaign_no", BigInteger, number, primary_key=True, autoincrement=False)


def _is_virtual() -> Column[bool]:
    return Column("is_virtual", Boolean(create_constraint=True, name="is_virtual"), nullable=False)


CAMPAIGNS = Table(
    "campaigns",
    METADATA,
    Column("campaign_no", ROW_NUMBER, Identity(), primary_key=True),
    Column("campaign_id", AnyText, nullable=False, unique=True),
    Column("name", AnyText, nullable=False),
    Column("created_at", UtcTime, nullable=False, index=True),
    Column("finished_at", UtcTime),
    Column("status", Text, nullable=False),
    Column("plan_text", AnyText, nullable=False),
    # In decimal digits: a seed may have more than 64 bits.
    Column("seed", Text, nullable=False),
    Column("benchfarm_version", AnyText, nullable=False),
    Column("host", AnyText, nullable=False),
    Column("terms", Text, nullable=False),
    sqlite_autoincrement=True,
)

DEVICES = Table(
    "devices",
    METADATA,
    Column("device_no", ROW_NUMBER, Identity(), primary_key=True),
    Column("serial", AnyText, nullable=False, unique=True),
    _is_virtual(),
    Column("last_seen_at", UtcTime, nullable=False),
    Column("facts", Text, nullable=False),
    # What the foreign key of cases refers to.
    UniqueConstraint("device_no", "is_virtual"),
    sqlite_autoincrement=True,
)

MODELS = Table(
    "models",
    METADATA,
    Column("sha256", AnyText, primary_key=True),
    Column("name", AnyText, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("document", Text, nullable=False),
)

BUILDS = Table(
    "builds",
    METADATA,
    Column("sha256", AnyText, primary_key=True),
    Column("name", AnyText, nullable=False),
    Column("tool", Text, nullable=False),
    _is_virtual(),
    Column("document", Text, nullable=False),
)

#: What stays the same over the nights: a case without the contents of model, program and libraries.
SERIES = Table(
    "series",
    METADATA,
    Column("series_no", ROW_NUMBER, Identity(), primary_key=True),
    Column("series_key", ContentKey, nullable=False, unique=True),
    Column("device_no", BigInteger, nullable=False),
    _is_virtual(),
    Column("model_name", AnyText, nullable=False),
    Column("delegate", Text, nullable=False),
    Column("threads", Integer, nullable=False),
    Column("tool", Text, nullable=False),
    # A case of the series without its contents.
    Column("document", Text, nullable=False),
    ForeignKeyConstraint(["device_no", "is_virtual"], ["devices.device_no", "devices.is_virtual"]),
    # What the foreign key of cases refers to.
    UniqueConstraint("series_no", "is_virtual"),
    Index("ix_series_device_no", "device_no", "is_virtual"),
    sqlite_autoincrement=True,
)

#: What a night is meant to test: model, program and libraries, by content. Many series of one night share a row.
CONTENTS = Table(
    "contents",
    METADATA,
    Column("contents_no", ROW_NUMBER, Identity(), primary_key=True),
    # The sha256 of the three below, 32 digits of it.
    Column("contents_key", ContentKey, nullable=False, unique=True),
    Column("model_sha256", AnyText, ForeignKey("models.sha256"), nullable=False),
    Column("build_sha256", AnyText, ForeignKey("builds.sha256"), nullable=False),
    # [[name, sha256], ...] as JSON.
    Column("files", Text, nullable=False),
    sqlite_autoincrement=True,
)

#: A new build makes a row for each series every night: these stay small.
CASES = Table(
    "cases",
    METADATA,
    Column("case_no", ROW_NUMBER, Identity(), primary_key=True),
    Column("case_key", ContentKey, nullable=False, unique=True),
    Column("series_no", BigInteger, nullable=False),
    Column("contents_no", BigInteger, ForeignKey("contents.contents_no"), nullable=False),
    _is_virtual(),
    ForeignKeyConstraint(["series_no", "is_virtual"], ["series.series_no", "series.is_virtual"]),
    # What the foreign key of runs refers to.
    UniqueConstraint("case_no", "is_virtual"),
    Index("ix_cases_series_no", "series_no"),
    sqlite_autoincrement=True,
)

#: The invocations that a campaign planned, in the order in which they are to be run, as campaigns.py packs them.
PLANS = Table(
    "plans",
    METADATA,
    _campaign_no(),
    Column("invocation_count", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

SKIPS = Table(
    "skips",
    METADATA,
    Column("campaign_no", BigInteger, ForeignKey("campaigns.campaign_no"), primary_key=True),
    Column("position", Integer, primary_key=True),
    # Not a foreign key: a device that the plan names need never have been attached.
    Column("serial", AnyText, nullable=False),
    Column("model_name", AnyText, nullable=False),
    Column("delegate", Text, nullable=False),
    Column("threads", Integer, nullable=False),
    Column("tool", Text, nullable=False),
    Column("reason_code", AnyText, nullable=False),
    Column("reason", AnyText, nullable=False),
)

#: Figures that rows.summary_of takes from a report, so that a question over many runs needn't read documents: those of
#: its inferences, and its own.
OF_INFERENCES = ("first_us", "min_us", "max_us", "mean_us", "std_us", "p5_us", "median_us", "p95_us")
OF_REPORT = (
    "init_us", "first_inference_us", "warmup_mean_us", "init_memory_mib", "overall_memory_mib", "peak_memory_mib",
)  # fmt: skip

#: Runs by which later runs of their series are compressed (see bodies.py).
PATTERNS = Table(
    "patterns",
    METADATA,
    Column("pattern_no", ROW_NUMBER, Identity(), primary_key=True),
    Column("series_no", BigInteger, ForeignKey("series.series_no"), nullable=False),
    Column("run_pass", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Index("ix_patterns_series", "series_no", "run_pass", "outcome", "pattern_no"),
    sqlite_autoincrement=True,
)

#: Runs that the history tells beside its figures; a question that says the same is answered from their index.
IS_MARK = "run_pass = 'parity' OR run_pass = 'timing' AND (latency_us IS NULL OR quality = 'rejected')"

RUNS = Table(
    "runs",
    METADATA,
    # Counts up in the order in which runs were stored.
    Column("run_no", ROW_NUMBER, Identity(), primary_key=True),
    Column("run_id", ContentKey, nullable=False, unique=True),
    Column("campaign_no", BigInteger, ForeignKey("campaigns.campaign_no"), nullable=False),
    Column("case_no", BigInteger, nullable=False),
    _is_virtual(),
    Column("run_pass", Text, nullable=False),
    Column("invocation", Integer, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("reason_code", AnyText, nullable=False),
    Column("reason", AnyText, nullable=False),
    Column("quality", Text, nullable=False),
    Column("started_at", UtcTime(compact=True), nullable=False),
    Column("duration_s", Double, nullable=False),
    Column("exit_code", BigInteger),
    Column("latency_us", Double),
    Column("inference_count", BigInteger),
    *(Column(name, Double) for name in (*OF_INFERENCES, *OF_REPORT)),
    Column("delegate_actual", AnyText),
    Column("delegate_truth", Text),
    # Command, report, verdict, states and raw output, as bodies.py packs them.
    Column("pattern_no", BigInteger, ForeignKey("patterns.pattern_no")),
    Column("body", LargeBinary, nullable=False),
    # One case over time; a few hundred figures are then read from their rows.
    UniqueConstraint("case_no", "run_pass", "campaign_no", "invocation"),
    ForeignKeyConstraint(["case_no", "is_virtual"], ["cases.case_no", "cases.is_virtual"]),
    Index("ix_runs_campaign_no", "campaign_no"),
    # A campaign's progress without reading its runs: all of them, less these few. The conditions are SQLite's alone:
    # naming PostgreSQL's here would load its dialect with every store.
    Index("ix_runs_unfit", "campaign_no", sqlite_where=text("outcome = 'unfit'")),
    Index("ix_runs_marks", "campaign_no", sqlite_where=text(IS_MARK)),
    sqlite_autoincrement=True,
)

#: The timing figures of a campaign that isn't running, as figures.py packs them: derived from its runs, and deleted
#: when one of them changes. A campaign without a sheet is read from its runs.
SHEETS = Table(
    "sheets",
    METADATA,
    _campaign_no(),
    Column("body", LargeBinary, nullable=False),
)

#: Which findings a run has; message and evidence are in the run's verdict.
FINDINGS = Table(
    "findings",
    METADATA,
    Column("run_no", BigInteger, ForeignKey("runs.run_no"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("code", AnyText, nullable=False),
    Column("severity", Text, nullable=False),
    Index("ix_findings_code", "code", "run_no"),
    # Its key is the table: a tree less to write with each run.
    sqlite_with_rowid=False,
)

BLOBS = Table(
    "blobs",
    METADATA,
    Column("sha256", Text, primary_key=True),
    # Of the content, before it was packed.
    Column("size_bytes", BigInteger, nullable=False),
    Column("packing", Text, nullable=False),
    Column("data", LargeBinary, nullable=False),
)

#: Raw output that is too large to lie in its run.
ATTACHMENTS = Table(
    "attachments",
    METADATA,
    Column("run_no", BigInteger, ForeignKey("runs.run_no"), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("name", AnyText, nullable=False),
    Column("blob_sha256", Text, ForeignKey("blobs.sha256"), nullable=False, index=True),
)

#: Campaigns whose raw output was deleted, and by which policy (see retention.py).
PRUNED = Table(
    "pruned",
    METADATA,
    _campaign_no(),
    Column("policy", Text, nullable=False),
)

#: Campaigns that lists, tables and the history leave out.
HIDDEN = Table(
    "hidden",
    METADATA,
    _campaign_no(),
)

#: What a device was, from then on: a row for each time that it came back changed.
DEVICE_HISTORY = Table(
    "device_history",
    METADATA,
    Column("device_no", BigInteger, ForeignKey("devices.device_no"), primary_key=True),
    Column("seen_at", UtcTime, primary_key=True),
    Column("facts", Text, nullable=False),
)

#: Changes that somebody expects.
ANNOTATIONS = Table(
    "annotations",
    METADATA,
    Column("annotation_no", ROW_NUMBER, Identity(), primary_key=True),
    Column("annotation_id", AnyText, nullable=False, unique=True),
    # Text that a series must fit, see records/history.py.
    Column("selection", AnyText, nullable=False),
    Column("night", Text, nullable=False),
    Column("text", AnyText, nullable=False),
    Column("created_at", UtcTime, nullable=False),
    sqlite_autoincrement=True,
)

#: What became of changes that were found: confirmed by an A/B rerun, refuted, or why that isn't known.
CONFIRMATIONS = Table(
    "confirmations",
    METADATA,
    Column("series_key", AnyText, primary_key=True),
    Column("night", Text, primary_key=True),
    Column("status", Text, nullable=False),
    Column("detail", AnyText, nullable=False),
    Column("ratio", Double),
    Column("at", UtcTime, nullable=False),
)
