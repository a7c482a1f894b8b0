"""The loop of warm-up or measured runs, the program's rules for when it ends, in phone time; the
statistics and memory of the runs.

Latencies are drawn many at a time, with one sleep for all, so that a run costs the host almost
nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchfarm_virtual.contract import TraceEvent
from benchfarm_virtual.latency import LOOP_OVERHEAD_US
from benchfarm_virtual.programs.process import number

if TYPE_CHECKING:
    from benchfarm_virtual.programs.benchmark import BenchmarkRun
    from benchfarm_virtual.programs.interpreter import Interpreter


#: Share of an inference that isn't any operator's.
_BETWEEN: Final = 0.02
#: What writing one slice costs, in microseconds.
SLICE_US: Final = 1.5
_PROPERTY: Final = "debug.tflite.trace"


class OperatorSlices:
    """Writes ``OP@node/subgraph`` around each operator, and ``invoke@-1/0`` around each inference."""

    def __init__(self, interpreter: Interpreter) -> None:
        call = interpreter.run.call
        self._interpreter = interpreter
        self._sink = call.system.tracing
        self._call = call
        #: As the real runtime: read once, when the interpreter is made, and only "1" counts.
        self._is_on = call.system.props.get(_PROPERTY, "") == "1"

    @property
    def is_recorded(self) -> bool:
        """Whether slices are written now."""
        return self._is_on and self._sink.wants(self._call.launch.argv[0])

    @property
    def cost_us(self) -> float:
        """What writing its slices adds to one inference."""
        return SLICE_US * (1 + len(self._interpreter.works)) if self.is_recorded else 0.0

    def write(self, starts_us: NDArray[np.float64], latencies_us: NDArray[np.float64]) -> None:
        """Write the slices of inferences that begin ``starts_us`` from now and take
        ``latencies_us``.
        """
        if not self.is_recorded:
            return
        pid = self._call.process.pid
        cpu = self._interpreter.threads()[0]
        names, shares = self._shares()
        now_us = self._sink.now_ns() / 1000
        events: list[TraceEvent] = []

        def mark(at_us: float, text: str) -> None:
            events.append(TraceEvent(int((now_us + at_us) * 1000), cpu, pid, text))

        end = f"E|{pid}"
        for start_us, latency_us in zip(starts_us.tolist(), latencies_us.tolist(), strict=True):
            at_us = start_us
            mark(at_us, f"B|{pid}|invoke@-1/0")
            for name, share in zip(names, shares, strict=True):
                mark(at_us, f"B|{pid}|{name}")
                at_us += share * latency_us
                mark(at_us, end)
            mark(start_us + latency_us, end)
        self._sink.write(pid, self._call.launch.argv[0], self._call.uid, events)

    def _shares(self) -> tuple[list[str], list[float]]:
        interpreter = self._interpreter
        hardware = interpreter.run.hardware
        speeds = interpreter.speeds(hardware.core_shares(), hardware.gpu_share())
        times = [work.time_us(speeds) for work in interpreter.works]
        total = sum(times) or 1.0
        names = [f"{work.node.name}@{work.node.node_id}/0" for work in interpreter.works]
        return names, [time / total * (1.0 - _BETWEEN) for time in times]


#: Phone time whose runs are drawn at once, and how many runs are, at most.
_CHUNK_S: Final = 0.08
_LONGEST_CHUNK_S: Final = 0.5
_CHUNK_RUNS: Final = 100_000
#: Phone time that is slept through at once; clocks are looked at in between.
_SLEEP_S: Final = 0.32
#: After a pause this long, clocks have gone down and caches are cold.
_IDLE_US: Final = 4000.0
_AFTER_IDLE: Final = 1.4
#: What the profiler adds to each operator, and to a run.
_PROFILED_OP_US: Final = 0.9
_PROFILED_RUN_US: Final = 18.0


class Limits(NamedTuple):
    """At least so many runs and so many seconds of them, none beginning later than that."""

    least_runs: int
    least_s: float
    most_s: float


class RunLoop:
    """The loops of one run of the program; the first inference of all is the cold one."""

    def __init__(self, run: BenchmarkRun, interpreter: Interpreter) -> None:
        self._run = run
        self._interpreter = interpreter
        self._cold = True
        self._began_s = 0.0
        self._slices = OperatorSlices(interpreter)
        frequency = run.parameters.number("run_frequency")
        #: From the begin of a run to that of the next at least; else the pause after each.
        self._every_us = 1e6 / frequency if frequency > 0 else 0.0
        self._pause_us = max(0.0, run.parameters.number("run_delay")) * 1e6

    def run(self, limits: Limits, *, profiled: bool = False) -> Stat:
        """Make runs within the limits."""
        say = self._run.say
        say.info(
            f"Running benchmark for at least {limits.least_runs} iterations and at least "
            f"{number(limits.least_s)} seconds but "
            f"terminate if exceeding {number(limits.most_s)} seconds."
        )
        hardware = self._run.hardware
        cpus, cpu_share, gpu_share, watts = self._interpreter.load()
        duty = self._duty(hardware.core_shares(), hardware.gpu_share())
        work = hardware.begin_work(
            cpus,
            gpu_share=gpu_share * duty,
            accelerator_watts=watts * duty,
            cpu_share=cpu_share * duty,
            pid=self._run.call.process.pid,
        )
        stat = Stat()
        try:
            now_us = 0.0
            self._began_s = self._run.call.system.time.uptime_s()
            more = True
            while more:
                base_us = self._interpreter.inference_us(
                    hardware.core_shares(work), hardware.gpu_share(work)
                )
                if profiled:
                    base_us += _PROFILED_RUN_US + _PROFILED_OP_US * sum(
                        len(w.works) for w in self._interpreter.works
                    )
                base_us += self._slices.cost_us
                begin_us = now_us
                while more and now_us - begin_us < _SLEEP_S * 1e6:
                    now_us, more = self._chunk(stat, limits, base_us, (begin_us, now_us))
                # Until then, not for that long: what this computer's clock oversleeps is no part of
                # the next runs.
                self._run.sleep_us(
                    now_us - (self._run.call.system.time.uptime_s() - self._began_s) * 1e6
                )
        finally:
            hardware.end_work(work)
        say.info(stat.line() + "\n")
        return stat

    def _duty(self, shares: dict[int, float], gpu_share: float) -> float:
        """Return the share of the time in which it is busy."""
        base_us = self._interpreter.inference_us(shares, gpu_share)
        return base_us / max(base_us, float(self._periods_us(base_us)))

    def _periods_us(self, latencies_us: Any) -> Any:  # noqa: ANN401 - one, or an array
        """Return the time from the begin of a run to the next one's."""
        if self._every_us:
            return np.maximum(latencies_us, self._every_us)
        return latencies_us + self._pause_us

    def _chunk(
        self, stat: Stat, limits: Limits, base_us: float, at_us: tuple[float, float]
    ) -> tuple[float, bool]:
        """Make some runs; return the time after them, and whether there are more to make.

        ``at_us``: this moment, and the time after the runs that were made ahead of it.
        """
        run = self._run
        begin_us, now_us = at_us
        period_us = float(self._periods_us(base_us)) + LOOP_OVERHEAD_US
        if period_us - base_us > _IDLE_US:
            base_us *= _AFTER_IDLE
        chunk_s = min(_LONGEST_CHUNK_S, _CHUNK_S * max(1.0, run.call.system.time.factor))
        count = max(1, min(_CHUNK_RUNS, int(chunk_s * 1e6 / period_us)))
        values = run.noise.samples_us(base_us, count)
        if self._cold:
            values[0] = int(values[0] * run.noise.first_factor()) + 8
        ends = now_us + np.cumsum(self._periods_us(values + LOOP_OVERHEAD_US))
        starts = np.concatenate(([now_us], ends[:-1]))
        numbers = np.arange(stat.count, stat.count + count)
        is_wanted = (numbers < limits.least_runs) | (starts < limits.least_s * 1e6)
        allowed = is_wanted & (starts <= limits.most_s * 1e6)
        stop = count if bool(allowed.all()) else int(np.argmin(allowed))
        if stop == 0:
            return now_us, False
        self._cold = False
        self._slices.write(starts[:stop] - begin_us, values[:stop].astype(np.float64))
        stat.add(values[:stop])
        return float(ends[stop - 1]), stop == count


