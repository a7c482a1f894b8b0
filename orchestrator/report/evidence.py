"""A case's evidence as HTML: what ran, where, how often, under which conditions, and what it
printed. Whatever a phone, a file or a user wrote is text there, wherever it stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from markupsafe import escape

from orchestrator.analysis.case_result import OWN_FIGURE, CaseStatus
from orchestrator.analysis.sustained import ATTEMPT_NUMBERS
from orchestrator.delegates import place_of
from orchestrator.passes import goes_on
from orchestrator.records.case import FIGURE_PASS
from orchestrator.records.device import DeviceState
from orchestrator.records.parity import ParityVerdict
from orchestrator.records.run import DelegateEvidence
from orchestrator.report.charts import colour_of, spread_of
from orchestrator.report.drawing import strips, trace
from orchestrator.tables.column import PAGE, Column
from orchestrator.tables.escapes import visible, visible_block
from orchestrator.tables.evidence import (
    LOG_CHARACTERS,
    LogExcerpt,
    Trace,
    battery_text,
    clocks_text,
    condition_traces,
    hottest_text,
    shorter,
)
from orchestrator.tables.findings import findings_table
from orchestrator.tables.html import Html, badge, joined, parts, plain, tag, whole
from orchestrator.tables.labels import (
    PARITY_CLASSES,
    PARITY_WORDS,
    SHORT_HASH,
    figure_text,
    figure_unit,
    moment_text,
)
from orchestrator.tables.results import INVOCATIONS, Invocation, figures_decimals
from orchestrator.tables.rows import BestMark, InvocationRow, ResultRow
from orchestrator.tables.table import Table
from orchestrator.units import counted, format_bytes, format_duration

#: Characters of logs in one report, shared among its cases; what is left of a share below the least
#: isn't worth it.
_LOG_BUDGET: Final = 3_000_000
_LEAST_LOG: Final = 400
_MOST_LINES: Final = 5
_MOST_OPERATORS: Final = 20
#: Invocations of a sustained run that are listed, from its beginning and from its end.
_SUSTAINED_SHOWN: Final = 10
_BEST_BADGES: Final[Mapping[BestMark, str]] = {
    BestMark.BEST: badge("\N{BLACK STAR} fastest", "best"),
    BestMark.TIED: badge("\N{ALMOST EQUAL TO} tied", "tied"),
    BestMark.ALONE: badge("only one"),
    BestMark.UNTESTED: badge("not tested"),
}
#: Cases whose tables are made together.
_AT_ONCE: Final = 250
#: The columns of a run that its evidence has, and those of them that are said once where all runs
#: have one word.
_OF_RUNS: Final = (
    "invocation", "latency_us", "tokens_per_s", "not_a_result_us", "outcome", "reason_code",
    "quality", "delegate_truth", "p5_us", "p95_us", "inferences", "first_inference_us", "init_us",
    "started_at", "duration_s",
)  # fmt: skip
_SAID_ONCE: Final = frozenset({"outcome", "quality", "delegate_truth"})
#: A moment of a run, before or after it, with the device's state.
_Moment = tuple[InvocationRow, str, DeviceState]
_STATES: Final[Sequence[Column[_Moment]]] = (
    Column("number", "#", lambda item: _number(item[0])),
    Column("when", "when", lambda item: item[1]),
    Column("hottest", "hottest zone \N{DEGREE SIGN}C", lambda item: hottest_text(item[2])),
    Column("battery", "battery", lambda item: battery_text(item[2])),
    Column("clocks", "clock of limit MHz", lambda item: clocks_text(item[2])),
)


def _run_columns(rows: Sequence[ResultRow]) -> list[Column[Invocation]]:
    """Return the columns of runs; figures have the decimals that all of these cases' need."""
    digits = figures_decimals(rows)
    known = {column.name: column for column in INVOCATIONS}
    for name in ("latency_us", "not_a_result_us", "p5_us", "p95_us"):
        known[name] = replace(known[name], digits=digits)
    known["invocation"] = replace(known["invocation"], shown=lambda pair: _number(pair[1]))
    known["started_at"] = replace(
        known["started_at"], shown=lambda pair: moment_text(pair[1].run.started_at)
    )
    return [
        replace(known[name], forms=PAGE, is_optional=True, is_merged=name in _SAID_ONCE)
        for name in _OF_RUNS
    ]


