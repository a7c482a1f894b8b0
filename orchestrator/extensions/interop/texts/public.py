"""A report as ``benchfarm parse`` shows it: the fields that every command's JSON has, and lines for
people.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Final

from orchestrator.records.failures import next_step_of
from orchestrator.records.run import ToolReport
from orchestrator.tables.table import plain
from orchestrator.units import tokens_per_s

#: Fields that may have a row for each operator of a model; people get their number.
_LONG: Final = ("operators", "operator_types", "profile_blocks")


def to_public(report: ToolReport) -> dict[str, object]:
    """Return a report's fields as JSON has them, with what follows of them: the speed of a language
    model and what to do about a failure.
    """
    is_token = report.extra.get("unit") == "token"
    return {
        **plain(report),
        "tokens_per_s": tokens_per_s(report.inference_mean_us) if is_token else None,
        "next_step": next_step_of(report.failure_code, report.failure_reason),
    }


def describe(report: ToolReport) -> list[str]:
    """Return the report as lines for people: how the run ended, then a line for each value."""
    fields = to_public(report)
    fields |= {name: len(getattr(report, name)) or None for name in _LONG}
    graph = PurePosixPath(str(report.extra.get("graph", ""))).name
    name = report.label or report.extra.get("title") or graph or "run"
    return [f"{name}: {fields.pop('outcome')}", *_lines(fields, "  ")]


def _lines(fields: Mapping[str, object], indent: str) -> Iterator[str]:
    for name, value in fields.items():
        if value in (None, "", [], {}):
            continue
        if isinstance(value, Mapping):
            yield f"{indent}{name}:"
            yield from _lines(value, f"{indent}  ")
        else:
            yield f"{indent}{name}: {_worded(value)}"


def _worded(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_worded(each)}" for name, each in value.items())
    if isinstance(value, list):
        return "; ".join(map(_worded, value))
    return f"{value:.9g}" if isinstance(value, float) else str(value)
