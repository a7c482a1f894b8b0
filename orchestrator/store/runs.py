"""Runs: stored, read again, and given another reading."""

from __future__ import annotations

import dataclasses
import math
import threading
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Final

from sqlalchemy import ColumnElement, Connection, Engine, RowMapping, bindparam, delete, func, select, update

from orchestrator.clock import Deadline
from orchestrator.errors import StoreCorruptError, StoreError
from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.identity import CampaignId, CaseKey, RunId, Serial, SeriesKey
from orchestrator.records.run import Attachment, Outcome, RunRecord, ToolReport
from orchestrator.records.verdict import QualityVerdict
from orchestrator.records.workload import Case
from orchestrator.store import rows
from orchestrator.store.bodies import Body, Patterns, large_of, pack_blob, sections_of, unpack_blob
from orchestrator.store.campaigns import check_moment, device_kind
from orchestrator.store.cases import insert_numbered, insertion, keep_cases, pages, read_cases
from orchestrator.store.database import Database
from orchestrator.store.failures import readable
from orchestrator.store.figures import forget_sheet
from orchestrator.store.tables import ATTACHMENTS, BLOBS, CAMPAIGNS, CASES, DEVICES, FINDINGS, PATTERNS, RUNS, SERIES

#: Runs that are read in one transaction: of each some hundred kilobytes are at hand, with its pattern and attachments.
_RUN_PAGE: Final = 100
_RUN_ROWS: Final = select(RUNS, CAMPAIGNS.c.campaign_id).join_from(
    RUNS, CAMPAIGNS, RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no
)
_TWIN: Final = RUNS.alias()
_IS_KEPT_BY: Final = (
    (PATTERNS.c.series_no == CASES.c.series_no)
    & (PATTERNS.c.run_pass == bindparam("run_pass"))
    & (PATTERNS.c.outcome == bindparam("outcome"))
)
_IS_SAME: Final = (
    (RUNS.c.case_no == CASES.c.case_no)
    & (RUNS.c.run_pass == bindparam("run_pass"))
    & (RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no)
    & (RUNS.c.invocation == bindparam("invocation"))
)
#: All that decides whether a run may be stored and how, in one round trip; no row where there is no campaign.
_STANDING: Final = (
    select(
        CAMPAIGNS.c.campaign_no,
        CAMPAIGNS.c.status,
        CASES.c.case_no,
        CASES.c.series_no,
        CASES.c.is_virtual,
        RUNS.c.run_no,
        RUNS.c.outcome.label("stored_outcome"),
        select(_TWIN.c.run_no).where(_TWIN.c.run_id == bindparam("run_id")).scalar_subquery().label("run_of_this_id"),
        select(func.max(PATTERNS.c.pattern_no))
        .where(_IS_KEPT_BY)
        .correlate(CASES)
        .scalar_subquery()
        .label("pattern_no"),
    )
    .select_from(CAMPAIGNS.outerjoin(CASES, CASES.c.case_key == bindparam("case_key")).outerjoin(RUNS, _IS_SAME))
    .where(CAMPAIGNS.c.campaign_id == bindparam("campaign_id"))
)


class _Waiting:
    """A run that a thread wants stored, as rows: all that can be done before the store is locked."""

    def __init__(self, run: RunRecord) -> None:
        self.run = run
        self.row = rows.run_to_row(run)
        self.sections = sections_of(rows.documents_of(run), run.attachments)
        self.large = [
            (place, item.name, pack_blob(item.data, item.sha256)) for place, item in large_of(run.attachments)
        ]
        self.answer: bool | Exception | None = None


