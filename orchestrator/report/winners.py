"""The fastest configuration of each model on each device: by how much, how sure, and what to try next."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from orchestrator.analysis.case_result import CaseStatus
from orchestrator.analysis.compare import Ratio, best_of, speed_up
from orchestrator.programs import is_usual
from orchestrator.records.night import THREADS_UNUSED
from orchestrator.records.parity import ParityVerdict
from orchestrator.records.verdict import Severity
from orchestrator.report.data import Contest, ResultRow, Winner
from orchestrator.report.labels import PARITY_WORDS, short_names
from orchestrator.units import format_figure, format_percent

#: Cases that say nothing about which configuration is fastest.
_NO_ENTRY: Final = frozenset({CaseStatus.UNTIMED, CaseStatus.NOT_RUN, CaseStatus.SKIPPED})


def winners(rows: Iterable[ResultRow]) -> tuple[Winner, ...]:
    """Return the winner of each model on each device that has a contest: two cases measured, one of them clean."""
    groups: dict[tuple[str, str, bool], list[ResultRow]] = defaultdict(list)
    for row in rows:
        if row.result.status not in _NO_ENTRY:
            groups[row.model.subject, row.device.serial, row.is_virtual].append(row)
    contests = (winner_of(group) for group in groups.values() if len(group) > 1)
    return tuple(found for found in contests if found is not None)


def winner_of(rows: Sequence[ResultRow]) -> Winner | None:
    """Return the winner among the cases of one model on one device; None where no figure is clean."""
    figures = {row.key: row.compared for row in rows if row.compared is not None}
    best = best_of(figures)
    if best is None:
        return None
    by_key = {row.key: row for row in rows}
    others = [key for key in figures if key != best.fastest and key not in best.tied]
    second = min(others, key=lambda key: figures[key].median_us, default=None)
    return Winner(
        row=by_key[best.fastest],
        tied=tuple(sorted((by_key[key] for key in best.tied), key=lambda row: figures[row.key].median_us)),
        second=None if second is None else by_key[second],
        lead=None if second is None else speed_up(figures[second], figures[best.fastest]),
        is_tested=best.is_tested,
        without_figure=tuple(row for row in rows if row.key not in figures),
    )


def contests_of(rows: Iterable[ResultRow]) -> tuple[Contest, ...]:
    """Return all cases by model and device, in their order, with the winner; those without a timing pass are left out.

    What runs on a virtual phone is never set against a real device.
    """
    groups: dict[tuple[str, str, bool], list[ResultRow]] = defaultdict(list)
    for row in rows:
        if row.result.status is not CaseStatus.UNTIMED and not is_unused_thread_count(row):
            groups[row.model.subject, row.device.serial, row.is_virtual].append(row)
    return tuple(Contest(rows=tuple(group), winner=winner_of(group)) for group in groups.values())


def winner_text(winner: Winner) -> str:
    """Return what won, by how much and how sure, as one sentence."""
    row = winner.row
    named = [row, *winner.tied, *([winner.second] if winner.second else [])]
    shown = short_names((item.configuration, item.case) for item in named)
    parts = [f"{row.model.label} on {row.device.title}: "]
    if winner.tied:
        names = [f"{shown.of(item.configuration)} ({_median(item)})" for item in (row, *winner.tied)]
        parts.append(f"{', '.join(names[:-1])} and {names[-1]} are tied")
        parts.append("; the difference is within the noise" if winner.is_tested else "; one process each can't tell")
    else:
        parts.append(f"{shown.of(row.configuration)} is the fastest with {_median(row)}")
    if winner.second is not None and winner.lead is not None:
        second = shown.of(winner.second.configuration)
        parts.append(f"; {second} is slower" if winner.tied else f", {_lead_text(winner.lead)} as {second}")
    return "".join(parts)


def winner_data(winner: Winner) -> dict[str, object]:
    """Return a winner as plain values, times in microseconds; ``lead`` is how many times as fast as ``second``."""
    summary, known = winner.row.result.own_summary, winner.lead.interval if winner.lead is not None else None
    return {
        "model": winner.row.model.label,
        "serial": winner.row.device.serial,
        "configuration": winner.row.configuration,
        "median_us": summary.median_us if summary is not None else None,
        "is_virtual": winner.row.is_virtual,
        "tied": [row.configuration for row in winner.tied],
        "is_tested": winner.is_tested,
        "second": winner.second.configuration if winner.second is not None else None,
        "lead": winner.lead.value if winner.lead is not None else None,
        "lead_low": known.low if known is not None else None,
        "lead_high": known.high if known is not None else None,
    }


def _lead_text(lead: Ratio) -> str:
    known = lead.interval
    sure = "not tested: one process" if known is None else f"95 %: {known.low:.2f} to {known.high:.2f}"
    return f"{lead.value:.2f} times ({sure}) as fast"


def _median(row: ResultRow) -> str:
    summary = row.result.own_summary
    assert summary is not None, "a clean figure has one"
    interval = "" if summary.spread is None else f" \N{PLUS-MINUS SIGN}{format_percent(summary.spread)}"
    return f"{format_figure(summary.median_us, is_per_token=row.case.is_per_token)}{interval}"


def next_step(winner: Winner, path: str) -> str:
    """Return what to try next, as a command for this model's file."""
    row, rival = winner.row, next(iter(winner.tied), None)
    model, where = shlex.quote(path), f"-s {shlex.quote(row.device.serial)}"
    if not is_usual(row.case.tool):
        where += f" --tool {row.case.tool}"
    if row.case.is_per_token:
        # A process gives two figures of a language model: neither pairs nor a search nor outputs are compared.
        return f"to know them more closely: benchfarm bench {model} {where} --precision 1%"
    if rival is not None and rival.case.tool is row.case.tool:
        ours, theirs = row.case, rival.case
        if ours.delegate is not theirs.delegate:
            sides = f"delegate:{ours.delegate} delegate:{theirs.delegate} -t {max(ours.threads, theirs.threads)}"
        else:
            sides = f"threads:{ours.threads} threads:{theirs.threads} -d {ours.delegate}"
        return f"to tell them apart: benchfarm ab {sides} -m {model} {where}"
    if not row.case.delegate.is_cpu:
        delegate = row.case.delegate
        return f"check the outputs of {delegate}: benchfarm bench {model} {where} -d {delegate} --pass parity"
    failed = next((item for item in winner.without_figure if not item.case.delegate.is_cpu), None)
    if failed is not None:
        return f"what {failed.case.delegate} may take of it: benchfarm model inspect {model}"
    return f"to search threads and flags for a faster one: benchfarm tune {model} {where}"


