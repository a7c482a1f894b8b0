"""What campaigns refer to and share: devices, models, builds and cases, in an SQL database."""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from typing import Final, TypeVar

from sqlalchemy import Connection, Insert, Table, insert, select, update

from orchestrator.errors import StoreCorruptError
from orchestrator.records.campaign import Campaign
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import CaseKey, SeriesKey
from orchestrator.records.workload import Case
from orchestrator.store import rows
from orchestrator.store.tables import CASES, CONTENTS, DEVICE_HISTORY, DEVICES, PLANS, SERIES, SKIPS
from orchestrator.store.unreadable import readable

_LEVEL: Final = 6


def pack_plan(planned: Sequence[tuple[int, str, int]]) -> bytes:
    """Return invocations, each (number of its case, pass, number within the pass), in their order."""
    passes = sorted({run_pass for _, run_pass, _ in planned})
    columns = {
        "passes": passes,
        "case_no": [case_no for case_no, _, _ in planned],
        "pass": [passes.index(run_pass) for _, run_pass, _ in planned],
        "number": [number for _, _, number in planned],
    }
    return zlib.compress(json.dumps(columns, separators=(",", ":")).encode(), _LEVEL)


def unpack_plan(body: bytes, *, where: str) -> list[tuple[int, str, int]]:
    """Return what :func:`pack_plan` was given; raises StoreCorruptError."""
    try:
        columns = json.loads(zlib.decompress(body))
        passes = columns["passes"]
        return [
            (case_no, passes[run_pass], number)
            for case_no, run_pass, number in zip(columns["case_no"], columns["pass"], columns["number"], strict=True)
        ]
    except (zlib.error, ValueError, KeyError, IndexError, TypeError) as error:
        raise StoreCorruptError(f"{where}: its stored plan can't be unpacked ({error})") from error


Value = TypeVar("Value")

#: Rows that are read in one transaction, and values that are named in one statement (SQLite takes 32,766).
_PAGE: Final = 500


def keep_device(connection: Connection, facts: DeviceFacts, *, seen_at: datetime) -> None:
    """Insert a device, or bring it up to date unless it was seen later than this."""
    row = {**rows.device_to_row(facts), "last_seen_at": seen_at}
    is_known = DEVICES.c.serial == facts.serial
    known = connection.execute(select(DEVICES.c.device_no, DEVICES.c.last_seen_at, DEVICES.c.facts).where(is_known))
    stored = known.one_or_none()
    if stored is None:
        device_no = insert_numbered(connection, DEVICES, row)
        _keep_sighting(connection, device_no, row)
    elif stored.last_seen_at <= seen_at:
        connection.execute(update(DEVICES).where(is_known).values(row))
        if rows.sighting_of(stored.facts) != rows.sighting_of(row["facts"]):
            _keep_sighting(connection, stored.device_no, row)


def _keep_sighting(connection: Connection, device_no: int, row: rows.Row) -> None:
    """Note what a device is from now on; of two within a microsecond the first is kept."""
    at = {"device_no": device_no, "seen_at": row["last_seen_at"]}
    there = select(DEVICE_HISTORY.c.device_no).where(
        DEVICE_HISTORY.c.device_no == device_no, DEVICE_HISTORY.c.seen_at == row["last_seen_at"]
    )
    if connection.scalar(there) is None:
        connection.execute(insert(DEVICE_HISTORY), {**at, "facts": row["facts"]})


def keep_named(connection: Connection, table: Table, row: rows.Row) -> None:
    """Insert a model or a build, or bring up to date what it is called."""
    if connection.execute(update(table).where(table.c.sha256 == row["sha256"]).values(row)).rowcount == 0:
        connection.execute(insert(table), row)


def insert_plan(connection: Connection, campaign_no: int, campaign: Campaign) -> None:
    """Insert a campaign's invocations and skips, and the cases that are new."""
    cases = {planned.case.case_key: planned.case for planned in campaign.invocations}
    number_of = case_numbers(connection, cases)
    insert_cases(connection, [case for case_key, case in cases.items() if case_key not in number_of], number_of)
    if campaign.invocations:
        planned_rows = [
            (number_of[planned.case.case_key], planned.run_pass.value, planned.number)
            for planned in campaign.invocations
        ]
        plan = {
            "campaign_no": campaign_no,
            "invocation_count": len(planned_rows),
            "body": pack_plan(planned_rows),
        }
        connection.execute(insert(PLANS), plan)
    if campaign.skipped:
        connection.execute(
            insert(SKIPS),
            [
                {"campaign_no": campaign_no, "position": position, **rows.skip_to_row(skip)}
                for position, skip in enumerate(campaign.skipped)
            ],
        )


