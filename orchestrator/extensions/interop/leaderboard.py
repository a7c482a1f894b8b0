"""LiteRT's leaderboard: one JSON object a line, one line a process that a device lab, an app or a
computer ran.

A line has the figures of a model's inferences (``latency_ms``) or of a language model's tokens
(``metrics`` and ``iterations``); litert-samples' benchmark/leaderboard has both files. ``Row`` has
the columns that are read. Lines are untrusted input: every value is checked before it is used, and
a missing value stays unknown. A line of ours has the status ``measured`` only for a clean figure of
a real phone, confirmed to be the delegate's. Values without a column of the leaderboard stand under
``benchfarm``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import cached_property
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from orchestrator import __version__
from orchestrator.delegates import ACCELERATORS, delegate_called
from orchestrator.delegates.judging import extent_of
from orchestrator.documents import fault_text
from orchestrator.errors import OutputParseError
from orchestrator.reading.litert_lm import Process, Repetition, reports_of
from orchestrator.records.case import (
    BUILTIN,
    IMPORTED_TOOLS,
    Build,
    Case,
    DelegateName,
    Model,
    Serial,
)
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.model import FIGURE, PHASES, REPETITIONS, TOKENS, asked_tokens
from orchestrator.records.run import (
    SUMMARY_FIELDS,
    DelegateEvidence,
    DelegateShare,
    DelegateTruth,
    LatencySummary,
    RunRecord,
    ToolReport,
)
from orchestrator.records.verdict import Quality
from orchestrator.units import US_PER_MS, US_PER_S, tokens_per_s

PLATFORMS: Final[Mapping[str, DeviceKind]] = {
    "android": DeviceKind.ANDROID,
    "linux": DeviceKind.HOST,
    "ios": DeviceKind.IOS,
}
#: Figures of ``latency_ms`` outside the summary, and those of ``memory_mb`` -> field of a report.
_TIMES: Final[Mapping[str, str]] = {
    "init": "init_us",
    "first_inference": "first_inference_us",
    "warm_up_avg": "warmup_mean_us",
}
_MEMORY: Final[Mapping[str, str]] = {
    "init_footprint": "init_memory_mib",
    "overall_footprint": "overall_memory_mib",
}
#: Columns of the main subgraph's nodes -> field of the evidence.
_NODES: Final[Mapping[str, str]] = {
    "nodes_delegated": "delegated_nodes",
    "nodes_total": "total_nodes",
    "partitions": "partitions",
}
#: Letters of the token counts in a line's name.
_TOKEN_LETTERS: Final[Mapping[str, str]] = {
    "prefill_tokens": "p",
    "decode_tokens": "d",
    "max_num_tokens": "n",
}
_ACCELERATORS: Final = {BUILTIN: "cpu"} | {
    delegate: name for name, delegate in ACCELERATORS.items()
}
_PLATFORMS: Final = {kind: name for name, kind in PLATFORMS.items()}
_CONFIRMED: Final = frozenset({DelegateTruth.FULL, DelegateTruth.PARTIAL})
_LONGEST_LINE: Final = 1 << 20
_MAX_ITERATIONS: Final = 1000
#: Reported per object.
_MAX_FAULTS: Final = 5


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
_Required = Annotated[Text, Field(pattern=r"\S")]
_Number = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0, le=10_000_000)]
Item = TypeVar("Item")
Few = Annotated[list[Item], Field(max_length=_MAX_ITERATIONS)]


class Part(BaseModel):
    """An object of untrusted input, every value checked; null and an empty text count as missing."""

    model_config = ConfigDict(strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, values: object) -> object:
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
    warmup_iterations: Annotated[int, Field(ge=0, le=_MAX_ITERATIONS)] = 0


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
    """One line: what was measured where, with its figures; one report, or one each for prefill and
    decode.
    """

    row_id: _Required
    #: The repository.
    model: _Required
    file: _Required
    model_size_mb: _Number | None = None
    platform: Literal["android", "ios", "macos", "linux", "windows"]
    device_id: _Required
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
        """Whether its figures are those of tokens."""
        return self.metrics is not None or bool(self.iterations)

    @property
    def requested(self) -> DelegateName:
        """The requested delegate."""
        return ACCELERATORS[self.accelerator]

    @property
    def measured_at(self) -> datetime | None:
        """The day; the time is unknown."""
        return datetime.fromisoformat(self.date[:10]).replace(tzinfo=UTC) if self.date else None

    @property
    def flags(self) -> tuple[tuple[str, str], ...]:
        """Flags of a language model's case, without the one for the figure."""
        return tuple((name, str(count)) for name, count in self.token_counts.items())

    @property
    def token_counts(self) -> dict[str, int]:
        """The requested numbers of tokens, by flag."""
        counts = {name: getattr(self.conditions, name) for name in TOKENS}
        return {name: count for name, count in counts.items() if count}

    @cached_property
    def reports(self) -> tuple[ToolReport, ...]:
        """The report of each figure."""
        evidence = _evidence(self)
        return (
            _token_reports(self, evidence)
            if self.is_language_model
            else (_inference_report(self, evidence),)
        )


