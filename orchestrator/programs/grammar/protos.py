"""The protos that the benchmark programs write: result, where each node ran, and operator profile.

The schemas are built here from the field tables of the three messages, so that no compiler is needed and no
generated code has to match the installed protobuf (docs/decisions says why). They live in a pool of their own:
tensorflow registers messages of the same names.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, Final

from orchestrator.delegates.judging import RuntimeNodes
from orchestrator.errors import OutputParseError
from orchestrator.programs.grammar.litert_lm import Process, Repetition
from orchestrator.programs.grammar.op_profile import OperatorProfile, parse_tables
from orchestrator.records.run import (
    DelegateShare,
    LatencySummary,
    OperatorTime,
    OperatorTypeTime,
    ProfileBlock,
    ToolReport,
)
from orchestrator.units import US_PER_MS

#: Message -> fields as (number, name, type); ``*`` marks a repeated field, a message's name its type.
_SCHEMA: Final[dict[str, tuple[tuple[int, str, str], ...]]] = {
    "BenchmarkResult": (
        (1, "name", "string"),
        (2, "latency_metrics", "LatencyMetrics"),
        (3, "memory_metrics", "MemoryMetrics"),
        (4, "misc_metrics", "MiscMetrics"),
    ),
    "LatencyMetrics": tuple(
        (number, f"{name}_ms", "float")
        for number, name in enumerate(
            ["avg", "min", "max", "stddev", "median", "p5", "p95", "init", "first_inference", "average_warm_up"],
            start=1,
        )
    ),
    "MemoryMetrics": (
        (1, "init_footprint_kb", "int64"),
        (2, "overall_footprint_kb", "int64"),
        (3, "peak_mem_mb", "float"),
    ),
    "MiscMetrics": (
        (1, "model_size_mb", "float"),
        (2, "num_runs", "int32"),
        (3, "num_warmup_runs", "int32"),
        (4, "model_throughput_in_mb_per_sec", "float"),
    ),
    "ModelRuntimeDetails": ((1, "model_name", "string"), (2, "subgraphs", "*RuntimeSubgraph")),
    "RuntimeSubgraph": ((1, "subgraph_id", "int32"), (3, "nodes", "*Node"), (6, "name", "string")),
    "Node": (
        (1, "id", "int32"),
        (2, "name", "string"),
        (3, "type", "string"),
        (8, "delegate_node_details", "DelegateNodeDetails"),
        (9, "delegated_to_node_id", "int32"),
    ),
    "DelegateNodeDetails": ((1, "delegate_name", "string"), (2, "tflite_node_ids_replaced", "*int32")),
    "BenchmarkProfilingData": (
        (1, "model_name", "string"),
        (2, "init_profile", "ModelProfilingData"),
        (3, "runtime_profile", "ModelProfilingData"),
    ),
    "ModelProfilingData": (
        (1, "subgraph_profiles", "*SubGraphProfilingData"),
        (2, "delegate_profiles", "*DelegateProfilingData"),
    ),
    "SubGraphProfilingData": (
        (1, "subgraph_name", "string"),
        (2, "subgraph_index", "int32"),
        (3, "per_op_profiles", "*OpProfileData"),
    ),
    "DelegateProfilingData": ((1, "delegate_name", "string"), (2, "per_op_profiles", "*OpProfileData")),
    "OpProfileData": (
        (1, "node_type", "string"),
        (2, "inference_microseconds", "OpProfilingStat"),
        (3, "mem_kb", "OpProfilingStat"),
        (4, "times_called", "int64"),
        (5, "name", "string"),
        (6, "run_order", "int64"),
    ),
    "OpProfilingStat": (
        (1, "first", "int64"),
        (2, "last", "int64"),
        (3, "avg", "int64"),
        (4, "stddev", "float"),
        (5, "variance", "float"),
        (6, "min", "int64"),
        (7, "max", "int64"),
        (8, "sum", "int64"),
        (9, "count", "int64"),
    ),
    "LitertLmMetricsList": ((1, "metrics", "*LitertLmMetrics"),),
    "LitertLmMetrics": (
        (1, "benchmark_params", "LitertLmParams"),
        # Maps are repeated entries of key and value.
        (2, "init_phase_durations_us", "*LitertLmDuration"),
        (3, "mark_durations_us", "*LitertLmDuration"),
        (4, "prefill_turns", "*LitertLmTurn"),
        (5, "decode_turns", "*LitertLmTurn"),
        (6, "text_to_token_ids_turns", "*LitertLmTurn"),
        (7, "time_to_first_token_seconds", "double"),
        (8, "peak_mem_mb", "float"),
        (9, "peak_private_mb", "float"),
        (10, "peak_dmabuf_mb", "float"),
        (11, "dmabuf_buffer_count", "int64"),
    ),
    "LitertLmParams": ((1, "num_prefill_tokens", "int32"), (2, "num_decode_tokens", "int32")),
    "LitertLmDuration": ((1, "key", "string"), (2, "value", "int64")),
    "LitertLmTurn": ((1, "duration_us", "int64"), (2, "num_tokens", "int64"), (3, "tokens_per_second", "double")),
    # Of perfetto's trace, what its data source android.power writes.
    "Trace": ((1, "packet", "*TracePacket"),),
    "TracePacket": ((8, "timestamp", "int64"), (38, "battery", "BatteryCounters"), (40, "power_rails", "PowerRails")),
    "BatteryCounters": ((1, "charge_counter_uah", "int64"), (3, "current_ua", "int64"), (7, "voltage_uv", "int64")),
    "PowerRails": ((1, "rail_descriptor", "*RailDescriptor"), (2, "energy_data", "*EnergyData")),
    "RailDescriptor": ((1, "index", "int32"), (2, "rail_name", "string")),
    "EnergyData": ((1, "index", "int32"), (2, "timestamp_ms", "int64"), (3, "energy", "int64")),
}
#: Of one process; more were never asked for.
_MOST_REPETITIONS: Final = 10_000
_PACKAGE: Final = "benchfarm.wire"


@lru_cache(maxsize=1)
def _messages() -> dict[str, Any]:
    """Return the message class of each schema by its name."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    scalars = {
        "string": kinds.TYPE_STRING,
        "float": kinds.TYPE_FLOAT,
        "double": kinds.TYPE_DOUBLE,
        "int32": kinds.TYPE_INT32,
        "int64": kinds.TYPE_INT64,
    }
    file = descriptor_pb2.FileDescriptorProto(name="benchfarm/wire.proto", package=_PACKAGE, syntax="proto2")
    for message_name, fields in _SCHEMA.items():
        message = file.message_type.add(name=message_name)
        for number, name, kind in fields:
            repeated, kind_name = kind.startswith("*"), kind.removeprefix("*")
            entry = message.field.add(
                name=name,
                number=number,
                label=kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL,
                type=scalars.get(kind_name, kinds.TYPE_MESSAGE),
            )
            if kind_name not in scalars:
                entry.type_name = f".{_PACKAGE}.{kind_name}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}")) for name in _SCHEMA}


