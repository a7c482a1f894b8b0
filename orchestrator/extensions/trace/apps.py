"""The trace of somebody's own app while it is used: TensorFlow Lite's slices, from any app that may
be traced.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from orchestrator.bootstrap import Workspace
from orchestrator.engine.events import Notice
from orchestrator.engine.restoring import restore, why_not_restored
from orchestrator.errors import BenchfarmError, DeviceCommandError, OutputParseError, UsageError
from orchestrator.extensions.trace.run_pass import TraceRecording
from orchestrator.extensions.trace.runs import LONGEST_S, TraceRequest, check_folder, write_trace
from orchestrator.extensions.trace.slices import AppSummary, summarise_app
from orchestrator.extensions.trace.trace_file import read_recording
from orchestrator.ports import Device
from orchestrator.processes import child_environment
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.plan import DeviceSelection
from orchestrator.scripts import ask

_PACKAGE: Final = re.compile(r"[A-Za-z]\w*(\.[A-Za-z]\w*)+", re.ASCII)
_ACTIVITY: Final = re.compile(r"\.?[A-Za-z_][\w$]*(\.[A-Za-z_][\w$]*)*", re.ASCII)
#: How often the phone is asked for the app meanwhile, which also renews that it is ours.
_LOOK_S: Final = 10.0
#: From this API level on every app's slices are written.
_ALL_APPS_SDK: Final = 31
#: What the package manager says of an app whose slices are written before that.
_TRACEABLE: Final = frozenset({"DEBUGGABLE", "PROFILEABLE_BY_SHELL"})
_RESTART: Final = "--restart ends it first, so that its models are loaded again"


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedApp:
    """What was recorded of an app."""

    serial: str
    is_virtual: bool
    package: str
    version: str
    file: Path
    size_bytes: int
    #: None when it wasn't read.
    summary: AppSummary | None
    #: What is wrong, each with what to do; empty when all is well.
    faults: tuple[str, ...]


@dataclass(slots=True)
class _Seen:
    """The app's processes that were seen while it was recorded."""

    pids: set[int] = field(default_factory=set)
    #: Those that ran before.
    before: frozenset[int] = frozenset()
    #: The exit code of ``during``; None when there was none, or it was ended because its time was
    #: over.
    exit_code: int | None = None
    is_cut: bool = False
    is_interrupted: bool = False
    #: Of those seen, whether none was left at the end.
    has_ended: bool = False


def record_app(
    workspace: Workspace, request: TraceRequest, serials: Sequence[str], folder: Path
) -> TracedApp:
    """Record an app on one phone.

    Raises UsageError kinds before anything is changed, DeviceError kinds; the phone is restored
    whatever happens.
    """
    _check(request, folder)
    device, facts = _phone(workspace, serials)
    version = _installed(device, facts, request.package)
    seen = _Seen()
    token = f"benchfarm-{secrets.token_hex(6)}"
    with workspace.lease.acquire(facts.serial):
        workspace.conditioner.take(device, on_wait=lambda text: _tell(workspace, facts, text))
        try:
            if request.restart:
                device.shell(f"am force-stop {shlex.quote(request.package)}")
            seen.before = frozenset(_pids(device, request.package))
            _, trace = TraceRecording(workspace.hold).around(
                device,
                lambda: _use(workspace, device, facts, request, seen),
                app=request.package,
                token=token,
                sdk=facts.sdk or 0,
                limit_s=LONGEST_S + 60.0,
            )
        finally:
            _give_back(workspace, device, facts)
    path = write_trace(folder, (facts.serial, request.package, token[-12:]), trace.name, trace.data)
    summary, faults = None, []
    if request.has_summary:
        try:
            summary = summarise_app(
                read_recording(trace.name, trace.data), request.package, seen.pids
            )
        except OutputParseError as error:
            faults.append(f"the trace can't be read: {error}")
    faults += _faults(request, facts, seen, summary)
    return TracedApp(
        serial=facts.serial,
        is_virtual=facts.is_virtual,
        package=request.package,
        version=version,
        file=path,
        size_bytes=len(trace.data),
        summary=summary,
        faults=tuple(faults),
    )


