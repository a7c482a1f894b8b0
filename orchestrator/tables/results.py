"""The columns of a case and of its parts, for reports, exports and frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final, TypeVar

from orchestrator.analysis.case_result import CaseStatus
from orchestrator.analysis.effect import Ratio
from orchestrator.analysis.quality import figure_us, truth_of
from orchestrator.analysis.summary import Summary
from orchestrator.records.campaign import Campaign
from orchestrator.records.device import DeviceState
from orchestrator.records.run import DelegateEvidence, DelegateTruth, RunRecord
from orchestrator.records.verdict import Quality, Severity
from orchestrator.tables.devices import origin_of
from orchestrator.tables.findings import FINDINGS
from orchestrator.tables.labels import OUTPUT_CLASSES, figure_text
from orchestrator.tables.passes import PassTable, quality_class
from orchestrator.tables.rows import (
    BestMark,
    DeviceRow,
    ModelRow,
    ResultRow,
)
from orchestrator.tables.runs import RUNS
from orchestrator.tables.table import (
    DATA,
    EVERYWHERE,
    FLAT,
    IS_VIRTUAL,
    MS,
    NESTED,
    NOTHING,
    PAGE,
    Column,
    Kind,
    Table,
    column_decimals,
    record_of,
)
from orchestrator.units import US_PER_MS, format_bytes, tokens_per_s

Item = TypeVar("Item")
#: Times, exported to the nanosecond.
_MS: Final[dict[str, Any]] = {**MS, "exact": 3}
#: Before a configuration in text.
MARKS: Final = {
    BestMark.BEST: "*",
    BestMark.TIED: "=",
    BestMark.ALONE: "*",
    BestMark.UNTESTED: "*",
    BestMark.NONE: " ",
}


def figures_decimals(rows: Sequence[ResultRow]) -> int:
    """Return the decimals that a column of these cases' medians in milliseconds needs."""
    timed = [row for row in rows if not row.case.is_per_token] or rows
    return column_decimals([row.summary.median_us / US_PER_MS for row in timed if row.summary])


def _winner_class(row: ResultRow) -> str:
    if row.best is BestMark.NONE:
        return ""
    return "v-best" if row.is_proven_best else "v-tied"


def _quality(row: ResultRow) -> str:
    is_fake = row.is_virtual and not row.device.is_virtual
    return f"{row.quality_text}{', virtual' if is_fake else ''}"


def _of_summary(column: Column[Summary]) -> Column[ResultRow]:
    return column.of(lambda row: row.own_summary)


def _low(item: Ratio | Summary) -> float | None:
    return item.interval.low if item.interval else None


def _high(item: Ratio | Summary) -> float | None:
    return item.interval.high if item.interval else None


def ratio_columns(name: str, exact: int | None = None) -> Sequence[Column[Ratio]]:
    """Return the columns of a ratio for exports: the ratio and the ends of its interval."""
    return [
        Column(f"{name}{end}", "", value, Kind.NUMBER, exact=exact, forms=DATA)
        for end, value in (("", attrgetter("value")), ("_low", _low), ("_high", _high))
    ]


def _memory(name: str, head: str) -> Column[ResultRow]:
    return Column(name, head, kind=Kind.NUMBER, unit="MiB", digits=1, exact=3, forms=DATA)


def _speed(name: str, head: str, place: int, unit: str, **other: Any) -> Column[ResultRow]:  # noqa: ANN401
    return Column(
        name,
        head,
        lambda row: row.speeds[place],
        Kind.NUMBER,
        unit,
        digits=1,
        exact=3,
        is_optional=True,
        **other,
    )


def _tokens(row: ResultRow) -> str | None:
    """Return a speed as people read it: no decimals from 100 tokens per second on."""
    return None if row.speeds[0] is None else figure_text(row.case, row.median_us, 0)


