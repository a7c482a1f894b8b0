"""The page's tables, made from the rows of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from orchestrator.analysis.energy import Mean
from orchestrator.records.verdict import Quality
from orchestrator.report.data import BestMark, DiffPair, ReportData, ResultRow
from orchestrator.report.grids import Column, Grid, badge_of, choice_of, column_of, count_of, number_of
from orchestrator.report.labels import NOTHING, PARITY_CLASSES, PARITY_WORDS
from orchestrator.report.matrix import figures_decimals
from orchestrator.report.operators import Place
from orchestrator.report.scaling import DelegateStep, ThreadStep, delegate_steps, thread_steps
from orchestrator.report.shared import SharedCase, shared_cases
from orchestrator.report.tables import delegate_text, has_mean, quality_text, speeds
from orchestrator.units import US_PER_MS

_CHANGE_CLASSES: Final = {
    "left the delegate": "v-error",
    "slower": "v-warning",
    "taken by a delegate": "q-trusted",
    "faster": "q-trusted",
}


def has_memory(row: ResultRow) -> bool:
    """Whether it is known how much memory a case took."""
    return any(part is not None for part in (row.init_memory_mib, row.overall_memory_mib, row.peak_memory_mib))


def grids_of(data: ReportData) -> Mapping[str, Grid]:
    """Return the tables that have rows, by name; ``results`` is always among them."""
    rows = data.results
    grids = (
        _results(rows),
        _starts([row for row in rows if row.result.own_summary is not None or has_memory(row)]),
        _stages(rows),
        _energy(rows),
        _accuracy(rows),
        _loads(rows),
        _shared(shared_cases(rows)),
        _threads(thread_steps(rows)),
        _delegates(delegate_steps(rows)),
        _operators([row for row in rows if row.profiles]),
        _types([row for row in rows if row.profiles]),
        _changes(data.diffs),
        _sustained(rows),
    )
    return {grid.name: grid for grid in grids if grid.count or grid.name == "results"}


def _grid(name: str, caption: str, owners: Sequence[ResultRow], columns: Sequence[Column], **other: object) -> Grid:
    return Grid(
        name=name,
        caption=caption,
        columns=(*_who(owners), *columns),
        keys=[row.key for row in owners],
        virtual=[row.is_virtual for row in owners],
        **other,  # type: ignore[arg-type]
    )


def _who(owners: Sequence[ResultRow]) -> tuple[Column, ...]:
    return (
        column_of(owners, "model", lambda row: row.model.label, kind="case", is_choice=True),
        column_of(owners, "device", lambda row: row.device.title, is_choice=True),
        column_of(owners, "configuration", lambda row: row.configuration, is_choice=True),
    )


def _ms(value_us: float | None) -> float | None:
    return None if value_us is None else value_us / US_PER_MS


def _percent(share: float | None) -> float | None:
    return None if share is None else share * 100


def _median_ms(row: ResultRow) -> float | None:
    return _ms(row.result.own_summary.median_us) if row.result.own_summary is not None else None


def _truth_column(rows: Sequence[ResultRow]) -> Column:
    def of(row: ResultRow) -> tuple[str, str]:
        return delegate_text(row), f"t-{row.result.truth.value}" if row.result.truth is not None else ""

    return badge_of(rows, "delegate", of)


def _quality_column(rows: Sequence[ResultRow]) -> Column:
    def of(row: ResultRow) -> tuple[str, str]:
        return quality_text(row), f"q-{row.result.quality.value if row.result.quality is not None else 'none'}"

    return badge_of(rows, "quality", of)


def _plain_quality(qualities: Sequence[Quality]) -> Column:
    return badge_of(qualities, "quality", lambda quality: (quality.word, f"q-{quality.value}"), is_choice=False)


def _parity_columns(rows: Sequence[ResultRow]) -> Sequence[Column]:
    """Return the column of what the outputs are worth, where any were compared."""
    found = [row.result.parity for row in rows]
    words = {None: ("", "")} | {verdict: (PARITY_WORDS[verdict], PARITY_CLASSES[verdict]) for verdict in PARITY_WORDS}
    return (badge_of(found, "outputs", lambda verdict: words[verdict]),) if any(found) else ()


def _kind_columns(rows: Sequence[ResultRow]) -> Sequence[Column]:
    """Return the column that says whose figure is made of means, where any is."""
    if not any(map(has_mean, rows)):
        return ()
    return (badge_of(rows, "figure", lambda row: (row.result.figure.value if row.result.own_summary else "", "")),)


def _results(rows: Sequence[ResultRow]) -> Grid:
    summaries = [row.result.own_summary for row in rows]
    intervals = [summary.interval if summary is not None else None for summary in summaries]
    # A median and its interval are read together.
    digits = figures_decimals(rows)
    best = {BestMark.BEST: ("★ fastest", "best"), BestMark.TIED: ("≈ tied", "tied"), BestMark.NONE: ("", "")}
    columns = [
        number_of(rows, "median", "ms", _median_ms, digits),
        *_kind_columns(rows),
        number_of(intervals, "from", "ms, 95 %", lambda interval: _ms(interval.low) if interval else None, digits),
        number_of(intervals, "to", "ms, 95 %", lambda interval: _ms(interval.high) if interval else None, digits),
        number_of(summaries, "spread", "±%", lambda summary: _percent(summary.spread) if summary else None, 1),
        *_speed_columns(rows),
        number_of(rows, "speed-up", "x CPU", lambda row: row.speed_up.value if row.speed_up is not None else None, 2),
        badge_of(rows, "rank", lambda row: best[row.best]),
        _truth_column(rows),
        _quality_column(rows),
        *_parity_columns(rows),
        choice_of(rows, "grade", lambda row: row.grade.value if row.grade is not None else NOTHING),
        column_of(rows, "why not", lambda row: row.result.reason_code),
        count_of(rows, "runs", lambda row: len(row.result.used) if row.result.own_summary is not None else 0, "used"),
        count_of(rows, "of", lambda row: row.result.ended, "ended"),
        choice_of(rows, "speed-up over", lambda row: row.baseline),
    ]
    judged = [row.result.is_judged for row in rows]
    return _grid("results", "One row for each case", rows, columns, judged=judged)


def _speed_columns(rows: Sequence[ResultRow]) -> Sequence[Column]:
    """Return the columns of language models' tokens per second with their intervals, where there are any."""
    if not any(row.case.is_per_token for row in rows):
        return ()
    records = [speeds(row) for row in rows]
    labels = (("speed", "tokens/s"), ("speed from", "tokens/s, 95 %"), ("speed to", "tokens/s, 95 %"))
    return [
        number_of([record[place] for record in records], label, unit, lambda speed: speed, 1)
        for place, (label, unit) in enumerate(labels)
    ]


