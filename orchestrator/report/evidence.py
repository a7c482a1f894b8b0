"""A case's evidence as HTML: what ran, where, how often, under which conditions, and what it printed.

Written without the template engine: a report of 5,000 cases has as many of these, and each is some hundred values.
Whatever a phone or a user wrote passes :func:`_text` or :func:`_block`; everything else here is ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from html import escape
from typing import Final

from orchestrator.analysis.case_result import OWN_FIGURE, CaseStatus
from orchestrator.analysis.sustained_runs import ATTEMPT_NUMBERS
from orchestrator.records.parity import ParityVerdict
from orchestrator.records.run import DelegateEvidence, FigureKind
from orchestrator.records.workload import Pass
from orchestrator.report.conditions import battery_change_text, battery_text, clocks_text, hottest_text
from orchestrator.report.data import BestMark, DeviceRow, FindingRow, InvocationRow, LogExcerpt, ResultRow, Trace
from orchestrator.report.escapes import visible, visible_block
from orchestrator.report.labels import PARITY_CLASSES, PARITY_WORDS, SHORT_HASH, column_decimals
from orchestrator.report.logs import LOG_CHARACTERS, shorter
from orchestrator.report.matrix import figures_decimals
from orchestrator.report.tables import NOTHING, delegate_text, figure_ms, has_mean, quality_text
from orchestrator.report.traces import condition_traces
from orchestrator.units import US_PER_MS, format_bytes, format_duration

#: Characters of logs in one report, shared among its cases; what is left of a share below the least isn't worth it.
_LOG_BUDGET: Final = 3_000_000
_LEAST_LOG: Final = 400
_MOST_LINES: Final = 5
_MOST_OPERATORS: Final = 20
#: Invocations of a sustained run that are listed, from its beginning and from its end.
_SUSTAINED_SHOWN: Final = 10
_VIRTUAL_BADGE: Final = ' <span class="badge virtual">virtual</span>'
_BEST_BADGES: Final[Mapping[BestMark, str]] = {
    BestMark.NONE: "",
    BestMark.BEST: ' <span class="badge best"><span aria-hidden="true">★</span> fastest</span>',
    BestMark.TIED: ' <span class="badge tied"><span aria-hidden="true">≈</span> tied</span>',
}
_RUN_HEADS: Final = (
    '<tr><th scope="col" class="n">no.</th><th scope="col" class="n">median <small>ms</small></th>'
    '<th scope="col">outcome</th><th scope="col">quality</th><th scope="col">delegate</th>'
    '<th scope="col" class="n">p5 \N{EN DASH} p95 <small>ms</small></th><th scope="col" class="n">inferences</th>'
    '<th scope="col" class="n">first <small>ms</small></th><th scope="col" class="n">init <small>ms</small></th>'
    '<th scope="col">started</th><th scope="col" class="n">took</th></tr>'
)
_STATE_HEADS: Final = (
    '<tr><th scope="col" class="n">no.</th><th scope="col">when</th><th scope="col">hottest zone <small>°C</small></th>'
    '<th scope="col">battery</th><th scope="col">clock of limit <small>MHz</small></th></tr>'
)


def evidence_decimals(rows: Sequence[ResultRow]) -> Mapping[str, int]:
    """Return the decimals that these cases' figures in milliseconds need, by kind of figure."""

    def of(*values_us: float | None) -> int:
        return column_decimals([value / US_PER_MS for value in values_us if value])

    return {
        "median": figures_decimals(rows),
        "init": of(*(run.init_us for row in rows for run in row.invocations)),
        "first": of(*(run.first_us for row in rows for run in row.invocations)),
    }


