"""Raw output that was kept, or that others give, read, judged and stored like that of our own runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from orchestrator.analysis.findings import finding
from orchestrator.clock import Clock
from orchestrator.engine.invocation import RunRecords, read_output
from orchestrator.engine.reference_check import store_doubts, with_doubt, with_stored_doubt
from orchestrator.errors import PlanError, PluginError, UsageError
from orchestrator.ports import Tool
from orchestrator.records import frozen
from orchestrator.records.campaign import Campaign, CampaignStatus, Invocation
from orchestrator.records.case import (
    FIGURE_PASS,
    Build,
    BuildSha,
    CampaignId,
    Case,
    CaseKey,
    Model,
    ModelSha,
    RunId,
    Serial,
    ToolName,
)
from orchestrator.records.device import DeviceFacts
from orchestrator.records.history import is_pruned
from orchestrator.records.plan import Screen
from orchestrator.records.run import Attachment, Outcome, RawOutput, RunRecord, ToolReport

if TYPE_CHECKING:
    from orchestrator.store.opening import Store


@frozen
class Review:
    """What a review found."""

    reviewed: int
    #: Runs whose reading changed.
    changed: tuple[RunId, ...]
    #: Runs whose raw output was deleted: they stay as they were read.
    pruned: int = 0
    #: Runs whose pass or program isn't installed any more: they stay, too.
    unread: int = 0


def reread_run(
    run: RunRecord, raw: RawOutput, tool: Tool, facts: DeviceFacts, screen: Screen
) -> RunRecord:
    """Return a run with the report of its raw output, and the new verdict."""
    reading = read_output(tool, raw, run.case, run.run_pass)
    ending, states = reading.ending, (run.state_before, run.state_after)
    verdict = reading.verdict(run.case, run.run_pass, facts, screen, states)
    return replace(
        run,
        report=reading.report,
        outcome=ending.outcome,
        reason_code=ending.reason_code,
        reason=ending.reason,
        verdict=with_stored_doubt(verdict, run.verdict),
    )


def read_imported(
    run: RunRecord, facts: DeviceFacts, tools: Mapping[ToolName, Tool], screen: Screen
) -> RunRecord:
    """Return a run of another lab with the report of its raw output; without raw output nothing can be
    said of it.

    What didn't come to a reading there (skipped, unfit, aborted) has no figure, and stays as it is.
    """
    if not run.outcome.has_ended:
        return replace(run, report=None)
    if is_pruned(run.attachments):
        return replace(run, verdict=with_doubt(run.verdict, finding("imported-unread")))
    return reread_run(run, _raw_output(run, run.attachments), tools[run.case.tool], facts, screen)


def _raw_output(run: RunRecord, attachments: tuple[Attachment, ...]) -> RawOutput:
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
    reviewed, pruned, unread = 0, 0, 0
    changed: list[RunId] = []
    for run in store.runs(campaign_ids=campaign_ids):
        if run.report is None or not run.outcome.has_ended:
            continue
        attachments = store.attachments(run.run_id)
        if is_pruned(attachments):
            pruned += 1
            continue
        try:
            reread = reread_run(
                run,
                _raw_output(run, attachments),
                tools[run.case.tool],
                devices[run.case.serial],
                screens.get(run.campaign_id, Screen.ON),
            )
        except UsageError as error:
            # One that is installed and broken is reported.
            if isinstance(error, PlanError | PluginError):
                raise
            unread += 1
            continue
        reviewed += 1
        assert reread.report is not None, "reading always makes one"
        if (reread.report, reread.verdict, reread.outcome) != (
            run.report,
            run.verdict,
            run.outcome,
        ):
            store.replace_reading(reread)
            changed.append(run.run_id)
    # Runs from before doubts were stored, and checks that read otherwise now.
    reparsed = set(changed)
    for campaign_id in campaign_ids or [
        item.campaign_id for item in store.campaigns(with_hidden=True)
    ]:
        changed += [
            run.run_id for run in store_doubts(store, campaign_id) if run.run_id not in reparsed
        ]
    return Review(reviewed=reviewed, changed=tuple(changed), pruned=pruned, unread=unread)


@frozen
class ForeignRun:
    """One timing run that was made elsewhere, with its output."""

    case: Case
    raw: RawOutput
    #: Whether its figures have so many digits that a stored run with the same ones is this one,
    #: whatever text it stood in.
    is_unlike_others: bool = False


@dataclass(slots=True, kw_only=True)
class ImportBatch:
    """Runs to be stored together, and what they are of."""

    runs: list[ForeignRun] = field(default_factory=list)
    devices: dict[Serial, DeviceFacts] = field(default_factory=dict)
    models: dict[ModelSha, Model] = field(default_factory=dict)
    builds: dict[BuildSha, Build] = field(default_factory=dict)
    #: Why parts of the input gave no run, a sentence each.
    faults: list[str] = field(default_factory=list)
    #: Further notes for people, a sentence each.
    notes: list[str] = field(default_factory=list)


@frozen
class ImportResult:
    """What an import did."""

    #: None when every run was there already.
    campaign: Campaign | None
    runs: tuple[RunRecord, ...]
    #: How many of the given runs the store held already.
    known: int


def import_runs(
    store: Store,
    tools: Mapping[ToolName, Tool],
    campaign: Campaign,
    batch: ImportBatch,
    *,
    clock: Clock,
) -> ImportResult:
    """Store runs under a campaign that is whole at once; what the store holds already is left out.

    ``campaign`` comes without invocations. A run is the same as a stored one when case and
    everything that it left behind are equal, byte for byte, or its figures where none else has
    them. Raises StoreError kinds.
    """
    cases = tuple({run.case.case_key for run in batch.runs})
    stored = list(store.runs(case_keys=cases, run_passes=[FIGURE_PASS]))
    figures = {(run.case.case_key, report_identity(run.report)) for run in stored if run.report}
    numbers: Counter[CaseKey] = Counter()
    records = []
    for run in _without_stored(store, stored, batch.runs):
        key = run.case.case_key
        invocation = Invocation(case=run.case, run_pass=FIGURE_PASS, number=numbers[key])
        recorder = RunRecords(batch.devices[run.case.serial], campaign, tools, clock)
        record = recorder.measured(invocation, run.raw)
        assert record.report is not None, "reading always makes one"
        if run.is_unlike_others and (key, report_identity(record.report)) in figures:
            continue
        records.append(record)
        numbers[key] += 1
    if not records:
        return ImportResult(campaign=None, runs=(), known=len(batch.runs))
    finished = replace(
        campaign,
        # Never RUNNING: one that was cut off is continued by importing again, never by running it.
        status=CampaignStatus.FINISHED,
        finished_at=clock.now(),
        invocations=tuple(
            Invocation(case=record.case, run_pass=record.run_pass, number=record.invocation)
            for record in records
        ),
    )
    store.begin_campaign(
        finished,
        devices=list(batch.devices.values()),
        models=list(batch.models.values()),
        builds=list(batch.builds.values()),
    )
    store.append_runs(records)
    return ImportResult(
        campaign=finished, runs=tuple(records), known=len(batch.runs) - len(records)
    )


def report_identity(report: ToolReport) -> str:
    """Return all that a report says but below which headings of its text it stands."""
    extra = {
        name: value for name, value in report.extra.items() if name not in {"title", "heading"}
    }
    return repr(replace(report, extra=extra))


def _without_stored(
    store: Store, stored: Sequence[RunRecord], runs: Sequence[ForeignRun]
) -> list[ForeignRun]:
    def identity(
        case: Case, attachments: Sequence[Attachment]
    ) -> tuple[CaseKey, frozenset[Attachment]]:
        return case.case_key, frozenset(attachments)

    stored_identities = {identity(run.case, store.attachments(run.run_id)) for run in stored}
    new_runs: dict[tuple[CaseKey, frozenset[Attachment]], ForeignRun] = {}
    for run in runs:
        new_runs.setdefault(identity(run.case, run.raw.attachments), run)
    return [run for key, run in new_runs.items() if key not in stored_identities]