def decode_message(name: str, data: bytes) -> Any:  # noqa: ANN401 - the classes are made at run time
    """Return a message of the schema; raises OutputParseError."""
    from google.protobuf.message import DecodeError

    message = _messages()[name]()
    try:
        message.ParseFromString(data)
    except (DecodeError, ValueError, RuntimeError) as error:
        raise OutputParseError(f"{len(data)} bytes are no {name}: {error}") from error
    return message


def _parsed_text(name: str, text: bytes) -> Any:  # noqa: ANN401
    from google.protobuf import text_format

    message = _messages()[name]()
    try:
        text_format.Parse(text, message, allow_unknown_field=True)
    except (text_format.ParseError, ValueError, RecursionError) as error:
        raise OutputParseError(f"{len(text)} characters are no {name}: {error}") from error
    return message


def _optional(message: Any, name: str, factor: float = 1.0) -> float | None:  # noqa: ANN401
    if not message.HasField(name):
        return None
    # Single precision holds 7 digits; what follows them is noise of the conversion.
    value = float(f"{getattr(message, name) * factor:.7g}")
    return value if math.isfinite(value) else None


def decode_result(data: bytes) -> ToolReport:
    """Decode ``tflite.tools.benchmark.BenchmarkResult``: a report of its figures, which have 7 digits.

    Raises:
        OutputParseError: the bytes are no such message.
    """
    result = decode_message("BenchmarkResult", data)
    latency, memory, misc = result.latency_metrics, result.memory_metrics, result.misc_metrics
    inference = None
    if misc.HasField("num_runs") and misc.num_runs >= 0:
        inference = LatencySummary(
            count=misc.num_runs,
            min_us=_optional(latency, "min_ms", US_PER_MS),
            max_us=_optional(latency, "max_ms", US_PER_MS),
            mean_us=_optional(latency, "avg_ms", US_PER_MS),
            std_us=_optional(latency, "stddev_ms", US_PER_MS),
            p5_us=_optional(latency, "p5_ms", US_PER_MS),
            median_us=_optional(latency, "median_ms", US_PER_MS),
            p95_us=_optional(latency, "p95_ms", US_PER_MS),
        )
    return ToolReport(
        outcome="ok",
        inference=inference,
        init_us=_optional(latency, "init_ms", US_PER_MS),
        first_inference_us=_optional(latency, "first_inference_ms", US_PER_MS),
        warmup_mean_us=_optional(latency, "average_warm_up_ms", US_PER_MS),
        init_memory_mib=_optional(memory, "init_footprint_kb", 1 / 1024),
        overall_memory_mib=_optional(memory, "overall_footprint_kb", 1 / 1024),
        peak_memory_mib=_optional(memory, "peak_mem_mb"),
        model_size_mb=_optional(misc, "model_size_mb"),
    )


