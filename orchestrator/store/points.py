"""The figures of many nights, read from sheets and indexes and without documents."""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import ColumnElement, Connection, LargeBinary, Select, func, or_, select, text

from orchestrator.records.history import CampaignSketch, Contents, Points, RunMark, SeriesSketch
from orchestrator.records.identity import BuildSha, CampaignId, CaseKey, ModelSha, Serial, SeriesKey
from orchestrator.records.night import RecentRun
from orchestrator.records.parity import OUTPUT_FINDINGS
from orchestrator.records.run import Outcome
from orchestrator.records.verdict import Quality
from orchestrator.records.workload import Case, Pass
from orchestrator.store.registry import pages, read_cases
from orchestrator.store.sheets import figures_of_runs, unpack_sheet
from orchestrator.store.tables import CAMPAIGNS, CASES, CONTENTS, DEVICES, FINDINGS, IS_MARK, RUNS, SERIES, SHEETS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


#: Cases up to which their own index is asked; beyond it, reading whole nights takes less.
_FEW_CASES: Final = 4000


@dataclass(frozen=True, slots=True)
class _Figures:
    """Figures by the numbers that the database knows things by, as columns of equal length."""

    series_no: NDArray[np.int64]
    contents_no: NDArray[np.int64]
    latency_us: NDArray[np.float64]
    trusted: NDArray[np.int64]
    campaign_no: NDArray[np.int64]

    def where(self, kept: NDArray[np.bool_]) -> _Figures:
        """Return some of them."""
        return _Figures(*(getattr(self, item.name)[kept] for item in fields(self)))


def read_points(connection: Connection, *, since: datetime | None, series_keys: Sequence[SeriesKey]) -> Points:
    """Return the figures of timing invocations since a moment, of some series or of all."""
    query = select(CAMPAIGNS.c.campaign_no, CAMPAIGNS.c.campaign_id, CAMPAIGNS.c.created_at)
    if since is not None:
        query = query.where(CAMPAIGNS.c.created_at >= since)
    campaigns = connection.execute(query.order_by(CAMPAIGNS.c.created_at, CAMPAIGNS.c.campaign_no)).all()
    campaign_nos = [row.campaign_no for row in campaigns]
    series = _series(connection, series_keys)
    cases: list[int] = []
    for page in pages(list(series)) if series_keys else ():
        cases += connection.scalars(select(CASES.c.case_no).where(CASES.c.series_no.in_(page)))
    if series_keys and len(cases) <= _FEW_CASES:
        # There are a few hundred campaigns in a year, of which the index by case asks no more than each case has.
        in_time = RUNS.c.campaign_no.in_(campaign_nos)
        of_cases = [RUNS.c.case_no.in_(page) for page in pages(cases)]
        parts = [_of_runs(connection, item if since is None else item & in_time) for item in of_cases]
    else:
        parts = list(_of_nights(connection, campaign_nos))
    return _points(connection, series, _joined(parts), campaigns)


def _of_nights(connection: Connection, campaign_nos: Sequence[int]) -> Iterator[_Figures]:
    """Yield the figures of campaigns: from their sheets, and from the runs of those that have none."""
    import numpy as np

    without = set(campaign_nos)
    for page in pages(campaign_nos):
        for campaign_no, body in connection.execute(select(SHEETS).where(SHEETS.c.campaign_no.in_(page))):
            without.discard(campaign_no)
            sheet = unpack_sheet(bytes(body), where=f"campaign number {campaign_no}")
            at = np.full(sheet.series_no.size, campaign_no, dtype=np.int64)
            yield _Figures(sheet.series_no, sheet.contents_no, sheet.latency_us, sheet.trusted, at)
    for page in pages(sorted(without)):
        yield _of_runs(connection, RUNS.c.campaign_no.in_(page))


