"""Operator profiles: tables in the log, the same as CSV, and the proto; and all protos that the
programs write.

Three tables make a block: run order, top ten, summary by node type. Programs of different years
disagree on columns (``[start]`` until 2021) and on padding, so columns are known by the header row.
Times come back in microseconds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from orchestrator.delegates.judging import RuntimeNodes
from orchestrator.errors import OutputParseError
from orchestrator.reading.lines import TABLE_TITLE, parse_stats
from orchestrator.records import frozen
from orchestrator.records.case import grouped
from orchestrator.records.run import (
    SUMMARY_FIELDS,
    DelegateShare,
    LatencySummary,
    OperatorTime,
    OperatorTypeTime,
    ProfileBlock,
    ToolReport,
)
from orchestrator.units import US_PER_MS, parse_number

INIT_TITLE: Final = "Profiling Info for Benchmark Initialization:"
RUN_TITLE: Final = "Operator-wise Profiling Info for Regular Benchmark Runs:"
_BLOCK: Final = re.compile(
    r"(?:Primary graph|Subgraph) \((?:index: \d+, )?name: (?P<name>.*)\) profile:$"
)
_TIMINGS: Final = re.compile(
    r"(?:Subgraph \(.*\) |Delegate internal: )?Timings \(microseconds\): (?P<stats>.*)$"
)
_NODES: Final = re.compile(r"Number of nodes executed: (\d{1,9})$", re.ASCII)
_COLUMN_NAMES: Final = {"avg_ms": "avg ms"}
_GAP: Final = re.compile(r"\s{2,}|\t")


@frozen
class OperatorProfile:
    """All tables of one run."""

    operators: tuple[OperatorTime, ...] = ()
    types: tuple[OperatorTypeTime, ...] = ()
    blocks: tuple[ProfileBlock, ...] = ()


_MOST_BLOCKS: Final = 10_000
#: More rows than any model has; the rest of a table isn't kept.
_MOST_ROWS: Final = 100_000


@dataclass(slots=True)
class TableReader:
    """Reads operator tables line by line; skips lines before the first header row, and rows with
    other columns.
    """

    operators: list[OperatorTime] = field(default_factory=list)
    types: list[OperatorTypeTime] = field(default_factory=list)
    blocks: list[ProfileBlock] = field(default_factory=list)
    phase: str = "run"
    block: str = ""
    table: str = ""
    columns: tuple[str, ...] = ()
    separator: str = "\t"
    nodes_executed: int | None = None
    has_start_column: bool = False
    #: Rows that were left out because there are too many.
    left_out: int = 0
    _run_orders: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether nothing of a profile was read."""
        return not (
            self.operators or self.types or self.blocks or self.table or self.nodes_executed
        )

    def feed(self, raw: str) -> None:
        """Read one line."""
        text = raw.strip()
        if text.endswith(":") and self._title(text):
            return
        match = TABLE_TITLE.fullmatch(text) if text.startswith("=") else None
        if match:
            self.table, self.columns = match[1], ()
            return
        if text.startswith("Number of nodes") and (match := _NODES.match(text)):
            self.nodes_executed = int(match[1])
            return
        if "Timings (" in text and (match := _TIMINGS.match(text)):
            self.end_block(parse_stats(match["stats"]))
            return
        if self.table and text:
            self._row(raw, text)

    def _title(self, text: str) -> bool:
        if text.endswith((INIT_TITLE, RUN_TITLE)):
            self.phase, self.block = "init" if text.endswith(INIT_TITLE) else "run", ""
        elif match := _BLOCK.search(text):
            self.block = match["name"]
        elif text.startswith("Delegate internal"):
            self.block = "delegate"
        else:
            return False
        self.table = ""
        return True

    def end_block(self, timings: LatencySummary | None) -> None:
        """Close the block that is open, with its totals where they were printed."""
        if len(self.blocks) < _MOST_BLOCKS:
            block = ProfileBlock(
                phase=self.phase,
                block=self.block,
                nodes_executed=self.nodes_executed,
                timings=timings,
                has_start_column=self.has_start_column,
            )
            self.blocks.append(block)
            self.table, self.columns, self.nodes_executed, self.has_start_column = (
                "",
                (),
                None,
                False,
            )

    def finish(self) -> OperatorProfile:
        """Return the profile; a table that was cut off before its totals keeps its rows."""
        if self.table or self.nodes_executed is not None:
            self.end_block(None)
        return OperatorProfile(
            operators=tuple(self.operators), types=tuple(self.types), blocks=tuple(self.blocks)
        )

    def _row(self, raw: str, text: str) -> None:
        if not self.columns:
            self._header(raw, text)
            return
        rows: list[OperatorTime] | list[OperatorTypeTime]
        if self.table == "Run Order":
            rows = self.operators
        elif self.table == "Summary by node type":
            rows = self.types
        else:
            return
        if len(rows) >= _MOST_ROWS:
            self.left_out += 1
            return
        cells = self._cells(raw, text)
        if cells is None:
            return
        mean, times_called, memory_kb = map(
            _figure, map(cells.get, ("avg ms", "times called", "mem kb"))
        )
        if mean is None or times_called is None:
            return
        if self.table == "Run Order" and cells.get("name"):
            self._operator(cells, mean, times_called, memory_kb)
        elif self.table != "Run Order" and (nodes := _figure(cells.get("count"))) is not None:
            row = OperatorTypeTime(
                node_type=cells["node type"],
                nodes=round(nodes),
                mean_us=_us(mean),
                times_called=times_called,
                memory_kb=memory_kb,
                phase=self.phase,
                block=self.block,
            )
            self.types.append(row)

    def _header(self, raw: str, text: str) -> None:
        if text.lower().startswith("node type, "):
            self.separator = ", "
            names = text.split(", ")
        elif text.lower().startswith("[node type]"):
            self.separator = "\t" if "\t" in text else " "
            names = [name.strip(" []") for name in _GAP.split(text)]
        else:
            return
        self.columns = tuple(_COLUMN_NAMES.get(name.lower(), name.lower()) for name in names)
        self.has_start_column = self.has_start_column or "start" in self.columns

    def _cells(self, raw: str, text: str) -> dict[str, str] | None:
        width = len(self.columns)
        if self.separator == "\t":
            # The name comes last and may hold a TAB itself.
            cells = [cell.strip() for cell in raw.lstrip("\t").split("\t", width - 1)]
        elif self.separator == ", ":
            # Node types hold commas, names don't: split from the right.
            cells = text.rsplit(", ", width - 1)
        else:
            cells = _GAP.split(text, width - 1)
        return dict(zip(self.columns, cells, strict=True)) if len(cells) == width else None

    def _operator(
        self, cells: dict[str, str], mean: float, times_called: float, memory_kb: float | None
    ) -> None:
        run_order = self._run_orders.get((self.phase, self.block), 0)
        self._run_orders[self.phase, self.block] = run_order + 1
        first = _figure(cells.get("first"))
        self.operators.append(
            OperatorTime(
                node_type=cells["node type"],
                name=cells["name"].replace("\t", ",") if self.separator == ", " else cells["name"],
                first_us=None if first is None else _us(first),
                # The table's average is per call.
                mean_us=_us(mean * times_called),
                times_called=times_called,
                memory_kb=memory_kb,
                phase=self.phase,
                block=self.block,
                run_order=run_order,
            )
        )


