"""Tables of plain rows: the results in a terminal, the flat record of a case, the public reference table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from orchestrator.analysis.case_result import CaseStatus
from orchestrator.analysis.energy import Mean
from orchestrator.delegates import place_of
from orchestrator.records.night import OUT_OF_TIME
from orchestrator.records.parity import ParityVerdict
from orchestrator.records.run import DelegateTruth, FigureKind, Outcome
from orchestrator.records.verdict import Quality
from orchestrator.records.workload import Pass
from orchestrator.report.data import BestMark, CampaignRow, InvocationRow, PublishedFigure, ReportData, ResultRow
from orchestrator.report.energy import EnergyRow
from orchestrator.report.escapes import display_width, fit, visible
from orchestrator.report.labels import (
    NOTHING,
    PARITY_WORDS,
    STATUS_WORDS,
    fallback_words,
    figure_ms,
    figure_text,
    truth_words,
)
from orchestrator.report.matrix import figures_decimals
from orchestrator.report.text_matrix import NOT_PLANNED, matrix_lines
from orchestrator.report.winners import is_unused_thread_count, worst_code
from orchestrator.units import format_percent, tokens_per_s

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
_MARKS: Final = {BestMark.BEST: "*", BestMark.TIED: "=", BestMark.NONE: " "}
#: Where the figures begin, and the width of the word for where the operators ran.
_FIGURES_AT: Final = 31
_DELEGATE_WIDTH: Final = 14
#: More cases of one kind are counted.
_MOST_NAMED: Final = 5

Scalar = str | int | float | bool | None


def has_mean(row: ResultRow) -> bool:
    """Whether a case's figure is made of means, where others' are of medians; tokens per second always are."""
    return not row.case.is_per_token and row.result.own_summary is not None and row.result.figure is FigureKind.MEAN


def spread_text(row: ResultRow) -> str:
    """Return half the interval in percent of the median: ``±1.9 %``; ``---`` for a single invocation."""
    spread = row.result.summary.spread if row.result.summary is not None else None
    return NOTHING if spread is None else f"±{format_percent(spread)}"


def quality_text(row: ResultRow) -> str:
    """Return what a case's figure is worth, or why it has none: ``clean``, ``clean, one process``, ``timed out``."""
    lacking = row.result.imprecision.partition(":")[0]
    return f"{_quality_word(row)}, {lacking}" if lacking else _quality_word(row)


def _quality_word(row: ResultRow) -> str:
    return row.result.quality.word if row.result.quality is not None else STATUS_WORDS[row.result.status]


def delegate_text(row: ResultRow) -> str:
    """Return where the operators ran, in words; ``---`` when nothing ran."""
    if row.result.status is CaseStatus.FELL_BACK:
        return fallback_words(row.delegate, row.result.truth)
    return NOTHING if row.result.truth is None else truth_words(row.delegate, row.result.truth)


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
    lines += [*_start_lines(data.results), *_energy_lines(data.results), *_load_lines(data.results)]
    lines += _accuracy_lines(data.results)
    lines += [*_memory_lines(data.results), *_pass_lines(data.results)]
    lines += ["", *_legend(data, width, table, is_matrix=is_matrix)]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _list_lines(data: ReportData) -> list[str]:
    decimals = figures_decimals(data.results)
    lines = []
    rows_shown = [row for row in data.results if not is_unused_thread_count(row)]
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
    lines = [f"  {line}\n" for line in _wrapped(visible(title), WIDTH - 2)]
    return f"{''.join(lines)}{' ' * _FIGURES_AT}{heads}"


