"""Recordings of a phone's perfetto.

Everything that is changed for it is journalled first, so that a crash of ours leaves no phone that
goes on tracing.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Sequence
from typing import Final, NamedTuple

from orchestrator.errors import DeviceCommandError, DeviceError
from orchestrator.passes.specification import Hold
from orchestrator.ports import Change, Device
from orchestrator.scripts import ask, call

#: From this API level on the tracing service is on everywhere.
_SERVICE_SDK: Final = 30
_TRACES: Final = "/data/misc/perfetto-traces"
_LIMIT_BYTES: Final = 256 << 20
#: How long a tracer may take to begin, and to write its file, in the phone's seconds.
_START_S: Final = 5
_STOP_S: Final = 30


def has_perfetto(device: Device) -> bool:
    """Whether a phone has perfetto (Android 9 and later); raises DeviceError kinds."""
    return bool(ask(device.shell, {"perfetto": "command -v perfetto"}).value("perfetto"))


class Property(NamedTuple):
    """A property as it is wanted."""

    name: str
    value: str
    what: str


_SERVICE: Final = Property("persist.traced.enable", "1", "the tracing service being on")


class Recorder:
    """One recording, by a TraceConfig as text."""

    def __init__(
        self,
        device: Device,
        hold: Hold,
        *,
        token: str,
        config: str,
        apps: Sequence[str] = (),
    ) -> None:
        """``token`` is in the names of its files and its command line, and nowhere else; ``apps``
        write slices.
        """
        self._device, self._hold, self._apps = device, hold, apps
        self._folder = shlex.quote(f"{device.work_folder}/traces")
        self._path = f"{_TRACES}/{token}.pftrace"
        pid_path = f"{device.work_folder}/traces/{token}.pid"
        self._begin = call("perfetto_begin", config, self._path, pid_path)
        self._end = call("perfetto_end", pid_path, token, 10 * _STOP_S)
        pid = shlex.quote(pid_path)
        # perfetto leaves the properties behind that name apps, and no property can be removed.
        forget = call("forget_apps", *apps) if apps else ""
        self._undo = f"(\n{self._end}) && {{\n{forget}rm -f {pid} {pid}.err {self._path}\n}}"

    def begin(self, *, sdk: int) -> None:
        """Record from now on a phone of an API level; raises DeviceError kinds."""
        device = self._device
        if sdk < _SERVICE_SDK and (before := property_of(device, _SERVICE.name)) != "1":
            hold_property(device, self._hold, _SERVICE, before)
        recording = Change(what="a trace being recorded", undo=self._undo)
        self._hold(device, recording, f"mkdir -p {self._folder}")
        self._must(self._begin, what="starting perfetto")
        if self._apps:
            # A phone that doesn't report that apps know it is only waited for.
            device.shell(call("trace_told", 10 * _START_S), timeout_s=60.0 + _START_S)

    def end(self) -> bytes:
        """Stop and return the file; raises DeviceError kinds."""
        self._must(self._end, what="stopping perfetto", timeout_s=60.0 + _STOP_S)
        data = self._device.read_file(self._path, limit_bytes=_LIMIT_BYTES)
        if not data:
            raise DeviceCommandError(
                f"perfetto left no trace in {self._path}", serial=self._device.serial
            )
        return data

    def discard(self) -> None:
        """Stop if it still records, and remove its files; a phone out of reach has it in the
        journal.
        """
        with contextlib.suppress(DeviceError):
            self._device.shell(self._undo)

    def _must(self, command: str, *, what: str, timeout_s: float = 60.0) -> None:
        """Run a command; raises DeviceCommandError with what the phone said."""
        result = self._device.shell(command, timeout_s=timeout_s)
        if result.exit_code != 0:
            said = (result.stderr or result.stdout).decode("utf-8", "replace").strip()[-300:]
            raise DeviceCommandError(
                f"{what} failed: {said or 'no reason given'}", serial=self._device.serial
            )


def hold_property(device: Device, hold: Hold, wanted: Property, before: str) -> None:
    """Set a property that was ``before`` and make sure of it.

    Raises DeviceCommandError when the phone keeps another value (setprop itself may fail in
    silence).
    """
    change = Change(
        what=f"{wanted.what} ({wanted.name})",
        undo=set_property(wanted.name, before),
        read=f"getprop {wanted.name}",
        was=before,
    )
    hold(device, change, set_property(wanted.name, wanted.value))
    now = property_of(device, wanted.name)
    if now != wanted.value:
        raise DeviceCommandError(
            f"property {wanted.name} stays {now!r}, {wanted.value!r} is needed",
            serial=device.serial,
        )


def property_of(device: Device, name: str) -> str:
    """Return a property of a phone."""
    return ask(device.shell, {"value": f"getprop {name}"}).value("value")


def set_property(name: str, value: str) -> str:
    """Return the command that sets a property."""
    return f"setprop {name} {shlex.quote(value)}"