def _figure(cell: str | None) -> float | None:
    return parse_number(cell.removesuffix("%")) if cell else None


def _us(milliseconds: float) -> float:
    return float(f"{milliseconds * US_PER_MS:.12g}")


#: A message a line: its fields as ``type name``, numbered from 1 on, or from the number in front;
#: ``*`` repeats one.
_SCHEMA: Final = """
BenchmarkResult: string name, LatencyMetrics latency_metrics, MemoryMetrics memory_metrics, MiscMetrics misc_metrics
LatencyMetrics: float avg_ms, float min_ms, float max_ms, float stddev_ms, float median_ms, float p5_ms, float p95_ms,
    float init_ms, float first_inference_ms, float average_warm_up_ms
MemoryMetrics: int64 init_footprint_kb, int64 overall_footprint_kb, float peak_mem_mb
MiscMetrics: float model_size_mb, int32 num_runs, int32 num_warmup_runs, float model_throughput_in_mb_per_sec
ModelRuntimeDetails: string model_name, *RuntimeSubgraph subgraphs
RuntimeSubgraph: int32 subgraph_id, 3 *Node nodes, *int32 execution_plan, 6 string name
Node: int32 id, string name, string type, 8 DelegateNodeDetails delegate_node_details, int32 delegated_to_node_id
DelegateNodeDetails: string delegate_name, *int32 tflite_node_ids_replaced
BenchmarkProfilingData: string model_name, ModelProfilingData init_profile, ModelProfilingData runtime_profile
ModelProfilingData: *SubGraphProfilingData subgraph_profiles, *DelegateProfilingData delegate_profiles
SubGraphProfilingData: string subgraph_name, int32 subgraph_index, *OpProfileData per_op_profiles
DelegateProfilingData: string delegate_name, *OpProfileData per_op_profiles
OpProfileData: string node_type, OpProfilingStat inference_microseconds, OpProfilingStat mem_kb, int64 times_called,
    string name, int64 run_order
OpProfilingStat: int64 first, int64 last, int64 avg, float stddev, float variance, int64 min, int64 max, int64 sum,
    int64 count
# Of LiteRT-LM; its maps are repeated entries of key and value.
LitertLmMetricsList: *LitertLmMetrics metrics
LitertLmMetrics: LitertLmParams benchmark_params, *LitertLmDuration init_phase_durations_us,
    *LitertLmDuration mark_durations_us, *LitertLmTurn prefill_turns, *LitertLmTurn decode_turns,
    *LitertLmTurn text_to_token_ids_turns, double time_to_first_token_seconds, float peak_mem_mb,
    float peak_private_mb, float peak_dmabuf_mb, int64 dmabuf_buffer_count
LitertLmParams: int32 num_prefill_tokens, int32 num_decode_tokens
LitertLmDuration: string key, int64 value
LitertLmTurn: int64 duration_us, int64 num_tokens, double tokens_per_second
# Of perfetto's trace: the kernel's trace marker, what was lost of it, and what android.power writes.
# Names are whatever bytes a program or driver wrote: text_of reads them.
PerfettoTrace: *TracePacket packet
TracePacket: FtraceEventBundle ftrace_events, ProcessTree process_tree, 8 int64 timestamp,
    34 FtraceStats ftrace_stats, TraceStats trace_stats, 38 BatteryCounters battery,
    40 PowerRails power_rails, 50 bytes compressed_packets
FtraceEventBundle: uint32 cpu, *FtraceEvent event, bool lost_events
FtraceEvent: uint64 timestamp, uint32 pid, 3 FtraceMarker print
FtraceMarker: 2 bytes buf
ProcessTree: *Process processes
Process: int32 pid, 3 *bytes cmdline
FtraceStats: int32 phase, *FtraceCpuStats cpu_stats
FtraceCpuStats: 3 uint64 overrun, uint64 commit_overrun, 8 uint64 dropped_events
TraceStats: *TraceBufferStats buffer_stats
TraceBufferStats: 3 uint64 chunks_overwritten, 18 uint64 chunks_discarded,
    uint64 trace_writer_packet_loss
BatteryCounters: int64 charge_counter_uah, 3 int64 current_ua, 7 int64 voltage_uv
PowerRails: *RailDescriptor rail_descriptor, *EnergyData energy_data
RailDescriptor: int32 index, bytes rail_name
EnergyData: int32 index, int64 timestamp_ms, int64 energy
"""
_PACKAGE: Final = "benchfarm.wire"
#: Operators whose kernels run other subgraphs.
_CALLERS: Final = frozenset({"WHILE", "IF", "STABLEHLO_CASE", "STABLEHLO_COMPOSITE"})
_MESSAGE: Final = re.compile(r"^(\w+):((?:.|\n )*)", re.MULTILINE)
_FIELD: Final = re.compile(r"(?:(\d+) )?(\*?)(\w+) (\w+)(?:,|\s*$)", re.MULTILINE)
#: Fields of a BenchmarkResult's latency_metrics, and those of a summary that they are.
_SUMMARY_NAMES: Final = {f"{name}_ms": field for name, field in SUMMARY_FIELDS.items()}
#: Part and field of a BenchmarkResult, the report's figure that it is, and the factor between them.
_REPORT_NAMES: Final = (
    ("latency_metrics", "init_ms", "init_us", US_PER_MS),
    ("latency_metrics", "first_inference_ms", "first_inference_us", US_PER_MS),
    ("latency_metrics", "average_warm_up_ms", "warmup_mean_us", US_PER_MS),
    ("memory_metrics", "init_footprint_kb", "init_memory_mib", 1 / 1024),
    ("memory_metrics", "overall_footprint_kb", "overall_memory_mib", 1 / 1024),
    ("memory_metrics", "peak_mem_mb", "peak_memory_mib", 1.0),
    ("misc_metrics", "model_size_mb", "model_size_mb", 1.0),
)


