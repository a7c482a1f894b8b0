"""The report at a glance: what to take of each model on each phone, how sure that is, equal phones
in one line.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.records.workload import grouped
from orchestrator.report.winners import Certainty, Contest, kind_title
from orchestrator.tables.column import column_decimals
from orchestrator.tables.labels import ShortNames, figure_text, figure_unit
from orchestrator.tables.rows import DeviceRow, ModelRow
from orchestrator.units import US_PER_MS, format_percent

#: Lines of one kind of phone each; in a report with more of them, phones of any kind with one
#: answer share a line.
_MOST_LINES: Final = 40
#: Of models, in a report of very many.
_MOST_MODELS: Final = 30
#: Configurations of a tie that are named.
_MOST_TAKES: Final = 3
_MOST_SERIALS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class WinnerLine:
    """What to take on some phones that give the same answer."""

    #: "Google Pixel 3", or how many phones of several kinds.
    phones: str
    count: int
    #: Names or serial numbers where ``phones`` alone doesn't say which; empty elsewhere.
    which: str
    is_virtual: bool
    take: str
    #: "12.01", or the lowest and the highest: "12.01 to 12.34"; and its unit.
    figure: str
    unit: str
    #: Over the fastest clean configuration on the CPU: "3.75 to 3.81"; empty without one.
    factor: str
    is_cpu: bool
    certainty: Certainty
    #: What makes it less than sure, in words.
    doubt: str
    #: The first phone's case.
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WinnerBlock:
    """One model over all phones."""

    model: ModelRow
    #: How often what wins; empty for a single line.
    tally: str
    lines: tuple[WinnerLine, ...]


def winner_blocks(
    contests: Sequence[Contest], names: ShortNames
) -> tuple[tuple[WinnerBlock, ...], int]:
    """Return what to take, model by model, and how many models were left out of a report of very
    many.
    """
    models = grouped(contests, lambda item: item.shown.model.subject)
    shown = list(models.values())[:_MOST_MODELS]
    kinds = [len(_folded(members, names, _kind)) for members in shown]
    by = _kind if sum(kinds) <= _MOST_LINES else lambda _: None
    return tuple(_block(members, names, by) for members in shown), len(models) - len(shown)


def _block(
    members: Sequence[Contest], names: ShortNames, by: Callable[[DeviceRow], Hashable]
) -> WinnerBlock:
    groups = _folded(members, names, by)
    medians = (item.shown.median_us for item in members if item.best is not None)
    digits = column_decimals([median / US_PER_MS for median in medians if median is not None])
    split = Counter(kind_title(group[0].shown) for group in groups)
    lines = [
        _line(group, names, digits, is_split=split[kind_title(group[0].shown)] > 1)
        for group in groups
    ]
    # What virtual phones are fastest with says nothing of devices, and isn't counted with them.
    is_mixed = len({item.shown.is_virtual for item in members}) > 1
    wins = Counter(
        f"{_tallied(item, names)}{' (virtual)' if is_mixed and item.shown.is_virtual else ''}"
        for item in members
    )
    tally = [f"{take} on {count}" for take, count in wins.most_common()]
    return WinnerBlock(
        model=members[0].shown.model,
        tally=", ".join(tally) if len(members) > 1 else "",
        lines=tuple(lines),
    )


def _tallied(contest: Contest, names: ShortNames) -> str:
    if contest.best is None:
        return "no clean figure"
    takes = {names.of(row.configuration).partition(",")[0] for row in (contest.best, *contest.tied)}
    return "a tie" if len(takes) > 1 else takes.pop()


def _folded(
    members: Iterable[Contest], names: ShortNames, by: Callable[[DeviceRow], Hashable]
) -> Sequence[Sequence[Contest]]:
    def answer(item: Contest) -> Hashable:
        told = _take(item, names), item.certainty, _doubt(item, names, is_rough=True)
        return by(item.shown.device), item.shown.is_virtual, told

    return list(grouped(members, answer).values())


def _take(contest: Contest, names: ShortNames) -> str:
    """Return the winner and those tied with it in alphabetical order: which of them leads is noise."""
    if contest.best is None:
        return ""
    takes = sorted(names.of(row.configuration) for row in (contest.best, *contest.tied))
    more = f" or {len(takes) - _MOST_TAKES} more" if len(takes) > _MOST_TAKES else ""
    return " or ".join(takes[:_MOST_TAKES]) + more


def _kind(device: DeviceRow) -> Hashable:
    """Return what equal phones share."""
    facts = device.facts
    return (
        device.serial
        if facts is None
        else (facts.title, facts.soc, facts.os_version, facts.fingerprint)
    )


def _line(
    group: Sequence[Contest], names: ShortNames, digits: int, *, is_split: bool
) -> WinnerLine:
    shown = [item.shown for item in group]
    first, titles = shown[0], Counter(kind_title(row) for row in shown)
    which = ""
    if len(titles) > 1:
        which = ", ".join(
            title if count == 1 else f"{count} x {title}" for title, count in titles.items()
        )
    elif is_split:
        which = ", ".join(row.device.serial for row in shown[:_MOST_SERIALS])
        which += f" and {len(shown) - _MOST_SERIALS} more" if len(shown) > _MOST_SERIALS else ""
    best = [item.best for item in group if item.best is not None]
    return WinnerLine(
        phones=next(iter(titles)) if len(titles) == 1 else f"{len(group)} phones",
        count=len(group),
        which=which,
        is_virtual=first.is_virtual,
        take=_take(group[0], names),
        figure=_range([figure_text(row.case, row.median_us, digits) for row in best]),
        unit=figure_unit(first.case),
        factor=_range([f"{row.speed_up.value:.2f}" for row in best if row.speed_up is not None]),
        is_cpu=all(row.case.delegate.is_cpu for row in shown),
        certainty=group[0].certainty,
        doubt=_doubt(group[0], names, is_rough=len(group) > 1),
        key=first.key,
    )


def _range(values: Sequence[str]) -> str:
    """Return the lowest and the highest, or the one that there is; empty for none."""
    if not values:
        return ""
    low, high = min(values, key=float), max(values, key=float)
    return low if low == high else f"{low} to {high}"


def _doubt(contest: Contest, names: ShortNames, *, is_rough: bool) -> str:
    """Return what makes a winner less than sure.

    Roughly, so that phones that differ in a digit only share a line.
    """
    if contest.best is None:
        return "; ".join(dict.fromkeys(row.unclean_reason for row in contest.rows))
    doubts = [
        f"{names.of(row.configuration)} may be faster: {row.unclean_reason}"
        for row in contest.doubted[:1]
    ]
    if contest.is_alone:
        doubts.append("nothing else has a clean figure")
    elif not contest.is_tested:
        doubts.append("one process each: not tested")
    result = contest.best.result
    if result.imprecision and contest.is_tested:
        precision = "" if is_rough else f"\u00b1{format_percent(result.precision)}: "
        doubts.append(f"{precision}not precise")
    return "; ".join(doubts)
