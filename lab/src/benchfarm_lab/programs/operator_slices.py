"""The slices that the runtime writes into the phone's trace when ``debug.tflite.trace`` is 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from benchfarm_lab.contract import TraceEvent

if TYPE_CHECKING:
    from benchfarm_lab.programs.interpreter import Interpreter

#: Share of an inference that isn't any operator's.
_BETWEEN: Final = 0.02
#: What writing one slice costs, in microseconds.
SLICE_US: Final = 1.5
_PROPERTY: Final = "debug.tflite.trace"


class OperatorSlices:
    """Writes ``OP@node/subgraph`` around each operator, and ``invoke@-1/0`` around each inference."""

    def __init__(self, interpreter: Interpreter) -> None:
        process = interpreter.run.process
        self._interpreter = interpreter
        self._sink = process.trace
        self._process = process
        #: As the real runtime: read once, when the interpreter is made, and only "1" counts.
        self._is_on = process.trace is not None and process.props.get(_PROPERTY, "") == "1"

    @property
    def is_recorded(self) -> bool:
        """Whether slices are written now."""
        return self._is_on and self._sink is not None and self._sink.wants(self._process.argv[0])

    @property
    def cost_us(self) -> float:
        """What writing its slices adds to one inference."""
        return SLICE_US * (1 + len(self._interpreter.works)) if self.is_recorded else 0.0

    def write(self, starts_us: NDArray[np.float64], latencies_us: NDArray[np.float64]) -> None:
        """Write the slices of inferences that begin ``starts_us`` from now and take ``latencies_us``."""
        if not self.is_recorded or self._sink is None:
            return
        pid = self._process.pid
        cpu = self._interpreter.threads().cpus[0]
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
        self._sink.write(pid, self._process.argv[0], self._process.uid, events)

    def _shares(self) -> tuple[list[str], list[float]]:
        interpreter = self._interpreter
        hardware = interpreter.run.bench.hardware
        speeds = interpreter.speeds(hardware.core_shares(), hardware.gpu_share())
        times = [work.time_us(speeds) for work in interpreter.works]
        total = sum(times) or 1.0
        names = [f"{work.node.name}@{work.node.node_id}/{interpreter.primary}" for work in interpreter.works]
        return names, [time / total * (1.0 - _BETWEEN) for time in times]
