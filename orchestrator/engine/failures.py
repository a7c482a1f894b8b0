"""Which cases of a device are abandoned for the rest of a campaign: the device has better things to do."""

from __future__ import annotations

from orchestrator.analysis.rounds import is_hopeless
from orchestrator.records.identity import CaseKey
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.workload import Pass

_Key = tuple[CaseKey, Pass]


class CaseFailures:
    """How one device's cases ended, as long as this process runs: whoever resumes has them tried again."""

    def __init__(self) -> None:
        self._endings: dict[_Key, list[tuple[Outcome, str]]] = {}
        self._hopeless: dict[_Key, tuple[str, str]] = {}

    def ending(self, case_key: CaseKey, run_pass: Pass) -> tuple[str, str] | None:
        """Return the code and the reason for which a case isn't tried any more; None when it is."""
        return self._hopeless.get((case_key, run_pass))

    def learn(self, run: RunRecord) -> None:
        """Give a case up that leaves no hope."""
        key = (run.case.case_key, run.run_pass)
        endings = self._endings.setdefault(key, [])
        endings.append((run.outcome, run.reason_code))
        if is_hopeless(endings):
            self._hopeless[key] = (run.reason_code, run.reason)
