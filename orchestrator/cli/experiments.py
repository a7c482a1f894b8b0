"""``benchfarm device quiet``, ``bias`` and ``audit``: what experiments on one phone found, and what is left changed."""

from __future__ import annotations

from typing import Annotated

from orchestrator.app import experiments
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.frame import Listed, arg, command, opt
from orchestrator.cli.progress import farm_telling
from orchestrator.cli.result import CommandResult, table
from orchestrator.records.tuning import OptionTrial, PhoneExperiments
from orchestrator.report.escapes import one_line

_Serial = Annotated[str, arg("Serial number of the phone.")]
_Invocations = Annotated[int, opt("--invocations -n", "Processes per side of a trial.", min=4, max=1000)]
_Wait = Annotated[float, opt("--wait", "Seconds to wait until the phone is ready to measure.", min=0.0)]
_MinSecs = Annotated[float, opt("--min-secs", "Seconds per process.", min=0.05)]


@command("device quiet")
def quiet(
    settings: Settings,
    serial: _Serial,
    options: Annotated[Listed, opt("--option", "Try only these: airplane, fixed_performance ... (a,b).")] = (),
    *,
    invocations: _Invocations = 8,
    wait_s: _Wait = 600.0,
    min_secs: _MinSecs = 0.5,
) -> CommandResult:
    """Find and keep the steps that reduce a phone's noise.

    Example: benchfarm device quiet SERIAL

    Measures each step against none. Later runs on the phone use the steps that helped.
    """
    with farm_telling(settings) as farm:
        found, path = experiments.find_quiet(
            farm, serial, options, invocations=invocations, wait_s=wait_s, min_secs=min_secs
        )
    rows = [_trial_row(trial) for trial in found.trials]
    on = [name for name, is_on in found.options.items() if is_on]
    lines = [
        f"{serial}{_virtual(found.is_virtual)}",
        table(("option", "spread", "95 % interval", "p", "latency", "what follows"), rows, right=(1, 2, 3, 4)),
        f"kept: {', '.join(on) or 'nothing; the phone is measured as it is'}",
        f"plans that leave these open take them from {path}",
    ]
    return CommandResult(text="\n".join(lines), data={"file": path, **_data(found)})


@command("device bias")
def bias(
    settings: Settings,
    serial: _Serial,
    *,
    invocations: _Invocations = 8,
    wait_s: _Wait = 600.0,
    min_secs: _MinSecs = 0.5,
) -> CommandResult:
    """Compare foreground app and shell on one phone.

    Example: benchfarm device bias SERIAL
    """
    with farm_telling(settings) as farm:
        found, path = experiments.find_bias(farm, serial, invocations=invocations, wait_s=wait_s, min_secs=min_secs)
    rows = [(item.mode.value, _ratio(item.ratio), _span(item.low, item.high), item.reason) for item in found.modes]
    lines = [
        f"{serial}{_virtual(found.is_virtual)}: latency as a share of the mode shell",
        table(("mode", "ratio", "95 % interval", "why none"), rows, right=(1, 2)),
        f"kept in {path}",
    ]
    return CommandResult(text="\n".join(lines), data={"file": path, **_data(found)})


@command("device audit")
def audit(settings: Settings, serial: _Serial) -> CommandResult:
    """Compare a phone with its state before any change.

    Example: benchfarm device audit SERIAL

    Exit code 1 when something differs.
    """
    with Farm(settings) as farm:
        found = experiments.audit(farm, serial)
    state = "as it was" if found.is_clean else "not as it was"
    lines = [f"{serial}{_virtual(found.facts.is_virtual)}: {state}"]
    lines += [f"  still to be undone: {one_line(item)}" for item in found.pending]
    lines += [f"  {one_line(item.text)}" for item in found.differences]
    if found.pending:
        lines.append(f"restore it with 'benchfarm device restore {serial}'")
    data = {
        "serial": serial,
        "clean": found.is_clean,
        "pending": found.pending,
        "differences": found.differences,
    }
    return CommandResult(text="\n".join(lines), data=data, exit_code=int(not found.is_clean))


def _trial_row(trial: OptionTrial) -> tuple[str, ...]:
    p_value = "" if trial.p_value is None else f"{trial.p_value:.3f}"
    return (
        " + ".join(trial.options) + (" again" if trial.is_confirmation else ""),
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


def _virtual(is_virtual: bool) -> str:
    return " (virtual)" if is_virtual else ""


def _data(found: PhoneExperiments) -> dict[str, object]:
    return {
        "serial": found.serial,
        "is_virtual": found.is_virtual,
        "options": found.options,
        "trials": found.trials,
        "modes": found.modes,
    }