def read_plan(connection: Connection, campaign_no: int) -> list[tuple[int, str, int]]:
    """Return a campaign's invocations in their order: (number of the case, pass, number). Raises StoreCorruptError."""
    body = connection.scalar(select(PLANS.c.body).where(PLANS.c.campaign_no == campaign_no))
    return [] if body is None else unpack_plan(bytes(body), where=f"campaign number {campaign_no}")


def case_numbers(connection: Connection, case_keys: Collection[CaseKey]) -> dict[CaseKey, int]:
    """Return the numbers of those cases that are stored."""
    numbers: dict[CaseKey, int] = {}
    for page in pages(list(case_keys)):
        found = connection.execute(select(CASES.c.case_key, CASES.c.case_no).where(CASES.c.case_key.in_(page)))
        numbers.update((CaseKey(case_key), case_no) for case_key, case_no in found)
    return numbers


def insert_cases(connection: Connection, cases: Sequence[Case], number_of: dict[CaseKey, int]) -> None:
    """Insert new cases of stored devices, and the series and contents that are new; note each case's number."""
    if not cases:
        return
    devices = {
        serial: (device_no, is_virtual)
        for serial, device_no, is_virtual in connection.execute(
            select(DEVICES.c.serial, DEVICES.c.device_no, DEVICES.c.is_virtual)
        )
    }
    series_of: dict[SeriesKey, int] = {}
    for page in pages(list({case.series_key for case in cases})):
        known = select(SERIES.c.series_key, SERIES.c.series_no).where(SERIES.c.series_key.in_(page))
        series_of.update((SeriesKey(key), number) for key, number in connection.execute(known))
    contents_of: dict[str, int] = {}
    made = []
    for case in cases:
        device_no, is_virtual = devices[case.serial]
        if case.series_key not in series_of:
            row = {**rows.series_to_row(case), "device_no": device_no, "is_virtual": is_virtual}
            series_of[case.series_key] = insert_numbered(connection, SERIES, row)
        contents = rows.contents_to_row(case)
        if contents["contents_key"] not in contents_of:
            contents_of[contents["contents_key"]] = _keep_contents(connection, contents)
        made.append(
            {
                "case_key": case.case_key,
                "series_no": series_of[case.series_key],
                "contents_no": contents_of[contents["contents_key"]],
                "is_virtual": is_virtual,
            }
        )
    connection.execute(insert(CASES), made)
    number_of.update(case_numbers(connection, [case.case_key for case in cases]))


def _keep_contents(connection: Connection, row: rows.Row) -> int:
    known = select(CONTENTS.c.contents_no).where(CONTENTS.c.contents_key == row["contents_key"])
    number = connection.scalar(known)
    return insert_numbered(connection, CONTENTS, row) if number is None else number


@cache
def insertion(table: Table) -> Insert:
    """Return the statement that inserts rows; made once, SQLAlchemy finds what it compiled of it without looking."""
    return insert(table)


def insert_numbered(connection: Connection, table: Table, row: rows.Row) -> int:
    """Insert a row and return the number that the database gave it."""
    key = connection.execute(insertion(table), row).inserted_primary_key
    assert key is not None, "a single INSERT always has one"
    number: int = key[0]
    return number


#: All that a case is put together from.
CASE_ROWS: Final = (
    select(
        CASES.c.case_no,
        CASES.c.case_key,
        SERIES.c.series_key,
        SERIES.c.document,
        CONTENTS.c.model_sha256,
        CONTENTS.c.build_sha256,
        CONTENTS.c.files,
    )
    .join_from(CASES, SERIES, CASES.c.series_no == SERIES.c.series_no)
    .join(CONTENTS, CASES.c.contents_no == CONTENTS.c.contents_no)
)


def read_cases(connection: Connection, case_nos: Iterable[int]) -> dict[int, Case]:
    """Return cases by their number, without those that can't be read."""
    found: dict[int, Case] = {}
    for page in pages(list(set(case_nos))):
        cases = connection.execute(CASE_ROWS.where(CASES.c.case_no.in_(page))).mappings()
        found.update((row["case_no"], case) for row, case in readable(cases, rows.case_from_row))
    return found


def pages(values: Sequence[Value], size: int = _PAGE) -> Iterator[Sequence[Value]]:
    """Yield the values in portions that one statement can name."""
    for start in range(0, len(values), size):
        yield values[start : start + size]