def case_evidence(rows: Sequence[ResultRow]) -> Iterator[tuple[str, Html]]:
    """Yield each case's title, which is text, and its evidence.

    Logs are cut so that a report of many cases stays readable, and say so.
    """
    digits, tables = figures_decimals(rows), _tables(rows)
    share = min(LOG_CHARACTERS, _LOG_BUDGET // max(1, len(rows)))
    characters = share if share >= _LEAST_LOG else 0
    for row in rows:
        content = (
            *_head(row, digits),
            *_objections(row),
            *_delegate(row),
            *_runs(row, *next(tables), characters),
            _identity(row),
        )
        yield visible(row.model.label), joined(content)


def _tables(rows: Sequence[ResultRow]) -> Iterator[tuple[str, str]]:
    """Yield the tables of each case's invocations and of the device's states around them."""
    columns = _run_columns(rows)
    for begin in range(0, len(rows), _AT_ONCE):
        shown = [(row, _without_middle(row.invocations)) for row in rows[begin : begin + _AT_ONCE]]
        states = [[moment for item in runs for moment in _moments(item)] for _, runs in shown]
        of_runs = Table(
            name="invocations",
            caption="Invocations",
            columns=columns,
            rows=[(row, item) for row, runs in shown for item in runs],
            look=lambda pair: "" if pair[1].is_used else "unused",
        )
        of_states = Table(
            name="states",
            caption="Conditions before and after",
            columns=_STATES,
            rows=[moment for moments in states for moment in moments],
        )
        yield from zip(
            parts(of_runs, [len(runs) for _, runs in shown], "small"),
            parts(of_states, map(len, states), "small"),
            strict=True,
        )


def _p(*content: str, look: str = "") -> str:
    return tag("p", "".join(content), look)


def _small(text: str) -> str:
    return tag("small", plain(text))


def _code(text: str) -> str:
    return tag("code", plain(text))


def _head(row: ResultRow, digits: int) -> Iterator[str]:
    result, virtual = row.result, badge("virtual", "virtual")
    device = tag("bdi", plain(row.device.label), "name") + f" {virtual}" * row.device.is_virtual
    of = tag("bdi", plain(row.configuration))
    yield _p(device, " \N{MIDDLE DOT} ", of, look="case-line")
    if row.is_virtual:
        note = " Computed by benchfarm's virtual phone; no measurement."
        yield _p(virtual, note, look="virtual-note")
    if row.origin:
        origin = f" {plain(row.origin).removeprefix('imported ')}."
        yield _p(badge("imported", "v-warning"), origin)
    quality = result.quality.value if result.quality is not None else "none"
    truth, parity, grade = result.truth, result.parity, result.grade
    badges = (
        badge(row.delegate_text, f"t-{truth.value}") if truth is not None else "",
        badge(row.quality_text, f"q-{quality}"),
        _BEST_BADGES.get(row.best, ""),
        badge(PARITY_WORDS[parity], PARITY_CLASSES[parity]) if parity is not None else "",
        badge(f"grade {grade.value}", "grade") if grade is not None else "",
        badge(row.case.process_mode.value),
    )
    yield _p(" ".join(filter(None, badges)), look="badges")
    yield from _figure(row, digits)


def _figure(row: ResultRow, digits: int) -> Iterator[str]:
    result, summary = row.result, row.result.summary
    if summary is None:
        return
    unit = figure_unit(row.case)
    median = f"{figure_text(row.case, summary.median_us, digits)} {unit}"
    if result.status not in OWN_FIGURE:
        why = row.delegate_text if result.status is CaseStatus.FELL_BACK else "rejected"
        no_result = f"No result of {plain(row.case.delegate.value)}: "
        yield _p(no_result, tag("del", median), f" ({plain(why)}).", look="case-figure")
        return
    interval = ""
    if summary.interval is not None:
        ends = [summary.interval.low, summary.interval.high]
        low, high = sorted((figure_text(row.case, end, digits) for end in ends), key=float)
        interval = f" ({low} to {high} {unit} at 95 %)"
    kind = ", a mean" if row.has_mean else ""
    gain, ratio = "", row.speed_up
    if ratio is not None and row.baseline != row.configuration:
        known = ratio.interval
        between = "" if known is None else f" ({known.low:.2f} to {known.high:.2f})"
        gain = f" {ratio.value:.2f}\N{MULTIPLICATION SIGN} the speed of {row.baseline}{between}."
    rest = f"{interval}{kind} over {summary.count} of {result.ended} invocations.{gain}"
    yield _p(tag("b", median), plain(rest), look="case-figure")


def _objections(row: ResultRow) -> Iterator[str]:
    result = row.result
    yield from (_p(plain(f"Invocations: {text}.")) for _, text in row.stopped)
    yield from (_p(plain(note)) for note in result.notes)
    if result.reason:
        yield _p(_code(result.reason_code), f" {plain(result.reason)}")
    if result.parity is ParityVerdict.SAME and result.parity_reason:
        yield _p(plain(f"Outputs as the reference's: {result.parity_reason}."))
    if row.next_step:
        yield _p(tag("b", "Next:"), f" {plain(row.next_step)}")
    if row.findings:
        yield tag("h3", "Findings") + whole(findings_table(row.findings), "small")


def _delegate(row: ResultRow) -> Iterator[str]:
    found = row.delegate
    if found is None or not (found.lines or found.cpu_operators):
        return
    asked, ran = found.requested or row.case.delegate.value, place_of(found) or "unknown"
    yield tag("h3", "Where the operators ran")
    yield _p(f"{_nodes(found)}Asked for ", _code(asked), ", ran on ", _code(ran), ".")
    yield from (tag("pre", plain(line)) for line in found.lines[:_MOST_LINES])
    if found.cpu_operators:
        items = [
            tag("li", f"{_code(name)} {plain(reason)}")
            for name, reason in found.cpu_operators[:_MOST_OPERATORS]
        ]
        more = len(found.cpu_operators) - _MOST_OPERATORS
        yield tag("ul", "".join(items) + (tag("li", f"and {more} more") if more > 0 else ""))


def _nodes(found: DelegateEvidence) -> str:
    if not found.total_nodes:
        return ""
    where = f" in {counted(found.partitions, 'partition')}" if found.partitions else ""
    return f"{found.delegated_nodes} of {found.total_nodes} operators delegated{where}. "


def _runs(row: ResultRow, of_runs: str, of_states: str, characters: int) -> Iterator[str]:
    if not row.invocations:
        yield _p("No invocation is stored.")
        return
    shown = _without_middle(row.invocations)
    yield tag("h3", "Invocations")
    used = [item.run for item in row.invocations if item.is_used]
    spread = spread_of(used, look=colour_of(row))
    if row.own is not None and not row.case.is_per_token and len(spread.runs) > 1:
        drawn = strips([spread], f"{row.who}: the runs", "ms")
        told = "A line is one run: from 5 to 95 % of its inferences, a dot at its figure."
        yield tag("figure", drawn + tag("figcaption", told, "legend"), "chart")
    yield of_runs
    if len(shown) < len(row.invocations):
        left = len(row.invocations) - len(shown)
        what = "invocations of the sustained run are left out here; its chart has them."
        yield _p(_small(f"{left} {what}"))
    if any(run.run.state_before or run.run.state_after for run in shown):
        yield tag("h3", "Conditions before and after") + of_states
    yield from _drawn("Temperature and clocks over time", condition_traces(row.invocations))
    for run in row.invocations:
        yield from _drawn(f"While invocation {_number(run)} ran", run.traces)
    if row.command:
        yield tag("h3", "Command") + tag("pre", plain(row.command))
    for run in row.invocations:
        if run.log is not None:
            yield from _log(run, run.log, characters)


def _number(item: InvocationRow) -> str:
    """Return a run's number, with its pass where that isn't the latency's: ``3 cold``."""
    if item.run.run_pass is FIGURE_PASS:
        return str(item.number)
    if not goes_on(item.run):
        return f"{item.number} {item.run.run_pass}"
    tried, number = divmod(item.run.invocation, ATTEMPT_NUMBERS)
    return f"{number + 1} {item.run.run_pass}" + (f", attempt {tried + 1}" if tried else "")


def _moments(run: InvocationRow) -> Iterator[_Moment]:
    for word, state in (("before", run.run.state_before), ("after", run.run.state_after)):
        if state is not None:
            yield run, word, state


def _without_middle(runs: Sequence[InvocationRow]) -> Sequence[InvocationRow]:
    """Return the invocations without the hundreds that a sustained run has between its beginning
    and its end.
    """
    sustained = [item for item in runs if goes_on(item.run)]
    if len(sustained) <= 2 * _SUSTAINED_SHOWN:
        return runs
    hidden = {item.run.run_id for item in sustained[_SUSTAINED_SHOWN:-_SUSTAINED_SHOWN]}
    return [item for item in runs if item.run.run_id not in hidden]


def _drawn(title: str, traces: Sequence[Trace]) -> Iterator[str]:
    """Yield a drawing of each quantity that changed, and a line with those that didn't."""
    if not traces:
        return
    yield tag("h3", title)
    yield tag("div", "".join(_trace(trace) for trace in traces if trace.points), "traces")
    still = ", ".join(
        f"{trace.name} {trace.high:.0f} {trace.unit}" for trace in traces if not trace.points
    )
    if still:
        yield _p(_small(f"The same at every sample: {still}."))


def _trace(item: Trace) -> str:
    low, high, lasted = f"{item.low:.0f}", f"{item.high:.0f}", format_duration(item.duration_s)
    about = f"{item.name}: {low} to {high} {item.unit} within {lasted}"
    told = f"{low} \N{EN DASH} {high}, last {item.last:.0f}; {lasted}"
    head = tag("figcaption", f"{plain(item.name)} {_small(item.unit)}")
    return tag("figure", head + trace(item.points, about) + _small(told), "trace")


def _log(run: InvocationRow, whole_log: LogExcerpt, characters: int) -> Iterator[str]:
    code = run.run.exit_code
    status = f", exit code {code}" if code is not None else ""
    yield tag("h3", f"Log of invocation {_number(run)}{status}")
    where = f"it is in the store under run {_code(run.run.run_id)}."
    if not characters:
        size = format_bytes(whole_log.total_bytes)
        yield _p(f"{size} of output, left out of a report of this size; {where}")
        return
    log = shorter(whole_log, characters)
    if log.left_out_bytes:
        sizes = f"{format_bytes(log.left_out_bytes)} of {format_bytes(log.total_bytes)}"
        yield _p(tag("small", f"Cut: {sizes} left out; {where}"))
    yield tag("pre", str(escape(visible_block(log.text))), "log", tabindex="0")


def _identity(row: ResultRow) -> str:
    model, build = row.model.sha256[:SHORT_HASH], row.case.build_sha256[:SHORT_HASH]
    named = (("case", row.key), ("model", model), ("build", build), ("serial", row.device.serial))
    words = [f"{name} {_code(value)}" for name, value in named]
    return _p(tag("small", " \N{MIDDLE DOT} ".join(words)), look="identity")
