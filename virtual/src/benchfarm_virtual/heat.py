"""How warm a virtual phone is: the chip (a small heat capacity), its body (a large one in the air),
the battery.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from benchfarm_virtual.profiles import ThermalSpec

#: Nearer than this to its resting temperature, an idle phone is taken to be there.
_AT_REST_C: Final = 0.2
#: The battery follows the body so many times as slowly as the body follows the air.
_BATTERY_TAU: Final = 1.6


class Heat:
    """The temperatures of one phone, which begin as those of an idle one."""

    def __init__(self, thermal: ThermalSpec) -> None:
        self._thermal = thermal
        self._idle_rise_c = thermal.idle_watts * thermal.soc_c_per_watt
        self._resting_c = thermal.ambient_c + thermal.idle_watts * thermal.body_c_per_watt
        #: How much hotter the chip is than the body.
        self.soc_rise_c = self._idle_rise_c
        self.body_c = self._resting_c
        self.battery_c = self._resting_c

    @property
    def soc_c(self) -> float:
        """The chip's temperature."""
        return self.body_c + self.soc_rise_c

    @property
    def is_near_rest(self) -> bool:
        """Whether it is as warm as an idle phone."""
        is_cool = abs(self.body_c - self._resting_c) < _AT_REST_C
        return is_cool and abs(self.soc_rise_c - self._idle_rise_c) < _AT_REST_C

    def move_on(self, watts: float, step_s: float) -> None:
        """Let this power heat it for a while."""
        thermal = self._thermal
        self.soc_rise_c = _toward(
            self.soc_rise_c, watts * thermal.soc_c_per_watt, step_s, thermal.soc_tau_s
        )
        target_c = thermal.ambient_c + watts * thermal.body_c_per_watt
        self.body_c = _toward(self.body_c, target_c, step_s, thermal.body_tau_s)
        self.battery_c = _toward(
            self.battery_c, self.body_c, step_s, _BATTERY_TAU * thermal.body_tau_s
        )

    def force(self, heat_c: float) -> None:
        """Make the chip that hot at once; body and battery are on the way there."""
        rest_c = self._thermal.ambient_c
        self.body_c = self.battery_c = rest_c + 0.5 * (heat_c - rest_c)
        self.soc_rise_c = heat_c - self.body_c


def _toward(value: float, target: float, step_s: float, tau_s: float) -> float:
    """Return a value after ``step_s`` seconds of exponential approach."""
    return target + (value - target) * math.exp(-step_s / tau_s)


#: The share of the highest clock that fixed performance mode keeps.
_FIXED_SHARE: Final = 0.72


class Clocks:
    """The clocks of a cluster of equal cores, or of the GPU (which has no ``cpus``)."""

    def __init__(
        self, available_khz: Sequence[int], governor: str, cpus: Sequence[int] = ()
    ) -> None:
        self.cpus = cpus
        self.available_khz = available_khz
        self._first_governor = governor
        #: Steps that a fault takes, whatever the heat is.
        self.held_steps = 0
        #: Whether there is work for it.
        self.busy = False
        self.reset()

    def reset(self) -> None:
        """Forget what was set and counted, as a boot does."""
        self.governor = self._first_governor
        self.min_khz, self.max_khz = self.available_khz[0], self.available_khz[-1]
        self.steps_down = 0
        #: Whether it is in fixed performance mode.
        self.fixed = False
        #: How long it had each clock.
        self.held_s: dict[int, float] = dict.fromkeys(self.available_khz, 0.0)

    def move(self, steps: int) -> None:
        """Let heat take so many steps, or give them back."""
        self.steps_down = max(0, min(len(self.available_khz) - 1, self.steps_down + steps))

    @property
    def cooling_steps(self) -> int:
        """Clock steps that heat takes now, whatever a user has set."""
        return max(self.steps_down, self.held_steps)

    @property
    def limit_khz(self) -> int:
        """The highest clock that it may have now."""
        available = self.available_khz
        top = available[max(0, len(available) - 1 - self.cooling_steps)]
        if self.fixed:
            top = min(top, next_lower(available, int(available[-1] * _FIXED_SHARE)))
        return max(available[0], min(top, self.max_khz))

    @property
    def share(self) -> float:
        """Its clock under load as a share of its highest."""
        return self._khz(busy=True) / self.available_khz[-1]

    @property
    def current_khz(self) -> int:
        """Its clock now."""
        return self._khz(busy=self.busy)

    def _khz(self, *, busy: bool) -> int:
        limit = self.limit_khz
        is_fast = busy or self.fixed or self.governor == "performance"
        return limit if is_fast else min(self.min_khz, limit)


def next_lower(available: Sequence[int], khz: int) -> int:
    """Return the clock itself if there is such a one, else the next lower; the lowest when there is
    none.
    """
    return max((f for f in available if f <= khz), default=available[0])