class Runs(Database):
    """Methods of the store about runs."""

    def __init__(self, engine: Engine, *, name: str, path: Path | None, busy_timeout_s: float) -> None:
        super().__init__(engine, name=name, path=path, busy_timeout_s=busy_timeout_s)
        self._guard = threading.Lock()
        #: Runs that the next thread whose turn it is stores, its own among them.
        self._queue: list[_Waiting] = []

    def append_run(self, run: RunRecord) -> bool:
        """Keep a run; False (and nothing changed) when this (campaign, case, pass, invocation) is there already.

        One that was unfit is replaced. The run, its findings and its raw output are one transaction, on the disk when
        this returns; runs that wait at the same moment share it.
        """
        waiting = _Waiting(run)
        with self._guard:
            self._queue.append(waiting)
        try:
            with self.turn() as deadline:
                if waiting.answer is None:
                    self._append_queue(deadline)
        except BaseException as error:
            with self._guard:
                if waiting in self._queue:
                    self._queue.remove(waiting)
                    raise
            if not isinstance(error, StoreError):
                raise
            if waiting.answer is None:
                raise StoreError(
                    f"{self.name}: didn't answer for too long; whether the run was stored isn't known",
                    hint="see whether the disk or the database server still answers, and resume: "
                    "what was stored isn't run again",
                ) from error
        if isinstance(waiting.answer, Exception):
            raise waiting.answer
        assert waiting.answer is not None
        return waiting.answer

    def _append_queue(self, deadline: Deadline) -> None:
        """Append the runs that wait, all in one transaction; each by itself when one of them can't be kept."""
        taken: list[_Waiting] = []
        answers: list[bool | Exception] = []
        try:
            with self.transaction(deadline) as connection:
                with self._guard:
                    taken[:], self._queue[:] = self._queue, []
                answers = [_append(connection, self.patterns, item) for item in taken]
        except Exception as error:
            if not taken:
                # The store couldn't be locked: the others try themselves.
                raise
            answers = [error] if len(taken) == 1 else [self._append_alone(item, deadline, error) for item in taken]
        except BaseException:
            with self._guard:
                self._queue[:0] = taken
            raise
        for item, answer in zip(taken, answers, strict=True):
            item.answer = answer

    def _append_alone(self, item: _Waiting, deadline: Deadline, failure: Exception) -> bool | Exception:
        """Append one run of those that failed together; that failure is its own when the store can't be locked now."""
        has_lock = False
        try:
            with self.transaction(deadline) as connection:
                has_lock = True
                return _append(connection, self.patterns, item)
        except Exception as error:  # noqa: BLE001 - raised in the thread whose run it is
            return error if has_lock else failure

    def replace_reading(
        self,
        run_id: RunId,
        *,
        report: ToolReport,
        outcome: Outcome,
        reason_code: str,
        reason: str,
        verdict: QualityVerdict,
    ) -> None:
        """Replace what was read from a run's raw output and what follows from it; the raw output never changes."""
        with self.writing() as connection:
            row = connection.execute(_RUN_ROWS.where(RUNS.c.run_id == run_id)).mappings().one_or_none()
            if row is None:
                raise StoreError(f"run {run_id}: the store holds no such run")
            case = read_cases(connection, [row["case_no"]]).get(row["case_no"])
            if case is None:
                raise StoreError(f"run {run_id}: its case can't be read")
            known = rows.run_from_row(row, self.patterns.read(connection, row).documents, case=case, attachments=())
            changed = dataclasses.replace(
                known, report=report, outcome=outcome, reason_code=reason_code, reason=reason, verdict=verdict
            )
            body = self.patterns.repack(connection, row, documents=rows.documents_of(changed))
            of_run = RUNS.c.run_no == row["run_no"]
            connection.execute(update(RUNS).where(of_run).values({**rows.run_to_row(changed), "body": body}))
            connection.execute(delete(FINDINGS).where(FINDINGS.c.run_no == row["run_no"]))
            _insert_findings(connection, row["run_no"], verdict)
            forget_sheet(connection, row["campaign_no"])

    def runs(
        self,
        *,
        campaign_ids: Sequence[CampaignId] = (),
        case_keys: Sequence[CaseKey] = (),
        series_keys: Sequence[SeriesKey] = (),
        serials: Sequence[Serial] = (),
        with_attachments: bool = False,
    ) -> Iterator[RunRecord]:
        """Yield runs in the order in which they were stored; their attachments are empty unless asked for.

        Which runs there are is settled when the first one is asked for; they are read page by page, so that no
        transaction stays open between two of them and the store may be written meanwhile.
        """
        cases: dict[int, Case] = {}
        with self.reading() as connection:
            numbers = _run_numbers(connection, campaign_ids, case_keys, series_keys, serials)
        for page in pages(numbers, _RUN_PAGE):
            with self.reading() as connection:
                found = self._read(connection, page, cases)
            for run, attachments in found:
                if not with_attachments:
                    yield run
                elif any(data is None for _, data in attachments):
                    # Large ones aren't read for many runs at once.
                    yield dataclasses.replace(run, attachments=self.attachments(run.run_id))
                else:
                    yield dataclasses.replace(run, attachments=_small(attachments))

    def earlier_runs(self, case_key: CaseKey, before: CampaignId, *, limit: int) -> Sequence[RunRecord]:
        """Return the last runs of a case that were stored before a campaign's first of it, in their order."""
        with self.reading() as connection:
            numbers = _run_numbers(connection, (), (case_key,), (), ())
            own = _run_numbers(connection, (before,), (case_key,), (), ())
            earlier = numbers[: bisect_left(numbers, own[0])] if own else numbers
            cases: dict[int, Case] = {}
            wanted = pages(earlier[max(0, len(earlier) - limit) :])
            return [run for page in wanted for run, _ in self._read(connection, page, cases)]

    def run(self, run_id: RunId) -> RunRecord | None:
        """Return one run without its attachments, None when there is none."""
        with self.reading() as connection:
            number = connection.scalar(select(RUNS.c.run_no).where(RUNS.c.run_id == run_id))
            found = [] if number is None else self._read(connection, [number], {})
            return found[0][0] if found else None

    def attachments(self, run_id: RunId) -> tuple[Attachment, ...]:
        """Return everything that a run left behind, byte for byte; empty for an unknown run."""
        with self.reading() as connection:
            row = connection.execute(select(RUNS).where(RUNS.c.run_id == run_id)).mappings().one_or_none()
            if row is None:
                return ()
            found = self.patterns.read(connection, row).attachments
            query = (
                select(ATTACHMENTS.c.position, BLOBS)
                # An outer join: output that is missing has to be noticed.
                .join_from(ATTACHMENTS, BLOBS, ATTACHMENTS.c.blob_sha256 == BLOBS.c.sha256, isouter=True)
                .where(ATTACHMENTS.c.run_no == row["run_no"])
            )
            large = {item["position"]: item for item in connection.execute(query).mappings()}
        whole = []
        for place, (name, data) in enumerate(found):
            if data is None and (place not in large or large[place]["data"] is None):
                raise StoreCorruptError(f"run {run_id}: its attachment {name!r} is missing")
            whole.append(Attachment(name=name, data=unpack_blob(large[place]) if data is None else data))
        return tuple(whole)

    def attachments_of(self, run_ids: Sequence[RunId]) -> Iterator[tuple[RunId, tuple[Attachment, ...]]]:
        """Yield what each of some runs left behind, page by page; unknown runs are left out."""
        for page in pages(list(dict.fromkeys(run_ids)), _RUN_PAGE):
            with self.reading() as connection:
                query = select(RUNS).where(RUNS.c.run_id.in_(page)).order_by(RUNS.c.run_no)
                found = connection.execute(query).mappings().all()
                self.patterns.fetch(connection, found)
                outputs = [(RunId(row["run_id"]), self.patterns.read(connection, row).attachments) for row in found]
            for run_id, output in outputs:
                is_whole = all(data is not None for _, data in output)
                yield run_id, _small(output) if is_whole else self.attachments(run_id)

    def _read(
        self, connection: Connection, run_nos: Sequence[int], cases: dict[int, Case]
    ) -> list[tuple[RunRecord, Sequence[tuple[str, bytes | None]]]]:
        """Return runs by their numbers, in their order, each beside its attachments; ``cases`` are known, and grow."""

        def read(found: tuple[RowMapping, Body]) -> RunRecord:
            row, body = found
            return rows.run_from_row(row, body.documents, case=cases[row["case_no"]], attachments=())

        found = connection.execute(_RUN_ROWS.where(RUNS.c.run_no.in_(run_nos)).order_by(RUNS.c.run_no)).mappings().all()
        cases.update(read_cases(connection, {row["case_no"] for row in found} - cases.keys()))
        self.patterns.fetch(connection, found)
        # A body that changed on the disk is damage, which is never passed over.
        bodies = [(row, self.patterns.read(connection, row)) for row in found if row["case_no"] in cases]
        return [(run, body.attachments) for (_, body), run in readable(bodies, read)]