CASE_NAMES: Final[Sequence[Column[ResultRow]]] = (
    Column("model", value=lambda row: row.model.label, opens=True, is_choice=True),
    Column("device", value=lambda row: row.device.title, is_choice=True),
    Column("configuration", value=lambda row: row.configuration, is_choice=True),
)
#: The case's median, optional beside other figures.
_MEDIAN: Final = replace(
    _of_summary(Column("median_us", "median", lambda row: row.median_us, is_optional=True, **_MS)),
    shown=lambda row: NOTHING if row.case.is_per_token else None,
)
_FIGURE: Final[Column[ResultRow]] = Column(
    "figure",
    value=lambda row: row.figure if row.summary is not None else None,
    shown=lambda row: "mean" if row.has_mean else "",
    is_optional=True,
)
_QUALITY: Final[Column[ResultRow]] = Column(
    "quality", value=lambda row: row.quality, shown=_quality, tone=quality_class, is_choice=True
)
_DELEGATE: Final[Column[ResultRow]] = Column(
    "delegate_truth",
    "delegate",
    lambda row: row.truth,
    shown=lambda row: row.delegate_text,
    tone=lambda row: f"t-{row.truth.value}" if row.truth is not None else "",
    is_choice=True,
)
_PRECISION: Final[Column[ResultRow]] = Column(
    "precision",
    "±95 %",
    lambda row: row.precision,
    kind=Kind.NUMBER,
    unit="",
    scale=100,
    digits=1,
    exact=6,
    shown=lambda row: row.spread_text if row.own_summary is not None else NOTHING,
)
_SPEED_UPS: Final[Sequence[Column[ResultRow]]] = [
    column.of(lambda row: row.speed_up) for column in ratio_columns("speed_up", exact=4)
]
_SPEED_UP: Final = replace(
    _SPEED_UPS[0],
    head="vs CPU",
    digits=2,
    forms=EVERYWHERE,
    shown=lambda row: NOTHING if row.speed_up is None else f"{row.speed_up.value:.2f}x",
)
#: A case's figure and its quality, behind the columns of its parts.
FIGURE_COLUMNS: Final = (_MEDIAN, _FIGURE, _QUALITY)
_NODES: Final[Sequence[Column[ResultRow]]] = [
    Column[DelegateEvidence](name, head, kind=Kind.COUNT, forms=DATA).of(lambda row: row.evidence)
    for name, head in (("delegated_nodes", "delegated nodes"), ("total_nodes", "nodes"))
]
_STARTS_AND_MEMORY: Final[Sequence[Column[ResultRow]]] = (
    Column("init_us", "init", lambda row: row.init_us, forms=DATA, **_MS),
    Column("first_inference_us", "first inference", lambda row: row.first_us, forms=DATA, **_MS),
    Column("warmup_us", "warm-up", lambda row: row.warmup_us, forms=DATA, **_MS),
    _memory("init_memory_mib", "memory after init"),
    _memory("overall_memory_mib", "memory overall"),
    _memory("peak_memory_mib", "peak memory"),
)
RESULTS: Final[Sequence[Column[ResultRow]]] = (
    *CASE_NAMES,
    Column("model_sha256", "sha256 of the model", lambda row: row.model.sha256, forms=DATA),
    Column("serial", "serial number", lambda row: row.device.serial, forms=DATA),
    IS_VIRTUAL,
    Column("origin", value=lambda row: row.origin, forms=DATA),
    Column("delegate", "requested delegate", lambda row: row.case.delegate, forms=DATA),
    Column("threads", value=lambda row: row.case.threads, kind=Kind.COUNT, forms=DATA),
    Column("tool", "program", lambda row: row.case.tool, forms=DATA),
    Column("flags", value=lambda row: " ".join(f"{k}={v}" for k, v in row.case.flags), forms=FLAT),
    Column("flags", value=lambda row: row.case.flags, kind=Kind.RECORD, forms=NESTED),
    Column("build_sha256", "sha256 of the program", lambda row: row.case.build_sha256, forms=DATA),
    Column("status", value=lambda row: row.status, forms=DATA),
    _MEDIAN,
    _speed("tokens_per_s", "speed", 0, "tokens/s", shown=_tokens),
    _FIGURE,
    *(
        _of_summary(Column(name, head, value, forms=DATA, **_MS | {"unit": "ms, 95 %"}))
        for name, head, value in (
            ("interval_low_us", "from", _low),
            ("interval_high_us", "to", _high),
        )
    ),
    _of_summary(
        Column(
            "interval_method",
            "method",
            lambda summary: summary.interval and summary.interval.method,
            forms=DATA,
        )
    ),
    _PRECISION,
    Column("is_precise", "precise", lambda row: row.is_precise, kind=Kind.FLAG, forms=DATA),
    _speed("tokens_per_s_low", "speed from", 1, "tokens/s, 95 %", forms=DATA),
    _speed("tokens_per_s_high", "speed to", 2, "tokens/s, 95 %", forms=DATA),
    _SPEED_UP,
    *_SPEED_UPS[1:],
    Column(
        "winner", value=lambda row: row.best, tone=_winner_class, is_choice=True, is_optional=True
    ),
    _DELEGATE,
    Column(
        "delegate_actual",
        "ran on",
        lambda row: row.ran_on if row.evidence is not None else None,
        forms=DATA,
    ),
    *_NODES,
    _QUALITY,
    Column(
        "outputs",
        value=lambda row: row.outputs,
        shown=lambda row: row.outputs_text,
        tone=lambda row: OUTPUT_CLASSES[row.outputs] if row.outputs else "",
        is_choice=True,
    ),
    Column(
        "outputs_error",
        "outputs differ by",
        lambda row: row.parity_error,
        Kind.NUMBER,
        exact=9,
        forms=DATA,
    ),
    Column(
        "grade",
        value=lambda row: row.grade,
        shown=lambda row: row.grade.value if row.grade else NOTHING,
        is_choice=True,
        is_optional=True,
        forms=DATA | PAGE,
    ),
    Column("is_judged", "judged", lambda row: row.is_judged, kind=Kind.FLAG, forms=DATA),
    Column(
        "invocations_used",
        "runs",
        lambda row: len(row.used) if row.own_summary is not None else 0,
        Kind.COUNT,
        "used",
        forms=DATA | PAGE,
    ),
    Column(
        "invocations_ended", "of", lambda row: row.ended, Kind.COUNT, "ended", forms=DATA | PAGE
    ),
    Column("baseline", "speed-up over", lambda row: row.baseline, forms=DATA),
    *(
        _of_summary(Column(name, head, forms=DATA, **_MS))
        for name, head in (
            ("mean_us", "mean"),
            ("min_us", "minimum"),
            ("max_us", "maximum"),
            ("std_us", "standard deviation"),
        )
    ),
    *_STARTS_AND_MEMORY,
    Column(
        "accuracy_percent",
        "accuracy",
        lambda row: row.model.accuracy,
        Kind.NUMBER,
        "%",
        exact=3,
        forms=DATA,
    ),
    Column("not_a_result_us", "not a result", lambda row: row.not_a_result_us, forms=DATA, **_MS),
    Column("reason_code", value=lambda row: row.reason_code, is_optional=True, forms=DATA | PAGE),
    Column("reason", value=lambda row: row.reason, forms=DATA),
    Column(
        "findings",
        value=lambda row: " ".join(item.finding.code for item in row.finding_counts),
        forms=FLAT,
    ),
    Column("case_key", "case", lambda row: row.key, forms=DATA),
    Column("notes", value=lambda row: row.notes, kind=Kind.RECORD, forms=NESTED),
    Column(
        "stopped",
        value=lambda row: [{"reason": code, "text": text} for code, text in row.stopped],
        kind=Kind.RECORD,
        forms=NESTED,
    ),
    Column("next_step", value=lambda row: row.next_step, forms=NESTED),
)


