"""What benchmark_model says and writes at the end of a run, in the order of its listeners, and how
long each operator took.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from benchfarm_virtual.delegation import FLEX, GPU, XNNPACK, data_type
from benchfarm_virtual.graph import Operator, Subgraph
from benchfarm_virtual.programs import outputs
from benchfarm_virtual.programs.process import number, write_whole
from benchfarm_virtual.protos import Message

if TYPE_CHECKING:
    from benchfarm_virtual.latency import NodeWork
    from benchfarm_virtual.programs.benchmark import BenchmarkRun, Results
    from benchfarm_virtual.programs.interpreter import Interpreter


_KB_PER_MB: Final = 1024.0


def say_results(run: BenchmarkRun, results: Results) -> None:
    """Say the timings and the memory."""
    say, flags, memory = run.say, run.parameters, results.footprint
    say.info(
        f"Inference timings in us: Init: {results.init_us}, First inference: {results.first_us}, "
        f"Warmup (avg): {number(results.warmup.average)}, Inference (avg): {number(results.runs.average)}"
    )
    say.info(
        "Note: as the benchmark tool itself affects memory footprint, the following is only APPROXIMATE to the "
        "actual memory footprint of the model at runtime. Take the information at your discretion."
    )
    say.info(
        f"Memory footprint delta from the start of the tool (MB): init={number(memory.init_kb / _KB_PER_MB)} "
        f"overall={number(memory.overall_kb / _KB_PER_MB)}"
    )
    if flags.switch("report_peak_memory_footprint"):
        _say_peak(run, results)


def report_details(run: BenchmarkRun, interpreter: Interpreter, results: Results) -> None:
    """Say the profile, and write the files that were asked for."""
    say, flags, memory = run.say, run.parameters, results.footprint
    if flags.switch("enable_op_profiling"):
        _write_profile(run, interpreter, results)
    if flags.switch("export_model_runtime_info") and flags.text("model_runtime_info_output_file"):
        write_whole(
            run.process,
            flags.text("model_runtime_info_output_file"),
            runtime_info(interpreter).to_bytes(),
        )
    path = flags.text("result_file_path")
    if path:
        say.info(f"Saving benchmark result to: {path}")
        peak_kb = memory.peak_kb if flags.switch("report_peak_memory_footprint") else 0
        if write_whole(
            run.process,
            path,
            result_proto(results, interpreter.graph.size_bytes, peak_kb).to_bytes(),
        ):
            say.info(f"Saved benchmark result to: {path}")
        else:
            say.error(f"Failed to save benchmark result to: {path}")
    if flags.text("output_filepath"):
        write_whole(run.process, flags.text("output_filepath"), outputs.raw_outputs(interpreter))
    run.once.max_rss_kb += memory.overall_kb


def _write_profile(run: BenchmarkRun, interpreter: Interpreter, results: Results) -> None:
    path = run.parameters.text("op_profiling_output_file")
    if run.parameters.text("op_profiling_output_mode") != "proto" or not path:
        run.say.warn(
            "A virtual phone writes the times of operators as a proto into a file, in no other form."
        )
        return
    init = initialisation(interpreter)
    rows = operators(interpreter, results.runs.count) if results.runs.count else []
    proto = profiling_proto(init, rows, interpreter.subgraph.name, 0)
    write_whole(run.process, path, proto.to_bytes())


def _say_peak(run: BenchmarkRun, results: Results) -> None:
    memory = results.footprint
    anonymous = memory.anonymous_kb // 1024
    total = max(anonymous, memory.peak_kb // 1024)
    run.say.info(
        f"Overall peak memory footprint (MB) via periodic monitoring: {number(memory.peak_kb / _KB_PER_MB)}"
    )
    run.say.info("Memory status at the end of exeution:")
    run.say.info(f"- VmRSS              : {total} MB")
    run.say.info(f"+ RssAnnon           : {anonymous} MB")
    run.say.info(f"+ RssFile + RssShmem : {total - anonymous} MB")


def result_proto(results: Results, size_bytes: int, peak_kb: int) -> Message:
    """Return a BenchmarkResult."""
    runs, warmup = results.runs, results.warmup
    values = runs.values
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    latency = (
        Message()
        .single(1, "avg_ms", runs.average / 1e3)
        .single(2, "min_ms", low / 1e3)
        .single(3, "max_ms", high / 1e3)
        .single(4, "stddev_ms", runs.deviation / 1e3)
        .single(5, "median_ms", runs.percentile(50) / 1e3)
        .single(6, "p5_ms", runs.percentile(5) / 1e3)
        .single(7, "p95_ms", runs.percentile(95) / 1e3)
        .single(8, "init_ms", results.init_us / 1e3)
        .single(9, "first_inference_ms", results.first_us / 1e3)
        .single(10, "average_warm_up_ms", warmup.average / 1e3)
    )
    memory = (
        Message()
        .integer(1, "init_footprint_kb", results.footprint.init_kb)
        .integer(2, "overall_footprint_kb", results.footprint.overall_kb)
    )
    if peak_kb > 0:
        memory.single(3, "peak_mem_mb", peak_kb / _KB_PER_MB)
    throughput = results.input_bytes / 2**20 / (runs.average / 1e6) if runs.average else 0.0
    misc = (
        Message()
        .single(1, "model_size_mb", size_bytes / 1e6)
        .integer(2, "num_runs", runs.count)
        .integer(3, "num_warmup_runs", warmup.count)
        .single(4, "model_throughput_in_mb_per_sec", throughput)
    )
    return (
        Message()
        .child(2, "latency_metrics", latency)
        .child(3, "memory_metrics", memory)
        .child(4, "misc_metrics", misc)
    )


#: Edge.DataType of model_runtime_info.proto.
_DATA_TYPES: Final = {
    "FLOAT32": 1,
    "INT32": 2,
    "UINT8": 3,
    "INT64": 4,
    "STRING": 5,
    "BOOL": 6,
    "INT16": 7,
    "COMPLEX64": 8,
    "INT8": 9,
    "FLOAT16": 10,
    "FLOAT64": 11,
    "COMPLEX128": 12,
    "UINT64": 13,
    "RESOURCE": 14,
    "VARIANT": 15,
    "UINT32": 16,
    "UINT16": 17,
    "INT4": 18,
    "BFLOAT16": 19,
    "INT2": 20,
    "UINT4": 21,
    "FLOAT8_E4M3FN": 22,
    "FLOAT8_E5M2": 23,
}
_TFLITE_SUBGRAPH: Final = 1


@lru_cache(maxsize=64)
def _edges(subgraph: Subgraph) -> tuple[bytes, ...]:
    """Return the Edge of each tensor."""
    return tuple(
        Message()
        .integer(1, "id", index)
        .text(2, "name", tensor.name)
        .integer(3, "data_type", _DATA_TYPES[tensor.type_name])
        .packed(4, "shape", tensor.shape)
        .text(5, "allocation_type", "kTfLiteMmapRo" if tensor.constant else "kTfLiteArenaRw")
        .integer(6, "layout_type", 0)
        .integer(7, "size", min(tensor.size_bytes, 2**31 - 1))
        .to_bytes()
        for index, tensor in enumerate(subgraph.tensors)
    )


def runtime_info(interpreter: Interpreter) -> Message:
    """Return a ModelRuntimeDetails: each node, and the delegate that runs it."""
    details = Message()
    for plan in interpreter.plans:
        subgraph = Message().integer(1, "subgraph_id", plan.index)
        for edge in _edges(plan.subgraph):
            subgraph.text(2, "edges", edge)
        for node in plan.nodes:
            name = interpreter.shown(node.name)
            type_name = name if node.operator is None or not node.operator.custom else "CUSTOM"
            message = (
                Message()
                .integer(1, "id", node.node_id)
                .text(2, "name", name)
                .text(3, "type", type_name)
                .packed(4, "inputs", node.inputs)
                .packed(5, "outputs", node.outputs)
            )
            if node.delegate:
                replaced = (
                    Message()
                    .text(1, "delegate_name", interpreter.shown(node.delegate))
                    .packed(2, "tflite_node_ids_replaced", node.replaced)
                )
                message.child(8, "delegate_node_details", replaced)
            elif node.node_id in plan.delegated:
                message.integer(9, "delegated_to_node_id", plan.delegated[node.node_id])
            subgraph.child(3, "nodes", message)
        subgraph.packed(4, "execution_plan", tuple(plan.execution))
        subgraph.integer(5, "subgraph_type", _TFLITE_SUBGRAPH).text(6, "name", plan.subgraph.name)
        details.child(2, "subgraphs", subgraph)
    return details


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
