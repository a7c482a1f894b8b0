"""One run under a system tracer: perfetto, or atrace where a phone has none.

Everything that is changed for it is journalled first, so that a crash of ours leaves no phone that goes on tracing, and
it is restored right after the run: a traced program is slower, also when nobody records.
"""

from __future__ import annotations

import contextlib
import shlex
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeVar

from orchestrator.errors import DeviceCommandError, DeviceError, UsageError
from orchestrator.ports import Device, InvocationRequest, Tool
from orchestrator.records.device import DeviceKind
from orchestrator.records.identity import Serial
from orchestrator.records.run import ATRACE_FILE, PERFETTO_FILE, Attachment, RawOutput
from orchestrator.scripts import call

#: TensorFlow Lite reads it when an interpreter is made, and writes slices if it is exactly this.
PROPERTY: Final = "debug.tflite.trace"
WANTED: Final = "1"
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
#: Makes a change on a device after it has written down what it is and how it is undone: (device, what, undo, command).
Hold = Callable[[Device, str, str, str], None]


class Recorder(Protocol):
    """A tracer on a phone."""

    @property
    def file_name(self) -> str:
        """What the attachment is called."""
        ...

    def begin(self) -> None:
        """Record from now on; raises DeviceError kinds."""
        ...

    def end(self) -> bytes:
        """Stop and return the file; raises DeviceError kinds."""
        ...

    def discard(self) -> None:
        """Stop if it still records, and remove its files."""
        ...


class TraceRecording:
    """Runs a program under a tracer, its operators' slices switched on."""

    def __init__(self, hold: Hold) -> None:
        self._hold = hold
        #: What the property was on devices where it couldn't be restored: there it shows our own value now.
        self._unrestored: dict[Serial, str] = {}

    def run(
        self, tool: Tool, device: Device, request: InvocationRequest, *, cancelled: threading.Event | None = None
    ) -> RawOutput:
        """Run one invocation, traced; raises DeviceError kinds, UsageError for a computer."""
        if device.kind is not DeviceKind.ANDROID:
            raise UsageError(f"{device.serial}: traces are recorded on Android phones only")
        wanted = request.build.package or request.program_path
        raw, trace = self.around(
            RecordingJob(
                device=device,
                hold=self._hold,
                token=f"benchfarm-{request.run_id}",
                sdk=request.facts.sdk or 0,
                apps=apps_to_trace(wanted, request.facts.sdk or 0),
                limit_s=request.timeout_s,
            ),
            lambda: tool.run(device, request, cancelled=cancelled),
        )
        return replace(raw, attachments=(*raw.attachments, trace))

    def around(self, job: RecordingJob, work: Callable[[], _Result]) -> tuple[_Result, Attachment]:
        """Return what ``work`` returned, and the trace of the time that it took; raises DeviceError kinds."""
        recorder = recorder_for(job)
        with self._operators_traced(job.device):
            try:
                recorder.begin()
                result = work()
                data = recorder.end()
            finally:
                # Out of reach: the journal tells whoever comes next.
                with contextlib.suppress(DeviceError):
                    recorder.discard()
        return result, Attachment(name=recorder.file_name, data=data)

    @contextlib.contextmanager
    def _operators_traced(self, device: Device) -> Iterator[None]:
        before = self._unrestored.pop(device.serial, None)
        if before is None:
            before = device.shell(f"getprop {PROPERTY}").text.strip()
        self._unrestored[device.serial] = before
        hold_property(device, self._hold, PROPERTY, WANTED, before, what=f"operators being traced ({PROPERTY})")
        try:
            yield
        finally:
            # Out of reach: the journal tells whoever comes next.
            with contextlib.suppress(DeviceError):
                device.shell(_set(PROPERTY, before))
                del self._unrestored[device.serial]


def hold_property(device: Device, hold: Hold, name: str, value: str, before: str, *, what: str) -> None:
    """Set a property that was ``before`` and make sure of it.

    Raises DeviceCommandError when the phone keeps another value (setprop itself may fail in silence).
    """
    hold(device, what, _set(name, before), _set(name, value))
    now = device.shell(f"getprop {name}").text.strip()
    if now != value:
        raise DeviceCommandError(f"property {name} stays {now!r}, {value!r} is needed", serial=device.serial)


def _set(name: str, value: str) -> str:
    return f"setprop {name} {shlex.quote(value)}"


def recorder_for(job: RecordingJob) -> Recorder:
    """Return the phone's tracer; raises DeviceCommandError when it has none."""
    names = set(job.device.shell(call("tracers")).text.split())
    if "perfetto" in names:
        config = perfetto_config(job.apps, round(job.limit_s * 1000))
        return PerfettoRecorder(replace(job, config=config))
    if "atrace" in names:
        return AtraceRecorder(job)
    raise DeviceCommandError("the phone has neither perfetto nor atrace", serial=job.device.serial)