BY_NAME: Final[Mapping[str, Column[ResultRow]]] = {column.name: column for column in RESULTS}


def _records(columns: Sequence[Column[Item]], items: Iterable[Item]) -> list[dict[str, Any]]:
    return [record_of(columns, item) for item in items]


def _instead(row: ResultRow) -> str:
    return row.why_not_clean if row.own_summary is None else ""


def results_table(rows: Sequence[ResultRow]) -> Table[ResultRow]:
    """Return the table of all cases; medians and intervals have the same number of decimals."""
    digits = figures_decimals(rows)
    aligned = {"median_us", "interval_low_us", "interval_high_us"}
    return case_table(
        "results",
        "One row for each case",
        rows,
        [
            replace(column, digits=digits) if column.name in aligned else column
            for column in RESULTS
        ],
        groups=2,
        instead=_instead,
        is_judged=lambda row: row.is_judged,
        look=row_style,
    )


#: The greatest number of cases in a page's table without scripts.
_MOST_PLAIN: Final = 200
_PLAIN: Final = (
    "model", "device", "configuration", "median_us", "tokens_per_s", "figure", "precision",
    "speed_up", "winner", "delegate_truth", "quality", "outputs", "not_a_result_us", "origin",
)  # fmt: skip


def plain_table(rows: Sequence[ResultRow]) -> Table[ResultRow]:
    """Return the table of the first cases for a page without scripts."""
    return case_table(
        "plain",
        "One row for each case",
        rows[:_MOST_PLAIN],
        [
            *(replace(BY_NAME[name], forms=PAGE, is_optional=True, opens=False) for name in _PLAIN),
            Column("reasons", value=_reasons, is_optional=True).sentence,
        ],
        attributes=lambda row: {"id": f"c-{row.key}"},
    )


