"""A phone's power meters, and the energy of a run by their readings."""

from __future__ import annotations

import bisect
import enum
import itertools
import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from orchestrator.documents import adapter_of, dump_document
from orchestrator.files import file_of, keep_file
from orchestrator.records import frozen
from orchestrator.records.case import Serial

#: The attachment with the times at which rests and work of the pass ``energy`` began and ended, or
#: the reason why they are missing.
ENERGY_FILE: Final = "energy"
#: The attachment with the readings of the phone's meters meanwhile: a perfetto trace.
POWER_FILE: Final = "power.pftrace"
#: The same where a script on the phone samples its battery: lines of uptime, current, microvolts,
#: microampere hours.
BATTERY_FILE: Final = "battery"


class PowerSource(enum.StrEnum):
    """The meters that a phone's energy is read from."""

    #: Counters of energy of each supply rail of the chip; charging doesn't disturb them.
    RAILS = "rails"
    #: Current and voltage of the battery: the whole phone, while nothing charges it.
    BATTERY = "battery"
    NONE = "none"


#: Seconds of inferences in a block, and of each rest.
LEAST_WORK_S: Final = {PowerSource.RAILS: 30.0, PowerSource.BATTERY: 300.0}
LEAST_REST_S: Final = {PowerSource.RAILS: 30.0, PowerSource.BATTERY: 60.0}


class EnergyGrade(enum.StrEnum):
    """The reliability of a figure of energy."""

    #: Rails, one of which feeds the delegate's processor.
    RAILS = "rails"
    #: The battery's current, which its own count of charge confirms.
    BATTERY = "battery"
    #: The battery's current; its unit is guessed from its size, and nothing confirms it.
    UNVERIFIED = "unverified"


@frozen
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


@frozen
class PowerMeters:
    """The meters of one phone with one system image."""

    serial: Serial
    fingerprint: str
    source: PowerSource
    #: The battery is sampled by a script, as perfetto has no data of it.
    is_sampled: bool = False
    #: None until a run on the battery has shown it.
    gauge: Gauge | None = None


@frozen
class EnergyFigure:
    """The energy of one run; microjoules per inference, watts."""

    #: Above the phone's power at rest.
    net_uj: float
    gross_uj: float
    work_w: float
    #: Before and after the work.
    rest_w: tuple[float, float]
    grade: EnergyGrade
    #: Names of the rails that are summed; empty for the battery.
    rails: tuple[str, ...] = ()
    gauge: Gauge | None = None


class MeterBook:
    """The meters of this computer's phones, a JSON file each in a folder."""

    def __init__(self, folder: Path) -> None:
        """Name the folder; it is made when the first meters are saved."""
        self._folder = folder

    def load(self, serial: Serial, fingerprint: str) -> PowerMeters | None:
        """Return the stored meters of a phone with this system image; None where they have to be
        detected.
        """
        try:
            meters = adapter_of(PowerMeters).validate_json(
                self._path(serial).read_bytes(), strict=True
            )
        except (OSError, ValueError):
            return None
        return meters if meters.serial == serial and meters.fingerprint == fingerprint else None

    def save(self, meters: PowerMeters) -> None:
        """Store the meters, whole or not at all. Raises HostStorageError."""
        keep_file(self._path(meters.serial), dump_document(meters) + "\n")

    def _path(self, serial: Serial) -> Path:
        return file_of(self._folder, serial, ".json")


#: Parts of the chip -> names of the rails that feed them; the first match counts. Other rails aren't
#: of the chip's work.
_PARTS: Final = {
    "cpu": re.compile(r"VDD_CPU(CL)?\d"),
    "gpu": re.compile(r"VDD_(G3D|GPU)"),
    "npu": re.compile(r"VDD_TPU"),
    "memory": re.compile(r"VDD_MIF|VDD2[HL]|VDDQ_MEM|VDD_GMC"),
    "fabric": re.compile(r"VDD_INT|VDD_INFRA|VDD_DSU|VDD_SLC"),
}
#: After the work, until the phone counts as resting.
_SETTLES_S: Final = {PowerSource.RAILS: 3.0, PowerSource.BATTERY: 10.0}
#: Of the least lengths; a mark is written a moment before or after its event.
_TOLERANCE: Final = 0.85
#: Required values of the battery's current within the work.
LEAST_UPDATES: Final = 100
#: The two rests may differ by this share of the net power.
_MAX_DRIFT: Final = 0.1
_CHARGE_AGREES: Final = 0.15
#: A phone at work draws 0.1 to 6 A: smaller numbers than this are no microamperes, and than that no
#: milliamperes.
_MIN_UA: Final = 20_000
_MIN_MA: Final = 20

#: (time, energy since some moment), growing.
Counter = Sequence[tuple[float, float]]


@frozen
class Marks:
    """When the first rest, the program and the second rest began, and the end."""

    rest_s: float
    work_s: float
    end_s: float
    over_s: float


