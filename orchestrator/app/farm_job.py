"""One job of the farm's queue: a plan on a phone of this host, resumed where an earlier delivery ended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from orchestrator.app import nights
from orchestrator.app.beginning import begin, identify, named_paths, prepare
from orchestrator.app.farm_payload import Unpacked, unpack
from orchestrator.app.measuring import equipment, reopen, turns_of
from orchestrator.bootstrap import Farm, Settings
from orchestrator.config.declared_programs import lent
from orchestrator.config.farm_documents import read_facts, read_payload, read_plan
from orchestrator.config.profiles import KeptInventory
from orchestrator.devices.discovery import KnownPhones
from orchestrator.engine.campaign import CampaignRunner
from orchestrator.engine.night import bounded
from orchestrator.engine.rounds import open_works, slim
from orchestrator.errors import (
    ArtifactError,
    BenchfarmError,
    DeviceChangedError,
    DeviceError,
    HostStorageError,
    InterruptedByUserError,
    NewerPlanError,
    ProgramInUseError,
    StoreError,
)
from orchestrator.ports import Device, Observer, Store
from orchestrator.queueing.contents import Contents
from orchestrator.queueing.queue import Claimed
from orchestrator.queueing.submissions import PhoneJob
from orchestrator.queueing.worker import Ended
from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import Serial
from orchestrator.records.plan import DeviceSelection
from orchestrator.records.workload import Pass
from orchestrator.report.escapes import one_line

#: What another try, here or on another host, may mend.
_PASSING: Final = (DeviceError, StoreError, HostStorageError, ArtifactError)
#: So often it is tried whether this host has the benchfarm by now that a job needs.
_UPDATED_S: Final = 600.0
#: And whether a job is over that declares a program otherwise.
_IN_USE_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What the jobs of a host share; each makes its own of what isn't there."""

    #: The host's phones that aren't asked again who they are.
    asked: KnownPhones | None = None
    store: Store | None = None
    inventory: KeptInventory | None = None
    #: Makes one that hears of a job's runs.
    observer: Callable[[], Observer] | None = None


def run_job(
    settings: Settings,
    contents: Contents,
    claimed: Claimed,
    host: str,
    cancelled: threading.Event,
    shared: Shared | None = None,
) -> Ended:
    """Do what is open of a job, with what it shares with others of its host; raises nothing.

    A phone that this host couldn't restore is named in the note.
    """
    ended = _run_job(settings, contents, claimed, host, cancelled, shared or Shared())
    if ended.status == "succeeded" or not _is_changed(settings, claimed.serial):
        return ended
    text = f"{ended.note}; its phone isn't restored: benchfarm device restore {claimed.serial}"
    return replace(ended, note=one_line(text))


def _is_changed(settings: Settings, serial: Serial) -> bool:
    """Whether this host's journal says so (the phone may be out of reach); not of one that somebody else uses now."""
    try:
        with Farm(settings) as farm, farm.lease.acquire(serial):
            return serial in farm.conditioner.unrestored()
    except (BenchfarmError, OSError):
        return False


def _run_job(
    settings: Settings,
    contents: Contents,
    claimed: Claimed,
    host: str,
    cancelled: threading.Event,
    shared: Shared,
) -> Ended:
    try:
        job = claimed.read()
        plan, payload = read_plan(job.plan), read_payload(job.payload)
        with Farm(
            settings,
            known=shared.asked,
            store=shared.store,
            inventory=shared.inventory,
            observer=shared.observer() if shared.observer is not None else None,
        ) as farm:
            farm.cancelled = cancelled
            # First, for a model's ending may be one that only its program's file tells of.
            with lent([contents.fetch(item.sha256, item.name) for item in payload.programs]):
                unpacked = unpack(farm, contents, plan, payload, inputs_folder(settings))
                return _go_on(farm, job, unpacked, host, claimed.facts)
    except InterruptedByUserError:
        return Ended(status="aborted", note="stopped")
    except _PASSING as error:
        return Ended(status="again", note=_noted(error), is_phone=isinstance(error, DeviceError))
    except ProgramInUseError as error:
        return Ended(status="later", note=_noted(error), wait_s=_IN_USE_S)
    except NewerPlanError as error:
        return Ended(status="later", note=_noted(error), wait_s=_UPDATED_S)
    except BenchfarmError as error:
        return Ended(status="failed", note=_noted(error))
    except Exception as error:  # noqa: BLE001 - one job's fault mustn't end the host's others
        return Ended(status="again", note=one_line(f"{type(error).__name__}: {error}"))


