"""The fastest configuration of each model on each device: by how much, how sure, and what to try next."""

from __future__ import annotations

import enum
import shlex
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.analysis.case_result import CaseStatus
from orchestrator.analysis.compare import Ratio, best_of, speed_up
from orchestrator.programs import is_usual
from orchestrator.report.labels import short_names
from orchestrator.report.rows import ResultRow
from orchestrator.units import format_figure, format_percent

#: Cases that say nothing about which configuration is fastest.
_NO_ENTRY: Final = frozenset({CaseStatus.UNTIMED, CaseStatus.NOT_RUN, CaseStatus.SKIPPED})


class Certainty(enum.StrEnum):
    """How far a winner can be relied on."""

    SURE = "sure"
    #: Another configuration can't be told from it.
    TIED = "tied"
    #: Its order isn't tested, its interval is wide, it is alone, or what might be faster has no clean figure.
    UNSURE = "unsure"
    #: No configuration has a clean figure.
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """The fastest clean figure of a model on one device, and what it is compared with."""

    row: ResultRow
    #: Configurations that can't be told from it.
    tied: tuple[ResultRow, ...]
    #: The next fastest one that can; None where there is none.
    second: ResultRow | None
    #: How many times as fast as the second it is.
    lead: Ratio | None
    #: False where a figure has one process, so that the order rests on a margin.
    is_tested: bool
    #: Measured, and without a clean figure of its own.
    without_figure: tuple[ResultRow, ...]

    @property
    def median_us(self) -> float:
        """Its latency."""
        assert self.row.result.summary is not None, "a clean figure has one"
        return self.row.result.summary.median_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """The cases of one model on one device, and which of them is the fastest."""

    rows: tuple[ResultRow, ...]
    #: None where no figure is clean.
    winner: Winner | None

    @property
    def shown(self) -> ResultRow:
        """The winner, or any case where there is none."""
        return self.rows[0] if self.winner is None else self.winner.row

    @property
    def doubted(self) -> tuple[ResultRow, ...]:
        """What would be faster than the winner, and has no clean figure."""
        if self.winner is None:
            return ()
        limit_us = self.winner.median_us
        figures = [(row, row.result.own_summary) for row in self.winner.without_figure]
        return tuple(row for row, own in figures if own is not None and own.median_us < limit_us)

    @property
    def is_alone(self) -> bool:
        """Whether nothing else has a clean figure."""
        return self.winner is not None and len(self.rows) - len(self.winner.without_figure) == 1

    @property
    def certainty(self) -> Certainty:
        """How far the winner can be relied on."""
        if self.winner is None:
            return Certainty.NONE
        if self.doubted or self.is_alone or not self.winner.is_tested or self.winner.row.result.imprecision:
            return Certainty.UNSURE
        return Certainty.TIED if self.winner.tied else Certainty.SURE


def _by_place(rows: Iterable[ResultRow]) -> Iterable[Sequence[ResultRow]]:
    """Return rows by model and device; what runs on a virtual phone is never set against a real device."""
    groups: dict[tuple[str, str, bool], list[ResultRow]] = defaultdict(list)
    for row in rows:
        groups[row.model.subject, row.device.serial, row.is_virtual].append(row)
    return groups.values()


def winners(rows: Iterable[ResultRow]) -> tuple[Winner, ...]:
    """Return the winner of each model on each device that has a contest: two cases measured, one of them clean."""
    groups = _by_place(row for row in rows if row.result.status not in _NO_ENTRY)
    found = (winner_of(group) for group in groups if len(group) > 1)
    return tuple(winner for winner in found if winner is not None)


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
    """Return all cases by model and device, in their order, with the winner; without those that have no timing pass."""
    timed = (row for row in rows if row.result.status is not CaseStatus.UNTIMED and not row.is_unused_thread_count)
    return tuple(Contest(rows=tuple(group), winner=winner_of(group)) for group in _by_place(timed))


def kind_title(row: ResultRow) -> str:
    """Return what equal phones are called."""
    facts = row.device.facts
    return row.device.label if facts is None else facts.title.removesuffix(" (virtual)")


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
