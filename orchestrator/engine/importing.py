"""Runs that benchfarm didn't start: read, judged and stored like its own, in a campaign of their
own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from orchestrator.clock import Clock
from orchestrator.engine.invocation import RunRecords
from orchestrator.ports import Tool
from orchestrator.programs.foreign_app import BESIDE
from orchestrator.records.campaign import Campaign, CampaignStatus, Invocation
from orchestrator.records.case import (
    FIGURE_PASS,
    Build,
    BuildSha,
    Case,
    CaseKey,
    Model,
    ModelSha,
    Serial,
    ToolName,
)
from orchestrator.records.device import DeviceFacts
from orchestrator.records.run import Attachment, RawOutput, RunRecord

if TYPE_CHECKING:
    from orchestrator.store.opening import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRun:
    """One run in the timing pass that somebody else made, with what it left behind."""

    case: Case
    raw: RawOutput


@dataclass(slots=True, kw_only=True)
class ImportBatch:
    """Runs to be stored together, and what they are of."""

    runs: list[ForeignRun] = field(default_factory=list)
    devices: dict[Serial, DeviceFacts] = field(default_factory=dict)
    models: dict[ModelSha, Model] = field(default_factory=dict)
    builds: dict[BuildSha, Build] = field(default_factory=dict)
    #: What is wrong with what isn't among the runs, a sentence each.
    faults: list[str] = field(default_factory=list)


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
    batch: ImportBatch,
    *,
    clock: Clock,
) -> ImportResult:
    """Store runs under a campaign that is whole at once; what the store holds already is left out.

    ``campaign`` comes without invocations. A run is the same as a stored one when case and
    everything that it left behind are equal, byte for byte. Raises StoreError kinds.
    """
    fresh = _unknown(store, batch.runs)
    if not fresh:
        return ImportResult(campaign=None, runs=(), known=len(batch.runs))
    numbers: Counter[CaseKey] = Counter()
    records = []
    for run in fresh:
        key = run.case.case_key
        invocation = Invocation(case=run.case, run_pass=FIGURE_PASS, number=numbers[key])
        records.append(
            RunRecords(batch.devices[run.case.serial], campaign, tools, clock).measured(
                invocation, run.raw
            )
        )
        numbers[key] += 1
    whole = replace(
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
        whole,
        devices=list(batch.devices.values()),
        models=list(batch.models.values()),
        builds=list(batch.builds.values()),
    )
    for record in records:
        store.append_run(record)
    finished_at = clock.now()
    store.set_status(campaign.campaign_id, CampaignStatus.FINISHED, finished_at)
    ended = replace(whole, finished_at=finished_at)
    return ImportResult(campaign=ended, runs=tuple(records), known=len(batch.runs) - len(fresh))


def _unknown(store: Store, runs: Sequence[ForeignRun]) -> list[ForeignRun]:
    def identity(
        case: Case, attachments: Sequence[Attachment]
    ) -> tuple[CaseKey, frozenset[Attachment]]:
        return case.case_key, frozenset(item for item in attachments if item.name != BESIDE)

    cases = tuple({run.case.case_key for run in runs})
    stored = list(store.runs(case_keys=cases))
    seen = {
        identity(run.case, store.attachments(run.run_id))
        for run in stored
        if run.run_pass is FIGURE_PASS
    }
    fresh: dict[tuple[CaseKey, frozenset[Attachment]], ForeignRun] = {}
    for run in runs:
        fresh.setdefault(identity(run.case, run.raw.attachments), run)
    return [run for key, run in fresh.items() if key not in seen]