def encode_result(report: ToolReport, *, name: str, own: bytes = b"") -> bytes:
    """Return a run's figures as ``tflite.tools.benchmark.BenchmarkResult`` under a name.

    ``own`` is the message that the program wrote, if it did; its figures stay as they are. Otherwise what was read
    from the log is encoded, and what isn't known is left unset. Raises OutputParseError for another ``own``.
    """
    if own:
        result = decode_message("BenchmarkResult", own)
        result.name = name
        return bytes(result.SerializeToString(deterministic=True))
    result = _messages()["BenchmarkResult"](name=name)
    summary = report.inference or LatencySummary(count=0)
    latencies_us = {
        "avg_ms": summary.mean_us if summary.mean_us is not None else report.inference_mean_us,
        "min_ms": summary.min_us,
        "max_ms": summary.max_us,
        "stddev_ms": summary.std_us,
        "median_ms": summary.median_us,
        "p5_ms": summary.p5_us,
        "p95_ms": summary.p95_us,
        "init_ms": report.init_us,
        "first_inference_ms": report.first_inference_us,
        "average_warm_up_ms": report.warmup_mean_us,
    }
    for field, value_us in latencies_us.items():
        if value_us is not None:
            setattr(result.latency_metrics, field, value_us / US_PER_MS)
    for field, value_mib in (
        ("init_footprint_kb", report.init_memory_mib),
        ("overall_footprint_kb", report.overall_memory_mib),
    ):
        if value_mib is not None:
            setattr(result.memory_metrics, field, round(value_mib * 1024))
    if report.peak_memory_mib is not None:
        result.memory_metrics.peak_mem_mb = report.peak_memory_mib
    if report.model_size_mb is not None:
        result.misc_metrics.model_size_mb = report.model_size_mb
    if summary.count:
        result.misc_metrics.num_runs = summary.count
    if report.warmup is not None:
        result.misc_metrics.num_warmup_runs = report.warmup.count
    return bytes(result.SerializeToString(deterministic=True))


def decode_language_model(data: bytes) -> Process:
    """Decode ``litert.lm.proto.LitertLmMetricsList``: the repetitions of a process, and what was asked of it.

    Zero is absent; durations are whole microseconds.

    Raises:
        OutputParseError: the bytes are no such message, or hold no repetition or one that can't be.
    """
    process = Process()
    for metrics in decode_message("LitertLmMetricsList", data).metrics[:_MOST_REPETITIONS]:
        repetition = Repetition(rules=1)
        for phase, turns in (("prefill", metrics.prefill_turns), ("decode", metrics.decode_turns)):
            for turn in turns:
                if turn.duration_us < 0 or turn.num_tokens < 0:
                    raise OutputParseError(f"{len(data)} bytes are no LitertLmMetricsList: a turn below zero")
                repetition.add(phase, turn.num_tokens, float(turn.duration_us))
        repetition.init_us = {item.key: float(item.value) for item in metrics.init_phase_durations_us if item.value > 0}
        process.asked |= {
            phase: asked
            for phase, asked in (
                ("prefill", metrics.benchmark_params.num_prefill_tokens),
                ("decode", metrics.benchmark_params.num_decode_tokens),
            )
            if asked > 0
        }
        process.repetitions.append(repetition)
        # High-water marks of the process: the last ones are the highest.
        process.peak_mib = _optional(metrics, "peak_mem_mb") or process.peak_mib
        process.private_mib = _optional(metrics, "peak_private_mb") or process.private_mib
        process.dmabuf_mib = _optional(metrics, "peak_dmabuf_mb") or process.dmabuf_mib
    if not process.repetitions:
        raise OutputParseError(f"{len(data)} bytes hold no repetition of a LitertLmMetricsList")
    return process