def _result_line(row: ResultRow, decimals: int) -> str:
    summary = row.result.own_summary
    ratio = NOTHING if row.speed_up is None else f"{row.speed_up.value:.2f}x"
    width = _FIGURES_AT - 5
    mark = f"{'v' if row.is_virtual else ' '}{_MARKS[row.best]}"
    # What tells two configurations apart stands at the end: a long one gets a line of its own, rather than a cut.
    label = f" {mark} {fit(row.configuration, width)} "
    if display_width(visible(row.configuration)) > width:
        label = f" {mark} {fit(row.configuration, WIDTH - 4).rstrip()}\n{' ' * _FIGURES_AT}"
    if summary is None:
        # Without a figure, why there is none says more than where operators would have run.
        return label + fit(f"{NOTHING:>9}  {_why_not(row)}", WIDTH - _FIGURES_AT).rstrip()
    delegate = fit(delegate_text(row), _DELEGATE_WIDTH)
    kind = "m" if has_mean(row) else " "
    spread = f"{_NOT_PRECISE if row.result.imprecision else ''}{spread_text(row)}"
    figures = f"{figure_text(row.case, summary.median_us, decimals):>9}{kind}{spread:>8}{ratio:>8}"
    return f"{label}{figures} {delegate} {_quality_word(row)}"


def _why_not(row: ResultRow) -> str:
    """Return why a case has no figure of its own: ``rejected: fell back to CPU``, ``failed: crashed``."""
    result = row.result
    if result.status is CaseStatus.FELL_BACK:
        return f"{_quality_word(row)}: {delegate_text(row)}"
    return f"{_quality_word(row)}: {result.reason_code}" if result.reason_code else _quality_word(row)


def why_not_clean(row: ResultRow) -> str:
    """Return why a figure isn't clean, or why there is none: ``suspect: few-runs``, ``failed: crashed``."""
    if row.result.status is CaseStatus.MEASURED:
        return f"{_quality_word(row)}: {worst_code(row)}"
    return _why_not(row)


def _memory_lines(rows: Sequence[ResultRow]) -> list[str]:
    """Return the memory of the cases that a pass of its own measured, and of those that have nothing else to show."""
    lines = []
    for row in rows:
        parts = (
            ("after init", row.init_memory_mib),
            ("overall", row.overall_memory_mib),
            ("peak", row.peak_memory_mib),
        )
        known = [f"{name} {value:.1f} MB" for name, value in parts if value is not None]
        was_asked_for = any(invocation.run_pass is Pass.MEMORY for invocation in row.invocations)
        if known and (was_asked_for or row.result.own_summary is None):
            virtual = ", virtual" if row.is_virtual else ""
            lines += ["", *_wrapped(visible(f"memory of {_who(row)}: {', '.join(known)}{virtual}"))]
    return lines


def _pass_lines(rows: Sequence[ResultRow]) -> list[str]:
    """Return what comparing outputs and profiling came to, and what of any pass but timing was left out."""
    told = []
    for verdict, words in PARITY_WORDS.items():
        compared = [row for row in rows if row.result.parity is verdict]
        if compared and verdict is ParityVerdict.SAME:
            told.append(f"{words}: {_cases(len(compared))}")
        else:
            told += [f"{words}: {_who(row)}: {row.result.parity_reason}" for row in compared[:_MOST_NAMED]]
            more = len(compared) - _MOST_NAMED
            told += [f"{words}: {_cases(more)} more"] if more > 0 else []
    profiled = sum(bool(row.profiles) for row in rows)
    if profiled:
        told.append(f"operators of {_cases(profiled)} are profiled: see the report")
    left_out = Counter(
        (run.run_pass.value, run.reason_code, run.reason)
        for row in rows
        for run in {(run.run_pass, run.reason): run for run in row.invocations}.values()
        if run.outcome is Outcome.SKIPPED and run.run_pass is not Pass.TIMING and run.reason_code != OUT_OF_TIME
    )
    for (name, code, reason), count in left_out.items():
        told.append(f"{name} left out for {_cases(count)} ({code}): {reason}")
    return [line for text in told for line in ("", *_wrapped(visible(text)))]


def _doubts(rows: Sequence[ResultRow]) -> list[str]:
    """Return why figures are suspect: their rows have no room for it."""
    groups: dict[str, list[str]] = {}
    for row in rows:
        if row.result.status is CaseStatus.MEASURED and row.result.quality is Quality.SUSPECT:
            groups.setdefault(worst_code(row), []).append(_who(row))
    return [
        f"suspect ({code}): {'; '.join(names[:_MOST_NAMED])}"
        + (f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else "")
        for code, names in groups.items()
    ]


