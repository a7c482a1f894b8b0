"""The results in a terminal: case by case or as a matrix, and what the further passes showed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from orchestrator.analysis.case_result import CaseStatus
from orchestrator.passes import shown
from orchestrator.records.parity import ParityVerdict
from orchestrator.records.run import OUT_OF_TIME, DelegateTruth, Outcome
from orchestrator.records.verdict import Quality
from orchestrator.records.workload import FIGURE_PASS, grouped
from orchestrator.report.data import ReportData
from orchestrator.report.text_matrix import NOT_PLANNED, matrix_lines
from orchestrator.tables import text
from orchestrator.tables.escapes import visible, wrap
from orchestrator.tables.labels import PARITY_WORDS
from orchestrator.tables.results import (
    energy_table,
    figures_table,
    loads_table,
    results_table,
    starts_table,
)
from orchestrator.tables.rows import BestMark, ResultRow, origin_of
from orchestrator.tables.text import WIDTH
from orchestrator.units import counted, format_percent

#: Phones that are listed one after the other; more are lines of a matrix, and so are several where
#: there is room.
_MOST_LISTED: Final = 3
_WIDE: Final = 120
#: More cases of one kind are counted.
_MOST_NAMED: Final = 5


def render_text_table(data: ReportData, width: int = WIDTH) -> str:
    """Return the results as plain text for a terminal of so many columns.

    Fewer than 80 are taken for 80.

    A few phones are listed case by case; more stand in a matrix of devices and configurations, as
    do several in a wide terminal. A figure that isn't the requested delegate's, or that was
    rejected, isn't shown: its place says why.
    """
    if not data.results:
        return f"{data.headline.scope}\n"
    devices = len({row.device.serial for row in data.results})
    width = max(width, WIDTH)
    is_matrix = devices > (1 if width >= _WIDE else _MOST_LISTED)
    shown = [row for row in data.results if not row.is_unused_thread_count]
    lines = (
        matrix_lines(data, width)
        if is_matrix
        else text.render(results_table(shown), width).split("\n")
    )
    table = "\n".join(lines)
    rows = data.results
    for part in (starts_table(rows), energy_table(rows), loads_table(rows), figures_table(rows)):
        if part.listed:
            lines += ["", part.caption, *text.render(part, width).split("\n")]
    for told in (*_memory(rows), *_passes(rows)):
        lines += ["", *wrap(visible(told))]
    lines += ["", *_legend(data, width, table, is_matrix=is_matrix)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _virtual(row: ResultRow) -> str:
    return ", virtual" if row.is_virtual else ""


def _memory(rows: Sequence[ResultRow]) -> Iterator[str]:
    """Yield the memory of the cases that a pass of its own measured, and of those that have nothing
    else to show.
    """
    for row in rows:
        parts = zip(
            ("after init", "overall", "peak"),
            (row.init_memory_mib, row.overall_memory_mib, row.peak_memory_mib),
            strict=True,
        )
        was_asked_for = any(
            shown(invocation.run.run_pass).measures_memory for invocation in row.invocations
        )
        if row.has_memory and (was_asked_for or row.own is None):
            known = ", ".join(
                f"{name} {value:.1f} MB" for name, value in parts if value is not None
            )
            yield f"memory of {row.who}: {known}{_virtual(row)}"


def _passes(rows: Sequence[ResultRow]) -> Iterator[str]:
    """Yield what comparing outputs and profiling came to, and what of any pass but timing was left
    out.
    """
    for verdict, words in PARITY_WORDS.items():
        compared = [row for row in rows if row.result.parity is verdict]
        if compared and verdict is ParityVerdict.SAME:
            yield f"{words}: {counted(len(compared), 'case')}"
            continue
        yield from (
            f"{words}: {row.who}: {row.result.parity_reason}" for row in compared[:_MOST_NAMED]
        )
        if len(compared) > _MOST_NAMED:
            yield f"{words}: {counted(len(compared) - _MOST_NAMED, 'case')} more"
    profiled = sum(bool(row.profiles) for row in rows)
    if profiled:
        yield f"operators of {counted(profiled, 'case')} are profiled: see the report"
    left_out = Counter(
        reason
        for row in rows
        for reason in dict.fromkeys(
            (item.run.run_pass, item.run.reason_code, item.run.reason)
            for item in row.invocations
            if item.run.outcome is Outcome.SKIPPED and item.run.run_pass is not FIGURE_PASS
            if item.run.reason_code != OUT_OF_TIME
        )
    )
    for (name, code, reason), count in left_out.items():
        yield f"{name.value} left out for {counted(count, 'case')} ({code}): {reason}"


def _doubts(rows: Sequence[ResultRow]) -> list[str]:
    """Return why figures are suspect: their rows have no room for it."""
    measured = (row for row in rows if row.result.status is CaseStatus.MEASURED)
    suspect = (row for row in measured if row.result.quality is Quality.SUSPECT)
    return [
        f"suspect ({code}): {'; '.join(row.who for row in group[:_MOST_NAMED])}"
        + (f" and {len(group) - _MOST_NAMED} more" if len(group) > _MOST_NAMED else "")
        for code, group in grouped(suspect, lambda row: row.worst_code).items()
    ]


def _legend(data: ReportData, width: int, table: str, *, is_matrix: bool) -> list[str]:
    """Return what stands below a table: what to trust, and what each word and mark means that
    stands in it.
    """
    rows = data.results
    lines = [data.headline.trust, *_doubts(rows)]
    if any(row.best is not BestMark.NONE for row in rows):
        lines.append(
            "* fastest of this model on this device; = can't be told from the fastest (95 % interval)"
        )
    goals = sorted({row.result.precision_goal for row in rows if row.result.imprecision})
    if goals:
        wanted = ", ".join(f"\u00b1{format_percent(goal)}" for goal in goals)
        lines.append(
            f"~ not precise: the 95 % interval is wider than {wanted}, or one process gave none"
        )
    if any(row.has_mean for row in rows):
        lines.append(
            "mean: the program printed no medians"
            if not is_matrix
            else "m mean: the program printed no medians"
        )
    if any(row.case.is_per_token for row in rows):
        lines.append(
            "tokens/s: all tokens over their time together, the harmonic mean of the repetitions' speeds"
        )
    lines += _matrix_words(rows, table) if is_matrix else ["; ".join(_list_words(rows))]
    if any(row.delegate_text == "fell back to CPU" for row in rows):
        lines.append("fell back: the CPU ran it, so the figure isn't the delegate's")
    if data.has_virtual:
        mark = ("(virtual)" if "(virtual)" in table else "virtual") if is_matrix else "v virtual"
        lines.append(f"{mark}: from benchfarm's own virtual phone, no measurement")
    origins = ((row.name or row.campaign_id, origin_of(row)) for row in data.campaigns)
    lines += dict.fromkeys(f"campaign {name}: {origin}" for name, origin in origins if origin)
    return [part for line in filter(None, lines) for part in wrap(visible(line), width)]


def _list_words(rows: Sequence[ResultRow]) -> Iterable[str]:
    """Yield what the words mean that stand in a list of cases."""
    own = [row for row in rows if row.own is not None]
    if any(row.speed_up is not None for row in rows):
        yield "vs CPU: times as fast as the fastest on the CPU"
    if any(row.result.truth is DelegateTruth.FULL for row in own):
        yield "full: the delegate ran all operators"
    if any(row.result.truth is DelegateTruth.PARTIAL for row in own):
        yield "partial n/m: it ran n of m, the CPU the rest"
    if any(row.result.is_judged for row in own):
        yield "clean: nothing found that spoils the figure"


def _matrix_words(rows: Sequence[ResultRow], table: str) -> Iterable[str]:
    """Yield what the words mean that stand in a matrix, and what its cells have no room for."""
    own = [row for row in rows if row.own is not None]
    if any(not row.result.is_judged for row in own):
        yield "? not clean: suspect, or nothing shows where the operators ran"
    partial = Counter(
        f"{row.configuration} ({row.delegate_text})"
        for row in own
        if row.result.truth is DelegateTruth.PARTIAL
    )
    if partial:
        named = "; ".join(
            f"{text} on {counted(count, 'device')}"
            for text, count in partial.most_common(_MOST_NAMED)
        )
        yield f"partial, the CPU ran the other operators: {named}"
    words = set(table.split())
    if "same" in words:
        yield "same: the delegate ran all operators and uses no threads; see its other column"
    if NOT_PLANNED in words:
        yield f"{NOT_PLANNED} not measured"
