"""A case's evidence as data: what ran, where, how often, under which conditions, and what it
printed.

Nothing here is HTML. A part of the evidence is a text, a list of parts, or a mapping of one name to
what stands under it, beside it perhaps the ``class`` that colours it: ``{"p": ["Asked for ",
{"code": "gpu"}]}``. The names are those of ``evidence.html.j2``, which writes them into small
pages, and of ``evidence.js``, which draws them when one is opened: whatever a phone, a file or a
user wrote is text there, wherever it stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, TypeAlias

from orchestrator.analysis.case_result import OWN_FIGURE, CaseStatus
from orchestrator.analysis.sustained import ATTEMPT_NUMBERS
from orchestrator.delegates import place_of
from orchestrator.passes import goes_on
from orchestrator.records.case import FIGURE_PASS
from orchestrator.records.parity import ParityVerdict
from orchestrator.records.run import DelegateEvidence, FigureKind
from orchestrator.tables.column import NOTHING, column_decimals
from orchestrator.tables.escapes import visible, visible_block
from orchestrator.tables.labels import (
    PARITY_CLASSES,
    PARITY_WORDS,
    SHORT_HASH,
    figure_ms,
    figure_text,
    figure_unit,
)
from orchestrator.tables.looks import (
    LOG_CHARACTERS,
    LogExcerpt,
    Trace,
    battery_change_text,
    battery_text,
    clocks_text,
    condition_traces,
    hottest_text,
    shorter,
)
from orchestrator.tables.results import figures_decimals
from orchestrator.tables.rows import BestMark, FindingRow, InvocationRow, ResultRow
from orchestrator.units import US_PER_MS, format_bytes, format_duration

#: A part of the evidence: JSON with text at its ends.
Part: TypeAlias = "str | Sequence[Part] | Mapping[str, Part]"

#: Characters of logs in one report, shared among its cases; what is left of a share below the least
#: isn't worth it.
_LOG_BUDGET: Final = 3_000_000
_LEAST_LOG: Final = 400
_MOST_LINES: Final = 5
_MOST_OPERATORS: Final = 20
#: Invocations of a sustained run that are listed, from its beginning and from its end.
_SUSTAINED_SHOWN: Final = 10
_VIRTUAL_BADGE: Final[Part] = {"span": "virtual", "class": "badge virtual"}
_BEST_BADGES: Final[Mapping[BestMark, Sequence[Part]]] = {
    BestMark.NONE: [],
    BestMark.BEST: [" ", {"span": [{"icon": "\N{BLACK STAR}"}, " fastest"], "class": "badge best"}],
    BestMark.TIED: [
        " ",
        {"span": [{"icon": "\N{ALMOST EQUAL TO}"}, " tied"], "class": "badge tied"},
    ],
    BestMark.ALONE: [" ", {"span": ["only one"], "class": "badge"}],
    BestMark.UNTESTED: [" ", {"span": ["not tested"], "class": "badge"}],
}
#: Of each column: its name, its unit, and ``n`` for figures. One text, as each case has it.
_RUN_HEADS: Final = (
    "no.;;n|median;ms;n|outcome;;|quality;;|delegate;;|p5 \N{EN DASH} p95;ms;n|inferences;;n|first;ms;n|init;ms;n|"
    "started;;|took;;n"
)
_STATE_HEADS: Final = "no.;;n|when;;|hottest zone;\N{DEGREE SIGN}C;|battery;;|clock of limit;MHz;"


def _decimals(rows: Sequence[ResultRow]) -> Mapping[str, int]:
    """Return the decimals that these cases' figures in milliseconds need, by kind of figure."""
    reports = [
        run.run.report for row in rows for run in row.invocations if run.run.report is not None
    ]
    starts = {
        "init": [report.init_us for report in reports],
        "first": [report.first_inference_us for report in reports],
    }
    known = {
        name: [value_us / US_PER_MS for value_us in values if value_us]
        for name, values in starts.items()
    }
    return {"median": figures_decimals(rows)} | {
        name: column_decimals(values) for name, values in known.items()
    }


