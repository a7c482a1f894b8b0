"""The figures of many nights, read from sheets and indexes and without documents.

A *sheet* is a campaign's timing figures in one value, so that many nights of thousands of series are read in a few
rows. It is derived from its campaign's runs alone: it is written when the campaign ends, deleted when one of its runs
changes, and may be deleted at any time.
"""

from __future__ import annotations

import json
import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import itemgetter, sub
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import ColumnElement, Connection, Integer, Select, cast, delete, exists, insert, or_, select, text

from orchestrator.errors import StoreCorruptError
from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.history import CampaignSketch, Contents, Points, RunMark, SeriesSketch
from orchestrator.records.identity import BuildSha, CampaignId, ModelSha, Serial, SeriesKey
from orchestrator.records.parity import OUTPUT_FINDINGS
from orchestrator.records.run import Outcome, RecentRun
from orchestrator.records.verdict import Quality
from orchestrator.records.workload import Case, Pass
from orchestrator.store.cases import pages, read_cases
from orchestrator.store.database import Database
from orchestrator.store.rows import record_of
from orchestrator.store.tables import CAMPAIGNS, CASES, CONTENTS, DEVICES, FINDINGS, IS_MARK, RUNS, SERIES, SHEETS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Sheets that are written at once where they are missing; each takes some milliseconds for a thousand runs.
MADE_UP: Final = 20
_FORMAT: Final = 1
_HEAD: Final = struct.Struct("<BI")
#: Columns of a sheet and of figures that are read from runs; those of a sheet come without the campaign.
_COLUMNS: Final = (
    ("series_no", "<i8"), ("contents_no", "<i8"), ("latency_us", "<f8"), ("trusted", "u1"), ("campaign_no", "<i8"),
)  # fmt: skip
#: Cases up to which their own index is asked; beyond it, reading whole nights takes less.
_FEW_CASES: Final = 4000
#: A new build makes a new case of a series; older ones than these say little about how long it takes now.
_CASES_MOST: Final = 16
#: Outcomes of what didn't take a phone's time.
_NOT_RUN: Final = (Outcome.UNFIT.value, Outcome.SKIPPED.value)

#: What asks for the figures that count, as ``_COLUMNS`` names them.
_FIGURES: Final[Select[Any]] = (
    select(
        CASES.c.series_no,
        CASES.c.contents_no,
        RUNS.c.latency_us,
        cast(RUNS.c.quality == Quality.TRUSTED.value, Integer).label("trusted"),
        RUNS.c.campaign_no,
    )
    .join_from(RUNS, CASES, RUNS.c.case_no == CASES.c.case_no)
    .where(
        RUNS.c.run_pass == Pass.TIMING.value,
        RUNS.c.quality != Quality.REJECTED.value,
        RUNS.c.latency_us.is_not(None),
        RUNS.c.latency_us > 0,
    )
)


def pack_sheet(rows: Iterable[Sequence[Any]]) -> bytes:
    """Return a sheet's bytes; a row holds what ``_FIGURES`` asks for.

    Written without numpy: every campaign ends with it, and few need numpy for anything else.
    """
    ordered = sorted(rows, key=itemgetter(0))
    numbers = [row[0] for row in ordered]
    columns = (
        array("q", map(sub, numbers, [0, *numbers])),
        array("q", [row[1] for row in ordered]),
        array("d", [row[2] for row in ordered]),
        array("B", [row[3] for row in ordered]),
    )
    planes = []
    for column in columns:
        if sys.byteorder == "big":
            column.byteswap()
        raw = column.tobytes()
        # Bytes of equal weight beside each other: most of them are the same.
        planes += [raw[place :: column.itemsize] for place in range(column.itemsize)]
    return _HEAD.pack(_FORMAT, len(ordered)) + zlib.compress(b"".join(planes))


def unpack_sheet(body: bytes, number: int) -> NDArray[np.void]:
    """Return the figures that :func:`pack_sheet` was given, by series, of a campaign; raises StoreCorruptError."""
    import numpy as np

    try:
        form, count = _HEAD.unpack_from(body)
        if form != _FORMAT:
            raise ValueError(f"form {form} isn't known")
        content = zlib.decompress(body[_HEAD.size :])
        if len(content) != count * 25:
            raise ValueError(f"{len(content)} bytes for {count} figures")
    except (struct.error, ValueError, zlib.error) as error:
        where = f"campaign number {number}"
        raise StoreCorruptError(f"{where}: its sheet of figures can't be unpacked ({error})") from error
    figures = np.empty(count, np.dtype(list(_COLUMNS)))
    at = 0
    for name, kind in _COLUMNS[:-1]:
        width = figures.dtype[name].itemsize
        planes = np.frombuffer(content, dtype="u1", count=width * count, offset=at).reshape(width, count)
        figures[name] = np.ascontiguousarray(planes.T).reshape(-1).view(kind)
        at += width * count
    figures["series_no"] = np.cumsum(figures["series_no"])
    figures["campaign_no"] = number
    return figures


