"""The Android benchmark app: started by an intent, read through the system log and the app's own
folder.

The app has no exit code and prints no end marker. An invocation is over when the log announces the
result file, when the process dies, when the activity ends after an error, or at the deadline.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from orchestrator.clock import Deadline
from orchestrator.errors import DeviceError, RunAsRefusedError, SystemDownError, UsageError
from orchestrator.files import BothEnds
from orchestrator.ports import Device, InvocationRequest
from orchestrator.program import Program
from orchestrator.programs.running import (
    benchmark_flags,
    files_written,
    format_flags,
)
from orchestrator.reading.lines import threadtime_header
from orchestrator.reading.report import parse_run
from orchestrator.reading.transcript import APP_START
from orchestrator.records.case import APP_PACKAGE, Case, RunId, ToolName
from orchestrator.records.device import DeviceKind
from orchestrator.records.run import Attachment, RawOutput, ToolReport
from orchestrator.records.verdict import OUTPUTS_FILE
from orchestrator.scripts import run_scripts

ACTIVITY: Final = f"{APP_PACKAGE}/.BenchmarkModelActivity"
_FOLDER: Final = f"/data/data/{APP_PACKAGE}/files"
#: The messages of ``am start`` when it fails.
_START_ERRORS: Final = (
    "Error:",
    "Error type",
    "java.lang.",
    "Exception occurred",
    "Security exception",
)
#: The attachment with the reason why the app's files can't be read.
_NO_FILES: Final = "files-refused"

_PROCESS_START: Final = re.compile(rf"Start proc (\d+):{re.escape(APP_PACKAGE)}/")
_MARK_TAG: Final = "benchfarm"
_RESULT_LINES: Final = ("Saved benchmark result to", "Failed to save benchmark result to")
_DEATH_TAGS: Final = (
    "ActivityManager",
    "AndroidRuntime",
    "DEBUG",
    "libc",
    "lmkd",
    "lowmemorykiller",
    "Zygote",
)
#: How long our process must be silent after an error until the phone is asked for the activity.
_SILENCE_AFTER_ERROR_S: Final = 2.0
#: How often a phone is asked whether a silent process lives; a benchmark may be silent for seconds.
_SILENCE_S: Final = 30.0
#: How often it is asked whether the activity has ended.
_POLL_S: Final = 0.2
#: How long the activity may write a model's outputs, which follow the saved result (as the system
#: calls of LiteRT's own program show).
_OUTPUTS_S: Final = 10.0


class ApkTool:
    """Starts the benchmark activity and follows it to its end."""

    name = ToolName.APK

    def run(self, device: Device, request: InvocationRequest) -> RawOutput:
        """Run one invocation and return its raw output, however it ends.

        Raises DeviceError kinds.
        """
        command = start_command(request)
        started_at = datetime.now(UTC)
        deadline = Deadline(request.timeout_s)
        device.shell(_clear_command(request.run_id))
        watch = _Watch(
            device=device, run_id=request.run_id, deadline=deadline, cancelled=request.cancelled
        )
        try:
            with device.follow_log(buffers=("main", "system", "crash")) as lines:
                # Old lines may come again when the phone's clock is set back: only lines after our
                # own mark count.
                marked_command = f"log -t {_MARK_TAG} {request.run_id}; {command}"
                start = device.shell(marked_command, timeout_s=min(60.0, request.timeout_s))
                output_lines = (start.text + start.stderr.decode("utf-8", "replace")).splitlines()
                if any(
                    line.startswith("cmd: ") or "system running?" in line for line in output_lines
                ):
                    raise SystemDownError("; ".join(output_lines)[-300:], serial=device.serial)
                if not any(line.startswith(_START_ERRORS) for line in output_lines):
                    watch.follow(lines)
                    if OUTPUTS_FILE in files_written(request.run_pass):
                        watch.wait_for_outputs()
        except BaseException:
            # The app must not go on heating the phone.
            with contextlib.suppress(DeviceError):
                device.shell(f"am force-stop {APP_PACKAGE}")
            raise
        device.shell(f"am force-stop {APP_PACKAGE}")
        files = _read_files(device, request)
        return RawOutput(
            command=command,
            exit_code=None,
            timed_out=watch.timed_out,
            started_at=started_at,
            duration_s=deadline.seconds - deadline.remaining_s,
            attachments=(
                Attachment(name="logcat", data=watch.log.content()),
                Attachment(name="stdout", data=start.stdout),
                Attachment(name="stderr", data=start.stderr),
                *files,
            ),
        )

    def parse(self, raw: RawOutput, case: Case) -> ToolReport:
        """Read log and result files; an unreadable output gives a failed report."""
        report = parse_run(raw, requested=case.delegate.value, flags=dict(case.flags))
        refused = raw.data(_NO_FILES).decode("utf-8", "replace")
        return (
            replace(report, extra={**report.extra, "files_refused": refused}) if refused else report
        )


def start_command(request: InvocationRequest) -> str:
    """Return the ``am start`` line for the device's shell.

    Raises UsageError for a value with white space, at which the app splits its arguments.
    """
    flags = benchmark_flags(request, folder=_run_folder(request.run_id))
    # The log cuts the line with the arguments after 1,000 characters: the run's own flag is first.
    flags = {"result_file_path": flags["result_file_path"], **flags}
    for name, value in flags.items():
        if re.search(r"\s", value):
            raise UsageError(
                f"flag {name}: the benchmark app can't take a value with white space ({value!r})"
            )
    arguments = shlex.quote(" ".join(format_flags(flags)))
    return f"am start -S -W -n {ACTIVITY} --es args {arguments}"


def _read_files(device: Device, request: InvocationRequest) -> list[Attachment]:
    """Return the files that the app wrote, or the reason why the phone refuses to read them; the
    log has the figures.
    """
    try:
        return [
            Attachment(name=name, data=data)
            for name in files_written(request.run_pass)
            if (
                data := device.read_file(
                    f"{_run_folder(request.run_id)}/{name}", package=APP_PACKAGE
                )
            )
            is not None
        ]
    except RunAsRefusedError as error:
        return [Attachment(name=_NO_FILES, data=f"{error} ({error.hint})".encode())]


def _run_folder(run_id: RunId) -> str:
    return f"{_FOLDER}/run-{run_id}"


def _clear_command(run_id: RunId) -> str:
    """Return the command that stops a running app and makes an empty folder for this run."""
    app_command = f"rm -rf files/run-*; mkdir -p files/run-{run_id}"
    return f"am force-stop {APP_PACKAGE}; run-as {APP_PACKAGE} sh -c {shlex.quote(app_command)}"


@dataclass(slots=True)
class _Watch:
    """Follows the log of one started activity until it is over."""

    device: Device
    run_id: RunId
    deadline: Deadline
    cancelled: threading.Event
    log: BothEnds = field(default_factory=BothEnds)
    timed_out: bool = False
    _is_ours: bool = False
    _pid: int | None = None
    _saw_error: bool = False
    _silent_since_s: float = 0.0

    def follow(self, lines: Iterator[bytes]) -> None:
        """Read lines until the activity is over."""
        self._silent_since_s = self.deadline.remaining_s
        for line in lines:
            # Other apps may log all the time: only the silence of our process counts.
            if (line and self._take_line(line)) or self._is_over_in_silence():
                return
            if self.cancelled.is_set():
                return
            if self.deadline.expired:
                # Its last lines are missing when the phone's clock was set back.
                self.timed_out = not self._has_ended()
                return

    def wait_for_outputs(self) -> None:
        """Wait until the activity has ended; stopped earlier, its outputs are missing or cut."""
        wait = Deadline(min(_OUTPUTS_S, self.deadline.remaining_s))
        while not self._has_ended() and not wait.expired:
            if wait.wait(_POLL_S, self.cancelled):
                return

    def _take_line(self, line: bytes) -> bool:
        logged = threadtime_header(line.decode("utf-8", "replace"))
        if logged is None:
            return False
        text, tag = logged.text, logged.tag
        is_start = APP_START in text and self.run_id in text
        self._is_ours |= is_start or (tag == _MARK_TAG and self.run_id in text)
        if not self._is_ours:
            return False
        if is_start:
            self._pid = logged.pid
        elif (process_start := _PROCESS_START.match(text)) is not None and self._pid is None:
            self._pid = int(process_start[1])
        is_our_process = logged.pid == self._pid
        is_about_us = tag.startswith(_DEATH_TAGS) and (
            APP_PACKAGE in text or _names_pid(text, self._pid)
        )
        # The reason of an ANR follows in its own line, without the process's number; denials by
        # SELinux are logged by other processes.
        is_about_us |= tag == "ActivityManager" and text.lstrip().startswith("Reason: ")
        is_about_us |= "avc:" in text and _names_pid(text, self._pid)
        # Of crash_dump's lines on a native crash, only the first names the process.
        if not (
            is_our_process
            or is_about_us
            or tag == "DEBUG"
            or (tag == "AndroidRuntime" and logged.severity == "E")
        ):
            return False
        self.log.add(line + b"\n")
        self._silent_since_s = self.deadline.remaining_s
        self._saw_error |= is_our_process and logged.severity in {"E", "F"}
        return (is_our_process and text.startswith(_RESULT_LINES)) or (
            _is_death(tag, text) and _names_pid(text, self._pid)
        )

    def _is_over_in_silence(self) -> bool:
        silent_s = self._silent_since_s - self.deadline.remaining_s
        if silent_s < (_SILENCE_AFTER_ERROR_S if self._saw_error else _SILENCE_S):
            return False
        self._silent_since_s = self.deadline.remaining_s
        return self._has_ended()

    def _has_ended(self) -> bool:
        """Ask the phone whether the process or its activity has ended; the latter may end first."""
        scripts = {
            "pid": f"pidof {APP_PACKAGE}",
            "activities": "dumpsys activity activities && echo whole",
        }
        answer = run_scripts(self.device.shell, scripts, serial=self.device.serial)
        activities = answer.text("activities")
        if not answer.value("pid"):
            return True
        return activities.endswith("whole\n") and "BenchmarkModelActivity" not in activities


def _names_pid(text: str, pid: int | None) -> bool:
    return pid is not None and re.search(rf"\b{pid}\b", text, re.ASCII) is not None


def _is_death(tag: str, text: str) -> bool:
    return tag == "ActivityManager" and ("has died" in text or "Killing " in text)


PROGRAM = Program(name=ToolName.APK, tool=ApkTool, kinds=frozenset({DeviceKind.ANDROID}))