@frozen
class BatterySample:
    """A reading of the battery's gauge, in its own units: current counts, microvolts, microampere
    hours.
    """

    at_s: float
    current: float
    voltage_uv: float
    charge_uah: float | None = None


@frozen
class Inferences:
    """The measured inferences, which end with the program."""

    count: int
    #: From the begin of an inference to the next one's.
    period_s: float
    #: Length of the whole work where other work is done in between; 0: count x period.
    length_s: float = 0.0
    #: The inferences' parts of the work, each as (begin, end) in seconds before the work's end;
    #: none: all of it.
    spans: tuple[tuple[float, float], ...] = ()
    #: Almost no other work is done in between.
    is_alone: bool = False


class NoEnergyError(Exception):
    """The reason why there is no figure."""


def rail_part(rail: str) -> str:
    """Return the part that a rail feeds: ``cpu``, ``gpu``, ``npu``, ``memory``, ``fabric``, or ""
    for one that isn't counted.
    """
    return next((part for part, pattern in _PARTS.items() if pattern.search(rail)), "")


def rails_energy(
    rails: Mapping[str, Counter], marks: Marks, inferences: Inferences, *, part: str = ""
) -> EnergyFigure:
    """Return the energy by the chip's rails, without those of the display and the radios.

    ``part`` (:func:`rail_part`) is the part that the work runs on. Raises NoEnergyError, also when
    it has no rail.
    """
    counted = {name: counter for name, counter in rails.items() if rail_part(name)}
    if not counted:
        raise NoEnergyError(f"none of the phone's {len(rails)} rails is known to feed the chip")
    if part and part not in map(rail_part, counted):
        raise NoEnergyError(f"none of the phone's {len(rails)} rails feeds its {part.upper()}")
    if any(
        late[1] < early[1]
        for counter in counted.values()
        for early, late in itertools.pairwise(counter)
    ):
        raise NoEnergyError("a counter restarted during the run")
    figure = _figure(list(counted.values()), marks, inferences)
    return replace(figure, rails=tuple(sorted(counted)))


def battery_energy(
    samples: Sequence[BatterySample], marks: Marks, inferences: Inferences, *, is_charged: bool
) -> EnergyFigure:
    """Return the energy of the whole phone by its battery's current and voltage.

    Raises NoEnergyError.
    """
    if is_charged:
        raise NoEnergyError(
            "the phone was being charged: its battery doesn't show the phone's energy"
        )
    begin_s, end_s = _window(marks, inferences, PowerSource.BATTERY)
    gauge = detect_gauge([item for item in samples if begin_s <= item.at_s <= end_s])
    updates = round((end_s - begin_s) / gauge.period_s)
    if updates < LEAST_UPDATES:
        raise NoEnergyError(
            f"the battery's gauge reported {updates} values in {end_s - begin_s:.0f} s; {LEAST_UPDATES} are needed: "
            f"let it work for {LEAST_UPDATES * gauge.period_s * 1.1:.0f} s (min_secs)"
        )
    scale = gauge.unit_ua * gauge.discharging * 1e-6
    watts = [(item.at_s, item.current * scale * item.voltage_uv * 1e-6) for item in samples]
    counter = [(watts[0][0], 0.0)]
    for (early_s, early_w), (late_s, late_w) in itertools.pairwise(watts):
        counter.append((late_s, counter[-1][1] + (late_s - early_s) * (early_w + late_w) / 2 * 1e6))
    grade = EnergyGrade.BATTERY if gauge.is_verified else EnergyGrade.UNVERIFIED
    return replace(_figure([counter], marks, inferences, gauge), grade=grade)


def detect_gauge(samples: Sequence[BatterySample]) -> Gauge:
    """Return the unit and sign of a gauge's current, from its values under load.

    A phone at work draws so much that the size of the number shows its unit. The sign is that of
    the median. The battery's count of charge confirms both. Raises NoEnergyError.
    """
    if len(samples) < 2:
        raise NoEnergyError("the battery's gauge reported nothing during the work")
    median = statistics.median(item.current for item in samples)
    if abs(median) < _MIN_MA:
        raise NoEnergyError(f"the battery's gauge reports no current: {median:g} during the work")
    unit_ua = 1.0 if abs(median) >= _MIN_UA else 1000.0
    changes = [
        late.at_s for early, late in itertools.pairwise(samples) if late.current != early.current
    ]
    gaps = [late - early for early, late in itertools.pairwise(changes)]
    pairs = list(itertools.pairwise(samples))
    drawn = (
        sum((b.at_s - a.at_s) * abs(a.current + b.current) / 2 for a, b in pairs) * unit_ua / 3600
    )
    first, last = samples[0].charge_uah, samples[-1].charge_uah
    counted = first - last if first is not None and last is not None else 0.0
    return Gauge(
        unit_ua=unit_ua,
        discharging=1 if median > 0 else -1,
        period_s=min(gaps) if gaps else samples[-1].at_s - samples[0].at_s,
        is_verified=counted > 0 and abs(drawn / counted - 1) <= _CHARGE_AGREES,
    )


