"""Energy per inference from counters whose truth is known."""

from __future__ import annotations

import contextlib
import random
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestrator.analysis.effect import mean_of, ratio_of
from orchestrator.devices.host import HostDevice
from orchestrator.extensions.energy.figure import (
    BatterySample,
    EnergyGrade,
    Inferences,
    Marks,
    MeterBook,
    NoEnergyError,
    PowerMeters,
    PowerSource,
    battery_energy,
    detect_gauge,
    rail_part,
    rails_energy,
)
from orchestrator.extensions.energy.measuring import EnergyMeter
from orchestrator.ports import Device, InvocationRequest, ShellResult
from orchestrator.programs.native import NativeTool
from orchestrator.records.case import Pass, RunId
from orchestrator.records.device import DeviceState
from orchestrator.records.run import RawOutput, RunRecord
from tests.samples.command import Cli
from tests.samples.sample_lab import PIXEL_3, case, lab_of, series, stored
from tests.samples.sample_lab import run as run_of
from tests.samples.tools import raw_of, request_of

#: A program of 34 s whose last 33 s are 3300 inferences of 10 ms, between rests of 30 s.
MARKS = Marks(rest_s=100.0, work_s=130.0, end_s=164.0, over_s=194.0)
INFERENCES = Inferences(count=3300, period_s=0.01)


def counter(
    rest_w: float, work_w: float, *, marks: Marks = MARKS, after_w: float | None = None
) -> list[tuple[float, float]]:
    """Return a rail that is read every 250 ms."""
    found, energy_uj, at_s = [], 1e9, marks.rest_s - 1
    while at_s < marks.over_s + 1:
        found.append((at_s, energy_uj))
        is_late = after_w is not None and at_s >= marks.end_s
        watts = (
            work_w
            if marks.work_s <= at_s < marks.end_s
            else after_w
            if is_late and after_w is not None
            else rest_w
        )
        energy_uj += 0.25 * watts * 1e6
        at_s += 0.25
    return found


def test_net_energy_is_the_works_less_the_rests() -> None:
    rails = {"S2M_VDD_CPUCL2": counter(0.0, 2.0), "S5M_VDD_INT": counter(0.2, 0.3)}
    figure = rails_energy(rails, MARKS, INFERENCES)
    assert figure.net_uj == pytest.approx(2.1 * 0.01 * 1e6, rel=1e-6)
    assert figure.gross_uj == pytest.approx(2.3 * 0.01 * 1e6, rel=1e-6)
    assert figure.rest_w == pytest.approx((0.2, 0.2))
    assert figure.grade is EnergyGrade.RAILS


def test_only_the_chips_own_rails_are_summed_and_none_twice() -> None:
    names = {
        "S2M_VDD_CPUCL2": "cpu", "S13M_VDD_CPU0": "cpu", "S2S_VDD_G3D": "gpu", "S2S_VDD_GPU": "gpu",
        "S10M_VDD_TPU": "npu",
        "S1M_VDD_MIF": "memory", "S4S_VDD2H_MEM": "memory", "S5M_VDD_INT": "fabric", "S5M_VDD_DSU": "fabric",
        "VSYS_PWR_DISPLAY": "", "VSYS_PWR_WLAN_BT": "", "S6M_LLDO1": "", "L15M_LDO": "", "VSYS_PWR_MODEM": "",
    }  # fmt: skip
    assert {name: rail_part(name) for name in names} == names
    rails = {"S4M_VDD_CPUCL0": counter(0.1, 1.1), "VSYS_PWR_DISPLAY": counter(1.0, 9.0)}
    figure = rails_energy(rails, MARKS, INFERENCES)
    assert figure.rails == ("S4M_VDD_CPUCL0",)
    assert figure.net_uj == pytest.approx(10_000.0)


