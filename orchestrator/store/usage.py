"""Queries over many runs: figures over the nights, recent activity, annotations and confirmations.

All of it is read from columns, never from documents.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime
from operator import itemgetter
from typing import Any, Final

from sqlalchemy import (
    Integer,
    Row,
    Select,
    Text,
    case,
    cast,
    delete,
    func,
    insert,
    select,
)

from orchestrator.documents import dump_document, load_document
from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.case import (
    FIGURE_PASS,
    BuildSha,
    CampaignId,
    ModelSha,
    Pass,
    Serial,
    SeriesKey,
    grouped,
)
from orchestrator.records.history import (
    Activity,
    Annotation,
    CampaignSketch,
    Confirmation,
    Contents,
    OutcomeCount,
    Points,
    ResultCount,
    RunMark,
    SeriesSketch,
)
from orchestrator.records.run import Outcome, RecentRun
from orchestrator.records.verdict import OUTPUT_FINDINGS, Quality
from orchestrator.store.campaigns import chosen, filtered
from orchestrator.store.runs import Runs
from orchestrator.store.schema import ANNOTATIONS, CAMPAIGNS, CASES, CONFIRMATIONS, RUNS

#: The newest cases of a series whose runs count for its duration: a new build makes a new case.
_CASES_MAX: Final = 16
#: The newest runs of a series that count for its duration.
_RUNS_MAX: Final = 64
#: Outcomes of runs that took time of a phone.
_BEGUN: Final = [outcome.value for outcome in Outcome if outcome.is_begun]
#: How a run ended, and the number of those that ended alike.
_ENDING: Final = (RUNS.c.outcome, RUNS.c.reason_code, RUNS.c.quality)
_COUNT: Final = func.count().label("run_count")
_IS_TIMING: Final = RUNS.c.run_pass == FIGURE_PASS.value
#: The columns of a case that a figure needs.
_CASES: Final = select(
    CASES.c.case_no,
    CASES.c.series_key,
    CASES.c.serial,
    CASES.c.is_virtual,
    CASES.c.model_sha256,
    CASES.c.build_sha256,
    CASES.c.files,
)
#: The figures that count.
_FIGURES: Final = select(
    RUNS.c.case_no,
    RUNS.c.campaign_no,
    RUNS.c.latency_us,
    cast(RUNS.c.quality == Quality.TRUSTED.value, Integer),
    RUNS.c.run_no,
).where(_IS_TIMING, RUNS.c.quality != Quality.REJECTED.value, RUNS.c.latency_us > 0)


class Usage(Runs):
    """Methods of the store about many runs."""

    def points(
        self,
        *,
        since: datetime | None = None,
        series_keys: Sequence[SeriesKey] = (),
        serials: Sequence[Serial] = (),
    ) -> Points:
        """Return the figures of timing runs of campaigns begun since then, of some series or of
        all, on some devices or on all, in the order in which they were stored.
        """
        of_devices = _FIGURES
        if serials:
            cases = select(CASES.c.case_no).where(CASES.c.serial.in_(serials))
            of_devices = _FIGURES.where(RUNS.c.case_no.in_(cases))
        with self.reading() as connection:
            campaign_query = select(
                CAMPAIGNS.c.campaign_no, CAMPAIGNS.c.campaign_id, CAMPAIGNS.c.created_at
            )
            campaign_query = (
                campaign_query
                if since is None
                else campaign_query.where(CAMPAIGNS.c.created_at >= since)
            )
            campaigns = connection.execute(
                campaign_query.order_by(CAMPAIGNS.c.created_at, CAMPAIGNS.c.campaign_no)
            ).all()
            campaign_at = {row.campaign_no: place for place, row in enumerate(campaigns)}
            case_rows: list[Any] = []
            column, numbers = RUNS.c.campaign_no, list(campaign_at)
            if series_keys:
                for query in filtered(_CASES, CASES.c.series_key, series_keys):
                    case_rows += connection.execute(query).all()
                column, numbers = RUNS.c.case_no, [row.case_no for row in case_rows]
            figures: list[Any] = []
            for query in filtered(of_devices, column, numbers) if numbers else ():
                figures += [row for row in connection.execute(query) if row[1] in campaign_at]
            # An index gives them by latency.
            figures.sort(key=itemgetter(4))
            used = {row[0] for row in figures}
            if used and not series_keys:
                case_rows += connection.execute(
                    _CASES.where(CASES.c.case_no.between(min(used), max(used)))
                ).all()
        series: dict[str, tuple[int, Any]] = {}
        places: dict[int, tuple[int, int]] = {}
        contents_at: dict[tuple[str, str, str], int] = {}
        for row in sorted(case_rows, key=lambda row: row.case_no):
            if row.case_no in used:
                series_at, _ = series.setdefault(row.series_key, (len(series), row))
                contents = (row.model_sha256, row.build_sha256, row.files)
                places[row.case_no] = (
                    series_at,
                    contents_at.setdefault(contents, len(contents_at)),
                )
        return Points(
            series=tuple(
                SeriesSketch(
                    series_key=SeriesKey(key), serial=Serial(row.serial), is_virtual=row.is_virtual
                )
                for key, (_, row) in series.items()
            ),
            contents=tuple(
                Contents(
                    model_sha256=ModelSha(model),
                    build_sha256=BuildSha(build),
                    files=tuple((name, sha256) for name, sha256 in json.loads(files)),
                )
                for model, build, files in contents_at
            ),
            campaigns=tuple(
                CampaignSketch(campaign_id=CampaignId(row.campaign_id), created_at=row.created_at)
                for row in campaigns
            ),
            series_at=array("q", [places[row[0]][0] for row in figures]),
            contents_at=array("q", [places[row[0]][1] for row in figures]),
            campaign_at=array("q", [campaign_at[row[1]] for row in figures]),
            latency_us=array("d", [row[2] for row in figures]),
            trusted=array("q", [row[3] for row in figures]),
        )

    def unconfirmed_series(self) -> Set[SeriesKey]:
        """Return the series whose newest figure doesn't show where the operators ran."""
        is_of_case = RUNS.c.case_no == CASES.c.case_no
        newest = (
            _FIGURES.join(CASES, is_of_case)
            .with_only_columns(func.max(RUNS.c.run_no))
            .group_by(CASES.c.series_key)
        )
        query = (
            select(CASES.c.series_key)
            .join(RUNS, is_of_case)
            .where(RUNS.c.run_no.in_(newest), RUNS.c.findings.contains("delegate-unknown"))
        )
        with self.reading() as connection:
            return set(map(SeriesKey, connection.scalars(query)))

    def marks(self, *, series_keys: Sequence[SeriesKey] = ()) -> Sequence[RunMark]:
        """Return the runs that compared outputs, of series where one comparison differed."""
        names = RUNS.c.outcome, RUNS.c.findings
        query = (
            select(CASES.c.series_key, CAMPAIGNS.c.campaign_id, CAMPAIGNS.c.created_at, *names)
            .join_from(RUNS, CAMPAIGNS, RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no)
            .join(CASES, RUNS.c.case_no == CASES.c.case_no)
            .where(RUNS.c.run_pass == Pass.PARITY.value)
            .order_by(CAMPAIGNS.c.created_at, RUNS.c.run_no)
        )
        with self.reading() as connection:
            marks = [
                RunMark(
                    series_key=SeriesKey(row.series_key),
                    campaign_id=CampaignId(row.campaign_id),
                    created_at=row.created_at,
                    outcome=Outcome(row.outcome),
                    findings=tuple(row.findings.split()),
                )
                for of_series in filtered(query, CASES.c.series_key, series_keys)
                for row in connection.execute(of_series)
            ]
        doubted = {mark.series_key for mark in marks if OUTPUT_FINDINGS.keys() & mark.findings}
        return [mark for mark in marks if mark.series_key in doubted]

    def recent_runs(
        self, series_keys: Sequence[SeriesKey]
    ) -> Mapping[SeriesKey, Sequence[RecentRun]]:
        """Return the newest runs of each series that took a device's time, newest first.

        A question for each series, and one for each device's part of a campaign that these belong
        to: each is answered from two indexes, whatever the store holds beside it.
        """
        columns = RUNS.c.started_at, RUNS.c.duration_s, RUNS.c.run_pass
        all_runs: Select[Any] = (
            select(RUNS.c.campaign_no, CASES.c.serial, *columns)
            .join_from(RUNS, CASES, RUNS.c.case_no == CASES.c.case_no)
            .where(RUNS.c.outcome.in_(_BEGUN))
        )
        rows_by_series: dict[SeriesKey, Sequence[Row[Any]]] = {}
        with self.reading() as connection:
            for series_key in series_keys:
                of_series = select(CASES.c.case_no).where(CASES.c.series_key == series_key)
                newest = of_series.order_by(CASES.c.case_no.desc()).limit(_CASES_MAX)
                query = all_runs.where(RUNS.c.case_no.in_(newest)).order_by(RUNS.c.run_no.desc())
                if rows := connection.execute(query.limit(_RUNS_MAX)).all():
                    rows_by_series[series_key] = rows
            parts = {
                (campaign_no, serial): connection.execute(
                    all_runs.where(
                        RUNS.c.campaign_no == campaign_no, CASES.c.serial == serial
                    ).order_by(RUNS.c.started_at)
                ).all()
                for campaign_no, serial in {
                    (row.campaign_no, row.serial)
                    for rows in rows_by_series.values()
                    for row in rows
                }
            }
        return {
            series_key: [_recent(row, parts[row.campaign_no, row.serial]) for row in rows]
            for series_key, rows in rows_by_series.items()
        }

    def activity(self, since: datetime) -> Activity:
        """Return the counts of campaigns by status and of the runs of those begun since then, both
        without hidden campaigns, and each device's newest run, hidden campaigns included.
        """
        recent_campaigns = select(CAMPAIGNS.c.campaign_no).where(CAMPAIGNS.c.created_at >= since)
        is_recent, is_shown = RUNS.c.campaign_no.in_(recent_campaigns), ~CAMPAIGNS.c.is_hidden
        group_columns = *_ENDING, RUNS.c.is_virtual
        endings = (
            select(*group_columns, _COUNT)
            .where(RUNS.c.campaign_no.in_(recent_campaigns.where(is_shown)))
            .group_by(*group_columns)
        )
        statuses = (
            select(CAMPAIGNS.c.status, func.count()).where(is_shown).group_by(CAMPAIGNS.c.status)
        )
        finished = (
            select(CAMPAIGNS.c.name, func.max(CAMPAIGNS.c.finished_at))
            .where(
                CAMPAIGNS.c.status == CampaignStatus.FINISHED.value,
                CAMPAIGNS.c.finished_at.is_not(None),
                is_shown,
            )
            .group_by(CAMPAIGNS.c.name)
        )
        newest = (
            select(func.max(RUNS.c.run_no))
            .join_from(RUNS, CASES, RUNS.c.case_no == CASES.c.case_no)
            .where(is_recent, RUNS.c.outcome != Outcome.SKIPPED.value)
            .group_by(CASES.c.serial)
        )
        with self.reading() as connection:
            newest_runs = self._read(connection, sorted(connection.scalars(newest)), {})
            return Activity(
                campaigns={
                    CampaignStatus(status): count for status, count in connection.execute(statuses)
                },
                finished_at={row[0]: row[1] for row in connection.execute(finished)},
                runs=tuple(
                    replace(_outcome_count(row), is_virtual=row.is_virtual)
                    for row in connection.execute(endings)
                ),
                newest=tuple(run for run, _ in newest_runs),
            )

    def result_counts(self, campaign_ids: Sequence[CampaignId]) -> Mapping[CampaignId, ResultCount]:
        """Return the result counts of some campaigns; those without any run are left out."""
        query = select(*_ENDING, _COUNT).group_by(*_ENDING)
        rows = grouped(self._by_campaign(query, campaign_ids), lambda row: row.campaign_id)
        return {name: ResultCount.of(map(_outcome_count, of_one)) for name, of_one in rows.items()}

    def readings(self, campaign_ids: Sequence[CampaignId]) -> Mapping[CampaignId, str]:
        """Return a change token per campaign with runs: it changes when any run reads differently."""
        totals: list[Any] = [func.count(), func.sum(RUNS.c.checksum)]
        query = select(*totals)
        return {
            name: f"{count} {total}"
            for name, count, total in self._by_campaign(query, campaign_ids)
        }

    def annotations(self) -> Sequence[Annotation]:
        """Return the annotations (expected changes), oldest night first."""
        with self.reading() as connection:
            texts = connection.scalars(
                select(ANNOTATIONS.c.document).order_by(ANNOTATIONS.c.annotation_no)
            ).all()
        annotations = [load_document(Annotation, text, where="an annotation") for text in texts]
        return sorted(annotations, key=lambda item: item.night)

    def annotate(self, annotation: Annotation) -> None:
        """Store an annotation."""
        row = {"annotation_id": annotation.annotation_id, "document": dump_document(annotation)}
        with self.writing() as connection:
            connection.execute(insert(ANNOTATIONS), row)

    def delete_annotation(self, annotation_id: str) -> bool:
        """Delete an annotation; False when there is none."""
        with self.writing() as connection:
            deleted = connection.execute(
                delete(ANNOTATIONS).where(ANNOTATIONS.c.annotation_id == annotation_id)
            )
        return deleted.rowcount > 0

    def confirmations(self) -> Sequence[Confirmation]:
        """Return the confirmations: the results of changes that were run again."""
        with self.reading() as connection:
            texts = connection.scalars(select(CONFIRMATIONS.c.document)).all()
        return [load_document(Confirmation, text, where="a confirmation") for text in texts]

    def confirm(self, confirmation: Confirmation) -> None:
        """Store a change's confirmation in place of an earlier one."""
        row = {"series_key": confirmation.series_key, "night": confirmation.night.isoformat()}
        with self.writing() as connection:
            connection.execute(
                delete(CONFIRMATIONS).where(*(CONFIRMATIONS.c[name] == row[name] for name in row))
            )
            connection.execute(
                insert(CONFIRMATIONS), {**row, "document": dump_document(confirmation)}
            )

    def history_mark(self) -> tuple[object, ...]:
        """Return a token that changes when a campaign is stored, removed, hidden or shown, and when
        a change is annotated or confirmed. One statement: pages that poll ask for it.
        """
        campaign_no, annotation_no = CAMPAIGNS.c.campaign_no, ANNOTATIONS.c.annotation_no
        hidden_no = cast(case((CAMPAIGNS.c.is_hidden, campaign_no)), Text)
        # No number is given twice.
        figures = (
            *(func.count(campaign_no), func.max(campaign_no)),
            func.aggregate_strings(hidden_no, ","),
            *(func.count(annotation_no), func.max(annotation_no)),
            func.aggregate_strings(CONFIRMATIONS.c.document, ","),
        )
        with self.reading() as connection:
            query = select(*(select(figure).scalar_subquery() for figure in figures))
            return tuple(connection.execute(query).one())

    def _by_campaign(self, query: Select[Any], campaign_ids: Sequence[CampaignId]) -> Iterator[Any]:
        """Yield the row of a query over runs for each of some campaigns, with its id in front."""
        joined = query.join(CAMPAIGNS, RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no)
        campaign_id = CAMPAIGNS.c.campaign_id
        selected = joined.with_only_columns(campaign_id, *query.selected_columns)
        with self.reading() as connection:
            for of_page in chosen(selected.group_by(campaign_id), campaign_id, campaign_ids):
                yield from connection.execute(of_page).all()


def _outcome_count(row: Row[Any]) -> OutcomeCount:
    return OutcomeCount(
        outcome=Outcome(row.outcome),
        reason_code=row.reason_code,
        quality=Quality(row.quality),
        count=row.run_count,
    )


def _recent(row: Row[Any], part: Sequence[Row[Any]]) -> RecentRun:
    """Return a run, given all of its device's in its campaign by their begin."""
    place = bisect_left(part, row.started_at, key=lambda other: other.started_at)
    pause_s = None
    if place:
        before = part[place - 1]
        pause_s = (row.started_at - before.started_at).total_seconds() - before.duration_s
    return RecentRun(run_pass=Pass(row.run_pass), duration_s=row.duration_s, pause_s=pause_s)