@lru_cache(maxsize=1)
def _messages() -> dict[str, Any]:
    """Return the message class of each schema by its name."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="benchfarm/wire.proto", package=_PACKAGE, syntax="proto2"
    )
    for name, fields in _MESSAGE.findall(_SCHEMA):
        message, number = file.message_type.add(name=name), 0
        for explicit_number, repeated, kind, field_name in _FIELD.findall(fields):
            number = int(explicit_number) if explicit_number else number + 1
            label = kinds.LABEL_REPEATED if repeated else kinds.LABEL_OPTIONAL
            if kind.islower():
                message.field.add(
                    name=field_name, number=number, label=label, type=f"TYPE_{kind.upper()}"
                )
            else:
                type_name = f".{_PACKAGE}.{kind}"
                message.field.add(
                    name=field_name,
                    number=number,
                    label=label,
                    type="TYPE_MESSAGE",
                    type_name=type_name,
                )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        message.name: message_factory.GetMessageClass(
            pool.FindMessageTypeByName(f"{_PACKAGE}.{message.name}")
        )
        for message in file.message_type
    }


def decode_message(name: str, data: bytes) -> Any:  # noqa: ANN401 - the classes are made at run time
    """Return a message of the schema; raises OutputParseError."""
    from google.protobuf.message import DecodeError

    message = _messages()[name]()
    try:
        message.ParseFromString(data)
    except (DecodeError, ValueError, RuntimeError) as error:
        raise OutputParseError(f"{len(data)} bytes are no {name}: {error}") from error
    return message


def decode_trace(data: bytes) -> Any:  # noqa: ANN401
    """Return perfetto's trace; raises OutputParseError."""
    try:
        return decode_message("PerfettoTrace", data)
    except OutputParseError as error:
        raise OutputParseError(
            f"this isn't a complete perfetto trace: its {len(data)} bytes were cut off or are something "
            "else; record it again"
        ) from error


