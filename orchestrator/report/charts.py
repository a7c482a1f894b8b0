"""The report's charts beside the first screen: runs, threads and what more of them bring, layers,
sustained runs.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from orchestrator.analysis.outcome import figure_us
from orchestrator.records.case import grouped
from orchestrator.records.run import FigureKind, RunRecord
from orchestrator.report.data import ReportData
from orchestrator.report.drawing import (
    COLOURS,
    Across,
    Line,
    Part,
    Point,
    Spread,
    lines,
    strips,
    treemap,
)
from orchestrator.report.winners import Contest, alike, by_threads
from orchestrator.tables.html import Html
from orchestrator.tables.labels import delegate_place, short_names
from orchestrator.tables.operators import Profile
from orchestrator.tables.rows import ResultRow
from orchestrator.units import US_PER_MS, counted, format_latency, format_percent

_MOST_CHARTS: Final = 12
_MOST_LINES: Final = 8
#: Layers of a map; what is smaller is one part.
_MOST_PARTS: Final = 60
#: Runs of a case that are drawn.
_MOST_RUNS: Final = 60


def charts_of(data: ReportData) -> Mapping[str, Sequence[tuple[str, Html]]]:
    """Return the first charts with their titles, by the section that they stand in; one more than
    are shown where there are more.
    """
    profiled = sorted(
        (row for row in data.results if row.profiles),
        key=lambda row: (row.model.label, row.median_us or 0.0),
    )
    charts = {
        "runs": _runs(data.contests),
        "threads": _threads(data.results),
        "operators": ((row.who, _map(row, row.profiles[-1])) for row in profiled),
        "sustained": _sustained(data.results),
    }
    return {name: list(islice(found, _MOST_CHARTS + 1)) for name, found in charts.items()}


def _runs(contests: Iterable[Contest]) -> Iterator[tuple[str, Html]]:
    """Yield the runs of each model on each phone, one configuration below the other."""
    for contest in contests:
        names = short_names((row.configuration, row.case) for row in contest.rows)
        used = {
            row.key: [item.run for item in row.invocations if item.is_used]
            for row in contest.rows
            if row.own is not None and not row.case.is_per_token
        }
        spreads = [
            spread_of(used[row.key], row.result.figure, names.of(row.configuration), colour_of(row))
            for row in contest.rows
            if used.get(row.key)
        ]
        if spreads:
            title = contest.shown.where
            yield title, strips(spreads, f"{title}: the runs", "ms")


def _threads(rows: Iterable[ResultRow]) -> Iterator[tuple[str, Html]]:
    of_place = grouped(thread_steps(rows), lambda steps: steps[0].row.place)
    for series in of_place.values():
        members = [step.row for steps in series for step in steps]
        names = short_names((row.configuration, row.case) for row in members)
        drawn = [
            Line(
                points=[Point(x=step.row.case.threads, y=_ms(step.row)) for step in steps],
                label=_without_threads(names.of(steps[-1].row.configuration)),
                look=colour_of(steps[0].row),
            )
            for steps in series
        ]
        title = members[0].where
        told = f"{title}: median in ms by number of threads"
        words = [(n, f"{n}") for n in sorted({row.case.threads for row in members})]
        shown = drawn[:_MOST_LINES]
        yield title, lines(shown, told, Across(name="threads", words=words, is_log=True))


def _without_threads(configuration: str) -> str:
    return ", ".join(part for part in configuration.split(", ") if " thread" not in part)


def _map(row: ResultRow, profile: Profile) -> Html:
    """Return the layers of a profiled case as large as their shares."""
    places = {kind.node_type: place for place, kind in enumerate(profile.by_type(), start=1)}
    ordered = sorted(profile.rows, key=lambda item: -item.mean_us)
    parts = [
        Part(
            label=f"{item.layer} {format_percent(item.share, 0)}",
            share=item.mean_us,
            told=f"{item.layer} ({item.node_type}): {format_latency(item.mean_us)}, {format_percent(item.share)}",
            look=f"d{places[item.node_type] % COLOURS}",
        )
        for item in ordered[:_MOST_PARTS]
    ]
    rest = {
        "smaller layers": sum(item.mean_us for item in ordered[_MOST_PARTS:]),
        "outside of operators": profile.outside_us,
    }
    for name, us in rest.items():
        told = f"{name}: {format_latency(us)}"
        parts.append(Part(label=name, share=us, told=told, look="d0"))
    return treemap(parts, f"{row.who}: the time of an inference by layer")


def _sustained(rows: Iterable[ResultRow]) -> Iterator[tuple[str, Html]]:
    of_place = grouped(
        (row for row in rows if row.of_passes.get("sustained")),
        lambda row: row.place,
    )
    for members in of_place.values():
        names = short_names((row.configuration, row.case) for row in members)
        drawn = [
            Line(
                points=[Point(x=at_s, y=us / US_PER_MS) for at_s, us in run.points],
                label=names.of(row.configuration)
                + (f", {run.attempt}." if run.attempt > 1 else ""),
                look=colour_of(row),
            )
            for row in members
            for run in row.of_passes["sustained"]
        ]
        title = members[0].where
        told = f"{title}: latency in ms over seconds"
        yield title, lines(drawn[:_MOST_LINES], told, Across(name="s"))


def _ms(row: ResultRow) -> float:
    return (row.median_us or 0.0) / US_PER_MS


def colour_of(row: ResultRow) -> str:
    """Return the colour of a case's delegate."""
    return f"d{delegate_place(row.case) % COLOURS}"


