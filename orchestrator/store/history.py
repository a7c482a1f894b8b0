"""What devices were over time, ids by their beginning, annotations and confirmations, in an SQL database."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime

from sqlalchemy import ColumnElement, Connection, LargeBinary, and_, delete, func, insert, literal, select, true

from orchestrator.records.device import DeviceFacts
from orchestrator.records.history import Annotation, Confirmation, ConfirmationStatus, DeviceSighting
from orchestrator.records.identity import RunId, Serial, SeriesKey
from orchestrator.store import rows
from orchestrator.store.column_types import KEY_BYTES
from orchestrator.store.tables import ANNOTATIONS, CONFIRMATIONS, DEVICE_HISTORY, DEVICES, RUNS
from orchestrator.store.unreadable import readable


def read_sightings(connection: Connection) -> dict[Serial, list[tuple[datetime, DeviceFacts]]]:
    """Return what each device was and from when on, oldest first."""
    query = (
        select(DEVICES.c.serial, DEVICE_HISTORY.c.seen_at, DEVICE_HISTORY.c.facts)
        .join_from(DEVICE_HISTORY, DEVICES, DEVICE_HISTORY.c.device_no == DEVICES.c.device_no)
        .order_by(DEVICE_HISTORY.c.device_no, DEVICE_HISTORY.c.seen_at)
    )
    found: dict[Serial, list[tuple[datetime, DeviceFacts]]] = {}
    for row, facts in readable(connection.execute(query).mappings(), rows.device_from_row):
        found.setdefault(Serial(row["serial"]), []).append((row["seen_at"], facts))
    return found


def sightings_of(facts: Mapping[Serial, Sequence[tuple[datetime, DeviceFacts]]]) -> dict[Serial, list[DeviceSighting]]:
    """Return of each device what may change its numbers, from when on."""
    return {serial: [DeviceSighting(at=at, facts=item.versions) for at, item in seen] for serial, seen in facts.items()}


def read_run_ids(connection: Connection, prefix: str, limit: int) -> list[RunId]:
    """Return the ids that begin so, by the index of ids; no more than ``limit``."""
    found: set[str] = set()
    for condition in _beginnings(prefix):
        query = select(RUNS.c.run_id).where(condition).order_by(RUNS.c.run_id).limit(limit)
        found.update(connection.scalars(query))
    return [RunId(run_id) for run_id in sorted(found)[:limit]]


def _beginnings(prefix: str) -> list[ColumnElement[bool]]:
    """Return conditions on stored ids, as column_types.ContentKey stores them, each answered from a range."""
    if not prefix:
        return [true()]
    encoded = prefix.encode("utf-8", "surrogatepass")
    # Not LIKE: no letter of the prefix means anything.
    same = func.substr(RUNS.c.run_id, 1, len(encoded)) == literal(encoded, LargeBinary)
    conditions = [and_(RUNS.c.run_id >= literal(encoded, LargeBinary), same, func.length(RUNS.c.run_id) != KEY_BYTES)]
    if re.fullmatch("[0-9a-f]{1,32}", prefix):
        first, last = (bytes.fromhex(prefix.ljust(2 * KEY_BYTES, digit)) for digit in "0f")
        in_range = RUNS.c.run_id.between(literal(first, LargeBinary), literal(last, LargeBinary))
        conditions.append(and_(in_range, func.length(RUNS.c.run_id) == KEY_BYTES))
    return conditions


def read_annotations(connection: Connection) -> list[Annotation]:
    """Return all annotations, oldest night first."""
    query = select(ANNOTATIONS).order_by(ANNOTATIONS.c.night, ANNOTATIONS.c.annotation_no)
    return [
        Annotation(
            annotation_id=row["annotation_id"],
            selection=row["selection"],
            night=date.fromisoformat(row["night"]),
            text=row["text"],
            created_at=row["created_at"],
        )
        for row in connection.execute(query).mappings()
    ]


def insert_annotation(connection: Connection, annotation: Annotation) -> None:
    """Insert an annotation."""
    values = {
        "annotation_id": annotation.annotation_id,
        "selection": annotation.selection,
        "night": annotation.night.isoformat(),
        "text": annotation.text,
        "created_at": annotation.created_at,
    }
    connection.execute(insert(ANNOTATIONS), values)


def delete_annotation(connection: Connection, annotation_id: str) -> bool:
    """Delete an annotation; False when there is none."""
    gone = connection.execute(delete(ANNOTATIONS).where(ANNOTATIONS.c.annotation_id == annotation_id))
    return gone.rowcount > 0


def read_confirmations(connection: Connection) -> list[Confirmation]:
    """Return what became of changes that were run again."""
    return [
        Confirmation(
            series_key=SeriesKey(row["series_key"]),
            night=date.fromisoformat(row["night"]),
            status=ConfirmationStatus(row["status"]),
            detail=row["detail"],
            ratio=row["ratio"],
            at=row["at"],
        )
        for row in connection.execute(select(CONFIRMATIONS)).mappings()
    ]


def put_confirmation(connection: Connection, confirmation: Confirmation) -> None:
    """Insert a confirmation, in the place of an earlier one of the same change."""
    night = confirmation.night.isoformat()
    same = CONFIRMATIONS.c.series_key == confirmation.series_key, CONFIRMATIONS.c.night == night
    connection.execute(delete(CONFIRMATIONS).where(*same))
    values = {
        "series_key": confirmation.series_key,
        "night": night,
        "status": confirmation.status.value,
        "detail": confirmation.detail,
        "ratio": confirmation.ratio,
        "at": confirmation.at,
    }
    connection.execute(insert(CONFIRMATIONS), values)
