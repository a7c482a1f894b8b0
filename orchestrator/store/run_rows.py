"""Stored runs, read again and given another reading, inside a transaction of the store's."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import Connection, RowMapping, delete, select, update

from orchestrator.errors import StoreCorruptError, StoreError
from orchestrator.records.identity import RunId
from orchestrator.records.run import Attachment, Outcome, RunRecord, ToolReport
from orchestrator.records.verdict import QualityVerdict
from orchestrator.records.workload import Case
from orchestrator.store import admission, rows
from orchestrator.store.appending import insert_findings
from orchestrator.store.bodies import Packer
from orchestrator.store.registry import read_cases
from orchestrator.store.tables import ATTACHMENTS, BLOBS, CAMPAIGNS, FINDINGS, RUNS
from orchestrator.store.unreadable import readable

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
