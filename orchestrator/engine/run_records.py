"""The record of each invocation, whose its figures are, and what its outputs are compared with."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from orchestrator.analysis.outcome import Ending, ending_of
from orchestrator.analysis.quality import Surroundings, judge
from orchestrator.clock import Clock
from orchestrator.engine.workload import Services, Workload
from orchestrator.errors import BenchfarmError, ModelError
from orchestrator.ports import SessionTool, Tool
from orchestrator.programs import program
from orchestrator.records.campaign import Campaign, Invocation
from orchestrator.records.device import DeviceFacts, DeviceState
from orchestrator.records.identity import RunId
from orchestrator.records.parity import ParityBasis
from orchestrator.records.run import Outcome, RawOutput, RunRecord, ToolReport
from orchestrator.records.sample import SAMPLES_FILE
from orchestrator.records.workload import ToolName


def covered(tool: Tool, raw: RawOutput, invocation: Invocation, queue: Sequence[Invocation]) -> list[Invocation]:
    """Return what a process measured beside the invocation that it was started for.

    Those of the queue's invocations that belong to the same round and session, and the cases that nobody could plan.
    """
    if not isinstance(tool, SessionTool):
        return []
    session = tool.session(invocation.case, invocation.run_pass)
    if not session:
        return []
    planned = [
        other
        for other in queue
        if other.case.tool is invocation.case.tool
        and other.case.case_key != invocation.case.case_key
        and other.number == invocation.number
        and tool.session(other.case, other.run_pass) == session
    ]
    known = {other.case.case_key for other in queue}
    found = [
        replace(invocation, case=case) for case in tool.found_cases(raw, invocation.case) if case.case_key not in known
    ]
    return [*planned, *found]


def own_end(tool: Tool, raw: RawOutput, report: ToolReport) -> RawOutput:
    """Return the raw output with what the process's end means for one case: nothing, once the case had its result."""
    if not isinstance(tool, SessionTool) or report.outcome != "ok":
        return raw
    return replace(raw, exit_code=raw.exit_code if raw.exit_code == 0 else None, timed_out=False)


class RunRecords:
    """Makes the records of one device's runs in a campaign."""

    def __init__(self, facts: DeviceFacts, campaign: Campaign, tools: Mapping[ToolName, Tool], clock: Clock) -> None:
        self._facts = facts
        self._campaign = campaign
        self._tools = tools
        self._clock = clock

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
        raw = own_end(self._tools[invocation.case.tool], raw, report)
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
        return self.record(invocation, self._clock.now(), ending)

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
                samples=raw.data(SAMPLES_FILE) if raw else b"", screen=self._campaign.terms.quiet.screen
            ),
        )
        return RunRecord(
            run_id=run_id or RunId(uuid.uuid4().hex),
            campaign_id=self._campaign.campaign_id,
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


#: Flags of a plan that would change what the inputs or outputs are.
_OWN_INPUTS: Final = (
    "input_layer", "input_layer_shape", "input_layer_value_files", "input_layer_value_range", "output_filepath",
    "output_proto_filepath", "signature_to_run_for",
)  # fmt: skip


def basis_of(invocation: Invocation, workload: Workload, services: Services) -> ParityBasis | Ending:
    """Return what an invocation's outputs are to be compared with, or the ending of one that can't be run."""
    case = invocation.case
    if not program(case.tool).is_benchmark_model:
        return _skip("parity-not-in-tool", f"'{case.tool}' writes no outputs that could be compared")
    if services.reference is None:
        return _skip("parity-no-reference", "nothing here computes the reference outputs")
    given: Mapping[str, str] = dict(case.flags)
    owned = [name for name in _OWN_INPUTS if name in given]
    if owned:
        return _skip("parity-own-inputs", f"the flag {owned[0]} says itself what the inputs or outputs are")
    try:
        return services.reference.basis(workload.models[case.model_sha256], workload.campaign.terms.parity_inputs)
    except ModelError as error:
        return _skip("parity-no-reference", str(error))


def _skip(code: str, reason: str) -> Ending:
    return Ending(outcome=Outcome.SKIPPED, reason_code=code, reason=reason)
