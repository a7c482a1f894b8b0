"""The page's tables, made from the rows of a report."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeVar

from orchestrator.analysis.energy import Mean
from orchestrator.records.verdict import Quality
from orchestrator.report.data import ReportData
from orchestrator.report.grids import Column, Grid, badge_of, choice_of, column_of, count_of, ms_of, number_of
from orchestrator.report.matrix import figures_decimals
from orchestrator.report.scaling import ThreadStep, thread_steps
from orchestrator.tables.labels import NOTHING, PARITY_CLASSES, PARITY_WORDS
from orchestrator.tables.operators import DiffPair, OperatorRow, Place, TypeRow
from orchestrator.tables.passes import EnergyRow, LoadRow
from orchestrator.tables.rows import BestMark, ResultRow

Item = TypeVar("Item")
Node = TypeVar("Node", OperatorRow, TypeRow)
_BEST: Final = {BestMark.BEST: ("★ fastest", "best"), BestMark.TIED: ("≈ tied", "tied"), BestMark.NONE: ("", "")}
_CHANGE_CLASSES: Final = {
    "left the delegate": "v-error",
    "slower": "v-warning",
    "taken by a delegate": "q-trusted",
    "faster": "q-trusted",
}


def grids_of(data: ReportData) -> Mapping[str, Grid]:
    """Return the tables that have rows, by name; ``results`` is always among them."""
    rows = data.results
    profiled = [row for row in rows if row.profiles]
    grids = (
        _results(rows),
        _starts([row for row in rows if row.own is not None or row.has_memory]),
        _stages(rows),
        _energy([row for row in rows if row.energy is not None]),
        _loads(rows),
        _threads(list(thread_steps(rows))),
        _delegates([row for row in rows if not row.case.delegate.is_cpu]),
        _operators(profiled),
        _types(profiled),
        _changes(data.diffs),
        _sustained(rows),
    )
    return {grid.name: grid for grid in grids if grid.count or grid.name == "results"}


def _grid(name: str, caption: str, owners: Sequence[ResultRow], *columns: Column, judged: Sequence[bool] = ()) -> Grid:
    who = (
        column_of(owners, "model", lambda row: row.model.label, kind="case", is_choice=True),
        choice_of(owners, "device", lambda row: row.device.title),
        choice_of(owners, "configuration", lambda row: row.configuration),
    )
    return Grid(
        name=name,
        caption=caption,
        columns=(*who, *columns),
        keys=[row.key for row in owners],
        virtual=[row.is_virtual for row in owners],
        judged=judged,
    )


def _parts(
    rows: Iterable[ResultRow], of: Callable[[ResultRow], Iterable[Item]]
) -> tuple[Sequence[ResultRow], Sequence[Item]]:
    """Return what the rows have several of, each beside its row."""
    pairs = [(row, item) for row in rows for item in of(row)]
    return [row for row, _ in pairs], [item for _, item in pairs]


def _truth_column(rows: Sequence[ResultRow]) -> Column:
    def of(row: ResultRow) -> tuple[str, str]:
        return row.delegate_text, f"t-{row.result.truth.value}" if row.result.truth is not None else ""

    return badge_of(rows, "delegate", of)


def _quality_column(rows: Sequence[ResultRow]) -> Column:
    def of(row: ResultRow) -> tuple[str, str]:
        return row.quality_text, f"q-{row.result.quality.value if row.result.quality is not None else 'none'}"

    return badge_of(rows, "quality", of)


def _plain_quality(qualities: Iterable[Quality]) -> Column:
    return badge_of(list(qualities), "quality", lambda item: (item.word, f"q-{item.value}"), is_choice=False)


def _kind_columns(rows: Sequence[ResultRow]) -> Sequence[Column]:
    """Return the column that says whose figure is made of means, where any is."""
    if not any(row.has_mean for row in rows):
        return ()
    return (badge_of(rows, "figure", lambda row: (row.result.figure.value if row.own else "", "")),)


def _results(rows: Sequence[ResultRow]) -> Grid:
    # A median and its interval are read together.
    digits = figures_decimals(rows)
    intervals = [row.own.interval if row.own is not None else None for row in rows]
    speeds = [
        number_of(rows, label, unit, lambda row, place=place: row.speeds[place], 1)  # type: ignore[misc]
        for place, (label, unit) in enumerate(
            (("speed", "tokens/s"), ("speed from", "tokens/s, 95 %"), ("speed to", "tokens/s, 95 %"))
        )
    ]
    parities = [row.result.parity for row in rows]
    words = {None: ("", "")} | {verdict: (PARITY_WORDS[verdict], PARITY_CLASSES[verdict]) for verdict in PARITY_WORDS}
    return _grid(
        "results",
        "One row for each case",
        rows,
        ms_of(rows, "median", lambda row: row.median_us, digits),
        *_kind_columns(rows),
        ms_of(intervals, "from", lambda interval: interval.low if interval else None, digits, "ms, 95 %"),
        ms_of(intervals, "to", lambda interval: interval.high if interval else None, digits, "ms, 95 %"),
        number_of(rows, "spread", "±%", lambda row: _percent(row.own.spread) if row.own else None, 1),
        *(speeds if any(row.case.is_per_token for row in rows) else ()),
        number_of(rows, "speed-up", "x CPU", lambda row: row.speed_up.value if row.speed_up is not None else None, 2),
        badge_of(rows, "rank", lambda row: _BEST[row.best]),
        _truth_column(rows),
        _quality_column(rows),
        *((badge_of(parities, "outputs", lambda verdict: words[verdict]),) if any(parities) else ()),
        choice_of(rows, "grade", lambda row: row.result.grade.value if row.result.grade is not None else NOTHING),
        column_of(rows, "why not", lambda row: row.result.reason_code),
        count_of(rows, "runs", lambda row: len(row.result.used) if row.own is not None else 0, "used"),
        count_of(rows, "of", lambda row: row.result.ended, "ended"),
        choice_of(rows, "speed-up over", lambda row: row.baseline),
        judged=[row.result.is_judged for row in rows],
    )


def _starts(rows: Sequence[ResultRow]) -> Grid:
    return _grid(
        "starts",
        "Initialisation, first inference and memory of each case that has any of them",
        rows,
        ms_of(rows, "init", lambda row: row.init_us),
        ms_of(rows, "first inference", lambda row: row.first_us),
        ms_of(rows, "warm-up", lambda row: row.warmup_us),
        ms_of(rows, "median", lambda row: row.median_us),
        *_kind_columns(rows),
        number_of(rows, "memory after init", "MB", lambda row: row.init_memory_mib, 1),
        number_of(rows, "memory overall", "MB", lambda row: row.overall_memory_mib, 1),
        number_of(rows, "peak memory", "MB", lambda row: row.peak_memory_mib, 1),
    )


def _stages(rows: Sequence[ResultRow]) -> Grid:
    owners, starts = _parts(rows, lambda row: row.starts)
    return _grid(
        "stages",
        "Initialisation and first inference of each case by stage",
        owners,
        choice_of(starts, "stage", lambda start: start.stage.value),
        ms_of(starts, "init", lambda start: start.init_us),
        ms_of(starts, "first inference", lambda start: start.first_us),
        count_of(starts, "processes", lambda start: start.count),
        _plain_quality(start.quality for start in starts),
    )


def _energy(rows: Sequence[ResultRow]) -> Grid:
    energies: Sequence[EnergyRow] = [row.energy for row in rows if row.energy is not None]
    missing = ["; ".join(f"{why} ({count})" for why, count in energy.missing) for energy in energies]
    return _grid(
        "energy",
        "Energy of an inference above the phone's at rest",
        rows,
        number_of(energies, "net", "mJ", lambda energy: _mj(energy.net_uj)),
        number_of(energies, "± 95 %", "%", lambda energy: _half_percent(energy.net_uj), 1),
        number_of(energies, "gross", "mJ", lambda energy: _mj(energy.gross_uj)),
        count_of(energies, "blocks", lambda energy: len(energy.blocks)),
        number_of(energies, "rests differ by", "%", lambda energy: _percent(energy.drift), 1),
        choice_of(energies, "by", lambda energy: energy.grade),
        _plain_quality(energy.quality for energy in energies),
        column_of(energies, "rails", lambda energy: " ".join(energy.rails)),
        *((Column(label="blocks without a figure", values=missing),) if any(missing) else ()),
    )


def _percent(share: float | None) -> float | None:
    return None if share is None else share * 100


def _mj(mean: Mean | None) -> float | None:
    return None if mean is None else mean.value / 1e3


def _half_percent(mean: Mean | None) -> float | None:
    return None if mean is None or mean.half_width is None else 100 * mean.half_width / mean.value


def _loads(rows: Sequence[ResultRow]) -> Grid:
    owners, loads = _parts(rows, lambda row: row.loads)

    def half(load: LoadRow) -> float | None:
        return _percent(load.factor.half_width) if load.factor else None

    return _grid(
        "loads",
        "Each case beside loads, against itself alone",
        owners,
        choice_of(loads, "load", lambda load: load.load),
        ms_of(loads, "median", lambda load: load.median_us),
        number_of(loads, "times as long", "", lambda load: load.factor.value if load.factor else None, 3),
        number_of(loads, "± 95 %", "%", half, 1),
        count_of(loads, "runs", lambda load: load.count),
        number_of(loads, "load kept busy", "cores", lambda load: load.cores, 1),
        count_of(loads, "load died", lambda load: load.died or None),
    )


def _threads(steps: Sequence[ThreadStep]) -> Grid:
    rows = [step.row for step in steps]
    return _grid(
        "threads",
        "Thread scaling of each case that was measured with several numbers",
        rows,
        count_of(rows, "threads", lambda row: row.case.threads),
        ms_of(rows, "median", lambda row: row.median_us),
        *_kind_columns(rows),
        number_of(steps, "speed-up", "x fewest threads", lambda step: step.speed_up, 2),
        number_of(steps, "efficiency", "% per thread", lambda step: step.efficiency * 100, 0),
        _quality_column(rows),
    )


def _delegates(rows: Sequence[ResultRow]) -> Grid:
    evidence = [row.delegate for row in rows]
    return _grid(
        "delegates",
        "What each delegate brought, and which operators fell off it",
        rows,
        number_of(rows, "speed-up", "x CPU", lambda row: row.speed_up.value if row.speed_up else None, 2),
        ms_of(rows, "median", lambda row: row.median_us),
        *_kind_columns(rows),
        _truth_column(rows),
        count_of(evidence, "delegated", lambda found: found.delegated_nodes if found else None, "nodes"),
        count_of(evidence, "of", lambda found: found.total_nodes if found else None, "nodes"),
        _quality_column(rows),
        column_of(rows, "left to the CPU", lambda row: row.left_to_cpu or NOTHING),
    )


def _time_columns(nodes: Sequence[Node]) -> tuple[Column, Column]:
    time = ms_of(nodes, "time", lambda node: node.mean_us, 3)
    return time, number_of(nodes, "share", "%", lambda node: node.share * 100, 1)


def _operators(rows: Sequence[ResultRow]) -> Grid:
    # What an operator such as WHILE runs stands after it all: its time is in the operator's own.
    owners, numbered = _parts(rows, lambda row: enumerate((*row.profiles[-1].rows, *row.profiles[-1].nested), start=1))
    nodes = [node for _, node in numbered]
    subgraphs = [choice_of(nodes, "inside of", lambda node: node.subgraph or NOTHING)]
    return _grid(
        "operators",
        "Operators in the order in which they ran",
        owners,
        count_of(numbered, "order", lambda item: item[0]),
        *(subgraphs if any(row.profiles[-1].nested for row in rows) else ()),
        choice_of(nodes, "type", lambda node: node.node_type),
        column_of(nodes, "node", lambda node: node.name),
        _place_column(nodes),
        *_time_columns(nodes),
    )


def _types(rows: Sequence[ResultRow]) -> Grid:
    owners, types = _parts(rows, lambda row: row.profiles[-1].by_type())
    return _grid(
        "types",
        "Time by type of operator",
        owners,
        choice_of(types, "type", lambda kind: kind.node_type),
        _place_column(types),
        count_of(types, "nodes", lambda kind: kind.nodes),
        *_time_columns(types),
    )


def _place_column(nodes: Sequence[Node]) -> Column:
    return badge_of(nodes, "where", lambda node: (node.place.value, "t-full" if node.place is Place.DELEGATE else ""))


def _changes(pairs: Sequence[DiffPair]) -> Grid:
    found = [(pair, number, change) for number, pair in enumerate(pairs) for change in pair.diff.rows]
    changes = [change for _, _, change in found]
    return Grid(
        name="changes",
        caption="Operators of two runs, largest difference first",
        columns=(
            choice_of(changes, "type", lambda change: change.node_type),
            column_of(changes, "node", lambda change: change.name),
            ms_of(changes, "before", lambda change: change.before_us, 3),
            ms_of(changes, "after", lambda change: change.after_us, 3),
            ms_of(changes, "difference", lambda change: change.difference_us, 3),
            badge_of(changes, "change", lambda change: (change.change, _CHANGE_CLASSES.get(change.change, ""))),
        ),
        keys=[pair.row.key for pair, _, _ in found],
        virtual=[pair.row.is_virtual for pair, _, _ in found],
        groups=[str(number) for _, number, _ in found],
    )


def _sustained(rows: Sequence[ResultRow]) -> Grid:
    owners, runs = _parts(rows, lambda row: row.sustained)
    return _grid(
        "sustained",
        "Sustained runs: how fast at first, how fast when warm",
        owners,
        count_of(runs, "attempt", lambda run: run.attempt),
        choice_of(runs, "length", lambda run: "whole" if run.is_whole else "cut"),
        ms_of(runs, "burst", lambda run: run.curve.burst_us),
        ms_of(runs, "steady", lambda run: run.curve.steady_us),
        number_of(runs, "slowdown", "%", lambda run: (run.curve.slowdown - 1) * 100, 1),
        number_of(runs, "slower from", "s", lambda run: run.curve.onset_s, 0),
        number_of(runs, "duration", "s", lambda run: run.curve.duration_s, 0),
        count_of(runs, "invocations", lambda run: run.curve.count),
    )
