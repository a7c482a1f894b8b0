"""What the passes beside timing show of a case: starts, memory, sustained runs, energy and loads.

Never mixed.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from orchestrator.analysis.case_result import OWN_FIGURE, CaseResult
from orchestrator.analysis.energy import Mean, mean_of, ratio_of
from orchestrator.analysis.outcome import NOT_WHAT_WAS_ASKED, truth_of, worst_quality
from orchestrator.analysis.sustained import Attempt, SustainedCurve, attempts, curve_of, points_of
from orchestrator.records.campaign import Campaign
from orchestrator.records.contention import LOAD_DIED, NO_LOAD
from orchestrator.records.run import Outcome, RunRecord, ToolReport
from orchestrator.records.start import StartStage, stage_of
from orchestrator.records.verdict import Quality
from orchestrator.records.workload import grouped
from orchestrator.tables.column import NESTED, PAGE, PEOPLE, Column, Kind
from orchestrator.units import US_PER_MS

#: Campaign and round: what was measured in one round is a pair.
_Round = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRow:
    """One stage of a case's starts: medians over the processes that started so."""

    stage: StartStage
    #: How many processes.
    count: int
    init_us: float | None
    first_us: float | None
    #: Of the worst of them; rejected ones aren't among them.
    quality: Quality


@dataclass(frozen=True, slots=True, kw_only=True)
class SustainedRow:
    """One attempt at a sustained run of a case: invocations directly one after the other."""

    campaign_id: str
    #: Of this case in this campaign, from 1.
    attempt: int
    #: Whether it lasted as long as it was to; a cut one says nothing of what came later.
    is_whole: bool
    #: Seconds since its start, and the latency then in microseconds; of invocations of the delegate
    #: itself.
    points: tuple[tuple[float, float], ...]
    curve: SustainedCurve
    elapsed_s: float
    #: The worst one of its runs.
    quality: Quality
    #: What one process takes.
    process_s: float
    #: Minute -> the battery's highest heat in it.
    heat_c: Mapping[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyRow:
    """The energy of a case's inferences, a block being a run between two rests; microjoules."""

    #: None where no block has a figure.
    net_uj: Mean | None = None
    gross_uj: Mean | None = None
    #: ``rails``, ``battery``, ``unverified``; empty where no block has a figure.
    grade: str = ""
    rails: tuple[str, ...] = ()
    #: Of the worst block; rejected ones aren't among them.
    quality: Quality
    #: Largest difference of a block's two rests, as a share of its net power.
    drift: float | None = None
    #: Why blocks have no figure, with their number.
    missing: tuple[tuple[str, int], ...] = ()
    #: Net energy by round.
    blocks: Mapping[_Round, float]

    def against(self, other: EnergyRow) -> Mean | None:
        """Return how many times as much as another case it takes, by the rounds that both have."""
        return ratio_of(self.blocks, other.blocks) if self.grade == other.grade else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRow:
    """A case beside one load."""

    load: str
    #: Microseconds, over the runs.
    median_us: float | None
    #: Times as long as without a load, by the rounds that have both.
    factor: Mean | None
    count: int
    #: Cores that the load kept busy, of those it was seen to.
    cores: float | None
    #: Runs whose load didn't run all the time.
    died: int


@dataclass(frozen=True, slots=True, kw_only=True)
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
    """Return the reports that the latency comes from.

    None where it isn't the requested delegate's.
    """
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
    """Return the attempts of one case's sustained runs, by campaign.

    Those with fewer than two figures are left out.

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
            campaign_id=campaign_id,
            attempt=attempt.number + 1,
            is_whole=attempt.is_over(planned_s[campaign_id]) and not attempt.has_failed,
            points=points_of(attempt),
            curve=curve,
            elapsed_s=attempt.elapsed_s,
            quality=worst_quality(attempt.runs),
            process_s=statistics.median(run.duration_s for run in attempt.runs),
            heat_c=_heat_by_minute(attempt),
        )
        for campaign_id, members in named.items()
        for attempt in attempts(members)
        if (curve := curve_of(attempt)) is not None
    )


def _heat_by_minute(attempt: Attempt) -> dict[int, float]:
    heat_c: dict[int, float] = {}
    for run in attempt.runs:
        state = run.state_after or run.state_before
        if state is not None and state.battery_heat_c is not None:
            minute = int((run.started_at - attempt.runs[0].started_at) / timedelta(minutes=1))
            heat_c[minute] = max(heat_c.get(minute, state.battery_heat_c), state.battery_heat_c)
    return heat_c


def energy_row(runs: Sequence[RunRecord]) -> EnergyRow | None:
    """Return a case's energy by its runs of that pass; None for none.

    Blocks of its commonest grade count.
    """
    found = [
        (run, run.report.extra)
        for run in runs
        if run.report is not None and not run.is_without_result
    ]
    if not found:
        return None
    missing = Counter(
        str(extra["energy_missing"]) for _, extra in found if "energy_missing" in extra
    )
    grades = Counter(str(extra["energy_grade"]) for _, extra in found if "energy_grade" in extra)
    grade = grades.most_common(1)[0][0] if grades else ""
    blocks = [(run, extra) for run, extra in found if extra.get("energy_grade") == grade]
    return EnergyRow(
        net_uj=mean_of([float(extra["energy_net_uj"]) for _, extra in blocks]),
        gross_uj=mean_of([float(extra["energy_gross_uj"]) for _, extra in blocks]),
        grade=grade,
        rails=tuple(
            sorted(
                {rail for _, extra in blocks for rail in str(extra.get("energy_rails", "")).split()}
            )
        ),
        quality=worst_quality(run for run, _ in found),
        drift=max((_drift(extra) for _, extra in blocks), default=None),
        missing=tuple(missing.most_common()),
        blocks={
            (str(run.campaign_id), run.invocation): float(extra["energy_net_uj"])
            for run, extra in blocks
        },
    )


def _drift(extra: Mapping[str, float | str]) -> float:
    work, before, after = (
        float(extra[f"energy_{name}_w"]) for name in ("work", "rest_before", "rest_after")
    )
    return abs(after - before) / (work - (before + after) / 2)


def load_rows(runs: Sequence[RunRecord], campaigns: Mapping[str, Campaign]) -> tuple[LoadRow, ...]:
    """Return a case's figures by load, from its runs of that pass, without a load first.

    Campaigns by their names.
    """
    seen: dict[str, dict[_Round, float]] = {}
    cores: dict[str, list[float]] = defaultdict(list)
    died: Counter[str] = Counter()
    for run in runs:
        if run.report is None or "load" not in run.report.extra:
            continue
        load, latency_us = str(run.report.extra["load"]), run.report.latency_us()
        own = seen.setdefault(load, {})
        died[load] += run.reason_code == LOAD_DIED
        if not run.is_without_result and latency_us is not None:
            campaign = campaigns.get(run.campaign_id)
            width = 1 + len(campaign.terms.contention) if campaign is not None else 1
            own[str(run.campaign_id), run.invocation // width] = latency_us
            if "load_cores" in run.report.extra:
                cores[load].append(float(run.report.extra["load_cores"]))
    return tuple(
        LoadRow(
            load=load,
            median_us=known_median(own.values()),
            factor=ratio_of(own, seen.get(NO_LOAD, {})) if load != NO_LOAD else None,
            count=len(own),
            cores=statistics.fmean(cores[load]) if cores[load] else None,
            died=died[load],
        )
        for load, own in sorted(seen.items(), key=lambda item: (item[0] != NO_LOAD, item[0]))
    )


def _quality(item: StartRow | EnergyRow) -> str:
    return item.quality.word


def _quality_class(item: StartRow | EnergyRow) -> str:
    return f"q-{item.quality.value}"


def _share(mean: Mean | None) -> float | None:
    return None if mean is None or mean.half_width is None else mean.half_width / mean.value


def _half(mean: Mean | None, half: float | None) -> str | None:
    """Return the words for an interval that says nothing: half of it is as large as the figure."""
    return "too few runs" if mean is not None and (half is None or half > 1) else None


_MS: Final[dict[str, Any]] = {"kind": Kind.NUMBER, "unit": "ms", "scale": 1 / US_PER_MS}
STARTS: Final[Sequence[Column[StartRow]]] = (
    Column("stage", "stage", lambda start: start.stage, is_choice=True),
    Column("invocations", "processes", lambda start: start.count, Kind.COUNT),
    Column("init_us", "init", lambda start: start.init_us, **_MS),
    Column("first_inference_us", "first inference", lambda start: start.first_us, **_MS),
    Column("quality", "quality", lambda start: start.quality, shown=_quality, tone=_quality_class),
)
#: Also among the columns of a case, in CSV, JSON and frames.
ENERGY: Final[Sequence[Column[EnergyRow]]] = (
    Column(
        "energy_net_uj",
        "net",
        lambda item: item.net_uj and item.net_uj.value,
        Kind.NUMBER,
        "mJ",
        1e-3,
        exact=3,
    ),
    Column(
        "energy_net_half_uj",
        "±95 %",
        lambda item: item.net_uj and item.net_uj.half_width,
        Kind.NUMBER,
        "mJ",
        1e-3,
        exact=3,
        shown=lambda item: _half(item.net_uj, _share(item.net_uj)),
    ),
    Column(
        "energy_gross_uj",
        "gross",
        lambda item: item.gross_uj and item.gross_uj.value,
        Kind.NUMBER,
        "mJ",
        1e-3,
        exact=3,
    ),
    Column("energy_grade", "by", lambda item: item.grade or None, is_choice=True),
    Column("blocks", "blocks", lambda item: len(item.blocks), Kind.COUNT, forms=PEOPLE),
    Column(
        "drift",
        "rests differ by",
        lambda item: item.drift,
        Kind.NUMBER,
        "%",
        100,
        digits=1,
        forms=PAGE,
    ),
    Column(
        "quality",
        "quality",
        lambda item: item.quality,
        shown=_quality,
        tone=_quality_class,
        forms=PEOPLE,
    ),
    Column("rails", "rails", lambda item: " ".join(item.rails), is_optional=True, forms=PEOPLE),
    Column(
        "missing",
        "blocks without a figure",
        lambda item: "; ".join(f"{why} ({count})" for why, count in item.missing),
        is_optional=True,
        forms=PEOPLE,
    ),
)
LOADS: Final[Sequence[Column[LoadRow]]] = (
    Column("load", "load", lambda load: load.load, is_choice=True),
    Column("median_us", "median", lambda load: load.median_us, **_MS),
    Column("factor", "times as long", lambda load: load.factor, Kind.RECORD, forms=NESTED),
    Column(
        "factor",
        "times as long",
        lambda load: load.factor and load.factor.value,
        Kind.NUMBER,
        digits=3,
        forms=PEOPLE,
    ),
    Column(
        "factor_half",
        "±95 %",
        lambda load: load.factor and load.factor.half_width,
        Kind.NUMBER,
        "%",
        100,
        digits=1,
        forms=PEOPLE,
        shown=lambda load: _half(load.factor, getattr(load.factor, "half_width", None)),
    ),
    Column("runs", "runs", lambda load: load.count, Kind.COUNT),
    Column("cores", "load kept busy", lambda load: load.cores, Kind.NUMBER, "cores", digits=1),
    Column(
        "died",
        "load died",
        lambda load: load.died,
        Kind.COUNT,
        shown=lambda load: "" if not load.died else None,
    ),
)
FIGURES: Final[Sequence[Column[PassFigure]]] = (
    Column("pass", "pass", lambda item: item.run_pass, is_choice=True),
    Column("figure", "figure", lambda item: item.head, is_choice=True),
    Column("value", "median", lambda item: item.value, Kind.NUMBER, shown=lambda item: item.text),
    Column("runs", "runs", lambda item: item.count, Kind.COUNT),
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
    Column("burst_us", "burst", lambda run: run.curve.burst_us, **_MS),
    Column("steady_us", "steady", lambda run: run.curve.steady_us, **_MS),
    Column(
        "slowdown", "slowdown", lambda run: run.curve.slowdown - 1, Kind.NUMBER, "%", 100, digits=1
    ),
    Column("onset_s", "slower from", lambda run: run.curve.onset_s, Kind.NUMBER, "s", digits=0),
    Column("elapsed_s", "duration", lambda run: run.curve.duration_s, Kind.NUMBER, "s", digits=0),
    Column("count", "runs", lambda run: run.curve.count, Kind.COUNT),
)
