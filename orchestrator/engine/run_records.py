"""The record of each invocation: what its output says, whose its figures are, what its outputs are compared with."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from orchestrator.analysis.outcome import Ending, ending_of
from orchestrator.analysis.parity import with_parity
from orchestrator.analysis.quality import Surroundings, judge
from orchestrator.analysis.samples import with_busy_clock
from orchestrator.clock import Clock
from orchestrator.engine.rounds import following, open_works, slim
from orchestrator.engine.workload import Services, Workload
from orchestrator.errors import ModelError
from orchestrator.ports import SessionTool, Store, Tool
from orchestrator.programs import program
from orchestrator.records.campaign import Campaign, CampaignStatus, Invocation
from orchestrator.records.device import DeviceFacts, DeviceState
from orchestrator.records.identity import RunId
from orchestrator.records.night import ABANDONED
from orchestrator.records.parity import ParityBasis
from orchestrator.records.run import Outcome, RawOutput, RunRecord, ToolReport
from orchestrator.records.sample import SAMPLES_FILE
from orchestrator.records.workload import Case, ToolName


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a case's raw output says."""

    #: With what the process's end means for this case.
    raw: RawOutput
    report: ToolReport
    ending: Ending


def read(tool: Tool, raw: RawOutput, case: Case) -> Reading:
    """Return what raw output says of a case."""
    report = with_parity(tool.parse(raw, case), raw, case)
    if not isinstance(tool, SessionTool):
        report = with_busy_clock(report, raw.data(SAMPLES_FILE))
    elif report.outcome == "ok":
        # How a process ended that measured several cases says nothing of one that had its result.
        raw = replace(raw, exit_code=raw.exit_code if raw.exit_code == 0 else None, timed_out=False)
    ending = ending_of(report, exit_code=raw.exit_code, timed_out=raw.timed_out)
    return Reading(raw=raw, report=report, ending=ending)


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
        *,
        run_id: RunId | None = None,
        before: DeviceState | None = None,
        after: DeviceState | None = None,
    ) -> RunRecord:
        """Return the record of a case that a process measured."""
        reading = read(self._tools[invocation.case.tool], raw, invocation.case)
        return self._record(invocation, reading.ending, reading, run_id=run_id, before=before, after=after)

    def not_run(
        self,
        invocation: Invocation,
        outcome: Outcome,
        reason_code: str,
        reason: str,
        *,
        at: datetime | None = None,
        state: DeviceState | None = None,
    ) -> RunRecord:
        """Return the record of an invocation without output; ``at`` is its moment, None: now."""
        ending = Ending(outcome=outcome, reason_code=reason_code, reason=reason)
        return self._record(invocation, ending, None, at=at, before=state)

    def _record(
        self,
        invocation: Invocation,
        ending: Ending,
        reading: Reading | None,
        *,
        at: datetime | None = None,
        run_id: RunId | None = None,
        before: DeviceState | None = None,
        after: DeviceState | None = None,
    ) -> RunRecord:
        raw = reading.raw if reading is not None else None
        report = reading.report if reading is not None else None
        screen = self._campaign.terms.quiet.screen
        verdict = judge(
            report,
            ending,
            case=invocation.case,
            run_pass=invocation.run_pass,
            facts=self._facts,
            before=before,
            after=after,
            around=Surroundings(samples=raw.data(SAMPLES_FILE) if raw else b"", screen=screen),
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
            started_at=raw.started_at if raw else at or self._clock.now(),
            duration_s=raw.duration_s if raw else 0.0,
            command=raw.command if raw else "",
            exit_code=raw.exit_code if raw else None,
            attachments=raw.attachments if raw else (),
            report=report,
            verdict=verdict,
            state_before=before,
            state_after=after,
        )


def close_campaign(campaign: Campaign, store: Store, tools: Mapping[ToolName, Tool], clock: Clock) -> int:
    """Abandon what is left of a campaign that nobody runs: it is stored as left out, and the campaign is finished.

    Returns how many invocations that were. What was measured stays. Of a search and of pairs nothing is stored as left
    out: what they would have run follows from figures that they don't have. Raises StoreError.
    """
    count = 0
    if campaign.terms.search is None and campaign.terms.pairing is None:
        makers = {serial: RunRecords(facts, campaign, tools, clock) for serial, facts in store.devices().items()}
        reason = "what was left of its campaign was abandoned"
        runs = [slim(run) for run in store.runs(campaign_ids=[campaign.campaign_id])]
        while left := [
            item
            for work in open_works(campaign, runs, tools).values()
            # The reference workload brackets what is run.
            for item in (*work.planned, *work.added, *(following(marker, runs) for marker in work.sustained))
        ]:
            abandoned = [makers[item.case.serial].not_run(item, Outcome.SKIPPED, ABANDONED, reason) for item in left]
            stored = [run for run in abandoned if store.append_run(run)]
            if not stored:
                break
            # What was open is the basis of what would have been added to it.
            runs, count = [*runs, *stored], count + len(stored)
    store.set_status(campaign.campaign_id, CampaignStatus.FINISHED, clock.now())
    return count


#: Flags of a plan that would change what the inputs or outputs are.
_OWN_INPUTS: Final = (
    "input_layer", "input_layer_shape", "input_layer_value_files", "input_layer_value_range", "output_filepath",
    "output_proto_filepath", "signature_to_run_for",
)  # fmt: skip


def basis_of(invocation: Invocation, workload: Workload, services: Services) -> ParityBasis | tuple[str, str]:
    """Return what an invocation's outputs are to be compared with; code and reason for one that can't be run."""
    case = invocation.case
    if not program(case.tool).is_benchmark_model:
        return "parity-not-in-tool", f"'{case.tool}' writes no outputs that could be compared"
    if services.reference is None:
        return "parity-no-reference", "nothing here computes the reference outputs"
    if owned := [name for name in _OWN_INPUTS if name in dict(case.flags)]:
        return "parity-own-inputs", f"the flag {owned[0]} says itself what the inputs or outputs are"
    try:
        return services.reference.basis(workload.models[case.model_sha256], workload.campaign.terms.parity_inputs)
    except ModelError as error:
        return "parity-no-reference", str(error)
