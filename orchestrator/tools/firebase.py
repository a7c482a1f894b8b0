"""What the Firebase game-loop app leaves behind: a JSON object per scenario, and a CSV file."""

from __future__ import annotations

import json
import re
from typing import Final

from orchestrator.records.run import ToolReport
from orchestrator.tools.figures import NUMBER, parse_number

_OBJECT: Final = re.compile(r"\{[^{}]*\"benchmark config\"[^{}]*\}", re.DOTALL)
_TIMES: Final = re.compile(rf"(init|warmup|inference): ({NUMBER})", re.ASCII)
_CSV_COLUMNS: Final = (
    "config_key", "model_size", "init_time", "warmup_avg", "warmup_min", "warmup_max", "warmup_stddev",
    "inference_avg", "inference_min", "inference_max", "inference_stddev", "init_max_rss", "init_total_alloc",
    "init_in_use_alloc", "overall_max_rss", "overall_total_alloc", "overall_in_use_alloc",
)  # fmt: skip


def parse_firebase(text: str) -> list[ToolReport]:
    """Read the records of a text; one report each, none when it holds no such record."""
    reports = [report for match in _OBJECT.finditer(text) if (report := _json_report(match[0])) is not None]
    return reports or _csv_reports(text)


def _json_report(text: str) -> ToolReport | None:
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    label, status = str(record.get("benchmark config", "")), str(record.get("status", ""))
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


def _csv_reports(text: str) -> list[ToolReport]:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if ",".join(_CSV_COLUMNS) not in lines:
        return []
    reports = []
    for line in lines:
        cells = line.split(",")
        if len(cells) != len(_CSV_COLUMNS) or cells[0] == _CSV_COLUMNS[0]:
            continue
        row = dict(zip(_CSV_COLUMNS, cells, strict=True))
        figures = {name: parse_number(cell) for name, cell in row.items() if name != "config_key"}
        mean = figures["inference_avg"]
        reports.append(
            ToolReport(
                outcome="ok" if mean else "failed",
                failure_code="" if mean else "no-inferences",
                failure_reason="" if mean else "inference_avg is not above 0",
                init_us=figures["init_time"],
                warmup_mean_us=figures["warmup_avg"],
                inference_mean_us=mean or None,
                label=row["config_key"],
                model_size_mb=figures["model_size"],
                init_memory_mib=figures["init_max_rss"],
                overall_memory_mib=figures["overall_max_rss"],
                extra={
                    name: value
                    for name, value in figures.items()
                    if value is not None and name.startswith(("inference_m", "inference_s", "warmup_m", "warmup_s"))
                },
            )
        )
    return reports