def _starts(rows: Sequence[ResultRow]) -> Grid:
    columns = [
        number_of(rows, "init", "ms", lambda row: _ms(row.init_us)),
        number_of(rows, "first inference", "ms", lambda row: _ms(row.first_us)),
        number_of(rows, "warm-up", "ms", lambda row: _ms(row.warmup_us)),
        number_of(rows, "median", "ms", _median_ms),
        *_kind_columns(rows),
        number_of(rows, "memory after init", "MB", lambda row: row.init_memory_mib, 1),
        number_of(rows, "memory overall", "MB", lambda row: row.overall_memory_mib, 1),
        number_of(rows, "peak memory", "MB", lambda row: row.peak_memory_mib, 1),
    ]
    caption = "Initialisation, first inference and memory of each case that has any of them"
    return _grid("starts", caption, rows, columns)


def _stages(rows: Sequence[ResultRow]) -> Grid:
    pairs = [(row, start) for row in rows for start in row.starts]
    owners, starts = [row for row, _ in pairs], [start for _, start in pairs]
    columns = [
        choice_of(starts, "stage", lambda start: start.stage.value),
        number_of(starts, "init", "ms", lambda start: _ms(start.init_us)),
        number_of(starts, "first inference", "ms", lambda start: _ms(start.first_us)),
        count_of(starts, "processes", lambda start: start.count),
        _plain_quality([start.quality for start in starts]),
    ]
    return _grid("stages", "Initialisation and first inference of each case by stage", owners, columns)