def text_of(name: bytes) -> str:
    """Return a trace's name as text, whatever its bytes are."""
    return name.decode("utf-8", "replace")


def optional_figure(message: Any, name: str, factor: float = 1.0) -> float | None:  # noqa: ANN401
    """Return a field's figure; None where it isn't set or is no finite number."""
    if not message.HasField(name):
        return None
    # Single precision holds 7 digits; what follows them is noise of the conversion.
    value = float(f"{getattr(message, name) * factor:.7g}")
    return value if math.isfinite(value) else None


def decode_result(data: bytes) -> ToolReport:
    """Decode ``tflite.tools.benchmark.BenchmarkResult``: a report of its figures, which have 7
    digits.

    Raises:
        OutputParseError: the bytes are no such message.
    """
    result = decode_message("BenchmarkResult", data)
    report = ToolReport(
        outcome="ok",
        **{
            name: optional_figure(getattr(result, part), field, factor)
            for part, field, name, factor in _REPORT_NAMES
        },  # type: ignore[arg-type]
    )
    runs = result.misc_metrics.num_runs if result.misc_metrics.HasField("num_runs") else -1
    if runs < 0:
        return report
    figures = {
        name: optional_figure(result.latency_metrics, field, US_PER_MS)
        for field, name in _SUMMARY_NAMES.items()
    }
    return replace(report, inference=LatencySummary(count=runs, **figures))


def decode_runtime_info(data: bytes, signature: str = "") -> RuntimeNodes:
    """Decode ``tflite.profiling.ModelRuntimeDetails``: which nodes each delegate took of what ran.

    That is the subgraph with the name of the ``signature`` that ran, else the first one, and with
    the first all others where it leaves an operator to the runtime that may call them. Others are of
    other signatures, or bodies of operators that a delegate took whole.

    Raises:
        OutputParseError: the bytes are no such message, or it names no node.
    """
    subgraphs = list(decode_message("ModelRuntimeDetails", data).subgraphs)
    matching = [subgraph for subgraph in subgraphs if signature and subgraph.name == signature]
    ran = matching or subgraphs[:1]
    parts = [_subgraph_nodes(subgraph) for subgraph in ran]
    if not matching and not _CALLERS.isdisjoint(
        name for part in parts for name in part.cpu_operators
    ):
        parts = [_subgraph_nodes(subgraph) for subgraph in subgraphs]
    total = sum(part.total_nodes for part in parts)
    if total == 0:
        raise OutputParseError(f"{len(data)} bytes of runtime info name no node of the model")
    return RuntimeNodes(
        shares=tuple(share for part in parts for share in part.shares),
        total_nodes=total,
        cpu_operators=tuple(name for part in parts for name in part.cpu_operators),
        is_certain=bool(matching) or len(subgraphs) == 1 or not signature,
    )