def _append(connection: Connection, patterns: Patterns, item: _Waiting) -> bool:
    """Insert a run with its findings and raw output; False when it is there already. Raises StoreError."""
    run, where = item.run, f"run {item.run.run_id}"
    asked = {name: getattr(run, name) for name in ("campaign_id", "run_id", "invocation")}
    asked |= {"case_key": run.case.case_key, "run_pass": run.run_pass.value, "outcome": run.outcome.value}
    standing = connection.execute(_STANDING, asked).one_or_none()
    if standing is None:
        raise StoreError(f"campaign {run.campaign_id}: the store holds no such campaign")
    if standing.run_no is not None and standing.stored_outcome != Outcome.UNFIT.value:
        return False
    if standing.run_of_this_id is not None:
        raise StoreError(f"{where}: the store holds another run of this id")
    if standing.case_no is None:
        # One that no plan named, such as one that a program found.
        keep_cases(connection, [run.case], where)
        standing = connection.execute(_STANDING, asked).one()
    _check(run, where, standing.is_virtual)
    kind = {"series_no": standing.series_no, "run_pass": asked["run_pass"], "outcome": asked["outcome"]}
    pattern_no, body = patterns.pack_new(connection, item.sections, standing.pattern_no, kind)
    if standing.run_no is not None:
        # One that was unfit has no raw output.
        for table in (FINDINGS, ATTACHMENTS, RUNS):
            connection.execute(delete(table).where(table.c.run_no == standing.run_no))
    numbers = {"campaign_no": standing.campaign_no, "case_no": standing.case_no, "pattern_no": pattern_no}
    run_no = insert_numbered(connection, RUNS, {**item.row, **numbers, "body": body})
    _insert_findings(connection, run_no, run.verdict)
    _insert_large(connection, run_no, item.large)
    if standing.status != CampaignStatus.RUNNING.value:
        forget_sheet(connection, standing.campaign_no)
    return True