def _who(row: ResultRow) -> str:
    return f"{row.model.label} on {row.device.title}, {row.configuration}"


def _cases(count: int) -> str:
    return "1 case" if count == 1 else f"{count} cases"


def _start_lines(rows: Sequence[ResultRow]) -> list[str]:
    """Return the stages of all starts, nothing where no plan has the pass ``cold``."""
    lines = []
    for row in rows:
        if not row.starts:
            continue
        title = visible(f"starts of {_who(row)}")
        lines += ["", *_wrapped(title)]
        lines.append(f"  {'stage':<14}{'init ms':>11}{'first inference ms':>20}{'processes':>11}  quality")
        for start in row.starts:
            times = f"{figure_ms(start.init_us, 2):>11}{figure_ms(start.first_us, 2):>20}{start.count:>11}"
            quality = start.quality.word + (", virtual" if row.is_virtual else "")
            lines.append(f"  {start.stage.value:<14}{times}  {quality}")
    return lines


def _energy_lines(rows: Sequence[ResultRow]) -> list[str]:
    """Return the energy of all cases, nothing where no plan has the pass ``energy``."""
    lines = []
    measured = [row for row in rows if row.energy is not None]
    for (model, device), group in groupby(measured, key=lambda row: (row.model.label, row.device.title)):
        own = list(group)
        what = "token" if own[0].case.is_per_token else "inference"
        lines += ["", *_wrapped(visible(f"energy per {what}, {model} on {device}"))]
        lines.append(
            f"  {'net mJ':>10}{'±95 %':>9}{'gross mJ':>10}{'blocks':>8}{'by':>12}{'against least':>18}  quality"
        )
        least = least_energy(own)
        for row in own:
            energy = row.energy
            assert energy is not None
            net, gross = energy.net_uj, energy.gross_uj
            lines.append(f" {'v' if row.is_virtual else ' '} {visible(row.configuration)}")
            if net is not None and gross is not None:
                ratio = _times(energy.against(least)) if least is not None and least is not energy else ""
                lines.append(
                    f"  {net.value / 1e3:>10.4g}{_half(net):>9}{gross.value / 1e3:>10.4g}{net.count:>8}"
                    f"{energy.grade:>12}{ratio:>18}  {energy.quality.word}"
                )
            lines += [
                line for why, count in energy.missing for line in _wrapped(visible(f"    no figure ({count}): {why}"))
            ]
    rails = sorted({rail for row in measured if row.energy is not None for rail in row.energy.rails})
    return lines + (_wrapped(visible(f"  rails: the sum of {', '.join(rails)}")) if rails else [])


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


def _accuracy_lines(rows: Sequence[ResultRow]) -> list[str]:
    """Return what evaluation programs found, nothing where none was run."""
    found = [(row, each) for row in rows for each in row.evaluations]
    lines = []
    for (model, device), group in groupby(found, key=lambda pair: (pair[0].model.label, pair[0].device.title)):
        lines += ["", *_wrapped(visible(f"accuracy as evaluated, {model} on {device}"))]
        for row, each in group:
            text = f"{row.configuration}: {each.text}" + (f"; {each.reason}" if each.reason else "")
            lines += _wrapped(visible(f" {'v' if row.is_virtual else ' '} {text}"))
    return lines


