"""What is known of a phone's power meters, and the energy that a run was seen to take."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote as percent_encode

from orchestrator.documents import adapter_of, dump_document
from orchestrator.files import keep_file
from orchestrator.records.case import Serial

#: The attachment in which the pass ``energy`` writes when its pauses and its work began and ended,
#: or why it couldn't.
ENERGY_FILE: Final = "energy"
#: The attachment with what the phone's meters said meanwhile: a perfetto trace.
POWER_FILE: Final = "power.pftrace"
#: The same where a script on the phone samples its battery: lines of uptime, current, microvolts,
#: microampere hours.
BATTERY_FILE: Final = "battery"


class PowerSource(enum.StrEnum):
    """Where a phone's energy is read."""

    #: Counters of energy of each supply rail of the chip; charging doesn't disturb them.
    RAILS = "rails"
    #: Current and voltage of the battery: the whole phone, while nothing charges it.
    BATTERY = "battery"
    NONE = "none"


#: Seconds of inferences in a block, and of each rest.
LEAST_WORK_S: Final = {PowerSource.RAILS: 30.0, PowerSource.BATTERY: 300.0}
LEAST_REST_S: Final = {PowerSource.RAILS: 30.0, PowerSource.BATTERY: 60.0}


class EnergyGrade(enum.StrEnum):
    """How far a figure of energy may be trusted."""

    #: Rails, one of which feeds what the delegate runs on.
    RAILS = "rails"
    #: The battery's current, which its own count of charge confirms.
    BATTERY = "battery"
    #: The battery's current; its unit is guessed from its size, and nothing confirms it.
    UNVERIFIED = "unverified"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """How a phone reports its battery's current."""

    #: Microamperes in one of its counts: 1 or 1000.
    unit_ua: float
    #: 1 where discharging is positive, -1 where it is negative.
    discharging: int
    #: Shortest time between two values, in seconds.
    period_s: float
    #: Whether the battery's count of charge agrees within 15 %.
    is_verified: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerMeters:
    """What was found out about one phone's meters, with one system image."""

    serial: Serial
    fingerprint: str
    is_virtual: bool
    source: PowerSource
    #: Names of the rails as the phone has them.
    rails: tuple[str, ...] = ()
    #: The battery is sampled by a script, as perfetto has no data of it.
    is_sampled: bool = False
    #: None until a run on the battery has shown it.
    gauge: Gauge | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyFigure:
    """The energy of one run; microjoules per inference, watts."""

    #: Above what the phone takes at rest.
    net_uj: float
    gross_uj: float
    work_w: float
    #: Before and after the work.
    rest_w: tuple[float, float]
    #: Seconds of inferences that the figure is made of.
    window_s: float
    inferences: int
    source: PowerSource
    grade: EnergyGrade
    #: Names of the rails that are summed; empty for the battery.
    rails: tuple[str, ...] = ()
    gauge: Gauge | None = None


class MeterBook:
    """The meters of this computer's phones, a JSON file each in a folder."""

    def __init__(self, folder: Path) -> None:
        """Name the folder; it is made when the first meters are kept."""
        self._folder = folder

    def load(self, serial: Serial, fingerprint: str) -> PowerMeters | None:
        """Return what is known of a phone with this system image.

        None where it has to be found out (again).
        """
        try:
            known = adapter_of(PowerMeters).validate_json(
                self._path(serial).read_bytes(), strict=True
            )
        except (OSError, ValueError):
            return None
        return known if known.serial == serial and known.fingerprint == fingerprint else None

    def save(self, meters: PowerMeters) -> None:
        """Keep what was found, whole or not at all. Raises HostStorageError."""
        keep_file(self._path(meters.serial), dump_document(meters) + "\n")

    def _path(self, serial: Serial) -> Path:
        return self._folder / f"{percent_encode(serial, safe='')}.json"
