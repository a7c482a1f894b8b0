"""Waiting for a phone that cools, on a clock of our own."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

from orchestrator.clock import Deadline
from orchestrator.devices.probes import unfit_reasons, wait_until_fit
from orchestrator.ports import Fitness
from orchestrator.records.device import DeviceState
from orchestrator.records.plan import FitLimits
from tests.samples.manual_clock import ManualClock


def newton(start_c: float, rest_c: float, tau_s: float) -> Callable[[float], float]:
    return lambda at_s: rest_c + (start_c - rest_c) * math.exp(-at_s / tau_s)


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


def wait(phone: Phone, limits: FitLimits, told: list[str]) -> Fitness:
    judge = partial(unfit_reasons, limits=limits, zone_limits={})
    deadline = Deadline(limits.wait, phone.clock)
    return wait_until_fit(phone.state, judge, deadline, on_wait=told.append)


def test_a_phone_is_looked_at_when_it_may_be_fit_and_seldom_before() -> None:
    phone = Phone(newton(47.0, 28.0, 300.0))
    truth_s = 300.0 * math.log(19.0 / 12.0)
    told: list[str] = []
    fitness = wait(phone, FitLimits(wait=600.0), told)
    assert fitness.reason == ""
    # A tenth of a degree is half of one too early: 1.3 s at this rate.
    assert truth_s - 1.3 <= fitness.waited_s <= truth_s + 20.0
    assert phone.looks <= 16
    assert told == ["battery at 47.0 C, at most 40 C allowed"]


def test_a_phone_that_does_not_cool_in_time_is_unfit_with_the_reason() -> None:
    fitness = wait(Phone(newton(60.0, 28.0, 2000.0)), FitLimits(wait=300.0), [])
    assert (fitness.code, fitness.waited_s) == ("battery-hot", 300.0)
    assert "at most 40 C" in fitness.reason


def test_a_low_battery_that_is_not_charged_is_not_waited_for() -> None:
    fitness = wait(Phone(lambda at_s: 30.0, percent=3, plugged="none"), FitLimits(wait=300.0), [])
    assert (fitness.code, fitness.waited_s) == ("battery-low", 0.0)
    assert "isn't being charged" in fitness.reason