def _check(run: RunRecord, where: str, is_virtual: bool) -> None:
    """Raise StoreError when a run can't be stored as it is, above all when it hides that its phone is virtual."""
    check_moment(run.started_at, f"{where}: started_at")
    for state in (run.state_before, run.state_after):
        check_moment(None if state is None else state.at, f"{where}: state")
    if not math.isfinite(run.duration_s):
        raise StoreError(f"{where}: duration_s is {run.duration_s}, which is no time span")
    if run.is_virtual != is_virtual:
        raise StoreError(
            f"{where}: marked as measured on a {device_kind(run.is_virtual)}, but device {run.case.serial} is a "
            f"{device_kind(is_virtual)}; the mark must be the one of the device's facts"
        )


def _insert_findings(connection: Connection, run_no: int, verdict: QualityVerdict) -> None:
    made = [
        {"run_no": run_no, "position": position, "code": finding.code, "severity": finding.severity.value}
        for position, finding in enumerate(verdict.findings)
    ]
    if made:
        connection.execute(insertion(FINDINGS), made)


def _insert_large(connection: Connection, run_no: int, large: Sequence[tuple[int, str, rows.Row]]) -> None:
    """Insert a run's large output; content that is stored already isn't stored again."""
    if not large:
        return
    blobs = {blob["sha256"]: blob for _, _, blob in large}
    stored = set(connection.scalars(select(BLOBS.c.sha256).where(BLOBS.c.sha256.in_(blobs))))
    new = [blob for sha256, blob in blobs.items() if sha256 not in stored]
    if new:
        connection.execute(insertion(BLOBS), new)
    made = [
        {"run_no": run_no, "position": place, "name": name, "blob_sha256": blob["sha256"]}
        for place, name, blob in large
    ]
    connection.execute(insertion(ATTACHMENTS), made)


def _small(attachments: Sequence[tuple[str, bytes | None]]) -> tuple[Attachment, ...]:
    return tuple(Attachment(name=name, data=data) for name, data in attachments if data is not None)


def _run_numbers(
    connection: Connection,
    campaign_ids: Sequence[CampaignId],
    case_keys: Sequence[CaseKey],
    series_keys: Sequence[SeriesKey],
    serials: Sequence[Serial],
) -> array[int]:
    """Return the numbers of the runs that fit, in their order: 8 bytes a run."""
    numbers = array("q")
    for in_campaigns, of_cases, of_series, of_devices in product(
        _filters(CAMPAIGNS.c.campaign_id, campaign_ids),
        _filters(CASES.c.case_key, case_keys),
        _filters(SERIES.c.series_key, series_keys),
        _filters(DEVICES.c.serial, serials),
    ):
        query = select(RUNS.c.run_no)
        if in_campaigns is not None:
            query = query.join(CAMPAIGNS, RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no).where(in_campaigns)
        if of_cases is not None or of_series is not None or of_devices is not None:
            query = query.join(CASES, RUNS.c.case_no == CASES.c.case_no)
        if of_series is not None or of_devices is not None:
            query = query.join(SERIES, CASES.c.series_no == SERIES.c.series_no)
        if of_devices is not None:
            query = query.join(DEVICES, SERIES.c.device_no == DEVICES.c.device_no)
        query = query.where(*(item for item in (of_cases, of_series, of_devices) if item is not None))
        numbers.extend(connection.scalars(query))
    return array("q", sorted(numbers))


def _filters(column: ColumnElement[str], values: Sequence[str]) -> Iterator[ColumnElement[bool] | None]:
    """Yield conditions that together, without overlap, let through what is wanted; None when all is."""
    if not values:
        yield None
    for page in pages(list(dict.fromkeys(values))):
        yield column.in_(page)
