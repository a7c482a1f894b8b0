"""Operator profiles of a run: how long each operator took, as tables (text, CSV) and as protos."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from benchfarm_virtual.delegation import FLEX, GPU, XNNPACK, data_type
from benchfarm_virtual.graph import Operator, Subgraph
from benchfarm_virtual.protos import Message

if TYPE_CHECKING:
    from benchfarm_virtual.latency import NodeWork
    from benchfarm_virtual.programs.interpreter import Interpreter

_MOST_RUNS: Final = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class OpTimes:
    """One operator's times over the runs, in whole microseconds, and the memory that it added."""

    node_type: str
    name: str
    times: NDArray[np.int64]
    mem_kb: float = 0.0
    times_called: int = 1


def initialisation(interpreter: Interpreter) -> list[OpTimes]:
    """Return what the initialisation consisted of."""
    changed_us = max(60.0, interpreter.delegate_us)
    rows = []
    if any(plan.delegated for plan in interpreter.plans):
        rows.append(
            _once("ModifyGraphWithDelegate", changed_us, interpreter.footprint(0).init_kb * 0.4)
        )
    allocated_us = max(35.0, interpreter.init_us - interpreter.delegate_us - 200.0)
    rows.append(_once("AllocateTensors", allocated_us, interpreter.footprint(0).arena_kb))
    return rows


def _once(name: str, duration_us: float, mem_kb: float) -> OpTimes:
    times = np.array([round(duration_us)], dtype=np.int64)
    return OpTimes(
        node_type=name, name=f"{name}/0", times=times, mem_kb=float(int(mem_kb) // 4 * 4)
    )


def operators(interpreter: Interpreter, runs: int) -> list[OpTimes]:
    """Return the operators of the plan in the order in which they ran."""
    hardware = interpreter.run.bench.hardware
    speeds = interpreter.speeds(hardware.core_shares(), hardware.gpu_share())
    rows: list[OpTimes] = []
    for work in interpreter.works:
        labels = _labels(interpreter, work)
        times = work.op_times_us(speeds)
        if len(labels) == 1:
            times = [work.time_us(speeds)]
        for (node_type, name), base_us in zip(labels, times, strict=True):
            rows.append(
                OpTimes(node_type=node_type, name=name, times=_spread(interpreter, base_us, runs))
            )
    return rows


def _spread(interpreter: Interpreter, base_us: float, runs: int) -> NDArray[np.int64]:
    return interpreter.run.noise.samples_us(base_us, min(_MOST_RUNS, max(1, runs)))


def _labels(interpreter: Interpreter, work: NodeWork) -> list[tuple[str, str]]:
    """Return node types and names: of a delegate that shows its own operators, one for each."""
    plan, node = interpreter.plan, work.node
    if node.operator is not None or work.unit not in {XNNPACK, GPU}:
        names = ", ".join(plan.subgraph.tensors[i].name for i in node.outputs)
        return [(node.name if work.unit != FLEX else FLEX, f"[{names}]:{node.node_id}")]
    inner = [plan.nodes[i].operator for i in node.replaced]
    found = []
    for index, operator in enumerate(op for op in inner if op is not None):
        label = (
            _xnnpack_type(plan.subgraph, operator)
            if work.unit == XNNPACK
            else _gpu_type(operator, index)
        )
        found.append((label, f"Delegate/{label}:{index}"))
    return found


_TYPE_TAGS: Final = {"FLOAT32": "F32", "FLOAT16": "F16", "INT8": "QS8", "UINT8": "QU8"}
_XNNPACK_NAMES: Final = {
    "FULLY_CONNECTED": "Fully Connected (NC, {0}) GEMM",
    "MEAN": "Mean (ND) Reduce2",
    "SOFTMAX": "Softmax (NC, {0})",
    "RESHAPE": "Static Reshape (NC)",
    "ADD": "Add (ND, {0})",
    "MUL": "Multiply (ND, {0})",
    "SUB": "Subtract (ND, {0})",
    "AVERAGE_POOL_2D": "Average Pooling (NHWC, {0})",
    "MAX_POOL_2D": "Max Pooling (NHWC, {0})",
    "CONCATENATION": "Concatenate (ND, X32)",
    "PAD": "Constant Pad (ND, X32)",
    "LOGISTIC": "Sigmoid (NC, {0})",
    "HARD_SWISH": "HardSwish (NC, {0})",
    "TRANSPOSE": "Transpose (ND, X32)",
    "RESIZE_BILINEAR": "Resize Bilinear (NHWC, {0})",
    "BATCH_MATMUL": "Batch Matrix Multiply (NC, {0})",
}


def _xnnpack_type(subgraph: Subgraph, operator: Operator) -> str:
    tag = _TYPE_TAGS.get(data_type(subgraph, operator), "F32")
    if operator.name == "DEPTHWISE_CONV_2D":
        return f"Convolution (NHWC, {tag.replace('QS8', 'QC8')}) DWConv"
    if operator.name == "CONV_2D":
        weights = subgraph.tensor(operator.inputs[1])
        point = (
            weights is not None
            and len(weights.shape) == 4
            and weights.shape[1] * weights.shape[2] == 1
        )
        tag = tag.replace("QS8", "QC8")
        return f"Fully Connected (NC, {tag}) GEMM" if point else f"Convolution (NHWC, {tag}) IGEMM"
    pattern = _XNNPACK_NAMES.get(operator.name)
    return (
        pattern.format(tag) if pattern else f"{operator.name.replace('_', ' ').title()} (NC, {tag})"
    )


def _gpu_type(operator: Operator, index: int) -> str:
    name = {"CONV_2D": "convolution_2d", "DEPTHWISE_CONV_2D": "depthwise_convolution"}.get(
        operator.name, operator.name.lower()
    )
    return f"{name} {index}"


# Tables
# ---------------------------------------------------------------------------------------------------------------


# Protos
# ---------------------------------------------------------------------------------------------------------------


def _stat_message(values: NDArray[np.int64]) -> Message:
    count = len(values)
    if not count:
        return Message()
    deviation = int(values.std())
    return (
        Message()
        .integer(1, "first", int(values[0]))
        .integer(2, "last", int(values[-1]))
        .integer(3, "avg", int(values.mean()))
        .single(4, "stddev", deviation)
        .single(5, "variance", int(values.var()))
        .integer(6, "min", int(values.min()))
        .integer(7, "max", int(values.max()))
        .integer(8, "sum", int(values.sum()))
        .integer(9, "count", count)
    )


def _profile_message(rows: Sequence[OpTimes], subgraph_name: str, index: int) -> Message:
    part = Message().text(1, "subgraph_name", subgraph_name).integer(2, "subgraph_index", index)
    for order, row in enumerate(rows):
        memory = np.full(len(row.times), int(row.mem_kb), dtype=np.int64)
        message = (
            Message()
            .text(1, "node_type", row.node_type)
            .child(2, "inference_microseconds", _stat_message(row.times))
            .child(3, "mem_kb", _stat_message(memory))
            .integer(4, "times_called", row.times_called)
            .text(5, "name", row.name)
            .integer(6, "run_order", order)
        )
        part.child(3, "per_op_profiles", message)
    return Message().child(1, "subgraph_profiles", part)


def profiling_proto(
    init: Sequence[OpTimes], rows: Sequence[OpTimes], subgraph_name: str, index: int
) -> Message:
    """Return a BenchmarkProfilingData."""
    return (
        Message()
        .child(2, "init_profile", _profile_message(init, subgraph_name, index))
        .child(3, "runtime_profile", _profile_message(rows, subgraph_name, index))
    )
