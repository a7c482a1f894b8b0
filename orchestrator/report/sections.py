"""The page's tables, made from the rows of a report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from orchestrator.analysis.energy import Mean
from orchestrator.report.data import BestMark, DiffPair, ReportData, ResultRow
from orchestrator.report.grids import Column, Grid, column_of
from orchestrator.report.labels import NOTHING, PARITY_CLASSES, PARITY_WORDS
from orchestrator.report.matrix import figures_decimals
from orchestrator.report.operators import OperatorRow, Place, TypeRow
from orchestrator.report.scaling import DelegateStep, ThreadStep, delegate_steps, thread_steps
from orchestrator.report.shared import SharedCase, shared_cases
from orchestrator.report.tables import delegate_text, has_mean, quality_text
from orchestrator.units import US_PER_MS, tokens_per_s

_BEST_WORDS: Final = {BestMark.BEST: "★ fastest", BestMark.TIED: "≈ tied", BestMark.NONE: ""}
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


def _badge(owners: Sequence[ResultRow], label: str, words: Sequence[str], classes: Sequence[str]) -> Column:
    assert len(words) == len(owners)
    return Column(label=label, kind="badge", values=words, classes=classes, is_choice=True)


def _truth_column(rows: Sequence[ResultRow]) -> Column:
    classes = [f"t-{row.result.truth.value}" if row.result.truth is not None else "" for row in rows]
    return _badge(rows, "delegate", [delegate_text(row) for row in rows], classes)


def _quality_column(rows: Sequence[ResultRow]) -> Column:
    classes = [f"q-{row.result.quality.value}" if row.result.quality is not None else "q-none" for row in rows]
    return _badge(rows, "quality", [quality_text(row) for row in rows], classes)


def _parity_columns(rows: Sequence[ResultRow]) -> Sequence[Column]:
    """Return the column of what the outputs are worth, where any were compared."""
    found = [row.result.parity for row in rows]
    if not any(found):
        return ()
    words = [PARITY_WORDS[verdict] if verdict is not None else "" for verdict in found]
    classes = [PARITY_CLASSES[verdict] if verdict is not None else "" for verdict in found]
    return (_badge(rows, "outputs", words, classes),)


def _kind_columns(rows: Sequence[ResultRow]) -> Sequence[Column]:
    """Return the column that says whose figure is made of means, where any is."""
    if not any(map(has_mean, rows)):
        return ()
    kinds = [row.result.figure.value if row.result.own_summary is not None else "" for row in rows]
    return (_badge(rows, "figure", kinds, [""] * len(kinds)),)


def _results(rows: Sequence[ResultRow]) -> Grid:
    summaries = [row.result.own_summary for row in rows]
    intervals = [summary.interval if summary is not None else None for summary in summaries]
    # A median and its interval are read together.
    digits = figures_decimals(rows)
    columns = [
        Column(
            label="median",
            kind="number",
            unit="ms",
            digits=digits,
            values=[_ms(summary.median_us) if summary is not None else None for summary in summaries],
        ),
        *_kind_columns(rows),
        Column(
            label="from",
            kind="number",
            unit="ms, 95 %",
            digits=digits,
            values=[_ms(interval.low) if interval is not None else None for interval in intervals],
        ),
        Column(
            label="to",
            kind="number",
            unit="ms, 95 %",
            digits=digits,
            values=[_ms(interval.high) if interval is not None else None for interval in intervals],
        ),
        Column(
            label="spread",
            kind="number",
            unit="±%",
            digits=1,
            values=[
                summary.spread * 100 if summary is not None and summary.spread is not None else None
                for summary in summaries
            ],
        ),
        *_speed_columns(rows),
        column_of(
            rows,
            "speed-up",
            lambda row: row.speed_up.value if row.speed_up is not None else None,
            kind="number",
            unit="x CPU",
            digits=2,
        ),
        _badge(rows, "rank", [_BEST_WORDS[row.best] for row in rows], [_best_class(row) for row in rows]),
        _truth_column(rows),
        _quality_column(rows),
        *_parity_columns(rows),
        column_of(rows, "grade", lambda row: row.grade.value if row.grade is not None else NOTHING, is_choice=True),
        column_of(rows, "why not", lambda row: row.result.reason_code),
        column_of(
            rows,
            "runs",
            lambda row: float(len(row.result.used)) if row.result.own_summary is not None else 0.0,
            kind="number",
            unit="used",
            digits=0,
        ),
        column_of(rows, "of", lambda row: float(row.result.ended), kind="number", unit="ended", digits=0),
        column_of(rows, "speed-up over", lambda row: row.baseline, is_choice=True),
    ]
    judged = [row.result.is_judged for row in rows]
    return _grid("results", "One row for each case", rows, columns, judged=judged)


def _speed_columns(rows: Sequence[ResultRow]) -> Sequence[Column]:
    """Return the columns of language models' tokens per second with their intervals, where there are any."""
    if not any(row.case.is_per_token for row in rows):
        return ()
    records = [_speeds(row) for row in rows]
    labels = (("speed", "tokens/s"), ("speed from", "tokens/s, 95 %"), ("speed to", "tokens/s, 95 %"))
    return [
        Column(label=label, kind="number", unit=unit, digits=1, values=[record[place] for record in records])
        for place, (label, unit) in enumerate(labels)
    ]


