"""Runs of LiteRT's device lab and of its leaderboard: their files and lines are read, never run.

A job of a session leaves ``results.pb`` and ``runtime_info.pb`` (a model) or ``metrics.pb`` and
``provenance.txt`` (a language model), with the phone's whole log; the leaderboard has a line for
each (leaderboard.py).
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from typing import Final

from orchestrator.errors import OutputParseError
from orchestrator.extensions.interop.leaderboard import read_row
from orchestrator.plugins import ImportedTool, Program
from orchestrator.reading.failures import Failure
from orchestrator.reading.lines import Line, program_lines
from orchestrator.reading.litert_lm import (
    Process,
    decode_metrics,
    processes_in,
    report_of,
)
from orchestrator.reading.report import parse_run
from orchestrator.records.case import Case, ToolName
from orchestrator.records.model import PHASES, asked_tokens, phase_of
from orchestrator.records.run import (
    RESULT_FILE,
    RUNTIME_INFO_FILE,
    Attachment,
    RawOutput,
    ToolReport,
)

#: Attachments: a leaderboard's line, and the files of a session's job.
ROW: Final = "row.json"
RESULTS: Final = "results.pb"
METRICS: Final = "metrics.pb"
PROVENANCE: Final = "provenance.txt"
LOGCAT: Final = "logcat.txt"
STDOUT: Final = "stdout.txt"
#: The processes of a model's job of version 0.3 and their commands, in order.
RECORD: Final = "benchmark_run.txt"
_RESULTS_PID: Final = re.compile(rb"^(?:measured|fallback) process: pid (\d{1,9})$", re.MULTILINE)


class DeviceLabTool(ImportedTool):
    """Reads the files of a lab's job, which the lab has run."""

    def __init__(self) -> None:
        super().__init__(ToolName.DEVICE_LAB, lambda text: [])

    def parse(self, raw: RawOutput, case: Case) -> ToolReport:
        """Return the report of the case's figure, a failed one when it can't be read."""
        try:
            return _report(raw, case)
        except OutputParseError as error:
            return Failure(code="no-result", reason=str(error)).report()


def _report(raw: RawOutput, case: Case) -> ToolReport:
    flags = dict(case.flags)
    phase = phase_of(flags)
    if row := raw.data(ROW):
        reports = read_row(row).reports
        return reports[PHASES.index(phase)] if len(reports) > 1 else reports[0]
    if metrics := raw.data(METRICS):
        process = _with_evidence(decode_metrics(metrics), raw.data(LOGCAT))
        # The job's flags count; the metrics repeat them.
        process.asked |= asked_tokens(flags)
        return report_of(process, phase, requested=case.delegate.value)
    files = {
        "stdout": raw.data(STDOUT),
        "logcat": _results_log(raw),
        RESULT_FILE: raw.data(RESULTS),
        RUNTIME_INFO_FILE: raw.data(RUNTIME_INFO_FILE),
    }
    attachments = tuple(Attachment(name=name, data=data) for name, data in files.items())
    # The lab's command names no program.
    raw = dataclasses.replace(raw, command="", attachments=attachments)
    return parse_run(raw, requested=case.delegate.value)


def _results_log(raw: RawOutput) -> bytes:
    """Return the log of the job's last process, which wrote the results; the whole log where nothing
    names that process, or it logged nothing.
    """
    log, pids = raw.data(LOGCAT), _RESULTS_PID.findall(raw.data(RECORD))
    lines = (
        re.findall(rb"^[\d-]+ [\d:.]+ +%b +\d+ .*\n?" % pids[-1], log, re.MULTILINE) if pids else []
    )
    return b"".join(lines) or log


def language_model_logs(logcat: bytes) -> list[list[Line]]:
    """Return the log lines of each process that logged a language model's results, in order."""
    logged: defaultdict[int | None, list[Line]] = defaultdict(list)
    pids: dict[int | None, None] = {}
    for line in program_lines(logcat):
        logged[line.pid].append(line)
        if line.pid and ("BenchmarkInfo:" in line.raw or "litert_lm_lib.cc" in line.raw):
            pids[line.pid] = None
    return [logged[pid] for pid in pids]


def _with_evidence(process: Process, logcat: bytes) -> Process:
    """Add from the log where the operators ran; nothing from a log without results.

    Since 0.3 the command first runs a process that fills the caches: the measured one is the last
    with as many repetitions as its file has.
    """
    processes = [
        logged for lines in language_model_logs(logcat) for logged in processes_in(lines)[-1:]
    ]
    matching = [
        logged for logged in processes if len(logged.repetitions) == len(process.repetitions)
    ]
    for logged in (matching or processes)[-1:]:
        process.lines = logged.lines
        process.failures = logged.failures
        if len(logged.repetitions) > len(process.repetitions):
            process.disagreements = (
                f"the log has {len(logged.repetitions)} repetitions, {METRICS} has {len(process.repetitions)}",
            )
    return process


PROGRAM = Program(
    name=ToolName.DEVICE_LAB,
    tool=DeviceLabTool,
    has_flags=False,
    title="LiteRT device lab",
)