def _window(marks: Marks, inferences: Inferences, source: PowerSource) -> tuple[float, float]:
    """Return begin and end of the measured inferences.

    Raises NoEnergyError when it or a rest is too short.
    """
    length_s = inferences.length_s or inferences.count * inferences.period_s
    # The phone's clock may disagree with the program's own.
    if length_s > 1.05 * (marks.end_s - marks.work_s):
        raise NoEnergyError(
            f"the inferences took {length_s:.1f} s, and the program {marks.end_s - marks.work_s:.1f} s"
        )
    rests = (marks.work_s - marks.rest_s, marks.over_s - marks.end_s)
    for label, actual_s, least_s in (
        ("the inferences", length_s, LEAST_WORK_S[source]),
        ("the shorter rest", min(rests), LEAST_REST_S[source]),
    ):
        if actual_s < _TOLERANCE * least_s:
            raise NoEnergyError(
                f"{label} took {actual_s:.1f} s; {least_s:.0f} s are needed with the {source}"
            )
    return max(marks.work_s, marks.end_s - length_s), marks.end_s


def _figure(
    counters: Sequence[Counter],
    marks: Marks,
    inferences: Inferences,
    gauge: Gauge | None = None,
) -> EnergyFigure:
    """Return the figure of the rails' counters, or of the battery's with a gauge."""
    source = PowerSource.RAILS if gauge is None else PowerSource.BATTERY
    begin_s, end_s = _window(marks, inferences, source)
    settles_s = _SETTLES_S[source]

    def watts(from_s: float, to_s: float) -> float:
        joules = sum(_at(counter, to_s) - _at(counter, from_s) for counter in counters) * 1e-6
        return joules / (to_s - from_s)

    # Leave out the program's end, and the begin, which is known by the length only.
    inner_s = 1 + (2 * gauge.period_s if gauge is not None else 0)
    spans = [
        (end_s - from_s + inner_s, end_s - to_s - inner_s) for from_s, to_s in inferences.spans
    ]
    spans = [(start_s, stop_s) for start_s, stop_s in spans if stop_s - start_s >= inner_s]
    is_separable = sum(stop_s - start_s for start_s, stop_s in spans) >= LEAST_WORK_S[source] / 6
    if not inferences.spans or (inferences.is_alone and not is_separable):
        spans = [(begin_s + 1, end_s - 1)]
    elif not is_separable:
        longest_s = max(from_s - to_s for from_s, to_s in inferences.spans)
        raise NoEnergyError(
            f"the measured work took {longest_s:.1f} s at a time, with other work in between: "
            f"{3 * inner_s + 1:.0f} s are needed to separate them (more tokens)"
        )
    work_s = sum(stop_s - start_s for start_s, stop_s in spans)
    work_w = sum(watts(start_s, stop_s) * (stop_s - start_s) for start_s, stop_s in spans) / work_s
    rest_w = (
        watts(marks.rest_s + 1, marks.work_s - 1),
        watts(marks.end_s + settles_s, marks.over_s - 1),
    )
    net_w = work_w - statistics.fmean(rest_w)
    if net_w <= 0:
        raise NoEnergyError(
            f"the work drew no more ({work_w:.3g} W) than the rests ({rest_w[0]:.3g} and {rest_w[1]:.3g} W)"
        )
    if abs(rest_w[1] - rest_w[0]) > _MAX_DRIFT * net_w:
        raise NoEnergyError(
            f"the rests differ too much, {rest_w[0]:.3g} and {rest_w[1]:.3g} W beside a work of {work_w:.3g} W: "
            "other work began or ended meanwhile"
        )
    per_inference_s = (
        inferences.period_s if inferences.length_s else (end_s - begin_s) / inferences.count
    )
    return EnergyFigure(
        net_uj=net_w * per_inference_s * 1e6,
        gross_uj=work_w * per_inference_s * 1e6,
        work_w=work_w,
        rest_w=rest_w,
        grade=EnergyGrade.RAILS,
        gauge=gauge,
    )


def _at(counter: Counter, at_s: float) -> float:
    """Return a counter at a moment, linear between two readings.

    Raises NoEnergyError outside of them.
    """
    place = bisect.bisect_left(counter, (at_s, -math.inf))
    if place == 0 or place == len(counter):
        if counter and min(abs(counter[0][0] - at_s), abs(counter[-1][0] - at_s)) < 1.0:
            return counter[0 if place == 0 else -1][1]
        raise NoEnergyError("the meters weren't read during the whole run")
    (early_s, early), (late_s, late) = counter[place - 1], counter[place]
    return (
        early + (late - early) * (at_s - early_s) / (late_s - early_s) if late_s > early_s else late
    )
