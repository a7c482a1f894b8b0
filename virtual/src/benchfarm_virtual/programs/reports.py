"""Output and files of benchmark_model at the end of a run, in the order of its listeners, and the
times of its operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from benchfarm_virtual.graph import Subgraph
from benchfarm_virtual.programs import outputs
from benchfarm_virtual.programs.process import number, write_content
from benchfarm_virtual.protos import Value, message

if TYPE_CHECKING:
    from benchfarm_virtual.commands.invocation import Invocation
    from benchfarm_virtual.delegation import PlanNode, SubgraphPlan
    from benchfarm_virtual.latency import NodeWork
    from benchfarm_virtual.programs.benchmark import BenchmarkRun, Results
    from benchfarm_virtual.programs.flags import Parameters
    from benchfarm_virtual.programs.interpreter import Interpreter


_KB_PER_MB: Final = 1024.0


def say_results(run: BenchmarkRun, results: Results) -> None:
    """Print the timings and the memory."""
    say, flags, footprint = run.say, run.parameters, results.footprint
    say.info(
        f"Inference timings in us: Init: {results.init_us}, First inference: {results.first_us}, "
        f"Warmup (avg): {number(results.warmup.average)}, Inference (avg): {number(results.runs.average)}"
    )
    say.info(
        "Note: as the benchmark tool itself affects memory footprint, the following is only APPROXIMATE to the "
        "actual memory footprint of the model at runtime. Take the information at your discretion."
    )
    say.info(
        f"Memory footprint delta from the start of the tool (MB): init={number(footprint.init_kb / _KB_PER_MB)} "
        f"overall={number(footprint.overall_kb / _KB_PER_MB)}"
    )
    if flags.switch("report_peak_memory_footprint"):
        _say_peak(run, results)


def report_details(run: BenchmarkRun, interpreter: Interpreter, results: Results) -> None:
    """Write the profile and the requested files."""
    say, flags = run.say, run.parameters
    if flags.switch("enable_op_profiling"):
        _write_profile(run, interpreter, results)
    if flags.switch("export_model_runtime_info") and flags.text("model_runtime_info_output_file"):
        write_content(
            run.call,
            flags.text("model_runtime_info_output_file"),
            runtime_info(interpreter),
        )
    save_result(run.call, flags, results, say.info, say.error)
    if flags.text("output_filepath"):
        write_content(run.call, flags.text("output_filepath"), outputs.raw_outputs(interpreter))


def save_result(
    call: Invocation,
    flags: Parameters,
    results: Results,
    log: Callable[[str], None],
    log_error: Callable[[str], None],
) -> None:
    """Write the result as a proto where that was requested, and log it."""
    path = flags.text("result_file_path")
    if not path:
        return
    log(f"Saving benchmark result to: {path}")
    peak_kb = results.footprint.peak_kb if flags.switch("report_peak_memory_footprint") else 0
    if write_content(call, path, result_proto(results, peak_kb)):
        log(f"Saved benchmark result to: {path}")
    else:
        log_error(f"Failed to save benchmark result to: {path}")


def _write_profile(run: BenchmarkRun, interpreter: Interpreter, results: Results) -> None:
    path = run.parameters.text("op_profiling_output_file")
    if run.parameters.text("op_profiling_output_mode") != "proto" or not path:
        run.say.warn(
            "A virtual phone writes the times of operators as a proto into a file, in no other form."
        )
        return
    name = interpreter.subgraph.name
    init_us = np.array([round(interpreter.init_us)], dtype=np.int64)
    init = _profile([("AllocateTensors", "AllocateTensors/0", init_us)], name)
    rows = _profile(_operators(interpreter, results.runs.count), name)
    write_content(run.call, path, message({2: init, 3: rows}))


def _say_peak(run: BenchmarkRun, results: Results) -> None:
    footprint = results.footprint
    anonymous_mb = footprint.anonymous_kb // 1024
    total_mb = max(anonymous_mb, footprint.peak_kb // 1024)
    run.say.info(
        f"Overall peak memory footprint (MB) via periodic monitoring: {number(footprint.peak_kb / _KB_PER_MB)}"
    )
    run.say.info("Memory status at the end of exeution:")
    run.say.info(f"- VmRSS              : {total_mb} MB")
    run.say.info(f"+ RssAnnon           : {anonymous_mb} MB")
    run.say.info(f"+ RssFile + RssShmem : {total_mb - anonymous_mb} MB")


def result_proto(results: Results, peak_kb: int) -> bytes:
    """Return a BenchmarkResult."""
    runs, warmup = results.runs, results.warmup
    values = runs.values
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    latency: dict[int, Value] = {
        1: runs.average / 1e3,
        2: low / 1e3,
        3: high / 1e3,
        4: runs.deviation / 1e3,
        5: runs.percentile(50) / 1e3,
        6: runs.percentile(5) / 1e3,
        7: runs.percentile(95) / 1e3,
        8: results.init_us / 1e3,
        9: results.first_us / 1e3,
        10: warmup.average / 1e3,
    }
    memory_fields: dict[int, Value] = {
        1: results.footprint.init_kb,
        2: results.footprint.overall_kb,
    }
    if peak_kb > 0:
        memory_fields[3] = peak_kb / _KB_PER_MB
    throughput = results.input_bytes / 2**20 / (runs.average / 1e6) if runs.average else 0.0
    misc: dict[int, Value] = {
        1: results.model_bytes / 1e6,
        2: runs.count,
        3: warmup.count,
        4: throughput,
    }
    return message({2: message(latency), 3: message(memory_fields), 4: message(misc)})


#: Edge.DataType of model_runtime_info.proto.
_DATA_TYPES: Final = (
    " FLOAT32 INT32 UINT8 INT64 STRING BOOL INT16 COMPLEX64 INT8 FLOAT16 FLOAT64 COMPLEX128 UINT64 "
    "RESOURCE VARIANT UINT32 UINT16 INT4 BFLOAT16 INT2 UINT4 FLOAT8_E4M3FN FLOAT8_E5M2"
)
_TFLITE_SUBGRAPH: Final = 1


@lru_cache(maxsize=64)
def _edges(subgraph: Subgraph) -> list[bytes]:
    """Return the Edge of each tensor."""
    types = _DATA_TYPES.split(" ")
    return [
        message(
            {
                1: index,
                2: tensor.name,
                3: types.index(tensor.type_name),
                4: tensor.shape,
                5: "kTfLiteMmapRo" if tensor.constant else "kTfLiteArenaRw",
                6: 0,
                7: min(tensor.size_bytes, 2**31 - 1),
            }
        )
        for index, tensor in enumerate(subgraph.tensors)
    ]


def runtime_info(interpreter: Interpreter) -> bytes:
    """Return a ModelRuntimeDetails: each node, and the delegate that runs it."""
    subgraphs = [
        message(
            {
                1: plan.index,
                2: _edges(plan.subgraph),
                3: [_node(plan, node) for node in plan.nodes],
                4: tuple(plan.execution),
                5: _TFLITE_SUBGRAPH,
                6: plan.subgraph.name,
            }
        )
        for plan in interpreter.plans
    ]
    return message({2: subgraphs})


def _node(plan: SubgraphPlan, node: PlanNode) -> bytes:
    is_custom = node.operator is not None and node.operator.custom
    fields: dict[int, Value] = {
        1: node.node_id,
        2: node.name,
        3: "CUSTOM" if is_custom else node.name,
        4: node.inputs,
        5: node.outputs,
    }
    if node.delegate is not None:
        fields[8] = message({1: node.name, 2: node.replaced})
    elif node.node_id in plan.delegated:
        fields[9] = plan.delegated[node.node_id]
    return message(fields)


_MOST_RUNS: Final = 4000


#: An operator's type and name, and its times over the runs in whole microseconds.
_Row = tuple[str, str, NDArray[np.int64]]


def _operators(interpreter: Interpreter, runs: int) -> list[_Row]:
    """Return the operators of the plan in the order in which they ran."""
    hardware = interpreter.run.hardware
    speeds = interpreter.speeds(hardware.core_shares(), hardware.gpu_share())
    draw, count = interpreter.run.noise.samples_us, min(_MOST_RUNS, runs)
    rows: list[_Row] = []
    for work in interpreter.works if runs else ():
        labels = _labels(interpreter, work)
        times = work.op_times_us(speeds) if len(labels) > 1 else [work.time_us(speeds)]
        rows += [
            (*label, draw(base_us, count)) for label, base_us in zip(labels, times, strict=True)
        ]
    return rows


def _labels(interpreter: Interpreter, work: NodeWork) -> list[tuple[str, str]]:
    """Return node types and names; one per operator for a delegate that shows its own."""
    plan, node = interpreter.plan, work.node
    if (label := work.unit.label) is None:
        names = ", ".join(plan.subgraph.tensors[i].name for i in node.outputs)
        return [(node.name, f"[{names}]:{node.node_id}")]
    inner = [plan.nodes[i].operator for i in node.replaced]
    labels = [
        label(plan.subgraph, operator, index)
        for index, operator in enumerate(op for op in inner if op is not None)
    ]
    return [(text, f"Delegate/{text}:{index}") for index, text in enumerate(labels)]


def _statistics(values: NDArray[np.int64]) -> bytes:
    if not len(values):
        return b""
    whole = (values[0], values[-1], values.mean(), values.min(), values.max(), values.sum())
    first, last, mean, low, high, total = map(int, whole)
    deviation, variance = float(int(values.std())), float(int(values.var()))
    return message(
        {1: first, 2: last, 3: mean, 4: deviation, 5: variance, 6: low, 7: high, 8: total}
        | {9: len(values)}
    )


def _profile(rows: Sequence[_Row], subgraph_name: str) -> bytes:
    operators = [
        message(
            {
                1: node_type,
                2: _statistics(times),
                3: _statistics(np.zeros_like(times)),
                4: 1,
                5: name,
                6: order,
            }
        )
        for order, (node_type, name, times) in enumerate(rows)
    ]
    return message({1: message({1: subgraph_name, 2: 0, 3: operators})})
