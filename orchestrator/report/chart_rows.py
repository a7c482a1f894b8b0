"""The data sets that the charts draw: plain rows, times in milliseconds, names as they may be
shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from orchestrator.records.workload import grouped
from orchestrator.report.data import ReportData
from orchestrator.report.scaling import on_front, thread_steps
from orchestrator.tables.escapes import visible
from orchestrator.tables.operators import Place, Profile
from orchestrator.tables.rows import ResultRow
from orchestrator.units import US_PER_MS

ChartRow = dict[str, str | float | bool | None]
_BYTES_PER_MB: Final = 1_000_000
#: A type with less of a profile's time than this goes into "other types".
_LEAST_SHARE: Final = 0.02
#: Beside "other types", as many as the charts have colours.
_MOST_TYPES: Final = 7
_OTHER_TYPES: Final = "other types"


def chart_rows(data: ReportData) -> Mapping[str, Sequence[ChartRow]]:
    """Return the data sets by name; those without a row are left out."""
    own = [row for row in data.results if row.own is not None]
    sets: Mapping[str, Iterable[tuple[ResultRow, ChartRow]]] = {
        "cases": ((row, _case(row, order)) for order, row in enumerate(own)),
        "threads": (
            (
                step.row,
                {
                    "threads": step.row.case.threads,
                    "value": _ms(step.row.median_us),
                    "efficiency": round(step.efficiency * 100, 1),
                    "group": visible(
                        f"{step.row.device.title}, {step.row.case.delegate}, {step.row.case.flags}"
                    ),
                },
            )
            for step in thread_steps(own)
        ),
        "delegates": (
            (
                row,
                {
                    "order": order,
                    "speed_up": round(row.speed_up.value, 3),
                    "delegate_truth": visible(row.delegate_text),
                    "fallen_off": visible(row.left_to_cpu),
                },
            )
            for order, row in enumerate(row for row in data.results if not row.case.delegate.is_cpu)
            if row.speed_up is not None
        ),
        "pareto": _pareto(own),
        "operators": _operators(data.results),
        "starts": _parts(
            own,
            ("initialisation", "first inference", "steady inference"),
            lambda row: (_ms(row.init_us), _ms(row.first_us), _ms(row.median_us)),
        ),
        "memory": _parts(
            data.results,
            ("after initialisation", "overall", "peak"),
            lambda row: (row.init_memory_mib, row.overall_memory_mib, row.peak_memory_mib),
        ),
        "sustained": (
            (
                row,
                {
                    "group": f"{row.key} {run.campaign_id} {run.attempt}",
                    "at": round(at_s, 1),
                    "value": _ms(us),
                },
            )
            for row in data.results
            for run in row.sustained
            for at_s, us in run.points
        ),
    }
    whos = {row.key: _who(row) for row in data.results}
    made = {name: [whos[row.key] | figures for row, figures in rows] for name, rows in sets.items()}
    return {name: rows for name, rows in made.items() if rows}


def _who(row: ResultRow) -> ChartRow:
    title = (
        row.device.title
        if row.device.is_virtual or not row.is_virtual
        else f"{row.device.label} (virtual)"
    )
    return {
        "model": visible(row.model.label),
        "device": visible(title),
        "configuration": visible(row.configuration),
        "delegate": row.case.delegate.value,
        "is_virtual": row.is_virtual,
    }


def _place_label(row: ResultRow) -> str:
    """Return what a bar is of, in two lines."""
    return f"{visible(row.device.title)}\n{visible(row.configuration)}"


def _case(row: ResultRow, order: int) -> ChartRow:
    interval = row.own.interval if row.own is not None else None
    return {
        "order": order,
        "key": row.key,
        "value": _ms(row.median_us),
        "low": _ms(interval.low if interval is not None else None),
        "high": _ms(interval.high if interval is not None else None),
        "delegate_truth": visible(row.delegate_text),
        "is_judged": row.result.is_judged,
    }


def _pareto(rows: Sequence[ResultRow]) -> Iterator[tuple[ResultRow, ChartRow]]:
    """Yield judged cases of devices with several models; one model has no trade-off to show."""
    known = (
        row for row in rows if row.model.size_bytes is not None or row.model.accuracy is not None
    )
    judged = (row for row in known if row.result.is_judged)
    for members in grouped(judged, lambda row: row.device.serial).values():
        if len({row.model.subject for row in members}) > 1:
            yield from _fronts(members)


def _fronts(members: Sequence[ResultRow]) -> Iterator[tuple[ResultRow, ChartRow]]:
    latency, size, accuracy = (
        {row.key: value for row in members if (value := of(row)) is not None}
        for of in (lambda row: _ms(row.median_us), _size_mb, lambda row: row.model.accuracy)
    )
    fronts = {
        "front_size_latency": on_front({key: (size[key], latency[key]) for key in size}),
        "front_accuracy_size": on_front(
            {key: (size[key], -accuracy[key]) for key in size if key in accuracy}
        ),
        "front_accuracy_latency": on_front(
            {key: (latency[key], -accuracy[key]) for key in accuracy}
        ),
    }
    for row in members:
        key = row.key
        figures = {
            "key": key,
            "value": latency[key],
            "size_mb": size.get(key),
            "accuracy": accuracy.get(key),
        }
        yield row, figures | {name: key in keys for name, keys in fronts.items()}


def _operators(rows: Sequence[ResultRow]) -> Iterator[tuple[ResultRow, ChartRow]]:
    for drawn in grouped(
        (row for row in rows if row.profiles), lambda row: row.model.subject
    ).values():
        named = _named_types(row.profiles[-1] for row in drawn)
        for order, row in enumerate(drawn):
            times: dict[tuple[str, Place], float] = defaultdict(float)
            for kind in row.profiles[-1].by_type():
                times[kind.node_type if kind.node_type in named else _OTHER_TYPES, kind.place] += (
                    kind.mean_us
                )
            place: ChartRow = {"profile": _place_label(row), "order": order}
            for (name, where), us in times.items():
                types: ChartRow = {"type": visible(name), "type_order": named[name]}
                yield row, place | types | {"where": where.value, "time": _ms(us)}


def _named_types(profiles: Iterable[Profile]) -> Mapping[str, int]:
    """Return the types that a chart of these profiles names, and their order: no more than there
    are colours.

    What takes most of any profile comes first, then all others together, then what is no operator.
    """
    shares: dict[str, float] = defaultdict(float)
    outside = set()
    for profile in profiles:
        for kind in profile.by_type():
            shares[kind.node_type] = max(shares[kind.node_type], kind.share)
            if kind.place is Place.OUTSIDE:
                outside.add(kind.node_type)
    most = sorted((name for name in shares if name not in outside), key=lambda name: -shares[name])
    named = [name for name in most[: _MOST_TYPES - len(outside)] if shares[name] >= _LEAST_SHARE]
    return {name: order for order, name in enumerate([*named, _OTHER_TYPES, *outside])}


def _parts(
    rows: Sequence[ResultRow],
    parts: Sequence[str],
    amounts_of: Callable[[ResultRow], Sequence[float | None]],
) -> Iterator[tuple[ResultRow, ChartRow]]:
    for order, row in enumerate(rows):
        label = _place_label(row)
        for place, (part, amount) in enumerate(zip(parts, amounts_of(row), strict=True)):
            if amount is not None:
                yield (
                    row,
                    {
                        "place": label,
                        "order": order,
                        "part": part,
                        "part_order": place,
                        "amount": amount,
                    },
                )


def _size_mb(row: ResultRow) -> float | None:
    return None if row.model.size_bytes is None else round(row.model.size_bytes / _BYTES_PER_MB, 3)


def _ms(value_us: float | None) -> float | None:
    return None if value_us is None else round(value_us / US_PER_MS, 4)
