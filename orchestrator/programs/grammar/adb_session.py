"""An adb session without output of a benchmark program: what was installed, pushed and started, and what refused."""

from __future__ import annotations

import re
from typing import Final

from orchestrator.programs.grammar.failures import FailureClues
from orchestrator.records.run import ToolReport

_INSTALL: Final = re.compile(r"^\s*Performing (?:Streamed|Push) Install\s*$", re.MULTILINE)
_FAILURE: Final = re.compile(r"Failure \[(INSTALL_[A-Z_]+)")
_SUCCESS: Final = re.compile(r"^\s*Success\s*$", re.MULTILINE)
_PUSHED: Final = re.compile(r"\d+ files? pushed\b.*?\((\d{1,18}) bytes in", re.ASCII)
_STARTING: Final = re.compile(r"^\s*(Starting: Intent \{.*\})\s*$", re.MULTILINE)
_STATUS: Final = re.compile(r"^\s*Status: (\w+)\s*$", re.MULTILINE)


def parse_adb_session(text: str) -> list[ToolReport]:
    """Return a report per installation, or one for what was started; none when the text holds neither."""
    installs = [match.start() for match in _INSTALL.finditer(text)]
    if len(installs) > 1:
        ends = [*installs[1:], len(text)]
        return [_report(text[start:end]) for start, end in zip(installs, ends, strict=True)]
    is_session = bool(installs) or any(pattern.search(text) for pattern in (_FAILURE, _PUSHED, _STARTING))
    if is_session:
        return [_report(text)]
    return _refusals(text)


def _report(text: str) -> ToolReport:
    extra: dict[str, float | str] = {}
    if match := _FAILURE.search(text):
        return ToolReport(outcome="failed", failure_code="install-failed", failure_reason=match[1])
    refused = _refusals(text)
    if refused:
        return refused[0]
    if _SUCCESS.search(text):
        extra["install"] = "Success"
    if match := _PUSHED.search(text):
        extra["pushed_bytes"] = float(match[1])
    if match := _STARTING.search(text):
        extra["am_start"] = match[1]
    if _INSTALL.search(text) and not _SUCCESS.search(text) and not _STARTING.search(text):
        reason = "the session ends before the package manager's answer"
        return ToolReport(outcome="truncated", failure_code="no-result", failure_reason=reason)
    status = _STATUS.search(text)
    well = status is None or status[1] == "ok"
    return ToolReport(
        outcome="ok" if well else "failed",
        failure_code="" if well else "activity-missing",
        failure_reason="" if well else f"Status: {status[1] if status else ''}",
        extra=extra,
    )


def _refusals(text: str) -> list[ToolReport]:
    """Return what a shell or linker says when a program can't be started."""
    clues = FailureClues()
    for line in text.splitlines()[:10_000]:
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            clues.feed(stripped)
    failure = clues.text_failure()
    if failure is None or clues.best is None or clues.best[0] > 0:
        return []
    return [ToolReport(outcome=failure.outcome, failure_code=failure.code, failure_reason=failure.reason)]
