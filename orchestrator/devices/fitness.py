"""Whether a phone is fit to be measured, and waiting until it is."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from orchestrator.clock import Deadline
from orchestrator.ports import Fitness
from orchestrator.records.device import DeviceState
from orchestrator.records.plan import FitLimits

#: Between two looks at a phone that isn't fit: soon at first, then seldom, as looking takes
#: processor time of a phone that is to cool.
_SHORTEST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 20.0
_GROWTH: Final = 1.5


class Unfit(NamedTuple):
    """One thing that a phone isn't fit by, with its documented code."""

    code: str
    text: str


def unfit(state: DeviceState, limits: FitLimits, zone_limits: Mapping[str, float]) -> list[Unfit]:
    """Return what a device in this state is not fit by; what is unknown is no reason."""
    percent, heat_c, status = state.battery_percent, state.battery_heat_c, state.thermal_status
    found: list[Unfit] = []
    if percent is not None and percent < limits.battery_min:
        text = f"battery at {percent} %, at least {limits.battery_min:g} % wanted"
        found.append(Unfit("battery-low", text))
    if heat_c is not None and heat_c > limits.battery_heat_max:
        text = f"battery at {heat_c:.1f} C, at most {limits.battery_heat_max:g} C wanted"
        found.append(Unfit("battery-hot", text))
    if status is not None and status > limits.thermal_status_max:
        text = f"thermal status {status}, at most {limits.thermal_status_max} wanted"
        found.append(Unfit("thermal-status", text))
    found += [
        Unfit("zone-hot", f"{zone} at {zone_c:.1f} C, at most {limit_c:g} C wanted")
        for pattern, limit_c in zone_limits.items()
        for zone, zone_c in state.heat_c.items()
        if re.search(pattern, zone) and zone_c > limit_c
    ]
    return found


#: What a battery says of itself before it swells or burns; heat and cold are waited for.
_DAMAGED: Final = frozenset({"dead", "over voltage", "failing"})
#: Far above what measuring does to a battery, and where Android switches a phone off.
DANGER_HEAT_C: Final = 60.0


def danger(state: DeviceState) -> str:
    """Return why a device in this state must not go on unattended, empty for one that may."""
    if state.battery_health in _DAMAGED:
        return f"its battery says that it is {state.battery_health}"
    if state.battery_heat_c is not None and state.battery_heat_c >= DANGER_HEAT_C:
        return f"its battery is at {state.battery_heat_c:.1f} C, where {DANGER_HEAT_C:g} C are dangerous"
    return ""


def wait_until_fit(
    read: Callable[[], DeviceState],
    judge: Callable[[DeviceState], list[Unfit]],
    deadline: Deadline,
    *,
    on_wait: Callable[[str], None],
    cancelled: threading.Event | None = None,
) -> Fitness:
    """Read the state until it is fit by ``judge`` (`unfit`) or the deadline has passed.

    A low battery that isn't charged isn't waited for. ``on_wait`` hears once what is waited for.
    """
    pause_s = _SHORTEST_PAUSE_S
    while True:
        state = read()
        faults, waited_s = judge(state), deadline.elapsed_s
        reason, code = "; ".join(item.text for item in faults), faults[0].code if faults else ""
        is_in_vain = code == "battery-low" and state.plugged == "none"
        if is_in_vain:
            reason += " (and it isn't being charged)"
        if not faults or is_in_vain or deadline.expired:
            return Fitness(reason=reason, code=code, waited_s=waited_s, state=state)
        if pause_s == _SHORTEST_PAUSE_S:
            on_wait(reason)
        if deadline.wait(pause_s, cancelled):
            reason = f"cancelled while waiting: {reason}"
            return Fitness(reason=reason, code="cancelled", waited_s=waited_s, state=state)
        pause_s = min(_LONGEST_PAUSE_S, pause_s * _GROWTH)
