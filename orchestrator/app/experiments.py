"""Experiments on one phone: what brings it to rest, what an app costs there, and what was left changed on it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator import __version__
from orchestrator.app.beginning import expansion_of, identify
from orchestrator.bootstrap import Farm
from orchestrator.devices.audit import Difference
from orchestrator.devices.books import OPTIONS, ExperimentBook
from orchestrator.engine.events import Notice
from orchestrator.engine.tuning import Laboratory, Tuned
from orchestrator.engine.workload import Services, Workload
from orchestrator.errors import UsageError
from orchestrator.models.zoo import sample_models
from orchestrator.ports import Device
from orchestrator.programs import programs, usual_tool
from orchestrator.records.campaign import Campaign, CampaignStatus, Terms
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.identity import CampaignId, Serial
from orchestrator.records.plan import DeviceSelection, FitLimits, Matrix, Plan, PlanModel, RunSettings
from orchestrator.records.tuning import ModeRatio, OptionTrial, PhoneExperiments
from orchestrator.records.workload import USUAL_DELEGATE, Build, Case, ProcessMode


@dataclass(frozen=True, slots=True, kw_only=True)
class _Bench:
    """One phone with the sample case's files at hand."""

    farm: Farm
    device: Device
    facts: DeviceFacts
    laboratory: Laboratory
    cases: tuple[Case, ...]
    #: Why a mode has no case.
    skipped: dict[ProcessMode, str]


def find_quiet(
    farm: Farm, serial: str, options: tuple[str, ...], *, invocations: int, wait_s: float, min_secs: float
) -> tuple[PhoneExperiments, Path]:
    """Try the options of quiet on a phone and keep those that make it scatter less; return what is known of it, where.

    Raises UsageError for what is no option or no phone.
    """
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        raise UsageError(f"there is no option {', '.join(unknown)}", hint=f"there are {', '.join(OPTIONS)}")
    matrix = Matrix(delegates=(USUAL_DELEGATE,), tools=(usual_tool(DeviceKind.ANDROID),))
    with _bench(farm, serial, matrix, wait_s=wait_s, min_secs=min_secs) as bench:
        tuned = _tuned(bench, options or OPTIONS, invocations)
        known = _known(farm.experiments, bench.facts)
        # What wasn't tried this time stays as it was found before.
        kept = {**known.options, **tuned.options}
        found = replace(
            known, tuned_at=farm.clock.now(), options=kept, trials=tuned.trials, begun=(), begun_with=""
        )  # fmt: skip
        return found, farm.experiments.save(found)


def _tuned(bench: _Bench, options: Sequence[str], invocations: int) -> Tuned:
    """Try the options; each trial is kept when it ends, so that a tune that was cut off goes on from there."""
    book, case = bench.farm.experiments, bench.cases[0]
    known = _known(book, bench.facts)
    with_what = f"case {case.case_key}, {invocations} invocations"
    begun = known.begun if known.begun_with == with_what else ()
    if begun:
        _teller(bench.farm, bench.facts.serial)(f"resumes a tune that was cut off; {len(begun)} trials are there")
    ended = list(begun)

    def keep(trial: OptionTrial) -> None:
        ended.append(trial)
        book.save(replace(_known(book, bench.facts), begun=tuple(ended), begun_with=with_what))

    return bench.laboratory.tune(case, options, invocations=invocations, finished=begun, on_trial=keep)


def find_bias(
    farm: Farm, serial: str, *, invocations: int, wait_s: float, min_secs: float
) -> tuple[PhoneExperiments, Path]:
    """Measure what running as an app, from the shell, and from the shell as the top app cost on a phone, and keep it.

    Raises UsageError for what is no phone.
    """
    tools = tuple(own.name for own in programs() if own.is_benchmark_model)
    matrix = Matrix(delegates=(USUAL_DELEGATE,), tools=tools, modes=tuple(ProcessMode))
    with _bench(farm, serial, matrix, wait_s=wait_s, min_secs=min_secs) as bench:
        modes = bench.laboratory.bias(bench.cases, invocations=invocations)
        measured = {item.mode for item in modes}
        modes += tuple(
            ModeRatio(mode=mode, ratio=None, low=None, high=None, reason=reason)
            for mode, reason in bench.skipped.items()
            if mode not in measured
        )
        found = replace(_known(farm.experiments, bench.facts), biased_at=farm.clock.now(), modes=modes)
        return found, farm.experiments.save(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """How a phone differs from what it was before the first change that isn't undone."""

    facts: DeviceFacts
    #: What is still to be undone.
    pending: Sequence[str]
    differences: Sequence[Difference]

    @property
    def is_clean(self) -> bool:
        """Whether the phone is as it was."""
        return not self.pending and not self.differences


def audit(farm: Farm, serial: str) -> Audited:
    """Compare a phone with what it was before the first change that isn't undone."""
    ((device, facts),) = farm.open_devices(DeviceSelection(serials=(serial,))).devices
    with farm.lease.acquire(facts.serial):
        pending = farm.conditioner.pending(device)
        return Audited(facts=facts, pending=pending, differences=farm.conditioner.audit(device))


@contextmanager
def _bench(farm: Farm, serial: str, matrix: Matrix, *, wait_s: float, min_secs: float) -> Iterator[_Bench]:
    """Open a phone and place nothing yet; whatever happens, it is restored as it was."""
    model_path = sample_models()[0]
    plan = Plan(
        name="experiments",
        models=(PlanModel(name=model_path.stem, path=model_path),),
        matrix=matrix,
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
    skipped = {
        mode: skip.reason
        for skip in expansion.skipped
        for mode in ProcessMode
        if skip.tool.is_app == (mode is ProcessMode.FOREGROUND) and skip.reason_code != "mode-not-in-tool"
    }
    if not expansion.cases:
        raise UsageError(f"the sample model can't be measured on {serial}: {'; '.join(skipped.values())}")
    workload = Workload(
        campaign=_campaign(farm, plan, builds),
        models={model.sha256: model for model in models},
        builds={build.sha256: build for build in builds},
        known_flags={build.sha256: farm.flag_book.names(build) for build in builds},
    )
    services = Services(
        store=farm.store,
        tools=farm.tools,
        conditioner=farm.conditioner,
        observer=farm.observer,
        clock=farm.clock,
        cancelled=farm.cancelled,
    )
    laboratory = Laboratory(device, facts, workload, services, tell=_teller(farm, facts.serial))
    with farm.lease.acquire(facts.serial):
        try:
            yield _Bench(
                farm=farm, device=device, facts=facts, laboratory=laboratory, cases=expansion.cases,
                skipped=skipped,
            )  # fmt: skip
        finally:
            farm.conditioner.restore(device, on_note=_teller(farm, facts.serial))


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


def _teller(farm: Farm, serial: Serial) -> Callable[[str], None]:
    def say(text: str) -> None:
        notice = Notice(event="device-note", text=f"{serial}: {text}", keys={"serial": serial})
        farm.observer.on_event(notice)

    return say


def _known(book: ExperimentBook, facts: DeviceFacts) -> PhoneExperiments:
    """Return what is known of a phone with this very system image; another image's findings don't hold."""
    known = book.load(facts.serial)
    if known is None or known.fingerprint != facts.fingerprint:
        return PhoneExperiments(serial=facts.serial, is_virtual=facts.is_virtual, fingerprint=facts.fingerprint)
    return known