def _energy(rows: Sequence[ResultRow]) -> Grid:
    owners = [row for row in rows if row.energy is not None]
    energies = [row.energy for row in owners if row.energy is not None]
    columns = [
        number_of(energies, "net", "mJ", lambda energy: _mj(energy.net_uj)),
        number_of(energies, "± 95 %", "%", lambda energy: _half_percent(energy.net_uj), 1),
        number_of(energies, "gross", "mJ", lambda energy: _mj(energy.gross_uj)),
        count_of(energies, "blocks", lambda energy: len(energy.blocks)),
        number_of(energies, "rests differ by", "%", lambda energy: _percent(energy.drift), 1),
        choice_of(energies, "by", lambda energy: energy.grade),
        _plain_quality([energy.quality for energy in energies]),
        column_of(energies, "rails", lambda energy: " ".join(energy.rails)),
    ]
    if any(energy.missing for energy in energies):
        told = ["; ".join(f"{why} ({count})" for why, count in energy.missing) for energy in energies]
        columns.append(Column(label="blocks without a figure", values=told))
    return _grid("energy", "Energy of an inference above the phone's at rest", owners, columns)


def _mj(mean: Mean | None) -> float | None:
    return None if mean is None else mean.value / 1e3


def _half_percent(mean: Mean | None) -> float | None:
    return None if mean is None or mean.half_width is None else 100 * mean.half_width / mean.value


def _accuracy(rows: Sequence[ResultRow]) -> Grid:
    pairs = [(row, each) for row in rows for each in row.evaluations]
    summaries = [row.result.own_summary for row, _ in pairs]
    columns = [
        column_of(summaries, "median", lambda own: _ms(own.median_us) if own else None, kind="number", unit="ms"),
        column_of(pairs, "accuracy", lambda pair: pair[1].percent, kind="number", unit="%", digits=2),
        column_of(pairs, "found", lambda pair: pair[1].text),
        column_of(pairs, "doubt", lambda pair: pair[1].reason),
    ]
    return _grid("accuracy", "Accuracy as LiteRT's evaluation programs found it", [row for row, _ in pairs], columns)


def _loads(rows: Sequence[ResultRow]) -> Grid:
    pairs = [(row, load) for row in rows for load in row.loads]
    owners, loads = [row for row, _ in pairs], [load for _, load in pairs]
    columns = [
        choice_of(loads, "load", lambda load: load.load),
        number_of(loads, "median", "ms", lambda load: _ms(load.median_us)),
        number_of(loads, "times as long", "", lambda load: load.factor.value if load.factor else None, 3),
        number_of(loads, "± 95 %", "%", lambda load: _percent(load.factor.half_width) if load.factor else None, 1),
        count_of(loads, "runs", lambda load: load.count),
        number_of(loads, "load kept busy", "cores", lambda load: load.cores, 1),
        count_of(loads, "load died", lambda load: load.died or None),
    ]
    return _grid("loads", "Each case beside loads, against itself alone", owners, columns)


def _shared(cases: Sequence[SharedCase]) -> Grid:
    known = [(case.rows[0], case.figure) for case in cases if case.figure is not None]
    # Of the group, not of the phone whose part comes first.
    rows = [replace(row, device=replace(row.device, label=row.case.shard)) for row, _ in known]
    figures = [figure for _, figure in known]
    each = [", ".join(f"{serial} {us / US_PER_MS:.4g} ms" for serial, (us, _) in one.phones.items()) for one in figures]
    columns = [
        count_of(figures, "phones", lambda figure: len(figure.phones)),
        count_of(figures, "invocations", lambda figure: figure.invocations),
        number_of(figures, "middle of the phones", "ms", lambda figure: _ms(figure.middle_us)),
        number_of(figures, "95 % from", "ms", lambda figure: _ms(figure.low_us)),
        number_of(figures, "to", "ms", lambda figure: _ms(figure.high_us)),
        number_of(figures, "phones differ by", "%", lambda figure: 100 * figure.difference),
        Column(label="each phone", values=each),
    ]
    return _grid("shared", "Cases that equal phones share, and how much the phones differ", rows, columns)


def _threads(steps: Sequence[ThreadStep]) -> Grid:
    rows = [step.row for step in steps]
    columns = [
        count_of(rows, "threads", lambda row: row.case.threads),
        number_of(rows, "median", "ms", _median_ms),
        *_kind_columns(rows),
        number_of(steps, "speed-up", "x fewest threads", lambda step: step.speed_up, 2),
        number_of(steps, "efficiency", "% per thread", lambda step: step.efficiency * 100, 0),
        _quality_column(rows),
    ]
    return _grid("threads", "Thread scaling of each case that was measured with several numbers", rows, columns)