def _subgraph_nodes(subgraph: Any) -> RuntimeNodes:  # noqa: ANN401
    """Return where the nodes of a subgraph were put that are executed, or were replaced by one that
    is: an inlined composite stays in the list.
    """
    plan = set(subgraph.execution_plan) or {node.id for node in subgraph.nodes}
    delegates = {
        node.id: node.delegate_node_details.delegate_name
        for node in subgraph.nodes
        if node.HasField("delegate_node_details") and node.id in plan
    }
    taken: dict[str, int] = {}
    cpu_operators: list[str] = []
    for node in subgraph.nodes:
        if node.HasField("delegate_node_details"):
            continue
        if node.HasField("delegated_to_node_id") and node.delegated_to_node_id in delegates:
            name = delegates[node.delegated_to_node_id]
            taken[name] = taken.get(name, 0) + 1
        elif node.id in plan:
            cpu_operators.append(node.name or node.type)
    total = sum(taken.values()) + len(cpu_operators)
    shares = tuple(
        DelegateShare(
            delegate=name,
            delegated_nodes=count,
            total_nodes=total,
            partitions=sum(1 for other in delegates.values() if other == name),
            subgraph=subgraph.subgraph_id,
        )
        for name, count in taken.items()
    )
    return RuntimeNodes(shares=shares, total_nodes=total, cpu_operators=tuple(cpu_operators))


def _profile(message: Any) -> OperatorProfile:  # noqa: ANN401
    operators: list[OperatorTime] = []
    blocks: list[ProfileBlock] = []
    for phase, model in (("init", message.init_profile), ("run", message.runtime_profile)):
        named_profiles = [(f"{item.subgraph_name}", item) for item in model.subgraph_profiles]
        if len(named_profiles) == 1:
            named_profiles = [("", named_profiles[0][1])]
        named_profiles += [
            (f"delegate {item.delegate_name}".rstrip(), item) for item in model.delegate_profiles
        ]
        for block, item in named_profiles:
            rows = [_operator(row, phase=phase, block=block) for row in item.per_op_profiles]
            operators += rows
            blocks.append(ProfileBlock(phase=phase, block=block, nodes_executed=len(rows)))
    return OperatorProfile(
        operators=tuple(operators), types=_types(operators), blocks=tuple(blocks)
    )


def _operator(row: Any, *, phase: str, block: str) -> OperatorTime:  # noqa: ANN401
    times_us = row.inference_microseconds
    memory_kb = row.mem_kb
    # The average is per call and cut to a whole microsecond; sum and count are exact.
    calls = row.times_called
    mean = (times_us.sum / times_us.count if times_us.count > 0 else float(times_us.avg)) * calls
    return OperatorTime(
        node_type=row.node_type,
        name=row.name,
        first_us=float(times_us.first) if times_us.HasField("first") else None,
        mean_us=mean,
        times_called=float(calls),
        memory_kb=(memory_kb.sum / memory_kb.count if memory_kb.count > 0 else float(memory_kb.avg))
        if row.HasField("mem_kb")
        else None,
        phase=phase,
        block=block,
        run_order=row.run_order if row.HasField("run_order") else None,
    )


def _types(operators: Iterable[OperatorTime]) -> tuple[OperatorTypeTime, ...]:
    groups = grouped(operators, lambda row: (row.phase, row.block, row.node_type))
    return tuple(
        OperatorTypeTime(
            node_type=node_type,
            nodes=len(rows),
            mean_us=sum(row.mean_us for row in rows),
            times_called=sum(row.times_called for row in rows),
            memory_kb=sum(row.memory_kb or 0.0 for row in rows)
            if any(r.memory_kb is not None for r in rows)
            else None,
            phase=phase,
            block=block,
        )
        for (phase, block, node_type), rows in groups.items()
    )


def decode_op_profile(data: bytes) -> OperatorProfile:
    """Decode ``tflite.profiling.BenchmarkProfilingData``; raises OutputParseError."""
    return _profile(decode_message("BenchmarkProfilingData", data))


def parse_op_profile(text: str) -> OperatorProfile:
    """Read the same message in its text form; raises OutputParseError."""
    from google.protobuf import text_format

    message = _messages()["BenchmarkProfilingData"]()
    try:
        text_format.Parse(text, message, allow_unknown_field=True)
    except (text_format.ParseError, ValueError, RecursionError) as error:
        raise OutputParseError(f"{len(text)} characters are no profile: {error}") from error
    return _profile(message)
