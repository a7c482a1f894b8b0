"""What the outputs of a series were worth over the nights: where they turned wrong, and where they came right. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date

from orchestrator.analysis.series import night_of
from orchestrator.records.history import RunMark
from orchestrator.records.identity import SeriesKey
from orchestrator.records.parity import NO_EVIDENCE, OUTPUT_FINDINGS, ParityVerdict
from orchestrator.records.run import Outcome
from orchestrator.records.workload import Pass


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputsChange:
    """A night from which a series' outputs were worth something else."""

    series_key: SeriesKey
    night: date
    #: ``same``, ``drift`` or ``wrong``; None when they were never compared before.
    before: ParityVerdict | None
    after: ParityVerdict
    #: The last night that was compared before; None when there is none.
    last_before: date | None

    @property
    def is_worse(self) -> bool:
        """Whether they are worth less than before."""
        return self.after.badness > (self.before.badness if self.before is not None else 0)


def outputs_of(mark: RunMark) -> ParityVerdict | None:
    """Return what a comparison says; None for one that proves nothing, and for runs that compared nothing."""
    if mark.run_pass is not Pass.PARITY or mark.outcome is not Outcome.COMPLETED:
        return None
    if NO_EVIDENCE & set(mark.findings):
        return None
    told = [OUTPUT_FINDINGS[code] for code in mark.findings if code in OUTPUT_FINDINGS]
    return max(told, key=lambda verdict: verdict.badness, default=ParityVerdict.SAME)


def outputs_changes(marks: Sequence[RunMark]) -> list[OutputsChange]:
    """Return every change, by series and night; of several comparisons of a night the worst counts."""
    nights: dict[SeriesKey, dict[date, ParityVerdict]] = {}
    for mark in marks:
        verdict = outputs_of(mark)
        if verdict is None:
            continue
        of_series = nights.setdefault(mark.series_key, {})
        night = night_of(mark.created_at)
        of_series[night] = max(verdict, of_series.get(night, verdict), key=lambda verdict: verdict.badness)
    found = []
    for key, of_series in nights.items():
        before: tuple[date, ParityVerdict] | None = None
        for night, verdict in sorted(of_series.items()):
            was = before[1] if before is not None else None
            if verdict is not (was or ParityVerdict.SAME):
                found.append(
                    OutputsChange(
                        series_key=key,
                        night=night,
                        before=was,
                        after=verdict,
                        last_before=before[0] if before is not None else None,
                    )
                )
            before = night, verdict
    return found