def _reasons(row: ResultRow) -> str:
    """Return the reasons why a case has no clean figure, and its findings."""
    reasons = [f"{row.reason_code}: {row.reason}"] if row.reason else []
    reasons += [
        f"{item.finding.code}: {item.finding.message}"
        for item in row.finding_counts
        if item.finding.severity is not Severity.INFO
    ]
    return "; ".join([*reasons, *row.notes])


def bar_column(rows: Sequence[ResultRow]) -> Column[ResultRow]:
    """Return the bar of a figure: its share of the slowest one of its model on its device."""
    slowest: dict[tuple[str, str], float] = {}
    for row in rows:
        slowest[row.place] = max(slowest.get(row.place, 0.0), row.median_us or 0.0)

    def share(row: ResultRow) -> float:
        most_us = slowest[row.place]
        return (row.median_us or 0.0) / most_us if most_us else 0.0

    return Column("bar", "", share, Kind.BAR)


def listed_table(rows: Sequence[ResultRow]) -> Table[ResultRow]:
    """Return the cases as a terminal shows them: each device's under its name."""
    figures = [row for row in rows if row.own_summary is not None]
    digits = figures_decimals(rows)
    columns: list[Column[ResultRow]] = [
        Column("model", value=lambda row: _model_title(row.model)),
        Column("device", value=lambda row: _device_title(row.device)),
        Column("configuration", "", lambda row: f"{MARKS[row.best]} {row.configuration}"),
        replace(BY_NAME["median_us"], digits=digits),
        BY_NAME["tokens_per_s"],
        BY_NAME["precision"],
        BY_NAME["speed_up"],
        bar_column(rows),
        BY_NAME["winner"],
        BY_NAME["outputs"],
        Column("notes", "", figure_notes, is_optional=True),
    ]
    if len(figures) < 2:
        columns = [column for column in columns if column.kind is not Kind.BAR]
    return case_table(
        "listed",
        "One row for each case",
        rows,
        columns,
        groups=2,
        instead=_instead,
        look=row_style,
    )


def row_style(row: ResultRow) -> str:
    """Return the style of a case's row on a terminal: a value of ``Table.look``."""
    if row.own_summary is None:
        return "" if row.status in {CaseStatus.SKIPPED, CaseStatus.UNTIMED} else "bad"
    if not row.is_judged:
        return "doubt"
    if row.best is BestMark.NONE:
        return ""
    return "winner" if row.is_proven_best else "unproven"


def _model_title(model: ModelRow) -> str:
    return f"{model.label}, {format_bytes(model.size_bytes)}" if model.size_bytes else model.label


def _device_title(device: DeviceRow) -> str:
    is_named = device.serial in device.label
    return device.title if is_named else f"{device.title}  {device.serial}"


def figure_notes(row: ResultRow) -> str:
    """Return the caveats of a figure."""
    truth = row.truth
    notes = (
        (row.quality is not Quality.TRUSTED, row.quality_word),
        (truth is not None and truth is not DelegateTruth.FULL, row.delegate_text),
        (truth is None, "not confirmed"),
        (row.own_summary is not None and row.precision is None, "one process"),
        (row.has_mean, "mean"),
        (row.is_virtual and not row.device.is_virtual, "virtual"),
    )
    return ", ".join(word for is_noted, word in notes if is_noted)


def case_table(
    name: str,
    caption: str,
    rows: Sequence[ResultRow],
    columns: Sequence[Column[ResultRow]],
    **other: Any,  # noqa: ANN401
) -> Table[ResultRow]:
    """Return a table with a row for each of some cases."""
    return Table(
        name=name,
        caption=caption,
        columns=columns,
        rows=rows,
        key=lambda row: row.key,
        **other,
    )


#: A case, and one of its parts.
Part = tuple[ResultRow, Item]


def parts_table(
    name: str,
    caption: str,
    parts: Iterable[tuple[ResultRow, Item]],
    columns: Sequence[Column[Item]],
    *,
    of_case: Sequence[Column[ResultRow]] = (),
) -> Table[Part[Item]]:
    """Return a table with a row for each part of some cases; ``of_case`` are the last columns."""
    return Table(
        name=name,
        caption=caption,
        columns=[
            *(column.of(_case) for column in CASE_NAMES),
            *(column.of(_part) for column in columns),
            *(column.of(_case) for column in of_case),
        ],
        rows=list(parts),
        groups=2,
        key=lambda part: part[0].key,
        is_virtual=lambda part: part[0].is_virtual,
    )


