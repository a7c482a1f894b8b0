"""Series, annotations, confirmations, devices over time; runs packed as differences from an earlier run.

What was stored before is packed here too, a series after the other, and comes back as it was. The old columns of raw
output and documents go; the blobs stay only for attachments that are too large for a run's own body.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

from orchestrator.records.identity import content_key
from orchestrator.store import bodies
from orchestrator.store.blobs import PackedBlob, unpack
from orchestrator.store.column_types import ROW_NUMBER, UtcTime, unescape_text

revision = "0002"
down_revision = "0001"

_PAGE = 200
_OLD = ("command", "report", "verdict", "state_before", "state_after")


def upgrade() -> None:
    """Bring a store of revision 0001 to this one."""
    _create_tables()
    with op.batch_alter_table("cases") as cases:
        cases.add_column(sa.Column("series_key", sa.Text()))
    with op.batch_alter_table("runs") as runs:
        runs.add_column(sa.Column("pattern_no", sa.BigInteger()))
        runs.add_column(sa.Column("body", sa.LargeBinary()))
    _fill_cases()
    _fill_history()
    _pack_runs()
    with op.batch_alter_table("cases") as cases:
        cases.alter_column("series_key", existing_type=sa.Text(), nullable=False)
    op.create_index(op.f("ix_cases_series_key"), "cases", ["series_key"])
    op.drop_index("ix_runs_series", "runs")
    op.drop_index("ix_runs_night", "runs")
    with op.batch_alter_table("runs", table_kwargs={"sqlite_autoincrement": True}) as runs:
        for name in _OLD:
            runs.drop_column(name)
        runs.alter_column("body", existing_type=sa.LargeBinary(), nullable=False)
        runs.create_foreign_key(op.f("fk_runs_pattern_no"), "patterns", ["pattern_no"], ["pattern_no"])
    op.create_index("ix_runs_series", "runs", ["case_no", "run_pass", "campaign_no", "quality", "latency_us"])
    op.create_index("ix_runs_night", "runs", ["campaign_no", "run_pass", "case_no", "quality", "latency_us"])
    op.drop_index("ix_invocations_case_no", "invocations")
    if op.get_bind().dialect.name == "sqlite":
        with op.batch_alter_table("invocations", recreate="always", table_kwargs={"sqlite_with_rowid": False}):
            pass


def _create_tables() -> None:
    op.create_table(
        "patterns",
        sa.Column("pattern_no", ROW_NUMBER, sa.Identity(), nullable=False),
        sa.Column("series_key", sa.Text(), nullable=False),
        sa.Column("run_pass", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("pattern_no", name=op.f("pk_patterns")),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_patterns_series", "patterns", ["series_key", "run_pass", "outcome", "pattern_no"])
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


def _fill_cases() -> None:
    connection = op.get_bind()
    cases = sa.table("cases", sa.column("case_no"), sa.column("document"), sa.column("series_key"))
    for case_no, document in connection.execute(sa.select(cases.c.case_no, cases.c.document)).all():
        key = series_key_of(json.loads(document))
        connection.execute(sa.update(cases).where(cases.c.case_no == case_no).values(series_key=key))


def series_key_of(document: dict[str, Any]) -> str:
    """Return the series key of a case's document, as records/workload.py of this revision computes it."""
    row = {name: value for name, value in document.items() if name not in ("model_sha256", "build_sha256", "files")}
    if row.get("mode") is None:
        row.pop("mode", None)
    row["files"] = [name for name, _ in document.get("files") or ()]
    return content_key(row)[:32]


def _fill_history() -> None:
    op.execute(
        "INSERT INTO device_history (device_no, seen_at, facts) SELECT device_no, last_seen_at, facts FROM devices"
    )


def _pack_runs() -> None:
    connection = op.get_bind()
    runs = sa.table("runs", *map(sa.column, ("run_no", "run_id", "case_no", "run_pass", "outcome", *_OLD)))
    cases = sa.table("cases", sa.column("case_no"), sa.column("series_key"))
    changed = sa.table("runs", sa.column("run_no"), sa.column("pattern_no"), sa.column("body", sa.LargeBinary()))
    packer = bodies.Packer(connection)
    numbers = list(connection.execute(sa.select(runs.c.run_no).order_by(runs.c.run_no)).scalars())
    for start in range(0, len(numbers), _PAGE):
        page = numbers[start : start + _PAGE]
        query = sa.select(*runs.c, cases.c.series_key).join_from(runs, cases, runs.c.case_no == cases.c.case_no)
        for row in connection.execute(query.where(runs.c.run_no.in_(page)).order_by(runs.c.run_no)).mappings().all():
            documents = {name: row[name] for name in _OLD} | {"command": unescape_text(row["command"])}
            attachments = _attachments(connection, row["run_no"])
            pattern_no, body, large = packer.pack(
                series_key=row["series_key"],
                run_pass=row["run_pass"],
                outcome=row["outcome"],
                run_id=row["run_id"],
                documents=documents,
                attachments=attachments,
            )
            connection.execute(
                sa.update(changed).where(changed.c.run_no == row["run_no"]).values(pattern_no=pattern_no, body=body)
            )
            _keep_large(connection, row["run_no"], {position for position, _, _ in large})
    op.execute("DELETE FROM blobs WHERE sha256 NOT IN (SELECT blob_sha256 FROM attachments)")


def _attachments(connection: sa.Connection, run_no: int) -> list[tuple[str, bytes]]:
    query = sa.text(
        "SELECT a.name, b.sha256, b.size_bytes, b.packing, b.data FROM attachments a "
        "JOIN blobs b ON b.sha256 = a.blob_sha256 WHERE a.run_no = :run_no ORDER BY a.position"
    )
    return [
        (
            unescape_text(name),
            unpack(PackedBlob(sha256=sha256, size_bytes=size_bytes, packing=packing, data=bytes(data))),
        )
        for name, sha256, size_bytes, packing, data in connection.execute(query, {"run_no": run_no})
    ]


def _keep_large(connection: sa.Connection, run_no: int, positions: set[int]) -> None:
    attachments = sa.table("attachments", sa.column("run_no"), sa.column("position"))
    of_run = attachments.c.run_no == run_no
    connection.execute(sa.delete(attachments).where(of_run, attachments.c.position.not_in(positions)))