def next_steps(found: Sequence[Winner], paths: Mapping[str, str]) -> list[str]:
    """Return the next step of the first winner whose model's file is known (sha256 -> path)."""
    return [next_step(item, paths[item.row.model.sha256]) for item in found if item.row.model.sha256 in paths][:1]


def is_unused_thread_count(row: ResultRow) -> bool:
    """Whether a case wasn't measured because its delegate uses no threads: another case has its figure."""
    return row.result.status is CaseStatus.SKIPPED and row.result.reason_code == THREADS_UNUSED


def worst_code(row: ResultRow) -> str:
    """Return why a figure isn't clean: the code that weighs most of its own invocations, or what else there is.

    What was noticed about another pass, or about an invocation that doesn't count, says nothing about the figure.
    """
    result = row.result
    if result.parity is ParityVerdict.WRONG:
        return PARITY_WORDS[ParityVerdict.WRONG]
    weighing = [item.code for item in row.findings if item.severity is not Severity.INFO and item.is_of_figure]
    if weighing:
        return weighing[0]
    if result.parity is ParityVerdict.DRIFT:
        return PARITY_WORDS[ParityVerdict.DRIFT]
    if 2 * len(result.used) < result.ended:
        return f"{len(result.used)} of {result.ended} invocations usable"
    return "invocations disagree"
