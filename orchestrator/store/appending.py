"""Runs stored, read again and given another reading, inside a transaction of the store's."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy import Connection, RowMapping, and_, bindparam, delete, insert, select, update

from orchestrator.errors import StoreCorruptError, StoreError
from orchestrator.records.identity import RunId
from orchestrator.records.run import Attachment, Outcome, RunRecord, ToolReport
from orchestrator.records.verdict import QualityVerdict
from orchestrator.records.workload import Case
from orchestrator.store import admission, rows
from orchestrator.store.blobs import PackedBlob, pack
from orchestrator.store.bodies import NEWEST_PATTERN, Content, Packer, content_of
from orchestrator.store.registry import insert_cases, insert_numbered, insertion, read_cases
from orchestrator.store.tables import (
    ATTACHMENTS,
    BLOBS,
    BUILDS,
    CAMPAIGNS,
    CASES,
    DEVICES,
    FINDINGS,
    MODELS,
    PATTERNS,
    RUNS,
)
from orchestrator.store.unreadable import readable

#: All that decides whether a run may be stored, in one round trip: one row, with NULL for what isn't there.
_ASKED: Final = select(bindparam("campaign_id", type_=CAMPAIGNS.c.campaign_id.type).label("campaign_id")).subquery()
_STANDING: Final = select(
    CAMPAIGNS.c.campaign_no,
    CASES.c.case_no,
    CASES.c.series_no,
    DEVICES.c.device_no,
    DEVICES.c.is_virtual,
    MODELS.c.sha256.label("model"),
    BUILDS.c.sha256.label("build"),
    RUNS.c.run_no.label("stored_run_no"),
    RUNS.c.outcome.label("stored_outcome"),
    select(RUNS.c.run_no).where(RUNS.c.run_id == bindparam("run_id")).scalar_subquery().label("run_of_this_id"),
    NEWEST_PATTERN.where(PATTERNS.c.series_no == CASES.c.series_no)
    .correlate(CASES)
    .scalar_subquery()
    .label("pattern_no"),
).select_from(
    _ASKED.outerjoin(CAMPAIGNS, CAMPAIGNS.c.campaign_id == _ASKED.c.campaign_id)
    .outerjoin(CASES, CASES.c.case_key == bindparam("case_key"))
    .outerjoin(DEVICES, DEVICES.c.serial == bindparam("serial"))
    .outerjoin(MODELS, MODELS.c.sha256 == bindparam("model_sha256"))
    .outerjoin(BUILDS, BUILDS.c.sha256 == bindparam("build_sha256"))
    .outerjoin(
        RUNS,
        and_(
            RUNS.c.case_no == CASES.c.case_no,
            RUNS.c.run_pass == bindparam("run_pass"),
            RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no,
            RUNS.c.invocation == bindparam("invocation"),
        ),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyRun:
    """A run as rows, with all that can be done about it before the store is locked for it."""

    run: RunRecord
    #: Without the numbers of other rows, and without its body.
    row: rows.Row
    content: Content
    #: Position and name of large attachments, and what goes into the blobs.
    large: Sequence[tuple[int, str, PackedBlob]]


def ready_run(run: RunRecord) -> ReadyRun:
    """Return a run made ready; nothing is asked of the database."""
    row = rows.run_to_row(run)
    attachments = ((item.name, item.data) for item in run.attachments)
    content, large = content_of(rows.documents_of(run), attachments)
    return ReadyRun(
        run=run,
        row=row,
        content=content,
        large=[(position, name, pack(data, hashlib.sha256(data).hexdigest())) for position, name, data in large],
    )


def append_run(connection: Connection, packer: Packer, ready: ReadyRun) -> bool:
    """Insert a run with its findings and raw output; False when it is there already. Raises StoreError."""
    run = ready.run
    standing = connection.execute(_STANDING, _questions(run)).mappings().one()
    if standing["campaign_no"] is None:
        raise admission.no_campaign(run.campaign_id)
    waiting = standing["stored_outcome"] == Outcome.UNFIT.value
    if standing["stored_run_no"] is not None and not waiting:
        return False
    if standing["run_of_this_id"] is not None:
        raise admission.run_id_taken(run.run_id)
    admission.check_run(
        run,
        device_is_virtual=standing["is_virtual"],
        model_known=standing["model"] is not None,
        build_known=standing["build"] is not None,
    )
    case_no, series_no, newest_no = standing["case_no"], standing["series_no"], standing["pattern_no"]
    run_pass, outcome = run.run_pass.value, run.outcome.value
    if case_no is None:
        case_no, series_no = _insert_case(connection, run.case)
        newest_no = packer.newest(series_no, run_pass, outcome)
    pattern_no, body = packer.pack(
        ready.content,
        series_no=series_no,
        run_pass=run_pass,
        outcome=outcome,
        newest_no=newest_no,
    )
    if waiting:
        _delete_run(connection, standing["stored_run_no"])
    numbers = {"campaign_no": standing["campaign_no"], "case_no": case_no, "pattern_no": pattern_no}
    run_no = insert_numbered(connection, RUNS, {**ready.row, **numbers, "body": body})
    insert_findings(connection, run_no, run.verdict)
    _insert_large(connection, run_no, ready.large)
    return True


def _insert_case(connection: Connection, case: Case) -> tuple[int, int]:
    """Insert a case that no plan named, such as one that a program found; return its and its series' number."""
    insert_cases(connection, [case], {})
    numbers = select(CASES.c.case_no, CASES.c.series_no).where(CASES.c.case_key == case.case_key)
    case_no, series_no = connection.execute(numbers).one()
    return case_no, series_no


