"""LiteRT-LM: language models, by ``litert_lm_advanced_main`` on a phone and ``litert-lm benchmark`` on this computer.

One process gives two cases their figures, ``figure=prefill`` and ``figure=decode``: the time of a token of the prompt
and of the answer. The command exits with 0 after most failures, and averages a failed repetition in as a speed of 0: so
it repeats once a process. The phone's program repeats on one engine, and its first repetition is the warm-up.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
import shlex
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from orchestrator.delegates import flags_of
from orchestrator.delegates.specification import Delegate, FlagFamily
from orchestrator.errors import ArtifactError
from orchestrator.ports import Device, InvocationRequest
from orchestrator.programs.grammar.failures import signal_failure
from orchestrator.programs.grammar.litert_lm import LitertLmReader, Process, reports_of
from orchestrator.programs.native import command_line
from orchestrator.programs.running.collected import run_and_collect
from orchestrator.programs.running.environment import library_folders
from orchestrator.programs.specification import Option, Program
from orchestrator.records.device import DeviceKind
from orchestrator.records.identity import BuildSha
from orchestrator.records.run import DelegateEvidence, RawOutput, ToolReport
from orchestrator.records.tokens import CACHE, FIGURE, PHASES, REPETITIONS, TOKENS, flag_faults
from orchestrator.records.workload import Build, Case, Pass, ToolName

_USUAL_REPETITIONS: Final = "5"


class LitertLmTool:
    """Runs the program detached from the link and reads prefill and decode from what it printed."""

    name = ToolName.LITERT_LM

    def session(self, case: Case, run_pass: Pass) -> str:
        """See SessionTool.session: prefill and decode are measured by one process."""
        if run_pass is not Pass.TIMING:
            return ""
        flags = [flag for flag in case.flags if flag[0] != FIGURE]
        return json.dumps([case.model_sha256, case.build_sha256, case.delegate, case.threads, flags, case.affinity])

    def found_cases(self, raw: RawOutput, case: Case) -> Sequence[Case]:
        """See SessionTool.found_cases: none beside those that were planned."""
        return ()

    def run(self, device: Device, request: InvocationRequest, *, cancelled: threading.Event | None = None) -> RawOutput:
        """Run one process; whatever its end, return all that it left behind. Raises DeviceError kinds, UsageError."""
        command = _phone_command(request) if device.kind is DeviceKind.ANDROID else _host_command(request)
        return run_and_collect(device, request, command, files=(), cancelled=cancelled)

    def parse(self, raw: RawOutput, case: Case) -> ToolReport:
        """Read the case's own figure; the exit code counts only where nothing that was printed tells more."""
        reader = LitertLmReader()
        for name in ("stdout", "stderr"):
            for line in raw.data(name).decode("utf-8", "replace").split("\n"):
                reader.feed(line.rstrip("\r"))
        process = next(reversed(reader.end()), None) or Process()
        flags = dict(case.flags)
        phase = flags.get(FIGURE, "decode")
        process.backend = _backend(case)
        process.asked = {name.partition("_")[0]: int(flags[name]) for name in TOKENS if flags.get(name, "").isdigit()}
        process.asked["tokens"] = process.asked.pop("max", 0)
        report = next(report for report in reports_of(process, requested=case.delegate.value) if report.label == phase)
        return dataclasses.replace(_ended(report, raw), label=phase)


def _ended(report: ToolReport, raw: RawOutput) -> ToolReport:
    """Return a report with what the process's end says."""
    if raw.timed_out:
        reason = f"no result after {raw.duration_s:.0f} s"
        return _failed(report, "truncated", "timed-out", reason)
    if report.outcome == "ok" and not raw.exit_code:
        return report
    if (killed := signal_failure(raw.exit_code)) is not None and report.failure_code in {"", "no-result"}:
        return _failed(report, killed.outcome, killed.code, killed.reason)
    if report.outcome == "ok":
        return _failed(report, "failed", "benchmark-failed", f"exit code {raw.exit_code}")
    return report


def _failed(report: ToolReport, outcome: str, code: str, reason: str) -> ToolReport:
    delegate = DelegateEvidence(requested=report.delegate.requested, lines=report.delegate.lines)
    return ToolReport(outcome=outcome, failure_code=code, failure_reason=reason, delegate=delegate, extra=report.extra)