@pytest.mark.parametrize(
    ("rails", "wanted", "why"),
    [
        ({"S4M_VDD_CPUCL0": counter(0.1, 1.0)}, "npu", "none of the phone's 1 rails feeds its NPU"),
        (
            {"VSYS_PWR_DISPLAY": counter(0.1, 1.0)},
            "",
            "none of the phone's 1 rails is known to feed the chip",
        ),
        ({"S4M_VDD_CPUCL0": counter(0.1, 1.0, after_w=0.4)}, "", "the rests differ too much"),
        ({"S4M_VDD_CPUCL0": counter(1.0, 1.0)}, "", "the work drew no more"),
        ({"S4M_VDD_CPUCL0": counter(0.1, 1.0)[:200]}, "", "weren't read during the whole run"),
        (
            {
                "S4M_VDD_CPUCL0": [
                    (at, value - 1.5e9 * (at > 150)) for at, value in counter(0.1, 1.0)
                ]
            },
            "",
            "restarted",
        ),
    ],
)
def test_what_isnt_known_is_no_figure(
    rails: dict[str, list[tuple[float, float]]], wanted: str, why: str
) -> None:
    with pytest.raises(NoEnergyError, match=why):
        rails_energy(rails, MARKS, INFERENCES, part=wanted)


def test_too_short_is_no_figure() -> None:
    rails = {"S4M_VDD_CPUCL0": counter(0.1, 1.0)}
    with pytest.raises(
        NoEnergyError, match=r"the inferences took 20\.0 s; 30 s are needed with the rails"
    ):
        rails_energy(rails, MARKS, Inferences(count=2000, period_s=0.01))
    with pytest.raises(NoEnergyError, match=r"the shorter rest took 10\.0 s; 30 s"):
        rails_energy(rails, replace(MARKS, rest_s=120.0), INFERENCES)
    with pytest.raises(NoEnergyError, match=r"took 60\.0 s, and the program 34\.0 s"):
        rails_energy(rails, MARKS, Inferences(count=6000, period_s=0.01))


LONG = Marks(rest_s=0.0, work_s=60.0, end_s=390.0, over_s=450.0)
MANY = Inferences(count=32_500, period_s=0.01)


def battery(scale: float, *, step_s: float = 0.5, charge: bool = True) -> list[BatterySample]:
    """Return what a gauge tells of 1 W at rest and 4 W at work at 4 V, ``scale`` of it for a
    microampere."""
    found, charge_uah = [], 2_000_000.0
    for number in range(round(455 / step_s)):
        at_s = number * step_s
        ua = 1e6 if LONG.work_s <= at_s < LONG.end_s else 250_000.0
        current = round(ua * scale * (1 + 0.01 * (-1) ** number))
        found.append(
            BatterySample(
                at_s=at_s,
                current=current,
                voltage_uv=4e6,
                charge_uah=round(charge_uah) if charge else None,
            )
        )
        charge_uah -= ua * step_s / 3600
    return found


@pytest.mark.parametrize(
    ("scale", "unit_ua", "discharging"),
    [(-1, 1, -1), (1, 1, 1), (1e-3, 1000, 1), (-1e-3, 1000, -1)],
)
def test_unit_and_sign_of_the_current_are_found_out(
    scale: float, unit_ua: float, discharging: int
) -> None:
    figure = battery_energy(battery(scale), LONG, MANY, is_charged=False)
    assert figure.gauge is not None
    assert (figure.gauge.unit_ua, figure.gauge.discharging, figure.gauge.period_s) == (
        unit_ua,
        discharging,
        0.5,
    )
    assert figure.grade is EnergyGrade.BATTERY
    assert figure.net_uj == pytest.approx(3.0 * 0.01 * 1e6, rel=0.002)


def test_a_current_that_nothing_confirms_is_graded_so() -> None:
    assert (
        battery_energy(battery(1, charge=False), LONG, MANY, is_charged=False).grade
        is EnergyGrade.UNVERIFIED
    )
    halved = [replace(item, current=item.current / 2) for item in battery(1)]
    assert not detect_gauge(halved[200:700]).is_verified


def test_a_battery_that_tells_nothing_gives_no_figure() -> None:
    with pytest.raises(NoEnergyError, match="was being charged"):
        battery_energy(battery(1), LONG, MANY, is_charged=True)
    with pytest.raises(NoEnergyError, match="reports no current: 1 "):
        battery_energy(battery(1e-6), LONG, MANY, is_charged=False)
    with pytest.raises(
        NoEnergyError, match=r"reported 65 values in 325 s; 100 are needed.*550 s \(min_secs\)"
    ):
        battery_energy(battery(1, step_s=5.0), LONG, MANY, is_charged=False)
    with pytest.raises(NoEnergyError, match="reported nothing"):
        battery_energy([], LONG, MANY, is_charged=False)