def decode_runtime_info(data: bytes) -> RuntimeNodes:
    """Decode ``tflite.profiling.ModelRuntimeDetails``: which nodes each delegate took, over all subgraphs.

    Raises:
        OutputParseError: the bytes are no such message, or it names no node.
    """
    details = decode_message("ModelRuntimeDetails", data)
    shares: list[DelegateShare] = []
    cpu_operators: list[str] = []
    total = 0
    for index, subgraph in enumerate(details.subgraphs):
        delegates = {
            node.id: node.delegate_node_details.delegate_name
            for node in subgraph.nodes
            if node.HasField("delegate_node_details")
        }
        own = [node for node in subgraph.nodes if node.id not in delegates]
        total += len(own)
        taken: dict[str, int] = {}
        for node in own:
            name = delegates.get(node.delegated_to_node_id) if node.HasField("delegated_to_node_id") else None
            if name is None:
                cpu_operators.append(node.name or node.type)
            else:
                taken[name] = taken.get(name, 0) + 1
        number = subgraph.subgraph_id if subgraph.HasField("subgraph_id") else index
        shares += [
            DelegateShare(
                delegate=name,
                delegated_nodes=count,
                total_nodes=len(own),
                partitions=sum(1 for other in delegates.values() if other == name),
                subgraph=number,
            )
            for name, count in taken.items()
        ]
    if total == 0:
        raise OutputParseError(f"{len(data)} bytes of runtime info name no node of the model")
    return RuntimeNodes(shares=tuple(shares), total_nodes=total, cpu_operators=tuple(cpu_operators))


def _profile(message: Any) -> OperatorProfile:  # noqa: ANN401
    operators: list[OperatorTime] = []
    blocks: list[ProfileBlock] = []
    for phase, model in (("init", message.init_profile), ("run", message.runtime_profile)):
        named = [(f"{item.subgraph_name}", item) for item in model.subgraph_profiles]
        if len(named) == 1:
            named = [("", named[0][1])]
        named += [(f"delegate {item.delegate_name}".rstrip(), item) for item in model.delegate_profiles]
        for block, item in named:
            rows = [_operator(row, phase=phase, block=block) for row in item.per_op_profiles]
            operators += rows
            blocks.append(ProfileBlock(phase=phase, block=block, nodes_executed=len(rows)))
    return OperatorProfile(operators=tuple(operators), types=_types(operators), blocks=tuple(blocks))


def _operator(row: Any, *, phase: str, block: str) -> OperatorTime:  # noqa: ANN401
    time = row.inference_microseconds
    memory = row.mem_kb
    # The average is per call and cut to a whole microsecond; sum and count are exact.
    calls = row.times_called
    mean = (time.sum / time.count if time.count > 0 else float(time.avg)) * calls
    return OperatorTime(
        node_type=row.node_type,
        name=row.name,
        first_us=float(time.first) if time.HasField("first") else None,
        mean_us=mean,
        times_called=float(calls),
        memory_kb=(memory.sum / memory.count if memory.count > 0 else float(memory.avg))
        if row.HasField("mem_kb")
        else None,
        phase=phase,
        block=block,
        run_order=row.run_order if row.HasField("run_order") else None,
    )


def _types(operators: Iterable[OperatorTime]) -> tuple[OperatorTypeTime, ...]:
    grouped: dict[tuple[str, str, str], list[OperatorTime]] = {}
    for row in operators:
        grouped.setdefault((row.phase, row.block, row.node_type), []).append(row)
    return tuple(
        OperatorTypeTime(
            node_type=node_type,
            nodes=len(rows),
            mean_us=sum(row.mean_us for row in rows),
            times_called=sum(row.times_called for row in rows),
            memory_kb=sum(row.memory_kb or 0.0 for row in rows) if any(r.memory_kb is not None for r in rows) else None,
            phase=phase,
            block=block,
        )
        for (phase, block, node_type), rows in grouped.items()
    )


def parse_op_profile(data: bytes, kind: str) -> OperatorProfile:
    """Read an operator profile file; ``kind`` is "proto", "text" (the proto's text form), "csv" or "stdout".

    Raises:
        OutputParseError: the proto can't be decoded.
    """
    if kind == "proto":
        return _profile(decode_message("BenchmarkProfilingData", data))
    if kind == "text":
        return _profile(_parsed_text("BenchmarkProfilingData", data))
    lines = data.decode("utf-8", "replace").splitlines(keepends=True)
    return parse_tables(line.rstrip("\r\n") for line in lines if line.endswith(("\n", "\r")))