def inputs_folder(settings: Settings) -> Path:
    """Return where this host has the folders of inputs that jobs need."""
    return settings.cache_folder / "farm-inputs"


def _noted(error: BenchfarmError) -> str:
    return one_line(f"{error} ({error.hint})" if error.hint else str(error))


def _go_on(farm: Farm, job: PhoneJob, unpacked: Unpacked, host: str, meant: str) -> Ended:
    stored = farm.store.campaign(job.campaign_id)
    plan = replace(unpacked.plan, devices=DeviceSelection(serials=(job.serial,)))
    if stored is None:
        now = farm.clock.now()
        plan, begins_at = bounded(plan, now)
        if begins_at > now:
            note = f"its window opens at {begins_at:%Y-%m-%d %H:%M} UTC"
            return Ended(status="later", note=note, wait_s=(begins_at - now).total_seconds())
    models = identify(plan)
    devices = farm.open_devices(plan.devices).devices
    _check_same(devices[0][1], meant)
    beginning = prepare(farm, plan, devices, models, unpacked.named, reference=unpacked.reference)
    if stored is None:
        stored = begin(farm, plan, devices, beginning, unpacked.named, campaign_id=job.campaign_id, host=host)
    # The campaign may have begun on another host, where the same contents lie elsewhere.
    files = {**stored.terms.files, **beginning.files, **named_paths(unpacked.named)}
    inputs = str(plan.parity_inputs) if plan.parity_inputs is not None else ""
    ended = _run(farm, replace(stored, terms=replace(stored.terms, files=files, parity_inputs=inputs)))
    return _restore(farm, devices[0][0], ended) if ended.status == "succeeded" else ended


def _check_same(facts: DeviceFacts, meant: str) -> None:
    """Raise DeviceChangedError for a phone that isn't the one of these facts (a document): serial numbers repeat.

    Its system image may be another one: phones are updated.
    """
    wanted = read_facts(meant) if meant else facts
    if (facts.manufacturer, facts.model, facts.codename) != (wanted.manufacturer, wanted.model, wanted.codename):
        raise DeviceChangedError(
            f"the phone {facts.serial} here is a {facts.title}, the job is for a {wanted.title} of that serial number"
        )


def _restore(farm: Farm, device: Device, ended: Ended) -> Ended:
    """Return how a job ended whose results are stored: it isn't over as long as its phone isn't as it was before.

    An earlier delivery may have died, or had no disk for its journal, between the last result and that.
    """
    try:
        if not farm.conditioner.pending(device):
            return ended
        with farm.lease.acquire(device.serial):
            farm.conditioner.restore(device)
    except _PASSING as error:
        return Ended(status="again", note=f"{ended.note}; the phone isn't restored yet: {_noted(error)}")
    return ended


def _run(farm: Farm, campaign: Campaign) -> Ended:
    works = open_works(campaign, map(slim, farm.store.runs(campaign_ids=[campaign.campaign_id])), farm.tools)
    cases = [item.case for work in works.values() for item in work.invocations]
    if not cases:
        farm.store.set_status(campaign.campaign_id, CampaignStatus.FINISHED, farm.clock.now())
        if not campaign.invocations:
            return Ended(status="succeeded", note="there was no time for any of its cases")
        return _done(farm.store, campaign, "everything was stored already")
    cases += [item.case for item in campaign.invocations if item.run_pass is Pass.REFERENCE]
    models, builds, opened = reopen(farm, campaign, cases)
    services, workload = equipment(farm, campaign, models, builds, opened)
    result = CampaignRunner(services, turns_of(farm, services)).run(workload, opened.devices)
    if result.fault is not None:
        raise result.fault
    if result.left:
        reasons = "; ".join(result.lost.values()) or "the phone gave up"
        note = one_line(f"{result.stored} stored, {result.left} left: {reasons}")
        return Ended(status="again", note=note, is_phone=True)
    return _done(farm.store, campaign, f"{result.stored} stored")


def _done(store: Store, campaign: Campaign, note: str) -> Ended:
    """Return how a job ended that did all it could, with what its campaign has no results of."""
    given = store.yields([campaign.campaign_id]).get(campaign.campaign_id)
    cut = nights.told(nights.stored_left_out(store, [campaign.campaign_id]).get(campaign.campaign_id, []))
    lacking = [text for text in (given.text if given is not None else "", cut) if text]
    return Ended(status="succeeded", note="; ".join([note, *lacking]))