def test_blocks_have_an_interval_and_rounds_are_pairs() -> None:
    mean = mean_of([10.0, 11.0, 12.0])
    assert mean is not None
    assert (mean.value, mean.count) == (11.0, 3)
    # Three in a row may resemble each other: Student's t alone would be 4.3027 / sqrt(3).
    assert mean.half_width is not None
    assert 1.5 < mean.half_width / (4.3027 / 3**0.5) < 2.5
    assert mean_of([]) is None
    # What drifts from round to round takes nothing from the ratio.
    ratio = ratio_of({0: 20.0, 1: 40.0, 2: 80.0}, {0: 10.0, 1: 20.0, 2: 40.0, 3: 1.0})
    assert ratio is not None
    # Equal to the last digit: nothing says by how much another round would differ.
    assert (ratio.value, ratio.half_width, ratio.count) == (pytest.approx(2.0), None, 3)
    alike = mean_of([10.0, 10.0, 10.0])
    assert alike is not None
    assert alike.half_width is None


@pytest.mark.parametrize("share", [0.0, 0.05])
def test_intervals_of_blocks_that_remember_and_of_outliers_hold_the_truth(share: float) -> None:
    chance = random.Random(20261122)
    held = 0
    for _ in range(300):
        level, blocks = chance.gauss(0, 1), []
        for _ in range(12):
            level = 0.5 * level + 0.75**0.5 * chance.gauss(0, 1)
            slow = chance.uniform(5, 40) if chance.random() < share else 0.0
            blocks.append(100 + level + slow)
        found = mean_of(blocks)
        assert found is not None
        assert found.half_width is not None
        held += abs(found.value - 100) <= found.half_width
    # By Student's t of the mean alone: 78 and 61 of 100.
    assert held / 300 >= 0.9


def in_turns(
    turn_s: float, *, count: int = 4, is_alone: bool = False
) -> tuple[dict[str, list[tuple[float, float]]], Inferences, Marks]:
    """Return turns of 5 W that are others' and as long ones of 3 W that are the case's, at a rest
    of 1 W."""
    length_s = 2 * count * turn_s
    marks = Marks(rest_s=100.0, work_s=130.0, end_s=132.0 + length_s, over_s=162.0 + length_s)
    found, energy_uj, at_s = [], 0.0, 99.0
    while at_s < marks.over_s + 1:
        found.append((at_s, energy_uj))
        since_s = at_s - (marks.end_s - length_s)
        watts = (
            1.0 if not 0 <= since_s < length_s else 5.0 if since_s % (2 * turn_s) < turn_s else 3.0
        )
        energy_uj += 0.25 * watts * 1e6
        at_s += 0.25
    own = tuple(
        (2 * turn_s * number + turn_s, 2 * turn_s * number) for number in reversed(range(count))
    )
    inferences = Inferences(
        count=100 * count, period_s=turn_s / 100, length_s=length_s, spans=own, is_alone=is_alone
    )
    return {"S2M_VDD_CPUCL2": found}, inferences, marks


def test_turns_are_told_from_what_is_done_between_them() -> None:
    rails, inferences, marks = in_turns(6.0)
    figure = rails_energy(rails, marks, inferences)
    assert figure.work_w == pytest.approx(3.0, rel=1e-6)
    assert figure.net_uj == pytest.approx(2.0 * 0.06 * 1e6, rel=1e-6)


def test_turns_that_are_too_short_have_no_figure_unless_nothing_else_is_done() -> None:
    rails, inferences, marks = in_turns(2.5, count=8)
    with pytest.raises(NoEnergyError, match=r"took 2\.5 s at a time.*4 s are needed"):
        rails_energy(rails, marks, inferences)
    rails, inferences, marks = in_turns(2.5, count=8, is_alone=True)
    assert rails_energy(rails, marks, inferences).work_w == pytest.approx(4.0, rel=0.02)


