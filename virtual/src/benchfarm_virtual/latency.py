"""The time of an inference on a virtual phone: work of the model, current speed of the phone, and
noise.

An operator costs its multiply-adds at the rate of the unit that runs it, its bytes at the memory's
rate, and a fixed overhead. The rates come from the profile, scaled by the clocks that heat leaves.
On top comes noise as phones have it: a part that stays for a process, a part that drifts, and a
heavy tail.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from benchfarm_virtual.delegation import BUILTIN, Delegate, PlanNode, SubgraphPlan, data_type
from benchfarm_virtual.graph import Operator, Subgraph
from benchfarm_virtual.profiles import (
    AcceleratorSpec,
    ClusterSpec,
    CpuSpec,
    GpuSpec,
    UnitSpec,
    VirtualProfile,
)

#: What a benchmark program itself spends between two inferences (clock calls, listeners).
LOOP_OVERHEAD_US: Final = 1.2
#: Bytes a second between the CPU and a delegate's memory.
_TRANSFER_GBPS: Final = 3.0
#: Operators that only describe or rename data.
_FREE: Final = frozenset({"RESHAPE", "SQUEEZE", "EXPAND_DIMS", "SHAPE", "RANK"})

OpClass = Literal["pointwise", "conv", "depthwise", "dense", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpWork:
    """What one operator has to do."""

    op_class: OpClass
    macs: float
    weight_bytes: float
    activation_bytes: float
    quantized: bool
    free: bool = False


@lru_cache(maxsize=4096)
def op_work(subgraph: Subgraph, operator: Operator) -> OpWork:
    """Return an operator's work."""
    inputs = subgraph.operator_inputs(operator)
    outputs = subgraph.operator_outputs(operator)
    op_class: OpClass = "other"
    if operator.name == "DEPTHWISE_CONV_2D":
        op_class = "depthwise"
    elif operator.name in {"CONV_2D", "TRANSPOSE_CONV"}:
        weights = inputs[1] if len(inputs) > 1 else None
        point = (
            weights is not None
            and len(weights.shape) == 4
            and weights.shape[1] * weights.shape[2] == 1
        )
        op_class = "pointwise" if point else "conv"
    elif operator.name in {"FULLY_CONNECTED", "BATCH_MATMUL"}:
        op_class = "dense"
    activations = sum(t.size_bytes for t in inputs if not t.constant) + sum(
        t.size_bytes for t in outputs
    )
    return OpWork(
        op_class=op_class,
        macs=float(subgraph.macs(operator)),
        weight_bytes=float(sum(t.size_bytes for t in inputs if t.constant)),
        activation_bytes=float(activations),
        quantized=data_type(subgraph, operator) in {"INT8", "UINT8"},
        free=operator.name in _FREE,
    )


def place_threads(
    profile: VirtualProfile, *, threads: int, affinity: int, group: str, stray_draw: float
) -> tuple[int, ...]:
    """Return the cores that the scheduler gives to ``threads`` busy threads.

    Biggest first within the affinity mask. ``stray_draw`` (0 to 1) decides whether one thread of an
    unpinned shell command stays on a small core.
    """
    allowed = [
        cpu for cluster in reversed(profile.clusters) for cpu in cluster.cpus if affinity >> cpu & 1
    ]
    count = max(1, threads)
    chosen = allowed[:count]
    unpinned = len(allowed) == profile.cpu_count
    little = profile.clusters[0].cpus
    if unpinned and group == "shell" and stray_draw < profile.scheduling.shell_stray and count > 1:
        chosen = [*chosen[:-1], little[0]] if little[0] not in chosen else chosen
    return tuple(chosen)


