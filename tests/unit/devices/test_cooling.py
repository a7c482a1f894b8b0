"""When a phone will be fit, on cooling curves whose truth is known; and waiting for it on a clock
of our own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pytest

from orchestrator.clock import Deadline
from orchestrator.devices.fitness import Readings, unfit, wait_until_fit
from orchestrator.ports import Fitness
from orchestrator.records.device import DeviceState
from orchestrator.records.plan import FitLimits
from tests.samples.manual_clock import ManualClock


def newton(start_c: float, rest_c: float, tau_s: float) -> Callable[[float], float]:
    return lambda at_s: rest_c + (start_c - rest_c) * math.exp(-at_s / tau_s)


def readings(curve: Callable[[float], float], times: list[float], limit: float = 40.0) -> Readings:
    found = Readings(limit=limit)
    for at_s in times:
        found.add(at_s, round(curve(at_s), 1))
    return found


def test_the_time_left_is_estimated_at_the_latest_rate() -> None:
    curve, rate = newton(46.0, 28.0, 200.0), 15.0 / 200.0
    at_s = 200.0 * math.log(18.0 / 15.0)
    left_s = readings(curve, [at_s - 9.0, at_s - 6.0, at_s - 3.0, at_s]).remaining_s()
    assert left_s == pytest.approx(3.0 / rate, rel=0.3)
    assert readings(curve, [0.0]).remaining_s() is None
    assert readings(lambda at_s: 45.0, [0.0, 5.0, 9.0, 12.0]).remaining_s() == math.inf


def test_a_wait_that_can_be_met_is_never_abandoned() -> None:
    for tau_s in (40.0, 120.0, 400.0):
        for start_c in (41.0, 44.0, 50.0):
            curve = newton(start_c, 28.0, tau_s)
            truth_s = tau_s * math.log((start_c - 28.0) / 12.0)
            deadline_s = truth_s + 10.0
            found = Readings(limit=40.0)
            at_s = 0.0
            while at_s < truth_s:
                found.add(at_s, round(curve(at_s), 1))
                assert not found.is_hopeless(deadline_s - at_s), (tau_s, start_c, at_s)
                at_s += 7.0


class Phone:
    """States of a phone that cools on a clock of ours."""

    def __init__(
        self, curve: Callable[[float], float], *, percent: int = 80, plugged: str = "usb"
    ) -> None:
        self.clock = ManualClock()
        self._begun_s = self.clock.monotonic_s()
        self._curve = curve
        self._percent, self._plugged = percent, plugged
        self.looks = 0

    def state(self) -> DeviceState:
        self.looks += 1
        heat_c = self._curve(self.clock.monotonic_s() - self._begun_s)
        return DeviceState(
            at=self.clock.now(),
            battery_heat_c=round(heat_c, 1),
            battery_percent=self._percent,
            plugged=self._plugged,
        )


def wait(phone: Phone, limits: FitLimits, on_wait: Callable[[str], None] | None = None) -> Fitness:
    judge = partial(unfit, limits=limits, zone_limits={})
    return wait_until_fit(phone.state, judge, Deadline(limits.wait, phone.clock), on_wait=on_wait)


def test_a_phone_is_looked_at_when_it_may_be_fit_and_seldom_before() -> None:
    phone = Phone(newton(47.0, 28.0, 300.0))
    truth_s = 300.0 * math.log(19.0 / 12.0)
    told: list[str] = []
    fitness = wait(phone, FitLimits(wait=600.0), on_wait=told.append)
    assert fitness.reason == ""
    # A tenth of a degree is half of one too early: 1.3 s at this rate.
    assert truth_s - 1.3 <= fitness.waited_s <= truth_s + 30.0
    assert phone.looks <= 16
    assert len(told) == 1
    assert "battery at 47.0 C" in told[0] or "fit in about" in told[0]


def test_a_phone_that_can_not_cool_in_time_is_abandoned_early_with_the_reason() -> None:
    phone = Phone(newton(60.0, 28.0, 2000.0))
    fitness = wait(phone, FitLimits(wait=300.0))
    assert fitness.code == "battery-hot"
    assert "measured rate" in fitness.reason
    assert fitness.waited_s < 120.0


def test_a_low_battery_that_is_not_charged_is_not_waited_for() -> None:
    phone = Phone(lambda at_s: 30.0, percent=3, plugged="none")
    fitness = wait(phone, FitLimits(wait=300.0))
    assert (fitness.code, fitness.waited_s) == ("battery-low", 0.0)
    assert "isn't being charged" in fitness.reason