@pytest.mark.parametrize(("net_uj", "is_told"), [(14_000.0, True), (10_050.0, False)])
def test_what_the_fastest_number_of_threads_costs_more_than_noise_is_advised(
    tmp_path: Path, net_uj: float, *, is_told: bool
) -> None:
    runs: list[RunRecord] = []
    for threads, latency_us, energy_uj in ((1, 9_000.0, 10_000.0), (4, 5_000.0, net_uj)):
        own = case(PIXEL_3, threads=threads)
        runs += series(own, latency_us)
        for number, noise in enumerate((0.99, 1.01, 1.0, 1.02, 0.98, 1.0 + threads / 100)):
            block = run_of(own, number, latency_us, run_pass=Pass("energy"))
            assert block.report is not None
            watts = {"energy_work_w": 2.0, "energy_rest_before_w": 1.0, "energy_rest_after_w": 1.0}
            figures = dict.fromkeys(("energy_net_uj", "energy_gross_uj"), energy_uj * noise)
            extra = {"energy_grade": "rails", **watts, **figures}
            runs.append(replace(block, report=replace(block.report, extra=extra)))
    unique = [replace(item, run_id=RunId(f"{place}")) for place, item in enumerate(runs)]
    told = Cli(home=stored(tmp_path / "home", lab_of(unique))).json("advise")
    lines = {line["rule"]: line["text"] for line in told["advice"]["lines"]}
    assert ("energy-of-threads" in lines) is is_told
    if is_told:
        assert re.search(
            r"1 thread would take 1\.80 times .* as long; 4 threads cost \S+ % more energy an inference",
            lines["energy-of-threads"],
        )


class Charged(HostDevice):
    """A device that is charged."""

    def state(self) -> DeviceState:
        return DeviceState(at=datetime(2026, 1, 1, tzinfo=UTC), plugged="usb")


class Full(HostDevice):
    """A device with perfetto that has no room for a trace."""

    def shell(self, command: str, *, timeout_s: float = 30.0) -> ShellResult:
        full = "perfetto() { echo 'No space left on device' >&2; return 1; }"
        return super().shell(f"{full}\n{command}", timeout_s=timeout_s)


def test_a_phone_without_room_for_a_trace_costs_the_energy_and_not_the_run(tmp_path: Path) -> None:
    device, tool = Full(tmp_path), Started()
    Path(device.work_folder, "traces").mkdir(parents=True)
    meter = EnergyMeter(lambda device, change, command: None, MeterBook(tmp_path), Hub())
    request = request_of(case(serial=device.serial))
    raw = meter.run(tool, device, replace(request, facts=replace(request.facts, sdk=34)))
    assert b"No space left on device" in raw.data("energy")


class Hub:
    """A hub whose port is off for the times in ``spans_s``."""

    def __init__(self) -> None:
        self.spans_s: list[float] = []

    def can_switch(self, device: Device) -> bool:
        return True

    def off(
        self, device: Device, *, after_s: float, lasts_s: float
    ) -> contextlib.AbstractContextManager[None]:
        self.spans_s.append(after_s + lasts_s)
        return contextlib.nullcontext()


class Started(NativeTool):
    """A program that is started only."""

    def run(self, device: Device, request: InvocationRequest) -> RawOutput:
        self.request = request
        return raw_of()


def test_a_phone_whose_port_is_off_is_awaited_also_past_the_end_of_the_campaign(
    tmp_path: Path,
) -> None:
    device, hub, tool, book = Charged(tmp_path), Hub(), Started(), MeterBook(tmp_path)
    meters = PowerMeters(
        serial=device.serial, fingerprint="", source=PowerSource.BATTERY, is_sampled=True
    )  # fmt: skip
    book.save(meters)
    request = request_of(case(serial=device.serial), away_s=100.0)
    meter = EnergyMeter(lambda device, change, command: None, book, hub)
    raw = meter.run(tool, device, request)
    assert [tool.request.away_s >= span_s for span_s in hub.spans_s] == [True]
    # Budgets count it until then.
    assert [raw.duration_s >= span_s for span_s in hub.spans_s] == [True]