def keep_sheets(connection: Connection, campaign_nos: Iterable[int]) -> None:
    """Write the sheets of campaigns that have none."""
    for number in campaign_nos:
        rows = connection.execute(_FIGURES.where(RUNS.c.campaign_no == number)).all()
        connection.execute(insert(SHEETS), {"campaign_no": number, "body": pack_sheet(rows)})


def forget_sheet(connection: Connection, number: int) -> None:
    """Delete a campaign's sheet: one of its runs changes."""
    connection.execute(delete(SHEETS).where(SHEETS.c.campaign_no == number))


def without_sheet(connection: Connection, limit: int | None = None) -> Sequence[int]:
    """Return the numbers of campaigns that aren't running and have no sheet, newest first."""
    has_sheet = exists().where(SHEETS.c.campaign_no == CAMPAIGNS.c.campaign_no)
    query = select(CAMPAIGNS.c.campaign_no).where(CAMPAIGNS.c.status != CampaignStatus.RUNNING.value, ~has_sheet)
    return connection.scalars(query.order_by(CAMPAIGNS.c.campaign_no.desc()).limit(limit)).all()


class Figures(Database):
    """Methods of the store that read what many nights measured."""

    def points(self, *, since: datetime | None = None, series_keys: Sequence[SeriesKey] = ()) -> Points:
        """Return the figures of timing invocations of campaigns begun since then, of some series or of all."""
        import numpy as np

        query = select(CAMPAIGNS.c.campaign_no, CAMPAIGNS.c.campaign_id, CAMPAIGNS.c.created_at)
        if since is not None:
            query = query.where(CAMPAIGNS.c.created_at >= since)
        with self.reading() as connection:
            campaigns = connection.execute(query.order_by(CAMPAIGNS.c.created_at, CAMPAIGNS.c.campaign_no)).all()
            numbers = [row.campaign_no for row in campaigns]
            series = _series(connection, series_keys)
            cases = _cases_of(connection, list(series)) if series_keys else []
            if series_keys and len(cases) <= _FEW_CASES:
                # There are a few hundred campaigns in a year, of which the index by case asks no more than it has.
                in_time = () if since is None else (RUNS.c.campaign_no.in_(numbers),)
                parts = [_of_runs(connection, RUNS.c.case_no.in_(page), *in_time) for page in pages(cases)]
            else:
                parts = _of_nights(connection, numbers)
            contents = _contents(connection)
        figures = np.concatenate([np.empty(0, np.dtype(list(_COLUMNS))), *parts])
        series_at = _places(figures["series_no"], list(series))
        if (left := series_at < 0).any():
            # Whole nights were read where some series were asked for.
            figures, series_at = figures[~left], series_at[~left]
        return Points(
            series=tuple(series.values()),
            contents=tuple(contents.values()),
            campaigns=tuple(
                CampaignSketch(campaign_id=CampaignId(row.campaign_id), created_at=row.created_at) for row in campaigns
            ),
            series_at=array("q", series_at.tobytes()),
            contents_at=array("q", _places(figures["contents_no"], list(contents)).tobytes()),
            campaign_at=array("q", _places(figures["campaign_no"], numbers).tobytes()),
            latency_us=array("d", figures["latency_us"].astype(np.float64).tobytes()),
            trusted=array("q", figures["trusted"].astype(np.int64).tobytes()),
        )

    def marks(self, *, since: datetime | None = None, series_keys: Sequence[SeriesKey] = ()) -> Sequence[RunMark]:
        """Return timing runs without a figure that counts, and comparisons of outputs where one didn't agree."""
        doubted = (
            select(CASES.c.series_no)
            .join_from(FINDINGS, RUNS, FINDINGS.c.run_no == RUNS.c.run_no)
            .join(CASES, RUNS.c.case_no == CASES.c.case_no)
            .where(FINDINGS.c.code.in_(OUTPUT_FINDINGS))
        )
        of_runs = RUNS.c.run_pass, RUNS.c.outcome, RUNS.c.quality, RUNS.c.reason_code
        of_others = SERIES.c.series_key, CAMPAIGNS.c.campaign_id, CAMPAIGNS.c.created_at, FINDINGS.c.code
        query = (
            select(RUNS.c.run_no, *of_runs, *of_others)
            .join_from(RUNS, CAMPAIGNS, RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no)
            .join(CASES, RUNS.c.case_no == CASES.c.case_no)
            .join(SERIES, CASES.c.series_no == SERIES.c.series_no)
            .outerjoin(FINDINGS, FINDINGS.c.run_no == RUNS.c.run_no)
            .where(text(f"({IS_MARK})"), or_(RUNS.c.run_pass == Pass.TIMING.value, CASES.c.series_no.in_(doubted)))
            .order_by(CAMPAIGNS.c.created_at, RUNS.c.run_no, FINDINGS.c.position)
        )
        if since is not None:
            query = query.where(CAMPAIGNS.c.created_at >= since)
        wanted = set(series_keys)
        codes: dict[int, list[str]] = {}
        found = {}
        with self.reading() as connection:
            for row in connection.execute(query).mappings():
                if not wanted or row["series_key"] in wanted:
                    found[row["run_no"]] = row
                    codes.setdefault(row["run_no"], []).extend([row["code"]] if row["code"] else [])
        return [record_of(RunMark, row, "a run", findings=tuple(codes[number])) for number, row in found.items()]

    def series(self, series_keys: Sequence[SeriesKey] = ()) -> Mapping[SeriesKey, Case]:
        """Return the newest case of each series, of some or of all."""
        of_series = CASES.c.series_no == SERIES.c.series_no
        newest = select(CASES.c.case_no).where(of_series).order_by(CASES.c.case_no.desc()).limit(1)
        query = select(newest.correlate(SERIES).scalar_subquery()).select_from(SERIES)
        with self.reading() as connection:
            numbers = [row[0] for row in _chosen(connection, query, series_keys) if row[0] is not None]
            return {case.series_key: case for case in read_cases(connection, numbers).values()}

    def recent_runs(
        self, series_keys: Sequence[SeriesKey], *, limit: int = 64
    ) -> Mapping[SeriesKey, Sequence[RecentRun]]:
        """Return the newest runs of each series that took a device's time, newest first.

        A question for each series: each is answered from two indexes, whatever the store holds beside it.
        """
        found: dict[SeriesKey, Sequence[RecentRun]] = {}
        with self.reading() as connection:
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
                    .where(RUNS.c.case_no.in_(newest), RUNS.c.outcome.not_in(_NOT_RUN))
                    .order_by(RUNS.c.run_no.desc())
                    .limit(limit)
                )
                rows = connection.execute(query).mappings()
                runs = [record_of(RecentRun, row, "a run", campaign=str(row["campaign_no"])) for row in rows]
                if runs:
                    found[series_key] = runs
        return found


