"""The pass ``trace``: a run while the operators' slices are recorded by the phone's perfetto.

Its changes of the phone are journalled first and restored right after the run: a traced program is
slower, also without a recording.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from orchestrator.errors import DeviceCommandError, DeviceError
from orchestrator.passes.recording import (
    Property,
    Recorder,
    has_perfetto,
    hold_property,
    read_property,
    set_property,
)
from orchestrator.passes.specification import (
    Hold,
    PassServices,
    PassSpec,
    RunProgram,
)
from orchestrator.ports import Device, InvocationRequest, Tool
from orchestrator.records.case import Pass, Serial
from orchestrator.records.device import DeviceKind
from orchestrator.records.run import PERFETTO_FILE, RawOutput

TRACE: Final = Pass("trace")
#: TensorFlow Lite reads it when an interpreter is made, and writes slices if it is exactly this.
_TRACED: Final = Property("debug.tflite.trace", "1", "operators being traced")
#: From this API level on "*" stands for every process (libcutils' trace-dev).
_WILDCARD_SDK: Final = 28
_BUFFER_KB: Final = 65_536


class TracedRuns:
    """Runs a program while the slices of its operators are recorded."""

    def __init__(self, hold: Hold) -> None:
        """``hold`` makes a change that is journalled first."""
        self._hold = hold
        #: The property's original value on devices where it couldn't be restored: it has our value
        #: there.
        self._unrestored: dict[Serial, str] = {}

    def run(self, tool: Tool, device: Device, request: InvocationRequest) -> RawOutput:
        """Run one invocation, traced; raises DeviceError kinds."""
        if not has_perfetto(device):
            raise DeviceCommandError(
                "the phone has no perfetto (Android 9 and later)", serial=device.serial
            )
        app, sdk = request.build.package or request.program_path, request.facts.sdk or 0
        apps = (app, "*") if sdk >= _WILDCARD_SDK else (app,)
        recorder = Recorder(
            device,
            self._hold,
            token=f"benchfarm-{request.run_id}",
            config=_slices_config(apps, round(request.timeout_s * 1000)),
            apps=apps,
        )
        with self._operators_traced(device):
            try:
                recorder.begin(sdk=sdk)
                raw = tool.run(device, request)
                trace = recorder.end()
            finally:
                recorder.discard()
        return raw.with_data(PERFETTO_FILE, trace)

    @contextlib.contextmanager
    def _operators_traced(self, device: Device) -> Iterator[None]:
        before = self._unrestored.pop(device.serial, None)
        if before is None:
            before = read_property(device, _TRACED.name)
        self._unrestored[device.serial] = before
        hold_property(device, self._hold, _TRACED, before)
        try:
            yield
        finally:
            # The journal restores it on a phone that is unreachable now.
            with contextlib.suppress(DeviceError):
                device.shell(set_property(_TRACED.name, before))
                del self._unrestored[device.serial]


def _slices_config(apps: tuple[str, ...], duration_ms: int) -> str:
    """Return a TraceConfig as text: slices of ``apps``, scheduling of each core, clocks and process
    names; perfetto ends by itself after ``duration_ms`` of the phone's time.
    """
    escaped = (app.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for app in apps)
    names = " ".join(f'atrace_apps: "{app}"' for app in escaped)
    events = " ".join(
        f'ftrace_events: "{event}"'
        for event in ("ftrace/print", "sched/sched_switch", "power/cpu_frequency")
    )
    return (
        f"buffers {{ size_kb: {_BUFFER_KB} fill_policy: DISCARD }}\n"
        f"duration_ms: {duration_ms}\n"
        f'data_sources {{ config {{ name: "linux.ftrace" ftrace_config {{ {events} {names} '
        "buffer_size_kb: 16384 drain_period_ms: 250 } } }\n"
        'data_sources { config { name: "linux.process_stats" process_stats_config { scan_all_processes_on_start: true '
        "} } }\n"
    )


def _runner(services: PassServices) -> RunProgram:
    return TracedRuns(services.hold).run


PASS = PassSpec(
    name=TRACE,
    about="One run under the phone's tracer, for the Perfetto UI",
    guide="why-slow",
    runner=_runner,
    kinds=frozenset({DeviceKind.ANDROID}),
    alone="a trace",
)