@dataclass(slots=True)
class Stat:
    """Latencies in whole microseconds, in the order of the runs."""

    _parts: list[NDArray[np.int64]] = field(default_factory=list)
    count: int = 0

    def add(self, values: NDArray[np.int64]) -> None:
        """Append runs."""
        if len(values):
            self._parts.append(values)
            self.count += len(values)

    @property
    def values(self) -> NDArray[np.int64]:
        """All runs."""
        if len(self._parts) > 1:
            self._parts = [np.concatenate(self._parts)]
        return self._parts[0] if self._parts else np.zeros(0, dtype=np.int64)

    @property
    def first(self) -> int:
        """The first run, 0 without any."""
        return int(self.values[0]) if self.count else 0

    @property
    def average(self) -> float:
        """The mean, 0 without any."""
        return float(self.values.sum()) / self.count if self.count else 0.0

    @property
    def deviation(self) -> int:
        """The population's standard deviation, cut to a whole number."""
        if not self.count:
            return 0
        values = self.values.astype(np.float64)
        variance = float((values * values).sum()) / self.count - self.average**2
        return int(math.sqrt(max(0.0, variance)))

    def percentile(self, percent: int) -> int:
        """Return the element at place count*percent/100 of the sorted runs, 0 without any."""
        if not self.count:
            return 0
        place = self.count * percent // 100
        return int(np.partition(self.values, place)[place])

    def body(self) -> str:
        """Return the line without percentiles."""
        values = self.values
        if not len(values):
            return "count=0"
        last, low, high = int(values[-1]), int(values.min()), int(values.max())
        if len(values) == 1:
            return f"count=1 curr={last}"
        if low == high:
            return f"count={len(values)} curr={last}(all same)"
        return (
            f"count={len(values)} first={self.first} curr={last} min={low} max={high} avg={number(self.average)} "
            f"std={self.deviation}"
        )

    def line(self) -> str:
        """Return the whole line."""
        return f"{self.body()} p5={self.percentile(5)} median={self.percentile(50)} p95={self.percentile(95)}"