def case_evidence(rows: Sequence[ResultRow]) -> Iterable[tuple[str, Sequence[Part]]]:
    """Yield each case's title and its evidence, one part below the other.

    Logs are cut so that a report of many cases stays readable, and say so.
    """
    decimals = _decimals(rows)
    share = min(LOG_CHARACTERS, _LOG_BUDGET // max(1, len(rows)))
    characters = share if share >= _LEAST_LOG else 0
    for row in rows:
        parts = (
            *_head(row, decimals),
            *_objections(row),
            *_delegate(row),
            *_runs(row, decimals, characters),
        )
        yield visible(row.model.label), (*parts, _identity(row))


@lru_cache(maxsize=16_384)
def _text(text: str) -> str:
    return visible(text)


def _head(row: ResultRow, decimals: Mapping[str, int]) -> Iterable[Part]:
    result = row.result
    virtual = [" ", _VIRTUAL_BADGE] if row.device.is_virtual else []
    device: Part = {"bdi": _text(row.device.label), "class": "name"}
    yield {
        "p": [device, *virtual, " \N{MIDDLE DOT} ", {"bdi": _text(row.configuration)}],
        "class": "case-line",
    }
    if row.is_virtual:
        yield {
            "p": [_VIRTUAL_BADGE, " Computed by benchfarm's virtual phone; no measurement."],
            "class": "virtual-note",
        }
    if row.origin:
        origin = f" {_text(row.origin).removeprefix('imported ')}"
        yield {"p": [{"span": "imported", "class": "badge v-warning"}, origin, "."]}
    badges: list[Part] = []
    if result.truth is not None:
        badges += [
            {"span": _text(row.delegate_text), "class": f"badge t-{result.truth.value}"},
            " ",
        ]
    quality = result.quality.value if result.quality is not None else "none"
    badges += [{"span": row.quality_text, "class": f"badge q-{quality}"}, *_BEST_BADGES[row.best]]
    if result.parity is not None:
        badges += [
            " ",
            {
                "span": PARITY_WORDS[result.parity],
                "class": f"badge {PARITY_CLASSES[result.parity]}",
            },
        ]
    if row.result.grade is not None:
        badges += [" ", {"span": f"grade {row.result.grade.value}", "class": "badge grade"}]
    badges += [" ", {"span": row.case.process_mode.value, "class": "badge"}]
    yield {"p": badges, "class": "badges"}
    yield from _figure(row, decimals["median"])


def _figure(row: ResultRow, digits: int) -> Iterable[Part]:
    result, summary = row.result, row.result.summary
    if summary is None:
        return
    unit = figure_unit(row.case)
    median = f"{figure_text(row.case, summary.median_us, digits)} {unit}"
    if result.status not in OWN_FIGURE:
        why = _text(row.delegate_text) if result.status is CaseStatus.FELL_BACK else "rejected"
        yield {
            "p": [f"No result of {row.case.delegate.value}: ", {"del": median}, f" ({why})."],
            "class": "case-figure",
        }
        return
    interval = ""
    if summary.interval is not None:
        low, high = (
            figure_text(row.case, end, digits)
            for end in (summary.interval.low, summary.interval.high)
        )
        interval = f" ({f'{high} to {low}' if row.case.is_per_token else f'{low} to {high}'} {unit} at 95 %)"
    kind = ", a mean" if row.has_mean else ""
    gain, ratio = "", row.speed_up
    if ratio is not None and row.baseline != row.configuration:
        between = (
            f" ({ratio.interval.low:.2f} to {ratio.interval.high:.2f})"
            if ratio.interval is not None
            else ""
        )
        gain = f" {ratio.value:.2f}\N{MULTIPLICATION SIGN} the speed of {_text(row.baseline)}{between}."
    rest = f"{interval}{kind} over {summary.count} of {result.ended} invocations.{gain}"
    yield {"p": [{"b": median}, rest], "class": "case-figure"}


def _objections(row: ResultRow) -> Iterable[Part]:
    result = row.result
    for _, text in row.stopped:
        yield {"p": f"Invocations: {_text(text)}."}
    for note in result.notes:
        yield {"p": _text(note)}
    if result.reason:
        yield {"p": [{"code": _text(result.reason_code)}, f" {_text(result.reason)}"]}
    if result.parity is ParityVerdict.SAME and result.parity_reason:
        yield {"p": f"Outputs as the reference's: {_text(result.parity_reason)}."}
    if row.next_step:
        yield {"p": [{"b": "Next:"}, f" {_text(row.next_step)}"]}
    if row.findings:
        yield {"h3": "Findings"}
        yield {"ul": [{"li": _finding(finding, len(row.invocations))} for finding in row.findings]}


def _finding(finding: FindingRow, invocations: int) -> Sequence[Part]:
    found, severity = finding.finding, finding.finding.severity.value
    parts: list[Part] = [
        {"span": severity, "class": f"badge v-{severity}"},
        " ",
        {"code": _text(found.code)},
    ]
    parts.append(f" {_text(found.message)}")
    if found.evidence:
        parts += [" ", {"small": f"({_text(found.evidence)})"}]
    if finding.count and invocations > 1:
        parts += [" ", {"small": f"{finding.count} of {invocations} invocations"}]
    if finding.next_step:
        parts += [{"br": ""}, {"small": _text(finding.next_step)}]
    return parts


def _delegate(row: ResultRow) -> Iterable[Part]:
    found = row.delegate
    if found is None or not (found.lines or found.cpu_operators):
        return
    asked, ran = found.requested or row.case.delegate.value, place_of(found) or "unknown"
    yield {"h3": "Where the operators ran"}
    yield {
        "p": [
            f"{_nodes(found)}Asked for ",
            {"code": _text(asked)},
            ", ran on ",
            {"code": _text(ran)},
            ".",
        ]
    }
    yield from ({"pre": _text(line)} for line in found.lines[:_MOST_LINES])
    if found.cpu_operators:
        shown = found.cpu_operators[:_MOST_OPERATORS]
        items: list[Part] = [
            {"li": [{"code": _text(name)}, f" {_text(reason)}"]} for name, reason in shown
        ]
        if len(found.cpu_operators) > _MOST_OPERATORS:
            items.append({"li": f"and {len(found.cpu_operators) - _MOST_OPERATORS} more"})
        yield {"ul": items}


def _nodes(found: DelegateEvidence) -> str:
    if not found.total_nodes:
        return ""
    partitions = ""
    if found.partitions:
        partitions = (
            f" in {found.partitions} {'partition' if found.partitions == 1 else 'partitions'}"
        )
    return f"{found.delegated_nodes} of {found.total_nodes} operators delegated{partitions}. "


def _runs(row: ResultRow, decimals: Mapping[str, int], characters: int) -> Iterable[Part]:
    if not row.invocations:
        yield {"p": "No invocation is stored."}
        return
    shown = _without_middle(row.invocations)
    yield {
        "table": "Invocations",
        "heads": _RUN_HEADS,
        "rows": [_run_line(row, run, decimals) for run in shown],
    }
    if len(shown) < len(row.invocations):
        left = len(row.invocations) - len(shown)
        yield {
            "p": {
                "small": f"{left} invocations of the sustained run are left out here; its chart has them."
            }
        }
    if any(run.run.state_before or run.run.state_after for run in row.invocations):
        lines = [line for run in shown for line in _state_lines(run)]
        yield {"table": "Conditions before and after", "heads": _STATE_HEADS, "rows": lines}
        states = [
            item.run.state_before for item in row.invocations if item.run.state_before is not None
        ]
        swapped = battery_change_text(sorted(states, key=lambda state: state.at))
        if swapped:
            yield {"p": {"span": _text(swapped), "class": "badge v-warning"}}
    yield from _drawn("Temperature and clocks over time", condition_traces(row.invocations))
    for run in row.invocations:
        yield from _drawn(f"While invocation {run.number} ran", run.traces)
    if row.command:
        yield {"h3": "Command"}
        yield {"pre": _text(row.command)}
    for run in row.invocations:
        if run.log is not None:
            yield from _log(run, run.log, characters)


def _without_middle(runs: Sequence[InvocationRow]) -> Sequence[InvocationRow]:
    """Return the invocations without the hundreds that a sustained run has between its beginning
    and its end.
    """
    sustained = [item for item in runs if goes_on(item.run)]
    if len(sustained) <= 2 * _SUSTAINED_SHOWN:
        return runs
    hidden = {item.run.run_id for item in sustained[_SUSTAINED_SHOWN:-_SUSTAINED_SHOWN]}
    return [item for item in runs if item.run.run_id not in hidden]


def _number(run: InvocationRow) -> Part:
    if run.run.run_pass is FIGURE_PASS:
        return str(run.number)
    number, attempt = run.number, ""
    if goes_on(run.run):
        tried, number = divmod(run.number - 1, ATTEMPT_NUMBERS)
        number += 1
        attempt = f", attempt {tried + 1}" if tried else ""
    return [f"{number} ", {"small": f"{run.run.run_pass.value}{attempt}"}]


def _run_line(row: ResultRow, run: InvocationRow, decimals: Mapping[str, int]) -> Part:
    digits = decimals["median"]
    latency: Part = figure_text(row.case, run.latency_us, digits)
    if row.case.is_per_token and run.latency_us is not None:
        latency = [latency, " ", {"small": figure_unit(row.case)}]
    is_own = run.is_used and row.result.status in OWN_FIGURE
    if run.latency_us is not None and not is_own:
        latency = {"del": latency}
    if run.latency_us is not None and run.figure is FigureKind.MEAN and not row.case.is_per_token:
        latency = [latency, " ", {"small": "mean"}]
    spread, report = NOTHING, run.run.report
    inferences = report.inference if report is not None else None
    if inferences is not None and inferences.p5_us is not None and inferences.p95_us is not None:
        spread = f"{figure_ms(inferences.p5_us, digits)} \N{EN DASH} {figure_ms(inferences.p95_us, digits)}"
    outcome = run.run.outcome.value
    cells: list[Part] = [
        _number(run),
        latency,
        [f"{outcome} ", {"small": _text(run.run.reason_code)}] if run.run.reason_code else outcome,
        run.run.verdict.quality.word,
        run.truth.value,
        spread,
        NOTHING if inferences is None or inferences.count is None else str(inferences.count),
        figure_ms(report.first_inference_us if report is not None else None, decimals["first"]),
        figure_ms(report.init_us if report is not None else None, decimals["init"]),
        moment_text(run.run.started_at),
        format_duration(run.run.duration_s),
    ]
    return {"tr": cells} if run.is_used else {"tr": cells, "class": "unused"}


def _state_lines(run: InvocationRow) -> Iterable[Part]:
    before, after = run.run.state_before, run.run.state_after
    if before is not None or after is not None:
        texts = (hottest_text, battery_text, clocks_text)
        cells: list[Part] = [[_text(of(before)), {"br": ""}, _text(of(after))] for of in texts]
        yield {"tr": [_number(run), ["before", {"br": ""}, "after"], *cells]}


def _drawn(title: str, traces: Sequence[Trace]) -> Iterable[Part]:
    """Yield a drawing of each quantity that changed, and a line with those that didn't."""
    if not traces:
        return
    yield {"h3": title}
    moving = [_trace(trace) for trace in traces if trace.points]
    if moving:
        yield {"traces": moving}
    still = ", ".join(
        f"{_text(trace.name)} {trace.high:.0f} {trace.unit}" for trace in traces if not trace.points
    )
    if still:
        yield {"p": {"small": f"The same at every sample: {still}."}}


def _trace(trace: Trace) -> Part:
    low, high, lasted = f"{trace.low:.0f}", f"{trace.high:.0f}", format_duration(trace.duration_s)
    return {
        "name": _text(trace.name),
        "unit": trace.unit,
        "points": trace.points,
        "about": f"{_text(trace.name)}: {low} to {high} {trace.unit} within {lasted}",
        "told": f"{low} \N{EN DASH} {high}, last {trace.last:.0f}; {lasted}",
    }


def _log(run: InvocationRow, whole: LogExcerpt, characters: int) -> Iterable[Part]:
    code = run.run.exit_code
    status = f", exit code {code}" if code is not None else ""
    yield {"h3": f"Log of invocation {run.number}{status}"}
    where: Sequence[Part] = ("it is in the store under run ", {"code": _text(run.run.run_id)})
    if not characters:
        size = format_bytes(whole.total_bytes)
        yield {"p": [f"{size} of output, left out of a report of this size; ", *where, "."]}
        return
    log = shorter(whole, characters)
    if log.left_out_bytes:
        sizes = f"{format_bytes(log.left_out_bytes)} of {format_bytes(log.total_bytes)}"
        yield {"p": {"small": [f"Cut: {sizes} left out; ", *where, "."]}}
    yield {"log": visible_block(log.text)}


def _identity(row: ResultRow) -> Part:
    model, build = row.model.sha256[:SHORT_HASH], row.case.build_sha256[:SHORT_HASH]
    named = (("case", row.key), ("model", model), ("build", build), ("serial", row.device.serial))
    parts: list[Part] = []
    for name, value in named:
        parts += [f" \N{MIDDLE DOT} {name} " if parts else f"{name} ", {"code": _text(value)}]
    return {"p": {"small": parts}, "class": "identity"}


@lru_cache(maxsize=4_096)
def moment_text(moment: datetime | None) -> str:
    """Return a moment with its zone: ``2026-03-14 22:05 UTC``; ``---`` when unknown."""
    return NOTHING if moment is None else f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
