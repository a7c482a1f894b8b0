"""Runs made ready to be stored, and stored, inside a transaction of the store's."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy import Connection, and_, bindparam, delete, insert, select

from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.verdict import QualityVerdict
from orchestrator.records.workload import Case
from orchestrator.store import admission, rows
from orchestrator.store.blobs import PackedBlob, pack
from orchestrator.store.bodies import NEWEST_PATTERN, Content, Packer, content_of
from orchestrator.store.registry import insert_cases, insert_numbered, insertion
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
