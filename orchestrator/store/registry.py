"""What campaigns refer to and share: devices, models, builds and cases, in an SQL database."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import Final, TypeVar

from sqlalchemy import ColumnElement, Connection, Table, insert, select, update

from orchestrator.records.campaign import Campaign
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import CaseKey
from orchestrator.records.workload import Case
from orchestrator.store import rows
from orchestrator.store.tables import CASES, DEVICE_HISTORY, DEVICES, INVOCATIONS, SKIPS

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
    number_of = _case_numbers(connection, cases)
    devices = {
        serial: (device_no, is_virtual)
        for serial, device_no, is_virtual in connection.execute(
            select(DEVICES.c.serial, DEVICES.c.device_no, DEVICES.c.is_virtual)
        )
    }
    for case_key, case in cases.items():
        if case_key not in number_of:
            device_no, is_virtual = devices[case.serial]
            number_of[case_key] = insert_case(connection, case, device_no=device_no, is_virtual=is_virtual)
    if campaign.invocations:
        connection.execute(
            insert(INVOCATIONS),
            [
                {
                    "campaign_no": campaign_no,
                    "position": position,
                    "case_no": number_of[planned.case.case_key],
                    "run_pass": planned.run_pass.value,
                    "number": planned.number,
                }
                for position, planned in enumerate(campaign.invocations)
            ],
        )
    if campaign.skipped:
        connection.execute(
            insert(SKIPS),
            [
                {"campaign_no": campaign_no, "position": position, **rows.skip_to_row(skip)}
                for position, skip in enumerate(campaign.skipped)
            ],
        )


def _case_numbers(connection: Connection, case_keys: Collection[CaseKey]) -> dict[CaseKey, int]:
    """Return the numbers of those cases that are stored."""
    numbers: dict[CaseKey, int] = {}
    for page in pages(list(case_keys)):
        found = connection.execute(select(CASES.c.case_key, CASES.c.case_no).where(CASES.c.case_key.in_(page)))
        numbers.update((CaseKey(case_key), case_no) for case_key, case_no in found)
    return numbers


def insert_case(connection: Connection, case: Case, *, device_no: int, is_virtual: bool) -> int:
    """Insert a case of a stored device, and return its number."""
    row = {**rows.case_to_row(case), "device_no": device_no, "is_virtual": is_virtual}
    return insert_numbered(connection, CASES, row)


def insert_numbered(connection: Connection, table: Table, row: rows.Row) -> int:
    """Insert a row and return the number that the database gave it."""
    key = connection.execute(insert(table), row).inserted_primary_key
    assert key is not None, "a single INSERT always has one"
    number: int = key[0]
    return number


def read_cases(connection: Connection, condition: ColumnElement[bool]) -> dict[int, Case]:
    """Return the cases that fit, by their number."""
    found = connection.execute(
        select(CASES.c.case_no, CASES.c.case_key, CASES.c.series_key, CASES.c.document).where(condition)
    )
    return {row["case_no"]: rows.case_from_row(row) for row in found.mappings()}


def pages(values: Sequence[Value]) -> Iterator[Sequence[Value]]:
    """Yield the values in portions that one statement can name."""
    for start in range(0, len(values), _PAGE):
        yield values[start : start + _PAGE]
