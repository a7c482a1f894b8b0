"""Experiments on one phone: which quiet steps make it scatter less, and what was left changed on it."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator import __version__
from orchestrator.app.beginning import expansion_of, identify
from orchestrator.bootstrap import Farm
from orchestrator.devices.audit import Difference
from orchestrator.devices.books import OPTIONS, ExperimentBook
from orchestrator.engine.events import Notice
from orchestrator.engine.tuning import Laboratory
from orchestrator.engine.workload import Services, Workload
from orchestrator.errors import UsageError
from orchestrator.models.zoo import sample_models
from orchestrator.programs import usual_tool
from orchestrator.records.campaign import Campaign, CampaignStatus, Terms
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.identity import CampaignId
from orchestrator.records.plan import DeviceSelection, FitLimits, Matrix, Plan, PlanModel, RunSettings
from orchestrator.records.tuning import PhoneExperiments
from orchestrator.records.workload import USUAL_DELEGATE, Build


def find_quiet(
    farm: Farm, serial: str, options: tuple[str, ...], *, invocations: int, wait_s: float, min_secs: float
) -> tuple[PhoneExperiments, Path]:
    """Try quiet steps on a phone with a sample model, and keep those that make it scatter less; then restore it.

    Returns what is known of the phone, and the file that holds it. Raises UsageError for what is no option or no phone.
    """
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        raise UsageError(f"there is no option {', '.join(unknown)}", hint=f"there are {', '.join(OPTIONS)}")
    model_path = sample_models()[0]
    plan = Plan(
        name="experiments",
        models=(PlanModel(name=model_path.stem, path=model_path),),
        matrix=Matrix(delegates=(USUAL_DELEGATE,), tools=(usual_tool(DeviceKind.ANDROID),)),
        devices=DeviceSelection(serials=(serial,)),
        settings=RunSettings(num_runs=10, min_secs=min_secs, max_secs=30.0, warmup_min_secs=0.2),
        limits=FitLimits(wait_s=wait_s),
    )
    devices = farm.open_devices(plan.devices).devices
    device, facts = devices[0]
    if facts.kind is not DeviceKind.ANDROID:
        raise UsageError(f"{serial} is no phone", hint="experiments are for phones")
    models = identify(plan)
    expansion, builds = expansion_of(farm, plan, devices, models, {})
    if not expansion.cases:
        reasons = "; ".join(skip.reason for skip in expansion.skipped)
        raise UsageError(f"the sample model can't be measured on {serial}: {reasons}")
    workload = Workload(
        campaign=_campaign(farm, plan, builds),
        models={model.sha256: model for model in models},
        builds={build.sha256: build for build in builds},
        known_flags={build.sha256: farm.flag_book.names(build) for build in builds},
    )
    services = Services(
        store=farm.store,
        tools=farm.tools,
        lease=farm.lease,
        conditioner=farm.conditioner,
        rescuer=farm.rescuer,
        quarantine=farm.quarantine,
        observer=farm.observer,
        clock=farm.clock,
        cancelled=farm.cancelled,
    )

    def say(text: str) -> None:
        notice = Notice(event="device-note", text=f"{facts.serial}: {text}", keys={"serial": facts.serial})
        farm.observer.on_event(notice)

    known = _known(farm.experiments, facts)
    laboratory = Laboratory(device, facts, workload, services, tell=say)
    with farm.lease.acquire(facts.serial):
        try:
            tuned = laboratory.tune(expansion.cases[0], options or OPTIONS, invocations=invocations)
        finally:
            farm.conditioner.restore(device, on_note=say)
    # What wasn't tried this time stays as it was found before.
    kept = {**known.options, **tuned.options}
    found = replace(known, tuned_at=farm.clock.now(), options=kept, trials=tuned.trials)
    return found, farm.experiments.save(found)


def audit(farm: Farm, serial: str) -> tuple[DeviceFacts, Sequence[str], Sequence[Difference]]:
    """Compare a phone with what it was before the first change that isn't undone.

    Returns what it is, what is still to be undone, and what differs.
    """
    ((device, facts),) = farm.open_devices(DeviceSelection(serials=(serial,))).devices
    with farm.lease.acquire(facts.serial):
        pending = farm.conditioner.pending(device)
        return facts, pending, farm.conditioner.audit(device)


def _campaign(farm: Farm, plan: Plan, builds: Sequence[Build]) -> Campaign:
    """Return the terms of the experiments; it isn't stored."""
    files = {item.sha256: str(item.path) for build in builds for item in build.companions}
    return Campaign(
        campaign_id=CampaignId(f"experiments-{secrets.token_hex(3)}"),
        name=plan.name,
        created_at=farm.clock.now(),
        status=CampaignStatus.RUNNING,
        plan_text="",
        seed=0,
        benchfarm_version=__version__,
        host="",
        terms=Terms(limits=plan.limits, timeout_s=plan.timeout_s, files=files),
    )


def _known(book: ExperimentBook, facts: DeviceFacts) -> PhoneExperiments:
    """Return what is known of a phone with this very system image; another image's findings don't hold."""
    known = book.load(facts.serial)
    if known is None or known.fingerprint != facts.fingerprint:
        return PhoneExperiments(serial=facts.serial, is_virtual=facts.is_virtual, fingerprint=facts.fingerprint)
    return known
