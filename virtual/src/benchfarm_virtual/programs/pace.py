"""A process that does the same step again and again, as fast as the phone is meanwhile: what
programs that know nothing of a model's operators are made of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from benchfarm_virtual.contract import ProcessContext
from benchfarm_virtual.latency import Noise, Speed, cpu_speed, gpu_speed, place_threads
from benchfarm_virtual.programs.process import Bench, pause

#: Phone time that is slept through at once; clocks are looked at in between.
_SLEEP_S: Final = 0.32
#: Steps so short that more fit into it take the mean of so many, which costs this computer less.
_MOST_DRAWN: Final = 64


class Pace:
    """The steps of one process on its cores, or on the GPU."""

    def __init__(
        self, bench: Bench, process: ProcessContext, *, threads: int, on_gpu: bool = False
    ) -> None:
        """``on_gpu``: only where the phone has a GPU."""
        self.noise = Noise(bench.hardware.next_process_seed())
        self._bench = bench
        self._process = process
        self._gpu = bench.profile.gpu if on_gpu else None
        self._threads = place_threads(
            bench.profile,
            threads=threads,
            affinity=process.affinity,
            group=process.group,
            stray_draw=self.noise.stray_draw,
        )

    def times_us(
        self, count: int, step_us: Callable[[Speed], float], *, cpu_share: float = 1.0
    ) -> list[float]:
        """Do a step ``count`` times; return each time.

        ``step_us`` says how long it takes at a speed, ``cpu_share`` how busy the cores are meanwhile.
        """
        hardware = self._bench.hardware
        work = hardware.begin_work(
            () if self._gpu else self._threads.cpus,
            gpu_share=1.0 if self._gpu else 0.0,
            pid=self._process.pid,
            cpu_share=cpu_share,
        )
        times: list[float] = []
        try:
            while len(times) < count:
                each_us = step_us(self._speed()) * self._bench.time_factor
                some = max(1, min(count - len(times), int(_SLEEP_S * 1e6 / each_us)))
                drawn = self.noise.samples_us(each_us, min(some, _MOST_DRAWN))
                spent = drawn.tolist() if some == len(drawn) else [float(drawn.mean())] * some
                pause(self._process, sum(spent) / 1e6)
                times += spent
        finally:
            hardware.end_work(work)
        return times

    def _speed(self) -> Speed:
        hardware = self._bench.hardware
        if self._gpu is not None:
            return gpu_speed(self._gpu, hardware.gpu_share(), fp16=True, backend="cl")
        return cpu_speed(self._bench.profile, self._threads, hardware.core_shares(), xnnpack=True)