def _load_lines(rows: Sequence[ResultRow]) -> list[str]:
    """Return the figures beside loads, nothing where no plan has the pass ``contention``."""
    lines = []
    for row in rows:
        if not row.loads:
            continue
        lines += ["", *_wrapped(visible(f"beside a load: {_who(row)}{', virtual' if row.is_virtual else ''}"))]
        lines.append(f"  {'load':<22}{'median ms':>11}{'times as long':>20}{'runs':>6}{'load kept busy':>18}")
        for load in row.loads:
            cores = "" if load.cores is None else f"{load.cores:.1f} cores"
            died = f"  load died: {load.died}" if load.died else ""
            times = _times(load.factor) if load.factor is not None else ""
            figure = f"{figure_ms(load.median_us, 2):>11}{times:>20}{load.count:>6}{cores:>18}"
            lines.append(f"  {visible(load.load):<22}{figure}{died}")
    return lines


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
    if any(has_mean(row) for row in rows):
        lines.append("m mean: the program printed no medians")
    if any(row.case.is_per_token for row in rows):
        lines.append("tokens/s: all tokens over their time together, the harmonic mean of the repetitions' speeds")
    lines += _matrix_words(rows, table) if is_matrix else ["; ".join(_list_words(rows))]
    if any(delegate_text(row) == "fell back to CPU" for row in rows):
        lines.append("fell back: the CPU ran it, so the figure isn't the delegate's")
    if data.has_virtual:
        mark = ("(virtual)" if "(virtual)" in table else "virtual") if is_matrix else "v virtual"
        lines.append(f"{mark}: from benchfarm's own virtual phone, no measurement")
    lines += dict.fromkeys(
        f"campaign {row.name or row.campaign_id}: {row.origin}" for row in data.campaigns if row.origin
    )
    return [part for line in filter(None, lines) for part in _wrapped(visible(line), width)]


def _list_words(rows: Sequence[ResultRow]) -> Iterable[str]:
    """Yield what the words mean that stand in a list of cases."""
    own = [row for row in rows if row.result.own_summary is not None]
    if any(row.speed_up is not None for row in rows):
        yield "vs CPU: times as fast as the fastest on the CPU"
    if any(row.result.truth is DelegateTruth.FULL for row in own):
        yield "full: the delegate ran all operators"
    if any(_is_partial(row) for row in own):
        yield "partial n/m: it ran n of m, the CPU the rest"
    if any(row.result.is_judged for row in own):
        yield "clean: nothing found that spoils the figure"


def _matrix_words(rows: Sequence[ResultRow], table: str) -> Iterable[str]:
    """Yield what the words mean that stand in a matrix, and what its cells have no room for."""
    own = [row for row in rows if row.result.own_summary is not None]
    if any(not row.result.is_judged for row in own):
        yield "? not clean: suspect, or nothing shows where the operators ran"
    partial = Counter(f"{row.configuration} ({delegate_text(row)})" for row in own if _is_partial(row))
    if partial:
        named = "; ".join(f"{text} on {_devices(count)}" for text, count in partial.most_common(_MOST_NAMED))
        yield f"partial, the CPU ran the other operators: {named}"
    words = set(table.split())
    if "same" in words:
        yield "same: the delegate ran all operators and uses no threads; see its other column"
    if NOT_PLANNED in words:
        yield f"{NOT_PLANNED} not measured"


def _is_partial(row: ResultRow) -> bool:
    return row.result.truth is DelegateTruth.PARTIAL


def _devices(count: int) -> str:
    return "1 device" if count == 1 else f"{count} devices"


def _wrapped(text: str, width: int = WIDTH) -> list[str]:
    lines = [""]
    for word in (piece for whole in text.split(" ") for piece in _pieces(whole, width)):
        if lines[-1] and display_width(lines[-1]) + 1 + display_width(word) > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return lines


def _pieces(word: str, width: int) -> Iterable[str]:
    """Yield a word whole, or cut into what fits into a line."""
    piece, used = "", 0
    for char in word:
        if used + display_width(char) > width:
            yield piece
            piece, used = "", 0
        piece, used = piece + char, used + display_width(char)
    yield piece


def campaign_of(row: ResultRow, data: ReportData) -> CampaignRow | None:
    """Return the campaign that a case's figure is of: the newest with a run of it, None when nothing says which."""
    if len(data.campaigns) == 1:
        return data.campaigns[0]
    named = {invocation.campaign_id for invocation in row.invocations}
    fitting = [campaign for campaign in data.campaigns if campaign.campaign_id in named]
    return max(fitting, key=lambda campaign: campaign.created_at, default=None)


