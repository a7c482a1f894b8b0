"""The results in a terminal: case by case or as a matrix, and what the further passes showed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, TypeVar

from orchestrator.analysis.case_result import CaseStatus
from orchestrator.analysis.energy import Mean
from orchestrator.records.parity import ParityVerdict
from orchestrator.records.run import OUT_OF_TIME, DelegateTruth, Outcome
from orchestrator.records.verdict import Quality
from orchestrator.records.workload import Pass, grouped
from orchestrator.report.data import ReportData
from orchestrator.report.matrix import figures_decimals
from orchestrator.report.text_matrix import MARKS, NOT_PLANNED, matrix_lines
from orchestrator.tables.escapes import display_width, fit, visible, wrap
from orchestrator.tables.labels import NOTHING, PARITY_WORDS, figure_ms, figure_text
from orchestrator.tables.passes import EnergyRow
from orchestrator.tables.rows import BestMark, ResultRow, origin_of
from orchestrator.units import counted, format_percent

#: Before the interval of a figure that isn't known as closely as it is wanted.
_NOT_PRECISE: Final = "~"
#: Columns of a terminal that the table takes at least.
WIDTH: Final = 80
#: Phones that are listed one after the other; more are lines of a matrix, and so are several where there is room.
_MOST_LISTED: Final = 3
_WIDE: Final = 120
#: Half an interval of this share and more only says that there were too few runs.
_MOST_TOLD: Final = 1.0
_INTERVAL: Final = "\N{PLUS-MINUS SIGN}95 %"
#: Where the figures begin, and the width of the word for where the operators ran.
_FIGURES_AT: Final = 31
_DELEGATE_WIDTH: Final = 14
#: More cases of one kind are counted.
_MOST_NAMED: Final = 5

Item = TypeVar("Item")


def render_text_table(data: ReportData, width: int = WIDTH) -> str:
    """Return the results as plain text for a terminal of so many columns; fewer than 80 are taken for 80.

    A few phones are listed case by case; more stand in a matrix of devices and configurations, as do several in a wide
    terminal. A figure that isn't the requested delegate's, or that was rejected, isn't shown: its place says why.
    """
    if not data.results:
        return f"{data.headline.scope}\n"
    devices = len({row.device.serial for row in data.results})
    width = max(width, WIDTH)
    is_matrix = devices > (1 if width >= _WIDE else _MOST_LISTED)
    lines = matrix_lines(data, width) if is_matrix else _list_lines(data)
    table = "\n".join(lines)
    rows = data.results
    for title, section in (*_starts(rows), *_energy(rows), *_loads(rows)):
        lines += ["", *wrap(visible(title)), *section]
    for text in (*_memory(rows), *_passes(rows)):
        lines += ["", *wrap(visible(text))]
    lines += ["", *_legend(data, width, table, is_matrix=is_matrix)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _list_lines(data: ReportData) -> list[str]:
    decimals = figures_decimals(data.results)
    lines = []
    rows_shown = [row for row in data.results if not row.is_unused_thread_count]
    for model, of_model in groupby(rows_shown, key=lambda row: row.model):
        lines.append(visible(model.label))
        for device, group in groupby(of_model, key=lambda row: row.device):
            rows = list(group)
            # A program that stands in for a real one makes a real device's figures virtual too.
            is_stood_in = not device.is_virtual and all(row.is_virtual for row in rows)
            head = "tokens/s" if rows[0].case.is_per_token else "median ms"
            lines.append(_device_line(f"{device.title} (virtual)" if is_stood_in else device.title, head))
            lines += [_result_line(row, decimals) for row in rows]
    return lines


def _device_line(title: str, figure: str) -> str:
    heads = f"{figure:>9}{_INTERVAL:>9}{'vs CPU':>8} {'delegate':<{_DELEGATE_WIDTH}} quality"
    width = _FIGURES_AT - 3
    if display_width(visible(title)) <= width:
        return f"  {fit(title, width)} {heads}"
    # The serial number that tells two phones apart stands at the end.
    lines = [f"  {line}\n" for line in wrap(visible(title), WIDTH - 2)]
    return f"{''.join(lines)}{' ' * _FIGURES_AT}{heads}"


def _result_line(row: ResultRow, decimals: int) -> str:
    summary = row.own
    ratio = NOTHING if row.speed_up is None else f"{row.speed_up.value:.2f}x"
    width = _FIGURES_AT - 5
    mark = f"{'v' if row.is_virtual else ' '}{MARKS[row.best]}"
    # What tells two configurations apart stands at the end: a long one gets a line of its own, rather than a cut.
    label = f" {mark} {fit(row.configuration, width)} "
    if display_width(visible(row.configuration)) > width:
        label = f" {mark} {fit(row.configuration, WIDTH - 4).rstrip()}\n{' ' * _FIGURES_AT}"
    if summary is None:
        # Without a figure, why there is none says more than where operators would have run.
        return label + fit(f"{NOTHING:>9}  {row.why_none}", WIDTH - _FIGURES_AT).rstrip()
    delegate = fit(row.delegate_text, _DELEGATE_WIDTH)
    kind = "m" if row.has_mean else " "
    spread = f"{_NOT_PRECISE if row.result.imprecision else ''}{row.spread_text}"
    figures = f"{figure_text(row.case, summary.median_us, decimals):>9}{kind}{spread:>8}{ratio:>8}"
    return f"{label}{figures} {delegate} {row.quality_word}"


#: A line above further lines.
_Section = tuple[str, list[str]]


def _virtual(row: ResultRow) -> str:
    return ", virtual" if row.is_virtual else ""


def _memory(rows: Sequence[ResultRow]) -> Iterator[str]:
    """Yield the memory of the cases that a pass of its own measured, and of those that have nothing else to show."""
    for row in rows:
        parts = zip(
            ("after init", "overall", "peak"),
            (row.init_memory_mib, row.overall_memory_mib, row.peak_memory_mib),
            strict=True,
        )
        was_asked_for = any(invocation.run.run_pass is Pass.MEMORY for invocation in row.invocations)
        if row.has_memory and (was_asked_for or row.own is None):
            known = ", ".join(f"{name} {value:.1f} MB" for name, value in parts if value is not None)
            yield f"memory of {row.who}: {known}{_virtual(row)}"


def _passes(rows: Sequence[ResultRow]) -> Iterator[str]:
    """Yield what comparing outputs and profiling came to, and what of any pass but timing was left out."""
    for verdict, words in PARITY_WORDS.items():
        compared = [row for row in rows if row.result.parity is verdict]
        if compared and verdict is ParityVerdict.SAME:
            yield f"{words}: {counted(len(compared), 'case')}"
            continue
        yield from (f"{words}: {row.who}: {row.result.parity_reason}" for row in compared[:_MOST_NAMED])
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
            if item.run.outcome is Outcome.SKIPPED and item.run.run_pass is not Pass.TIMING
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


def _starts(rows: Sequence[ResultRow]) -> Iterator[_Section]:
    """Yield the stages of all starts, nothing where no plan has the pass ``cold``."""
    for row in rows:
        if row.starts:
            lines = [f"  {'stage':<14}{'init ms':>11}{'first inference ms':>20}{'processes':>11}  quality"]
            for start in row.starts:
                times = f"{figure_ms(start.init_us, 2):>11}{figure_ms(start.first_us, 2):>20}{start.count:>11}"
                lines.append(f"  {start.stage.value:<14}{times}  {start.quality.word}{_virtual(row)}")
            yield f"starts of {row.who}", lines


def _by_place(items: Iterable[Item], row_of: Callable[[Item], ResultRow]) -> Iterator[tuple[str, list[Item]]]:
    """Yield "model on device" with its items, which are in this order."""
    for key, group in groupby(items, key=lambda item: (row_of(item).model.label, row_of(item).device.title)):
        yield " on ".join(key), list(group)


def _energy(rows: Sequence[ResultRow]) -> Iterator[_Section]:
    """Yield the energy of all cases, nothing where no plan has the pass ``energy``."""
    measured = [(row, row.energy) for row in rows if row.energy is not None]
    rails = sorted({rail for _, energy in measured for rail in energy.rails})
    sections = list(_by_place(measured, lambda pair: pair[0]))
    for number, (place, own) in enumerate(sections, start=1):
        lines = [f"  {'net mJ':>10}{'±95 %':>9}{'gross mJ':>10}{'blocks':>8}{'by':>12}{'against least':>18}  quality"]
        least = least_energy([row for row, _ in own])
        for row, energy in own:
            net, gross = energy.net_uj, energy.gross_uj
            lines.append(f" {'v' if row.is_virtual else ' '} {visible(row.configuration)}")
            if net is not None and gross is not None:
                ratio = _times(energy.against(least)) if least is not None and least is not energy else ""
                lines.append(
                    f"  {net.value / 1e3:>10.4g}{_half(net):>9}{gross.value / 1e3:>10.4g}{net.count:>8}"
                    f"{energy.grade:>12}{ratio:>18}  {energy.quality.word}"
                )
            for why, count in energy.missing:
                lines += wrap(visible(f"    no figure ({count}): {why}"))
        if rails and number == len(sections):
            lines += wrap(visible(f"  rails: the sum of {', '.join(rails)}"))
        yield f"energy per {'token' if own[0][0].case.is_per_token else 'inference'}, {place}", lines


def least_energy(rows: Sequence[ResultRow]) -> EnergyRow | None:
    """Return the energy of the case that takes least."""
    known = [(row.energy.net_uj.value, row.energy) for row in rows if row.energy and row.energy.net_uj]
    return min(known, key=lambda pair: pair[0])[1] if known else None


def _half(mean: Mean) -> str:
    share = None if mean.half_width is None else mean.half_width / mean.value
    return NOTHING if share is None else "too few" if share > _MOST_TOLD else f"±{format_percent(share)}"


def _times(ratio: Mean | None) -> str:
    if ratio is None:
        return NOTHING
    if ratio.half_width is None or ratio.half_width > _MOST_TOLD:
        return f"{ratio.value:.3f}x too few runs"
    return f"{ratio.value:.3f}x ±{format_percent(ratio.half_width)}"


def _loads(rows: Sequence[ResultRow]) -> Iterator[_Section]:
    """Yield the figures beside loads, nothing where no plan has the pass ``contention``."""
    for row in rows:
        if row.loads:
            lines = [f"  {'load':<22}{'median ms':>11}{'times as long':>20}{'runs':>6}{'load kept busy':>18}"]
            for load in row.loads:
                cores = "" if load.cores is None else f"{load.cores:.1f} cores"
                died = f"  load died: {load.died}" if load.died else ""
                times = _times(load.factor) if load.factor is not None else ""
                figure = f"{figure_ms(load.median_us, 2):>11}{times:>20}{load.count:>6}{cores:>18}"
                lines.append(f"  {visible(load.load):<22}{figure}{died}")
            yield f"beside a load: {row.who}{_virtual(row)}", lines


def _legend(data: ReportData, width: int, table: str, *, is_matrix: bool) -> list[str]:
    """Return what stands below a table: what to trust, and what each word and mark means that stands in it."""
    rows = data.results
    lines = [data.headline.trust, *_doubts(rows)]
    if any(row.best is not BestMark.NONE for row in rows):
        lines.append("* fastest of this model on this device; = can't be told from the fastest (95 % interval)")
    goals = sorted({row.result.precision_goal for row in rows if row.result.imprecision})
    if goals:
        wanted = ", ".join(f"\u00b1{format_percent(goal)}" for goal in goals)
        lines.append(f"~ not precise: the 95 % interval is wider than {wanted}, or one process gave none")
    if any(row.has_mean for row in rows):
        lines.append("m mean: the program printed no medians")
    if any(row.case.is_per_token for row in rows):
        lines.append("tokens/s: all tokens over their time together, the harmonic mean of the repetitions' speeds")
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
        f"{row.configuration} ({row.delegate_text})" for row in own if row.result.truth is DelegateTruth.PARTIAL
    )
    if partial:
        named = "; ".join(f"{text} on {counted(count, 'device')}" for text, count in partial.most_common(_MOST_NAMED))
        yield f"partial, the CPU ran the other operators: {named}"
    words = set(table.split())
    if "same" in words:
        yield "same: the delegate ran all operators and uses no threads; see its other column"
    if NOT_PLANNED in words:
        yield f"{NOT_PLANNED} not measured"
