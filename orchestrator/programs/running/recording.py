"""Recordings of a phone's tracers, perfetto or atrace, and runs while operators' slices are recorded.

Everything that is changed for it is journalled first, so that a crash of ours leaves no phone that goes on tracing, and
it is restored right after the run: a traced program is slower, also when nobody records.
"""

from __future__ import annotations

import contextlib
import shlex
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, Protocol, TypeVar

from orchestrator.errors import DeviceCommandError, DeviceError, UsageError
from orchestrator.ports import Device, InvocationRequest, Tool
from orchestrator.records.device import DeviceKind
from orchestrator.records.identity import Serial
from orchestrator.records.run import ATRACE_FILE, PERFETTO_FILE, Attachment, RawOutput
from orchestrator.scripts import ask, call

#: TensorFlow Lite reads it when an interpreter is made, and writes slices if it is exactly this.
_PROPERTY: Final = "debug.tflite.trace"
_WANTED: Final = "1"
_SERVICE: Final = "persist.traced.enable"
#: From this API level on the tracing service is on everywhere.
_SERVICE_SDK: Final = 30
#: From this API level on "*" stands for every process (libcutils' trace-dev).
_WILDCARD_SDK: Final = 28
_TRACES: Final = "/data/misc/perfetto-traces"
_BUFFER_KB: Final = 65_536
_ATRACE_BUFFER_KB: Final = 16_384
_LIMIT_BYTES: Final = 256 << 20
#: How long a tracer may take to begin, and to write its file, in the phone's seconds.
_START_S: Final = 5
_STOP_S: Final = 30

_Result = TypeVar("_Result")


class Hold(Protocol):
    """Makes a change on a device by a command after it has written down what it is and how it is undone.

    Where the command fails and ``read`` prints ``was``, nothing is to be undone.
    """

    def __call__(self, device: Device, what: str, undo: str, command: str, *, read: str = "", was: str = "") -> None:
        """Raise HostStorageError (nothing is changed then), and DeviceError kinds."""


class Recorder:
    """One recording: of perfetto with a TraceConfig as text, or of atrace where there is none."""

    def __init__(
        self, device: Device, hold: Hold, *, token: str, sdk: int, config: str = "", apps: Sequence[str] = ()
    ) -> None:
        """``token`` is in the names of its files and its command line, and nowhere else; ``apps`` write slices."""
        self._device, self._hold, self._apps = device, hold, apps
        self._folder = shlex.quote(f"{device.work_folder}/traces")
        self._needs_service = bool(config) and sdk < _SERVICE_SDK
        if config:
            self.file_name = PERFETTO_FILE
            self._path, pid_path = f"{_TRACES}/{token}.pftrace", f"{device.work_folder}/traces/{token}.pid"
            self._begin = call("perfetto_begin", config, self._path, pid_path)
            self._end = call("perfetto_end", pid_path, token, 10 * _STOP_S)
            pid = shlex.quote(pid_path)
            # Its number may be another process's by now.
            find = f"p=$(cat {pid} 2>/dev/null); grep -q {token} /proc/${{p:-none}}/cmdline 2>/dev/null || p="
            stop, files = f'{find}; [ -z "$p" ] || kill $p', f"{pid} {pid}.err {self._path}"
        else:
            self.file_name = ATRACE_FILE
            self._path = f"{device.work_folder}/traces/{token}.txt"
            files = shlex.quote(self._path)
            names = shlex.quote(",".join(apps))
            self._begin = f"atrace --async_start -c -b {_ATRACE_BUFFER_KB} -a {names} sched freq >/dev/null"
            self._end = f"atrace --async_stop >{files}"
            stop = "atrace --async_stop >/dev/null 2>&1"
        # Tracers leave the properties behind that name apps, and no property can be removed.
        self._undo = f"{stop}; {call('forget_apps', *apps) if apps else ''}rm -f {files}"

    def begin(self) -> None:
        """Record from now on; raises DeviceError kinds."""
        device = self._device
        if self._needs_service and (before := _property(device, _SERVICE)) != "1":
            what = f"the tracing service being on ({_SERVICE})"
            _hold_property(device, self._hold, _SERVICE, "1", before, what=what)
        self._hold(device, "a trace being recorded", self._undo, f"mkdir -p {self._folder}")
        self._must(self._begin, what=f"starting {self._name}")
        if self._apps:
            # A phone that doesn't report that apps know it is only waited for.
            device.shell(call("trace_told", 10 * _START_S), timeout_s=60.0 + _START_S)

    def end(self) -> bytes:
        """Stop and return the file; raises DeviceError kinds."""
        self._must(self._end, what=f"stopping {self._name}", timeout_s=60.0 + _STOP_S)
        data = self._device.read_file(self._path, limit_bytes=_LIMIT_BYTES)
        if not data:
            raise DeviceCommandError(f"the tracer left no trace in {self._path}", serial=self._device.serial)
        return data

    def discard(self) -> None:
        """Stop if it still records, and remove its files; a phone out of reach has it in the journal."""
        with contextlib.suppress(DeviceError):
            self._device.shell(self._undo)

    @property
    def _name(self) -> str:
        return "perfetto" if self.file_name == PERFETTO_FILE else "atrace"

    def _must(self, command: str, *, what: str, timeout_s: float = 60.0) -> None:
        """Run a command; raises DeviceCommandError with what the phone said."""
        result = self._device.shell(command, timeout_s=timeout_s)
        if result.exit_code != 0:
            said = (result.stderr or result.stdout).decode("utf-8", "replace").strip()[-300:]
            raise DeviceCommandError(f"{what} failed: {said or 'no reason given'}", serial=self._device.serial)