def _check(request: TraceRequest, folder: Path) -> None:
    """Raise UsageError for what can't be meant."""
    if not _PACKAGE.fullmatch(request.package):
        raise UsageError(
            f"--app {request.package!r} isn't the name of an Android package",
            hint="such as com.example.camera; 'adb shell pm list packages -3' lists those of installed apps",
        )
    if request.activity and not _ACTIVITY.fullmatch(request.activity):
        raise UsageError(
            f"{request.activity!r} isn't the name of an activity",
            hint="such as .MainActivity, no package/",
        )
    if request.during and request.seconds is not None:
        raise UsageError(
            "--during and --budget can't be used together",
            hint="a command says itself when it ends",
        )
    if request.during and not _words(request.during):
        raise UsageError("--during names no command")
    check_folder(folder, has_summary=request.has_summary)


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise UsageError(f"--during {command!r}: {error}") from error


def _phone(workspace: Workspace, serials: Sequence[str]) -> tuple[Device, DeviceFacts]:
    found = workspace.open_devices(DeviceSelection(serials=tuple(serials))).devices
    if len(found) != 1:
        serials = ", ".join(facts.serial for _, facts in found)
        raise UsageError(
            f"an app is traced on one phone, these fit: {serials}", hint="choose one with -s"
        )
    ((device, facts),) = found
    if facts.kind is not DeviceKind.ANDROID:
        raise UsageError(f"{facts.serial}: apps are traced on Android phones only")
    return device, facts


def _installed(device: Device, facts: DeviceFacts, package: str) -> str:
    """Return the installed version.

    Raises UsageError when it isn't there or doesn't let itself be traced.
    """
    found = device.package(package)
    if found is None:
        raise UsageError(
            f"{package} isn't installed on {facts.serial}",
            hint="install it, or look for its name with 'adb shell pm list packages'",
        )
    may_all = (facts.sdk or 0) >= _ALL_APPS_SDK or facts.properties.get("ro.debuggable") == "1"
    if not may_all and found.flags and not _TRACEABLE & found.flags:
        raise UsageError(
            f"{package} on {facts.serial} is neither debuggable nor profileable: before Android 12 such an app's "
            "slices aren't written",
            hint='install a debug build, or one whose <application> holds <profileable android:shell="true"/>',
        )
    return found.version_name


def _pids(device: Device, package: str) -> set[int]:
    told = ask(device.shell, {"pids": f"pidof {shlex.quote(package)}"}).value("pids")
    return {
        int(word) for word in told.split() if word.isascii() and word.isdecimal() and len(word) < 10
    }


def _use(
    workspace: Workspace, device: Device, facts: DeviceFacts, request: TraceRequest, seen: _Seen
) -> None:
    """Start what is to be started, and wait until it is over; the app's processes are looked for
    meanwhile.
    """
    if request.activity:
        component = shlex.quote(f"{request.package}/{request.activity}")
        result = device.shell(f"am start -W -n {component}", timeout_s=90.0)
        said = (result.stdout + result.stderr).decode("utf-8", "replace")
        wrong = [
            line
            for line in said.splitlines()
            if line.startswith(("Error", "java.lang.", "Exception"))
        ]
        if result.exit_code != 0 or wrong:
            raise DeviceCommandError(
                f"{request.package}/{request.activity} can't be started: {' '.join(wrong) or said.strip()[-300:]}",
                serial=device.serial,
                hint=f"'adb shell cmd package resolve-activity --brief {request.package}' names the first activity",
            )
    end_s = time.monotonic() + (LONGEST_S if request.seconds is None else request.seconds)
    try:
        with _during(workspace, request, facts) as process:
            _tell(
                workspace,
                facts,
                f"{request.package} is being recorded; Ctrl-C ends it and keeps what is recorded",
            )
            seen.pids |= _pids(device, request.package)
            while (left_s := end_s - time.monotonic()) > 0 and seen.exit_code is None:
                if process is None:
                    time.sleep(min(_LOOK_S, left_s))
                else:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        seen.exit_code = process.wait(min(_LOOK_S, left_s))
                seen.pids |= _pids(device, request.package)
            seen.is_cut = seen.exit_code is None and request.seconds is None
    except KeyboardInterrupt:
        # A second one, while the trace is fetched, leaves nothing but the phone as it was.
        seen.is_interrupted = True
    left = _pids(device, request.package)
    seen.has_ended = bool(seen.pids) and not left
    seen.pids |= left


