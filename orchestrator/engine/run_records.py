"""The record of each invocation: how it ended, what its figures are worth, whose they are."""

from __future__ import annotations

import uuid
from datetime import datetime

from orchestrator.analysis.outcome import Ending, ending_of
from orchestrator.analysis.quality import Surroundings, judge
from orchestrator.engine.sessions import own_end
from orchestrator.engine.workload import Services, Workload
from orchestrator.errors import BenchfarmError
from orchestrator.records.campaign import Invocation
from orchestrator.records.device import DeviceFacts, DeviceState
from orchestrator.records.identity import RunId
from orchestrator.records.run import Outcome, RawOutput, RunRecord, ToolReport
from orchestrator.records.sample import SAMPLES_FILE


class RunRecords:
    """Makes the records of one device's runs in a campaign."""

    def __init__(self, facts: DeviceFacts, workload: Workload, services: Services) -> None:
        self._facts = facts
        self._workload = workload
        self._services = services

    def measured(
        self,
        invocation: Invocation,
        raw: RawOutput,
        report: ToolReport,
        *,
        run_id: RunId | None,
        before: DeviceState | None,
        after: DeviceState | None,
    ) -> RunRecord:
        """Return the record of a case that a process measured."""
        raw = own_end(self._services.tools[invocation.case.tool], raw, report)
        ending = ending_of(report, exit_code=raw.exit_code, timed_out=raw.timed_out)
        return self.record(
            invocation, raw.started_at, ending, run_id=run_id, raw=raw, report=report, before=before, after=after
        )

    def skipped(self, invocation: Invocation, code: str, reason: str) -> RunRecord:
        """Return the record of one that isn't run because its case ended hopelessly before."""
        ending = Ending(
            outcome=Outcome.SKIPPED,
            reason_code="failed-before",
            reason=f"the same case ended before with {code}: {reason}",
        )
        return self.record(invocation, self._services.clock.now(), ending)

    def not_run(
        self, invocation: Invocation, started_at: datetime, outcome: Outcome, error: BenchfarmError
    ) -> RunRecord:
        """Return the record of one that an error kept from running."""
        hint = f" ({error.hint})" if error.hint else ""
        ending = Ending(outcome=outcome, reason_code=error.code, reason=f"{error}{hint}")
        return self.record(invocation, started_at, ending)

    def record(
        self,
        invocation: Invocation,
        started_at: datetime,
        ending: Ending,
        *,
        run_id: RunId | None = None,
        raw: RawOutput | None = None,
        report: ToolReport | None = None,
        before: DeviceState | None = None,
        after: DeviceState | None = None,
    ) -> RunRecord:
        """Return the record of one that ended so, judged by what there is of it."""
        verdict = judge(
            report,
            ending,
            case=invocation.case,
            run_pass=invocation.run_pass,
            facts=self._facts,
            before=before,
            after=after,
            around=Surroundings(
                samples=raw.data(SAMPLES_FILE) if raw else b"", screen=self._workload.campaign.terms.quiet.screen
            ),
        )
        return RunRecord(
            run_id=run_id or RunId(uuid.uuid4().hex),
            campaign_id=self._workload.campaign.campaign_id,
            case=invocation.case,
            run_pass=invocation.run_pass,
            invocation=invocation.number,
            outcome=ending.outcome,
            reason_code=ending.reason_code,
            reason=ending.reason,
            is_virtual=self._facts.is_virtual,
            started_at=raw.started_at if raw else started_at,
            duration_s=raw.duration_s if raw else 0.0,
            command=raw.command if raw else "",
            exit_code=raw.exit_code if raw else None,
            attachments=raw.attachments if raw else (),
            report=report,
            verdict=verdict,
            state_before=before,
            state_after=after,
        )
