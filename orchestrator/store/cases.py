"""What campaigns refer to and share: devices, models, builds and cases; and planned invocations as one value."""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from typing import Final, TypeVar

from sqlalchemy import Connection, Insert, RowMapping, Table, insert, select, update

from orchestrator.documents import dump_document
from orchestrator.errors import StoreCorruptError, StoreError
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import CampaignId, CaseKey
from orchestrator.records.workload import Build, Case, Model
from orchestrator.store import rows
from orchestrator.store.failures import readable
from orchestrator.store.tables import BUILDS, CAMPAIGNS, CASES, CONTENTS, DEVICE_HISTORY, DEVICES, MODELS, PLANS, SERIES

Value = TypeVar("Value")

#: Rows that are read in one transaction, and values that are named in one statement (SQLite takes 32,766).
_PAGE: Final = 500


def pages(values: Sequence[Value], size: int = _PAGE) -> Iterator[Sequence[Value]]:
    """Yield the values in portions that one statement can name."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


def campaign_no(connection: Connection, campaign_id: CampaignId) -> int:
    """Return the number of a campaign; raises StoreError when there is none."""
    number: int | None = connection.scalar(
        select(CAMPAIGNS.c.campaign_no).where(CAMPAIGNS.c.campaign_id == campaign_id)
    )
    if number is None:
        raise StoreError(f"campaign {campaign_id}: the store holds no such campaign")
    return number


@cache
def insertion(table: Table) -> Insert:
    """Return the statement that inserts rows; made once, SQLAlchemy finds what it compiled of it without looking."""
    return insert(table)


def insert_numbered(connection: Connection, table: Table, row: rows.Row) -> int:
    """Insert a row and return the number that the database gave it."""
    key = connection.execute(insertion(table), row).inserted_primary_key
    assert key is not None, "a single INSERT always has one"
    return int(key[0])


def pack_plan(planned: Sequence[tuple[int, str, int]]) -> bytes:
    """Return invocations, each (number of its case, pass, number within the pass), in their order."""
    passes = sorted({run_pass for _, run_pass, _ in planned})
    columns = {
        "passes": passes,
        "case_no": [case_no for case_no, _, _ in planned],
        "pass": [passes.index(run_pass) for _, run_pass, _ in planned],
        "number": [number for _, _, number in planned],
    }
    return zlib.compress(json.dumps(columns, separators=(",", ":")).encode())


def read_plan(connection: Connection, number: int) -> list[tuple[int, str, int]]:
    """Return a campaign's invocations as :func:`pack_plan` was given them; raises StoreCorruptError."""
    body = connection.scalar(select(PLANS.c.body).where(PLANS.c.campaign_no == number))
    if body is None:
        return []
    try:
        columns = json.loads(zlib.decompress(bytes(body)))
        passes = [columns["passes"][place] for place in columns["pass"]]
        return list(zip(columns["case_no"], passes, columns["number"], strict=True))
    except (zlib.error, ValueError, KeyError, IndexError, TypeError) as error:
        raise StoreCorruptError(f"campaign number {number}: its stored plan can't be unpacked ({error})") from error


def keep_device(connection: Connection, facts: DeviceFacts, *, seen_at: datetime) -> None:
    """Insert a device, or bring it up to date unless it was seen later than this; note when it comes back changed."""
    row = rows.row_of(facts, DEVICES, facts=dump_document(facts), last_seen_at=seen_at)
    is_known = DEVICES.c.serial == facts.serial
    known = connection.execute(select(DEVICES).where(is_known)).mappings().one_or_none()
    if known is None:
        device_no = insert_numbered(connection, DEVICES, row)
    elif known["last_seen_at"] > seen_at:
        return
    else:
        device_no = known["device_no"]
        connection.execute(update(DEVICES).where(is_known).values(row))
        if _versions_of(known) == facts.versions:
            return
    sighting = {"device_no": device_no, "seen_at": seen_at}
    there = select(DEVICE_HISTORY.c.device_no).where(*(DEVICE_HISTORY.c[name] == sighting[name] for name in sighting))
    # Of two within a microsecond the first is kept.
    if connection.scalar(there) is None:
        connection.execute(insert(DEVICE_HISTORY), {**sighting, "facts": row["facts"]})