def apps_to_trace(name: str, sdk: int) -> tuple[str, ...]:
    """Return the command lines whose slices are wanted, beside that of an app (its package) or program (its path)."""
    return (name, "*") if sdk >= _WILDCARD_SDK else (name,)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingJob:
    """What a recorder needs; ``token`` is in the names of its files and in its command line, and nowhere else."""

    device: Device
    hold: Hold
    token: str
    sdk: int
    #: A TraceConfig as text.
    config: str = ""
    #: The most that is recorded, in the phone's seconds; perfetto ends by itself then.
    limit_s: float = 0.0
    #: Whose slices are wanted.
    apps: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """Where its files lie on the phone, beside the trace."""
        return f"{self.device.work_folder}/traces"

    def must(self, command: str, *, what: str, timeout_s: float = 60.0) -> str:
        """Run a command; raises DeviceCommandError with what the phone said."""
        result = self.device.shell(command, timeout_s=timeout_s)
        if result.exit_code != 0:
            said = (result.stderr or result.stdout).decode("utf-8", "replace").strip()[-300:]
            raise DeviceCommandError(f"{what} failed: {said or 'no reason given'}", serial=self.device.serial)
        return result.text

    def pull(self, path: str) -> bytes:
        """Return a trace; raises DeviceCommandError when there is none."""
        data = self.device.read_file(path, limit_bytes=_LIMIT_BYTES)
        if not data:
            raise DeviceCommandError(f"the tracer left no trace in {path}", serial=self.device.serial)
        return data

    @property
    def forget_apps(self) -> str:
        """What clears the properties that named our apps: the tracers leave them behind, and no property can go."""
        return call("forget_apps", *self.apps) if self.apps else ""

    def wait_until_told(self) -> None:
        """Wait until apps are told that slices are wanted; a phone that doesn't say so is only waited for."""
        self.device.shell(call("trace_told", 10 * _START_S), timeout_s=60.0 + _START_S)


class PerfettoRecorder:
    """perfetto in the background, told what to record by its standard input."""

    file_name = PERFETTO_FILE

    def __init__(self, job: RecordingJob) -> None:
        self._job = job
        self._path = f"{_TRACES}/{job.token}.pftrace"
        self._pid_path = f"{job.folder}/{job.token}.pid"

    def begin(self) -> None:
        """See Recorder.begin."""
        job = self._job
        if job.sdk < _SERVICE_SDK:
            before = job.device.shell(f"getprop {_SERVICE}").text.strip()
            if before != "1":
                what = f"the tracing service being on ({_SERVICE})"
                hold_property(job.device, job.hold, _SERVICE, "1", before, what=what)
        job.hold(job.device, "a trace being recorded", self._undo, f"mkdir -p {shlex.quote(job.folder)}")
        job.must(call("perfetto_begin", job.config, self._path, self._pid_path), what="starting perfetto")
        if job.apps:
            job.wait_until_told()

    def end(self) -> bytes:
        """See Recorder.end."""
        self._job.must(
            call("perfetto_end", self._pid_path, self._job.token, 10 * _STOP_S),
            what="stopping perfetto",
            timeout_s=60.0 + _STOP_S,
        )
        return self._job.pull(self._path)

    def discard(self) -> None:
        """See Recorder.discard."""
        self._job.device.shell(self._undo)

    @property
    def _find(self) -> str:
        """What sets ``p`` to the process, to nothing when it has ended: its number may be another's by now."""
        pid = shlex.quote(self._pid_path)
        return f"p=$(cat {pid} 2>/dev/null); grep -q {self._job.token} /proc/${{p:-none}}/cmdline 2>/dev/null || p="

    @property
    def _undo(self) -> str:
        pid = shlex.quote(self._pid_path)
        return f'{self._find}; [ -z "$p" ] || kill $p; {self._job.forget_apps}rm -f {pid} {pid}.err {self._path}'


class AtraceRecorder:
    """atrace, whose recording goes on in the kernel between two calls."""

    file_name = ATRACE_FILE

    def __init__(self, job: RecordingJob) -> None:
        self._job = job
        self._path = f"{job.folder}/{job.token}.txt"
        self._undo = f"atrace --async_stop >/dev/null 2>&1; {job.forget_apps}rm -f {shlex.quote(self._path)}"

    def begin(self) -> None:
        """See Recorder.begin."""
        job = self._job
        job.hold(job.device, "a trace being recorded", self._undo, f"mkdir -p {shlex.quote(job.folder)}")
        apps = shlex.quote(",".join(job.apps))
        job.must(
            f"atrace --async_start -c -b {_ATRACE_BUFFER_KB} -a {apps} sched freq >/dev/null", what="starting atrace"
        )
        job.wait_until_told()

    def end(self) -> bytes:
        """See Recorder.end."""
        path = shlex.quote(self._path)
        self._job.must(f"atrace --async_stop >{path}", what="stopping atrace", timeout_s=60.0 + _STOP_S)
        return self._job.pull(self._path)

    def discard(self) -> None:
        """See Recorder.discard."""
        self._job.device.shell(self._undo)


def perfetto_config(apps: Sequence[str], duration_ms: int) -> str:
    """Return a TraceConfig as text: slices of ``apps``, what runs on each core, clocks and process names."""
    names = " ".join(f"atrace_apps: {_text(app)}" for app in apps)
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


def _text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