def case_evidence(rows: Sequence[ResultRow], decimals: Mapping[str, int]) -> Iterable[tuple[str, str]]:
    """Yield each case's title, not yet escaped, and its evidence as HTML.

    ``decimals`` are those of :func:`evidence_decimals`. Logs are cut so that a report of many cases
    stays readable; the cut is told.
    """
    share = min(LOG_CHARACTERS, _LOG_BUDGET // max(1, len(rows)))
    characters = share if share >= _LEAST_LOG else 0
    for row in rows:
        parts = (*_head(row, decimals), *_objections(row), *_delegate(row), *_runs(row, decimals, characters))
        yield visible(row.model.label), "".join((*parts, _identity(row)))


@lru_cache(maxsize=16_384)
def _text(text: str) -> str:
    return escape(text if text.isprintable() else visible(text))


def _block(text: str) -> str:
    return escape(visible_block(text))


def _device(row: DeviceRow) -> str:
    return f'<bdi class="name">{_text(row.label)}</bdi>{_VIRTUAL_BADGE if row.is_virtual else ""}'


def _head(row: ResultRow, decimals: Mapping[str, int]) -> Iterable[str]:
    result = row.result
    yield f'<p class="case-line">{_device(row.device)} · <bdi>{_text(row.configuration)}</bdi></p>\n'
    if row.is_virtual:
        yield (
            '<p class="virtual-note"><span class="badge virtual">virtual</span> Computed by benchfarm\'s virtual phone;'
            " no measurement.</p>\n"
        )
    truth = f"t-{result.truth.value}" if result.truth is not None else ""
    quality = result.quality.value if result.quality is not None else "none"
    yield '<p class="badges">'
    if truth:
        yield f'<span class="badge {truth}">{_text(delegate_text(row))}</span> '
    yield f'<span class="badge q-{quality}">{quality_text(row)}</span>{_BEST_BADGES[row.best]}'
    if result.parity is not None:
        yield f' <span class="badge {PARITY_CLASSES[result.parity]}">{PARITY_WORDS[result.parity]}</span>'
    if row.grade is not None:
        yield f' <span class="badge grade">grade {row.grade.value}</span>'
    yield f' <span class="badge">{row.case.process_mode.value}</span></p>\n'
    yield _figure(row, decimals["median"])


def _figure(row: ResultRow, digits: int) -> str:
    result, summary = row.result, row.result.summary
    if summary is None:
        return ""
    median = figure_ms(summary.median_us, digits)
    if result.status not in OWN_FIGURE:
        why = _text(delegate_text(row)) if result.status is CaseStatus.FELL_BACK else "rejected"
        return f'<p class="case-figure">No result of {row.case.delegate.value}: <del>{median} ms</del> ({why}).</p>\n'
    interval = ""
    if summary.interval is not None:
        low, high = figure_ms(summary.interval.low, digits), figure_ms(summary.interval.high, digits)
        interval = f" ({low} to {high} ms at 95 %)"
    kind = ", a mean" if has_mean(row) else ""
    gain, ratio = "", row.speed_up
    if ratio is not None and row.baseline != row.configuration:
        between = f" ({ratio.interval.low:.2f} to {ratio.interval.high:.2f})" if ratio.interval is not None else ""
        gain = f" {ratio.value:.2f}\N{MULTIPLICATION SIGN} the speed of {_text(row.baseline)}{between}."
    return (
        f'<p class="case-figure"><b>{median} ms</b>{interval}{kind} over {summary.count} of {result.ended} invocations.'
        f"{gain}</p>\n"
    )


def _objections(row: ResultRow) -> Iterable[str]:
    result = row.result
    for _, text in row.stopped:
        yield f"<p>Invocations: {_text(text)}.</p>\n"
    for note in result.notes:
        yield f"<p>{_text(note)}</p>\n"
    if result.reason:
        yield f"<p><code>{_text(result.reason_code)}</code> {_text(result.reason)}</p>\n"
    if result.parity is ParityVerdict.SAME and result.parity_reason:
        yield f"<p>Outputs as the reference's: {_text(result.parity_reason)}.</p>\n"
    if row.next_step:
        yield f"<p><b>Next:</b> {_text(row.next_step)}</p>\n"
    if row.findings:
        items = "".join(_finding(finding, len(row.invocations)) for finding in row.findings)
        yield f"<h3>Findings</h3>\n<ul>\n{items}</ul>\n"


def _finding(finding: FindingRow, invocations: int) -> str:
    severity = finding.severity.value
    text = f"<code>{_text(finding.code)}</code> {_text(finding.message)}"
    if finding.evidence:
        text += f" <small>({_text(finding.evidence)})</small>"
    if finding.count and invocations > 1:
        text += f" <small>{finding.count} of {invocations} invocations</small>"
    if finding.next_step:
        text += f"<br><small>{_text(finding.next_step)}</small>"
    return f'<li><span class="badge v-{severity}">{severity}</span> {text}</li>\n'


def _delegate(row: ResultRow) -> Iterable[str]:
    found = row.delegate
    if found is None or not (found.lines or found.cpu_operators):
        return
    asked, ran = found.requested or row.case.delegate.value, found.place or "unknown"
    yield (
        f"<h3>Where the operators ran</h3>\n<p>{_nodes(found)}Asked for <code>{_text(asked)}</code>, ran on "
        f"<code>{_text(ran)}</code>.</p>\n"
    )
    for line in found.lines[:_MOST_LINES]:
        yield f"<pre>{_text(line)}</pre>"
    if found.cpu_operators:
        yield "<ul>"
        for operator, reason in found.cpu_operators[:_MOST_OPERATORS]:
            yield f"<li><code>{_text(operator)}</code> {_text(reason)}</li>"
        if len(found.cpu_operators) > _MOST_OPERATORS:
            yield f"<li>and {len(found.cpu_operators) - _MOST_OPERATORS} more</li>"
        yield "</ul>\n"


def _nodes(found: DelegateEvidence) -> str:
    if not found.total_nodes:
        return ""
    partitions = ""
    if found.partitions:
        partitions = f" in {found.partitions} {'partition' if found.partitions == 1 else 'partitions'}"
    return f"{found.delegated_nodes} of {found.total_nodes} operators delegated{partitions}. "


def _runs(row: ResultRow, decimals: Mapping[str, int], characters: int) -> Iterable[str]:
    if not row.invocations:
        yield "<p>No invocation is stored.</p>\n"
        return
    shown = _without_middle(row.invocations)
    yield _table("Invocations", _RUN_HEADS, "".join(_run_line(row, run, decimals) for run in shown))
    if len(shown) < len(row.invocations):
        left = len(row.invocations) - len(shown)
        yield f"<p><small>{left} invocations of the sustained run are left out here; its chart has them.</small></p>\n"
    if row.has_conditions:
        yield _table("Conditions before and after", _STATE_HEADS, "".join(map(_state_line, shown)))
        states = [run.state_before for run in row.invocations if run.state_before is not None]
        swapped = battery_change_text(sorted(states, key=lambda state: state.at))
        if swapped:
            yield f'<p><span class="badge v-warning">{swapped}</span></p>\n'
    yield _drawn("Temperature and clocks over time", condition_traces(row.invocations))
    for run in row.invocations:
        yield _drawn(f"While invocation {run.number} ran", run.traces)
    if row.command:
        yield f"<h3>Command</h3>\n<pre>{_text(row.command)}</pre>\n"
    yield from (_log(run, run.log, characters) for run in row.invocations if run.log is not None)


def _without_middle(runs: Sequence[InvocationRow]) -> Sequence[InvocationRow]:
    """Return the invocations without the hundreds that a sustained run has between its beginning and its end."""
    sustained = [run for run in runs if run.run_pass is Pass.SUSTAINED]
    if len(sustained) <= 2 * _SUSTAINED_SHOWN:
        return runs
    hidden = {run.run_id for run in sustained[_SUSTAINED_SHOWN:-_SUSTAINED_SHOWN]}
    return [run for run in runs if run.run_id not in hidden]


def _number(run: InvocationRow) -> str:
    if run.run_pass is Pass.TIMING:
        return str(run.number)
    number, attempt = run.number, ""
    if run.run_pass is Pass.SUSTAINED:
        tried, number = divmod(run.number - 1, ATTEMPT_NUMBERS)
        number += 1
        attempt = f", attempt {tried + 1}" if tried else ""
    return f"{number} <small>{run.run_pass.value}{attempt}</small>"


def _table(title: str, heads: str, lines: str) -> str:
    return (
        f'<h3>{title}</h3>\n<div class="scroll" role="region" tabindex="0" aria-label="{title}"><table class="small">\n'
        f"<thead>{heads}</thead>\n<tbody>\n{lines}</tbody></table></div>\n"
    )


def _run_line(row: ResultRow, run: InvocationRow, decimals: Mapping[str, int]) -> str:
    digits = decimals["median"]
    latency = figure_ms(run.latency_us, digits)
    is_own = run.is_used and row.result.status in OWN_FIGURE
    if run.latency_us is not None and not is_own:
        latency = f"<del>{latency}</del>"
    if run.latency_us is not None and run.figure is FigureKind.MEAN:
        latency += " <small>mean</small>"
    spread = NOTHING
    if run.p5_us is not None and run.p95_us is not None:
        spread = f"{figure_ms(run.p5_us, digits)} \N{EN DASH} {figure_ms(run.p95_us, digits)}"
    reason = f" <small>{_text(run.reason_code)}</small>" if run.reason_code else ""
    return (
        f'<tr{"" if run.is_used else " class=unused"}><td class="n">{_number(run)}</td><td class="n">{latency}</td>'
        f"<td>{run.outcome.value}{reason}</td><td>{run.quality.word}</td><td>{run.truth.value}</td>"
        f'<td class="n">{spread}</td><td class="n">{NOTHING if run.inferences is None else run.inferences}</td>'
        f'<td class="n">{figure_ms(run.first_us, decimals["first"])}</td>'
        f'<td class="n">{figure_ms(run.init_us, decimals["init"])}</td><td>{moment_text(run.started_at)}</td>'
        f'<td class="n">{format_duration(run.duration_s)}</td></tr>\n'
    )


def _state_line(run: InvocationRow) -> str:
    before, after = run.state_before, run.state_after
    if before is None and after is None:
        return ""
    cells = "".join(
        f"<td>{_text(of(before))}<br>{_text(of(after))}</td>" for of in (hottest_text, battery_text, clocks_text)
    )
    return f'<tr><td class="n">{_number(run)}</td><td>before<br>after</td>{cells}</tr>\n'


def _drawn(title: str, traces: Sequence[Trace]) -> str:
    """Return a drawing of each quantity that changed, and a line with those that didn't."""
    if not traces:
        return ""
    moving = "".join(_trace(trace) for trace in traces if trace.points)
    still = ", ".join(f"{_text(trace.name)} {trace.high:.0f} {trace.unit}" for trace in traces if not trace.points)
    drawings = f'<div class="traces">\n{moving}</div>\n' if moving else ""
    told = f"<p><small>The same at every look: {still}.</small></p>\n" if still else ""
    return f"<h3>{title}</h3>\n{drawings}{told}"


def _trace(trace: Trace) -> str:
    name, lasted = _text(trace.name), format_duration(trace.duration_s)
    low, high = f"{trace.low:.0f}", f"{trace.high:.0f}"
    return (
        f'<figure class="trace"><figcaption>{name} <small>{trace.unit}</small></figcaption>\n'
        f'<svg viewBox="0 0 300 60" preserveAspectRatio="none" role="img" aria-label="{name}: {low} to {high} '
        f'{trace.unit} within {lasted}"><polyline class="trace-line" points="{trace.points}"/></svg>\n'
        f"<small>{low} \N{EN DASH} {high}, last {trace.last:.0f}; {lasted}</small></figure>\n"
    )


def _log(run: InvocationRow, whole: LogExcerpt, characters: int) -> str:
    status = f", exit code {run.exit_code}" if run.exit_code is not None else ""
    title = f"<h3>Log of invocation {run.number}{status}</h3>\n"
    where = f"it is in the store under run <code>{_text(run.run_id)}</code>"
    if not characters:
        size = format_bytes(whole.total_bytes)
        return f"{title}<p>{size} of output, left out of a report of this size; {where}.</p>\n"
    log = shorter(whole, characters)
    cut = ""
    if log.left_out_bytes:
        sizes = f"{format_bytes(log.left_out_bytes)} of {format_bytes(log.total_bytes)}"
        cut = f"<p><small>Cut: {sizes} left out; {where}.</small></p>\n"
    return f'{title}{cut}<pre class="log" tabindex="0">{_block(log.text)}</pre>\n'


def _identity(row: ResultRow) -> str:
    model, build = row.model.sha256[:SHORT_HASH], row.case.build_sha256[:SHORT_HASH]
    return (
        f'<p class="identity"><small>case <code>{_text(row.key)}</code> · model <code>{_text(model)}</code> · build '
        f"<code>{_text(build)}</code> · serial <code>{_text(row.device.serial)}</code></small></p>"
    )


@lru_cache(maxsize=4_096)
def moment_text(moment: datetime | None) -> str:
    """Return a moment with its zone: ``2026-03-14 22:05 UTC``; ``---`` when unknown."""
    return NOTHING if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