def is_row(head: bytes) -> bool:
    """Whether a file that begins like this holds such lines."""
    line = head.lstrip().partition(b"\n")[0]
    return line.startswith(b"{") and b'"row_id"' in line


def read_part(kind: type[_PartOf], text: bytes, subject: str) -> _PartOf:
    """Read a JSON object; raises OutputParseError that begins with ``subject`` and names some of
    its faults.
    """
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        problem = (
            fault_text(error, most=_MAX_FAULTS)
            if first["loc"]
            else first["msg"].removeprefix("Value error, ")
        )
        raise OutputParseError(f"{subject}: {problem}") from error


def read_row(line: bytes) -> Row:
    """Read one line; raises OutputParseError."""
    if len(line) > _LONGEST_LINE:
        raise OutputParseError(f"the line has {len(line)} bytes, more than {_LONGEST_LINE}")
    return read_part(Row, line, "the line is wrong")


def _evidence(row: Row) -> DelegateEvidence:
    """Return where the operators ran, by the delegate's name and the nodes of the main subgraph."""
    requested, label = row.requested, row.delegate
    nodes = {field: getattr(row, key) for key, field in _NODES.items()}
    delegated, total = row.nodes_delegated, row.nodes_total
    actual = delegate_called(label)
    name = actual.value if actual is not None else ""
    lines = (f"the row names the delegate {label}",) if label else ()
    truth = extent_of(requested.value, name, delegated, total)
    if row.is_language_model and requested.is_cpu and not name:
        # The CPU has no further delegate to fall back to, and the collector names none of it.
        name, lines = (
            requested.value,
            ("LiteRT-LM's backend cpu is XNNPACK; the row names no delegate",),
        )
    share = DelegateShare(delegate=label, **(nodes | {"delegated_nodes": delegated or 0}))
    return DelegateEvidence(
        requested=requested.value,
        actual=name,
        truth=truth,
        **nodes,
        backend=label.lower() if actual is DelegateName.GPU and delegated is None else "",
        lines=lines,
        shares=(share,) if label and delegated is not None else (),
    )


