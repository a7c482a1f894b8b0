"""The questions over many nights, answered from indexes and without documents; annotations and confirmations."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, TypeAlias

from sqlalchemy import ColumnElement, Connection, Integer, Select, cast, delete, func, insert, select
from sqlalchemy.dialects import postgresql

from orchestrator.records.device import DeviceFacts
from orchestrator.records.history import (
    Annotation,
    CampaignSketch,
    CaseSketch,
    Confirmation,
    ConfirmationStatus,
    DeviceSighting,
    Points,
)
from orchestrator.records.identity import BuildSha, CampaignId, CaseKey, ModelSha, RunId, Serial, SeriesKey
from orchestrator.records.verdict import Quality
from orchestrator.records.workload import Case, Pass
from orchestrator.store import rows
from orchestrator.store.registry import pages
from orchestrator.store.tables import ANNOTATIONS, CAMPAIGNS, CASES, CONFIRMATIONS, DEVICE_HISTORY, DEVICES, RUNS

_Columns: TypeAlias = "tuple[array[Any], array[Any], array[Any], array[Any]]"


def read_points(connection: Connection, *, since: datetime | None, series_keys: Sequence[SeriesKey]) -> Points:
    """Return the figures of timing invocations since a moment, of some series or of all."""
    query = select(CAMPAIGNS.c.campaign_no, CAMPAIGNS.c.campaign_id, CAMPAIGNS.c.created_at)
    if since is not None:
        query = query.where(CAMPAIGNS.c.created_at >= since)
    campaigns = connection.execute(query.order_by(CAMPAIGNS.c.created_at, CAMPAIGNS.c.campaign_no)).all()
    case_rows = _case_rows(connection, series_keys)
    place_of_campaign = {row.campaign_no: place for place, row in enumerate(campaigns)}
    place_of_case = {row[0]: place for place, row in enumerate(case_rows)}
    columns: _Columns = (array("q"), array("q"), array("d"), array("q"))
    # Of some series, their cases' rows in the index by case; of all, the campaigns' rows in the index by campaign.
    by_case = bool(series_keys)
    numbers = list(place_of_case) if by_case else list(place_of_campaign)
    for page in pages(numbers):
        chosen = RUNS.c.case_no.in_(page) if by_case else RUNS.c.campaign_no.in_(page)
        _extend(connection, chosen, columns)
    case, campaign, latency_us, trusted = columns
    if by_case and since is not None:
        kept = [number in place_of_campaign for number in campaign]
        case, campaign, trusted = (array("q", _only(column, kept)) for column in (case, campaign, trusted))
        latency_us = array("d", _only(latency_us, kept))
    return Points(
        cases=tuple(
            CaseSketch(
                case_key=CaseKey(key),
                series_key=SeriesKey(series_key),
                serial=Serial(serial),
                model_sha256=ModelSha(model),
                build_sha256=BuildSha(build),
                is_virtual=is_virtual,
            )
            for _, key, series_key, serial, model, build, is_virtual in case_rows
        ),
        campaigns=tuple(
            CampaignSketch(campaign_id=CampaignId(row.campaign_id), created_at=row.created_at) for row in campaigns
        ),
        case=array("q", map(place_of_case.__getitem__, case)),
        campaign=array("q", map(place_of_campaign.__getitem__, campaign)),
        latency_us=latency_us,
        trusted=trusted,
    )


def _only(column: Sequence[float], kept: Sequence[bool]) -> list[float]:
    return [value for value, keep in zip(column, kept, strict=True) if keep]


def _case_rows(connection: Connection, series_keys: Sequence[SeriesKey]) -> list[tuple[Any, ...]]:
    query = select(
        CASES.c.case_no,
        CASES.c.case_key,
        CASES.c.series_key,
        DEVICES.c.serial,
        CASES.c.model_sha256,
        CASES.c.build_sha256,
        CASES.c.is_virtual,
    ).join_from(CASES, DEVICES, CASES.c.device_no == DEVICES.c.device_no)
    if not series_keys:
        return [tuple(row) for row in connection.execute(query.order_by(CASES.c.case_no))]
    found = []
    for page in pages(list(dict.fromkeys(series_keys))):
        found += [tuple(row) for row in connection.execute(query.where(CASES.c.series_key.in_(page)))]
    return sorted(found)


def _extend(
    connection: Connection,
    chosen: ColumnElement[bool],
    columns: _Columns,
) -> None:
    query = select(
        RUNS.c.case_no, RUNS.c.campaign_no, RUNS.c.latency_us, RUNS.c.quality == Quality.TRUSTED.value
    ).where(
        RUNS.c.run_pass == Pass.TIMING.value,
        chosen,
        RUNS.c.quality != Quality.REJECTED.value,
        RUNS.c.latency_us.is_not(None),
        RUNS.c.latency_us > 0,
    )
    if connection.dialect.name == "postgresql":
        _extend_packed(connection, query, columns)
        return
    # Straight from the driver: a Row for each of a million rows would take as long as reading them.
    compiled = query.compile(connection, compile_kwargs={"literal_binds": True})
    cursor = connection.connection.cursor()
    try:
        cursor.execute(str(compiled))
        while page := cursor.fetchmany(50_000):
            for column, values in zip(columns, zip(*page, strict=True), strict=True):
                column.extend(values)
    finally:
        cursor.close()


def _extend_packed(connection: Connection, query: Select[tuple[int, int, float, bool]], columns: _Columns) -> None:
    """Have PostgreSQL join each column to one value: a row for each run takes longer to read than to find."""
    inner = query.subquery()
    case, campaign, latency, trusted = inner.c
    empty = func.decode("", "hex")

    def joined(value: ColumnElement[bytes]) -> ColumnElement[bytes]:
        return func.string_agg(value, empty, type_=postgresql.BYTEA())

    outer = select(
        joined(func.int8send(case)),
        joined(func.int8send(campaign)),
        joined(func.float8send(latency)),
        joined(func.int8send(cast(trusted, Integer))),
    )
    for column, value in zip(columns, connection.execute(outer).one(), strict=True):
        read: array[Any] = array(column.typecode, bytes(value or b""))
        if sys.byteorder == "little":
            read.byteswap()
        column.extend(read)


def read_series(connection: Connection, series_keys: Sequence[SeriesKey]) -> dict[SeriesKey, Case]:
    """Return the newest case of each series."""
    newest = select(func.max(CASES.c.case_no)).group_by(CASES.c.series_key)
    query = select(CASES.c.case_key, CASES.c.series_key, CASES.c.document)
    found: dict[SeriesKey, Case] = {}
    wanted = list(pages(list(dict.fromkeys(series_keys)))) if series_keys else [None]
    for page in wanted:
        numbers = newest if page is None else newest.where(CASES.c.series_key.in_(page))
        for row in connection.execute(query.where(CASES.c.case_no.in_(numbers))).mappings():
            found[SeriesKey(row["series_key"])] = rows.case_from_row(row)
    return found


def read_sightings(connection: Connection) -> dict[Serial, list[tuple[datetime, DeviceFacts]]]:
    """Return what each device was and from when on, oldest first."""
    query = (
        select(DEVICES.c.serial, DEVICE_HISTORY.c.seen_at, DEVICE_HISTORY.c.facts)
        .join_from(DEVICE_HISTORY, DEVICES, DEVICE_HISTORY.c.device_no == DEVICES.c.device_no)
        .order_by(DEVICE_HISTORY.c.device_no, DEVICE_HISTORY.c.seen_at)
    )
    found: dict[Serial, list[tuple[datetime, DeviceFacts]]] = {}
    for row in connection.execute(query).mappings():
        found.setdefault(Serial(row["serial"]), []).append((row["seen_at"], rows.device_from_row(row)))
    return found


def sightings_of(facts: Mapping[Serial, Sequence[tuple[datetime, DeviceFacts]]]) -> dict[Serial, list[DeviceSighting]]:
    """Return of each device what may change its numbers, from when on."""
    return {serial: [DeviceSighting(at=at, facts=item.versions) for at, item in seen] for serial, seen in facts.items()}


def read_run_ids(connection: Connection, prefix: str, limit: int) -> list[RunId]:
    """Return the ids that begin so, by the index of ids; no more than ``limit``."""
    query = select(RUNS.c.run_id).order_by(RUNS.c.run_id).limit(limit)
    if prefix:
        # A range, and not LIKE: the index answers it on every database, and no letter of the prefix means anything.
        query = query.where(func.substr(RUNS.c.run_id, 1, len(prefix)) == prefix, RUNS.c.run_id >= prefix)
    return [RunId(run_id) for run_id in connection.scalars(query)]


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
