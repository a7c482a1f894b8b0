"""What the passes beside timing show of a case: starts, memory, sustained runs, and tables of theirs.

Never mixed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Generic, Protocol, TypeVar

from orchestrator.analysis.case_result import OWN_FIGURE, CaseResult
from orchestrator.analysis.drift import SustainedCurve, attempts, curve_of, points_of
from orchestrator.analysis.effect import Mean
from orchestrator.analysis.outcome import NOT_WHAT_WAS_ASKED, truth_of, worst_quality
from orchestrator.frozen import frozen
from orchestrator.records.campaign import Campaign
from orchestrator.records.case import Case, grouped
from orchestrator.records.run import Outcome, RunRecord, StartStage, ToolReport, stage_of
from orchestrator.records.verdict import Quality
from orchestrator.tables.table import MS, NOTHING, Column, Kind

Item = TypeVar("Item")
#: Campaign and round: what was measured in one round is a pair.
Round = tuple[str, int]


class Judged(Protocol):
    """What has a quality."""

    @property
    def quality(self) -> Quality | None:
        """What it is worth; None for what has no figure."""


@frozen
class PassTable(Generic[Item]):
    """What a pass shows of cases beside their latency: a table, and a part of their records."""

    name: str
    #: What JSON calls a case's part, and a page the table's place.
    key: str
    #: Heading and text on a page.
    title: str
    legend: str
    #: The caption of the cases' table.
    caption: Callable[[Sequence[Case]], str]
    columns: Sequence[Column[Item]]
    #: A case's lines, from its runs of the pass; campaigns by their names. None where its lines
    #: are figures that passes name (``PassSpec.figures``).
    lines: Callable[[Sequence[RunRecord], Mapping[str, Campaign]], Sequence[Item]] = (
        lambda runs, campaigns: ()
    )
    #: What JSON has of a case's lines; None: a record a line.
    record: Callable[[Sequence[Item], Case], object] | None = None
    #: Whether a case has one line at most, which is in its row of CSV and frames, too.
    is_single: bool = False


@frozen
class StartRow:
    """One stage of a case's starts: medians over the processes that started so."""

    stage: StartStage
    #: How many processes.
    count: int
    init_us: float | None
    first_us: float | None
    #: Of the worst of them; rejected ones aren't among them.
    quality: Quality


@frozen
class SustainedRow:
    """One attempt at a sustained run of a case: invocations directly one after the other."""

    #: Of this case in this campaign, from 1.
    attempt: int
    #: Whether it lasted as long as it was to; a cut one says nothing of what came later.
    is_whole: bool
    #: Seconds since its start, and the latency then in microseconds; of invocations of the delegate
    #: itself.
    points: tuple[tuple[float, float], ...]
    curve: SustainedCurve


@frozen
class PassFigure:
    """One figure of a pass over a case."""

    run_pass: str
    #: What it is, with its unit: ``rest mW``.
    head: str
    #: The median over the runs that have it; None where none has.
    value: float | None
    digits: int
    #: How many runs have it.
    count: int

    @property
    def text(self) -> str:
        """The figure with its digits, empty for none."""
        return "" if self.value is None else f"{self.value:.{self.digits}f}"


