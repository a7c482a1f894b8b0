"""What the device's state before, during and after an invocation says against its number. Pure.

Clocks are judged by what took them: a limit that fell while the run went on, a cooling device of
the CPU, GPU or NPU that was at work, a thermal status, or cores that worked as hard in the second
half and were clocked lower. A limit that was low all along, with nothing that says it was heat, is
told and weighs nothing: some phones ship so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from orchestrator.analysis.findings import finding
from orchestrator.analysis.grading import is_held
from orchestrator.records.case import Case
from orchestrator.records.device import DeviceKind, DeviceState
from orchestrator.records.plan import Screen
from orchestrator.records.run import RunConditions, RunSamples, Sample
from orchestrator.records.verdict import Finding, Severity

#: A clock limit that fell below this share of what it was before the run is throttling.
CLOCK_LIMIT_MIN: Final = 0.98
#: A cluster that was seen at more than this share of its highest clock was kept busy by the run.
WORKING_SHARE: Final = 0.6
#: The mean clock of a busy stretch against that of an earlier one, below which the cluster was
#: slowed down.
FALL_MAX: Final = 0.93
#: Cores that other work may keep busy: on a computer right before a run, on a phone during it. An
#: idle phone with its screen on uses 0.1 to 0.3 of a core itself.
FOREIGN_CORES_MAX: Final = 0.3
FOREIGN_CORES_MAX_PHONE: Final = 0.5
#: The kernel tells the time of boot in whole seconds, so that it may come out one second apart.
CLOCK_JUMP_S: Final = 3.0
#: PowerManager's thermal status "light".
_LIGHT: Final = 1


def state_findings(
    before: DeviceState | None,
    after: DeviceState | None,
    *,
    case: Case,
    kind: DeviceKind,
    looks: RunSamples,
    conditions: RunConditions,
    is_median: bool,
    screen: Screen = Screen.ON,
) -> Iterator[Finding]:
    """Yield what the states and the looks say; what is unknown is no finding.

    ``is_median``: the run's figure is a median, which one inference that is measured wrongly
    doesn't move. ``screen``: what the plan asks of it, which is no fault.
    """
    if before is not None and after is not None:
        if before.boot_id and after.boot_id and before.boot_id != after.boot_id:
            evidence = f"boot id {before.boot_id}, then {after.boot_id}"
            yield finding("rebooted", "the phone rebooted during the run", evidence)
            return
        yield from _heat_findings(before, after, looks)
    jump_s = conditions.clock_jump_s
    if jump_s is not None and abs(jump_s) >= CLOCK_JUMP_S:
        message = f"the phone's clock was moved by {jump_s:+.0f} s during the run; programs measure with it"
        yield finding(
            "clock-jumped", message, severity=Severity.WARNING if is_median else Severity.ERROR
        )
    yield from _clock_findings(case, before, after, looks, conditions)
    yield from _load_findings(before, conditions, kind)
    if before is not None and after is not None:
        yield from _screen_findings(before, after, case, screen)
        yield from _battery_findings(before, after)


def _heat_findings(before: DeviceState, after: DeviceState, looks: RunSamples) -> Iterator[Finding]:
    status = max(before.thermal_status or 0, after.thermal_status or 0)
    # Light is Android's word for a warm skin. Where limits and cooling devices were read, they say
    # whether clocks were taken.
    is_told_by_clocks = status == _LIGHT and bool(before.clock_limit_khz) and bool(after.cooling)
    if status > 0 and not is_told_by_clocks:
        yield finding("throttled", f"thermal status {status}", _heat_text(after))
    cooling = {
        name: max(steps, before.cooling.get(name, 0)) for name, steps in after.cooling.items()
    }
    if at_work := [f"{name} by {steps}" for name, steps in cooling.items() if steps > 0]:
        yield finding("throttled", "clocks were held down because of heat", ", ".join(at_work))
    moments: tuple[Sample | DeviceState, ...] = (*looks.samples, after)
    lowest = {
        cpu: min(limits)
        for cpu in before.clock_limit_khz
        if (limits := [m.clock_limit_khz[cpu] for m in moments if cpu in m.clock_limit_khz])
    }
    for cpu, limit in lowest.items():
        earlier = before.clock_limit_khz[cpu]
        if limit < CLOCK_LIMIT_MIN * earlier:
            evidence = f"cpu{cpu}: {earlier // 1000} MHz, then {limit // 1000} MHz"
            yield finding("throttled", "a clock limit fell during the run", evidence)
    gpu = [m.gpu_limit_khz for m in moments if m.gpu_limit_khz]
    if gpu and before.gpu_limit_khz and min(gpu) < CLOCK_LIMIT_MIN * before.gpu_limit_khz:
        evidence = f"GPU: {before.gpu_limit_khz // 1000} MHz, then {min(gpu) // 1000} MHz"
        yield finding("throttled", "the GPU's clock limit fell during the run", evidence)


def _clock_findings(
    case: Case,
    before: DeviceState | None,
    after: DeviceState | None,
    looks: RunSamples,
    conditions: RunConditions,
) -> Iterator[Finding]:
    capped = [
        f"cpu{one.cpu} at {one.limit_high:.0%}"
        for one in conditions.clusters
        if one.limit_high is not None and one.limit_high < CLOCK_LIMIT_MIN
    ]
    if capped and not is_held(before, after, looks):
        message = "clocks were limited all along, and nothing says whether by heat"
        yield finding("clocks-capped", message, ", ".join(capped))
    if not case.delegate.is_cpu:
        return
    working = [one for one in conditions.clusters if (one.busiest_share or 0.0) >= WORKING_SHARE]
    # The scheduler may move threads between clusters; from the fastest it doesn't while there is
    # work for it.
    fastest = max(
        working, key=lambda one: (one.effective_mhz or 0.0) / (one.share or 1.0), default=None
    )
    if fastest is not None and fastest.fall is not None and fastest.fall < FALL_MAX:
        evidence = f"cpu{fastest.cpu}: to {fastest.fall:.0%} of the clock that it had before"
        yield finding("throttled", "busy cores were clocked lower as the run went on", evidence)


def _load_findings(
    before: DeviceState | None, conditions: RunConditions, kind: DeviceKind
) -> Iterator[Finding]:
    if (
        before is not None
        and before.busy_cores is not None
        and before.busy_cores > FOREIGN_CORES_MAX
    ):
        message = f"{before.busy_cores:.2f} cores were busy before the run"
        yield finding("foreign-load", message)
    elif kind is DeviceKind.ANDROID and (conditions.foreign_cores or 0.0) > FOREIGN_CORES_MAX_PHONE:
        message = (
            f"other work kept at least {conditions.foreign_cores:.2f} cores busy during the run"
        )
        own = (
            ""
            if conditions.own_cores is None
            else f"the run itself used {conditions.own_cores:.2f} cores"
        )
        yield finding("foreign-load", message, own)


def _screen_findings(
    before: DeviceState, after: DeviceState, case: Case, screen: Screen
) -> Iterator[Finding]:
    if after.screen_on is False and screen is Screen.ON:
        yield finding("screen-off", "the screen was off at the run's end; phones slow down then")
    # The benchmark's app takes the screen itself.
    has_changed = before.foreground and after.foreground and before.foreground != after.foreground
    if has_changed and not case.tool.is_app:
        evidence = f"{before.foreground}, then {after.foreground}"
        yield finding(
            "foreground-changed", "another app came to the screen during the run", evidence
        )


def _battery_findings(before: DeviceState, after: DeviceState) -> Iterator[Finding]:
    if after.battery_percent is not None and after.battery_percent < 15:
        yield finding("battery-low", f"{after.battery_percent} % left")
    if before.plugged and after.plugged and before.plugged != after.plugged:
        evidence = f"{before.plugged}, then {after.plugged}"
        yield finding("charging-changed", "the charger came or went during the run", evidence)
    elif after.plugged not in {"", "none"} and (after.battery_percent or 0) < (
        before.battery_percent or 0
    ):
        evidence = f"{before.battery_percent} %, then {after.battery_percent} %"
        yield finding(
            "battery-draining", "the battery was emptied though the phone was plugged in", evidence
        )


def _heat_text(state: DeviceState) -> str:
    hottest = sorted(state.heat_c.items(), key=lambda item: -item[1])[:3]
    return ", ".join(f"{name} {heat:.1f} C" for name, heat in hottest)