#: The names of :func:`flat_record`, in its order.
FLAT_COLUMNS: Final = (
    "model", "model_sha256", "device", "serial", "is_virtual", "origin", "configuration", "delegate", "threads",
    "tool", "flags", "build_sha256", "status", "delegate_truth", "delegate_actual", "delegated_nodes", "total_nodes",
    "quality", "precision", "is_precise", "grade", "is_judged", "best", "invocations_used", "invocations_ended",
    "figure", "median_us",
    "interval_low_us", "interval_high_us", "interval_method", "mean_us", "min_us", "max_us", "std_us",
    "tokens_per_s", "tokens_per_s_low", "tokens_per_s_high",
    "speed_up", "speed_up_low", "speed_up_high", "baseline", "init_us", "first_inference_us", "warmup_us",
    "init_memory_mib", "overall_memory_mib", "peak_memory_mib", "energy_net_uj", "energy_net_half_uj",
    "energy_gross_uj", "energy_grade", "accuracy_percent", "not_a_result_us", "reason_code", "reason",
    "findings", "case_key",
)  # fmt: skip


def flat_record(row: ResultRow) -> dict[str, Scalar]:
    """Return one case as plain values under documented names; times in microseconds, None where unknown.

    A figure that isn't a result (fell back, rejected) stands under ``not_a_result_us`` and nowhere else.
    """
    result, summary, delegate = row.result, row.result.summary, row.delegate
    own = result.own_summary
    interval = own.interval if own is not None else None
    ratio = row.speed_up
    energy = row.energy
    net = energy.net_uj if energy is not None else None
    return {
        "model": row.model.label,
        "model_sha256": row.model.sha256,
        "device": row.device.title,
        "serial": row.device.serial,
        "is_virtual": row.is_virtual,
        "origin": row.origin,
        "configuration": row.configuration,
        "delegate": row.case.delegate.value,
        "threads": row.case.threads,
        "tool": row.case.tool.value,
        "flags": " ".join(f"{name}={value}" for name, value in row.case.flags),
        "build_sha256": str(row.case.build_sha256),
        "status": result.status.value,
        "delegate_truth": result.truth.value if result.truth is not None else None,
        "delegate_actual": place_of(delegate) if delegate is not None else None,
        "delegated_nodes": delegate.delegated_nodes if delegate is not None else None,
        "total_nodes": delegate.total_nodes if delegate is not None else None,
        "quality": result.quality.value if result.quality is not None else None,
        "precision": _rounded(result.precision, 6),
        "is_precise": result.is_precise,
        "grade": row.grade.value if row.grade is not None else None,
        "is_judged": result.is_judged,
        "best": row.best.value,
        "invocations_used": own.count if own is not None else 0,
        "invocations_ended": result.ended,
        "figure": result.figure.value if summary is not None else None,
        "median_us": _rounded(own.median_us if own is not None else None),
        "interval_low_us": _rounded(interval.low if interval is not None else None),
        "interval_high_us": _rounded(interval.high if interval is not None else None),
        "interval_method": interval.method.value if interval is not None else None,
        "mean_us": _rounded(own.mean_us if own is not None else None),
        "min_us": _rounded(own.min_us if own is not None else None),
        "max_us": _rounded(own.max_us if own is not None else None),
        "std_us": _rounded(own.std_us if own is not None else None),
        **dict(zip(("tokens_per_s", "tokens_per_s_low", "tokens_per_s_high"), map(_rounded, speeds(row)), strict=True)),
        "speed_up": _rounded(ratio.value if ratio is not None else None, 4),
        "speed_up_low": _rounded(ratio.interval.low if ratio is not None and ratio.interval else None, 4),
        "speed_up_high": _rounded(ratio.interval.high if ratio is not None and ratio.interval else None, 4),
        "baseline": row.baseline,
        "init_us": _rounded(row.init_us),
        "first_inference_us": _rounded(row.first_us),
        "warmup_us": _rounded(row.warmup_us),
        "init_memory_mib": _rounded(row.init_memory_mib),
        "overall_memory_mib": _rounded(row.overall_memory_mib),
        "peak_memory_mib": _rounded(row.peak_memory_mib),
        "energy_net_uj": _rounded(net.value if net is not None else None),
        "energy_net_half_uj": _rounded(net.half_width if net is not None else None),
        "energy_gross_uj": _rounded(energy.gross_uj.value if energy is not None and energy.gross_uj else None),
        "energy_grade": energy.grade if net is not None and energy is not None else None,
        "accuracy_percent": _rounded(row.accuracy),
        "not_a_result_us": _rounded(summary.median_us if summary is not None and own is None else None),
        "reason_code": result.reason_code,
        "reason": result.reason,
        "findings": " ".join(finding.code for finding in row.findings),
        "case_key": row.key,
    }


