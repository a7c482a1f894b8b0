"""The report's charts beside the first screen: threads, layers, sustained runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from orchestrator.records.workload import grouped
from orchestrator.report.data import ReportData
from orchestrator.report.drawing import COLOURS, Drawing, Line, Part, lines, treemap
from orchestrator.report.scaling import ThreadStep, thread_steps
from orchestrator.tables.labels import delegate_place, short_names
from orchestrator.tables.operators import Profile
from orchestrator.tables.rows import ResultRow
from orchestrator.units import US_PER_MS, format_latency, format_percent

_MOST_LINES: Final = 8
#: Layers of a map; what is smaller is one part.
_MOST_PARTS: Final = 60


def charts_of(data: ReportData) -> Mapping[str, Sequence[tuple[str, Drawing]]]:
    """Return the charts with their titles, by the section that they stand in."""
    return {
        "threads": _threads(data.results),
        "operators": _operators(data.results),
        "sustained": _sustained(data.results),
    }


def _threads(rows: Sequence[ResultRow]) -> list[tuple[str, Drawing]]:
    charts = []
    steps = grouped(
        thread_steps(rows), lambda step: (step.row.model.subject, step.row.device.serial)
    )
    for members in steps.values():
        names = short_names((step.row.configuration, step.row.case) for step in members)
        drawn = [
            Line(
                points=[(step.row.case.threads, _ms(step.row)) for step in group],
                label=_without_threads(names.of(group[-1].row.configuration)),
                colour=_colour(group[0].row),
            )
            for group in _series(members)
        ]
        title = f"{members[0].row.model.label} on {members[0].row.device.title}"
        counts = sorted({step.row.case.threads for step in members})
        told = f"{title}: median in ms by number of threads"
        charts.append((title, lines(drawn[:_MOST_LINES], told, across="threads", marks=counts)))
    return charts


def _series(steps: Iterable[ThreadStep]) -> Iterable[Sequence[ThreadStep]]:
    def beside_threads(step: ThreadStep) -> object:
        return _without_threads(step.row.configuration), step.row.case.delegate

    return grouped(steps, beside_threads).values()


def _without_threads(configuration: str) -> str:
    return ", ".join(part for part in configuration.split(", ") if " thread" not in part)


def _operators(rows: Sequence[ResultRow]) -> list[tuple[str, Drawing]]:
    """Return a map of each profiled case, the fastest of a model first."""
    profiled = sorted(
        (row for row in rows if row.profiles), key=lambda row: (row.model.label, row.median_us or 0)
    )
    return [(row.who, _map(row, row.profiles[-1])) for row in profiled]


def _map(row: ResultRow, profile: Profile) -> Drawing:
    types = {kind.node_type: place for place, kind in enumerate(profile.by_type(), start=1)}
    ordered = sorted(profile.rows, key=lambda item: -item.mean_us)
    parts = [
        Part(
            label=f"{item.layer} {format_percent(item.share, 0)}",
            share=item.mean_us,
            told=f"{item.layer} ({item.node_type}): {format_latency(item.mean_us)}, {format_percent(item.share)}",
            colour=types[item.node_type] % COLOURS,
        )
        for item in ordered[:_MOST_PARTS]
    ]
    rest: dict[str, float] = defaultdict(float)
    rest["smaller layers"] = sum(item.mean_us for item in ordered[_MOST_PARTS:])
    rest["outside of operators"] = profile.outside_us
    parts += [
        Part(label=name, share=us, told=f"{name}: {format_latency(us)}")
        for name, us in rest.items()
        if us > 0
    ]
    return treemap(parts, f"{row.who}: the time of an inference by layer")


def _sustained(rows: Sequence[ResultRow]) -> list[tuple[str, Drawing]]:
    charts = []
    of_place = grouped(
        (row for row in rows if row.sustained), lambda row: (row.model.subject, row.device.serial)
    )
    for members in of_place.values():
        names = short_names((row.configuration, row.case) for row in members)
        drawn = [
            Line(
                points=[(at_s, us / US_PER_MS) for at_s, us in run.points],
                label=names.of(row.configuration)
                + (f", {run.attempt}." if run.attempt > 1 else ""),
                colour=_colour(row),
            )
            for row in members
            for run in row.sustained
        ]
        title = f"{members[0].model.label} on {members[0].device.title}"
        told = f"{title}: latency in ms over seconds"
        charts.append((title, lines(drawn[:_MOST_LINES], told, across="s")))
    return charts


def _ms(row: ResultRow) -> float:
    return (row.median_us or 0.0) / US_PER_MS


def _colour(row: ResultRow) -> int:
    return delegate_place(row.case) % COLOURS
