"""Reports of the Delegate Performance Benchmark app: ``report.json`` of its latency activity.

A report compares a test target with reference delegates over several models. Each delegate of each model becomes a
report here. All of them ran in one process, so that the memory figures of later ones are what the first one left of a
high-water mark; they are kept under their own names and never as a run's memory.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from orchestrator.programs.foreign_app import ImportedTool, implicit_xnnpack, plain_text
from orchestrator.programs.grammar.figures import parse_number
from orchestrator.programs.specification import Program, Results, Scenario
from orchestrator.records.run import DelegateEvidence, ToolReport
from orchestrator.records.workload import DelegateName, ToolName

_MEAN: Final = "inference_latency_average_us"
_IDENTIFIER: Final = re.compile(r"(?P<kind>\w{1,40}) \((?P<path>.*)\)", re.DOTALL)
#: The app's word for running without settings: the runtime's own choice, which is XNNPACK.
_NO_SETTINGS: Final = "default_delegate"
_DELEGATES: Final[Mapping[str, DelegateName]] = {
    "XNNPACK": DelegateName.XNNPACK,
    "GPU": DelegateName.GPU,
    "NNAPI": DelegateName.NNAPI,
    "HEXAGON": DelegateName.HEXAGON,
}


def setting_of(identifier: str) -> Scenario:
    """Return what an identifier such as ``XNNPACK (/data/local/tmp/xnnpack.json)`` means.

    The type is what the settings file says. A delegate without a type of its own, and one that the app has no flag
    for, is an external one: it came from a stable delegate's library.
    """
    match = _IDENTIFIER.fullmatch(identifier)
    kind, path = (match["kind"], match["path"]) if match else (identifier, "")
    if path == _NO_SETTINGS:
        return Scenario(delegate=DelegateName.CPU)
    flags = (("tflite_settings_file", path),) if path else ()
    return Scenario(delegate=_DELEGATES.get(kind, DelegateName.EXTERNAL), flags=flags)


def parse_delegate_performance(text: str) -> list[ToolReport]:
    """Read a latency report; empty when the text isn't one.

    Each result's ``label`` is the delegate's identifier and ``extra["graph"]`` the model's name.
    """
    return [_report(model, identifier, figures) for model, identifier, figures in _entries(text)]


_Entry = tuple[str, str, Mapping[str, float | None]]


def _entries(text: str) -> Iterator[_Entry]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return
    reports = document.get("reports") if isinstance(document, dict) else None
    for report in reports if isinstance(reports, list) else ():
        if not isinstance(report, dict) or not isinstance(report.get("metrics"), list):
            continue
        entries = [entry for entry in report["metrics"] if isinstance(entry, dict)]
        found = [_figures(entry) for entry in entries]
        # An accuracy report has the same shape and no latency.
        if any(_MEAN in figures for figures in found):
            for entry, figures in zip(entries, found, strict=True):
                yield plain_text(report.get("model", "")), plain_text(entry.get("delegate_identifier", "")), figures


def _figures(entry: Mapping[str, object]) -> dict[str, float | None]:
    metrics = entry.get("metrics")
    if not isinstance(metrics, dict):
        return {}
    return {
        plain_text(name): parse_number(str(metric["value"])) if isinstance(metric, dict) and "value" in metric else None
        for name, metric in metrics.items()
    }


def _report(model: str, identifier: str, figures: Mapping[str, float | None]) -> ToolReport:
    setting = setting_of(identifier)
    mean = figures.get(_MEAN)
    size_mb = figures.get("model_size_megabyte")
    report = ToolReport(
        outcome="ok" if mean else "failed",
        failure_code="" if mean else "no-result" if mean is None else "no-inferences",
        failure_reason="" if mean else f"{_MEAN} is {'missing' if mean is None else 'not above 0'}",
        init_us=figures.get("initialization_latency_us"),
        warmup_mean_us=figures.get("warmup_latency_average_us"),
        inference_mean_us=mean or None,
        # The app opens the model through a file descriptor, whose size the tool reports as a negative number.
        model_size_mb=size_mb if size_mb is not None and size_mb > 0 else None,
        delegate=DelegateEvidence(requested=setting.delegate.value),
        label=identifier,
        extra={
            "graph": model,
            **{name: value for name, value in figures.items() if value is not None and _is_kept_apart(name)},
        },
    )
    return replace(report, delegate=implicit_xnnpack()) if not setting.flags else report


def _is_kept_apart(name: str) -> bool:
    return name.startswith(("inference_latency_m", "inference_latency_s", "warmup_latency_m", "warmup_latency_s")) or (
        "memory" in name or name == "startup_overhead_latency_us"
    )


PROGRAM = Program(
    name=ToolName.DELEGATE_PERFORMANCE,
    tool=lambda: ImportedTool(ToolName.DELEGATE_PERFORMANCE, parse_delegate_performance),
    has_flags=False,
    results=Results(read=parse_delegate_performance, scenario=lambda report: setting_of(report.label)),
    title="TFLite Delegate Performance Benchmark app",
)