_PAGE_KB: Final = 4
#: Memory of a process at its start, and of the interpreter itself.
_PROCESS_KB: Final = 7200.0
_RUNTIME_KB: Final = 2700.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Memory in kB: added by initialisation and by the whole run, and the parts at its end."""

    init_kb: int
    overall_kb: int
    peak_kb: int
    anonymous_kb: int


def run_footprint(interpreter: Interpreter, runs: int) -> Footprint:
    """Return the memory of a run."""
    delegates = interpreter.delegates
    model_kb = interpreter.graph.size_bytes / 1024
    computed = [t for t in interpreter.subgraph.tensors if not t.constant]
    # The arena reuses memory: about the two largest tensors live at a time.
    arena_kb = sum(sorted((t.size_bytes for t in computed), reverse=True)[:3]) / 1024
    anonymous_kb = arena_kb + sum(delegate.memory_kb for delegate in delegates)
    if any(delegate.packs_weights for delegate in delegates):
        anonymous_kb += 1.3 * model_kb
    init_kb = _RUNTIME_KB + model_kb + anonymous_kb
    # The program's memory for each run's time.
    overall_kb = init_kb + 0.03 * arena_kb + 350.0 + runs * 0.024
    return Footprint(
        init_kb=_pages(init_kb),
        overall_kb=_pages(overall_kb),
        peak_kb=_pages(_PROCESS_KB + overall_kb),
        anonymous_kb=_pages(anonymous_kb + 1400.0 + runs * 0.024),
    )


def _pages(kilobytes: float) -> int:
    return int(kilobytes // _PAGE_KB) * _PAGE_KB