def _of_nights(connection: Connection, numbers: Sequence[int]) -> list[NDArray[np.void]]:
    """Return the figures of campaigns: from their sheets, and from the runs of those that have none."""
    parts, without = [], set(numbers)
    for page in pages(numbers):
        for number, body in connection.execute(select(SHEETS).where(SHEETS.c.campaign_no.in_(page))):
            without.discard(number)
            parts.append(unpack_sheet(bytes(body), number))
    return [*parts, *(_of_runs(connection, RUNS.c.campaign_no.in_(page)) for page in pages(sorted(without)))]


def _of_runs(connection: Connection, *chosen: ColumnElement[bool]) -> NDArray[np.void]:
    """Return the figures of some runs."""
    import numpy as np

    return np.array([tuple(row) for row in connection.execute(_FIGURES.where(*chosen))], np.dtype(list(_COLUMNS)))


def _places(numbers: NDArray[np.int64], known: Sequence[int]) -> NDArray[np.int64]:
    """Return the place of each number among those known, -1 for one that isn't."""
    import numpy as np

    place_of = np.full(max(known, default=0) + 2, -1, dtype=np.int64)
    place_of[np.asarray(known, dtype=np.int64)] = np.arange(len(known))
    return place_of[np.clip(numbers, 0, place_of.size - 1)]


def _chosen(connection: Connection, query: Select[Any], series_keys: Sequence[SeriesKey]) -> list[Any]:
    """Return what a query over series finds of some of them, or of all."""
    if not series_keys:
        return list(connection.execute(query))
    wanted = pages(list(dict.fromkeys(series_keys)))
    return [row for page in wanted for row in connection.execute(query.where(SERIES.c.series_key.in_(page)))]


def _series(connection: Connection, series_keys: Sequence[SeriesKey]) -> dict[int, SeriesSketch]:
    query = select(SERIES.c.series_no, SERIES.c.series_key, DEVICES.c.serial, SERIES.c.is_virtual).join_from(
        SERIES, DEVICES, SERIES.c.device_no == DEVICES.c.device_no
    )
    return {
        number: SeriesSketch(series_key=SeriesKey(key), serial=Serial(serial), is_virtual=is_virtual)
        for number, key, serial, is_virtual in _chosen(connection, query.order_by(SERIES.c.series_no), series_keys)
    }


def _cases_of(connection: Connection, series: Sequence[int]) -> list[int]:
    query = select(CASES.c.case_no)
    return [number for page in pages(series) for number in connection.scalars(query.where(CASES.c.series_no.in_(page)))]


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