def _of_runs(connection: Connection, chosen: ColumnElement[bool]) -> _Figures:
    """Return the figures of some runs."""
    import numpy as np

    columns = _fetched(connection, figures_of_runs().where(chosen), "qqdqq")
    series_no, contents_no, trusted, campaign_no = (
        np.frombuffer(columns[place], dtype=np.int64) for place in (0, 1, 3, 4)
    )
    return _Figures(series_no, contents_no, np.frombuffer(columns[2], dtype=np.float64), trusted, campaign_no)


def _joined(parts: Sequence[_Figures]) -> _Figures:
    import numpy as np

    columns = []
    for item in fields(_Figures):
        kind = np.float64 if item.name == "latency_us" else np.int64
        columns.append(np.concatenate([np.empty(0, kind), *(getattr(part, item.name) for part in parts)]))
    return _Figures(*columns)


def _points(
    connection: Connection, series: dict[int, SeriesSketch], figures: _Figures, campaigns: Sequence[Any]
) -> Points:
    contents = _contents(connection)
    series_at = _places(figures.series_no, list(series))
    kept = series_at >= 0
    if not kept.all():
        # Whole nights were read where some series were asked for.
        figures, series_at = figures.where(kept), series_at[kept]
    return Points(
        series=tuple(series.values()),
        contents=tuple(contents.values()),
        campaigns=tuple(
            CampaignSketch(campaign_id=CampaignId(row.campaign_id), created_at=row.created_at) for row in campaigns
        ),
        series_at=array("q", series_at.tobytes()),
        contents_at=array("q", _places(figures.contents_no, list(contents)).tobytes()),
        campaign_at=array("q", _places(figures.campaign_no, [row.campaign_no for row in campaigns]).tobytes()),
        latency_us=array("d", figures.latency_us.tobytes()),
        trusted=array("q", figures.trusted.tobytes()),
    )


def _places(numbers: NDArray[np.int64], known: Sequence[int]) -> NDArray[np.int64]:
    """Return the place of each number among those known, -1 for one that isn't."""
    import numpy as np

    place_of = np.full(max(known, default=0) + 2, -1, dtype=np.int64)
    place_of[np.asarray(known, dtype=np.int64)] = np.arange(len(known))
    return place_of[np.clip(numbers, 0, place_of.size - 1)]


def _series(connection: Connection, series_keys: Sequence[SeriesKey]) -> dict[int, SeriesSketch]:
    query = select(SERIES.c.series_no, SERIES.c.series_key, DEVICES.c.serial, SERIES.c.is_virtual).join_from(
        SERIES, DEVICES, SERIES.c.device_no == DEVICES.c.device_no
    )
    found = {}
    for condition in _of_series(series_keys):
        asked = query if condition is None else query.where(condition)
        for number, key, serial, is_virtual in connection.execute(asked.order_by(SERIES.c.series_no)):
            found[number] = SeriesSketch(series_key=SeriesKey(key), serial=Serial(serial), is_virtual=is_virtual)
    return found


def _of_series(series_keys: Sequence[SeriesKey]) -> list[ColumnElement[bool] | None]:
    wanted = list(pages(list(dict.fromkeys(series_keys))))
    return [SERIES.c.series_key.in_(page) for page in wanted] if wanted else [None]


def _contents(connection: Connection) -> dict[int, Contents]:
    query = select(CONTENTS.c.contents_no, CONTENTS.c.model_sha256, CONTENTS.c.build_sha256, CONTENTS.c.files)
    return {
        number: Contents(
            model_sha256=ModelSha(model),
            build_sha256=BuildSha(build),
            files=tuple((name, sha256) for name, sha256 in json.loads(files)) if files != "[]" else (),
        )
        for number, model, build, files in connection.execute(query.order_by(CONTENTS.c.contents_no))
    }


