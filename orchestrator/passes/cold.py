"""The pass ``cold``: how a model starts, in stages that differ by what is cached.

Each case's caches lie in a folder of benchfarm's own, so that other cases may run between its
stages.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from orchestrator.analysis.findings import finding, start_findings
from orchestrator.delegates import DELEGATES
from orchestrator.errors import DeviceCommandError
from orchestrator.passes.specification import (
    INFO_FILES,
    INFO_FLAGS,
    ONE_INFERENCE,
    OVERHEAD_S,
    PassSpec,
    rounds,
)
from orchestrator.ports import Device, InvocationRequest, Tool
from orchestrator.program import Program
from orchestrator.records.case import Case, Pass
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.plan import Plan
from orchestrator.records.run import (
    START_STAGES,
    RawOutput,
    RunRecord,
    StartStage,
    ToolReport,
    stage_of,
)
from orchestrator.records.verdict import Finding
from orchestrator.scripts import check_success, run_scripts
from orchestrator.tables.passes import STARTS, PassTable, start_rows
from orchestrator.units import format_latency

#: Rounds where the plan gives no fixed number.
_ROUNDS: Final = 3
#: The attachment with the stage in which a process started, and the size of its caches.
START_NOTE: Final = "start.txt"
_NOTE: Final = re.compile(rb"stage=(?P<stage>[a-z-]+) cache_bytes=(?P<size>\d+|-)\n")
#: Not "Initializing ... from serialized data": it is printed before the cache is read.
_FROM_CACHE: Final = re.compile(
    rb"^[^\n]{0,200}?Initialized [^\n]{0,200}?from serialized data[^\n]{0,200}", re.MULTILINE
)


def _numbers(plan: Plan, case: Case, program: Program) -> tuple[int, ...]:
    """Return the numbers of a case's starts: as many rounds of its stages as of timing.

    Without a cache there is only the stage ``process-cold``.
    """
    caches = DELEGATES[case.delegate].cache_flags is not None and program.is_benchmark_model
    stages = START_STAGES if caches else (StartStage.PROCESS_COLD,)
    turns = rounds(plan, min(plan.invocations.first, _ROUNDS))
    return tuple(
        len(START_STAGES) * turn + START_STAGES.index(stage)
        for turn in range(turns)
        for stage in stages
    )


def _start_flags(request: InvocationRequest) -> Mapping[str, str]:
    """Return the flags of a start: one inference, with the warmup that programs require."""
    cached = DELEGATES[request.case.delegate].cache_flags
    if request.variant == StartStage.PROCESS_COLD or cached is None:
        return ONE_INFERENCE
    # Delegates share the folder: the token names the model.
    return {**ONE_INFERENCE, **cached(request.cache_folder, request.case.model_sha256[:16])}


def run_start(tool: Tool, device: Device, request: InvocationRequest) -> RawOutput:
    """Run a program with its caches prepared for the stage; the last stage removes them.

    Raises DeviceError kinds, DeviceCommandError when the folder can't be made or emptied.
    """
    # An app's caches lie in its own folder.
    app = request.build.package if request.case.tool.is_app else ""
    if app:
        request = replace(
            request, cache_folder=f"/data/data/{app}/files/start-caches/{request.case.case_key}"
        )
    note = _prepare(device, request, app)
    raw = tool.run(device, request)
    if request.variant == StartStage.CACHE_WARM:
        device.shell(_as_app(f"rm -rf {shlex.quote(request.cache_folder)}", app))
    return raw.with_data(START_NOTE, note)


def _prepare(device: Device, request: InvocationRequest, app: str) -> bytes:
    """Prepare the caches for the stage, as ``app`` if given; return the note with their size."""
    size = "-"
    if request.variant != StartStage.PROCESS_COLD:
        folder = shlex.quote(request.cache_folder)
        empty = f"rm -rf {folder} && " if request.variant == StartStage.FIRST_LOAD else ""
        # Without files cat fails, and wc prints 0.
        command = f"{empty}mkdir -p {folder} && cat {folder}/* 2>/dev/null | wc -c"
        answer = run_scripts(device.shell, {"bytes": _as_app(command, app)})
        action = f"preparing the cache folder {request.cache_folder}"
        check_success(answer, serial=device.serial, action=action)
        size = answer.value("bytes")
        if not size.isdecimal():
            raise DeviceCommandError(f"{action}: its size is {size!r}", serial=device.serial)
    return f"stage={request.variant} cache_bytes={size}\n".encode()


def _as_app(command: str, app: str) -> str:
    return f"run-as {shlex.quote(app)} sh -c {shlex.quote(command)}" if app else command


def with_start(tool: Tool, report: ToolReport, raw: RawOutput, case: Case) -> ToolReport:
    """Return a report with the start's ``start_stage``, ``cache_bytes_before``, ``from_cache``."""
    note = _NOTE.fullmatch(raw.data(START_NOTE))
    if note is None:
        return report
    extra: dict[str, float | str] = {**report.extra, "start_stage": note["stage"].decode()}
    if note["size"] != b"-":
        extra["cache_bytes_before"] = float(note["size"])
    for name in ("stdout", "stderr", "logcat"):
        line = _FROM_CACHE.search(raw.data(name))
        if line is not None:
            extra["from_cache"] = line.group().decode("utf-8", "replace").strip()
            break
    return replace(report, extra=extra)


def _findings(report: ToolReport, case: Case, facts: DeviceFacts) -> Iterator[Finding]:
    yield from start_findings(report)
    if facts.kind is DeviceKind.IOS and not case.delegate.is_cpu:
        yield finding("start-unknown")


def _run_text(run: RunRecord) -> str:
    if run.report is None:
        return ""
    parts = [("init", run.report.init_us), ("first inference", run.report.first_inference_us)]
    times = [
        f"{name} {format_latency(value_us)}" for name, value_us in parts if value_us is not None
    ]
    return f"{stage_of(run.invocation)}: {', '.join(times) or 'unknown'}"


PASS = PassSpec(
    name=Pass.COLD,
    about="How a model starts, by what is cached",
    guide="in-use",
    flags=INFO_FLAGS,
    files=INFO_FILES,
    runner=lambda services: run_start,
    last_flags=_start_flags,
    # Also flags of a plan: only the stage decides what is cached.
    withheld_flags=frozenset(
        {
            "delegate_serialize_dir",
            "delegate_serialize_token",
            "xnnpack_weight_cache_file_path",
            "compiler_cache_path",
            "gpu_serialization_dir",
            "gpu_model_cache_key",
        }
    ),
    numbers=_numbers,
    needs=lambda program, terms: (
        "doesn't start a process for each case, so no start is cold"
        if program.name.is_session
        else ""
    ),
    least_s=lambda case, terms: OVERHEAD_S,
    variant=lambda number, terms: stage_of(number).value,
    read=with_start,
    findings=_findings,
    table=PassTable(
        name="stages",
        key="starts",
        title="Cold starts",
        legend=(
            "Medians over processes of one inference each. First load: the delegate's cache is empty, and is written. "
            "Process cold: no cache is read or written. Cache warm: with what the first load has written. The "
            "model's file may be in the device's memory in each of them."
        ),
        caption=lambda cases: "Initialisation and first inference of each case by stage",
        columns=STARTS,
        lines=lambda runs, campaigns: start_rows(runs),
    ),
    run_text=_run_text,
    names_suspect_runs=True,
)