def _case(part: tuple[ResultRow, Any]) -> ResultRow:
    return part[0]


def _part(part: tuple[Any, Item]) -> Item:
    return part[1]


def case_parts(
    rows: Iterable[ResultRow], parts: Callable[[ResultRow], Iterable[Item]]
) -> list[tuple[ResultRow, Item]]:
    """Return the parts of all rows, each with its row."""
    return [(row, item) for row in rows for item in parts(row)]


def pass_table(table: PassTable[Any], rows: Sequence[ResultRow]) -> Table[Any]:
    """Return the table of a pass: the lines of all cases."""
    parts = case_parts(rows, lambda row: row.pass_lines.get(table.name, ()))
    caption = table.caption([row.case for row, _ in parts])
    return parts_table(table.name, caption, parts, table.columns)


def _pass_columns(table: PassTable[Any]) -> Iterator[Column[ResultRow]]:
    """Yield the columns of a pass's lines for CSV, JSON and frames."""

    def case_lines(row: ResultRow) -> Sequence[Any]:
        lines: Sequence[Any] = row.pass_lines.get(table.name, ())
        return lines

    def record(row: ResultRow) -> object:
        if table.record is None:
            return _records(table.columns, case_lines(row))
        return table.record(case_lines(row), row.case)

    if table.is_single:
        for column in table.columns:
            if column.forms & FLAT:
                yield column.of(lambda row: next(iter(case_lines(row)), None), forms=DATA)
    yield Column(table.key, table.key, record, Kind.RECORD, forms=NESTED)


def memory_table(rows: Sequence[ResultRow]) -> Table[ResultRow]:
    """Return the memory of these cases alone."""
    columns = [
        replace(
            column,
            head=column.head.replace("memory", "").strip(),
            forms=EVERYWHERE,
            is_optional=True,
        )
        for column in _STARTS_AND_MEMORY[3:]
    ]
    return case_table("memory", "Memory of each case", rows, (*CASE_NAMES, *columns), groups=2)


def starts_table(rows: Sequence[ResultRow]) -> Table[ResultRow]:
    """Return start and memory of each case that has any of them."""
    columns = [replace(column, forms=EVERYWHERE) for column in _STARTS_AND_MEMORY]
    return case_table(
        "starts",
        "Initialisation, first inference and memory of each case that has any of them",
        [row for row in rows if row.own_summary is not None or row.has_memory],
        (*CASE_NAMES, *columns[:3], _MEDIAN, _FIGURE, *columns[3:]),
        groups=2,
    )


def delegates_table(rows: Sequence[ResultRow]) -> Table[ResultRow]:
    """Return the speed-up and the delegated nodes of each case with a delegate."""
    nodes = [
        replace(column, head=head, unit="nodes", forms=EVERYWHERE)
        for column, head in zip(_NODES, ("delegated", "of"), strict=True)
    ]
    cpu_operators = Column[ResultRow](
        "left_to_cpu", "left to the CPU", lambda row: row.cpu_operators, is_optional=True
    )
    return case_table(
        "delegates",
        "Speed-up and delegated operators of each case with a delegate",
        [row for row in rows if not row.case.delegate.is_cpu],
        (
            *CASE_NAMES,
            _SPEED_UP,
            _MEDIAN,
            _FIGURE,
            _DELEGATE,
            *nodes,
            _QUALITY,
            cpu_operators,
        ),
        groups=2,
    )


CAMPAIGN: Final[Sequence[Column[Campaign]]] = (
    Column("campaign_id", "campaign", lambda row: row.campaign_id),
    Column("campaign", "name", lambda item: item.name, forms=FLAT),
    Column("campaign_created_at", "started", lambda item: item.created_at, Kind.MOMENT, forms=FLAT),
)


def exported_table(
    rows: Iterable[ResultRow], pass_tables: Sequence[PassTable[Any]] = ()
) -> Table[ResultRow]:
    """Return the table of cases for CSV, JSON and frames: campaign, figure and parts, with those of
    passes.
    """
    return Table(
        name="cases",
        caption="Cases",
        columns=[
            *(column.of(lambda row: row.campaign) for column in CAMPAIGN),
            *RESULTS,
            *(column for table in pass_tables for column in _pass_columns(table)),
            Column(
                "findings",
                value=lambda row: _records(FINDINGS, row.finding_counts),
                kind=Kind.RECORD,
                forms=NESTED,
            ),
            Column(
                "invocations",
                value=lambda row: _records(INVOCATIONS, _case_invocations(row)),
                kind=Kind.RECORD,
                forms=NESTED,
            ),
        ],
        rows=rows,
    )


