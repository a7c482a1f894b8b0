"""LiteRT's leaderboard: one JSON object a line, one line a process that a device lab, an app or a
computer ran.

A line tells either of a model's inferences (``latency_ms``) or of a language model's tokens
(``metrics`` and ``iterations``); litert-samples' benchmark/leaderboard has both files. Whoever
wrote a line is a stranger: every value is checked before it is used, and what a line doesn't tell
stays unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from orchestrator.delegates.judging import extent_of
from orchestrator.documents import describe
from orchestrator.errors import OutputParseError
from orchestrator.extensions.runtimes.litert_lm_output import Process, Repetition, reports_of
from orchestrator.records.case import DelegateName
from orchestrator.records.device import DeviceKind
from orchestrator.records.model import PHASES, TOKENS
from orchestrator.records.run import (
    SUMMARY_FIELDS,
    DelegateEvidence,
    DelegateShare,
    LatencySummary,
    ToolReport,
)
from orchestrator.units import US_PER_MS, US_PER_S

#: What is asked for by the leaderboard's ``accelerator``: LiteRT applies XNNPACK on the CPU by
#: itself.
ACCELERATORS: Final[Mapping[str, DelegateName]] = {
    "cpu": DelegateName.XNNPACK,
    "gpu": DelegateName.GPU,
    "npu": DelegateName.NPU,
}
PLATFORMS: Final[Mapping[str, DeviceKind]] = {
    "android": DeviceKind.ANDROID,
    "linux": DeviceKind.HOST,
    "ios": DeviceKind.IOS,
}
#: Figures of ``latency_ms`` that are none of a summary, and those of ``memory_mb``: which of a
#: report each is.
TIMES: Final[Mapping[str, str]] = {
    "init": "init_us",
    "first_inference": "first_inference_us",
    "warm_up_avg": "warmup_mean_us",
}
MEMORY: Final[Mapping[str, str]] = {
    "init_footprint": "init_memory_mib",
    "overall_footprint": "overall_memory_mib",
}
#: Which delegate an output's or a log's name is.
_CALLED: Final = (
    (re.compile(r"xnnpack", re.IGNORECASE), DelegateName.XNNPACK),
    (re.compile(r"coreml", re.IGNORECASE), DelegateName.COREML),
    (re.compile(r"dispatch|npu|qnn|neuron", re.IGNORECASE), DelegateName.NPU),
    (
        re.compile(r"litert_cl|litert_metal|gpu|opencl|opengl|metal|vulkan|webgpu", re.IGNORECASE),
        DelegateName.GPU,
    ),
)
_LONGEST_LINE: Final = 1 << 20
_MOST_ITERATIONS: Final = 1000
#: Of one object, that are told.
_MOST_FAULTS: Final = 5


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must be a text in one line")
    return text


def _day(text: str) -> str:
    try:
        date.fromisoformat(text[:10])
    except ValueError:
        raise ValueError("must be YYYY-MM-DD") from None
    return text


Text = Annotated[str, Field(max_length=500), AfterValidator(_one_line)]
_Day = Annotated[Text, AfterValidator(_day)]
_Needed = Annotated[Text, Field(pattern=r"\S")]
_Number = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0, le=10_000_000)]
Item = TypeVar("Item")
Few = Annotated[list[Item], Field(max_length=_MOST_ITERATIONS)]


class Part(BaseModel):
    """An object that a stranger wrote, every value checked; null and an empty text are the same as
    no value.
    """

    model_config = ConfigDict(strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nothing(cls, values: object) -> object:
        if not isinstance(values, dict):
            return values
        return {key: value for key, value in values.items() if value not in (None, "")}


_PartOf = TypeVar("_PartOf", bound=Part)


class _Times(Part):
    avg: _Number | None = None
    median: _Number | None = None
    p5: _Number | None = None
    p95: _Number | None = None
    min: _Number | None = None
    max: _Number | None = None
    stddev: _Number | None = None
    init: _Number | None = None
    first_inference: _Number | None = None
    warm_up_avg: _Number | None = None


class _Memory(Part):
    init_footprint: _Number | None = None
    overall_footprint: _Number | None = None


class _Conditions(Part):
    prefill_tokens: _Count = 0
    decode_tokens: _Count = 0
    max_num_tokens: _Count = 0
    warmup_iterations: Annotated[int, Field(ge=0, le=_MOST_ITERATIONS)] = 0


class _Tokens(Part):
    prefill_tok_s: _Number = 0.0
    decode_tok_s: _Number = 0.0
    ttft_s: _Number = 0.0
    init_total_ms: _Number = 0.0
    peak_mem_mb: _Number | None = None


class _Library(Part):
    name: Text = ""
    sha256: Text = ""


class Row(Part):
    """One line: what was measured where, and what came of it; a report each of prefill and decode,
    or one.
    """

    row_id: _Needed
    #: The repository.
    model: _Needed
    file: _Needed
    model_size_mb: _Number | None = None
    platform: Literal["android", "ios", "macos", "linux", "windows"]
    device_id: _Needed
    device: Text = ""
    os: Text = ""
    accelerator: Literal["cpu", "gpu", "npu"]
    delegate: Text = ""
    nodes_delegated: _Count | None = None
    nodes_total: _Count | None = None
    partitions: _Count | None = None
    runtime: Text = ""
    runtime_version: Text = ""
    binary: Text = ""
    runner: Text = ""
    session: Text = ""
    job: Text = ""
    source: Text = ""
    status: Text = ""
    date: _Day = ""
    libs: Few[_Library] = []
    runs: _Count = 0
    warmup_runs: _Count = 0
    latency_ms: _Times | None = None
    memory_mb: _Memory = _Memory()
    conditions: _Conditions = _Conditions()
    metrics: _Tokens | None = None
    iterations: Few[_Tokens] = []

    @model_validator(mode="after")
    def _has_figures(self) -> Row:
        if self.is_language_model:
            for phase in PHASES:
                if not getattr(self.conditions, f"{phase}_tokens"):
                    raise ValueError(
                        f"conditions.{phase}_tokens: the speed is of an unknown context"
                    )
            warmups = self.conditions.warmup_iterations
            if self.iterations and len(self.iterations) <= warmups:
                raise ValueError(
                    f"iterations: {len(self.iterations)}, of which {warmups} warm up: none is left"
                )
        elif self.latency_ms is None and self.status in {"", "measured"}:
            raise ValueError("it has neither latency_ms nor metrics: no figure")
        return self

    @property
    def is_language_model(self) -> bool:
        """Whether it tells of tokens."""
        return self.metrics is not None or bool(self.iterations)

    @property
    def wanted(self) -> DelegateName:
        """The delegate that was asked for."""
        return ACCELERATORS[self.accelerator]

    @property
    def at(self) -> datetime | None:
        """The day; nothing tells the time."""
        return datetime.fromisoformat(self.date[:10]).replace(tzinfo=UTC) if self.date else None

    @property
    def flags(self) -> tuple[tuple[str, str], ...]:
        """Flags of a language model's case but for which figure it is."""
        return tuple(
            (name, str(count)) for name in TOKENS if (count := getattr(self.conditions, name))
        )

    @cached_property
    def reports(self) -> tuple[ToolReport, ...]:
        """What it says of each figure."""
        evidence = _evidence(self)
        return (
            _of_tokens(self, evidence)
            if self.is_language_model
            else (_of_inferences(self, evidence),)
        )


