"""Clocks, heat, battery and load of a virtual phone, on a clock that the test moves."""

from __future__ import annotations

import pytest

from benchfarm_virtual.hardware import VirtualHardware
from benchfarm_virtual.processes import ProcessTable
from benchfarm_virtual.profiles import load_profile, profile_names
from virtual.tests.unit.bench_phone import HandTime


def made(profile: str = "pixel-3") -> tuple[VirtualHardware, HandTime]:
    time = HandTime()
    return VirtualHardware(load_profile(profile), time, seed=1), time


def hottest_c(hardware: VirtualHardware) -> float:
    return max(hardware.zones().values())


@pytest.mark.parametrize("profile", profile_names())
def test_a_phone_at_rest_stays_cool_and_idle(profile):
    hardware, time = made(profile)
    before = hottest_c(hardware)
    time.now_s = 8 * 3600
    assert hottest_c(hardware) == pytest.approx(before, abs=0.3)
    assert hardware.thermal_status() == 0
    assert all(c.current_khz == c.min_khz and c.limit_khz == c.max_khz for c in hardware.clusters())


@pytest.mark.parametrize("profile", ["pixel-3", "pixel-4", "galaxy-s21-exynos"])
def test_load_heats_up_throttles_in_steps_and_rest_undoes_it(profile):
    hardware, time = made(profile)
    work = hardware.begin_work([cpu for spec in hardware.profile.clusters[1:] for cpu in spec.cpus])
    limits = []
    for second in range(600):
        time.now_s = float(second)
        limits.append(hardware.clusters()[-1].limit_khz)
    top = hardware.clusters()[-1].max_khz
    assert limits[5] == top
    assert limits[-1] < top
    assert set(limits) <= set(hardware.clusters()[-1].available_khz)
    assert len(set(limits)) > 2
    assert hottest_c(hardware) == pytest.approx(hardware.profile.thermal.soc_trip_c, abs=6)
    assert hardware.thermal_status() >= 1
    hardware.end_work(work)
    time.now_s += 1800
    assert hardware.clusters()[-1].limit_khz == top
    assert hardware.thermal_status() == 0


def test_two_works_on_the_same_cores_share_them():
    hardware, _ = made()
    first = hardware.begin_work([4, 5])
    hardware.begin_work([5])
    shares = hardware.core_shares(first)
    assert shares[4] == 1.0
    assert shares[5] == 0.5


def test_a_reboot_forgets_the_gpus_throttling_and_what_processes_used_as_well():
    hardware, time = made()
    hardware.force(heat_c=100.0)
    hardware.end_work(hardware.begin_work([4], pid=7))
    hardware.begin_work([4], gpu_share=1.0, pid=7)
    time.now_s = 3
    assert hardware.gpu().limit_khz < max(hardware.gpu().available_khz)
    assert hardware.cpu_s(7) == pytest.approx(3)
    hardware.reboot()
    assert hardware.gpu().limit_khz == max(hardware.gpu().available_khz)
    assert hardware.cpu_s(7) == 0


def test_those_that_only_move_data_take_their_share_of_the_memory():
    hardware, _ = made()
    assert hardware.memory_share() == 1.0
    loads = [hardware.begin_spin(7, memory_share=0.3) for _ in range(2)]
    assert hardware.memory_share() == pytest.approx(1 / 1.6)
    for load in loads:
        hardware.end_work(load)
    hardware.begin_spin(8)
    assert hardware.memory_share() == 1.0


def test_those_that_only_move_data_leave_a_core_that_a_program_takes():
    hardware, _ = made()
    alone = hardware.core_shares()
    filling, computing = hardware.begin_spin(7, memory_share=0.3), hardware.begin_spin(8)
    taken = [*filling.cpus, *computing.cpus]
    program = hardware.begin_work(taken, pid=9)
    beside = hardware.core_shares(program)
    assert [beside[cpu] / alone[cpu] for cpu in taken] == pytest.approx([1.0, 0.5])
    (moved,) = filling.cpus
    assert beside[moved] == pytest.approx(alone[moved] / 2)


def test_what_a_shell_that_was_killed_kept_busy_is_free_at_once():
    hardware, time = made()
    table = ProcessTable(time, cpu_count=8)
    shell = table.spawn(["sh"], uid=2000, is_shell=True)
    with hardware.spinning(shell.pid, shell, memory_share=0.3):
        assert hardware.memory_share() < 1.0
        table.kill(shell, 9)
        assert hardware.memory_share() == 1.0
        with hardware.spinning(shell.pid, shell, memory_share=0.3):
            assert hardware.memory_share() == 1.0