#: An invocation with its case.
CaseInvocation = Part[RunRecord]


def _case_invocations(row: ResultRow) -> list[CaseInvocation]:
    return [(row, run) for run in row.runs]


def _is_result(pair: CaseInvocation) -> bool:
    """Whether an invocation's latency is part of its case's result."""
    row, run = pair
    return run.run_id in row.used and row.own_summary is not None


def _printed_us(pair: CaseInvocation) -> float | None:
    row, run = pair
    return figure_us(run, row.figure_kind(run))


def _latency(pair: CaseInvocation) -> float | None:
    return _printed_us(pair) if _is_result(pair) else None


def _origin(pair: CaseInvocation) -> str:
    row, run = pair
    campaigns = (item for item in row.campaigns if item.campaign_id == run.campaign_id)
    return next(map(origin_of, campaigns), "")


def _percentile(name: str) -> Callable[[CaseInvocation], float | None]:
    def percentile(pair: CaseInvocation) -> float | None:
        report = pair[1].report
        figures = report.inference if report is not None and _is_result(pair) else None
        return getattr(figures, name) if figures is not None else None

    return percentile


def _state(name: str) -> Callable[[CaseInvocation], Mapping[str, object] | None]:
    def device_state(pair: CaseInvocation) -> Mapping[str, object] | None:
        state: DeviceState | None = getattr(pair[1], name)
        return None if state is None else {part: getattr(state, part) for part in _STATE}

    return device_state


_STATE: Final = (
    "at",
    "heat_c",
    "thermal_status",
    "battery_percent",
    "battery_heat_c",
    "plugged",
    "clock_khz",
    "clock_limit_khz",
    "load_1min",
    "memory_available_bytes",
)
_RUN: Final[Mapping[str, Column[CaseInvocation]]] = {
    column.name: column.of(_part) for column in RUNS
}
_CASE: Final[Mapping[str, Column[CaseInvocation]]] = {
    column.name: column.of(_case, forms=EVERYWHERE - NESTED) for column in CASE_NAMES
}
INVOCATIONS: Final[Sequence[Column[CaseInvocation]]] = (
    *(_RUN[name] for name in ("run_id", "campaign_id", "case_key")),
    _CASE["model"],
    _CASE["device"],
    replace(_RUN["serial"], head="serial number", forms=FLAT),
    _CASE["configuration"],
    *(_RUN[name] for name in ("pass", "invocation", "outcome", "reason_code", "reason", "quality")),
    *(_RUN[name] for name in ("inferences", "init_us", "first_inference_us")),
    *(_RUN[name] for name in ("started_at", "duration_s", "exit_code")),
    Column("delegate_truth", "delegate", lambda pair: truth_of(pair[1])),
    Column("is_used", "used", _is_result, Kind.FLAG),
    replace(_RUN["is_virtual"], value=lambda pair: pair[0].is_virtual),
    Column("origin", value=_origin, is_optional=True),
    Column(
        "figure",
        value=lambda pair: pair[0].figure_kind(pair[1]) if _printed_us(pair) is not None else None,
        forms=DATA,
    ),
    replace(_RUN["latency_us"], value=_latency),
    Column(
        "tokens_per_s",
        "speed",
        lambda pair: tokens_per_s(_latency(pair)) if pair[0].case.is_per_token else None,
        Kind.NUMBER,
        "tokens/s",
        is_optional=True,
    ),
    replace(
        _RUN["latency_us"],
        name="not_a_result_us",
        head="not a result",
        value=lambda pair: None if _is_result(pair) else _printed_us(pair),
        is_optional=True,
    ),
    *(
        replace(
            _RUN["latency_us"],
            name=f"{name}_us",
            head=name,
            value=_percentile(f"{name}_us"),
            forms=DATA,
        )
        for name in ("p5", "p95")
    ),
    Column("command", value=lambda pair: pair[1].command, forms=DATA),
    *(
        Column(name, name.replace("_", " "), _state(name), Kind.RECORD, forms=NESTED)
        for name in ("state_before", "state_after")
    ),
)


def invocations_table(rows: Iterable[ResultRow]) -> Table[CaseInvocation]:
    """Return the table of the invocations of some cases."""
    return Table(
        name="invocations",
        caption="One row for each process",
        columns=INVOCATIONS,
        rows=(pair for row in rows for pair in _case_invocations(row)),
    )
