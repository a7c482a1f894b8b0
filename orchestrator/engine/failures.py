"""Which cases of a device are given up for the rest of a campaign: the device has better things to do."""

from __future__ import annotations

from orchestrator.analysis.rounds import FAILURES_MAX
from orchestrator.records.identity import CaseKey
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.workload import Pass

_Key = tuple[CaseKey, Pass]


class CaseFailures:
    """What one device's cases failed with, as long as this process runs: whoever resumes has them tried again."""

    def __init__(self) -> None:
        #: The code that a case failed with last, and how often in a row.
        self._in_row: dict[_Key, tuple[str, int]] = {}
        self._hopeless: dict[_Key, tuple[str, str]] = {}

    def ending(self, case_key: CaseKey, run_pass: Pass) -> tuple[str, str] | None:
        """Return the code and the reason for which a case isn't tried any more; None when it is."""
        return self._hopeless.get((case_key, run_pass))

    def learn(self, run: RunRecord) -> None:
        """Give a case up that fails the same way again, or takes all its time."""
        key = (run.case.case_key, run.run_pass)
        if run.outcome is Outcome.UNFIT:
            return
        if run.outcome is Outcome.FAILED:
            before, count = self._in_row.get(key, ("", 0))
            count = count + 1 if before == run.reason_code else 1
            self._in_row[key] = (run.reason_code, count)
            is_hopeless = count >= FAILURES_MAX
        else:
            self._in_row.pop(key, None)
            is_hopeless = run.outcome is Outcome.TIMED_OUT
        if is_hopeless:
            self._hopeless[key] = (run.reason_code, run.reason)
