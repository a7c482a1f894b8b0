"""Series, annotations, confirmations, devices over time; runs packed as differences, cases and plans kept small.

What was stored before is packed here too, a series after the other, and comes back as it was. The old columns of raw
output and documents go; the blobs stay only for attachments that are too large for a run's own body. Cases become
series and contents, a campaign's planned invocations become one value. ``cases`` and ``runs`` are put aside, made
anew and filled; their numbers stay.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

from orchestrator.documents import to_text
from orchestrator.records.identity import content_key
from orchestrator.store import bodies
from orchestrator.store.blobs import PackedBlob, unpack
from orchestrator.store.column_types import AnyText, CompactTime, ContentKey, UtcTime, unescape_text
from orchestrator.store.migrations.schema_0002 import create_cases, create_history, create_runs, same_columns
from orchestrator.store.plans import pack_plan
from orchestrator.store.rows import known_of

revision = "0002"
down_revision = "0001"

_PAGE = 200
_OLD = ("command", "report", "verdict", "state_before", "state_after")
_CONTENTS = ("model_sha256", "build_sha256", "files")


def upgrade() -> None:
    """Bring a store of revision 0001 to this one."""
    _put_aside("runs", {"findings": "fk_findings_run_no", "attachments": "fk_attachments_run_no"})
    _put_aside("cases", {"invocations": "fk_invocations_case_no", "old_runs": "fk_runs_case_no"})
    create_cases()
    create_history()
    create_runs()
    _fill_cases()
    _fill_plans()
    _fill_history()
    _fill_runs()
    op.drop_table("invocations")
    op.drop_table("old_runs")
    op.drop_table("old_cases")
    op.execute("DELETE FROM blobs WHERE sha256 NOT IN (SELECT blob_sha256 FROM attachments)")
    if op.get_bind().dialect.name == "postgresql":
        _mend_postgresql()


def _put_aside(table: str, referring: dict[str, str]) -> None:
    """Rename a table and whatever would be in the way of a new one of its name."""
    connection = op.get_bind()
    if connection.dialect.name == "sqlite":
        # What refers to the table goes on naming it, and so means the new one.
        op.execute("PRAGMA legacy_alter_table = ON")
        for index in sa.inspect(connection).get_indexes(table):
            op.drop_index(str(index["name"]), table)
        op.rename_table(table, f"old_{table}")
        op.execute("PRAGMA legacy_alter_table = OFF")
        return
    for other, name in referring.items():
        op.drop_constraint(name, other, type_="foreignkey")
    indexes = sa.text("SELECT indexname FROM pg_indexes WHERE schemaname = current_schema() AND tablename = :table")
    for (index,) in connection.execute(indexes, {"table": table}).all():
        op.execute(f'ALTER INDEX "{index}" RENAME TO "old_{index}"')
    op.rename_table(table, f"old_{table}")


def _mend_postgresql() -> None:
    """Let identities go on behind the numbers that were given, and refer to the new tables."""
    connection = op.get_bind()
    for table, column in (("cases", "case_no"), ("runs", "run_no")):
        last = connection.scalar(sa.select(sa.func.max(sa.column(column))).select_from(sa.table(table))) or 0
        sequence = sa.func.pg_get_serial_sequence(table, column)
        connection.execute(sa.select(sa.func.setval(sequence, last + 1, sa.false())))
    op.create_foreign_key(op.f("fk_findings_run_no"), "findings", "runs", ["run_no"], ["run_no"])
    op.create_foreign_key(op.f("fk_attachments_run_no"), "attachments", "runs", ["run_no"], ["run_no"])


def _fill_cases() -> None:
    connection = op.get_bind()
    old = _table("old_cases", "device_no", "is_virtual", "document", case_no=None, case_key=AnyText())
    series = _table(
        "series", "device_no", "is_virtual", "delegate", "threads", "tool", "document",
        series_no=None, series_key=ContentKey(), model_name=AnyText(),
    )  # fmt: skip
    contents = _table(
        "contents", "files", contents_no=None, contents_key=ContentKey(), model_sha256=AnyText(), build_sha256=AnyText()
    )
    cases = _table("cases", "case_no", "series_no", "contents_no", "is_virtual", case_key=ContentKey())
    series_nos: dict[str, int] = {}
    contents_nos: dict[str, int] = {}
    for row in connection.execute(sa.select(old).order_by(old.c.case_no)).mappings().all():
        document = json.loads(row["document"])
        key = series_key_of(document)
        if key not in series_nos:
            values = {name: document[name] for name in ("model_name", "delegate", "threads", "tool")}
            values |= {"series_key": key, "device_no": row["device_no"], "is_virtual": row["is_virtual"]}
            shared = {name: value for name, value in document.items() if name not in _CONTENTS}
            series_nos[key] = _numbered(connection, series, {**values, "document": to_text(shared)})
        files = document.get("files") or []
        contents_key = content_key([document["model_sha256"], document["build_sha256"], files])[:32]
        if contents_key not in contents_nos:
            values = {name: document[name] for name in ("model_sha256", "build_sha256")}
            values |= {"contents_key": contents_key, "files": to_text(files)}
            contents_nos[contents_key] = _numbered(connection, contents, values)
        new = {name: row[name] for name in ("case_no", "case_key", "is_virtual")}
        new |= {"series_no": series_nos[key], "contents_no": contents_nos[contents_key]}
        connection.execute(sa.insert(cases), new)


def _table(name: str, *plain: str, **typed: sa.types.TypeEngine[Any] | None) -> sa.TableClause:
    """Return a table by the names of its plain columns, and the types of the others."""
    return sa.table(name, *map(sa.column, plain), *(sa.column(column, kind) for column, kind in typed.items()))


def _numbered(connection: sa.Connection, table: sa.TableClause, values: dict[str, Any]) -> int:
    number: int = connection.scalar(sa.insert(table).values(values).returning(table.c[f"{table.name}_no"]))
    return number


def series_key_of(document: dict[str, Any]) -> str:
    """Return the series key of a case's document, as records/workload.py of this revision computes it."""
    row = {name: value for name, value in document.items() if name not in _CONTENTS}
    if row.get("mode") is None:
        row.pop("mode", None)
    row["files"] = [name for name, _ in document.get("files") or ()]
    return content_key(row)[:32]


