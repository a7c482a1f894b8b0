"""A campaign's timing figures in one value, so that many nights of thousands of series are read in a few rows.

A sheet is derived from its campaign's runs alone and may be deleted at any time. It is written when the campaign ends,
and triggers delete it with every change of its runs, whoever changes them: what is read is always what the runs say.
"""

from __future__ import annotations

import struct
import sys
import zlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter, sub
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, Integer, Select, cast, exists, insert, select

from orchestrator.errors import StoreCorruptError
from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.verdict import Quality
from orchestrator.records.workload import Pass
from orchestrator.store.tables import CAMPAIGNS, CASES, RUNS, SHEETS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_LEVEL: Final = 6
_FORMAT: Final = 1
_HEAD: Final = struct.Struct("<BI")
#: Sheets that are made up for at once; each takes some milliseconds for a thousand runs.
MADE_UP: Final = 20
_ON_INSERT: Final = "AFTER INSERT ON runs"
_ON_DELETE: Final = "AFTER DELETE ON runs"
_ON_UPDATE: Final = "AFTER UPDATE OF campaign_no, case_no, run_pass, quality, latency_us ON runs"
#: When a campaign's sheet is deleted -> what deletes it.
_GUARDS: Final = {
    ("insert", _ON_INSERT): "DELETE FROM sheets WHERE campaign_no = NEW.campaign_no;",
    ("delete", _ON_DELETE): "DELETE FROM sheets WHERE campaign_no = OLD.campaign_no;",
    ("update", _ON_UPDATE): "DELETE FROM sheets WHERE campaign_no IN (OLD.campaign_no, NEW.campaign_no);",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """One campaign's timing figures as columns of equal length, by series; rejected and missing ones are left out."""

    series_no: NDArray[np.int64]
    contents_no: NDArray[np.int64]
    latency_us: NDArray[np.float64]
    #: 1 for a trusted run, 0 for a suspect one.
    trusted: NDArray[np.int64]


def pack_sheet(rows: Iterable[Sequence[Any]]) -> bytes:
    """Return a sheet's bytes; a row holds what :func:`figures_of_runs` asks for.

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
    packer = zlib.compressobj(_LEVEL)
    packed = []
    for column in columns:
        if sys.byteorder == "big":
            column.byteswap()
        raw = column.tobytes()
        # Bytes of equal weight beside each other: most of them are the same.
        packed += [packer.compress(raw[place :: column.itemsize]) for place in range(column.itemsize)]
    return _HEAD.pack(_FORMAT, len(ordered)) + b"".join([*packed, packer.flush()])


def unpack_sheet(body: bytes, *, where: str) -> Sheet:
    """Return the sheet that :func:`pack_sheet` was given, by series; raises StoreCorruptError."""
    import numpy as np

    try:
        form, count = _HEAD.unpack_from(body)
        if form != _FORMAT:
            raise ValueError(f"form {form} isn't known")
        content = zlib.decompress(body[_HEAD.size :])
        if len(content) != count * 25:
            raise ValueError(f"{len(content)} bytes for {count} figures")
    except (struct.error, ValueError, zlib.error) as error:
        raise StoreCorruptError(f"{where}: its sheet of figures can't be unpacked ({error})") from error
    columns = []
    at = 0
    for width, kind in ((8, "<i8"), (8, "<i8"), (8, "<f8"), (1, "u1")):
        planes = np.frombuffer(content, dtype="u1", count=width * count, offset=at).reshape(width, count)
        columns.append(np.ascontiguousarray(planes.T).reshape(-1).view(kind))
        at += width * count
    steps, contents_no, latency_us, trusted = columns
    return Sheet(
        series_no=np.cumsum(steps, dtype=np.int64),
        contents_no=contents_no.astype(np.int64, copy=False),
        latency_us=latency_us.astype(np.float64, copy=False),
        trusted=trusted.astype(np.int64),
    )


def figures_of_runs() -> Select[Any]:
    """Return what asks for the figures that count: series, contents, latency, whether it is trusted, campaign."""
    return (
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


def keep_sheets(connection: Connection, campaign_nos: Iterable[int]) -> None:
    """Write the sheets of campaigns that have none."""
    for campaign_no in campaign_nos:
        rows = connection.execute(figures_of_runs().where(RUNS.c.campaign_no == campaign_no)).all()
        connection.execute(insert(SHEETS), {"campaign_no": campaign_no, "body": pack_sheet(rows)})


def without_sheet(connection: Connection, limit: int | None = None) -> Sequence[int]:
    """Return the numbers of campaigns that aren't running and have no sheet, newest first."""
    has_sheet = exists().where(SHEETS.c.campaign_no == CAMPAIGNS.c.campaign_no)
    query = select(CAMPAIGNS.c.campaign_no).where(CAMPAIGNS.c.status != CampaignStatus.RUNNING.value, ~has_sheet)
    return connection.scalars(query.order_by(CAMPAIGNS.c.campaign_no.desc()).limit(limit)).all()


def watch_runs(connection: Connection) -> None:
    """Make the triggers that delete a sheet with every change of its runs, unless they are there.

    Alembic recreates a table of SQLite to alter it, and its triggers are lost with the old one.
    """
    for (name, moment), deletes in _GUARDS.items():
        if connection.dialect.name == "sqlite":
            trigger = f"CREATE TRIGGER IF NOT EXISTS sheets_on_{name} {moment} BEGIN {deletes} END"
            connection.exec_driver_sql(trigger)
            continue
        function = f"benchfarm_sheets_on_{name}()"
        body = f"$$ BEGIN {deletes} RETURN NULL; END $$"
        connection.exec_driver_sql(f"CREATE OR REPLACE FUNCTION {function} RETURNS trigger LANGUAGE plpgsql AS {body}")
        trigger = f"CREATE OR REPLACE TRIGGER sheets_on_{name} {moment} FOR EACH ROW EXECUTE FUNCTION {function}"
        connection.exec_driver_sql(trigger)
