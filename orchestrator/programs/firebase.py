"""What the Firebase game-loop app leaves behind: a JSON object for each scenario, and a CSV file of all."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
from collections.abc import Mapping
from typing import Final

from orchestrator.errors import OutputParseError
from orchestrator.programs.foreign_app import ImportedTool, implicit_xnnpack, plain_text
from orchestrator.programs.grammar.figures import NUMBER, parse_number
from orchestrator.programs.specification import Program, Results, Scenario
from orchestrator.records.run import DelegateEvidence, DelegateTruth, ToolReport
from orchestrator.records.workload import DelegateName, ToolName

_OBJECT: Final = re.compile(r"\{[^{}]*\"benchmark config\"[^{}]*\}", re.DOTALL)
_TIMES: Final = re.compile(rf"(init|warmup|inference): ({NUMBER})", re.ASCII)
_CSV_HEAD: Final = "config_key,model_size,"
#: Columns of the CSV file, and the figures of a report that they are.
_COLUMNS: Final = {
    "init_time": "init_us", "warmup_avg": "warmup_mean_us", "model_size": "model_size_mb",
    "init_max_rss": "init_memory_mib", "overall_max_rss": "overall_memory_mib",
}  # fmt: skip
_SERIALIZED: Final = (("delegate_serialize_dir", "/sdcard/serialize"), ("delegate_serialize_token", "dummy_token"))
#: The app's scenarios by their label, in the order of their numbers from 1. The first three pass no delegate.
SCENARIOS: Final[Mapping[str, Scenario]] = {
    "cpu_1thread": Scenario(delegate=DelegateName.CPU, threads=1),
    "cpu_2threads": Scenario(delegate=DelegateName.CPU, threads=2),
    "cpu_4threads": Scenario(delegate=DelegateName.CPU, threads=4),
    "xnnpack_1thread": Scenario(delegate=DelegateName.XNNPACK, threads=1),
    "xnnpack_2threads": Scenario(delegate=DelegateName.XNNPACK, threads=2),
    "xnnpack_4threads": Scenario(delegate=DelegateName.XNNPACK, threads=4),
    "gpu_default": Scenario(delegate=DelegateName.GPU, flags=(("gpu_precision_loss_allowed", "false"),)),
    "gpu_fp16": Scenario(delegate=DelegateName.GPU, flags=(("gpu_precision_loss_allowed", "true"),)),
    "dsp_hexagon": Scenario(delegate=DelegateName.HEXAGON),
    "nnapi": Scenario(delegate=DelegateName.NNAPI),
    "gpu_default_with_serialization": Scenario(
        delegate=DelegateName.GPU, flags=(*_SERIALIZED, ("gpu_precision_loss_allowed", "false"))
    ),
    "gpu_fp16_with_serialization": Scenario(
        delegate=DelegateName.GPU, flags=(*_SERIALIZED, ("gpu_precision_loss_allowed", "true"))
    ),
}


def parse_firebase(text: str) -> list[ToolReport]:
    """Read the records of a text; one report each, none when it holds no such record.

    Nothing in a record shows where the operators ran. What is known is what the scenario passes: without a delegate
    flag the runtime applies XNNPACK by itself, whatever the label says.
    """
    reports = [report for match in _OBJECT.finditer(text) if (report := _json_report(match[0])) is not None]
    return [_judged(report) for report in reports or _csv_reports(text)]


def _csv_reports(text: str) -> list[ToolReport]:
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith(_CSV_HEAD)), len(lines))
    reports = []
    for row in csv.DictReader(lines[start:]):
        if None in row or None in row.values() or not row.get("inference_avg"):
            # Cut off, or no line of the table.
            continue
        mean = parse_number(row["inference_avg"])
        reports.append(
            ToolReport(
                outcome="ok" if mean else "failed",
                failure_code="" if mean else "no-inferences",
                failure_reason="" if mean else "inference_avg is not above 0",
                inference_mean_us=mean or None,
                label=row["config_key"],
                **{own: parse_number(row.get(name, "")) for name, own in _COLUMNS.items()},  # type: ignore[arg-type]
            )
        )
    return reports


def _judged(report: ToolReport) -> ToolReport:
    scenario = SCENARIOS.get(report.label)
    if scenario is None:
        return report
    evidence = DelegateEvidence(requested=scenario.delegate.value)
    if report.failure_code == "delegate-failed":
        line = f"status: {report.failure_reason}"
        evidence = dataclasses.replace(evidence, truth=DelegateTruth.FAILED, lines=(line,))
    elif scenario.delegate is DelegateName.CPU and report.outcome == "ok":
        evidence = implicit_xnnpack()
    return dataclasses.replace(report, delegate=evidence)


def _json_report(text: str) -> ToolReport | None:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    label, status = plain_text(record.get("benchmark config", "")), plain_text(record.get("status", ""))
    times = {name: parse_number(figure) for name, figure in _TIMES.findall(str(record.get("average time in us", "")))}
    inference = times.get("inference")
    if status != "OK" or not inference:
        code = "delegate-failed" if "delegate" in status else "benchmark-failed" if status != "OK" else "no-inferences"
        return ToolReport(outcome="failed", failure_code=code, failure_reason=status or "no status", label=label)
    return ToolReport(
        outcome="ok",
        init_us=times.get("init"),
        warmup_mean_us=times.get("warmup"),
        inference_mean_us=inference,
        label=label,
    )


def scenario_of(report: ToolReport) -> Scenario:
    """Return what a record's label means; raises OutputParseError for one that isn't the app's."""
    if report.label not in SCENARIOS:
        raise OutputParseError(f"isn't the label of a scenario; known are {', '.join(SCENARIOS)}")
    return SCENARIOS[report.label]


PROGRAM = Program(
    name=ToolName.FIREBASE,
    tool=lambda: ImportedTool(ToolName.FIREBASE, parse_firebase),
    has_flags=False,
    results=Results(read=parse_firebase, scenario=scenario_of),
    title="TFLite Firebase game-loop app",
)