def _speeds(row: ResultRow) -> tuple[float | None, float | None, float | None]:
    own = row.result.own_summary if row.case.is_per_token else None
    interval = own.interval if own is not None else None
    high, low = (interval.low, interval.high) if interval is not None else (None, None)
    return tokens_per_s(own.median_us if own is not None else None), tokens_per_s(low), tokens_per_s(high)


def _best_class(row: ResultRow) -> str:
    return {BestMark.BEST: "best", BestMark.TIED: "tied", BestMark.NONE: ""}[row.best]


def _starts(rows: Sequence[ResultRow]) -> Grid:
    columns = [
        column_of(rows, "init", lambda row: _ms(row.init_us), kind="number", unit="ms"),
        column_of(rows, "first inference", lambda row: _ms(row.first_us), kind="number", unit="ms"),
        column_of(rows, "warm-up", lambda row: _ms(row.warmup_us), kind="number", unit="ms"),
        column_of(rows, "median", _median_ms, kind="number", unit="ms"),
        *_kind_columns(rows),
        column_of(rows, "memory after init", lambda row: row.init_memory_mib, kind="number", unit="MB", digits=1),
        column_of(rows, "memory overall", lambda row: row.overall_memory_mib, kind="number", unit="MB", digits=1),
        column_of(rows, "peak memory", lambda row: row.peak_memory_mib, kind="number", unit="MB", digits=1),
    ]
    return _grid(
        "starts", "Initialisation, first inference and memory of each case that has any of them", rows, columns
    )


def _median_ms(row: ResultRow) -> float | None:
    summary = row.result.own_summary
    return None if summary is None else summary.median_us / US_PER_MS


def _stages(rows: Sequence[ResultRow]) -> Grid:
    pairs = [(row, start) for row in rows for start in row.starts]
    columns = [
        column_of(pairs, "stage", lambda pair: pair[1].stage.value, is_choice=True),
        column_of(pairs, "init", lambda pair: _ms(pair[1].init_us), kind="number", unit="ms"),
        column_of(pairs, "first inference", lambda pair: _ms(pair[1].first_us), kind="number", unit="ms"),
        column_of(pairs, "processes", lambda pair: float(pair[1].count), kind="number", digits=0),
        Column(
            label="quality",
            kind="badge",
            values=[start.quality.word for _, start in pairs],
            classes=[f"q-{start.quality.value}" for _, start in pairs],
        ),
    ]
    return _grid(
        "stages", "Initialisation and first inference of each case by stage", [row for row, _ in pairs], columns
    )


def _energy(rows: Sequence[ResultRow]) -> Grid:
    pairs = [(row, row.energy) for row in rows if row.energy is not None]
    columns = [
        column_of(pairs, "net", lambda pair: _mj(pair[1].net_uj), kind="number", unit="mJ"),
        column_of(
            pairs,
            "± 95 %",
            lambda pair: (
                100 * pair[1].net_uj.half_width / pair[1].net_uj.value
                if pair[1].net_uj is not None and pair[1].net_uj.half_width is not None
                else None
            ),
            kind="number",
            unit="%",
            digits=1,
        ),
        column_of(pairs, "gross", lambda pair: _mj(pair[1].gross_uj), kind="number", unit="mJ"),
        column_of(pairs, "blocks", lambda pair: float(len(pair[1].blocks)), kind="number", digits=0),
        column_of(pairs, "rests differ by", lambda pair: _share(pair[1].drift), kind="number", unit="%", digits=1),
        column_of(pairs, "by", lambda pair: pair[1].grade, is_choice=True),
        Column(
            label="quality",
            kind="badge",
            values=[energy.quality.word for _, energy in pairs],
            classes=[f"q-{energy.quality.value}" for _, energy in pairs],
        ),
        column_of(pairs, "rails", lambda pair: " ".join(pair[1].rails)),
    ]
    if any(energy.missing for _, energy in pairs):
        told = ["; ".join(f"{why} ({count})" for why, count in energy.missing) for _, energy in pairs]
        columns.append(Column(label="blocks without a figure", values=told))
    return _grid("energy", "Energy of an inference above the phone's at rest", [row for row, _ in pairs], columns)