def _versions_of(row: RowMapping) -> dict[str, str]:
    try:
        return rows.device_from_row(row).versions
    except StoreError:
        return {}


def keep_named(connection: Connection, table: Table, record: Model | Build) -> None:
    """Insert a model or a build, or bring up to date what it is called; where its files lie on this host isn't kept."""
    bare = rows.without_paths(record) if isinstance(record, Build) else replace(record, path=None)
    row = rows.row_of(record, table, document=dump_document(bare))
    if connection.execute(update(table).where(table.c.sha256 == record.sha256).values(row)).rowcount == 0:
        connection.execute(insert(table), row)


def case_numbers(connection: Connection, case_keys: Collection[CaseKey]) -> dict[CaseKey, int]:
    """Return the numbers of those cases that are stored."""
    numbers: dict[CaseKey, int] = {}
    for page in pages(list(case_keys)):
        found = connection.execute(select(CASES.c.case_key, CASES.c.case_no).where(CASES.c.case_key.in_(page)))
        numbers.update((CaseKey(case_key), case_no) for case_key, case_no in found)
    return numbers


def keep_cases(connection: Connection, cases: Iterable[Case], where: str) -> dict[CaseKey, int]:
    """Insert those cases, series and contents that are new; return the number of each case.

    Raises StoreError naming ``where`` when a case refers to something that the store doesn't hold.
    """
    by_key = {case.case_key: case for case in cases}
    numbers = case_numbers(connection, by_key)
    new = [case for case_key, case in by_key.items() if case_key not in numbers]
    if not new:
        return numbers
    known = connection.execute(select(DEVICES.c.serial, DEVICES.c.device_no, DEVICES.c.is_virtual))
    devices = {serial: {"device_no": number, "is_virtual": is_virtual} for serial, number, is_virtual in known}
    models, builds = (set(connection.scalars(select(table.c.sha256))) for table in (MODELS, BUILDS))
    series: dict[str, int] = {}
    for page in pages(list({case.series_key for case in new})):
        found = connection.execute(select(SERIES.c.series_key, SERIES.c.series_no).where(SERIES.c.series_key.in_(page)))
        series.update((key, number) for key, number in found)
    contents: dict[str, int] = {}
    made = []
    for case in new:
        missing = [f"device {case.serial}"] if case.serial not in devices else []
        missing += [f"model {case.model_name} ({case.model_sha256})"] if case.model_sha256 not in models else []
        missing += [f"build {case.build_sha256}"] if case.build_sha256 not in builds else []
        if missing:
            raise StoreError(
                f"{where}: case {case.case_key} refers to {' and '.join(missing)}, which the store doesn't hold",
                hint="begin the campaign with everything that its cases refer to",
            )
        if case.series_key not in series:
            row = {**rows.series_to_row(case), **devices[case.serial]}
            series[case.series_key] = insert_numbered(connection, SERIES, row)
        row = rows.contents_to_row(case)
        key = row["contents_key"]
        if key not in contents:
            number = connection.scalar(select(CONTENTS.c.contents_no).where(CONTENTS.c.contents_key == key))
            contents[key] = insert_numbered(connection, CONTENTS, row) if number is None else number
        numbered = {"series_no": series[case.series_key], "contents_no": contents[key]}
        is_virtual = devices[case.serial]["is_virtual"]
        made.append({"case_key": case.case_key, "is_virtual": is_virtual, **numbered})
    connection.execute(insert(CASES), made)
    return numbers | case_numbers(connection, [case.case_key for case in new])


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
