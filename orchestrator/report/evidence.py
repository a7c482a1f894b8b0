"""A case's evidence as HTML: figure, findings, delegate, runs, conditions and log. A page holds it
packed, and its script (evidence.js) shows a case on demand.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from markupsafe import escape

from orchestrator.analysis.case_result import OWN_FIGURE, CaseStatus
from orchestrator.analysis.drift import ATTEMPT_NUMBERS
from orchestrator.analysis.quality import figure_us
from orchestrator.delegates import place_of
from orchestrator.passes import is_sustained
from orchestrator.records.case import FIGURE_PASS
from orchestrator.records.run import DelegateEvidence, RunRecord
from orchestrator.records.verdict import OUTPUT_FINDINGS
from orchestrator.report.charts import percentiles
from orchestrator.tables.escapes import visible, visible_block
from orchestrator.tables.findings import findings_table
from orchestrator.tables.html import TableHtml, badge, plain, tag
from orchestrator.tables.labels import (
    PARITY_WORDS,
    SHORT_HASH,
    figure_text,
    figure_unit,
    moment_text,
)
from orchestrator.tables.results import BY_NAME, INVOCATIONS, CaseInvocation, figures_decimals
from orchestrator.tables.rows import ResultRow
from orchestrator.tables.runs import LOG_CHARACTERS, LogExcerpt, device_moment, shorter
from orchestrator.tables.table import NOTHINGS, PAGE, Column, Table
from orchestrator.units import first_few, format_bytes

#: HTML, or the kind of a drawing and what evidence.js draws it from.
Block = str | tuple[Any, ...]
#: The number of cases that are packed together: unpacked they are many times as large.
TOGETHER: Final = 100
#: Characters of logs in one report, shared among its cases; with less than the least each, there
#: are no logs.
_LOG_BUDGET: Final = 3_000_000
_LEAST_LOG: Final = 400
_MOST_LINES: Final = 5
_MOST_OPERATORS: Final = 20
#: The columns that are badges above a case's figure.
_JUDGED: Final = [
    BY_NAME[name] for name in ("winner", "delegate_truth", "quality", "outputs", "grade")
]
#: The columns of runs in the evidence.
_OF_RUNS: Final = (
    "invocation", "latency_us", "tokens_per_s", "not_a_result_us", "outcome", "reason_code",
    "quality", "delegate_truth", "p5_us", "p95_us", "inferences", "first_inference_us", "init_us",
    "started_at", "duration_s",
)  # fmt: skip
_MERGED: Final = frozenset({"outcome", "quality", "delegate_truth"})


def evidence_of(rows: Sequence[ResultRow]) -> Iterator[Sequence[tuple[str, Sequence[Block]]]]:
    """Yield the evidence of up to ``TOGETHER`` cases: each case's title and blocks.

    Logs of large reports are cut, with a note.
    """
    digits = figures_decimals(rows)
    columns = _run_columns(digits)
    share = min(LOG_CHARACTERS, _LOG_BUDGET // max(1, len(rows)))
    characters = share if share >= _LEAST_LOG else 0
    for begin in range(0, len(rows), TOGETHER):
        cases = rows[begin : begin + TOGETHER]
        # Cells are made together, which takes less time.
        runs = Table(
            name="invocations",
            caption="Invocations",
            columns=columns,
            rows=[(row, run) for row in cases for run in row.runs],
            is_judged=lambda pair: pair[1].run_id in pair[0].used,
        )
        run_tables = _parts(runs, [len(row.runs) for row in cases])
        findings = findings_table([item for row in cases for item in row.finding_counts])
        finding_tables = _parts(findings, [len(row.finding_counts) for row in cases])
        words = zip(*(column.cells(cases) for column in _JUDGED), strict=True)
        yield [
            (
                visible(row.model.label),
                [
                    *_head(row, judged, digits),
                    *_objections(row, finding_table),
                    *_delegate(row),
                    *_runs(row, run_table, characters),
                    _identity(row),
                ],
            )
            for row, judged, finding_table, run_table in zip(
                cases, words, finding_tables, run_tables, strict=True
            )
        ]


def _parts(table: Table[Any], counts: Sequence[int]) -> Iterator[str]:
    """Yield a table for each number of rows."""
    html, begin = TableHtml(table, "small"), 0
    for count in counts:
        yield html.part(begin, begin + count)
        begin += count


def _run_columns(digits: int) -> list[Column[CaseInvocation]]:
    """Return the columns of runs; figures have ``digits`` decimals."""
    by_name = {column.name: column for column in INVOCATIONS}
    for name in ("latency_us", "not_a_result_us", "p5_us", "p95_us"):
        by_name[name] = replace(by_name[name], digits=digits)
    by_name["invocation"] = Column("invocation", "#", lambda pair: _number(pair[1]))
    by_name["started_at"] = replace(
        by_name["started_at"], shown=lambda pair: moment_text(pair[1].started_at)
    )
    return [
        replace(by_name[name], forms=PAGE, is_optional=True, is_merged=name in _MERGED)
        for name in _OF_RUNS
    ]


def _p(html: str, css_class: str = "") -> str:
    return tag("p", html, css_class)


def _pre(text: str, css_class: str = "") -> str:
    return tag("pre", escape(text), css_class, tabindex="0")


def _head(row: ResultRow, judged: Sequence[str], digits: int) -> Iterator[Block]:
    device = tag("bdi", plain(row.device.label), "name")
    virtual = f" {badge('virtual', 'virtual')}" if row.is_virtual else ""
    configuration = tag("bdi", plain(row.configuration))
    yield _p(f"{device}{virtual} \N{MIDDLE DOT} {configuration}", "case-line")
    if row.origin:
        origin = plain(row.origin.removeprefix("imported "))
        yield _p(f"{badge('imported', 'v-warning')} {origin}.")
    badges = [
        badge(f"{column.head} {word}", column.tone(row) if column.tone is not None else "")
        for column, word in zip(_JUDGED, judged, strict=True)
        if word not in NOTHINGS and (column.name != "outputs" or row.has_checked_outputs)
    ]
    yield _p("".join([*badges, badge(row.case.process_mode.value)]), "badges")
    yield from _figure(row, digits)


def _figure(row: ResultRow, digits: int) -> Iterator[Block]:
    summary = row.summary
    if summary is None:
        return
    unit = figure_unit(row.case)
    median = f"{figure_text(row.case, summary.median_us, digits)} {unit}"
    if row.status not in OWN_FIGURE:
        reason = row.delegate_text if row.status is CaseStatus.FELL_BACK else "rejected"
        no_result = plain(f"No result of {row.case.delegate.value}: ")
        yield _p(f"{no_result}{tag('del', median)} ({plain(reason)}).", "case-figure")
        return
    interval = ""
    if summary.interval is not None:
        ends = [summary.interval.low, summary.interval.high]
        low, high = sorted((figure_text(row.case, end, digits) for end in ends), key=float)
        interval = f" ({low} to {high} {unit} at 95 %)"
    kind = ", a mean" if row.has_mean else ""
    rest = f"{interval}{kind} over {summary.count} of {row.ended} invocations."
    yield _p(f"{tag('b', median)}{rest}", "case-figure")


def _objections(row: ResultRow, findings: str) -> Iterator[Block]:
    yield from (_p(plain(f"Invocations: {text}.")) for _, text in row.stopped)
    yield from (_p(plain(note)) for note in row.notes)
    if row.reason:
        yield _p(f"{tag('code', plain(row.reason_code))} {plain(row.reason)}")
    if row.parity is not None and row.parity not in OUTPUT_FINDINGS.values():
        words = f"{PARITY_WORDS[row.parity].capitalize()}: {row.parity_reason}"
        yield _p(plain(f"{words.removesuffix(': ')}."))
    if row.next_step:
        yield _p(f"{tag('b', 'Next:')} {plain(row.next_step)}")
    if row.finding_counts:
        yield tag("h3", "Findings") + findings


def _delegate(row: ResultRow) -> Iterator[Block]:
    evidence = row.evidence
    if evidence is None or not (evidence.lines or evidence.cpu_operators):
        return
    requested, ran_on = (
        tag("code", plain(word))
        for word in (
            evidence.requested or row.case.delegate.value,
            place_of(evidence) or "unknown",
        )
    )
    yield tag("h3", "Where the operators ran")
    yield _p(f"{_nodes(evidence)}Requested {requested}, ran on {ran_on}.")
    yield from (_pre(visible(line)) for line in evidence.lines[:_MOST_LINES])
    items = [
        f"{tag('code', plain(name))} {plain(reason)}" for name, reason in evidence.cpu_operators
    ]
    if items:
        items = first_few(items, _MOST_OPERATORS)
        yield tag("ul", "".join(tag("li", item) for item in items))


def _nodes(evidence: DelegateEvidence) -> str:
    if not evidence.share_text:
        return ""
    return f"{evidence.share_text} operators delegated{evidence.partitions_text}. "


def _runs(row: ResultRow, runs: str, characters: int) -> Iterator[Block]:
    if not row.runs:
        yield _p("No invocation is stored.")
        return
    yield tag("h3", "Invocations")
    used = [figure_us(run, row.figure) for run in row.runs if run.run_id in row.used]
    is_drawn = row.own_summary is not None and not row.case.is_per_token and len(used) > 1
    yield ("runs", runs, percentiles(row.case, used)) if is_drawn else runs
    moments = []
    for run in row.runs:
        for word, state in (("before", run.state_before), ("after", run.state_after)):
            if state is not None:
                moments.append((_number(run), word, *device_moment(state)))
    if moments:
        yield tag("h3", "Conditions before and after")
        yield "moments", moments
    logged = [(run, *row.logs[run.run_id]) for run in row.runs if run.run_id in row.logs]
    for run, _, samples in logged:
        if samples:
            yield "samples", f"While invocation {_number(run)} ran", samples
    if row.command:
        yield tag("h3", "Command") + _pre(visible(row.command))
    for run, log, _ in logged:
        yield from _log(run, log, characters)


def _number(run: RunRecord) -> str:
    """Return a run's number, with its pass unless it is timing: ``3 cold``."""
    if run.run_pass is FIGURE_PASS:
        return str(run.invocation + 1)
    if not is_sustained(run):
        return f"{run.invocation + 1} {run.run_pass}"
    tried, number = divmod(run.invocation, ATTEMPT_NUMBERS)
    return f"{number + 1} {run.run_pass}" + (f", attempt {tried + 1}" if tried else "")


def _log(run: RunRecord, whole_log: LogExcerpt, characters: int) -> Iterator[Block]:
    code = run.exit_code
    status = f", exit code {code}" if code is not None else ""
    yield tag("h3", plain(f"Log of invocation {_number(run)}{status}"))
    store_note = f"it is in the store under run {tag('code', plain(run.run_id))}."
    if not characters:
        size = format_bytes(whole_log.total_bytes)
        yield _p(f"{size} of output, left out of a report of this size; {store_note}")
        return
    log = shorter(whole_log, characters)
    if log.left_out_bytes:
        sizes = f"{format_bytes(log.left_out_bytes)} of {format_bytes(log.total_bytes)}"
        yield _p(f"Cut: {sizes} left out; {store_note}")
    yield _pre(visible_block(log.text), "log")


def _identity(row: ResultRow) -> Block:
    model, build = row.model.sha256[:SHORT_HASH], row.case.build_sha256[:SHORT_HASH]
    identities = (
        ("case", row.key),
        ("model", model),
        ("build", build),
        ("serial", row.device.serial),
    )
    text = " \N{MIDDLE DOT} ".join(f"{name} {value}" for name, value in identities)
    return _p(plain(text), "identity")
