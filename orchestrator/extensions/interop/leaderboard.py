"""LiteRT's leaderboard: one JSON object a line, one line a process that a device lab, an app or a
computer ran.

A line tells either of a model's inferences (``latency_ms``) or of a language model's tokens
(``metrics`` and ``iterations``); litert-samples' benchmark/leaderboard has both files. Whoever
wrote a line is a stranger: every value is checked before it is used, and what a line doesn't tell
stays unknown.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from typing import Final

from orchestrator.delegates.judging import extent_of
from orchestrator.errors import OutputParseError
from orchestrator.reading.litert_lm import Process, Repetition, reports_of
from orchestrator.records.case import DelegateName
from orchestrator.records.model import PHASES
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
PLATFORMS: Final = ("android", "ios", "macos", "linux", "windows")
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
#: The texts of a row, those that it has to have, and those whose keys are other ones.
_TEXTS: Final = (
    "row_id",
    "repository",
    "file",
    "device_id",
    "device",
    "os",
    "runtime",
    "version",
    "binary",
    "runner",
    "session",
    "job",
    "status",
)
_NEEDED: Final = frozenset({"row_id", "repository", "file", "device_id"})
_KEYS: Final[Mapping[str, str]] = {"repository": "model", "version": "runtime_version"}
_LONGEST_LINE: Final = 1 << 20
_LONGEST_TEXT: Final = 500
_MOST_ITERATIONS: Final = 1000
_MOST_TOKENS: Final = 10_000_000
_LARGEST: Final = 1e12


@dataclass(slots=True)
class Checked:
    """The values of a JSON object, each taken with its type; what is wrong is collected."""

    values: Mapping[str, object]
    faults: list[str] = field(default_factory=list)
    place: str = ""

    def text(self, key: str, *, needed: bool = False) -> str:
        """Return a text in one line; empty where there is none."""
        value = self.values.get(key)
        if value is None and not needed:
            return ""
        if not isinstance(value, str) or len(value) > _LONGEST_TEXT or not value.isprintable():
            self._wrong(key, f"a text in one line of at most {_LONGEST_TEXT} characters")
            return ""
        if needed and not value.strip():
            self._wrong(key, "a text that isn't empty")
        return value

    def number(self, key: str) -> float | None:
        """Return a number that isn't below zero; None where there is none."""
        value = self.values.get(key)
        if value is None:
            return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        # A whole number may be larger than any float.
        if not is_number or not 0 <= value <= _LARGEST or not math.isfinite(value):  # type: ignore[operator,arg-type]
            self._wrong(key, f"a number from 0 to {_LARGEST:g}")
            return None
        return float(value)  # type: ignore[arg-type]

    def count(self, key: str, most: int = _MOST_TOKENS) -> int | None:
        """Return a whole number that isn't below zero; None where there is none."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            self._wrong(key, f"a whole number from 0 to {most}")
            return None
        return value

    def part(self, key: str) -> Checked:
        """Return an object within; an empty one where there is none."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, dict):
            self._wrong(key, "an object")
        return Checked(value if isinstance(value, dict) else {}, self.faults, f"{self.place}{key}.")

    def parts(self, key: str) -> list[Checked]:
        """Return the objects of a list."""
        value = self.values.get(key)
        if value is None:
            return []
        if (
            not isinstance(value, list)
            or len(value) > _MOST_ITERATIONS
            or not all(isinstance(i, dict) for i in value)
        ):
            self._wrong(key, f"a list of at most {_MOST_ITERATIONS} objects")
            return []
        return [
            Checked(item, self.faults, f"{self.place}{key}[{place}].")
            for place, item in enumerate(value)
        ]

    def _wrong(self, key: str, wanted: str) -> None:
        self.faults.append(f"{self.place}{key}: is {_short(self.values.get(key))}, not {wanted}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line: what was measured where, and what came of it; a report each of prefill and decode,
    or one.
    """

    row_id: str
    #: The model's repository and its file's name.
    repository: str
    file: str
    size_bytes: int
    platform: str
    device_id: str
    device: str
    os: str
    delegate: DelegateName
    runtime: str
    version: str
    binary: str
    runner: str
    session: str
    job: str
    status: str
    #: The day; nothing tells the time.
    at: datetime | None
    #: Name and sha256 of libraries beside the program.
    libraries: tuple[tuple[str, str], ...]
    #: Flags of a language model's case but for which figure it is.
    flags: tuple[tuple[str, str], ...]
    reports: tuple[ToolReport, ...]

    @property
    def is_language_model(self) -> bool:
        """Whether it tells of tokens."""
        return len(self.reports) > 1


def is_row(head: bytes) -> bool:
    """Whether a file that begins like this holds such lines."""
    line = head.lstrip().partition(b"\n")[0]
    return line.startswith(b"{") and b'"row_id"' in line


def read_row(line: bytes) -> Row:
    """Read one line; raises OutputParseError that names everything that is wrong with it."""
    if len(line) > _LONGEST_LINE:
        raise OutputParseError(f"the line has {len(line)} bytes, more than {_LONGEST_LINE}")
    try:
        # A number of thousands of digits, or one that isn't finite, is no measurement.
        values = json.loads(line.decode(), parse_constant=lambda name: name)
    except (ValueError, RecursionError) as error:
        raise OutputParseError(f"the line isn't JSON: {error}") from error
    if not isinstance(values, dict):
        raise OutputParseError("the line is no JSON object")
    checked = Checked(values)
    row = _row(checked)
    if checked.faults:
        raise OutputParseError("; ".join(checked.faults[:5]))
    return row


def _row(row: Checked) -> Row:
    accelerator, platform = row.text("accelerator", needed=True), row.text("platform", needed=True)
    if accelerator and accelerator not in ACCELERATORS:
        row.faults.append(
            f"accelerator: is {_short(accelerator)}, not one of {', '.join(ACCELERATORS)}"
        )
    if platform and platform not in PLATFORMS:
        row.faults.append(f"platform: is {_short(platform)}, not one of {', '.join(PLATFORMS)}")
    if (
        "latency_ms" not in row.values
        and "metrics" not in row.values
        and "iterations" not in row.values
    ):
        row.faults.append("it has neither latency_ms nor metrics: no figure")
    delegate = ACCELERATORS.get(accelerator, DelegateName.XNNPACK)
    is_of_tokens = "metrics" in row.values or "iterations" in row.values
    conditions = row.part("conditions")
    tokens = {
        key: conditions.count(key) for key in ("decode_tokens", "max_num_tokens", "prefill_tokens")
    }
    evidence = _evidence(row, delegate)
    if is_of_tokens and delegate.is_cpu and not evidence.actual:
        # The CPU has no further delegate to fall back to, and the collector names none of it.
        line = "LiteRT-LM's backend cpu is XNNPACK; the row names no delegate"
        evidence = replace(evidence, actual=delegate.value, lines=(line,))
    reports = (
        _of_tokens(row, conditions, evidence) if is_of_tokens else (_of_inferences(row, evidence),)
    )
    texts = {name: row.text(_KEYS.get(name, name), needed=name in _NEEDED) for name in _TEXTS}
    return Row(
        **texts,
        size_bytes=round((row.number("model_size_mb") or 0.0) * 1e6),
        platform=platform,
        delegate=delegate,
        at=_day(row),
        libraries=tuple((item.text("name"), item.text("sha256")) for item in row.parts("libs")),
        flags=tuple((key, str(count)) for key, count in tokens.items() if count),
        reports=reports,
    )


def _day(row: Checked) -> datetime | None:
    told = row.text("date")
    try:
        day = date.fromisoformat(told[:10]) if told else None
    except ValueError:
        row.faults.append(f"date: is {_short(told)}, not YYYY-MM-DD")
        return None
    return datetime(day.year, day.month, day.day, tzinfo=UTC) if day is not None else None


def _evidence(row: Checked, wanted: DelegateName) -> DelegateEvidence:
    """Return where the operators ran, by the delegate's name and the nodes of the main subgraph."""
    named = row.text("delegate")
    own, every, parts = (
        row.count("nodes_delegated"),
        row.count("nodes_total"),
        row.count("partitions"),
    )
    actual = next((delegate for pattern, delegate in _CALLED if pattern.search(named)), None)
    share = DelegateShare(
        delegate=named, delegated_nodes=own or 0, total_nodes=every, partitions=parts
    )
    return DelegateEvidence(
        requested=wanted.value,
        actual=actual.value if actual is not None else "",
        truth=extent_of(wanted.value, actual.value if actual is not None else "", own, every),
        delegated_nodes=own,
        total_nodes=every,
        partitions=parts,
        backend=named.lower() if actual is DelegateName.GPU and own is None else "",
        lines=(f"the row names the delegate {named}",) if named else (),
        shares=(share,) if named and own is not None else (),
    )


def _of_inferences(row: Checked, evidence: DelegateEvidence) -> ToolReport:
    times, memory = row.part("latency_ms"), row.part("memory_mb")

    def us(key: str) -> float | None:
        value = times.number(key)
        return None if value is None else value * US_PER_MS

    figures = {field: us(key) for key, field in SUMMARY_FIELDS.items()}
    mean, figure = figures["mean_us"], figures["median_us"] or figures["mean_us"]
    extra = {
        "source": row.text("source"),
        "warmup_runs": row.count("warmup_runs"),
        "runner": row.text("runner"),
    }
    status = row.text("status")
    is_ok = bool(figure) and status in {"", "measured"}
    return ToolReport(
        outcome="ok" if is_ok else "failed",
        failure_code="" if is_ok else "no-result",
        failure_reason=""
        if is_ok
        else f"status {status!r}"
        if status not in {"", "measured"}
        else "no latency",
        init_us=us("init"),
        first_inference_us=us("first_inference"),
        warmup_mean_us=us("warm_up_avg"),
        inference_mean_us=mean if is_ok else None,
        inference=LatencySummary(count=row.count("runs") or 0, **figures) if is_ok else None,
        init_memory_mib=memory.number("init_footprint"),
        overall_memory_mib=memory.number("overall_footprint"),
        model_size_mb=row.number("model_size_mb"),
        delegate=evidence,
        extra={key: value for key, value in extra.items() if value},
    )


def _of_tokens(
    row: Checked, conditions: Checked, evidence: DelegateEvidence
) -> tuple[ToolReport, ...]:
    metrics, iterations = row.part("metrics"), row.parts("iterations")
    warmups = conditions.count("warmup_iterations", _MOST_ITERATIONS) or 0
    process = Process(warmups=warmups if iterations else 0)
    process.asked = {
        phase: tokens for phase in PHASES if (tokens := conditions.count(f"{phase}_tokens"))
    }
    if context := conditions.count("max_num_tokens"):
        process.asked["tokens"] = context
    for phase in PHASES:
        if phase not in process.asked:
            row.faults.append(
                f"conditions.{phase}_tokens: isn't told, so that the speed is of an unknown context"
            )
    if iterations and len(iterations) <= warmups:
        row.faults.append(
            f"iterations: {len(iterations)}, of which {warmups} warm up: none is left"
        )
    for item in iterations or [metrics]:
        repetition = Repetition(rules=1)
        for phase in PHASES:
            speed = item.number(f"{phase}_tok_s")
            # No speed is a turn that wasn't made, and is told as that.
            tokens = process.asked.get(phase, 0) if speed else 0
            repetition.add(phase, tokens, tokens / speed * US_PER_S if speed else 0.0)
        first_s, init_ms = item.number("ttft_s"), item.number("init_total_ms")
        repetition.first_token_us = first_s * US_PER_S if first_s else None
        repetition.init_us = {"Init Total": init_ms * US_PER_MS} if init_ms else {}
        process.repetitions.append(repetition)
    process.peak_mib = metrics.number("peak_mem_mb")
    status = row.text("status")
    if status not in {"", "measured"}:
        process.failures["benchmark-failed"] = f"status {status!r}"
    beside = {key: value for key in ("source", "runner", "date") if (value := row.text(key))}
    return tuple(
        replace(report, delegate=evidence, extra={**report.extra, **beside})
        for report in reports_of(process, requested=evidence.requested)
    )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
