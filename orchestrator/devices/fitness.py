"""Whether a phone is fit to be measured, and waiting until it is: by its measured cooling, not by
fixed sleeps.
"""

from __future__ import annotations

import math
import re
import statistics
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from orchestrator.clock import Deadline
from orchestrator.ports import Fitness
from orchestrator.records.device import DeviceState
from orchestrator.records.plan import FitLimits
from orchestrator.units import format_duration

#: A rate is that of the last so many readings; with fewer, no phone is given up.
_READINGS_MIN: Final = 4
_READINGS_KEPT: Final = 40
#: A battery goes on getting warmer for a while after the load has ended.
_SURE_AFTER_S: Final = 60.0


@dataclass(slots=True)
class Readings:
    """The readings of one quantity that is to come down (or, with ``sign`` -1, up) to its limit."""

    limit: float
    sign: float = 1.0
    #: (seconds, how far from the limit), oldest first.
    points: list[tuple[float, float]] = field(default_factory=list)

    def add(self, at_s: float, value: float) -> None:
        """Take a reading in."""
        self.points.append((at_s, self.sign * (value - self.limit)))
        del self.points[:-_READINGS_KEPT]

    def remaining_s(self) -> float | None:
        """Return the seconds left until the limit is met at the latest rate, infinity for never,
        None while unknown.
        """
        points, span_s = self._until_now()
        if len(points) < 2 or span_s <= 0:
            return None
        slope, level = _line(points[-_READINGS_MIN:])
        return math.inf if slope >= 0 else max(0.0, -level / slope)

    def is_hopeless(self, left_s: float) -> bool:
        """Whether the limit can't be met in the time left.

        Judged by a straight line, which is hopeful: cooling only gets slower. A quantity that
        doesn't fall at all is given a minute.
        """
        points, span_s = self._until_now()
        if len(points) < _READINGS_MIN or points[-1][1] <= 0 or span_s <= 0:
            return False
        # The latest readings alone, so that a slow beginning doesn't count against it.
        slope, _ = _line(points[-max(_READINGS_MIN, len(points) // 2) :])
        if slope >= 0:
            return span_s >= _SURE_AFTER_S
        return span_s >= _SURE_AFTER_S / 3 and points[-1][1] / -slope > 1.5 * left_s

    def _until_now(self) -> tuple[list[tuple[float, float]], float]:
        """Return the readings with the last one's time as 0, and the seconds that they span."""
        now_s = self.points[-1][0] if self.points else 0.0
        points = [(at_s - now_s, above) for at_s, above in self.points]
        return points, -points[0][0] if points else 0.0


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return (slope, level at time 0) by least squares; slope 0 when all readings are of one
    moment.
    """
    times, values = zip(*points, strict=True)
    if min(times) == max(times):
        return 0.0, values[-1]
    slope, level = statistics.linear_regression(times, values)
    return slope, level


_SHORTEST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 30.0
_GROWTH: Final = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfit:
    """One thing that a phone isn't fit by."""

    #: Documented code.
    code: str
    text: str
    #: What is read, its value and its limit: all but a low battery have to come down to it.
    quantity: str
    value: float
    limit: float


def unfit(state: DeviceState, limits: FitLimits, zone_limits: Mapping[str, float]) -> list[Unfit]:
    """Return what a device in this state is not fit by; what is unknown is no reason."""
    percent, heat_c, status = state.battery_percent, state.battery_heat_c, state.thermal_status
    least, most_c, most = limits.battery_min, limits.battery_heat_max, limits.thermal_status_max
    rows: list[tuple[str, str, float | None, float, str]] = [
        ("battery-low", "battery", percent, least, f"battery at {percent} %, at least {least:g} %"),
        (
            "battery-hot",
            "battery heat",
            heat_c,
            most_c,
            f"battery at {heat_c or 0:.1f} C, at most {most_c:g} C",
        ),
        (
            "thermal-status",
            "thermal status",
            status,
            most,
            f"thermal status {status}, at most {most}",
        ),
    ]
    rows += [
        ("zone-hot", zone, zone_c, limit_c, f"{zone} at {zone_c:.1f} C, at most {limit_c:g} C")
        for pattern, limit_c in zone_limits.items()
        for zone, zone_c in state.heat_c.items()
        if re.search(pattern, zone)
    ]
    return [
        Unfit(code=code, text=f"{text} wanted", quantity=quantity, value=value, limit=limit)
        for code, quantity, value, limit, text in rows
        if value is not None and (value < limit if code == "battery-low" else value > limit)
    ]


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
    on_wait: Callable[[str], None] | None = None,
    cancelled: threading.Event | None = None,
) -> Fitness:
    """Read the state until it is fit by ``judge`` (`unfit`), the deadline has passed, or it is clear
    that it can't be met.
    """
    known_readings: dict[str, Readings] = {}
    pause_s = _SHORTEST_PAUSE_S
    while True:
        state = read()
        faults, waited_s = judge(state), deadline.elapsed_s
        readings: list[Readings] = []
        for item in faults:
            fresh = Readings(limit=item.limit, sign=-1.0 if item.code == "battery-low" else 1.0)
            known = known_readings.setdefault(item.quantity, fresh)
            known.add(waited_s, item.value)
            if item.code != "thermal-status":  # it has steps, and no estimate
                readings.append(known)
        why, code = "; ".join(item.text for item in faults), faults[0].code if faults else ""
        hopeless = _hopeless(state, code, readings, deadline.remaining_s)
        if not faults or deadline.expired or hopeless:
            reason = f"{why} ({hopeless})" if faults and hopeless else why
            return Fitness(reason=reason, code=code, waited_s=waited_s, state=state)
        estimates = [left_s for one in readings if (left_s := one.remaining_s()) is not None]
        left_s = max(estimates, default=None)
        pause_s = _pause_s(left_s, pause_s)
        if on_wait is not None and (left_s is not None or not readings):
            # Told once, and only when there is something to tell beside the reason.
            on_wait(why + _estimate(left_s))
            on_wait = None
        if deadline.wait(pause_s, cancelled):
            reason = f"cancelled while waiting: {why}"
            return Fitness(reason=reason, code="cancelled", waited_s=waited_s, state=state)


def _hopeless(state: DeviceState, code: str, readings: Sequence[Readings], left_s: float) -> str:
    """Return why waiting is in vain, empty when it may help."""
    if code == "battery-low" and state.plugged == "none":
        return "and it isn't being charged"
    if any(one.is_hopeless(left_s) for one in readings):
        return f"which at its measured rate takes longer than the {format_duration(left_s)} left"
    return ""


def _pause_s(left_s: float | None, last_pause_s: float) -> float:
    if left_s is None or left_s > 10 * _LONGEST_PAUSE_S:
        return min(_LONGEST_PAUSE_S, last_pause_s * _GROWTH)
    return min(_LONGEST_PAUSE_S, max(_SHORTEST_PAUSE_S, left_s))


def _estimate(left_s: float | None) -> str:
    if left_s is None:
        return ""
    if left_s > 24 * 3600:
        return "; it isn't getting better yet"
    return f"; at its measured rate fit in about {format_duration(left_s)}"