def is_row(head: bytes) -> bool:
    """Whether a file that begins like this holds such lines."""
    line = head.lstrip().partition(b"\n")[0]
    return line.startswith(b"{") and b'"row_id"' in line


def read_part(kind: type[_PartOf], text: bytes, what: str) -> _PartOf:
    """Read a JSON object; raises OutputParseError that calls it ``what`` and names
    some of what is wrong.
    """
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        told = (
            describe(error, most=_MOST_FAULTS)
            if first["loc"]
            else first["msg"].removeprefix("Value error, ")
        )
        raise OutputParseError(f"{what}: {told}") from error


def read_row(line: bytes) -> Row:
    """Read one line; raises OutputParseError."""
    if len(line) > _LONGEST_LINE:
        raise OutputParseError(f"the line has {len(line)} bytes, more than {_LONGEST_LINE}")
    return read_part(Row, line, "the line is wrong")


def _evidence(row: Row) -> DelegateEvidence:
    """Return where the operators ran, by the delegate's name and the nodes of the main subgraph."""
    wanted, named, own, every = row.wanted, row.delegate, row.nodes_delegated, row.nodes_total
    actual = next((delegate for pattern, delegate in _CALLED if pattern.search(named)), None)
    name = actual.value if actual is not None else ""
    lines = (f"the row names the delegate {named}",) if named else ()
    truth = extent_of(wanted.value, name, own, every)
    if row.is_language_model and wanted.is_cpu and not name:
        # The CPU has no further delegate to fall back to, and the collector names none of it.
        name, lines = (
            wanted.value,
            ("LiteRT-LM's backend cpu is XNNPACK; the row names no delegate",),
        )
    share = DelegateShare(
        delegate=named, delegated_nodes=own or 0, total_nodes=every, partitions=row.partitions
    )
    return DelegateEvidence(
        requested=wanted.value,
        actual=name,
        truth=truth,
        delegated_nodes=own,
        total_nodes=every,
        partitions=row.partitions,
        backend=named.lower() if actual is DelegateName.GPU and own is None else "",
        lines=lines,
        shares=(share,) if named and own is not None else (),
    )