@contextlib.contextmanager
def _during(
    workspace: Workspace, request: TraceRequest, facts: DeviceFacts
) -> Iterator[subprocess.Popen[bytes] | None]:
    """Run the user's command, where there is one, and end it with this block."""
    if not request.during:
        yield None
        return
    words = _words(request.during)
    try:
        # What it prints goes to standard error, beside our own words.
        process = subprocess.Popen(
            words,
            env=_environ(workspace, facts),
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            stderr=sys.stderr,
        )
    except (OSError, ValueError) as error:
        raise UsageError(f"--during: {words[0]} can't be run: {error}") from error
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _environ(workspace: Workspace, facts: DeviceFacts) -> dict[str, str]:
    """Return what makes plain ``adb`` in the command reach this phone."""
    attached = workspace.pick(facts.serial, workspace.attached(serials=[facts.serial]))
    reach = {} if attached.server is None else {"ADB_SERVER_SOCKET": attached.via}
    return child_environment(
        workspace.settings.environ, **reach, ANDROID_SERIAL=attached.seen.address
    )


def _give_back(workspace: Workspace, device: Device, facts: DeviceFacts) -> None:
    """Put the phone back; what can't be undone now stays in the journal and is named, and hides no
    other fault.
    """
    try:
        restore(device, workspace.conditioner, on_note=lambda text: _tell(workspace, facts, text))
    except BenchfarmError as error:
        _tell(workspace, facts, why_not_restored(device.serial, error))


def _faults(
    request: TraceRequest, facts: DeviceFacts, seen: _Seen, summary: AppSummary | None
) -> Iterator[str]:
    """Yield what went wrong, each with the next step."""
    if seen.exit_code:
        yield f"the command of --during ended with exit code {seen.exit_code}: look at what it printed"
    if seen.is_cut:
        yield f"recording was ended after {LONGEST_S:.0f} s; trace a shorter scenario"
    if seen.is_interrupted and (request.during or request.seconds is not None):
        yield "interrupted: what was recorded until then is kept"
    if seen.has_ended and not request.during:
        yield f"{request.package} ended while it was recorded; 'adb logcat -b crash -d' says whether it crashed"
    if summary is None or summary.has_slices:
        return
    if not seen.pids and not seen.before:
        yield f"{request.package} didn't run meanwhile: name its activity, or start it while it is recorded"
    elif seen.before & seen.pids:
        yield (
            f"no operator wrote a slice: {request.package} ran before, and a model that was loaded then writes none; "
            + _RESTART
        )
    else:
        yield (
            "no operator wrote a slice: either no model was run meanwhile, or the app's runtime can't write any "
            "(before TensorFlow Lite 2.4), or the app has set a profiler of its own; run a model while it is recorded"
        )
    if summary.lost_events or summary.gaps:
        yield "the phone lost events, slices may be among them: trace a shorter scenario"


def _tell(workspace: Workspace, facts: DeviceFacts, text: str) -> None:
    keys = {"serial": str(facts.serial)}
    workspace.observer.on_event(
        Notice(event="device-note", text=f"{facts.serial}: {text}", keys=keys)
    )