class TraceRecording:
    """Runs a program, or anything else, while the operators' slices of an app are recorded."""

    def __init__(self, hold: Hold) -> None:
        """``hold`` makes a change that is written down first."""
        self._hold = hold
        #: What the property was on devices where it couldn't be restored: there it shows our own value now.
        self._unrestored: dict[Serial, str] = {}

    def run(
        self, tool: Tool, device: Device, request: InvocationRequest, *, cancelled: threading.Event | None = None
    ) -> RawOutput:
        """Run one invocation, traced; raises DeviceError kinds, UsageError for a computer."""
        if device.kind is not DeviceKind.ANDROID:
            raise UsageError(f"{device.serial}: traces are recorded on Android phones only")
        raw, trace = self.around(
            device,
            lambda: tool.run(device, request, cancelled=cancelled),
            app=request.build.package or request.program_path,
            token=f"benchfarm-{request.run_id}",
            sdk=request.facts.sdk or 0,
            limit_s=request.timeout_s,
        )
        return replace(raw, attachments=(*raw.attachments, trace))

    def around(
        self, device: Device, work: Callable[[], _Result], *, app: str, token: str, sdk: int, limit_s: float
    ) -> tuple[_Result, Attachment]:
        """Return what ``work`` returned, and the trace of the time that it took; raises DeviceError kinds.

        ``app`` is the package, or the program's path, whose slices are wanted. perfetto ends by itself after
        ``limit_s`` of the phone's seconds.
        """
        apps = (app, "*") if sdk >= _WILDCARD_SDK else (app,)
        tracers = set(ask(device.shell, {"tracers": call("tracers")}).text("tracers").split())
        if not tracers & {"perfetto", "atrace"}:
            raise DeviceCommandError("the phone has neither perfetto nor atrace", serial=device.serial)
        config = _slices_config(apps, round(limit_s * 1000)) if "perfetto" in tracers else ""
        recorder = Recorder(device, self._hold, token=token, sdk=sdk, config=config, apps=apps)
        with self._operators_traced(device):
            try:
                recorder.begin()
                result = work()
                data = recorder.end()
            finally:
                recorder.discard()
        return result, Attachment(name=recorder.file_name, data=data)

    @contextlib.contextmanager
    def _operators_traced(self, device: Device) -> Iterator[None]:
        before = self._unrestored.pop(device.serial, None)
        if before is None:
            before = _property(device, _PROPERTY)
        self._unrestored[device.serial] = before
        _hold_property(device, self._hold, _PROPERTY, _WANTED, before, what=f"operators being traced ({_PROPERTY})")
        try:
            yield
        finally:
            # A phone out of reach has it in the journal.
            with contextlib.suppress(DeviceError):
                device.shell(_set(_PROPERTY, before))
                del self._unrestored[device.serial]


def _hold_property(device: Device, hold: Hold, name: str, value: str, before: str, *, what: str) -> None:
    """Set a property that was ``before`` and make sure of it.

    Raises DeviceCommandError when the phone keeps another value (setprop itself may fail in silence).
    """
    hold(device, what, _set(name, before), _set(name, value), read=f"getprop {name}", was=before)
    now = _property(device, name)
    if now != value:
        raise DeviceCommandError(f"property {name} stays {now!r}, {value!r} is needed", serial=device.serial)


def _property(device: Device, name: str) -> str:
    return ask(device.shell, {"value": f"getprop {name}"}).value("value")


def _set(name: str, value: str) -> str:
    return f"setprop {name} {shlex.quote(value)}"


def _slices_config(apps: Sequence[str], duration_ms: int) -> str:
    """Return a TraceConfig as text: slices of ``apps``, what runs on each core, clocks and process names."""
    escaped = (app.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for app in apps)
    names = " ".join(f'atrace_apps: "{app}"' for app in escaped)
    events = " ".join(
        f'ftrace_events: "{event}"' for event in ("ftrace/print", "sched/sched_switch", "power/cpu_frequency")
    )
    return (
        f"buffers {{ size_kb: {_BUFFER_KB} fill_policy: DISCARD }}\n"
        f"duration_ms: {duration_ms}\n"
        f'data_sources {{ config {{ name: "linux.ftrace" ftrace_config {{ {events} {names} '
        "buffer_size_kb: 16384 drain_period_ms: 250 } } }\n"
        'data_sources { config { name: "linux.process_stats" process_stats_config { scan_all_processes_on_start: true '
        "} } }\n"
    )
