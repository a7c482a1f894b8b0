"""perfetto: recording the kernel's trace with the slices of programs."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from benchfarm_virtual.commands.invocation import Invocation, command, read_options
from benchfarm_virtual.contract import PhoneFileError, decoded
from benchfarm_virtual.open_files import OpenFile
from benchfarm_virtual.processes import Process, acting_for
from benchfarm_virtual.tracing import (
    PowerLook,
    TraceSession,
    perfetto_trace,
    power_packets,
    service_runs,
)

if TYPE_CHECKING:
    from benchfarm_virtual.userland import PhoneSystem

#: The one folder where SELinux lets perfetto write.
_TRACES: Final = "/data/misc/perfetto-traces/"
#: The signals at which perfetto ends as if its time were over.
_GRACEFUL: Final = frozenset({2, 15})
#: A field with its value.
_VALUE: Final = re.compile(r"([a-z_]\w*)\s*:\s*(\"[^\"\n]*\"|-?[\w.]+)")
_LONGEST_SLEEP_S: Final = 60.0
#: What is left in the kernel's buffers is read before the file is written.
_FLUSH_S: Final = 0.5
#: From this API level on there is perfetto.
_PERFETTO_SDK: Final = 28
#: From this API level on there is android.power; it reads no more rails, and no more often.
_POWER_SDK: Final = 29
_MOST_RAILS: Final = 32
_LEAST_POLL_MS: Final = 100


@dataclass(frozen=True, slots=True)
class _Config:
    """What is read of a TraceConfig: names and values, wherever they stand in it."""

    values: Sequence[tuple[str, str]]

    def all(self, name: str) -> tuple[str, ...]:
        return tuple(value.strip('"') for key, value in self.values if key == name)

    def number(self, name: str) -> int:
        texts = self.all(name)
        return int(texts[0]) if texts and texts[0].isdigit() else 0


@command("perfetto", on=lambda system: system.props.sdk >= _PERFETTO_SDK)
def perfetto(call: Invocation) -> int:
    """Record a trace: ``perfetto --txt -c - -o FILE --background``."""
    options = read_options(call, "", "co", long=["txt", "background"])
    target = options.last("o")
    if options.last("c") != "-" or not target or not {"txt", "background"} <= options.values.keys():
        call.error("a virtual phone knows --background --txt -c - -o FILE only")
        return 1
    config = _Config(_VALUE.findall(decoded(call.stdin.read())))
    if not config.values:
        call.error("The TraceConfig is invalid")
        return 1
    path = call.path(target)
    if not path.startswith(_TRACES) or "/../" in path:
        call.error(f"Failed to open {path}. (errno: 13, Permission denied)")
        return 1
    try:
        writer = call.system.files.open_write(path, mode=0o600)
    except PhoneFileError as exc:
        call.error(f"Failed to open {path}. (errno: {exc.errno}, {exc})")
        return 1
    if not service_runs(call.system.props):
        call.error(
            "Could not connect to the traced socket /dev/socket/traced_consumer. Ensure traced is running."
        )
        return 1
    child = call.system.processes.spawn(call.launch.argv, uid=call.uid, ppid=1)

    def body() -> int:
        with acting_for(child):
            return _record(call.system, child, config, writer)

    run = partial(call.system.processes.run, child, body)
    threading.Thread(target=run, daemon=True, name=f"phone-perfetto-{child.pid}").start()
    call.out.line(child.pid)
    return 0


def _record(system: PhoneSystem, process: Process, config: _Config, writer: OpenFile) -> int:
    """Record until the time is over or a signal comes, and write the file.

    A SIGKILL leaves it empty.
    """
    records = "linux.ftrace" in config.all("name") and "ftrace/print" in config.all("ftrace_events")
    session = TraceSession(
        apps=config.all("atrace_apps") if records else (),
        capacity_bytes=config.number("size_kb") << 10,
    )
    system.tracing.begin(session)
    end_s = system.time.uptime_s() + (config.number("duration_ms") / 1000 or float("inf"))
    samples = _PowerSamples(system, config)
    while not process.killed.is_set() and (left_s := end_s - system.time.uptime_s()) > 0:
        samples.take()
        system.time.sleep(min(left_s, samples.pause_s), process.killed)
    if not process.killed.is_set() or process.signal in _GRACEFUL:
        system.time.sleep(_FLUSH_S, threading.Event())
    system.tracing.end(session)
    try:
        if process.killed.is_set() and process.signal not in _GRACEFUL:
            return 128 + process.signal
        with acting_for(None):  # it caught the signal
            writer.write(perfetto_trace(session, system.hardware.clusters()))
            writer.write(power_packets(samples.rails, samples.taken))
    except PhoneFileError:
        return 1
    return 0


class _PowerSamples:
    """The readings of the data source android.power, at multiples of its interval."""

    def __init__(self, system: PhoneSystem, config: _Config) -> None:
        is_requested = "android.power" in config.all("name") and system.props.sdk >= _POWER_SDK
        self._system = system
        self._step_s = (
            max(_LEAST_POLL_MS, config.number("battery_poll_ms") or 1000) / 1000
            if is_requested
            else 0.0
        )
        has_rails = is_requested and config.all("collect_power_rails")[-1:] == ("true",)
        self.rails = tuple(system.hardware.rails())[:_MOST_RAILS] if has_rails else ()
        self.taken: list[PowerLook] = []

    @property
    def pause_s(self) -> float:
        """Seconds until the next sample."""
        return (
            self._step_s - self._system.time.uptime_s() % self._step_s
            if self._step_s
            else _LONGEST_SLEEP_S
        )

    def take(self) -> None:
        if self._step_s:
            hardware = self._system.hardware
            energy_uj = [hardware.rails()[name] for name in self.rails]
            self.taken.append(
                (round(1e9 * self._system.time.uptime_s()), energy_uj, hardware.gauge())
            )
