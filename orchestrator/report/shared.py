"""Cases that equal phones share, as the report shows them: each phone's part says so, and what all came to.

Invocations of one phone resemble each other more than those of two, so the phones are what is counted: the figure is
the geometric mean of the phones' medians, and its interval is Student's over their logarithms. Two phones give a wide
one: that is what two phones can say about all of their kind.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.analysis.middle import t_quantile
from orchestrator.records.identity import content_key
from orchestrator.records.verdict import Finding, Severity
from orchestrator.report.rows import FindingRow, ResultRow
from orchestrator.units import US_PER_MS, format_percent


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFigure:
    """A latency that comes from several phones, in microseconds."""

    #: Serial number -> (median of the phone's invocations, how many of them count), in the order of the serial numbers.
    phones: Mapping[str, tuple[float, int]]
    middle_us: float
    #: Of the middle, 95 %; None with one phone, which says nothing about another one.
    low_us: float | None
    high_us: float | None

    @property
    def invocations(self) -> int:
        """How many invocations count in all."""
        return sum(count for _, count in self.phones.values())

    @property
    def difference(self) -> float:
        """By how much the slowest phone is slower than the fastest: 0.02 is 2 %."""
        medians = [median_us for median_us, _ in self.phones.values()]
        return max(medians) / min(medians) - 1


def shared_figure(phones: Mapping[str, tuple[float, int]]) -> SharedFigure:
    """Return what one or more phones' medians (microseconds, more than 0) and counts come to."""
    logs = [math.log(median_us) for median_us, _ in phones.values()]
    middle = statistics.fmean(logs)
    half = None
    if len(logs) > 1:
        half = t_quantile(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    return SharedFigure(
        phones=dict(sorted(phones.items())),
        middle_us=math.exp(middle),
        low_us=None if half is None else math.exp(middle - half),
        high_us=None if half is None else math.exp(middle + half),
    )


CODE: Final = "shared-by-equal-phones"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCase:
    """A case that several phones share."""

    #: Each phone's part.
    rows: tuple[ResultRow, ...]
    #: None when no phone's part has a figure of its own.
    figure: SharedFigure | None


def shared_cases(rows: Iterable[ResultRow]) -> tuple[SharedCase, ...]:
    """Return the cases that phones share, in the order of their first parts."""
    groups: dict[str, list[ResultRow]] = defaultdict(list)
    for row in rows:
        if row.case.shard:
            groups[content_key({name: value for name, value in row.case.to_row().items() if name != "serial"})].append(
                row
            )
    return tuple(SharedCase(rows=tuple(group), figure=_figure(group)) for group in groups.values())


def with_shared(rows: Sequence[ResultRow]) -> tuple[ResultRow, ...]:
    """Return the rows with a finding at each part of a shared case."""
    found = {row.key: _finding(shared) for shared in shared_cases(rows) for row in shared.rows}
    return tuple(replace(row, findings=(*row.findings, found[row.key])) if row.key in found else row for row in rows)


def shared_text(shared: SharedCase) -> str:
    """Return what a shared case came to, as a sentence."""
    figure, case = shared.figure, shared.rows[0].case
    if figure is None:
        return f"{case.shard}: no phone measured it"
    phones = ", ".join(
        f"{serial} {median_us / US_PER_MS:.4g} ms of {count}" for serial, (median_us, count) in figure.phones.items()
    )
    if figure.low_us is None or figure.high_us is None:
        return f"{case.shard}: one phone only has a figure ({phones}); how phones differ isn't known"
    return (
        f"{case.shard}: {len(figure.phones)} phones come to {figure.middle_us / US_PER_MS:.4g} ms "
        f"({figure.low_us / US_PER_MS:.4g} to {figure.high_us / US_PER_MS:.4g} ms, 95 %) and differ by up to "
        f"{format_percent(figure.difference)} ({phones})"
    )


def _figure(rows: Sequence[ResultRow]) -> SharedFigure | None:
    phones = {row.device.serial: (row.own.median_us, row.own.count) for row in rows if row.own is not None}
    return shared_figure(phones) if phones else None


def _finding(shared: SharedCase) -> FindingRow:
    finding = Finding(
        code=CODE,
        severity=Severity.INFO,
        message=f"this is one phone's part of a case that {len(shared.rows)} equal phones share",
        evidence=shared_text(shared),
    )
    return FindingRow(finding=finding, count=0, is_of_figure=True)
