"""Recordings of a phone's perfetto.

Every change for it is journalled first, so that a crash of benchfarm leaves no phone tracing.
"""

from __future__ import annotations

import contextlib
import shlex
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from orchestrator.errors import DeviceCommandError, DeviceError
from orchestrator.passes.specification import Hold
from orchestrator.ports import Device, SettingChange
from orchestrator.scripts import check_success, run_scripts, script_command

#: From this API level on the tracing service is on everywhere.
_SERVICE_SDK: Final = 30
_TRACES: Final = "/data/misc/perfetto-traces"
_LIMIT_BYTES: Final = 256 << 20
#: How long a tracer may take to begin, and to write its file, in the phone's seconds.
_START_S: Final = 5
_STOP_S: Final = 30


def has_perfetto(device: Device) -> bool:
    """Whether a phone has perfetto (Android 9 and later); raises DeviceError kinds."""
    return bool(run_scripts(device.shell, {"perfetto": "command -v perfetto"}).value("perfetto"))


class Property(NamedTuple):
    """A property of a phone with the value to set."""

    name: str
    value: str
    what: str


_SERVICE: Final = Property("persist.traced.enable", "1", "the tracing service being on")


@contextlib.contextmanager
def recorded(
    device: Device,
    hold: Hold,
    sources: str,
    *,
    sdk: int,
    duration_s: float,
    buffer_kb: int,
    apps: Sequence[str] = (),
) -> Iterator[Callable[[], bytes]]:
    """Record on a phone of API level ``sdk``; lend the function that stops and returns the file.

    ``sources``: the data sources of a TraceConfig as text; ``apps`` write slices. perfetto ends by
    itself after ``duration_s`` of the phone's time. Raises DeviceError kinds, and so does the
    function.
    """
    config = (
        f"buffers {{ size_kb: {buffer_kb} fill_policy: DISCARD }}\n"
        f"duration_ms: {round(1000 * duration_s)}\n{sources}\n"
    )
    recorder = _Recorder(device, hold, config=config, apps=apps)
    try:
        recorder.begin(sdk=sdk)
        yield recorder.end
    finally:
        recorder.discard()


class _Recorder:
    """One recording, by a TraceConfig as text."""

    def __init__(self, device: Device, hold: Hold, *, config: str, apps: Sequence[str]) -> None:
        self._device, self._hold, self._apps = device, hold, apps
        token = f"benchfarm-{uuid.uuid4().hex}"
        self._folder = shlex.quote(f"{device.work_folder}/traces")
        self._path = f"{_TRACES}/{token}.pftrace"
        pid_path = f"{device.work_folder}/traces/{token}.pid"
        self._begin = script_command("perfetto_begin", config, self._path, pid_path)
        self._end = script_command("perfetto_end", pid_path, token, 10 * _STOP_S)
        pid = shlex.quote(pid_path)
        # perfetto leaves the properties that name apps, and no property can be removed.
        forget = script_command("forget_apps", *apps) if apps else ""
        self._undo = f"(\n{self._end}) && {{\n{forget}rm -f {pid} {pid}.err {self._path}\n}}"

    def begin(self, *, sdk: int) -> None:
        """Start recording on a phone of API level ``sdk``; raises DeviceError kinds."""
        device = self._device
        if sdk < _SERVICE_SDK and (before := read_property(device, _SERVICE.name)) != "1":
            hold_property(device, self._hold, _SERVICE, before)
        recording = SettingChange(what="a trace being recorded", undo=self._undo)
        self._hold(device, recording, f"mkdir -p {self._folder}")
        self._run_checked(self._begin, action="starting perfetto")
        if self._apps:
            # A phone that doesn't report that its apps have noticed only costs this wait.
            device.shell(script_command("trace_told", 10 * _START_S), timeout_s=60.0 + _START_S)

    def end(self) -> bytes:
        """Stop and return the file; raises DeviceError kinds."""
        self._run_checked(self._end, action="stopping perfetto", timeout_s=60.0 + _STOP_S)
        data = self._device.read_file(self._path, limit_bytes=_LIMIT_BYTES)
        if not data:
            raise DeviceCommandError(
                f"perfetto left no trace in {self._path}", serial=self._device.serial
            )
        return data

    def discard(self) -> None:
        """Stop recording and remove the files; on an unreachable phone the journal does it later."""
        with contextlib.suppress(DeviceError):
            self._device.shell(self._undo)

    def _run_checked(self, command: str, *, action: str, timeout_s: float = 60.0) -> None:
        result = self._device.shell(command, timeout_s=timeout_s)
        check_success(result, serial=self._device.serial, action=action)


def hold_property(device: Device, hold: Hold, target: Property, before: str) -> None:
    """Set a property that was ``before``, and check it.

    Raises DeviceCommandError when the phone keeps another value (setprop may fail silently).
    """
    change = SettingChange(
        what=f"{target.what} ({target.name})",
        undo=set_property(target.name, before),
        read=f"getprop {target.name}",
        was=before,
    )
    hold(device, change, set_property(target.name, target.value))
    value = read_property(device, target.name)
    if value != target.value:
        raise DeviceCommandError(
            f"property {target.name} stays {value!r}, {target.value!r} is needed",
            serial=device.serial,
        )


def read_property(device: Device, name: str) -> str:
    """Return a property of a phone."""
    return run_scripts(device.shell, {"value": f"getprop {name}"}).value("value")


def set_property(name: str, value: str) -> str:
    """Return the command that sets a property."""
    return f"setprop {name} {shlex.quote(value)}"