def unpinned_factor(profile: VirtualProfile, *, affinity: int, group: str) -> float:
    """Return the factor of scheduling on a program's times, by its cores and group."""
    if group == "top-app":
        return profile.scheduling.top_app_factor
    pinned = bin(affinity & ((1 << profile.cpu_count) - 1)).count("1") < profile.cpu_count
    return 1.0 if pinned else profile.scheduling.shell_factor


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """A unit's speed now: 10**9 multiply-adds a second per class and type, and the rest of an
    operator's cost.
    """

    f32_gmacs: float
    int8_gmacs: float
    memory_gbps: float
    op_overhead_us: float
    conv_share: float
    depthwise_share: float
    #: Bytes of an activation as a share of the file's (0.5 for fp16).
    byte_share: float = 1.0
    #: What going there and back costs a unit with a memory of its own; None: it has none.
    fixed_us: float | None = None

    def op_us(self, work: OpWork) -> float:
        """Return the time of one operator."""
        if work.free:
            return 0.1 * self.op_overhead_us
        rate = self.int8_gmacs if work.quantized else self.f32_gmacs
        share = {"conv": self.conv_share, "depthwise": self.depthwise_share, "other": 0.25}.get(
            work.op_class, 1.0
        )
        compute_us = work.macs / max(1e-6, rate * share) / 1e3
        moved = (work.weight_bytes + work.activation_bytes) * (
            1.0 if work.quantized else self.byte_share
        )
        return compute_us + moved / self.memory_gbps / 1e3 + self.op_overhead_us


def cpu_speed(
    profile: VirtualProfile,
    cpus: Sequence[int],
    shares: dict[int, float],
    *,
    xnnpack: bool,
    fp16: bool = False,
    memory_share: float = 1.0,
) -> Speed:
    """Return the CPU's speed for threads on some cores, with each core's share of its highest clock."""
    spec = profile.cpu
    by_cpu: dict[int, ClusterSpec] = {
        cpu: cluster for cluster in profile.clusters for cpu in cluster.cpus
    }
    count = len(cpus)
    gain = 1 + (count - 1) * spec.parallel_share
    f32 = _combined([by_cpu[c].f32_gmacs * shares[c] for c in cpus]) * gain
    int8 = _combined([by_cpu[c].int8_gmacs * shares[c] for c in cpus]) * gain
    clock = sum(shares[c] for c in cpus) / count
    size = max(by_cpu[c].f32_gmacs for c in cpus) / profile.clusters[-1].f32_gmacs
    if xnnpack and fp16:
        f32 *= spec.fp16_gain
    if not xnnpack:
        f32, int8 = f32 * spec.builtin_f32_share, int8 * spec.builtin_int8_share
    return Speed(
        f32_gmacs=f32,
        int8_gmacs=int8,
        memory_gbps=memory_share * _memory_gbps(spec, count) * min(1.0, 0.5 + 0.5 * clock),
        op_overhead_us=spec.op_overhead_us / max(0.05, clock * math.sqrt(size)),
        conv_share=spec.conv_share,
        depthwise_share=spec.depthwise_share,
        byte_share=0.5 if fp16 else 1.0,
    )


def _combined(rates: Sequence[float]) -> float:
    """Return the mean rate of threads that share work: the slowest holds the others up a little."""
    return 0.75 * sum(rates) / len(rates) + 0.25 * min(rates)


def _memory_gbps(spec: CpuSpec, threads: int) -> float:
    return spec.memory_gbps * min(1.0, 0.55 + 0.15 * (threads - 1))


def gpu_speed(
    gpu: GpuSpec, share: float, *, fp16: bool, backend: str, memory_share: float = 1.0
) -> Speed:
    """Return the GPU's speed with its share of the highest clock."""
    slow = gpu.gl_factor if backend == "gl" else 1.0
    rate = (gpu.fp16_gmacs if fp16 else gpu.fp32_gmacs) * share / slow
    speed = _unit_speed(gpu, rate, 0.9 * rate)
    return replace(
        speed,
        memory_gbps=memory_share * gpu.memory_gbps / slow,
        op_overhead_us=gpu.op_overhead_us / max(0.1, share),
        byte_share=0.5 if fp16 else 1.0,
    )


def accelerator_speed(device: AcceleratorSpec) -> Speed:
    """Return the speed of a device that a delegate drives."""
    return _unit_speed(device, device.f32_gmacs, device.int8_gmacs)


