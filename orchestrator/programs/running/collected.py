"""A program run detached on a device, and everything that it left behind; and the reading of that."""

from __future__ import annotations

import re
import shlex
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Final

from orchestrator.errors import DeviceError
from orchestrator.passes.specification import PROFILE_FILE, RUNTIME_INFO_FILE
from orchestrator.ports import Device, InvocationRequest
from orchestrator.programs.flags.arguments import RESULT_FILE, files_written
from orchestrator.programs.running.environment import in_mode, mode_files
from orchestrator.reading.report import RunFiles
from orchestrator.reading.run import Started, parse_run
from orchestrator.records.case import Case, Pass, ToolName
from orchestrator.records.device import DeviceKind
from orchestrator.records.run import SAMPLES_FILE, Attachment, RawOutput, ToolReport
from orchestrator.scripts import ask, call

#: The last bytes that are kept of a log since a run's begin; where that moment is unknown, lines
#: that are asked for.
_LOG_LIMIT_BYTES: Final = 256 << 10
_LOG_LINES: Final = 500
_LOG_TIMEOUT_S: Final = 15.0
#: How a log names the process that it is about.
_NAMED_PID: Final = re.compile(
    rb"(?:(?:Kill|Reclaim) '[^']*' \(|\b(?:pid|PID)[:=]? ?|PhantomProcessRecord \{\w+ )(\d+)"
)
#: What happens to apps only, in lines that don't all name a process.
_OF_APPS: Final = (b"ANR in ", b"AndroidRuntime")
#: Numbers of processes restart after a power of two that is at least this one.
_PIDS_MIN: Final = 1 << 15
#: Processes that are started on a phone while a run begins, with those of others.
_PIDS_OF_A_RUN: Final = 1 << 10
#: A native program's file name in its command line, before the first flag.
_PROGRAM: Final = re.compile(r"/([^/\s']+)'? --")


class CollectingTool:
    """A program that is run detached from the link; its streams, exit code and files are read
    afterwards.
    """

    name: ToolName

    def command(self, request: InvocationRequest, folder: str) -> str:
        """Return the command line for the device's shell; ``folder`` is the run's own.

        Raises UsageError.
        """
        raise NotImplementedError

    def files(self, run_pass: Pass) -> Sequence[str]:
        """Return the names of the files that a pass leaves in its folder."""
        return files_written(run_pass)

    def run(
        self,
        device: Device,
        request: InvocationRequest,
        *,
        cancelled: threading.Event | None = None,
    ) -> RawOutput:
        """Run one invocation; whatever its end, return all that it left behind.

        Raises DeviceError kinds.
        """
        command = self.command(request, device.run_folder(request.run_id))
        return run_and_collect(
            device, request, command, files=self.files(request.run_pass), cancelled=cancelled
        )

    def parse(self, raw: RawOutput, case: Case) -> ToolReport:
        """Read the output; an unreadable output is a report that says so."""
        return read_collected(raw, case)


def run_and_collect(
    device: Device,
    request: InvocationRequest,
    command: str,
    *,
    files: Sequence[str],
    cancelled: threading.Event | None = None,
    with_log: bool = False,
) -> RawOutput:
    """Run a command line in the request's own folder and return its streams and those of ``files``
    that it wrote.

    With a run that failed, or ``with_log``, comes what the phone logged meanwhile. Whatever its
    end, the folder is removed. Raises DeviceError kinds.
    """
    folder = device.run_folder(request.run_id)
    command = request.enclosed(in_mode(command, request))
    started_at = datetime.now(UTC)
    try:
        result = device.run_detached(
            command,
            run_id=request.run_id,
            timeout_s=request.timeout_s,
            files=(*files, *request.enclosing_files, *mode_files(request), SAMPLES_FILE),
            cancelled=cancelled,
        )
        written = [Attachment(name=name, data=data) for name, data in result.files.items()]
        if (result.exit_code or with_log) and device.kind is DeviceKind.ANDROID:
            written += _logged(device, folder)
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
            *written,
        ),
    )


def _logged(device: Device, folder: str) -> list[Attachment]:
    """Return what a phone logged since a run of ours that failed began: what killed it, or what it
    was denied.

    Good runs aren't asked for it.
    """
    try:
        scripts = {
            "leader": f"cat {shlex.quote(folder)}/pid",
            "log": call("log_since", folder, _LOG_LINES),
        }
        answer = ask(partial(device.shell, timeout_s=_LOG_TIMEOUT_S), scripts)
    except DeviceError:
        # The run is whole without it.
        return []
    leader = answer.value("leader")
    told = _without_strangers(
        answer.sections.get("log", b""), int(leader) if leader.isdigit() else None
    )
    if len(told) > _LOG_LIMIT_BYTES:
        told = told[-_LOG_LIMIT_BYTES:].partition(b"\n")[2]
    return [Attachment(name="logcat", data=told)] if told.strip() else []


def _without_strangers(log: bytes, leader: int | None) -> bytes:
    """Leave out lines that name another process than a run's, or that are about apps.

    After a jump of the phone's clock, what happened before the run seems to have happened since. A
    run's processes have the numbers right after its shell's, ``leader``, which restart after the
    highest.
    """
    if leader is None:
        return log

    def is_ours(line: bytes) -> bool:
        if any(words in line for words in _OF_APPS):
            return False
        named = [int(pid) for pid in _NAMED_PID.findall(line)]
        return not named or any(0 <= (pid - leader) % _PIDS_MIN < _PIDS_OF_A_RUN for pid in named)

    return b"".join(line for line in log.splitlines(keepends=True) if is_ours(line))


def read_collected(
    raw: RawOutput,
    case: Case,
    *,
    prefix: str = "",
    exit_code: int | None = None,
    timed_out: bool | None = None,
) -> ToolReport:
    """Read a program's streams, log and result files; an unreadable output is a report that says
    so.

    ``prefix`` stands before the attachments' names where several processes share one output; their
    exit codes and ends are given then.
    """
    profile = raw.data(f"{prefix}{PROFILE_FILE}")
    program = _PROGRAM.search(raw.command)
    return parse_run(
        stdout=raw.data(f"{prefix}stdout"),
        stderr=raw.data(f"{prefix}stderr"),
        logcat=raw.data(f"{prefix}logcat"),
        exit_code=exit_code if prefix else raw.exit_code,
        timed_out=raw.timed_out if timed_out is None else timed_out,
        files=RunFiles(
            result_pb=raw.data(f"{prefix}{RESULT_FILE}"),
            runtime_info_pb=raw.data(f"{prefix}{RUNTIME_INFO_FILE}"),
            op_profile=profile,
            op_profile_format="proto" if profile else "",
        ),
        requested=case.delegate.value,
        started=Started(program=program[1] if program is not None else "", flags=dict(case.flags)),
    )