def _backend(case: Case) -> str:
    return flags_of(case.delegate, FlagFamily.LITERT_LM)["backend"]


def _host_command(request: InvocationRequest) -> str:
    """Return the command line of ``litert-lm benchmark``; what the user's own settings say doesn't count."""
    flags, case = dict(request.case.flags), request.case
    backend = _backend(case)
    words = [
        request.program_path, "benchmark", request.model_path, "--config", "/dev/null", "--verbose", "--runs", "1",
        "--prefill-tokens", flags["prefill_tokens"], "--decode-tokens", flags["decode_tokens"],
        "--max-num-tokens", flags["max_num_tokens"], "--cache", flags.get(CACHE, "no"), "--backend", backend,
    ]  # fmt: skip
    if backend == "cpu":
        words += ["--cpu-thread-count", str(case.threads)]
    return " ".join(shlex.quote(word) for word in words)


def _phone_command(request: InvocationRequest) -> str:
    """Return the command line of ``litert_lm_advanced_main``, one message at a time, its log as full as it goes."""
    flags, case = dict(request.case.flags), request.case
    arguments = [
        f"--backend={_backend(case)}",
        f"--model_path={request.model_path}",
        "--benchmark=true",
        f"--benchmark_prefill_tokens={flags['prefill_tokens']}",
        f"--benchmark_decode_tokens={flags['decode_tokens']}",
        f"--max_num_tokens={flags['max_num_tokens']}",
        f"--num_iterations={flags.get(REPETITIONS, _USUAL_REPETITIONS)}",
        "--async=false",
        "--min_log_severity=0",
        f"--num_cpu_threads={case.threads}",
    ]
    if flags.get(CACHE, "no") == "no":
        arguments.append("--disable_cache=true")
    if request.run_pass is Pass.MEMORY:
        arguments.append("--report_peak_memory_footprint=true")
    if folders := library_folders(request):
        arguments.append(f"--litert_dispatch_lib_dir={folders[0]}")
    return command_line(request, arguments) + " < /dev/null"


def installed_build(named: str) -> Build:
    """Return the command litert-lm of this computer, ``named`` or on PATH, known by the hashes of its packages' files.

    Raises ArtifactError where there is none, or it isn't installed as a package.
    """
    path = Path(named or shutil.which("litert-lm") or "litert-lm").absolute()
    if not path.is_file():
        raise ArtifactError(
            f"the command litert-lm isn't {f'at {named}' if named else 'on PATH'}",
            hint="pip install litert-lm in an environment of its own, then --build litert-lm=ENVIRONMENT/bin/litert-lm",
        )
    records = sorted(path.parent.parent.glob("lib/python*/site-packages/litert_lm*.dist-info/RECORD"))
    if not records:
        raise ArtifactError(f"{path} is no installed litert-lm", hint="name the one in its environment's folder bin")
    folders = [record.parent.name.removesuffix(".dist-info") for record in records]
    version = next((name.partition("-")[2] for name in folders if name.startswith("litert_lm-")), "")
    return Build(
        name=f"litert-lm {version}".rstrip(),
        tool=ToolName.LITERT_LM,
        sha256=BuildSha(hashlib.sha256(b"".join(record.read_bytes() for record in records)).hexdigest()),
        abi=platform.machine(),
        version=version,
        path=path,
    )


def _figures(delegate: Delegate, given: Option) -> tuple[Option, ...]:
    """Return the flags of both figures of a process: how many tokens, where the plan doesn't say, and which figure."""
    del delegate
    usual = tuple((name, value) for name, value in TOKENS.items() if name not in dict(given))
    return tuple((*usual, (FIGURE, phase)) for phase in PHASES)


PROGRAM = Program(
    name=ToolName.LITERT_LM,
    tool=LitertLmTool,
    kinds=frozenset({DeviceKind.ANDROID, DeviceKind.HOST}),
    family=FlagFamily.LITERT_LM,
    has_flags=True,
    options=_figures,
    flag_faults=flag_faults,
    is_for_bundles=True,
    file_name="litert_lm_advanced_main",
    installed=installed_build,
)
