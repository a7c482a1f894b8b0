"""The pass ``sustained``: one process directly after the other, without a wait between, until the time is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.analysis.sustained_runs import ATTEMPT_NUMBERS, Attempt, attempts
from orchestrator.engine.case_runner import CaseRunner
from orchestrator.records.campaign import Invocation
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.workload import Pass


def run_sustained(runner: CaseRunner, marker: Invocation, runs: Sequence[RunRecord], *, sustained_s: float) -> None:
    """Measure a case's curve; what an earlier attempt left is cut, and the curve begun anew.

    ``runs`` are the device's of this campaign and grow as they are stored. Raises what CaseRunner.run_all raises.
    """
    found = attempts(_own(marker, runs))
    if found and found[-1].is_over(sustained_s):
        return
    number = found[-1].number + 1 if found else 0
    invocation = replace(marker, number=number * ATTEMPT_NUMBERS)
    # The first begins at rest; a wait in vain leaves it open, and too many of them give the device up.
    while runner.run_one(invocation).outcome is Outcome.UNFIT:
        pass
    while not _attempt(marker, runs, number).is_over(sustained_s):
        invocation = replace(invocation, number=invocation.number + 1)
        runner.run_one(invocation, at_rest=False)


def _attempt(marker: Invocation, runs: Sequence[RunRecord], number: int) -> Attempt:
    return next(attempt for attempt in attempts(_own(marker, runs)) if attempt.number == number)


def _own(marker: Invocation, runs: Sequence[RunRecord]) -> list[RunRecord]:
    key = marker.case.case_key
    return [run for run in runs if run.run_pass is Pass.SUSTAINED and run.case.case_key == key]
