"""What devices were over time, what was stored of late, annotations and confirmations, in an SQL database."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Final

from sqlalchemy import ColumnElement, Connection, LargeBinary, and_, case, delete, func, insert, literal, select, true

from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.device import DeviceFacts
from orchestrator.records.history import (
    Activity,
    Annotation,
    Confirmation,
    ConfirmationStatus,
    DeviceSighting,
    RunCount,
    Yield,
)
from orchestrator.records.identity import CampaignId, RunId, Serial, SeriesKey, content_key
from orchestrator.records.run import Outcome
from orchestrator.records.verdict import Quality
from orchestrator.records.workload import SkippedCase
from orchestrator.store import rows
from orchestrator.store.appending import read_runs
from orchestrator.store.bodies import Packer
from orchestrator.store.column_types import KEY_BYTES
from orchestrator.store.registry import pages
from orchestrator.store.rows import skip_from_row
from orchestrator.store.tables import (
    ANNOTATIONS,
    CAMPAIGNS,
    CASES,
    CONFIRMATIONS,
    DEVICE_HISTORY,
    DEVICES,
    FINDINGS,
    RUNS,
    SERIES,
    SKIPS,
)
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


#: What a report shows of a run's figures, whichever pass it was.
_READ_FIGURES: Final = (
    "latency_us", "p5_us", "p95_us", "init_us", "first_inference_us", "warmup_mean_us", "init_memory_mib",
    "overall_memory_mib", "peak_memory_mib",
)  # fmt: skip


def read_activity(connection: Connection, packer: Packer, since: datetime) -> Activity:
    """Return what campaigns came to, and the runs of those that were begun since then."""
    statuses = select(CAMPAIGNS.c.status, func.count()).group_by(CAMPAIGNS.c.status)
    finished = (
        select(CAMPAIGNS.c.name, func.max(CAMPAIGNS.c.finished_at))
        .where(CAMPAIGNS.c.status == CampaignStatus.FINISHED.value, CAMPAIGNS.c.finished_at.is_not(None))
        .group_by(CAMPAIGNS.c.name)
    )
    late = list(connection.scalars(select(CAMPAIGNS.c.campaign_no).where(CAMPAIGNS.c.created_at >= since)))
    endings = (
        select(RUNS.c.outcome, RUNS.c.reason_code, RUNS.c.is_virtual, func.count())
        .where(RUNS.c.campaign_no.in_(late))
        .group_by(RUNS.c.outcome, RUNS.c.reason_code, RUNS.c.is_virtual)
    )
    newest = (
        select(func.max(RUNS.c.run_no))
        .join_from(RUNS, CASES, RUNS.c.case_no == CASES.c.case_no)
        .join(SERIES, CASES.c.series_no == SERIES.c.series_no)
        .where(RUNS.c.campaign_no.in_(late))
        .group_by(SERIES.c.device_no)
    )
    return Activity(
        campaigns={CampaignStatus(status): count for status, count in connection.execute(statuses)},
        finished_at={name: moment for name, moment in connection.execute(finished)},  # noqa: C416 - rows, not pairs
        runs=tuple(
            RunCount(outcome=Outcome(outcome), reason_code=code, is_virtual=is_virtual, count=count)
            for outcome, code, is_virtual, count in connection.execute(endings)
        ),
        newest=tuple(read_runs(connection, packer, sorted(connection.scalars(newest)), cases={}) if late else ()),
    )


def read_reason_counts(
    connection: Connection, campaign_ids: Sequence[CampaignId]
) -> Mapping[CampaignId, Mapping[str, int]]:
    """Return how many runs of some campaigns ended with each reason code, those with none aside."""
    query = (
        select(CAMPAIGNS.c.campaign_id, RUNS.c.reason_code, func.count())
        .join_from(RUNS, CAMPAIGNS, RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no)
        .where(CAMPAIGNS.c.campaign_id.in_(list(campaign_ids)), RUNS.c.reason_code != "")
        .group_by(CAMPAIGNS.c.campaign_id, RUNS.c.reason_code)
    )
    found: dict[CampaignId, dict[str, int]] = {}
    for campaign_id, code, count in connection.execute(query):
        found.setdefault(CampaignId(campaign_id), {})[code] = count
    return found


def read_yields(connection: Connection, campaign_ids: Sequence[CampaignId]) -> Mapping[CampaignId, Yield]:
    """Return what the runs of some campaigns gave, campaigns without any run aside."""
    is_made = RUNS.c.outcome != Outcome.SKIPPED.value
    is_lost = is_made & ((RUNS.c.outcome != Outcome.COMPLETED.value) | (RUNS.c.quality == Quality.REJECTED.value))
    query = select(CAMPAIGNS.c.campaign_id, *(func.sum(case((which, 1), else_=0)) for which in (is_made, is_lost)))
    found: dict[CampaignId, Yield] = {}
    for page in pages(list(campaign_ids)):
        asked = (
            query.join_from(RUNS, CAMPAIGNS, RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no)
            .where(CAMPAIGNS.c.campaign_id.in_(page))
            .group_by(CAMPAIGNS.c.campaign_id)
        )
        for campaign_id, made, lost in connection.execute(asked):
            found[CampaignId(campaign_id)] = Yield(made=int(made), without_result=int(lost))
    return found


def read_readings(connection: Connection, campaign_ids: Sequence[CampaignId]) -> Mapping[CampaignId, str]:
    """Return of each campaign that has runs a mark that is another one once something else is read from them."""
    words = (RUNS.c.run_pass, RUNS.c.outcome, RUNS.c.quality, RUNS.c.reason_code, RUNS.c.delegate_truth)
    # A database adds up in an order of its choice, so that the last digits of a sum say nothing.
    figures = [func.sum(RUNS.c[name]) for name in _READ_FIGURES]
    read: dict[CampaignId, list[str]] = {}
    for page in pages(list(campaign_ids)):
        of_runs = select(CAMPAIGNS.c.campaign_id, *words, func.count(), *figures).join_from(
            RUNS, CAMPAIGNS, RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no
        )
        of_findings = (
            select(CAMPAIGNS.c.campaign_id, FINDINGS.c.code, FINDINGS.c.severity, func.count())
            .join_from(FINDINGS, RUNS, FINDINGS.c.run_no == RUNS.c.run_no)
            .join(CAMPAIGNS, RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no)
        )
        for query, groups in ((of_runs, words), (of_findings, (FINDINGS.c.code, FINDINGS.c.severity))):
            asked = query.where(CAMPAIGNS.c.campaign_id.in_(page)).group_by(CAMPAIGNS.c.campaign_id, *groups)
            for campaign_id, *values in connection.execute(asked):
                told = [f"{value:.12g}" if isinstance(value, float) else value for value in values]
                read.setdefault(CampaignId(campaign_id), []).append(repr(told))
    return {name: content_key(sorted(lines)) for name, lines in read.items()}


def read_skips(
    connection: Connection, campaign_ids: Sequence[CampaignId], reason_code: str
) -> Mapping[CampaignId, Sequence[SkippedCase]]:
    """Return what some campaigns left out from the beginning for a reason, those that left out nothing aside."""
    query = (
        select(CAMPAIGNS.c.campaign_id, SKIPS)
        .join_from(SKIPS, CAMPAIGNS, SKIPS.c.campaign_no == CAMPAIGNS.c.campaign_no)
        .where(CAMPAIGNS.c.campaign_id.in_(list(campaign_ids)), SKIPS.c.reason_code == reason_code)
        .order_by(SKIPS.c.campaign_no, SKIPS.c.position)
    )
    found: dict[CampaignId, list[SkippedCase]] = {}
    for row, skip in readable(connection.execute(query).mappings(), skip_from_row):
        found.setdefault(CampaignId(row["campaign_id"]), []).append(skip)
    return found