def _unit_speed(unit: UnitSpec, f32_gmacs: float, int8_gmacs: float) -> Speed:
    return Speed(
        f32_gmacs=f32_gmacs,
        int8_gmacs=int8_gmacs,
        memory_gbps=unit.memory_gbps,
        op_overhead_us=unit.op_overhead_us,
        conv_share=unit.conv_share,
        depthwise_share=unit.depthwise_share,
        byte_share=0.5,
        fixed_us=unit.fixed_us,
    )


#: The speeds of everything that may run a part of a model as they are now; BUILTIN's are also those
#: of delegates that compute on the CPU as the runtime does.
Speeds = Mapping[Delegate, Speed]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWork:
    """One node of a plan with its operators' work; ``unit`` is its delegate, or BUILTIN."""

    node: PlanNode
    unit: Delegate
    works: tuple[OpWork, ...]
    boundary_bytes: float = 0.0

    def op_times_us(self, speeds: Speeds) -> list[float]:
        """Return the time of each of its operators."""
        speed = speeds.get(self.unit, speeds[BUILTIN])
        return [speed.op_us(work) for work in self.works]

    def time_us(self, speeds: Speeds) -> float:
        """Return its time: its operators', and for a delegate with its own memory what going there
        and back costs.
        """
        time_us = sum(self.op_times_us(speeds))
        fixed_us = speeds.get(self.unit, speeds[BUILTIN]).fixed_us
        if fixed_us is not None:
            time_us += fixed_us + self.boundary_bytes / _TRANSFER_GBPS / 1e3
        return time_us


def plan_work(plan: SubgraphPlan) -> list[NodeWork]:
    """Return the work of each node that a plan executes."""
    return [_node_work(plan, plan.nodes[node_id]) for node_id in plan.execution]


def _node_work(plan: SubgraphPlan, node: PlanNode) -> NodeWork:
    subgraph = plan.subgraph
    if node.operator is not None:
        return NodeWork(node=node, unit=BUILTIN, works=(op_work(subgraph, node.operator),))
    replaced = [plan.nodes[i].operator for i in node.replaced]
    boundary = 0.0
    for index in (*node.inputs, *node.outputs):
        tensor = subgraph.tensor(index)
        if tensor is not None and not tensor.constant:
            boundary += tensor.size_bytes
    works = [op_work(subgraph, operator) for operator in replaced if operator is not None]
    return NodeWork(
        node=node, unit=node.delegate or BUILTIN, works=tuple(works), boundary_bytes=boundary
    )


class Noise:
    """The noise of one process: the same numbers again from the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        #: Placement in memory, frequency governor's mood: it stays for the process.
        self.process_factor = float(np.exp(self._random.normal(0.0, 0.015)))
        self.stray_draw = float(self._random.random())
        self._drift = float(self._random.normal(0.0, 0.006))

    def uniform(self) -> float:
        """Return a number between 0 and 1."""
        return float(self._random.random())

    def first_factor(self) -> float:
        """Return the factor of the first inference's time (cold caches, lazy allocations)."""
        return 1.3 + float(self._random.gamma(2.0, 0.25))

    def samples_us(self, base_us: float, count: int) -> NDArray[np.int64]:
        """Return ``count`` latencies around a base, in whole microseconds as the program counts
        them.
        """
        random = self._random
        self._drift = 0.97 * self._drift + float(random.normal(0.0, 0.0018))
        level = base_us * self.process_factor * math.exp(self._drift)
        factors = 1.0 + 0.004 * random.standard_gamma(1.5, count)
        late = random.random(count) < 0.03
        hits = int(late.sum())
        if hits:
            # Interrupts and other threads: mostly a few per cent, now and then a lot more (Pareto
            # tail).
            factors[late] += np.minimum(4.0, 0.03 * random.pareto(1.6, hits) + 0.02)
        latencies = level * factors
        if hits:
            latencies[late] += random.exponential(25.0, hits)
        return np.asarray(np.floor(latencies + random.random(count) * 0.999), dtype=np.int64)