def _fetched(connection: Connection, query: Select[Any], typecodes: str) -> tuple[array[Any], ...]:
    """Return the columns of a question's answer."""
    columns = tuple(array(typecode) for typecode in typecodes)
    if connection.dialect.name == "postgresql":
        _extend_packed(connection, query, columns)
        return columns
    # Straight from the driver: a Row for each of many runs would take as long as reading them.
    compiled = query.compile(connection, compile_kwargs={"literal_binds": True})
    cursor = connection.connection.cursor()
    try:
        cursor.execute(str(compiled))
        while page := cursor.fetchmany(50_000):
            for column, part in zip(columns, zip(*page, strict=True), strict=True):
                column.extend(part)
    finally:
        cursor.close()
    return columns


def _extend_packed(connection: Connection, query: Select[Any], columns: tuple[array[Any], ...]) -> None:
    """Have PostgreSQL join each column to one value: a row for each run takes longer to read than to find."""
    inner = query.subquery()
    empty = func.decode("", "hex")

    def joined(value: ColumnElement[Any], typecode: str) -> ColumnElement[bytes]:
        sent = func.float8send(value) if typecode == "d" else func.int8send(value)
        return func.string_agg(sent, empty, type_=LargeBinary())

    outer = select(*(joined(value, column.typecode) for value, column in zip(inner.c, columns, strict=True)))
    for column, value in zip(columns, connection.execute(outer).one(), strict=True):
        read: array[Any] = array(column.typecode, bytes(value or b""))
        if sys.byteorder == "little":
            read.byteswap()
        column.extend(read)


def read_series(connection: Connection, series_keys: Sequence[SeriesKey]) -> dict[SeriesKey, Case]:
    """Return the newest case of each series."""
    newest = (
        select(CASES.c.case_no)
        .where(CASES.c.series_no == SERIES.c.series_no)
        .order_by(CASES.c.case_no.desc())
        .limit(1)
        .correlate(SERIES)
        .scalar_subquery()
    )
    numbers: list[int] = []
    for condition in _of_series(series_keys):
        query = select(newest).select_from(SERIES)
        asked = query if condition is None else query.where(condition)
        numbers += [number for number in connection.scalars(asked) if number is not None]
    return {case.series_key: case for case in read_cases(connection, numbers).values()}


#: A new build makes a new case of a series; older ones than these say little about how long it takes now.
_CASES_MOST: Final = 16
#: Outcomes of what didn't take a phone's time.
NOT_RUN: Final = (Outcome.UNFIT, Outcome.SKIPPED)


def read_recent_runs(
    connection: Connection, series_keys: Sequence[SeriesKey], *, limit: int
) -> Mapping[SeriesKey, Sequence[RecentRun]]:
    """Return the newest runs of each series, newest first, no more than ``limit`` of each.

    A question for each series: each is answered from two indexes, whatever the store holds beside it.
    """
    not_run = tuple(outcome.value for outcome in NOT_RUN)
    found: dict[SeriesKey, Sequence[RecentRun]] = {}
    for series_key in series_keys:
        newest = (
            select(CASES.c.case_no)
            .join_from(CASES, SERIES, CASES.c.series_no == SERIES.c.series_no)
            .where(SERIES.c.series_key == series_key)
            .order_by(CASES.c.case_no.desc())
            .limit(_CASES_MOST)
        )
        query = (
            select(RUNS.c.run_pass, RUNS.c.started_at, RUNS.c.duration_s, RUNS.c.outcome, RUNS.c.campaign_no)
            .where(RUNS.c.case_no.in_(newest), RUNS.c.outcome.not_in(not_run))
            .order_by(RUNS.c.run_no.desc())
            .limit(limit)
        )
        runs = [
            RecentRun(
                run_pass=Pass(row.run_pass),
                started_at=row.started_at,
                duration_s=row.duration_s,
                outcome=Outcome(row.outcome),
                campaign=str(row.campaign_no),
            )
            for row in connection.execute(query)
        ]
        if runs:
            found[series_key] = runs
    return found


_COLUMNS: Final = (
    RUNS.c.run_no,
    SERIES.c.series_key,
    CAMPAIGNS.c.campaign_id,
    CAMPAIGNS.c.created_at,
    RUNS.c.run_pass,
    RUNS.c.outcome,
    RUNS.c.quality,
    RUNS.c.reason_code,
    FINDINGS.c.code,
)