def speeds(row: ResultRow) -> tuple[float | None, float | None, float | None]:
    """Return a language model's tokens per second with the ends of their interval; None for every other case."""
    own = row.result.own_summary if row.case.is_per_token else None
    interval = own.interval if own is not None else None
    high, low = (interval.low, interval.high) if interval is not None else (None, None)
    return tokens_per_s(own.median_us if own is not None else None), tokens_per_s(low), tokens_per_s(high)


def invocation_record(row: ResultRow, invocation: InvocationRow) -> dict[str, Scalar]:
    """Return one invocation as plain values under documented names; times in microseconds, None where unknown.

    The latency of one that isn't part of its case's result stands under ``not_a_result_us`` and nowhere else.
    """
    is_result = invocation.is_used and row.result.own_summary is not None
    return {
        "run_id": invocation.run_id,
        "campaign_id": invocation.campaign_id,
        "case_key": row.key,
        "pass": invocation.run_pass.value,
        "invocation": invocation.number,
        "outcome": invocation.outcome.value,
        "reason_code": invocation.reason_code,
        "reason": invocation.reason,
        "quality": invocation.quality.value,
        "delegate_truth": invocation.truth.value,
        "is_used": is_result,
        "is_virtual": row.is_virtual,
        "origin": invocation.origin,
        "figure": invocation.figure.value if invocation.latency_us is not None else None,
        "latency_us": invocation.latency_us if is_result else None,
        "tokens_per_s": tokens_per_s(invocation.latency_us) if is_result and row.case.is_per_token else None,
        "not_a_result_us": None if is_result else invocation.latency_us,
        "p5_us": invocation.p5_us if is_result else None,
        "p95_us": invocation.p95_us if is_result else None,
        "inferences": invocation.inferences,
        "init_us": invocation.init_us,
        "first_inference_us": invocation.first_us,
        "started_at": invocation.started_at.isoformat(),
        "duration_s": invocation.duration_s,
        "exit_code": invocation.exit_code,
        "command": invocation.command,
    }


def _rounded(value: float | None, digits: int = 3) -> float | None:
    return None if value is None else round(value, digits)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceLine:
    """One model on one device in the public table."""

    model: str
    device: str
    #: Configuration -> figure; a configuration that the table doesn't have for this device is missing.
    cells: Mapping[str, PublishedFigure]


def reference_lines(figures: Sequence[PublishedFigure]) -> tuple[tuple[str, ...], tuple[ReferenceLine, ...]]:
    """Return the public table's configurations, the CPU's first, and its lines in the order of the file."""
    configurations = sorted({figure.configuration for figure in figures}, key=lambda name: (name[:3] != "cpu", name))
    cells: dict[tuple[str, str], dict[str, PublishedFigure]] = {}
    for figure in figures:
        cells.setdefault((figure.model, figure.device), {})[figure.configuration] = figure
    lines = (ReferenceLine(model=model, device=device, cells=row) for (model, device), row in cells.items())
    return tuple(configurations), tuple(lines)
