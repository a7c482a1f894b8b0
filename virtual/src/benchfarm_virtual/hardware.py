"""A virtual phone's physics: clocks, heat, battery and load, computed on each read.

Nothing runs in between: every read advances the state by the phone time that has passed, under the
registered loads. Above its trip point the chip loses one clock step a second, below it regains one.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from benchfarm_virtual.contract import Battery
from benchfarm_virtual.heat import Clocks, Heat, next_lower
from benchfarm_virtual.processes import Process, listed
from benchfarm_virtual.profiles import VirtualProfile

if TYPE_CHECKING:
    from benchfarm_virtual.system import ScaledTime

#: Reads within a kernel's tick return the same state: one command may read hundreds of figures.
_TICK_S: Final = 0.01
#: How long one step of the thermal governor is, and how far below the trip point clocks come back.
_STEP_S: Final = 0.5
_HYSTERESIS_C: Final = 4.0
#: What a USB port gives to a phone (5 V, 500 mA).
_USB_WATTS: Final = 2.5
#: Power grows with the clock and the square of the voltage, which falls with the clock.
_POWER_EXPONENT: Final = 2.2
#: The interval of the battery's gauge, whose values are means since the last one, and their noise
#: (standard deviation).
_GAUGE_S: Final = 0.5
_GAUGE_NOISE: Final = 0.01


@dataclass(slots=True, eq=False)
class Work:
    """A load on the phone: busy cores, and watts in the GPU or another accelerator."""

    cpus: tuple[int, ...]
    gpu_share: float = 0.0
    accelerator_watts: float = 0.0
    #: How much of the time the cores are busy.
    cpu_share: float = 1.0
    #: Whose it is; 0 for what is no process of the phone's table.
    pid: int = 0
    #: What it moves of the memory's bandwidth, beside its work.
    memory_share: float = 0.0


class VirtualHardware:
    """The hardware of one virtual phone. Thread-safe."""

    def __init__(self, profile: VirtualProfile, time: ScaledTime, seed: int) -> None:
        """``profile`` is the phone's; the same ``seed`` gives the same noise."""
        self.profile = profile
        self.seed = seed
        self._time = time
        self._lock = threading.RLock()
        self._clocks = [
            Clocks(spec.available_khz, profile.governors[-1], spec.cpus)
            for spec in profile.clusters
        ]
        self._gpu = Clocks(profile.gpu.available_khz, "schedutil") if profile.gpu else None
        self._works: list[Work] = []
        #: The shares of the cores' time that they ask for, all together; cores without any aren't
        #: in it.
        self._demand: dict[int, float] = {}
        self._process_numbers = itertools.count(1)
        self._busy_s = 0.0
        #: Time in which heat (or a fault) held a clock down while there was work.
        self._throttled_s = 0.0
        #: Processor time of the processes that registered loads, by pid; kept after their end, as
        #: rusage is.
        self._cpu_s: dict[int, float] = {}
        self._heat = Heat(profile.thermal)
        self._charge_uah = profile.battery_mah * 1000 * 0.9
        self._plugged = True
        #: What the battery says of its health, 0: what its heat means.
        self.battery_health = 0
        #: Joules since boot of each part of the phone.
        self._joules: dict[str, float] = {}
        self._gauge = (0.0, self._charge_uah, 0.0)
        self._gauge_noise = random.Random(seed)  # noqa: S311
        self._at_s = time.uptime_s()

    # What programs use
    # ------------------------------------------------------------------------------------------------

    def next_process_seed(self) -> int:
        """Return a number for the next program's noise: another for each, the same in each run with
        this seed.
        """
        return self.seed * 1_000_003 + next(self._process_numbers)

    def begin_work(self, cpus: Sequence[int], **load: Any) -> Work:  # noqa: ANN401 - Work's
        """Register a load, with :class:`Work`'s settings; it heats the phone until :meth:`end_work`."""
        work = Work(tuple(cpus), **load)
        with self._changing():
            self._works.append(work)
            self._sum_demand()
            if not work.memory_share:
                self._make_room(work)
        return work

    def _make_room(self, work: Work) -> None:
        """Move those that fill memory off the cores that a program takes.

        They are chains of short processes, of which the next begins on an idle core: how long that
        takes isn't for this computer's load to say.
        """
        for other in self._works:
            fills = other.pid and other.memory_share
            if fills and not set(other.cpus).isdisjoint(work.cpus):
                other.cpus = (self._idlest(),)
                self._sum_demand()

    def begin_spin(self, pid: int, *, memory_share: float = 0.0) -> Work:
        """Register a process that keeps one core busy: the fastest of those with the least to do."""
        with self._updated():
            return self.begin_work([self._idlest()], pid=pid, memory_share=memory_share)

    @contextlib.contextmanager
    def spinning(self, pid: int, shell: Process, *, memory_share: float = 0.0) -> Iterator[None]:
        """Keep a core busy until this is left or ``shell``, for which it is done, ends: whichever is
        first.

        At a signal the thread that does it may take long to leave, on a busy computer.
        """
        end = partial(self.end_work, self.begin_spin(pid, memory_share=memory_share))
        try:
            with listed(shell.end_wakers, end):
                if shell.done.is_set():
                    end()
                yield
        finally:
            end()

    def _idlest(self) -> int:
        return min(
            (self._demand.get(cpu, 0.0), -spec.watts, cpu)
            for spec in self.profile.clusters
            for cpu in spec.cpus
        )[2]

    def end_work(self, work: Work) -> None:
        """Take a load away again."""
        with self._changing():
            if work in self._works:
                self._works.remove(work)
            self._sum_demand()

    def core_shares(self, work: Work | None = None) -> dict[int, float]:
        """Return each core's speed under load as a share of its highest, divided among its users."""
        with self._updated():
            other_works = [other for other in self._works if other is not work]
            shares = {}
            for clocks in self._clocks:
                for cpu in clocks.cpus:
                    shares[cpu] = clocks.share / (
                        1.0 + sum(other.cpu_share for other in other_works if cpu in other.cpus)
                    )
            return shares

    def memory_share(self) -> float:
        """Return the share of the memory's bandwidth that remains beside loads that only move data."""
        with self._lock:
            return 1.0 / (1.0 + sum(work.memory_share for work in self._works))

    def gpu_share(self, work: Work | None = None) -> float:
        """Return the GPU's speed as a share of its highest, divided among its users."""
        with self._updated():
            other_share = sum(other.gpu_share for other in self._works if other is not work)
            return self._gpu_speed() / (1.0 + other_share)

    # The contract
    # -----------------------------------------------------------------------------------------------------

    def clusters(self) -> Sequence[Clocks]:
        """Return the clusters' clocks, little cores first, as they are now."""
        with self._updated():
            return self._clocks

    def gpu(self) -> Clocks | None:
        """Return the GPU's clocks as they are now, None for a phone without one."""
        with self._updated():
            return self._gpu

    def gpu_load(self) -> float:
        """Return the share of its time that the GPU is busy."""
        with self._lock:
            return min(1.0, sum(work.gpu_share for work in self._works))

    def zones(self) -> Mapping[str, float]:
        """Return the temperature of each thermal zone by its name."""
        with self._updated():
            heats = {
                "soc": self._heat.soc_c,
                "gpu": self._heat.body_c + 0.8 * self._heat.soc_rise_c,
                "skin": self._heat.body_c,
                "battery": self._heat.battery_c,
            }
            return {
                zone.name: round(heats[zone.follows] + zone.offset_c, 1)
                for zone in self.profile.thermal.zones
            }

    def thermal_status(self) -> int:
        """Return 0 (none) to 6 (shutdown), by the skin's temperature."""
        with self._updated():
            return sum(
                1 for limit_c in self.profile.thermal.status_c if self._heat.body_c >= limit_c
            )

    def battery(self) -> Battery:
        """Return the battery's state."""
        with self._updated():
            full_uah = self.profile.battery_mah * 1000
            level = max(0, min(100, round(100 * self._charge_uah / full_uah)))
            return Battery(
                level_percent=level,
                heat_c=round(self._heat.battery_c, 1),
                voltage_mv=round(1000 * self._volt()),
                charge_counter_uah=round(self._charge_uah),
                plugged=self._plugged,
            )

    def rails(self) -> Mapping[str, int]:
        """Return the energy of each supply rail since boot in microjoules; empty for a phone without
        rails.
        """
        with self._updated():
            energy_uj = {}
            for name, feeds in self.profile.rails.items():
                part, _, share = feeds.partition(":")
                energy_uj[name] = round(1e6 * self._joules.get(part, 0.0) * float(share or 1.0))
            return energy_uj

    def gauge(self) -> tuple[int, int, int]:
        """Return the battery's current in the gauge's own unit, its voltage in uV, and its charge
        in uAh.
        """
        with self._updated():
            at_s, charge_uah, current_ua = self._gauge
            since_s = self._at_s - at_s
            if since_s >= _GAUGE_S:
                mean_ua = (self._charge_uah - charge_uah) / since_s * 3600
                current_ua = mean_ua * (1 + self._gauge_noise.gauss(0.0, _GAUGE_NOISE))
                self._gauge = self._at_s, self._charge_uah, current_ua
            return (
                round(current_ua * self.profile.gauge_scale),
                round(1e6 * self._volt()),
                10 * round(self._charge_uah / 10),
            )

    def set_plugged(self, *, plugged: bool) -> None:
        """Put the charger's cable in or out; adb's link stays."""
        with self._changing():
            self._plugged = plugged

    def busy_s(self) -> float:
        """Return the seconds of all cores together that loads have used since boot."""
        with self._updated():
            return self._busy_s

    def cpu_s(self, pid: int) -> float:
        """Return the processor time of one process, also after its end."""
        with self._updated():
            return self._cpu_s.get(pid, 0.0)

    def throttled_s(self) -> float:
        """Return for how long clocks were held down while there was work: the truth that judges are
        tested with.
        """
        with self._updated():
            return self._throttled_s

    def hold_clocks(self, steps: int) -> None:
        """For faults: take ``steps`` clock steps from every cluster and the GPU, whatever the heat
        is; 0: none.
        """
        with self._changing():
            for clocks in self._all_clocks():
                clocks.held_steps = steps

    def set_limits(self, clocks: Clocks, *, governor: str = "", **limits_khz: int) -> None:
        """Set what a root shell writes: a governor, ``min_khz``, ``max_khz``; a frequency that there
        isn't becomes the next lower one.
        """
        with self._changing():
            clocks.governor = governor or clocks.governor
            for name, khz in limits_khz.items():
                setattr(clocks, name, next_lower(clocks.available_khz, khz))

    def set_fixed_performance(self, *, enabled: bool) -> None:
        """Hold all clocks at a level that can be kept for long."""
        with self._changing():
            for clocks in self._clocks:
                clocks.fixed = enabled

    def force(self, *, heat_c: float | None = None, battery_percent: int | None = None) -> None:
        """Set the heat of the whole phone or its battery's level at once."""
        with self._changing():
            if heat_c is not None:
                self._heat.force(heat_c)
                if heat_c > self.profile.thermal.soc_trip_c:
                    for clocks in self._clocks:
                        clocks.steps_down = len(clocks.available_khz) // 2
            if battery_percent is not None:
                self._charge_uah = self.profile.battery_mah * 10.0 * battery_percent

    def reboot(self) -> None:
        """Forget loads, settings and counters; heat and charge stay."""
        with self._changing():
            self._works.clear()
            self._sum_demand()
            self._busy_s = 0.0
            self._joules.clear()
            self._cpu_s.clear()
            for clocks in self._all_clocks():
                clocks.reset()

    # Inside
    # -----------------------------------------------------------------------------------------------------------

    def _all_clocks(self) -> list[Clocks]:
        return [*self._clocks, *([self._gpu] if self._gpu else [])]

    def _gpu_speed(self) -> float:
        return self._gpu.share if self._gpu else 1.0

    def _volt(self) -> float:
        full_uah = self.profile.battery_mah * 1000
        return 3.5 + 0.008 * max(0, min(100, round(100 * self._charge_uah / full_uah)))

    def _part_watts(self) -> dict[str, float]:
        """Return the watts of each part: idle, clusters by name, gpu, accelerator."""
        watts = {"idle": self.profile.thermal.idle_watts}
        if not self._works:
            return watts
        demand = self._demand
        for spec, clocks in zip(self.profile.clusters, self._clocks, strict=True):
            busy = sum(min(1.0, demand.get(cpu, 0.0)) for cpu in spec.cpus)
            if busy:
                watts[spec.name] = busy * spec.watts * clocks.share**_POWER_EXPONENT
        if self.profile.gpu is not None and (busy := self.gpu_load()):
            watts["gpu"] = busy * self.profile.gpu.watts * self._gpu_speed() ** _POWER_EXPONENT
        watts["accelerator"] = sum(work.accelerator_watts for work in self._works)
        return watts

    def _net_watts(self, watts: float) -> float:
        full = self._charge_uah >= self.profile.battery_mah * 1000
        supply = _USB_WATTS if self._plugged else 0.0
        net = supply - watts
        return 0.0 if full and net > 0 else net

    @contextlib.contextmanager
    def _updated(self) -> Iterator[None]:
        """Hold the state as it is now, at most a tick old."""
        with self._lock:
            if not 0 <= self._time.uptime_s() - self._at_s < _TICK_S:
                self._advance()
            yield

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the state as it is at this moment, to be changed."""
        with self._lock:
            self._advance()
            yield

    def _advance(self) -> None:
        """Advance the state to this moment; only after that may it be changed."""
        now_s = self._time.uptime_s()
        left_s = now_s - self._at_s
        if left_s < 0:  # the phone's clock restarted
            left_s = 0.0
        self._at_s = now_s
        while left_s > 0:
            resting = not self._works and self._near_rest()
            step_s = left_s if resting else min(left_s, _STEP_S if self._works else 4 * _STEP_S)
            self._step(step_s)
            left_s -= step_s

    def _near_rest(self) -> bool:
        return self._heat.is_near_rest and not any(clocks.steps_down for clocks in self._clocks)

    def _step(self, step_s: float) -> None:
        parts = self._part_watts()
        watts = sum(parts.values())
        for part, part_watts in parts.items():
            self._joules[part] = self._joules.get(part, 0.0) + part_watts * step_s
        for clocks in self._all_clocks():
            clocks.held_s[clocks.current_khz] += step_s
        self._count(step_s)
        self._charge_uah += self._net_watts(watts) / self._volt() * 1e6 * step_s / 3600
        self._charge_uah = max(0.0, min(self.profile.battery_mah * 1000.0, self._charge_uah))
        self._heat.move_on(watts, step_s)
        self._govern(step_s)

    def _count(self, step_s: float) -> None:
        """Count processor time, in all and by process, and time with throttled clocks."""
        if not self._works:
            return
        if any(clocks.cooling_steps for clocks in self._clocks):
            self._throttled_s += step_s
        demand = self._demand
        self._busy_s += step_s * sum(min(1.0, share) for share in demand.values())
        for work in self._works:
            used = sum(work.cpu_share / max(1.0, demand[cpu]) for cpu in work.cpus)
            self._cpu_s[work.pid] = self._cpu_s.get(work.pid, 0.0) + step_s * used

    def _sum_demand(self) -> None:
        """Sum up the loads of each core after a change."""
        self._demand = {}
        for work in self._works:
            for cpu in work.cpus:
                self._demand[cpu] = self._demand.get(cpu, 0.0) + work.cpu_share
        for clocks in self._clocks:
            clocks.busy = not self._demand.keys().isdisjoint(clocks.cpus)
        if self._gpu is not None:
            self._gpu.busy = self.gpu_load() > 0

    def _govern(self, step_s: float) -> None:
        trip_c = self.profile.thermal.soc_trip_c
        moves = max(1, round(step_s))
        if trip_c - _HYSTERESIS_C <= self._heat.soc_c <= trip_c:
            return
        for clocks in self._all_clocks():
            clocks.move(moves if self._heat.soc_c > trip_c else -moves)
