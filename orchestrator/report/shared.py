"""Cases that equal phones share, as the report shows them: each phone's part says so, and what all came to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.analysis.shared import SharedFigure, shared_figure
from orchestrator.records.identity import content_key
from orchestrator.records.verdict import Severity
from orchestrator.report.data import FindingRow, ResultRow
from orchestrator.units import US_PER_MS, format_percent

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
    told = {row.key: _finding(shared) for shared in shared_cases(rows) for row in shared.rows}
    return tuple(replace(row, findings=(*row.findings, told[row.key])) if row.key in told else row for row in rows)


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
    phones = {}
    for row in rows:
        summary = row.result.own_summary
        if summary is not None:
            phones[row.device.serial] = (summary.median_us, summary.count)
    return shared_figure(phones) if phones else None


def _finding(shared: SharedCase) -> FindingRow:
    return FindingRow(
        code=CODE,
        severity=Severity.INFO,
        message=f"this is one phone's part of a case that {len(shared.rows)} equal phones share",
        evidence=shared_text(shared),
        count=0,
        next_step="",
        is_of_figure=True,
    )
