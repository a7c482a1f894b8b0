"""What devices were over time, what was stored of late, annotations and confirmations."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    LargeBinary,
    Select,
    and_,
    case,
    delete,
    func,
    insert,
    literal,
    select,
    true,
)

from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.history import (
    Activity,
    Annotation,
    Confirmation,
    ConfirmationStatus,
    DeviceSighting,
    RunCount,
    Yield,
)
from orchestrator.records.identity import CampaignId, RunId, Serial, content_key
from orchestrator.records.run import Outcome
from orchestrator.records.verdict import Quality
from orchestrator.records.workload import SkippedCase
from orchestrator.store import rows
from orchestrator.store.cases import pages
from orchestrator.store.column_types import KEY_BYTES
from orchestrator.store.failures import readable
from orchestrator.store.figures import Figures
from orchestrator.store.runs import Runs
from orchestrator.store.tables import (
    ANNOTATIONS,
    CAMPAIGNS,
    CASES,
    CONFIRMATIONS,
    DEVICE_HISTORY,
    DEVICES,
    FINDINGS,
    OF_REPORT,
    RUNS,
    SERIES,
    SKIPS,
)

#: What a report shows of a run's figures, whichever pass it was.
_READ_FIGURES: Final = ("latency_us", "p5_us", "p95_us", *OF_REPORT)


class History(Figures, Runs):
    """Methods of the store about nights, devices and changes."""

    def sightings(self) -> Mapping[Serial, Sequence[DeviceSighting]]:
        """Return what each device was and from when on, oldest first."""
        query = (
            select(DEVICES.c.serial, DEVICE_HISTORY.c.seen_at, DEVICE_HISTORY.c.facts)
            .join_from(DEVICE_HISTORY, DEVICES, DEVICE_HISTORY.c.device_no == DEVICES.c.device_no)
            .order_by(DEVICE_HISTORY.c.device_no, DEVICE_HISTORY.c.seen_at)
        )
        found: dict[Serial, list[DeviceSighting]] = {}
        with self.reading() as connection:
            for row, facts in readable(connection.execute(query).mappings(), rows.device_from_row):
                sighting = DeviceSighting(at=row["seen_at"], facts=facts.versions)
                found.setdefault(Serial(row["serial"]), []).append(sighting)
        return found

    def run_ids(self, prefix: str, *, limit: int = 4) -> Sequence[RunId]:
        """Return the ids of runs that begin so, in their order, no more than ``limit``."""
        found: set[str] = set()
        with self.reading() as connection:
            for condition in _beginnings(prefix):
                query = select(RUNS.c.run_id).where(condition).order_by(RUNS.c.run_id).limit(limit)
                found.update(connection.scalars(query))
        return [RunId(run_id) for run_id in sorted(found)[:limit]]

    def annotations(self) -> Sequence[Annotation]:
        """Return the changes that somebody expects, oldest night first."""
        query = select(ANNOTATIONS).order_by(ANNOTATIONS.c.night, ANNOTATIONS.c.annotation_no)
        with self.reading() as connection:
            found = connection.execute(query).mappings()
            return [rows.record_of(Annotation, row, "", night=date.fromisoformat(row["night"])) for row in found]

    def annotate(self, annotation: Annotation) -> None:
        """Keep that a change is expected."""
        with self.writing() as connection:
            row = rows.row_of(annotation, ANNOTATIONS, night=annotation.night.isoformat())
            connection.execute(insert(ANNOTATIONS), row)

    def delete_annotation(self, annotation_id: str) -> bool:
        """Forget an annotation; False when there is none."""
        with self.writing() as connection:
            gone = connection.execute(delete(ANNOTATIONS).where(ANNOTATIONS.c.annotation_id == annotation_id))
            return gone.rowcount > 0

    def confirmations(self) -> Sequence[Confirmation]:
        """Return what became of changes that were run again."""
        with self.reading() as connection:
            return [
                rows.record_of(
                    Confirmation,
                    row,
                    "",
                    night=date.fromisoformat(row["night"]),
                    status=rows.word_of(ConfirmationStatus, row["status"], "confirmation"),
                )
                for row in connection.execute(select(CONFIRMATIONS)).mappings()
            ]

    def confirm(self, confirmation: Confirmation) -> None:
        """Keep what became of a change, in the place of what was kept of it before."""
        row = rows.row_of(confirmation, CONFIRMATIONS, night=confirmation.night.isoformat())
        same = [CONFIRMATIONS.c[name] == row[name] for name in ("series_key", "night")]
        with self.writing() as connection:
            connection.execute(delete(CONFIRMATIONS).where(*same))
            connection.execute(insert(CONFIRMATIONS), row)

    def activity(self, since: datetime) -> Activity:
        """Return what campaigns came to, and the runs of those that were begun since then."""
        statuses = select(CAMPAIGNS.c.status, func.count()).group_by(CAMPAIGNS.c.status)
        finished = (
            select(CAMPAIGNS.c.name, func.max(CAMPAIGNS.c.finished_at))
            .where(CAMPAIGNS.c.status == CampaignStatus.FINISHED.value, CAMPAIGNS.c.finished_at.is_not(None))
            .group_by(CAMPAIGNS.c.name)
        )
        with self.reading() as connection:
            late = list(connection.scalars(select(CAMPAIGNS.c.campaign_no).where(CAMPAIGNS.c.created_at >= since)))
            alike = RUNS.c.outcome, RUNS.c.reason_code, RUNS.c.is_virtual
            is_late = RUNS.c.campaign_no.in_(late)
            endings = select(*alike, func.count().label("count")).where(is_late).group_by(*alike)
            newest = (
                select(func.max(RUNS.c.run_no))
                .join_from(RUNS, CASES, RUNS.c.case_no == CASES.c.case_no)
                .join(SERIES, CASES.c.series_no == SERIES.c.series_no)
                .where(is_late)
                .group_by(SERIES.c.device_no)
            )
            newest_runs = self._read(connection, sorted(connection.scalars(newest)), {}) if late else []
            return Activity(
                campaigns={CampaignStatus(status): count for status, count in connection.execute(statuses)},
                finished_at={name: moment for name, moment in connection.execute(finished)},  # noqa: C416 - rows, not pairs
                runs=tuple(
                    rows.record_of(RunCount, row, "a run") for row in connection.execute(endings).mappings().all()
                ),
                newest=tuple(run for run, _ in newest_runs),
            )

    def reason_counts(self, campaign_ids: Sequence[CampaignId]) -> Mapping[CampaignId, Mapping[str, int]]:
        """Return how many runs of some campaigns ended with each reason code, those with none aside."""
        query = select(RUNS.c.reason_code, func.count()).where(RUNS.c.reason_code != "")
        found: dict[CampaignId, dict[str, int]] = {}
        with self.reading() as connection:
            for campaign_id, code, count in _by_campaign(connection, query, campaign_ids, RUNS.c.reason_code):
                found.setdefault(campaign_id, {})[code] = count
        return found

    def yields(self, campaign_ids: Sequence[CampaignId]) -> Mapping[CampaignId, Yield]:
        """Return what the runs of some campaigns gave, campaigns without any run aside."""
        is_made = RUNS.c.outcome != Outcome.SKIPPED.value
        is_lost = is_made & ((RUNS.c.outcome != Outcome.COMPLETED.value) | (RUNS.c.quality == Quality.REJECTED.value))
        query = select(*(func.sum(case((which, 1), else_=0)) for which in (is_made, is_lost)))
        with self.reading() as connection:
            return {
                campaign_id: Yield(made=int(made), without_result=int(lost))
                for campaign_id, made, lost in _by_campaign(connection, query, campaign_ids)
            }

    def readings(self, campaign_ids: Sequence[CampaignId]) -> Mapping[CampaignId, str]:
        """Return a change token of each campaign that has runs: another one once anything else is read from them."""
        words = (RUNS.c.run_pass, RUNS.c.outcome, RUNS.c.quality, RUNS.c.reason_code, RUNS.c.delegate_truth)
        of_finding = FINDINGS.c.code, FINDINGS.c.severity
        of_runs = select(*words, func.count(), *(func.sum(RUNS.c[name]) for name in _READ_FIGURES))
        of_findings = select(*of_finding, func.count()).join_from(FINDINGS, RUNS, FINDINGS.c.run_no == RUNS.c.run_no)
        read: dict[CampaignId, list[str]] = {}
        with self.reading() as connection:
            for query, groups in ((of_runs, words), (of_findings, of_finding)):
                for campaign_id, *values in _by_campaign(connection, query, campaign_ids, *groups):
                    # A database adds up in an order of its choice, so that the last digits of a sum say nothing.
                    shown = [f"{value:.12g}" if isinstance(value, float) else value for value in values]
                    read.setdefault(campaign_id, []).append(repr(shown))
        return {name: content_key(sorted(lines)) for name, lines in read.items()}

    def skips(self, campaign_ids: Sequence[CampaignId], reason_code: str) -> Mapping[CampaignId, Sequence[SkippedCase]]:
        """Return what some campaigns left out from the beginning for a reason, those that left out nothing aside."""
        query = (
            select(CAMPAIGNS.c.campaign_id, SKIPS)
            .join_from(SKIPS, CAMPAIGNS, SKIPS.c.campaign_no == CAMPAIGNS.c.campaign_no)
            .where(CAMPAIGNS.c.campaign_id.in_(list(campaign_ids)), SKIPS.c.reason_code == reason_code)
            .order_by(SKIPS.c.campaign_no, SKIPS.c.position)
        )
        found: dict[CampaignId, list[SkippedCase]] = {}
        with self.reading() as connection:
            skips = connection.execute(query).mappings()
            for row, skip in readable(skips, lambda row: rows.record_of(SkippedCase, row, f"skip of {row['serial']}")):
                found.setdefault(CampaignId(row["campaign_id"]), []).append(skip)
        return found


def _by_campaign(
    connection: Connection, query: Select[Any], campaign_ids: Sequence[CampaignId], *groups: ColumnElement[Any]
) -> Iterator[Any]:
    """Yield what a query over runs finds, for each of some campaigns with its id before it."""
    joined = query.join(CAMPAIGNS, RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no)
    asked = joined.with_only_columns(CAMPAIGNS.c.campaign_id, *query.selected_columns)
    for page in pages(list(campaign_ids)):
        of_page = asked.where(CAMPAIGNS.c.campaign_id.in_(page))
        yield from connection.execute(of_page.group_by(CAMPAIGNS.c.campaign_id, *groups))


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