def _questions(run: RunRecord) -> rows.Row:
    """Return the parameters of the statement that asks whether a run may be stored."""
    return {
        "campaign_id": run.campaign_id,
        "case_key": run.case.case_key,
        "serial": run.case.serial,
        "model_sha256": run.case.model_sha256,
        "build_sha256": run.case.build_sha256,
        "run_pass": run.run_pass.value,
        "outcome": run.outcome.value,
        "invocation": run.invocation,
        "run_id": run.run_id,
    }


def insert_findings(connection: Connection, run_no: int, verdict: QualityVerdict) -> None:
    """Insert what was found out about a run."""
    if verdict.findings:
        connection.execute(
            insertion(FINDINGS),
            [
                {"run_no": run_no, "position": position, "code": finding.code, "severity": finding.severity.value}
                for position, finding in enumerate(verdict.findings)
            ],
        )


def _delete_run(connection: Connection, run_no: int) -> None:
    """Delete a run that was unfit: it has no raw output."""
    for table in (FINDINGS, ATTACHMENTS, RUNS):
        connection.execute(delete(table).where(table.c.run_no == run_no))


def _insert_large(connection: Connection, run_no: int, large: Sequence[tuple[int, str, PackedBlob]]) -> None:
    """Insert a run's large output; content that is stored already isn't stored again."""
    if not large:
        return
    blobs = {blob.sha256: blob for _, _, blob in large}
    stored = set(connection.scalars(select(BLOBS.c.sha256).where(BLOBS.c.sha256.in_(blobs))))
    new = [asdict(blob) for sha256, blob in blobs.items() if sha256 not in stored]
    if new:
        connection.execute(insert(BLOBS), new)
    connection.execute(
        insert(ATTACHMENTS),
        [
            {"run_no": run_no, "position": position, "name": name, "blob_sha256": blob.sha256}
            for position, name, blob in large
        ],
    )


_RUN_ROWS: Final = select(RUNS, CAMPAIGNS.c.campaign_id).join_from(
    RUNS, CAMPAIGNS, RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no
)


def replace_reading(
    connection: Connection,
    packer: Packer,
    run_id: RunId,
    *,
    report: ToolReport,
    outcome: Outcome,
    reason_code: str,
    reason: str,
    verdict: QualityVerdict,
) -> None:
    """Put another reading in the place of a run's; raises StoreError when there is no such run."""
    row = connection.execute(_RUN_ROWS.where(RUNS.c.run_id == run_id)).mappings().one_or_none()
    if row is None:
        raise admission.no_run(run_id)
    case = read_cases(connection, [row["case_no"]]).get(row["case_no"])
    if case is None:
        raise StoreError(f"run {run_id}: its case can't be read")
    changed = dataclasses.replace(
        rows.run_from_row(row, _documents(packer, row), case=case, attachments=()),
        report=report,
        outcome=outcome,
        reason_code=reason_code,
        reason=reason,
        verdict=verdict,
    )
    body = packer.repack(
        row["body"],
        row["pattern_no"],
        documents=rows.documents_of(changed),
        where=f"run {run_id}",
    )
    values = {**rows.reading_to_row(changed), "body": body}
    connection.execute(update(RUNS).where(RUNS.c.run_no == row["run_no"]).values(values))
    connection.execute(delete(FINDINGS).where(FINDINGS.c.run_no == row["run_no"]))
    insert_findings(connection, row["run_no"], verdict)


#: A run's documents, and what it left behind; large ones without their bytes.
_Body = tuple[Mapping[str, str], Sequence[tuple[str, bytes | None]]]


