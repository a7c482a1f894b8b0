"""One job of the farm's queue: a plan on a phone of this host, gone on with where an earlier delivery ended."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from orchestrator import __version__
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.campaigns import files_of, terms_of
from orchestrator.cli.measuring import equipment, expansion_of, reopen, turns_of
from orchestrator.cli.result import one_line
from orchestrator.config.farm_documents import read_plan
from orchestrator.engine.campaign import CampaignRunner
from orchestrator.engine.rounds import open_works
from orchestrator.errors import (
    ArtifactError,
    BenchfarmError,
    DeviceError,
    HostStorageError,
    InterruptedByUserError,
    PlanError,
    StoreError,
)
from orchestrator.models.inspect import identify_model
from orchestrator.planning import Expansion
from orchestrator.queueing.messages import PhoneJob
from orchestrator.queueing.queue import Claimed, FarmQueue
from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.records.device import DeviceFacts
from orchestrator.records.plan import DeviceSelection, Plan

#: What another try, here or on another host, may mend.
_PASSING: Final = (DeviceError, StoreError, HostStorageError, ArtifactError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a delivery ended: ``succeeded``, ``failed``, ``aborted``, or ``again`` for another try."""

    status: str
    note: str


def run_job(settings: Settings, queue: FarmQueue, claimed: Claimed, host: str, cancelled: threading.Event) -> Ended:
    """Do what is open of a job; raises nothing."""
    try:
        job = claimed.read()
        plan = _with_models(queue, read_plan(job.plan), settings.cache_folder / "farm-models")
        plan = replace(plan, devices=DeviceSelection(serials=(job.serial,)))
        with Farm(settings) as farm:
            farm.cancelled = cancelled
            return _go_on(farm, job, plan, host)
    except InterruptedByUserError:
        return Ended(status="aborted", note="stopped")
    except _PASSING as error:
        return Ended(status="again", note=one_line(str(error)))
    except BenchfarmError as error:
        return Ended(status="failed", note=one_line(str(error)))
    except Exception as error:  # noqa: BLE001 - one job's fault mustn't end the host's others
        return Ended(status="again", note=one_line(f"{type(error).__name__}: {error}"))


def _with_models(queue: FarmQueue, plan: Plan, folder: Path) -> Plan:
    """Return the plan with its models as files of this host, by content."""
    models = []
    for model in plan.models:
        if model.sha256 is None or len(model.sha256) != 64 or not set(model.sha256) <= set("0123456789abcdef"):
            raise PlanError(f"a plan from the queue: the model {model.name!r} has no sha256")
        models.append(replace(model, path=queue.fetch(model.sha256, folder)))
    return replace(plan, models=tuple(models))


def _go_on(farm: Farm, job: PhoneJob, plan: Plan, host: str) -> Ended:
    models = [replace(identify_model(wanted.path), name=wanted.name) for wanted in plan.models]
    devices = farm.open_devices(plan.devices)
    expansion, builds = expansion_of(farm, plan, devices, models, {})
    if not expansion.cases:
        reasons = dict.fromkeys(skip.reason for skip in expansion.skipped)
        return Ended(status="failed", note=one_line("nothing can be measured: " + "; ".join(reasons)))
    twins = list(farm.flex_builds(builds).values())
    files = files_of(models, [*builds, *twins])
    stored = farm.store.campaign(job.campaign_id)
    if stored is None:
        stored = _begun(farm, job, plan, host, devices[0][1], expansion, files)
        farm.store.begin_campaign(
            stored, devices=[facts for _, facts in devices], models=models, builds=[*builds, *twins]
        )
    # The campaign may have begun on another host, where the same contents lie elsewhere.
    campaign = replace(stored, terms=replace(stored.terms, files={**stored.terms.files, **files}))
    return _run(farm, campaign)


def _begun(
    farm: Farm, job: PhoneJob, plan: Plan, host: str, device: DeviceFacts, expansion: Expansion, files: dict[str, str]
) -> Campaign:
    return Campaign(
        campaign_id=job.campaign_id,
        name=plan.name,
        created_at=farm.clock.now(),
        status=CampaignStatus.RUNNING,
        plan_text=plan.text,
        seed=plan.seed,
        benchfarm_version=__version__,
        terms=terms_of(plan, [device], files),
        host=host,
        invocations=tuple(invocation for queue in expansion.invocations.values() for invocation in queue),
        skipped=expansion.skipped,
    )


def _run(farm: Farm, campaign: Campaign) -> Ended:
    works = open_works(campaign, list(farm.store.runs(campaign_ids=[campaign.campaign_id])), farm.tools)
    cases = [item.case for work in works.values() for item in work.invocations]
    if not cases:
        farm.store.set_status(campaign.campaign_id, CampaignStatus.FINISHED, farm.clock.now())
        return Ended(status="succeeded", note="everything was stored already")
    models, builds, devices = reopen(farm, campaign, cases)
    services, workload = equipment(farm, campaign, models, builds)
    result = CampaignRunner(services, turns_of(farm, services)).run(workload, devices)
    if result.left:
        reasons = "; ".join(result.lost.values()) or "the phone gave up"
        return Ended(status="again", note=one_line(f"{result.stored} stored, {result.left} left: {reasons}"))
    return Ended(status="succeeded", note=f"{result.stored} stored")
