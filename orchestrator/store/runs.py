"""Runs: stored, read again, and given another reading."""

from __future__ import annotations

import dataclasses
import functools
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import Any, Final, TypedDict, Unpack, cast, get_type_hints

from sqlalchemy import (
    Column,
    Connection,
    RowMapping,
    bindparam,
    delete,
    exists,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError

from orchestrator.documents import dump_document, load_document
from orchestrator.errors import StoreCorruptError, StoreError
from orchestrator.records.case import CampaignId, Case, CaseKey, Pass, RunId, Serial
from orchestrator.records.run import Attachment, Outcome, RunRecord
from orchestrator.store.campaigns import (
    filtered,
    insert_cases,
    pages,
    read_cases,
)
from orchestrator.store.database import Database, readable_rows
from orchestrator.store.schema import (
    ATTACHMENTS,
    BLOBS,
    CAMPAIGNS,
    CASES,
    RUNS,
    is_large,
    pack,
    pack_output,
    unpack,
    unpack_large,
    unpack_output,
)

#: Runs that are read in one transaction: each takes some hundred kilobytes of memory.
_RUN_PAGE: Final = 100
#: At most this many ids with the same prefix are returned.
_IDS_MAX: Final = 4
#: Fields of a run that are stored outside its document.
BESIDE: Final = frozenset({"run_id", "campaign_id", "case", "attachments"})
#: The tables themselves refuse a run of no campaign or case, a duplicate, and an invalid mark.
_INSERT: Final = insert(RUNS).values(
    campaign_no=select(CAMPAIGNS.c.campaign_no)
    .where(CAMPAIGNS.c.campaign_id == bindparam("campaign_id"))
    .scalar_subquery(),
    case_no=select(CASES.c.case_no)
    .where(CASES.c.case_key == bindparam("case_key"))
    .scalar_subquery(),
)
_ROWS: Final = (
    select(RUNS, CAMPAIGNS.c.campaign_id, CASES.c.serial)
    .join_from(RUNS, CAMPAIGNS, RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no)
    .join(CASES, RUNS.c.case_no == CASES.c.case_no)
)


class RunFilter(TypedDict, total=False):
    """Which runs are chosen: those with one of the values of each key; all for a key without any."""

    campaign_ids: Sequence[CampaignId]
    case_keys: Sequence[CaseKey]
    serials: Sequence[Serial]
    run_passes: Sequence[Pass]
    reason_codes: Sequence[str]


_COLUMNS: Final[Mapping[str, Column[Any]]] = {
    "campaign_ids": CAMPAIGNS.c.campaign_id,
    "case_keys": CASES.c.case_key,
    "serials": CASES.c.serial,
    "run_passes": RUNS.c.run_pass,
    "reason_codes": RUNS.c.reason_code,
}


class _PackedRun:
    """A run as it is inserted; packed before the store's lock is taken."""

    def __init__(self, run: RunRecord) -> None:
        self._run = run
        self._values = {**row_of(run), "output": pack_output(run.attachments, run.case.tool)}
        self._values |= {"campaign_id": run.campaign_id, "case_key": run.case.case_key}
        self._large = {item.sha256: item.data for item in run.attachments if is_large(item)}

    def insert(self, connection: Connection) -> None:
        """Insert it with its raw output; raises IntegrityError where the tables refuse it."""
        key = connection.execute(_INSERT, self._values).inserted_primary_key
        if self._large:
            assert key is not None, "a single INSERT always has one"
            # Every run that is compared with a reference has the same one.
            existing = select(BLOBS.c.sha256).where(BLOBS.c.sha256.in_(self._large))
            stored = set(connection.scalars(existing))
            new = [
                {"sha256": sha256, "data": pack(data, self._run.case.tool)}
                for sha256, data in self._large.items()
                if sha256 not in stored
            ]
            if new:
                connection.execute(insert(BLOBS), new)
            connection.execute(
                insert(ATTACHMENTS),
                [{"run_no": key[0], "sha256": sha256} for sha256 in self._large],
            )


class Runs(Database):
    """Methods of the store about runs."""

    def append_run(self, run: RunRecord) -> bool:
        """Store a run.

        Return False, without a change, when its (campaign, case, pass, invocation) is stored.
        An unfit one is replaced. The run and its raw output are one transaction, on the disk
        when this returns.
        """
        packed = _PackedRun(run)
        try:
            with self.writing() as connection:
                packed.insert(connection)
        except StoreError as error:
            if not isinstance(error.__cause__, IntegrityError):
                raise
            # PostgreSQL takes nothing more in a transaction in which something was refused.
            with self.writing() as connection:
                if not _clear_place(connection, run):
                    return False
                try:
                    packed.insert(connection)
                except IntegrityError as refused:
                    raise StoreError(
                        f"run {run.run_id} of campaign {run.campaign_id}, device {run.case.serial}: "
                        f"it contradicts what is stored: {refused.orig}"
                    ) from refused
        return True

    def append_runs(self, runs: Sequence[RunRecord]) -> list[bool]:
        """Store runs as :meth:`append_run` does, in one transaction where none is stored yet."""
        packed = [_PackedRun(run) for run in runs]
        try:
            with self.writing() as connection:
                for item in packed:
                    item.insert(connection)
        except StoreError as error:
            if not isinstance(error.__cause__, IntegrityError):
                raise
            return [self.append_run(run) for run in runs]
        return [True] * len(runs)

    def replace_reading(self, run: RunRecord) -> None:
        """Replace a stored run by a new reading; its raw output never changes."""
        changed = update(RUNS).where(RUNS.c.run_id == run.run_id).values(row_of(run))
        with self.writing() as connection:
            if connection.execute(changed).rowcount == 0:
                raise StoreError(f"run {run.run_id}: the store holds no such run")

    def runs(
        self,
        *,
        skipped: int = 0,
        with_attachments: bool = False,
        **where: Unpack[RunFilter],
    ) -> Iterator[RunRecord]:
        """Yield the chosen runs in the order in which they were stored, but the first ``skipped`` of
        them; their attachments are empty unless asked for.

        Which runs there are is settled when the first one is asked for; they are read page by page,
        so that no transaction stays open between two of them and the store may be written
        meanwhile.
        """
        with self.reading() as connection:
            numbers = _run_numbers(connection, where)
        yield from self._page_by_page(numbers[skipped:], with_attachments=with_attachments)

    def last_runs(self, of_case: int, **where: Unpack[RunFilter]) -> Iterator[RunRecord]:
        """Yield the last ``of_case`` of the chosen runs of each case, in the order in which they were
        stored, without attachments.
        """
        with self.reading() as connection:
            numbers = _run_numbers(connection, where, of_case=of_case)
        yield from self._page_by_page(numbers)

    def _page_by_page(
        self, numbers: Sequence[int], *, with_attachments: bool = False
    ) -> Iterator[RunRecord]:
        cases: dict[int, Case] = {}
        for page in pages(numbers, _RUN_PAGE):
            with self.reading() as connection:
                records = self._read(connection, page, cases)
            for run, output in records:
                attachments = self._attachments(run.run_id, output) if with_attachments else ()
                yield dataclasses.replace(run, attachments=attachments) if attachments else run

    def earlier_runs(
        self, case_key: CaseKey, before: CampaignId, *, limit: int
    ) -> Sequence[RunRecord]:
        """Return the last runs of a case that were stored before a campaign's first of it, in their
        order.
        """
        with self.reading() as connection:
            of_case: RunFilter = {"case_keys": [case_key]}
            numbers = _run_numbers(connection, of_case)
            campaign_numbers = _run_numbers(connection, {**of_case, "campaign_ids": [before]})
            earlier = (
                numbers[: bisect_left(numbers, campaign_numbers[0])]
                if campaign_numbers
                else numbers
            )
            number_pages = pages(earlier[max(0, len(earlier) - limit) :])
            cases: dict[int, Case] = {}
            return [run for page in number_pages for run, _ in self._read(connection, page, cases)]

    def run(self, run_id: RunId) -> RunRecord | None:
        """Return one run without its attachments, None when there is none."""
        with self.reading() as connection:
            number = connection.scalar(select(RUNS.c.run_no).where(RUNS.c.run_id == run_id))
            records = [] if number is None else self._read(connection, [number], {})
        return records[0][0] if records else None

    def run_ids(self, prefix: str) -> Sequence[RunId]:
        """Return the ids of runs with a prefix, in their order, at most four."""
        query = select(RUNS.c.run_id).where(
            RUNS.c.run_id >= prefix, RUNS.c.run_id <= f"{prefix}\uffff"
        )
        with self.reading() as connection:
            return [
                RunId(run_id)
                for run_id in connection.scalars(query.order_by(RUNS.c.run_id).limit(_IDS_MAX))
            ]

    def attachments(self, run_id: RunId) -> tuple[Attachment, ...]:
        """Return a run's raw output, byte for byte; empty for an unknown run."""
        with self.reading() as connection:
            output = connection.scalar(select(RUNS.c.output).where(RUNS.c.run_id == run_id))
        return () if output is None else self._attachments(run_id, output)

    def attachments_of(
        self, run_ids: Sequence[RunId]
    ) -> Iterator[tuple[RunId, tuple[Attachment, ...]]]:
        """Yield the raw output of each of some runs, page by page; unknown runs are left out."""
        for page in pages(list(dict.fromkeys(run_ids)), _RUN_PAGE):
            with self.reading() as connection:
                query = (
                    select(RUNS.c.run_id, RUNS.c.output)
                    .where(RUNS.c.run_id.in_(page))
                    .order_by(RUNS.c.run_no)
                )
                rows = connection.execute(query).all()
            for run_id, output in rows:
                yield RunId(run_id), self._attachments(RunId(run_id), output)

    def _attachments(self, run_id: RunId, output: bytes) -> tuple[Attachment, ...]:
        """Return a run's raw output; large content is read one run after the other."""
        contents = unpack_output(output, where=f"run {run_id}")
        hashes = {content for _, content in contents if isinstance(content, str)}
        large: dict[str, bytes] = {}
        if hashes:
            with self.reading() as connection:
                rows = connection.execute(select(BLOBS).where(BLOBS.c.sha256.in_(hashes)))
                large = {sha256: unpack_large(data, sha256) for sha256, data in rows}
        attachments = []
        for name, content in contents:
            if isinstance(content, str) and content not in large:
                raise StoreCorruptError(f"run {run_id}: its attachment {name!r} is missing")
            attachments.append(
                Attachment(name=name, data=large[content] if isinstance(content, str) else content)
            )
        return tuple(attachments)

    def _read(
        self, connection: Connection, run_nos: Sequence[int], cases: dict[int, Case]
    ) -> list[tuple[RunRecord, bytes]]:
        """Return runs by their numbers, in their order, each with its packed output; cases that are
        read are added to ``cases``.

        A document that changed on the disk is damage, which is always raised; one that can't be
        understood is left out with a warning.
        """
        query = _ROWS.where(RUNS.c.run_no.in_(run_nos)).order_by(RUNS.c.run_no)
        rows = connection.execute(query).mappings().all()
        cases.update(read_cases(connection, {row["case_no"] for row in rows} - cases.keys()))
        texts = [(row, unpack(row["document"], where=f"run {row['run_id']}")) for row in rows]

        def read(item: tuple[RowMapping, bytes]) -> RunRecord:
            return _run_of(item[0], item[1].decode("ascii"), cases[item[0]["case_no"]])

        with_cases = [item for item in texts if item[0]["case_no"] in cases]
        return [(run, row["output"]) for (row, _), run in readable_rows(with_cases, read)]


def delete_runs(connection: Connection, run_nos: Sequence[int]) -> None:
    """Delete runs by their numbers, with the large content that no other run has."""
    delete_large(connection, run_nos)
    connection.execute(delete(RUNS).where(RUNS.c.run_no.in_(run_nos)))


def delete_large(connection: Connection, run_nos: Sequence[int]) -> int:
    """Delete the large content of runs that no other run has; return the bytes that became free."""
    of_runs = ATTACHMENTS.c.run_no.in_(run_nos)
    hashes = set(connection.scalars(select(ATTACHMENTS.c.sha256).where(of_runs)))
    if not hashes:
        return 0
    connection.execute(delete(ATTACHMENTS).where(of_runs))
    unused = BLOBS.c.sha256.in_(hashes), ~exists().where(ATTACHMENTS.c.sha256 == BLOBS.c.sha256)
    freed_bytes = connection.scalar(
        select(func.coalesce(func.sum(func.length(BLOBS.c.data)), 0)).where(*unused)
    )
    connection.execute(delete(BLOBS).where(*unused))
    return int(freed_bytes or 0)


def row_of(run: RunRecord) -> dict[str, Any]:
    """Return a run's row, without the numbers of its campaign and case and without its output."""
    text = dump_document(run, without=BESIDE).encode("ascii")
    latency_us = run.latency_us
    return {
        "run_id": run.run_id,
        "is_virtual": run.is_virtual,
        "run_pass": run.run_pass.value,
        "invocation": run.invocation,
        "outcome": run.outcome.value,
        "reason_code": run.reason_code,
        "quality": run.verdict.quality.value,
        "findings": " ".join(finding.code for finding in run.verdict.findings),
        "started_at": run.started_at,
        "duration_s": run.duration_s,
        "latency_us": None if latency_us is None else float(latency_us),
        "checksum": zlib.crc32(text),
        "document": pack(text, run.case.tool),
    }


@functools.cache
def _document_kind() -> type[Any]:
    """Return the dataclass of a run's document: a run's fields without BESIDE."""
    hints = get_type_hints(RunRecord)
    stored_fields = [item for item in dataclasses.fields(RunRecord) if item.name not in BESIDE]
    # A field belongs to one class.
    items = [(item.name, hints[item.name], copy(item)) for item in stored_fields]
    return dataclasses.make_dataclass("RunRecord", items, frozen=True, kw_only=True)


def _run_of(row: RowMapping, text: str, case: Case) -> RunRecord:
    read = load_document(_document_kind(), text, where=f"run {row['run_id']}")
    return RunRecord(
        run_id=RunId(row["run_id"]),
        campaign_id=CampaignId(row["campaign_id"]),
        case=case,
        attachments=(),
        **vars(read),
    )


def _clear_place(connection: Connection, run: RunRecord) -> bool:
    """Store the case of a run that the tables refused, and delete an unfit run in its place; return
    False for a run that is stored already.

    Raises StoreError for a case of something that isn't stored.
    """
    of_campaign = CAMPAIGNS.c.campaign_id == run.campaign_id
    of_case = CASES.c.case_key == run.case.case_key
    query = _ROWS.with_only_columns(RUNS.c.run_no, RUNS.c.outcome).where(
        of_campaign,
        of_case,
        RUNS.c.run_pass == run.run_pass.value,
        RUNS.c.invocation == run.invocation,
    )
    existing = connection.execute(query).one_or_none()
    if existing is not None and existing.outcome != Outcome.UNFIT.value:
        return False
    # A case that no plan names, such as one that a program found.
    insert_cases(connection, [run.case], f"run {run.run_id}")
    if existing is not None:
        # It has no raw output.
        delete_runs(connection, [existing.run_no])
    return True


def _run_numbers(connection: Connection, where: RunFilter, *, of_case: int = 0) -> array[int]:
    """Return the numbers of the chosen runs in their order: 8 bytes a run. ``of_case``: only the
    last ones of each case, this many (0: all).
    """
    filters = [(_COLUMNS[name], values) for name, values in where.items() if values]
    query = select(RUNS.c.run_no)
    for table, number in ((CAMPAIGNS, "campaign_no"), (CASES, "case_no")):
        if any(column.table is table for column, _ in filters):
            query = query.join(table, RUNS.c[number] == table.c[number])
    queries = [query]
    for column, values in filters:
        texts = list(map(str, cast("Sequence[str]", values)))
        queries = [narrowed for part in queries for narrowed in filtered(part, column, texts)]
    if of_case:
        place = func.row_number().over(partition_by=RUNS.c.case_no, order_by=RUNS.c.run_no.desc())
        numbered = [part.add_columns(place.label("place")).subquery() for part in queries]
        queries = [select(item.c.run_no).where(item.c.place <= of_case) for item in numbered]
    return array("q", sorted(number for part in queries for number in connection.scalars(part)))
