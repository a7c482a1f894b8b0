"""How warm a virtual phone is: the chip (a small heat capacity), its body (a large one in the air), the battery."""

from __future__ import annotations

import math
from typing import Final

from benchfarm_lab.profiles import ThermalSpec

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
        self.soc_rise_c = _toward(self.soc_rise_c, watts * thermal.soc_c_per_watt, step_s, thermal.soc_tau_s)
        target_c = thermal.ambient_c + watts * thermal.body_c_per_watt
        self.body_c = _toward(self.body_c, target_c, step_s, thermal.body_tau_s)
        self.battery_c = _toward(self.battery_c, self.body_c, step_s, _BATTERY_TAU * thermal.body_tau_s)

    def force(self, heat_c: float) -> None:
        """Make the chip that hot at once; body and battery are on the way there."""
        rest_c = self._thermal.ambient_c
        self.body_c = self.battery_c = rest_c + 0.5 * (heat_c - rest_c)
        self.soc_rise_c = heat_c - self.body_c


def _toward(value: float, target: float, step_s: float, tau_s: float) -> float:
    """Return a value after ``step_s`` seconds of exponential approach."""
    return target + (value - target) * math.exp(-step_s / tau_s)