def _mj(mean: Mean | None) -> float | None:
    return None if mean is None else mean.value / 1e3


def _share(value: float | None) -> float | None:
    return None if value is None else 100 * value


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
    factors = [load.factor for _, load in pairs]
    columns = [
        column_of(pairs, "load", lambda pair: pair[1].load, is_choice=True),
        column_of(pairs, "median", lambda pair: _ms(pair[1].median_us), kind="number", unit="ms"),
        column_of(factors, "times as long", lambda factor: factor.value if factor else None, kind="number", digits=3),
        column_of(
            factors,
            "± 95 %",
            lambda factor: _share(factor.half_width) if factor else None,
            kind="number",
            unit="%",
            digits=1,
        ),
        column_of(pairs, "runs", lambda pair: float(pair[1].count), kind="number", digits=0),
        column_of(pairs, "load kept busy", lambda pair: pair[1].cores, kind="number", unit="cores", digits=1),
        column_of(pairs, "load died", lambda pair: float(pair[1].died) or None, kind="number", digits=0),
    ]
    return _grid("loads", "Each case beside loads, against itself alone", [row for row, _ in pairs], columns)


def _shared(cases: Sequence[SharedCase]) -> Grid:
    known = [(case.rows[0], case.figure) for case in cases if case.figure is not None]
    # Of the group, not of the phone whose part comes first.
    rows = [replace(row, device=replace(row.device, label=row.case.shard)) for row, _ in known]
    figures = [figure for _, figure in known]
    columns = [
        column_of(figures, "phones", lambda figure: float(len(figure.phones)), kind="number", digits=0),
        column_of(figures, "invocations", lambda figure: float(figure.invocations), kind="number", digits=0),
        column_of(figures, "middle of the phones", lambda figure: _ms(figure.middle_us), kind="number", unit="ms"),
        column_of(figures, "95 % from", lambda figure: _ms(figure.low_us), kind="number", unit="ms"),
        column_of(figures, "to", lambda figure: _ms(figure.high_us), kind="number", unit="ms"),
        column_of(figures, "phones differ by", lambda figure: 100 * figure.difference, kind="number", unit="%"),
        column_of(
            figures,
            "each phone",
            lambda figure: ", ".join(
                f"{serial} {median_us / US_PER_MS:.4g} ms" for serial, (median_us, _) in figure.phones.items()
            ),
        ),
    ]
    return _grid("shared", "Cases that equal phones share, and how much the phones differ", rows, columns)


def _threads(steps: Sequence[ThreadStep]) -> Grid:
    rows = [step.row for step in steps]
    columns = [
        column_of(steps, "threads", lambda step: float(step.row.case.threads), kind="number", digits=0),
        column_of(rows, "median", _median_ms, kind="number", unit="ms"),
        *_kind_columns(rows),
        column_of(steps, "speed-up", lambda step: step.speed_up, kind="number", unit="x fewest threads", digits=2),
        column_of(
            steps, "efficiency", lambda step: step.efficiency * 100, kind="number", unit="% per thread", digits=0
        ),
        _quality_column(rows),
    ]
    return _grid("threads", "Thread scaling of each case that was measured with several numbers", rows, columns)


def _delegates(steps: Sequence[DelegateStep]) -> Grid:
    rows = [step.row for step in steps]
    columns = [
        column_of(steps, "speed-up", lambda step: step.speed_up, kind="number", unit="x CPU", digits=2),
        column_of(rows, "median", _median_ms, kind="number", unit="ms"),
        *_kind_columns(rows),
        _truth_column(rows),
        column_of(steps, "delegated", lambda step: _whole(step.delegated_nodes), kind="number", digits=0, unit="nodes"),
        column_of(steps, "of", lambda step: _whole(step.total_nodes), kind="number", digits=0, unit="nodes"),
        _quality_column(rows),
        column_of(steps, "left to the CPU", lambda step: step.fallen_off or NOTHING),
    ]
    return _grid("delegates", "What each delegate brought, and which operators fell off it", rows, columns)


def _whole(number: int | None) -> float | None:
    return None if number is None else float(number)


