"""Whether a phone is fit to be measured, and waiting until it is: by its measured cooling, not by fixed sleeps."""

from __future__ import annotations

import math
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from orchestrator.clock import Clock, Deadline
from orchestrator.ports import Fitness
from orchestrator.records.device import DeviceState
from orchestrator.records.plan import FitLimits
from orchestrator.units import format_duration

#: A fit of three numbers takes more readings than three.
_READINGS_MIN: Final = 4
_READINGS_KEPT: Final = 40
#: Time constants of a phone's body, in seconds, among which the best fitting one is taken.
_TAUS_S: Final = tuple(15.0 * 1.3**step for step in range(20))
#: A battery goes on getting warmer for a while after the load has ended.
_SURE_AFTER_S: Final = 60.0


@dataclass(slots=True)
class Readings:
    """The readings of one quantity that is to come down (or, with ``sign`` -1, up) to its limit."""

    limit: float
    sign: float = 1.0
    #: (seconds, value), oldest first.
    points: list[tuple[float, float]] = field(default_factory=list)

    def add(self, at_s: float, value: float) -> None:
        """Take a reading in."""
        self.points.append((at_s, value))
        del self.points[:-_READINGS_KEPT]

    @property
    def span_s(self) -> float:
        """How long it has been read."""
        return self.points[-1][0] - self.points[0][0] if self.points else 0.0

    def remaining_s(self) -> float | None:
        """Return the seconds left until the limit is met, infinity for never, None while too little is known.

        An exponential (Newton's law of cooling) by least squares over a grid of time constants; a straight line while
        there are too few readings for one.
        """
        if len(self.points) < 2 or self.span_s <= 0:
            return None
        points = [(at_s - self.points[-1][0], self.sign * (value - self.limit)) for at_s, value in self.points]
        line = _line(points)
        if line is None:
            return None
        level, slope = line
        straight_s = math.inf if slope >= 0 else max(0.0, -level / slope)
        if len(points) < _READINGS_MIN:
            return straight_s
        curved_s = _curve(points)
        return straight_s if curved_s is None else max(straight_s, curved_s)

    def is_hopeless(self, left_s: float) -> bool:
        """Whether the limit can't be met in the time left.

        Judged by the straight line, which is the hopeful one: cooling only gets slower. A quantity that doesn't fall
        at all is given a minute.
        """
        if len(self.points) < _READINGS_MIN:
            return False
        points = [(at_s - self.points[-1][0], self.sign * (value - self.limit)) for at_s, value in self.points]
        # The latest readings alone, so that a slow beginning doesn't count against it.
        line = _line(points[-max(_READINGS_MIN, len(points) // 2) :])
        if line is None or points[-1][1] <= 0:
            return False
        if line[1] >= 0:
            return self.span_s >= _SURE_AFTER_S
        straight_s = points[-1][1] / -line[1]
        is_long = self.span_s >= _SURE_AFTER_S and len(points) >= 2 * _READINGS_MIN
        # Even the hopeful estimate takes a good part of the time, and the curve comes to rest above the limit.
        if is_long and straight_s > left_s / 3 and _curve(points) == math.inf:
            return True
        return self.span_s >= _SURE_AFTER_S / 3 and straight_s > 1.5 * left_s


def _line(points: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """Return (level at time 0, slope) by least squares; None when all readings are of one moment."""
    mean_t = sum(t for t, _ in points) / len(points)
    mean_v = sum(v for _, v in points) / len(points)
    spread = sum((t - mean_t) ** 2 for t, _ in points)
    if spread <= 0:
        return None
    slope = sum((t - mean_t) * (v - mean_v) for t, v in points) / spread
    return mean_v - slope * mean_t, slope


def _curve(points: Sequence[tuple[float, float]]) -> float | None:
    """Return the seconds until an exponential through the points is at 0, None when it doesn't fall to it sensibly."""
    best: tuple[float, float] | None = None
    for tau_s in _TAUS_S:
        line = _line([(math.exp(-t / tau_s), v) for t, v in points])
        if line is None or line[1] <= 0:
            continue
        rest, height = line
        error = sum((v - rest - height * math.exp(-t / tau_s)) ** 2 for t, v in points)
        left_s = math.inf if rest >= 0 else max(0.0, tau_s * math.log(height / -rest))
        if best is None or error < best[0]:
            best = (error, left_s)
    return best[1] if best is not None else None


_SHORTEST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 30.0
_GROWTH: Final = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfit:
    """One thing that a phone isn't fit by."""

    #: Documented code.
    code: str
    text: str
    #: What is read, its value and its limit; ``rises`` when it has to come up to the limit.
    quantity: str
    value: float
    limit: float
    rises: bool = False


def unfit(state: DeviceState, limits: FitLimits, zone_limits: Mapping[str, float]) -> list[Unfit]:
    """Return what a device in this state is not fit by; what is unknown is no reason."""
    found: list[Unfit] = []

    def check(code: str, quantity: str, value: float | None, limit: float, words: str, *, rises: bool = False) -> None:
        if value is None or (value >= limit if rises else value <= limit):
            return
        text = f"{words} wanted"
        found.append(Unfit(code=code, text=text, quantity=quantity, value=value, limit=limit, rises=rises))

    percent, heat_c = state.battery_percent, state.battery_heat_c
    least, most_c = limits.battery_percent_min, limits.battery_heat_c_max
    check("battery-low", "battery", percent, least, f"battery at {percent} %, at least {least} %", rises=True)
    if heat_c is not None:
        check("battery-hot", "battery heat", heat_c, most_c, f"battery at {heat_c:.1f} C, at most {most_c:g} C")
    status = limits.thermal_status_max
    words = f"thermal status {state.thermal_status}, at most {status}"
    check("thermal-status", "thermal status", state.thermal_status, status, words)
    for pattern, limit_c in zone_limits.items():
        for zone, zone_c in state.heat_c.items():
            if re.search(pattern, zone):
                check("zone-hot", zone, zone_c, limit_c, f"{zone} at {zone_c:.1f} C, at most {limit_c:g} C")
    return found


def unfit_reasons(state: DeviceState, limits: FitLimits, zone_limits: Mapping[str, float]) -> list[str]:
    """Return why a device in this state is not fit, one reason each; what is unknown is no reason."""
    return [item.text for item in unfit(state, limits, zone_limits)]


#: What a battery says of itself before it swells or burns; heat and cold are waited for.
_DAMAGED: Final = frozenset({"dead", "over voltage", "failing"})
#: Far above what measuring does to a battery, and where Android switches a phone off.
DANGER_HEAT_C: Final = 60.0


def danger(state: DeviceState) -> str:
    """Return why a device in this state must not go on unseen, empty for one that may."""
    if state.battery_health in _DAMAGED:
        return f"its battery says that it is {state.battery_health}"
    if state.battery_heat_c is not None and state.battery_heat_c >= DANGER_HEAT_C:
        return f"its battery is at {state.battery_heat_c:.1f} C, where {DANGER_HEAT_C:g} C are dangerous"
    return ""


class FitWait:
    """One wait until a device is fit; it is looked at when its own cooling says that it may be."""

    def __init__(self, limits: FitLimits, zone_limits: Mapping[str, float], clock: Clock) -> None:
        self._limits = limits
        self._zone_limits = zone_limits
        self._clock = clock
        self._readings: dict[str, Readings] = {}

    def until_fit(
        self,
        read: Callable[[], DeviceState],
        *,
        recent: DeviceState | None = None,
        on_wait: Callable[[str], None] | None = None,
        cancelled: threading.Event | None = None,
    ) -> Fitness:
        """Read the state until it is fit, the deadline has passed, or it is clear that it can't be met."""
        deadline = Deadline(self._limits.wait_s, self._clock)
        begun_s = self._clock.monotonic_s()
        pause_s = _SHORTEST_PAUSE_S
        while True:
            state, recent = recent or read(), None
            faults = unfit(state, self._limits, self._zone_limits)
            waited_s = self._clock.monotonic_s() - begun_s
            self._learn(faults, waited_s)
            why = "; ".join(item.text for item in faults)
            code = faults[0].code if faults else ""
            hopeless = self._hopeless(state, faults, deadline.remaining_s)
            if not faults or deadline.expired or hopeless:
                reason = f"{why} ({hopeless})" if faults and hopeless else why
                return Fitness(reason=reason, code=code, waited_s=waited_s, state=state)
            left_s = self._left_s(faults)
            pause_s = _pause_s(left_s, pause_s)
            if on_wait is not None and (left_s is not None or not self._measurable(faults)):
                # Told once, and only when there is something to tell beside the reason.
                on_wait(why + _estimate(left_s))
                on_wait = None
            if self._clock.wait(min(pause_s, deadline.remaining_s), cancelled):
                reason = f"cancelled while waiting: {why}"
                return Fitness(reason=reason, code="cancelled", waited_s=waited_s, state=state)

    def _learn(self, faults: Sequence[Unfit], at_s: float) -> None:
        for item in faults:
            readings = self._readings.setdefault(
                item.quantity, Readings(limit=item.limit, sign=-1.0 if item.rises else 1.0)
            )
            readings.add(at_s, item.value)

    def _measurable(self, faults: Sequence[Unfit]) -> bool:
        return any(item.code != "thermal-status" for item in faults)

    def _left_s(self, faults: Sequence[Unfit]) -> float | None:
        """Return the longest of the quantities' estimates; a status has steps and none."""
        estimates = [self._readings[item.quantity].remaining_s() for item in faults if item.code != "thermal-status"]
        known = [left_s for left_s in estimates if left_s is not None]
        return max(known) if known else None

    def _hopeless(self, state: DeviceState, faults: Sequence[Unfit], left_s: float) -> str:
        """Return why waiting is in vain, empty when it may help."""
        for item in faults:
            if item.code == "battery-low" and state.plugged == "none":
                return "and it isn't being charged"
            if item.code != "thermal-status" and self._readings[item.quantity].is_hopeless(left_s):
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
