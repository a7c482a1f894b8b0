"""Cases that equal phones share, as the report shows them: each phone's part says so, and what all came to.

Invocations of one phone resemble each other more than those of two, so the phones are what is counted: the figure is
the geometric mean of the phones' medians, and its interval is Student's over their logarithms. Two phones give a wide
one: that is what two phones can say about all of their kind.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.analysis.middle import t_quantile
from orchestrator.records.verdict import Finding, Severity
from orchestrator.records.workload import all_but, grouped
from orchestrator.report.rows import FindingRow, ResultRow
from orchestrator.units import US_PER_MS, format_percent

CODE: Final = "shared-by-equal-phones"
_BESIDE_PHONE: Final = all_but("serial")


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedCase:
    """A case that several phones share; times in microseconds."""

    #: Each phone's part.
    rows: Sequence[ResultRow] = ()
    #: Serial number -> (median of the phone's invocations, how many of them count), of those that have a figure.
    phones: Mapping[str, tuple[float, int]]

    @property
    def invocations(self) -> int:
        """How many invocations count in all."""
        return sum(count for _, count in self.phones.values())

    @property
    def difference(self) -> float:
        """By how much the slowest phone is slower than the fastest: 0.02 is 2 %."""
        medians = [median_us for median_us, _ in self.phones.values()]
        return max(medians) / min(medians) - 1

    @property
    def middle_us(self) -> float:
        """The geometric mean of the phones' medians."""
        return math.exp(statistics.fmean(self._logs))

    @property
    def ends_us(self) -> tuple[float, float] | None:
        """The 95 % interval of the middle; None with one phone, which says nothing about another one."""
        logs = self._logs
        if len(logs) < 2:
            return None
        half = t_quantile(0.975, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
        return self.middle_us * math.exp(-half), self.middle_us * math.exp(half)

    @property
    def _logs(self) -> list[float]:
        return [math.log(median_us) for median_us, _ in self.phones.values()]


def shared_cases(rows: Iterable[ResultRow]) -> list[SharedCase]:
    """Return the cases that phones share, in the order of their first parts."""
    groups = grouped((row for row in rows if row.case.shard), lambda row: _BESIDE_PHONE(row.case))
    return [
        SharedCase(
            rows=group,
            phones={
                row.device.serial: (row.own.median_us, row.own.count)
                for row in sorted(group, key=lambda row: row.device.serial)
                if row.own is not None
            },
        )
        for group in groups.values()
    ]


def with_shared(rows: Sequence[ResultRow]) -> tuple[ResultRow, ...]:
    """Return the rows with a finding at each part of a shared case."""
    found = {row.key: _finding(shared) for shared in shared_cases(rows) for row in shared.rows}
    return tuple(replace(row, findings=(*row.findings, found[row.key])) if row.key in found else row for row in rows)


def shared_text(shared: SharedCase) -> str:
    """Return what a shared case came to, as a sentence."""
    name, ends = shared.rows[0].case.shard, shared.ends_us if shared.phones else None
    if not shared.phones:
        return f"{name}: no phone measured it"
    phones = ", ".join(f"{serial} {us / US_PER_MS:.4g} ms of {count}" for serial, (us, count) in shared.phones.items())
    if ends is None:
        return f"{name}: one phone only has a figure ({phones}); how phones differ isn't known"
    return (
        f"{name}: {len(shared.phones)} phones come to {shared.middle_us / US_PER_MS:.4g} ms "
        f"({ends[0] / US_PER_MS:.4g} to {ends[1] / US_PER_MS:.4g} ms, 95 %) and differ by up to "
        f"{format_percent(shared.difference)} ({phones})"
    )


def _finding(shared: SharedCase) -> FindingRow:
    finding = Finding(
        code=CODE,
        severity=Severity.INFO,
        message=f"this is one phone's part of a case that {len(shared.rows)} equal phones share",
        evidence=shared_text(shared),
    )
    return FindingRow(finding=finding, count=0, is_of_figure=True)
