"""``litert-benchmark``, the program that the ai-edge-litert package ships: LiteRT measured on this
computer.

It prints hundredths of a millisecond, runs a fixed number of inferences, and always uses XNNPACK.
Its JSON says whether the compiled model is fully accelerated. It has no minimum time: a short pilot
process for each case gives the number of inferences for a plan's ``min_secs``.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeGuard

from orchestrator.delegates import ACCELERATORS, DELEGATES, FlagFamily, flags_of
from orchestrator.errors import UsageError
from orchestrator.ports import Device, InvocationRequest
from orchestrator.program import Program
from orchestrator.programs.flags import documented_flags, require_right
from orchestrator.programs.running import on_cores, placed_value, run_and_collect
from orchestrator.reading.failures import Failure
from orchestrator.reading.report import parse_run
from orchestrator.records.case import Build, BuildSha, Case, CaseKey, DelegateName, RunId, ToolName
from orchestrator.records.device import DeviceKind
from orchestrator.records.run import (
    TOO_FAST,
    DelegateEvidence,
    DelegateTruth,
    LatencySummary,
    RawOutput,
    ToolReport,
)
from orchestrator.units import US_PER_MS, US_PER_S, counted, format_latency

#: Flags that benchmark_model calls otherwise.
_SPELLED: Final = {
    "signature_to_run_for": "signature",
    "compiler_plugin_library_path": "compiler_plugin_path",
}
RESULT_FILE: Final = "result.json"
_ERROR_LINE: Final = re.compile(
    r"ERROR: (?!\[[^]]*\]$)|[\w.]*(?:Error|Exception)\b: |\S+ \S+ ERROR "
)
PILOT_RUNS: Final = 5


class LitertTool:
    """Runs litert-benchmark as a process of its own and reads its JSON."""

    name = ToolName.LITERT

    def __init__(self) -> None:
        #: The time of an inference, by case; None where the pilot failed.
        self._pilots_us: dict[CaseKey, float | None] = {}

    def run(self, device: Device, request: InvocationRequest) -> RawOutput:
        """Run one invocation and return its raw output, however it ends.

        Raises DeviceError kinds.
        """
        key = request.case.case_key
        if key not in self._pilots_us:
            pilot = replace(request, run_id=RunId(f"{request.run_id}-pilot"))
            raw = self._run_counted(device, pilot, Counts(runs=PILOT_RUNS, warmups=1))
            self._pilots_us[key] = self.parse(raw, request.case).inference_mean_us
        return self._run_counted(device, request, counts_for(request.case, self._pilots_us[key]))

    def _run_counted(self, device: Device, request: InvocationRequest, counts: Counts) -> RawOutput:
        command = litert_command(request, counts, folder=device.run_folder(request.run_id))
        return run_and_collect(device, request, command, files=(RESULT_FILE,))

    def parse(self, raw: RawOutput, case: Case) -> ToolReport:
        """Read the JSON and the exit code; without JSON, the log gives the reason."""
        log = parse_run(raw, requested=case.delegate.value, flags=dict(case.flags))
        try:
            result = json.loads(raw.data(RESULT_FILE) or b"null")
        except ValueError:
            result = None
        if not is_litert_result(result) or raw.exit_code != 0:
            if log.outcome == "ok" or log.failure_code in {"no-result", "benchmark-failed"}:
                return _failed_report(_error_line(raw.data("stderr")), case)
            return replace(log, inference=None, inference_mean_us=None)
        try:
            report = litert_report(result)
        except (TypeError, ValueError) as error:
            return _failed_report(f"{RESULT_FILE} isn't in the program's format: {error}", case)
        return replace(report, delegate=_delegate_evidence(result, log.delegate, case))


class Counts(NamedTuple):
    """The numbers of inferences in one process."""

    runs: int
    warmups: int


def counts_for(case: Case, inference_us: float | None) -> Counts:
    """Return the counts for the plan's minimum and maximum times, if an inference takes
    ``inference_us``.
    """
    if not inference_us:
        return Counts(runs=case.num_runs, warmups=case.warmup_runs)

    def within(count_min: int, time_min_s: float) -> int:
        count = max(count_min, math.ceil(time_min_s * US_PER_S / inference_us))
        return max(1, min(count, math.floor(case.max_secs * US_PER_S / inference_us)))

    return Counts(
        runs=within(case.num_runs, case.min_secs),
        warmups=within(case.warmup_runs, case.warmup_min_secs),
    )


def litert_command(request: InvocationRequest, counts: Counts, *, folder: str) -> str:
    """Return the command line, every word quoted.

    Raises UsageError for a delegate or flags that this program doesn't have.
    """
    case = request.case
    if FlagFamily.LITERT_BENCHMARK not in DELEGATES[case.delegate].flags:
        raise UsageError(f"litert-benchmark has no delegate {case.delegate}")
    delegate_flags = flags_of(case.delegate, FlagFamily.LITERT_BENCHMARK)
    plan_flags = dict(case.flags)
    require_right(plan_flags, FlagFamily.LITERT_BENCHMARK, delegate_flags)
    words = [
        request.program_path,
        f"--model={request.model_path}",
        f"--num_runs={counts.runs}",
        f"--warmup_runs={counts.warmups}",
        f"--num_threads={case.threads}",
        f"--result_json={folder}/{RESULT_FILE}",
    ]
    specs = documented_flags(FlagFamily.LITERT_BENCHMARK).flags
    for name, value in {**delegate_flags, **plan_flags}.items():
        word = f"--{_SPELLED.get(name, name)}"
        if specs[name].kind != "bool":
            words.append(f"{word}={placed_value(value, request)}")
        elif value in {"true", "1"}:
            words.append(word)
    return shlex.join(on_cores(request, words))


def installed_build(file_name: str = "") -> Build:
    """Return the litert-benchmark beside this interpreter, identified by the hashes of its
    package's files.
    """
    del file_name
    package = distribution("ai-edge-litert")
    record = package.read_text("RECORD") or package.version
    return Build(
        name=f"ai-edge-litert {package.version}",
        tool=ToolName.LITERT,
        sha256=BuildSha(hashlib.sha256(record.encode()).hexdigest()),
        abi=platform.machine(),
        version=package.version,
        path=Path(sys.executable).with_name("litert-benchmark"),
    )


def _delegate_evidence(
    result: Mapping[str, object], printed: DelegateEvidence, case: Case
) -> DelegateEvidence:
    is_xnnpack = case.delegate is DelegateName.XNNPACK
    is_full = result.get("fully_accelerated")
    truth = DelegateTruth.UNKNOWN
    if not is_xnnpack or printed.actual == case.delegate.value:
        if is_full is True:
            truth = DelegateTruth.FULL
        elif is_xnnpack:
            truth = DelegateTruth.PARTIAL
    lines = (f"fully_accelerated: {is_full}", *printed.lines)
    actual = "" if truth is DelegateTruth.UNKNOWN else case.delegate.value
    return DelegateEvidence(requested=case.delegate.value, actual=actual, truth=truth, lines=lines)


def _failed_report(reason: str, case: Case) -> ToolReport:
    evidence = DelegateEvidence(requested=case.delegate.value)
    return Failure(code="tool-failed", reason=reason).report(evidence)


def _error_line(data: bytes) -> str:
    """Return the program's first line that is marked as an error, else its last line."""
    lines = [line.strip() for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
    errors = (line for line in lines if _ERROR_LINE.match(line))
    return next(errors, lines[-1] if lines else "the program printed nothing")


#: The resolution of the program's figures, in microseconds.
RESOLUTION_US: Final = 10.0


def is_litert_result(document: object) -> TypeGuard[dict[str, Any]]:
    """Whether a JSON document is a result of the program."""
    latency = document.get("latency") if isinstance(document, dict) else None
    return isinstance(latency, dict) and {"avg_ms", "num_runs"} <= latency.keys()


def litert_report(result: Mapping[str, Any]) -> ToolReport:
    """Return the report of the program's JSON.

    Raises TypeError or ValueError for JSON that the program doesn't write.
    """
    latency = result["latency"]

    def us(name: str) -> float | None:
        value = latency.get(name)
        return None if value is None else round(float(value) * US_PER_MS, 3)

    count = int(latency.get("num_runs", 0))
    figures = {
        f"{name}_us": us(f"{name}_ms") for name in ("min", "max", "std", "p5", "median", "p95")
    }
    inference = LatencySummary(count=count, mean_us=us("avg_ms"), **figures)
    if count == 0:
        reason = "the program measured no inference"
        return Failure(code="no-inferences", reason=reason).report()
    if not inference.mean_us or inference.median_us == 0:
        reason = (
            f"{counted(count, 'inference')} took less than the {format_latency(RESOLUTION_US)} "
            "that it rounds to; --tool native prints more digits"
        )
        return Failure(code=TOO_FAST, reason=reason).report()
    warmups = int(latency.get("num_warmup_runs", 0))
    used = (
        name
        for word, name in ACCELERATORS.items()
        if word.upper() in result.get("accelerators", ())
    )
    # The CPU beside another takes what that leaves.
    requested = min(used, key=lambda name: name.is_cpu, default="")
    names = {"graph": result.get("model"), "signature": result.get("signature")}
    return ToolReport(
        outcome="ok",
        init_us=us("init_ms"),
        first_inference_us=us("warmup_first_ms") if warmups else None,
        warmup_mean_us=us("warmup_avg_ms") if warmups else None,
        inference_mean_us=inference.mean_us,
        warmup=LatencySummary(
            count=warmups, first_us=us("warmup_first_ms"), mean_us=us("warmup_avg_ms")
        ),
        inference=inference,
        delegate=DelegateEvidence(
            requested=str(requested),
            lines=(f"fully_accelerated: {result.get('fully_accelerated')}",),
        ),
        echoed={"Num threads": str(result.get("num_threads", ""))},
        # The size that it writes has only two digits, too few to identify a file.
        extra={"resolution_us": RESOLUTION_US}
        | {key: str(name) for key, name in names.items() if name},
    )


PROGRAM = Program(
    name=ToolName.LITERT,
    tool=LitertTool,
    kinds=frozenset({DeviceKind.HOST}),
    usual_on=DeviceKind.HOST,
    finer_program=ToolName.NATIVE,
    family=FlagFamily.LITERT_BENCHMARK,
    shares_file_name=True,
    installed=installed_build,
)
