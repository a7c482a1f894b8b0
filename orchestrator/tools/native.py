"""The native ``benchmark_model`` program, on a phone or on this computer."""

from __future__ import annotations

import shlex
import threading
from datetime import UTC, datetime
from pathlib import PurePosixPath

from orchestrator.ports import Device, InvocationRequest
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.run import Attachment, RawOutput, ToolReport
from orchestrator.records.workload import Case, ToolName
from orchestrator.tools.arguments import (
    PROFILE_FILE,
    RESULT_FILE,
    RUNTIME_INFO_FILE,
    benchmark_flags,
    format_flags,
)
from orchestrator.tools.output import parse_run


class NativeTool:
    """Runs the program detached from the link and collects its streams, exit code and result files."""

    name = ToolName.NATIVE

    def run(self, device: Device, request: InvocationRequest, *, cancelled: threading.Event | None = None) -> RawOutput:
        """Run one invocation; whatever its end, return all that it left behind. Raises DeviceError kinds."""
        folder = device.run_folder(request.run_id)
        command = native_command(request, folder=folder)
        started_at = datetime.now(UTC)
        try:
            result = device.run_detached(
                command,
                run_id=request.run_id,
                timeout_s=request.timeout_s,
                quiet_s=request.case.warmup_min_secs + request.case.min_secs,
                cancelled=cancelled,
            )
            files = [
                Attachment(name=name, data=data)
                for name in (RESULT_FILE, RUNTIME_INFO_FILE, PROFILE_FILE)
                if (data := device.read_file(f"{folder}/{name}")) is not None
            ]
        finally:
            device.discard_run(request.run_id)
        return RawOutput(
            command=command,
            exit_code=result.exit_code,
            timed_out=result.timed_out,
            started_at=started_at,
            duration_s=result.duration_s,
            attachments=(
                Attachment(name="stdout", data=result.stdout),
                Attachment(name="stderr", data=result.stderr),
                *files,
            ),
        )

    def parse(self, raw: RawOutput, case: Case) -> ToolReport:
        """Read the output; an unreadable output is a report that says so."""
        return parse_run(
            stdout=raw.data("stdout"),
            stderr=raw.data("stderr"),
            exit_code=raw.exit_code,
            timed_out=raw.timed_out,
            result_pb=raw.data(RESULT_FILE),
            runtime_info_pb=raw.data(RUNTIME_INFO_FILE),
            op_profile=raw.data(PROFILE_FILE),
            op_profile_format="proto" if raw.data(PROFILE_FILE) else "",
            requested=case.delegate.value,
        )


def native_command(request: InvocationRequest, *, folder: str) -> str:
    """Return the command line for the device's shell, every word quoted."""
    words = [request.program_path, *format_flags(benchmark_flags(request, folder=folder))]
    mask = affinity_mask(request.case.affinity, request.facts)
    if mask:
        words = ["taskset", mask, *words]
    libraries = shlex.quote(str(PurePosixPath(request.program_path).parent))
    return f"LD_LIBRARY_PATH={libraries} " + " ".join(shlex.quote(word) for word in words)


def affinity_mask(affinity: str, facts: DeviceFacts) -> str:
    """Return the mask for the phone's taskset in hexadecimal, empty for no restriction.

    ``big`` is every core but those of the slowest cluster, as probed; where all cores are equal or their clocks are
    unknown there is nothing to choose. A computer's scheduler is left alone unless the plan names a mask.
    """
    if affinity == "all":
        return ""
    if affinity != "big":
        return affinity.removeprefix("0x")
    every = {cpu for cluster in facts.clusters for cpu in cluster.cpus}
    if facts.kind is not DeviceKind.ANDROID or set(facts.big_cores) == every:
        return ""
    return f"{sum(1 << cpu for cpu in facts.big_cores):x}"