def _us(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds * US_PER_MS


def _of_inferences(row: Row, evidence: DelegateEvidence) -> ToolReport:
    times = row.latency_ms or _Times()
    figures = {field: _us(getattr(times, key)) for key, field in SUMMARY_FIELDS.items()}
    fault = "" if figures["median_us"] or figures["mean_us"] else "no latency"
    if row.status not in {"", "measured"}:
        fault = f"status {row.status!r}"
    beside: dict[str, Any] = {field: _us(getattr(times, key)) for key, field in TIMES.items()}
    beside |= {field: getattr(row.memory_mb, key) for key, field in MEMORY.items()}
    extra: dict[str, float | str] = {
        "source": row.source,
        "warmup_runs": row.warmup_runs,
        "runner": row.runner,
    }
    return ToolReport(
        outcome="failed" if fault else "ok",
        failure_code="no-result" if fault else "",
        failure_reason=fault,
        **beside,
        inference_mean_us=None if fault else figures["mean_us"],
        inference=None if fault else LatencySummary(count=row.runs, **figures),
        model_size_mb=row.model_size_mb,
        delegate=evidence,
        extra={key: value for key, value in extra.items() if value},
    )


def _of_tokens(row: Row, evidence: DelegateEvidence) -> tuple[ToolReport, ...]:
    metrics, asked = row.metrics or _Tokens(), row.conditions
    process = Process(warmups=asked.warmup_iterations if row.iterations else 0)
    process.asked = {phase: getattr(asked, f"{phase}_tokens") for phase in PHASES}
    if asked.max_num_tokens:
        process.asked["tokens"] = asked.max_num_tokens
    for item in row.iterations or [metrics]:
        repetition = Repetition(has_rule=True)
        for phase in PHASES:
            # No speed is a turn that wasn't made, and is told as that.
            if speed := getattr(item, f"{phase}_tok_s"):
                tokens = process.asked[phase]
                repetition.add(phase, tokens, tokens / speed * US_PER_S)
        repetition.first_token_us = item.ttft_s * US_PER_S or None
        repetition.init_us = item.init_total_ms * US_PER_MS or None
        process.repetitions.append(repetition)
    process.peak_mib = metrics.peak_mem_mb
    if row.status not in {"", "measured"}:
        process.failures["benchmark-failed"] = f"status {row.status!r}"
    beside = {"source": row.source, "runner": row.runner, "date": row.date}
    known = {key: value for key, value in beside.items() if value}
    return tuple(
        replace(report, delegate=evidence, extra={**report.extra, **known})
        for report in reports_of(process, requested=evidence.requested)
    )
