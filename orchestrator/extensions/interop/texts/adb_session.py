"""Sessions of adb without a line of a benchmark program: installations, started activities, and the
errors of a shell that can't start a program.
"""

from __future__ import annotations

import re
from typing import Final

from orchestrator.reading.failures import FailureClues
from orchestrator.records.run import ToolReport

_INSTALL: Final = re.compile(r"^\s*Performing (?:Streamed|Push) Install\s*$", re.MULTILINE)
_FAILURE: Final = re.compile(r"(?:Failure \[)(INSTALL_[A-Z_]+)|(Failure \[-\d+\])")
_SUCCESS: Final = re.compile(r"^\s*Success\s*$", re.MULTILINE)
_PUSHED: Final = re.compile(r"\d+ files? pushed\b.*?\((\d{1,18}) bytes in", re.ASCII)
_STARTING: Final = re.compile(r"^\s*(Starting: Intent \{.*\})\s*$", re.MULTILINE)
#: The line below an intent that wasn't started, whatever its reason.
_NOT_STARTED: Final = re.compile(
    r"^\s*((?:Error\b|Exception occurred|[\w.]+Exception\b|Security exception).*)", re.MULTILINE
)
_STATUS: Final = re.compile(r"^\s*Status: (\w+)\s*$", re.MULTILINE)


#: What each text with a started activity holds.
STARTING: Final = b"Starting: Intent {"
_REFUSED_START: Final = re.compile(
    # The command, what it prints before it starts anything, and what stands in the place of a
    # started activity.
    r"(?:^.*\bam start\b.*\n)?(?:^[ \t]*Stopping: .*\n)?^[ \t]*Starting: Intent \{.*\}[ \t\r]*\n(?:[ \t\r]*\n)*"
    r"[ \t]*(?:Error\b|Exception occurred|[\w.]+Exception\b|Security exception).*\n?"
    r"(?:^[ \t]*(?:at |\.\.\. |Caused by: |callingUid|Error\b|[\w.]+Exception\b).*\n?)*",
    re.MULTILINE,
)


def without_refused_starts(text: str) -> tuple[str, list[ToolReport]]:
    """Return a text without the starts of activities that a phone refused, and a report for each."""
    refused = [_report(match[0]) for match in _REFUSED_START.finditer(text)]
    return (_REFUSED_START.sub("", text) if refused else text), refused


def parse_adb_session(text: str) -> list[ToolReport]:
    """Return a report per installation, or one for a started activity; empty when the text has
    neither.
    """
    installs = [match.start() for match in _INSTALL.finditer(text)]
    if len(installs) > 1:
        ends = [*installs[1:], len(text)]
        return [_report(text[start:end]) for start, end in zip(installs, ends, strict=True)]
    is_session = installs or any(pattern.search(text) for pattern in (_FAILURE, _PUSHED, _STARTING))
    return [_report(text)] if is_session else _refusals(text)


def _report(text: str) -> ToolReport:
    extra: dict[str, float | str] = {}
    if match := _FAILURE.search(text):
        return ToolReport(
            outcome="failed", failure_code="install-failed", failure_reason=match[1] or match[2]
        )
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
    if _STARTING.search(text) and (match := _NOT_STARTED.search(text)):
        return ToolReport(
            outcome="failed", failure_code="activity-refused", failure_reason=match[1].strip()[:300]
        )
    status = _STATUS.search(text)
    well = status is None or status[1] == "ok"
    return ToolReport(
        outcome="ok" if well else "failed",
        failure_code="" if well else "activity-missing",
        failure_reason="" if well else f"Status: {status[1] if status else ''}",
        extra=extra,
    )


def _refusals(text: str) -> list[ToolReport]:
    """Return a report of a shell's or linker's error when a program can't be started, else none."""
    clues = FailureClues()
    for line in text.splitlines()[:10_000]:
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            clues.feed(stripped)
    failure = clues.text_failure()
    if failure is None or clues.best is None or clues.is_benchmark_line:
        return []
    return [
        ToolReport(
            outcome=failure.outcome, failure_code=failure.code, failure_reason=failure.reason
        )
    ]
