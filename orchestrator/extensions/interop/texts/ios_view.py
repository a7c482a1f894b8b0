"""The view of TensorFlow's iOS app, whose text people copy."""

from __future__ import annotations

import re
from typing import Final

from orchestrator.reading.lines import NUMBER, parse_number, to_us
from orchestrator.records.run import LatencySummary, ToolReport

_STARTUP: Final = re.compile(rf"^\s*Startup latency: ({NUMBER}) ms\s*$", re.ASCII | re.MULTILINE)
_BLOCK: Final = re.compile(
    r"^\s*(Inference|Warmup):[ \t]*$(?P<body>(?:\r?\n[ \t]*- .*)*)", re.MULTILINE
)
_RUNS: Final = re.compile(r"- Num runs: (\d{1,18})[ \t]*\r?$", re.ASCII | re.MULTILINE)
_ENTRY: Final = re.compile(
    rf"- (Average|Min|Max|Std deviation): ({NUMBER}) ms[ \t]*\r?$", re.ASCII | re.MULTILINE
)
_FIELDS: Final = {"Average": "mean_us", "Min": "min_us", "Max": "max_us", "Std deviation": "std_us"}


def parse_ios_view(text: str) -> list[ToolReport]:
    """Read the view's text; one report per run, none when it isn't such a text."""
    if not text.endswith("\n"):
        # A copy from the view ends without a line end; its last line is whole when it ends in its
        # unit.
        text += "\n"
    starts = list(_STARTUP.finditer(text))
    reports = []
    for index, start in enumerate(starts):
        end = starts[index + 1].start() if index + 1 < len(starts) else len(text)
        reports.append(_report(start[1], text[start.end() : end]))
    return reports


def _report(startup: str, body: str) -> ToolReport:
    blocks = {match[1]: _summary(match["body"]) for match in _BLOCK.finditer(body)}
    inference, warmup = blocks.get("Inference"), blocks.get("Warmup")
    value = parse_number(startup)
    has_result = inference is not None and inference.mean_us is not None
    is_empty = inference is not None and inference.count == 0
    code = "no-inferences" if is_empty else "" if has_result else "no-result"
    return ToolReport(
        outcome="failed" if is_empty else "ok" if has_result else "truncated",
        failure_code=code,
        failure_reason={
            "no-inferences": "Num runs: 0",
            "no-result": "no average under Inference",
        }.get(code, ""),
        init_us=None if value is None else to_us(value, "ms"),
        inference=inference,
        inference_mean_us=inference.mean_us if inference is not None and not is_empty else None,
        warmup=warmup,
        warmup_mean_us=warmup.mean_us if warmup is not None and warmup.count != 0 else None,
    )


def _summary(body: str) -> LatencySummary | None:
    runs = _RUNS.search(body)
    if not runs:
        return None
    values = {
        _FIELDS[name]: to_us(value, "ms")
        for name, figure in _ENTRY.findall(body)
        if (value := parse_number(figure)) is not None
    }
    count = int(runs[1])
    # A count with nothing after it may lack digits.
    return LatencySummary(count=count, **values) if values or count == 0 else None
