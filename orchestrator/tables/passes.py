"""The tables of passes beside timing, each apart: starts, sustained runs, figures of passes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Generic, Protocol, TypeVar

from orchestrator.analysis.case_result import OWN_FIGURE, CaseResult
from orchestrator.analysis.drift import SustainedCurve, attempts, curve_of, points_of
from orchestrator.analysis.effect import Mean
from orchestrator.analysis.quality import NOT_WHAT_WAS_ASKED, truth_of, worst_quality
from orchestrator.records import frozen
from orchestrator.records.campaign import Campaign
from orchestrator.records.case import Case, grouped
from orchestrator.records.run import Outcome, RunRecord, StartStage, ToolReport, stage_of
from orchestrator.records.verdict import Quality
from orchestrator.tables.table import MS, NOTHING, Column, Kind

Item = TypeVar("Item")
#: Campaign and round: runs of one round are a pair.
Round = tuple[str, int]


class Judged(Protocol):
    """An item with a quality."""

    @property
    def quality(self) -> Quality | None:
        """The quality; None without a figure."""


@frozen
class PassTable(Generic[Item]):
    """The table of a pass beside the latency, which is also a part of cases' records."""

    name: str
    #: The key of a case's part in JSON, and the anchor of the table on a page.
    key: str
    #: Heading and text on a page.
    title: str
    legend: str
    #: The caption of the cases' table.
    caption: Callable[[Sequence[Case]], str]
    columns: Sequence[Column[Item]]
    #: Returns a case's lines from its runs of the pass and the campaigns by their ids; no lines
    #: where they are figures of passes (``PassSpec.figures``).
    lines: Callable[[Sequence[RunRecord], Mapping[str, Campaign]], Sequence[Item]] = (
        lambda runs, campaigns: ()
    )
    #: Returns the JSON value of a case's lines; None for a record a line.
    record: Callable[[Sequence[Item], Case], object] | None = None
    #: Whether a case has at most one line, which is in its row of CSV and frames, too.
    is_single: bool = False


@frozen
class StartRow:
    """One stage of a case's starts: medians over its processes."""

    stage: StartStage
    #: The number of processes.
    count: int
    init_us: float | None
    first_us: float | None
    #: Of the worst process; rejected ones are left out.
    quality: Quality


@frozen
class SustainedRow:
    """One attempt at a sustained run of a case: invocations without pauses."""

    #: The number within case and campaign, from 1.
    attempt: int
    #: Whether it lasted as long as planned.
    is_whole: bool
    #: Seconds since its start, and the latency then in microseconds; only of invocations of the
    #: requested delegate.
    points: tuple[tuple[float, float], ...]
    curve: SustainedCurve


@frozen
class PassFigure:
    """One figure of a pass over a case."""

    run_pass: str
    #: Its name with its unit: ``rest mW``.
    head: str
    #: The median over the runs that have it; None where none has.
    value: float | None
    digits: int
    #: The number of runs that have it.
    count: int

    @property
    def text(self) -> str:
        """The figure with its decimals; empty for none."""
        return "" if self.value is None else f"{self.value:.{self.digits}f}"


