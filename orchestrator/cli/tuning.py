"""``benchfarm device quiet``, ``bias`` and ``audit``: experiments on one phone, and what was left changed on it."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from orchestrator import __version__
from orchestrator.app.beginning import expansion_of, identify
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.progress import farm_telling
from orchestrator.cli.result import CommandResult, table
from orchestrator.devices.experiments import OPTIONS, ExperimentBook
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
from orchestrator.report.escapes import one_line


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


def tune(
    settings: Settings, serial: str, options: tuple[str, ...], *, invocations: int, wait_s: float, min_secs: float
) -> CommandResult:
    """Try the options of quiet on a phone and keep those that make it scatter less."""
    unknown = [name for name in options if name not in OPTIONS]
    if unknown:
        raise UsageError(f"there is no option {', '.join(unknown)}", hint=f"there are {', '.join(OPTIONS)}")
    matrix = Matrix(delegates=(USUAL_DELEGATE,), tools=(usual_tool(DeviceKind.ANDROID),))
    with _bench(settings, serial, matrix, wait_s=wait_s, min_secs=min_secs) as bench:
        tuned = _tuned(bench, options or OPTIONS, invocations)
        book = bench.farm.experiments
        known = _known(book, bench.facts)
        # What wasn't tried this time stays as it was found before.
        kept = {**known.options, **tuned.options}
        found = replace(
            known, tuned_at=bench.farm.clock.now(), options=kept, trials=tuned.trials, begun=(), begun_with=""
        )  # fmt: skip
        path = book.save(found)
    rows = [_trial_row(trial) for trial in tuned.trials]
    on = [name for name, is_on in kept.items() if is_on]
    lines = [
        f"{serial}{_virtual(bench.facts)}",
        table(("option", "spread", "95 % interval", "p", "latency", "what follows"), rows, right=(1, 2, 3, 4)),
        f"kept: {', '.join(on) or 'nothing; the phone is measured as it is'}",
        f"plans that leave these open take them from {path}",
    ]
    return CommandResult(text="\n".join(lines), data={"file": path, **_data(found)})


def _tuned(bench: _Bench, options: Sequence[str], invocations: int) -> Tuned:
    """Try the options; each trial is kept when it ends, so that a tune that was cut off goes on from there."""
    book, case = bench.farm.experiments, bench.cases[0]
    known = _known(book, bench.facts)
    with_what = f"case {case.case_key}, {invocations} invocations"
    begun = known.begun if known.begun_with == with_what else ()
    if begun:
        _teller(bench.farm, bench.facts.serial)(f"goes on with a tune that was cut off; {len(begun)} trials are there")
    ended = list(begun)

    def keep(trial: OptionTrial) -> None:
        ended.append(trial)
        book.save(replace(_known(book, bench.facts), begun=tuple(ended), begun_with=with_what))

    return bench.laboratory.tune(case, options, invocations=invocations, finished=begun, on_trial=keep)


def bias(settings: Settings, serial: str, *, invocations: int, wait_s: float, min_secs: float) -> CommandResult:
    """Measure what running as an app, from the shell, and from the shell as the top app cost on a phone."""
    tools = tuple(own.name for own in programs() if own.is_benchmark_model)
    matrix = Matrix(delegates=(USUAL_DELEGATE,), tools=tools, modes=tuple(ProcessMode))
    with _bench(settings, serial, matrix, wait_s=wait_s, min_secs=min_secs) as bench:
        modes = bench.laboratory.bias(bench.cases, invocations=invocations)
        measured = {item.mode for item in modes}
        modes += tuple(
            ModeRatio(mode=mode, ratio=None, low=None, high=None, reason=reason)
            for mode, reason in bench.skipped.items()
            if mode not in measured
        )
        book = bench.farm.experiments
        found = replace(_known(book, bench.facts), biased_at=bench.farm.clock.now(), modes=modes)
        path = book.save(found)
    rows = [(item.mode.value, _ratio(item.ratio), _span(item.low, item.high), item.reason) for item in modes]
    lines = [
        f"{serial}{_virtual(bench.facts)}: latency as a share of the mode shell",
        table(("mode", "ratio", "95 % interval", "why none"), rows, right=(1, 2)),
        f"kept in {path}",
    ]
    return CommandResult(text="\n".join(lines), data={"file": path, **_data(found)})


def audit(settings: Settings, serial: str) -> CommandResult:
    """Compare a phone with what it was before the first change that isn't undone; say what is left to undo."""
    with Farm(settings) as farm:
        ((device, facts),) = farm.open_devices(DeviceSelection(serials=(serial,))).devices
        conditioner = farm.conditioner
        with farm.lease.acquire(facts.serial):
            pending = conditioner.pending(device)
            found = conditioner.audit(device)
    left = len(pending) + len(found)
    lines = [f"{serial}{_virtual(facts)}: {'as it was' if not left else 'not as it was'}"]
    lines += [f"  still to be undone: {one_line(item)}" for item in pending]
    lines += [f"  {one_line(item.text)}" for item in found]
    if pending:
        lines.append(f"'benchfarm device restore {serial}' puts it back")
    data = {"serial": serial, "clean": not left, "pending": pending, "differences": found}
    return CommandResult(text="\n".join(lines), data=data, exit_code=int(bool(left)))


@contextmanager
def _bench(settings: Settings, serial: str, matrix: Matrix, *, wait_s: float, min_secs: float) -> Iterator[_Bench]:
    """Open a phone and place nothing yet; whatever happens, it is put back as it was."""
    model_path = sample_models()[0]
    plan = Plan(
        name="experiments",
        models=(PlanModel(name=model_path.stem, path=model_path),),
        matrix=matrix,
        devices=DeviceSelection(serials=(serial,)),
        settings=RunSettings(num_runs=10, min_secs=min_secs, max_secs=30.0, warmup_min_secs=0.2),
        limits=FitLimits(wait_s=wait_s),
    )
    with farm_telling(settings) as farm:
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


def _trial_row(trial: OptionTrial) -> tuple[str, ...]:
    p_value = "" if trial.p_value is None else f"{trial.p_value:.3f}"
    return (
        " + ".join(trial.options) + (" once more" if trial.is_confirmation else ""),
        _ratio(trial.spread_ratio),
        _span(trial.spread_low, trial.spread_high),
        p_value,
        _ratio(trial.latency_ratio),
        trial.reason.partition(":")[0] if trial.spread_ratio is not None else trial.reason,
    )


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _span(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{low:.2f} to {high:.2f}"


def _virtual(facts: DeviceFacts) -> str:
    return " (virtual)" if facts.is_virtual else ""


def _data(found: PhoneExperiments) -> dict[str, object]:
    return {
        "serial": found.serial,
        "is_virtual": found.is_virtual,
        "options": found.options,
        "trials": found.trials,
        "modes": found.modes,
    }