def _us(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds * US_PER_MS


def _inference_report(row: Row, evidence: DelegateEvidence) -> ToolReport:
    times = row.latency_ms or _Times()
    figures = {field: _us(getattr(times, key)) for key, field in SUMMARY_FIELDS.items()}
    fault = "" if figures["median_us"] or figures["mean_us"] else "no latency"
    if row.status not in {"", "measured"}:
        fault = f"status {row.status!r}"
    other_figures: dict[str, Any] = {
        field: _us(getattr(times, key)) for key, field in _TIMES.items()
    }
    other_figures |= {field: getattr(row.memory_mb, key) for key, field in _MEMORY.items()}
    extra: dict[str, float | str] = {
        "source": row.source,
        "warmup_runs": row.warmup_runs,
        "runner": row.runner,
    }
    return ToolReport(
        outcome="failed" if fault else "ok",
        failure_code="no-result" if fault else "",
        failure_reason=fault,
        **other_figures,
        inference_mean_us=None if fault else figures["mean_us"],
        inference=None if fault else LatencySummary(count=row.runs, **figures),
        model_size_mb=row.model_size_mb,
        delegate=evidence,
        extra={key: value for key, value in extra.items() if value},
    )


def _token_reports(row: Row, evidence: DelegateEvidence) -> tuple[ToolReport, ...]:
    metrics = row.metrics or _Tokens()
    process = Process(warmups=row.conditions.warmup_iterations if row.iterations else 0)
    process.asked = row.token_counts
    for item in row.iterations or [metrics]:
        repetition = Repetition(has_rule=True)
        for phase in PHASES:
            # Without a speed the phase wasn't run, and is reported so.
            if speed := getattr(item, f"{phase}_tok_s"):
                tokens = process.asked[f"{phase}_tokens"]
                repetition.add(phase, tokens, tokens / speed * US_PER_S)
        repetition.first_token_us = item.ttft_s * US_PER_S or None
        repetition.init_us = item.init_total_ms * US_PER_MS or None
        process.repetitions.append(repetition)
    process.peak_mib = metrics.peak_mem_mb
    if row.status not in {"", "measured"}:
        process.failures["benchmark-failed"] = f"status {row.status!r}"
    fields = {"source": row.source, "runner": row.runner, "date": row.date}
    extra = {key: value for key, value in fields.items() if value}
    return tuple(
        replace(report, delegate=evidence, extra={**report.extra, **extra})
        for report in reports_of(process, requested=evidence.requested)
    )


def leaderboard_lines(
    campaigns: Iterable[Iterable[RunRecord]],
    *,
    devices: Mapping[Serial, DeviceFacts],
    models: Mapping[str, Model],
    builds: Mapping[str, Build],
) -> Iterator[str]:
    """Yield a line for each process with a figure, from the runs of each campaign, without imported
    ones.
    """
    counts = dict[str, int]()
    for runs in campaigns:
        for group in _processes(runs, devices):
            first = group[0]
            line = _line(
                group, devices.get(first.case.serial), models.get(first.case.model_sha256), builds
            )
            name = str(line["row_id"])
            counts[name] = counts.get(name, 0) + 1
            line |= {
                "row_id": name if counts[name] == 1 else f"{name}#{counts[name]}",
                "repeat": counts[name],
            }
            yield f"{json.dumps(line, allow_nan=False)}\n"


def _processes(
    runs: Iterable[RunRecord], devices: Mapping[Serial, DeviceFacts]
) -> Iterator[list[RunRecord]]:
    """Yield the runs of a campaign that have a figure and weren't imported, by process: last those
    that share one.
    """
    groups: dict[tuple[Case, int], list[RunRecord]] = {}
    for run in runs:
        facts = devices.get(run.case.serial)
        is_own = run.case.tool not in IMPORTED_TOOLS and not (
            facts is not None and facts.is_imported
        )
        if not is_own or run.latency_us is None or run.case.delegate not in _ACCELERATORS:
            continue
        if (case := run.case.without_figure) == run.case:
            yield [run]
        else:
            # A language model's prefill and decode are two cases of one process.
            groups.setdefault((case, run.invocation), []).append(run)
    yield from groups.values()


def _line(
    runs: list[RunRecord],
    facts: DeviceFacts | None,
    model: Model | None,
    builds: Mapping[str, Build],
) -> dict[str, object]:
    run = runs[0]
    report, case, build = run.report, run.case, builds.get(run.case.build_sha256)
    assert report is not None, "it has a figure"
    delegate = report.delegate
    accelerator = _ACCELERATORS[case.delegate]
    platform = _PLATFORMS[facts.kind] if facts is not None else "android"
    codename = facts.codename if facts is not None else ""
    device_id = (
        f"{codename or 'unknown'}-{facts.sdk}"
        if facts is not None and facts.sdk
        else codename or "unknown"
    )
    version = build.version if build is not None else ""
    name = (
        next(
            (share.delegate for share in delegate.shares if share.delegated_nodes), delegate.actual
        )
        or None
    )
    row_id = f"{case.model_name}:{case.model_name}@{version or case.build_sha256[:12]}/{platform}/{device_id}/{accelerator}"
    api = f" (API {facts.sdk})" if facts is not None and facts.sdk else ""
    figures = _tokens(runs, row_id) if case.is_per_token else _inferences(run)
    identity = {
        "row_id": row_id,
        "model": case.model_name,
        "file": case.model_name,
        "task": None,
        "model_size_mb": model.size_bytes / 1e6 if model is not None else None,
        "platform": platform,
        "device_id": device_id,
        "device": facts.title if facts is not None else "",
        "os": f"{facts.system}{api}" if facts is not None else "",
        "accelerator": accelerator,
        "delegate": name,
        **{key: getattr(delegate, field) for key, field in _NODES.items()},
        "runtime": case.tool.value,
        "runtime_version": version,
        "binary": build.name if build is not None else "",
        "runner": "benchfarm",
        "session": run.campaign_id,
        "job": f"{accelerator}-{device_id}",
        "source": "benchfarm",
        "status": _status(runs),
        "date": f"{run.started_at:%Y-%m-%d}",
        "benchfarm": {
            "version": __version__,
            "run_ids": [item.run_id for item in runs],
            "is_virtual": run.is_virtual,
            "threads": case.threads,
            "tool": case.tool.value,
            "build_sha256": case.build_sha256,
            "delegate_truth": delegate.truth.value,
            "quality": [item.verdict.quality.word for item in runs],
            "grade": run.verdict.grade.value if run.verdict.grade is not None else None,
            "findings": sorted(
                {finding.code for item in runs for finding in item.verdict.findings}
            ),
        },
    }
    return identity | figures


def _status(runs: list[RunRecord]) -> str:
    if any(run.is_virtual for run in runs):
        return "virtual"
    for run in runs:
        if run.verdict.quality is not Quality.TRUSTED:
            return run.verdict.quality.word
    is_shown = all(
        run.report is not None and run.report.delegate.truth in _CONFIRMED for run in runs
    )
    return "measured" if is_shown else "not-confirmed"


def _ms(value_us: float | None) -> float | None:
    return None if value_us is None else round(value_us / US_PER_MS, 6)


def _inferences(run: RunRecord) -> dict[str, object]:
    report = run.report
    assert report is not None, "it has a figure"
    figures, warmup = report.inference, report.warmup
    times: dict[str, float | None] = {
        key: getattr(figures, field, None) for key, field in SUMMARY_FIELDS.items()
    }
    times["avg"] = report.inference_mean_us or times["avg"]
    times |= {key: getattr(report, field) for key, field in _TIMES.items()}
    return {
        "latency_ms": {key: _ms(value) for key, value in times.items()},
        "memory_mb": {key: getattr(report, field) for key, field in _MEMORY.items()},
        "runs": getattr(figures, "count", None),
        "warmup_runs": getattr(warmup, "count", None),
        "throughput_mb_s": None,
    }


def _tokens(runs: list[RunRecord], row_id: str) -> dict[str, object]:
    of_phase = {dict(run.case.flags).get(FIGURE, ""): run for run in runs}
    flags = dict(runs[0].case.flags)
    speeds: dict[str, list[float]] = {}
    metrics: dict[str, object] = {}
    for phase in PHASES:
        report = of_phase[phase].report if phase in of_phase else None
        speed = tokens_per_s(report.inference_mean_us) if report is not None else None
        metrics[f"{phase}_tok_s"] = round(speed, 3) if speed is not None else None
        repetitions = (
            str(report.extra.get("repetitions_us", "")).split() if report is not None else []
        )
        warmup = [report.warmup_mean_us] if report is not None and report.warmup_mean_us else []
        speeds[phase] = [
            round(US_PER_S / value, 3) for value in (*warmup, *map(float, repetitions)) if value > 0
        ]
    report = next(iter(of_phase.values())).report
    assert report is not None, "it has a figure"
    first_us = report.extra.get("derived_first_token_us")
    metrics |= {
        "ttft_s": round(first_us / US_PER_S, 6) if isinstance(first_us, float) else None,
        "init_total_ms": _ms(report.init_us),
        "init_executor_ms": None,
        "peak_mem_mb": report.peak_memory_mib,
    }
    warmups = int(report.warmup_mean_us is not None)
    counts = asked_tokens(flags)
    conditions = {name: counts[name] for name in _TOKEN_LETTERS if name in counts}
    count = max(map(len, speeds.values()))
    iterations = [
        {
            f"{phase}_tok_s": values[place] if place < len(values) else None
            for phase, values in speeds.items()
        }
        | {"ttft_s": None, "init_total_ms": metrics["init_total_ms"]}
        for place in range(count)
    ]
    suffix = "-".join(f"{_TOKEN_LETTERS[name]}{number}" for name, number in conditions.items())
    return {
        "row_id": f"{row_id}/{suffix}",
        "conditions": {
            **conditions,
            "iterations": count or int(flags.get(REPETITIONS, "1")),
            "warmup_iterations": warmups,
        },
        "metrics": metrics,
        "iterations": iterations,
    }
