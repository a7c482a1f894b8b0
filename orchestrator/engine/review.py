"""Derive everything again from the raw output that was kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from orchestrator.analysis.quality import Surroundings, judge
from orchestrator.engine.invocation import read
from orchestrator.engine.reference_check import carried_over, keep_doubts, with_doubt
from orchestrator.passes import pass_of
from orchestrator.ports import Tool
from orchestrator.records.case import CampaignId, RunId, ToolName
from orchestrator.records.device import DeviceFacts
from orchestrator.records.history import is_pruned
from orchestrator.records.plan import Screen
from orchestrator.records.run import SAMPLES_FILE, Attachment, Outcome, RawOutput, RunRecord
from orchestrator.records.verdict import Finding, Severity

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

#: Endings that were decided by what a program printed, not by the way to the device.
_READ_FROM_OUTPUT = frozenset({Outcome.COMPLETED, Outcome.FAILED, Outcome.TIMED_OUT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """What a review found."""

    reviewed: int
    #: Runs whose reading changed.
    changed: tuple[RunId, ...]
    #: Runs whose raw output was deleted: they stay as they were read.
    pruned: int = 0


def read_again(
    run: RunRecord, raw: RawOutput, tool: Tool, facts: DeviceFacts, screen: Screen
) -> RunRecord:
    """Return a run with what its raw output says, and the verdict that follows."""
    reading = read(tool, raw, run.case, run.run_pass)
    ending = reading.ending
    verdict = judge(
        reading.report,
        ending,
        case=run.case,
        of_pass=pass_of(run.run_pass).findings,
        facts=facts,
        before=run.state_before,
        after=run.state_after,
        around=Surroundings(samples=raw.data(SAMPLES_FILE), screen=screen),
    )
    return replace(
        run,
        report=reading.report,
        outcome=ending.outcome,
        reason_code=ending.reason_code,
        reason=ending.reason,
        verdict=carried_over(verdict, run.verdict),
    )


def read_imported(
    run: RunRecord, facts: DeviceFacts, tools: Mapping[ToolName, Tool], screen: Screen
) -> RunRecord:
    """Return a run of another lab with what its raw output says; without raw output nothing can be
    said of it.

    What didn't come to a reading there (skipped, unfit, aborted) has no figure, and stays as it is.
    """
    if run.outcome not in _READ_FROM_OUTPUT:
        return replace(run, report=None)
    if is_pruned(run.attachments):
        missing = Finding(
            code="imported-unread",
            severity=Severity.WARNING,
            message="its raw output was deleted before it was exported, so that its figures can't be read again",
        )
        return replace(run, verdict=with_doubt(run.verdict, missing))
    return read_again(run, _raw_of(run, run.attachments), tools[run.case.tool], facts, screen)


def _raw_of(run: RunRecord, attachments: tuple[Attachment, ...]) -> RawOutput:
    return RawOutput(
        command=run.command,
        exit_code=run.exit_code,
        timed_out=run.outcome is Outcome.TIMED_OUT,
        started_at=run.started_at,
        duration_s=run.duration_s,
        attachments=attachments,
    )


def reparse(
    store: Store, tools: Mapping[ToolName, Tool], *, campaign_ids: Sequence[CampaignId] = ()
) -> Review:
    """Read every stored raw output again and store what is different now; the raw output stays as
    it is.
    """
    devices = store.devices()
    screens = {
        campaign.campaign_id: campaign.terms.quiet.screen
        for campaign in store.campaigns(with_hidden=True)
    }
    reviewed, pruned = 0, 0
    changed: list[RunId] = []
    for run in store.runs(campaign_ids=campaign_ids):
        if run.report is None or run.outcome not in _READ_FROM_OUTPUT:
            continue
        attachments = store.attachments(run.run_id)
        if is_pruned(attachments):
            pruned += 1
            continue
        reviewed += 1
        again = read_again(
            run,
            _raw_of(run, attachments),
            tools[run.case.tool],
            devices[run.case.serial],
            screens.get(run.campaign_id, Screen.ON),
        )
        assert again.report is not None, "reading always makes one"
        if (again.report, again.verdict, again.outcome) != (run.report, run.verdict, run.outcome):
            store.replace_reading(
                run.run_id,
                report=again.report,
                outcome=again.outcome,
                reason_code=again.reason_code,
                reason=again.reason,
                verdict=again.verdict,
            )
            changed.append(run.run_id)
    # Runs from before doubts were stored, and checks that read otherwise now.
    known = set(changed)
    for campaign_id in campaign_ids or [
        item.campaign_id for item in store.campaigns(with_hidden=True)
    ]:
        changed += [
            run.run_id for run in keep_doubts(store, campaign_id) if run.run_id not in known
        ]
    return Review(reviewed=reviewed, changed=tuple(changed), pruned=pruned)