def _delegates(steps: Sequence[DelegateStep]) -> Grid:
    rows = [step.row for step in steps]
    columns = [
        number_of(steps, "speed-up", "x CPU", lambda step: step.speed_up, 2),
        number_of(rows, "median", "ms", _median_ms),
        *_kind_columns(rows),
        _truth_column(rows),
        count_of(steps, "delegated", lambda step: step.delegated_nodes, "nodes"),
        count_of(steps, "of", lambda step: step.total_nodes, "nodes"),
        _quality_column(rows),
        column_of(steps, "left to the CPU", lambda step: step.fallen_off or NOTHING),
    ]
    return _grid("delegates", "What each delegate brought, and which operators fell off it", rows, columns)


def _operators(rows: Sequence[ResultRow]) -> Grid:
    profiles = [(row, row.profiles[-1]) for row in rows]
    # What an operator such as WHILE runs stands after it all: its time is in the operator's own.
    found = [
        (row, number, node)
        for row, profile in profiles
        for number, node in enumerate((*profile.rows, *profile.nested), start=1)
    ]
    nodes = [node for _, _, node in found]
    subgraphs = [choice_of(nodes, "inside of", lambda node: node.subgraph or NOTHING)]
    columns = [
        count_of(found, "order", lambda item: item[1]),
        *(subgraphs if any(profile.nested for _, profile in profiles) else ()),
        choice_of(nodes, "type", lambda node: node.node_type),
        column_of(nodes, "node", lambda node: node.name),
        _place_column([node.place for node in nodes]),
        number_of(nodes, "time", "ms", lambda node: _ms(node.mean_us), 3),
        number_of(nodes, "share", "%", lambda node: node.share * 100, 1),
    ]
    owners = [row for row, _, _ in found]
    return _grid("operators", "Operators in the order in which they ran", owners, columns)


def _types(rows: Sequence[ResultRow]) -> Grid:
    found = [(row, kind) for row in rows for kind in row.profiles[-1].by_type()]
    owners, types = [row for row, _ in found], [kind for _, kind in found]
    columns = [
        choice_of(types, "type", lambda kind: kind.node_type),
        _place_column([kind.place for kind in types]),
        count_of(types, "nodes", lambda kind: kind.nodes),
        number_of(types, "time", "ms", lambda kind: _ms(kind.mean_us), 3),
        number_of(types, "share", "%", lambda kind: kind.share * 100, 1),
    ]
    return _grid("types", "Time by type of operator", owners, columns)


def _place_column(places: Sequence[Place]) -> Column:
    return badge_of(places, "where", lambda place: (place.value, "t-full" if place is Place.DELEGATE else ""))


def _changes(pairs: Sequence[DiffPair]) -> Grid:
    found = [(pair, number, change) for number, pair in enumerate(pairs) for change in pair.diff.rows]
    changes = [change for _, _, change in found]
    columns = [
        choice_of(changes, "type", lambda change: change.node_type),
        column_of(changes, "node", lambda change: change.name),
        number_of(changes, "before", "ms", lambda change: _ms(change.before_us), 3),
        number_of(changes, "after", "ms", lambda change: _ms(change.after_us), 3),
        number_of(changes, "difference", "ms", lambda change: _ms(change.difference_us), 3),
        badge_of(changes, "change", lambda change: (change.change, _CHANGE_CLASSES.get(change.change, ""))),
    ]
    return Grid(
        name="changes",
        caption="Operators of two runs, largest difference first",
        columns=columns,
        keys=[pair.row.key for pair, _, _ in found],
        virtual=[pair.row.is_virtual for pair, _, _ in found],
        groups=[str(number) for _, number, _ in found],
    )


def _sustained(rows: Sequence[ResultRow]) -> Grid:
    pairs = [(row, run) for row in rows for run in row.sustained]
    owners, runs = [row for row, _ in pairs], [run for _, run in pairs]
    columns = [
        count_of(runs, "attempt", lambda run: run.attempt),
        choice_of(runs, "length", lambda run: "whole" if run.is_whole else "cut"),
        number_of(runs, "burst", "ms", lambda run: _ms(run.curve.burst_us)),
        number_of(runs, "steady", "ms", lambda run: _ms(run.curve.steady_us)),
        number_of(runs, "slowdown", "%", lambda run: (run.curve.slowdown - 1) * 100, 1),
        number_of(runs, "slower from", "s", lambda run: run.curve.onset_s, 0),
        number_of(runs, "duration", "s", lambda run: run.curve.duration_s, 0),
        count_of(runs, "invocations", lambda run: run.curve.count),
    ]
    return _grid("sustained", "Sustained runs: how fast at first, how fast when warm", owners, columns)
