"""The figures of many nights, read from indexes and without documents."""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, Integer, Select, cast, func, select
from sqlalchemy.dialects import postgresql

from orchestrator.records.history import CampaignSketch, Contents, Points, SeriesSketch
from orchestrator.records.identity import BuildSha, CampaignId, ModelSha, Serial, SeriesKey
from orchestrator.records.verdict import Quality
from orchestrator.records.workload import Case, Pass
from orchestrator.store.registry import pages, read_cases
from orchestrator.store.tables import CAMPAIGNS, CASES, CONTENTS, DEVICES, RUNS, SERIES

_Columns: TypeAlias = "tuple[array[Any], ...]"
#: Cases up to which their own index is asked; beyond it, reading whole nights takes less.
_FEW_CASES: Final = 4000


def read_points(connection: Connection, *, since: datetime | None, series_keys: Sequence[SeriesKey]) -> Points:
    """Return the figures of timing invocations since a moment, of some series or of all."""
    query = select(CAMPAIGNS.c.campaign_no, CAMPAIGNS.c.campaign_id, CAMPAIGNS.c.created_at)
    if since is not None:
        query = query.where(CAMPAIGNS.c.created_at >= since)
    campaigns = connection.execute(query.order_by(CAMPAIGNS.c.created_at, CAMPAIGNS.c.campaign_no)).all()
    campaign_nos = [row.campaign_no for row in campaigns]
    series = _series(connection, series_keys)
    chosen = [CASES.c.series_no.in_(page) for page in pages(list(series))] if series_keys else []
    cases = _fetched(connection, (_CASE_NUMBERS.where(condition) for condition in chosen), "qqq")
    in_nights = RUNS.c.campaign_no.in_
    if series_keys and len(cases[0]) <= _FEW_CASES:
        # There are a few hundred campaigns in a year, of which the index by case asks no more than each case has.
        in_time = in_nights(campaign_nos)
        of_cases = [RUNS.c.case_no.in_(page) for page in pages(cases[0])]
        conditions = of_cases if since is None else [condition & in_time for condition in of_cases]
    else:
        conditions = [in_nights(page) for page in pages(campaign_nos)]
    packed, latency_us = _fetched(connection, map(_figures, conditions), "qd")
    marks = np.frombuffer(packed, dtype=np.int64) if packed else np.empty(0, np.int64)
    if not series_keys and marks.size:
        seen = CASES.c.case_no.between(int(marks.min() >> _CASE_BITS), int(marks.max() >> _CASE_BITS))
        cases = _fetched(connection, [_CASE_NUMBERS.where(seen)], "qqq")
    return _points(connection, series, cases, (marks, latency_us), campaigns)


#: A point's case, campaign and mark are read as one number: a Python object less for each takes half the time.
_CASE_BITS: Final = 32
_CASE_NUMBERS: Final = select(CASES.c.case_no, CASES.c.series_no, CASES.c.contents_no)


def _points(
    connection: Connection,
    series: dict[int, SeriesSketch],
    cases: _Columns,
    figures: tuple[NDArray[np.int64], array[float]],
    campaigns: Sequence[Any],
) -> Points:
    contents = _contents(connection)
    marks, latency_us = figures
    case, campaign, trusted = marks >> _CASE_BITS, (marks & (2**_CASE_BITS - 1)) >> 1, marks & 1
    series_at = _looked_up(case, cases[0], _places(cases[1], list(series)))
    kept = series_at >= 0
    if not kept.all():
        # Whole nights were read where some series were asked for.
        case, campaign, trusted, series_at = case[kept], campaign[kept], trusted[kept], series_at[kept]
        latency_us = array("d", np.asarray(latency_us)[kept].tobytes())
    campaign_nos = [row.campaign_no for row in campaigns]
    return Points(
        series=tuple(series.values()),
        contents=tuple(contents.values()),
        campaigns=tuple(
            CampaignSketch(campaign_id=CampaignId(row.campaign_id), created_at=row.created_at) for row in campaigns
        ),
        series_at=array("q", series_at.tobytes()),
        contents_at=array("q", _looked_up(case, cases[0], _places(cases[2], list(contents))).tobytes()),
        campaign_at=array("q", _looked_up(campaign, campaign_nos, np.arange(len(campaign_nos))).tobytes()),
        latency_us=latency_us,
        trusted=array("q", trusted.tobytes()),
    )


def _places(numbers: Sequence[int], known: Sequence[int]) -> NDArray[np.int64]:
    """Return the place of each number among those known."""
    return _looked_up(np.asarray(numbers, dtype=np.int64), known, np.arange(len(known)))


def _looked_up(numbers: NDArray[np.int64], keys: Sequence[int], values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the value of each number's key, -1 for a number that is no key."""
    ordered = np.asarray(keys, dtype=np.int64)
    if not ordered.size or not numbers.size:
        return np.full(numbers.shape, -1, dtype=np.int64)
    order = np.argsort(ordered)
    place = np.minimum(np.searchsorted(ordered[order], numbers), ordered.size - 1)
    return np.where(ordered[order][place] == numbers, values[order][place], -1)


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
        for number, model, build, files in connection.execute(query)
    }


def _figures(chosen: ColumnElement[bool]) -> Select[Any]:
    return select(
        (
            RUNS.c.case_no * 2**_CASE_BITS
            + RUNS.c.campaign_no * 2
            + cast(RUNS.c.quality == Quality.TRUSTED.value, Integer)
        ).label("mark"),
        RUNS.c.latency_us,
    ).where(
        RUNS.c.run_pass == Pass.TIMING.value,
        chosen,
        RUNS.c.quality != Quality.REJECTED.value,
        RUNS.c.latency_us.is_not(None),
        RUNS.c.latency_us > 0,
    )


def _fetched(connection: Connection, queries: Iterable[Select[Any]], typecodes: str) -> _Columns:
    """Return the columns of some questions' answers, put together."""
    columns: _Columns = tuple(array(typecode) for typecode in typecodes)
    for query in queries:
        if connection.dialect.name == "postgresql":
            _extend_packed(connection, query, columns)
            continue
        # Straight from the driver: a Row for each of a million rows would take as long as reading them.
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


def _extend_packed(connection: Connection, query: Select[Any], columns: _Columns) -> None:
    """Have PostgreSQL join each column to one value: a row for each run takes longer to read than to find."""
    inner = query.subquery()
    empty = func.decode("", "hex")

    def joined(value: ColumnElement[Any], typecode: str) -> ColumnElement[bytes]:
        sent = func.float8send(value) if typecode == "d" else func.int8send(value)
        return func.string_agg(sent, empty, type_=postgresql.BYTEA())

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
