"""Runs that benchfarm didn't start: read, judged and stored like its own, in a campaign of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.analysis.outcome import ending_of
from orchestrator.clock import Clock
from orchestrator.engine.run_records import RunRecords
from orchestrator.ports import Store, Tool
from orchestrator.programs.device_lab import BESIDE
from orchestrator.records.campaign import Campaign, CampaignStatus, Invocation
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import CaseKey
from orchestrator.records.run import Attachment, RawOutput, RunRecord
from orchestrator.records.workload import Build, Case, Model, Pass, ToolName


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRun:
    """One run that somebody else made, with what it left behind."""

    case: Case
    run_pass: Pass
    raw: RawOutput


@dataclass(frozen=True, slots=True, kw_only=True)
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
    runs: Sequence[ForeignRun],
    *,
    facts: Sequence[DeviceFacts],
    models: Sequence[Model],
    builds: Sequence[Build],
    clock: Clock,
) -> ImportResult:
    """Store runs under a campaign that is whole at once; what the store holds already is left out.

    ``campaign`` comes without invocations, ``facts`` are of all devices of the runs. A run is the same as a stored one
    when case, pass and everything that it left behind are equal, byte for byte. Raises StoreError kinds.
    """
    fresh = _unknown(store, runs)
    if not fresh:
        return ImportResult(campaign=None, runs=(), known=len(runs))
    devices = {item.serial: item for item in facts}
    numbers: Counter[tuple[CaseKey, Pass]] = Counter()
    records = []
    for run in fresh:
        key = (run.case.case_key, run.run_pass)
        report = tools[run.case.tool].parse(run.raw, run.case)
        ending = ending_of(report, exit_code=run.raw.exit_code, timed_out=run.raw.timed_out)
        records.append(
            RunRecords(devices[run.case.serial], campaign, tools, clock).record(
                Invocation(case=run.case, run_pass=run.run_pass, number=numbers[key]),
                run.raw.started_at,
                ending,
                raw=run.raw,
                report=report,
            )
        )
        numbers[key] += 1
    whole = replace(
        campaign,
        # Never RUNNING: one that was cut off is resumed by importing again, never by running it.
        status=CampaignStatus.FINISHED,
        finished_at=clock.now(),
        invocations=tuple(
            Invocation(case=record.case, run_pass=record.run_pass, number=record.invocation) for record in records
        ),
    )
    store.begin_campaign(whole, devices=facts, models=models, builds=builds)
    for record in records:
        store.append_run(record)
    finished_at = clock.now()
    store.set_status(campaign.campaign_id, CampaignStatus.FINISHED, finished_at)
    ended = replace(whole, finished_at=finished_at)
    return ImportResult(campaign=ended, runs=tuple(records), known=len(runs) - len(fresh))


def _unknown(store: Store, runs: Sequence[ForeignRun]) -> list[ForeignRun]:
    cases = tuple({run.case.case_key for run in runs})
    seen = {
        _identity(stored.case, stored.run_pass, store.attachments(stored.run_id))
        for stored in list(store.runs(case_keys=cases))
    }
    fresh = []
    for run in runs:
        identity = _identity(run.case, run.run_pass, run.raw.attachments)
        if identity not in seen:
            seen.add(identity)
            fresh.append(run)
    return fresh


def _identity(
    case: Case, run_pass: Pass, attachments: Sequence[Attachment]
) -> tuple[CaseKey, Pass, frozenset[Attachment]]:
    return case.case_key, run_pass, frozenset(item for item in attachments if item.name != BESIDE)