def _operators(rows: Sequence[ResultRow]) -> Grid:
    profiles = [(row, row.profiles[-1]) for row in rows]
    # What an operator such as WHILE runs stands after it all: its time is in the operator's own.
    nodes = [
        (row, number, node)
        for row, profile in profiles
        for number, node in enumerate((*profile.rows, *profile.nested), start=1)
    ]
    owners = [row for row, _, _ in nodes]
    subgraphs = [column_of(nodes, "inside of", lambda item: item[2].subgraph or NOTHING, is_choice=True)]
    columns = [
        column_of(nodes, "order", lambda item: float(item[1]), kind="number", digits=0),
        *(subgraphs if any(profile.nested for _, profile in profiles) else ()),
        column_of(nodes, "type", lambda item: item[2].node_type, is_choice=True),
        column_of(nodes, "node", lambda item: item[2].name),
        _place_column([node for _, _, node in nodes]),
        column_of(nodes, "time", lambda item: _ms(item[2].mean_us), kind="number", unit="ms", digits=3),
        column_of(nodes, "share", lambda item: item[2].share * 100, kind="number", unit="%", digits=1),
    ]
    return _grid("operators", "Operators in the order in which they ran", owners, columns)


def _types(rows: Sequence[ResultRow]) -> Grid:
    types = [(row, kind) for row in rows for kind in row.profiles[-1].by_type()]
    columns = [
        column_of(types, "type", lambda item: item[1].node_type, is_choice=True),
        _place_column([kind for _, kind in types]),
        column_of(types, "nodes", lambda item: float(item[1].nodes), kind="number", digits=0),
        column_of(types, "time", lambda item: _ms(item[1].mean_us), kind="number", unit="ms", digits=3),
        column_of(types, "share", lambda item: item[1].share * 100, kind="number", unit="%", digits=1),
    ]
    return _grid("types", "Time by type of operator", [row for row, _ in types], columns)


def _place_column(nodes: Sequence[OperatorRow] | Sequence[TypeRow]) -> Column:
    return Column(
        label="where",
        kind="badge",
        values=[node.place.value for node in nodes],
        classes=["t-full" if node.place is Place.DELEGATE else "" for node in nodes],
        is_choice=True,
    )


def _changes(pairs: Sequence[DiffPair]) -> Grid:
    changes = [(pair, number, row) for number, pair in enumerate(pairs) for row in pair.diff.rows]
    columns = [
        column_of(changes, "type", lambda item: item[2].node_type, is_choice=True),
        column_of(changes, "node", lambda item: item[2].name),
        column_of(changes, "before", lambda item: _ms(item[2].before_us), kind="number", unit="ms", digits=3),
        column_of(changes, "after", lambda item: _ms(item[2].after_us), kind="number", unit="ms", digits=3),
        column_of(changes, "difference", lambda item: _ms(item[2].difference_us), kind="number", unit="ms", digits=3),
        Column(
            label="change",
            kind="badge",
            values=[row.change for _, _, row in changes],
            classes=[_CHANGE_CLASSES.get(row.change, "") for _, _, row in changes],
            is_choice=True,
        ),
    ]
    return Grid(
        name="changes",
        caption="Operators of two runs, largest difference first",
        columns=columns,
        keys=[pair.row.key for pair, _, _ in changes],
        virtual=[pair.row.is_virtual for pair, _, _ in changes],
        groups=[str(number) for _, number, _ in changes],
    )


def _sustained(rows: Sequence[ResultRow]) -> Grid:
    pairs = [(row, run) for row in rows for run in row.sustained]
    columns = [
        column_of(pairs, "attempt", lambda pair: float(pair[1].attempt), kind="number", digits=0),
        column_of(pairs, "length", lambda pair: "whole" if pair[1].is_whole else "cut", is_choice=True),
        column_of(pairs, "burst", lambda pair: _ms(pair[1].curve.burst_us), kind="number", unit="ms"),
        column_of(pairs, "steady", lambda pair: _ms(pair[1].curve.steady_us), kind="number", unit="ms"),
        column_of(
            pairs, "slowdown", lambda pair: (pair[1].curve.slowdown - 1) * 100, kind="number", unit="%", digits=1
        ),
        column_of(pairs, "slower from", lambda pair: pair[1].curve.onset_s, kind="number", unit="s", digits=0),
        column_of(pairs, "duration", lambda pair: pair[1].curve.duration_s, kind="number", unit="s", digits=0),
        column_of(pairs, "invocations", lambda pair: float(pair[1].curve.count), kind="number", digits=0),
    ]
    return _grid(
        "sustained", "Sustained runs: how fast at first, how fast when warm", [row for row, _ in pairs], columns
    )