def read_runs(
    connection: Connection, packer: Packer, run_nos: Sequence[int], *, cases: dict[int, Case]
) -> list[RunRecord]:
    """Return runs by their numbers, in their order, without attachments; ``cases`` are those known, and grow."""

    def read(found: tuple[RowMapping, dict[str, str]]) -> RunRecord:
        row, documents = found
        return rows.run_from_row(row, documents, case=cases[row["case_no"]], attachments=())

    # A body that changed on the disk is damage, which is never passed over.
    unpacked = [(row, _documents(packer, row)) for row in _run_rows(connection, packer, run_nos, cases)]
    return [run for _, run in readable(unpacked, read)]


def read_whole_runs(
    connection: Connection, packer: Packer, run_nos: Sequence[int], *, cases: dict[int, Case]
) -> list[tuple[RunRecord, bool]]:
    """Return runs with their attachments, and whether those are all: large ones aren't read for many runs at once."""

    def read(found: tuple[RowMapping, _Body]) -> tuple[RunRecord, bool]:
        row, (documents, attachments) = found
        small = _without_large(attachments)
        run = rows.run_from_row(row, documents, case=cases[row["case_no"]], attachments=small or ())
        return run, small is not None

    unpacked = [
        (row, packer.all(row["body"], row["pattern_no"], where=f"run {row['run_id']}"))
        for row in _run_rows(connection, packer, run_nos, cases)
    ]
    return [item for _, item in readable(unpacked, read)]


def _run_rows(
    connection: Connection, packer: Packer, run_nos: Sequence[int], cases: dict[int, Case]
) -> Sequence[RowMapping]:
    """Return the rows of runs whose case can be read, with their cases and patterns at hand."""
    query = _RUN_ROWS.where(RUNS.c.run_no.in_(run_nos)).order_by(RUNS.c.run_no)
    found = connection.execute(query).mappings().all()
    cases.update(read_cases(connection, {row["case_no"] for row in found} - cases.keys()))
    packer.fetch(row["pattern_no"] for row in found)
    return [row for row in found if row["case_no"] in cases]


def read_outputs(
    connection: Connection, packer: Packer, run_ids: Sequence[RunId]
) -> dict[RunId, tuple[Attachment, ...] | None]:
    """Return the attachments of runs, None for one that has large ones; unknown runs are left out."""
    found = connection.execute(select(RUNS).where(RUNS.c.run_id.in_(run_ids)).order_by(RUNS.c.run_no)).mappings().all()
    packer.fetch(row["pattern_no"] for row in found)
    return {RunId(row["run_id"]): _without_large(_attachments(packer, row)) for row in found}


def read_attachments(connection: Connection, packer: Packer, run_id: RunId) -> tuple[Attachment, ...]:
    """Return a run's attachments; empty for an unknown run."""
    row = connection.execute(select(RUNS).where(RUNS.c.run_id == run_id)).mappings().one_or_none()
    if row is None:
        return ()
    found = _attachments(packer, row)
    large = _large_attachments(connection, row["run_no"]) if any(data is None for _, data in found) else {}
    return tuple(
        Attachment(name=name, data=data) if data is not None else _large(large, place, name, run_id)
        for place, (name, data) in enumerate(found)
    )


def _attachments(packer: Packer, row: RowMapping) -> list[tuple[str, bytes | None]]:
    where = f"run {row['run_id']}"
    return packer.attachments(row["body"], row["pattern_no"], where=where)


def _without_large(found: Sequence[tuple[str, bytes | None]]) -> tuple[Attachment, ...] | None:
    """Return attachments; None when some lie in the blobs."""
    small = tuple(Attachment(name=name, data=data) for name, data in found if data is not None)
    return small if len(small) == len(found) else None


def _documents(packer: Packer, row: RowMapping) -> dict[str, str]:
    run_id = row["run_id"]
    return packer.documents(row["body"], row["pattern_no"], where=f"run {run_id}")


def _large_attachments(connection: Connection, run_no: int) -> dict[int, Attachment]:
    """Return a run's attachments that lie in the blobs, by their position."""
    query = (
        select(
            ATTACHMENTS.c.position,
            ATTACHMENTS.c.name,
            ATTACHMENTS.c.blob_sha256.label("sha256"),
            BLOBS.c.size_bytes,
            BLOBS.c.packing,
            BLOBS.c.data,
        )
        # An outer join: output that is missing has to be noticed.
        .join_from(ATTACHMENTS, BLOBS, ATTACHMENTS.c.blob_sha256 == BLOBS.c.sha256, isouter=True)
        .where(ATTACHMENTS.c.run_no == run_no)
    )
    return {row["position"]: rows.attachment_from_row(row) for row in connection.execute(query).mappings()}


def _large(found: Mapping[int, Attachment], place: int, name: str, run_id: RunId) -> Attachment:
    if place not in found:
        raise StoreCorruptError(f"run {run_id}: its attachment {name!r} is missing")
    return found[place]