def spread_of(runs: Sequence[RunRecord], kind: FigureKind, name: str, look: str) -> Spread:
    """Return runs as a strip draws them: each with its figure of this kind, and where its inferences
    lie from 5 % to 95 %, in milliseconds.
    """
    figures = [figure_us(run, kind) for run in runs]
    found = []
    for run, latency_us in list(zip(runs, figures, strict=True))[:_MOST_RUNS]:
        if run.report is None or latency_us is None:
            continue
        spread = run.report.inference
        ends = (spread.p5_us, spread.p95_us) if spread is not None else (None, None)
        low, high = (None if end is None else end / US_PER_MS for end in ends)
        found.append((latency_us / US_PER_MS, low, high))
    return Spread(runs=found, label=f"{name}: {percentiles(figures)}", look=look)


def percentiles(figures_us: Iterable[float | None]) -> str:
    """Return of how many runs the median and what 90 and 99 % are below: ``5 runs, p50 6.45, p90 6.50, p99 6.52 ms``."""
    known = sorted(filter(None, figures_us))
    if not known:
        return "no figure"
    shown = {50: statistics.median(known)} | {
        share: known[min(len(known) - 1, len(known) * share // 100)] for share in (90, 99)
    }
    parts = [f"p{share} {figure_us / US_PER_MS:.4g}" for share, figure_us in shown.items()]
    return f"{counted(len(known), 'run')}, {', '.join(parts)} ms"


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadStep:
    """One case among those that differ from it in nothing but the number of threads."""

    row: ResultRow
    #: Over the case with the fewest threads.
    speed_up: float
    #: The speed-up divided by how many times as many threads it took: 1.0 is ideal.
    efficiency: float


def thread_steps(rows: Iterable[ResultRow]) -> Iterator[list[ThreadStep]]:
    """Yield the cases that differ in nothing but their number of threads, the fewest first; only
    figures of the delegate itself count.
    """
    for members in by_threads(row for row in rows if row.own is not None and row.case.threads > 0):
        figures = alike({row.key: row.result for row in members})
        fewest = members[0]
        if fewest.key not in figures:
            continue
        steps = []
        for row in (row for row in members if row.key in figures):
            speed_up = figures[fewest.key].median_us / figures[row.key].median_us
            efficiency = speed_up * fewest.case.threads / row.case.threads
            steps.append(ThreadStep(row=row, speed_up=speed_up, efficiency=efficiency))
        yield steps