def median_or_none(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that aren't None, or None."""
    numbers = [value for value in values if value is not None]
    return statistics.median(numbers) if numbers else None


def _is_usable(run: RunRecord) -> bool:
    """Whether an invocation completed and wasn't rejected."""
    return run.outcome is Outcome.COMPLETED and run.verdict.quality is not Quality.REJECTED


def latency_reports(runs: Sequence[RunRecord], result: CaseResult) -> list[ToolReport]:
    """Return the reports of the latency; none where it isn't the requested delegate's."""
    used = set(result.used) if result.status in OWN_FIGURE else set()
    return [run.report for run in runs if run.report is not None and run.run_id in used]


def usable_reports(runs: Iterable[RunRecord]) -> list[ToolReport]:
    """Return the reports of the runs that completed and weren't rejected."""
    return [run.report for run in runs if run.report is not None and _is_usable(run)]


def start_rows(runs: Iterable[RunRecord]) -> tuple[StartRow, ...]:
    """Return the medians of each stage with usable starts, in the stages' order.

    Rejected starts (not cold, or not on the requested delegate) are left out.
    """
    stages: dict[StartStage, list[RunRecord]] = {stage: [] for stage in StartStage}
    for run in runs:
        if _is_usable(run):
            stages[stage_of(run.invocation)].append(run)
    return tuple(
        StartRow(
            stage=stage,
            count=len(starts),
            init_us=median_or_none(run.report.init_us for run in starts if run.report is not None),
            first_us=median_or_none(
                run.report.first_inference_us for run in starts if run.report is not None
            ),
            quality=worst_quality(starts),
        )
        for stage, starts in stages.items()
        if starts
    )


def sustained_rows(
    runs: Iterable[RunRecord], campaigns: Mapping[str, Campaign]
) -> tuple[SustainedRow, ...]:
    """Return the attempts of one case's sustained runs, by campaign; attempts with fewer than two
    figures are left out.

    A cut attempt and its restart are two curves: the phone cooled in between. Invocations of
    another delegate are no points. ``campaigns`` are by id, with the planned durations.
    """
    usable = (run for run in runs if truth_of(run) not in NOT_WHAT_WAS_ASKED)
    by_campaign = grouped(usable, lambda run: str(run.campaign_id))
    planned_s = {
        name: campaigns[name].terms.sustained if name in campaigns else 0.0 for name in by_campaign
    }
    return tuple(
        SustainedRow(
            attempt=attempt.number + 1,
            is_whole=attempt.is_whole(planned_s[campaign_id]),
            points=points_of(attempt),
            curve=curve,
        )
        for campaign_id, members in by_campaign.items()
        for attempt in attempts(members)
        if (curve := curve_of(attempt)) is not None
    )


def quality_word(item: Judged) -> str:
    """Return the word for a quality."""
    return NOTHING if item.quality is None else item.quality.word


def quality_class(item: Judged) -> str:
    """Return the class that a page gives a quality."""
    return f"q-{'none' if item.quality is None else item.quality.value}"


def interval_words(mean: Mean | None, half: float | None) -> str | None:
    """Return ``too few runs`` where half an interval exceeds its figure; else None."""
    return "too few runs" if mean is not None and (half is None or half > 1) else None


STARTS: Final[Sequence[Column[StartRow]]] = (
    Column("stage", value=lambda row: row.stage, is_choice=True),
    Column("invocations", "processes", lambda start: start.count, Kind.COUNT),
    Column("init_us", "init", lambda row: row.init_us, **MS),
    Column("first_inference_us", "first inference", lambda start: start.first_us, **MS),
    Column("quality", value=lambda row: row.quality, shown=quality_word, tone=quality_class),
)
#: The figures of all passes that have some.
FIGURES_TABLE: Final[PassTable[PassFigure]] = PassTable(
    name="passes",
    key="passes",
    title="Further passes",
    legend="Medians over the runs of each pass that has figures of its own.",
    caption=lambda cases: "Medians of further passes",
    columns=(
        Column("pass", value=lambda item: item.run_pass, is_choice=True),
        Column("figure", value=lambda item: item.head, is_choice=True),
        Column(
            "value", "median", lambda row: row.value, kind=Kind.NUMBER, shown=lambda item: item.text
        ),
        Column("runs", value=lambda item: item.count, kind=Kind.COUNT),
    ),
)
SUSTAINED: Final[Sequence[Column[SustainedRow]]] = (
    Column("attempt", value=lambda row: row.attempt, kind=Kind.COUNT),
    Column(
        "is_whole",
        "length",
        lambda row: row.is_whole,
        kind=Kind.FLAG,
        is_choice=True,
        shown=lambda run: "whole" if run.is_whole else "cut",
    ),
    Column("burst_us", "burst", lambda run: run.curve.burst_us, **MS),
    Column("steady_us", "steady", lambda run: run.curve.steady_us, **MS),
    Column(
        "slowdown",
        value=lambda run: run.curve.slowdown - 1,
        kind=Kind.NUMBER,
        unit="%",
        scale=100,
        digits=1,
    ),
    Column("onset_s", "slower from", lambda run: run.curve.onset_s, Kind.NUMBER, "s", digits=0),
    Column("elapsed_s", "duration", lambda run: run.curve.duration_s, Kind.NUMBER, "s", digits=0),
    Column("count", "runs", lambda run: run.curve.count, Kind.COUNT),
)