def _doubted() -> Select[int]:
    """Return what asks for the series in which a comparison of outputs didn't agree."""
    return (
        select(CASES.c.series_no)
        .join_from(FINDINGS, RUNS, FINDINGS.c.run_no == RUNS.c.run_no)
        .join(CASES, RUNS.c.case_no == CASES.c.case_no)
        .where(FINDINGS.c.code.in_(OUTPUT_FINDINGS))
    )


def read_marks(connection: Connection, *, since: datetime | None, series_keys: Sequence[SeriesKey]) -> list[RunMark]:
    """Return timing runs without a figure that counts, and comparisons of outputs where one didn't agree."""
    query = (
        select(*_COLUMNS)
        .join_from(RUNS, CAMPAIGNS, RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no)
        .join(CASES, RUNS.c.case_no == CASES.c.case_no)
        .join(SERIES, CASES.c.series_no == SERIES.c.series_no)
        .outerjoin(FINDINGS, FINDINGS.c.run_no == RUNS.c.run_no)
        .where(text(f"({IS_MARK})"), or_(RUNS.c.run_pass == Pass.TIMING.value, CASES.c.series_no.in_(_doubted())))
        .order_by(CAMPAIGNS.c.created_at, RUNS.c.run_no, FINDINGS.c.position)
    )
    if since is not None:
        query = query.where(CAMPAIGNS.c.created_at >= since)
    wanted = set(series_keys)
    found: dict[int, RunMark] = {}
    for row in connection.execute(query):
        if wanted and row.series_key not in wanted:
            continue
        before = found.get(row.run_no)
        codes = (*(before.findings if before is not None else ()), *((row.code,) if row.code else ()))
        found[row.run_no] = RunMark(
            series_key=SeriesKey(row.series_key),
            campaign_id=CampaignId(row.campaign_id),
            created_at=row.created_at,
            run_pass=Pass(row.run_pass),
            outcome=Outcome(row.outcome),
            quality=Quality(row.quality),
            reason_code=row.reason_code,
            findings=codes,
        )
    return list(found.values())


def read_run_numbers(
    connection: Connection,
    campaign_ids: Sequence[CampaignId],
    case_keys: Sequence[CaseKey],
    series_keys: Sequence[SeriesKey],
    serials: Sequence[Serial],
) -> array[int]:
    """Return the numbers of the runs that fit, in their order: 8 bytes a run."""
    numbers = array("q")
    for conditions in product(
        _filters(CAMPAIGNS.c.campaign_id, campaign_ids),
        _filters(CASES.c.case_key, case_keys),
        _filters(SERIES.c.series_key, series_keys),
        _filters(DEVICES.c.serial, serials),
    ):
        in_campaigns, of_cases, of_series, of_devices = conditions
        query = select(RUNS.c.run_no)
        if in_campaigns is not None:
            query = query.join(CAMPAIGNS, RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no).where(in_campaigns)
        if of_cases is not None or of_series is not None or of_devices is not None:
            query = query.join(CASES, RUNS.c.case_no == CASES.c.case_no)
        if of_cases is not None:
            query = query.where(of_cases)
        if of_series is not None or of_devices is not None:
            query = query.join(SERIES, CASES.c.series_no == SERIES.c.series_no)
        if of_series is not None:
            query = query.where(of_series)
        if of_devices is not None:
            query = query.join(DEVICES, SERIES.c.device_no == DEVICES.c.device_no).where(of_devices)
        numbers.extend(connection.scalars(query))
    return array("q", sorted(numbers))


def _filters(column: ColumnElement[str], values: Sequence[str]) -> Iterator[ColumnElement[bool] | None]:
    """Yield conditions that together, without overlap, let through what is wanted; None when all is."""
    if not values:
        yield None
    for page in pages(list(dict.fromkeys(values))):
        yield column.in_(page)