def known_median(values: Iterable[float | None]) -> float | None:
    """Return the median of the values that are known; None when none is."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _is_usable(run: RunRecord) -> bool:
    """Whether an invocation did what its pass asked for: it ended well, where it was meant to run."""
    return run.outcome is Outcome.COMPLETED and run.verdict.quality is not Quality.REJECTED


def latency_reports(runs: Sequence[RunRecord], result: CaseResult) -> list[ToolReport]:
    """Return the reports that the latency comes from; none where it isn't the requested delegate's."""
    used = set(result.used) if result.status in OWN_FIGURE else set()
    return [run.report for run in runs if run.report is not None and run.run_id in used]


def usable_reports(runs: Iterable[RunRecord]) -> list[ToolReport]:
    """Return the reports of those that ended well, where they were meant to run."""
    return [run.report for run in runs if run.report is not None and _is_usable(run)]


def start_rows(runs: Iterable[RunRecord]) -> tuple[StartRow, ...]:
    """Return the medians of each stage that there are usable starts of, in the stages' order.

    A start that was rejected (it wasn't cold, or ran somewhere else) isn't in them.
    """
    stages: dict[StartStage, list[RunRecord]] = {stage: [] for stage in StartStage}
    for run in runs:
        if _is_usable(run):
            stages[stage_of(run.invocation)].append(run)
    return tuple(
        StartRow(
            stage=stage,
            count=len(starts),
            init_us=known_median(run.report.init_us for run in starts if run.report is not None),
            first_us=known_median(
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
    """Return the attempts of one case's sustained runs, by campaign; those with fewer than two
    figures are left out.

    An attempt that was cut and the one restarted are two curves: the phone cooled in between.
    Invocations of another delegate are no points. Campaigns by their names say how long attempts
    were to last.
    """
    own = (run for run in runs if truth_of(run) not in NOT_WHAT_WAS_ASKED)
    named = grouped(own, lambda run: str(run.campaign_id))
    planned_s = {
        name: campaigns[name].terms.sustained if name in campaigns else 0.0 for name in named
    }
    return tuple(
        SustainedRow(
            attempt=attempt.number + 1,
            is_whole=attempt.is_whole(planned_s[campaign_id]),
            points=points_of(attempt),
            curve=curve,
        )
        for campaign_id, members in named.items()
        for attempt in attempts(members)
        if (curve := curve_of(attempt)) is not None
    )


def quality_word(item: Judged) -> str:
    """Return the word for a quality."""
    return NOTHING if item.quality is None else item.quality.word


def quality_class(item: Judged) -> str:
    """Return the class that a page gives a quality."""
    return f"q-{'none' if item.quality is None else item.quality.value}"


def half_words(mean: Mean | None, half: float | None) -> str | None:
    """Return the words for an interval that says nothing: half of it is as large as the figure."""
    return "too few runs" if mean is not None and (half is None or half > 1) else None


STARTS: Final[Sequence[Column[StartRow]]] = (
    Column("stage", "stage", lambda start: start.stage, is_choice=True),
    Column("invocations", "processes", lambda start: start.count, Kind.COUNT),
    Column("init_us", "init", lambda start: start.init_us, **MS),
    Column("first_inference_us", "first inference", lambda start: start.first_us, **MS),
    Column(
        "quality", "quality", lambda start: start.quality, shown=quality_word, tone=quality_class
    ),
)
#: The figures of all passes that name some.
FURTHER: Final[PassTable[PassFigure]] = PassTable(
    name="passes",
    key="passes",
    title="Further passes",
    legend="Medians over the runs of each pass that has figures of its own.",
    caption=lambda cases: "Medians of further passes",
    columns=(
        Column("pass", "pass", lambda item: item.run_pass, is_choice=True),
        Column("figure", "figure", lambda item: item.head, is_choice=True),
        Column(
            "value", "median", lambda item: item.value, Kind.NUMBER, shown=lambda item: item.text
        ),
        Column("runs", "runs", lambda item: item.count, Kind.COUNT),
    ),
)
SUSTAINED: Final[Sequence[Column[SustainedRow]]] = (
    Column("attempt", "attempt", lambda run: run.attempt, Kind.COUNT),
    Column(
        "is_whole",
        "length",
        lambda run: run.is_whole,
        Kind.FLAG,
        is_choice=True,
        shown=lambda run: "whole" if run.is_whole else "cut",
    ),
    Column("burst_us", "burst", lambda run: run.curve.burst_us, **MS),
    Column("steady_us", "steady", lambda run: run.curve.steady_us, **MS),
    Column(
        "slowdown", "slowdown", lambda run: run.curve.slowdown - 1, Kind.NUMBER, "%", 100, digits=1
    ),
    Column("onset_s", "slower from", lambda run: run.curve.onset_s, Kind.NUMBER, "s", digits=0),
    Column("elapsed_s", "duration", lambda run: run.curve.duration_s, Kind.NUMBER, "s", digits=0),
    Column("count", "runs", lambda run: run.curve.count, Kind.COUNT),
)