def _fill_plans() -> None:
    connection = op.get_bind()
    old = _table("invocations", "campaign_no", "position", "case_no", "run_pass", "number")
    plans = _table("plans", "campaign_no", "invocation_count", body=sa.LargeBinary())
    for campaign_no in connection.scalars(sa.select(old.c.campaign_no).distinct()).all():
        query = sa.select(old.c.case_no, old.c.run_pass, old.c.number).where(old.c.campaign_no == campaign_no)
        planned = [
            (case_no, run_pass, number)
            for case_no, run_pass, number in connection.execute(query.order_by(old.c.position))
        ]
        values = {"campaign_no": campaign_no, "invocation_count": len(planned), "body": pack_plan(planned)}
        connection.execute(sa.insert(plans), values)


def _fill_history() -> None:
    op.execute(
        "INSERT INTO device_history (device_no, seen_at, facts) SELECT device_no, last_seen_at, facts FROM devices"
    )


def _fill_runs() -> None:
    connection = op.get_bind()
    same = ["run_no", "campaign_no", "case_no", "is_virtual", *(column.name for column in same_columns())]
    old = _table("old_runs", *same, *_OLD[1:], command=AnyText(), run_id=AnyText(), started_at=UtcTime())
    cases = _table("cases", "case_no", "series_no")
    new = _table("runs", *same, "pattern_no", run_id=ContentKey(), started_at=CompactTime(), body=sa.LargeBinary())
    packer = bodies.Packer(connection, has_bases=False)
    numbers = list(connection.execute(sa.select(old.c.run_no).order_by(old.c.run_no)).scalars())
    for start in range(0, len(numbers), _PAGE):
        page = numbers[start : start + _PAGE]
        query = sa.select(*old.c, cases.c.series_no).join_from(old, cases, old.c.case_no == cases.c.case_no)
        packed = []
        for row in connection.execute(query.where(old.c.run_no.in_(page)).order_by(old.c.run_no)).mappings().all():
            content, large = bodies.content_of(
                {name: row[name] for name in _OLD}, _attachments(connection, row["run_no"]), known_of(row)
            )
            kind = {"series_no": row["series_no"], "run_pass": row["run_pass"], "outcome": row["outcome"]}
            pattern_no, body = packer.pack(content, **kind, newest_no=packer.newest(**kind))
            _keep_large(connection, row["run_no"], {position for position, _, _ in large})
            values = {name: row[name] for name in (*same, "run_id", "started_at")}
            packed.append({**values, "pattern_no": pattern_no, "body": body})
        connection.execute(sa.insert(new), packed)


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
