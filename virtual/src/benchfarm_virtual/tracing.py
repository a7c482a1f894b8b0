"""The kernel's trace buffer as perfetto uses it: programs write slices into it during a recording;
and a recording as perfetto writes it (protobuf).

Field numbers are those of perfetto's public ``trace/*.proto``; nothing here knows the code that
reads traces.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from benchfarm_virtual.contract import TraceEvent
from benchfarm_virtual.heat import Clocks
from benchfarm_virtual.protos import Value, message
from benchfarm_virtual.system import PhoneProps

if TYPE_CHECKING:
    from benchfarm_virtual.system import ScaledTime


#: What one event takes in the buffer beside its text.
_EVENT_BYTES: Final = 28
#: From this API level on, "*" stands for every process.
_WILDCARD_SDK: Final = 28
_TAGS_PROP: Final = "debug.atrace.tags.enableflags"
_NUMBER_PROP: Final = "debug.atrace.app_number"


@dataclass(slots=True, kw_only=True)
class TraceSession:
    """One recording: the processes that may write, its capacity, and its events."""

    #: Command lines (argv[0], an app's package) whose slices are recorded; "*" is all.
    apps: tuple[str, ...]
    capacity_bytes: int
    begun_ns: int = 0
    ended_ns: int | None = None
    events: list[TraceEvent] = field(default_factory=list)
    #: Process -> its command line and user.
    processes: dict[int, tuple[str, int]] = field(default_factory=dict)
    lost_events: int = 0
    _used_bytes: int = 0

    def add(self, events: Iterable[TraceEvent]) -> None:
        """Store the events that fit; count the others as lost."""
        for event in events:
            size_bytes = _EVENT_BYTES + len(event.text)
            if self._used_bytes + size_bytes > self.capacity_bytes:
                self.lost_events += 1
                continue
            self._used_bytes += size_bytes
            self.events.append(event)

    def recorded(self) -> list[TraceEvent]:
        """Return the events before the end, oldest first."""
        end_ns = self.ended_ns
        events = [event for event in self.events if end_ns is None or event.at_ns <= end_ns]
        return sorted(events, key=lambda event: event.at_ns)


class TraceService:
    """Who records on one phone now. Methods may be called from any thread."""

    def __init__(self, time: ScaledTime, props: PhoneProps) -> None:
        self._time = time
        self._props = props
        self._lock = threading.Lock()
        self._sessions: list[TraceSession] = []

    def now_ns(self) -> int:
        """Return the phone's clock since boot."""
        return int(self._time.uptime_s() * 1e9)

    def begin(self, session: TraceSession) -> None:
        """Begin a recording; apps are notified by properties, as by atrace."""
        with self._lock:
            session.begun_ns = self.now_ns()
            self._sessions.append(session)
            self._set_props()

    def end(self, session: TraceSession) -> None:
        """Stop recording."""
        with self._lock:
            session.ended_ns = self.now_ns()
            if session in self._sessions:
                self._sessions.remove(session)
            self._set_props()

    def restart(self) -> None:
        """For a reboot: drop all recordings."""
        with self._lock:
            self._sessions.clear()

    def _set_props(self) -> None:
        apps = list(dict.fromkeys(app for session in self._sessions for app in session.apps))
        self._props[_TAGS_PROP] = "0x1000" if apps else "0"
        self._props[_NUMBER_PROP] = str(len(apps))
        for number, app in enumerate(apps):
            self._props[f"debug.atrace.app_{number}"] = app

    def wants(self, command_line: str) -> bool:
        """Whether a recording takes this process's slices now (ATrace_isEnabled)."""
        with self._lock:
            return any(self._is_traced(session, command_line) for session in self._sessions)

    def write(self, pid: int, command_line: str, uid: int, events: Sequence[TraceEvent]) -> None:
        """Write a process's events into every recording that takes them."""
        with self._lock:
            for session in self._sessions:
                if self._is_traced(session, command_line):
                    session.processes[pid] = (command_line, uid)
                    session.add(events)

    def _is_traced(self, session: TraceSession, command_line: str) -> bool:
        has_wildcard = self._props.sdk >= _WILDCARD_SDK
        return command_line in session.apps or ("*" in session.apps and has_wildcard)


def service_runs(props: PhoneProps) -> bool:
    """Whether the phone's tracing service (traced) is on: from Android 11 everywhere, before on
    Pixels only.
    """
    if props.get("persist.traced.enable"):
        return props["persist.traced.enable"] == "1"
    if props.sdk >= 30:
        return True
    maker = props.get("ro.product.manufacturer", "") or props.get("ro.product.brand", "")
    return maker.lower() == "google"


#: Kernel names of tasks are this long at most.
_COMM_LETTERS: Final = 15
#: trusted_packet_sequence_id of ftrace's producer.
_SEQUENCE: Final = 2
_POWER_SEQUENCE: Final = 3
_BOOTTIME: Final = 6
_START, _END = 1, 2
#: A moment, the energy of each rail since boot in microjoules, and the battery gauge's values.
PowerLook = tuple[int, Sequence[int], tuple[int, int, int]]


def perfetto_trace(session: TraceSession, clusters: Iterable[Clocks]) -> bytes:
    """Return the recording as a ``perfetto.protos.Trace``, events in a bundle for each core."""
    events = session.recorded()
    clock = message({1: message({1: _BOOTTIME, 2: session.begun_ns})})
    processes = [
        message({1: pid, 2: 1, 3: command_line, 5: uid})
        for pid, (command_line, uid) in session.processes.items()
    ]
    by_cpu: dict[int, list[bytes]] = {}

    def happen(cpu: int, at_ns: int, pid: int, kind: int, content: bytes) -> None:
        by_cpu.setdefault(cpu, []).append(message({1: at_ns, 2: pid, kind: content}))

    for cluster in clusters:
        for cpu in cluster.cpus:
            happen(cpu, session.begun_ns, 0, 11, message({1: cluster.current_khz, 2: cpu}))
    for cpu, pid, at_ns in _switches(events):
        comm = task_name(session.processes.get(pid, ("<...>", 0))[0])
        happen(cpu, at_ns, 0, 4, message({1: "swapper", 2: 0, 5: comm, 6: pid}))
    for event in events:
        happen(event.cpu, event.at_ns, event.pid, 3, message({2: event.text + "\n"}))
    packets: list[dict[int, Value]] = [{6: clock}, {2: message({1: processes})}]
    packets.append({34: _ftrace_stats(_START, events, 0)})
    for cpu, core_events in sorted(by_cpu.items()):
        packets.append({1: message({1: cpu, 2: core_events})})
    packets.append({34: _ftrace_stats(_END, events, session.lost_events)})
    return message({1: [message({**packet, 10: _SEQUENCE}) for packet in packets]})


def power_packets(rails: Sequence[str], samples: Sequence[PowerLook]) -> bytes:
    """Return the packets of android.power: rails with their descriptors once, and the battery's
    counters, at each sample.
    """
    packets: list[dict[int, Value]] = []
    for number, (at_ns, energy_uj, (current, voltage_uv, charge_uah)) in enumerate(samples):
        names = rails if number == 0 else ()
        described = [message({1: index, 2: name, 3: "virtual"}) for index, name in enumerate(names)]
        energies = [
            message({1: index, 2: at_ns // 1_000_000, 3: energy})
            for index, energy in enumerate(energy_uj)
        ]
        if rails:
            packets.append({8: at_ns, 40: message({1: described, 2: energies})})
        packets.append({8: at_ns, 38: message({1: charge_uah, 3: current, 7: voltage_uv})})
    return message({1: [message({**packet, 10: _POWER_SEQUENCE}) for packet in packets]})


def _switches(events: list[TraceEvent]) -> Iterable[tuple[int, int, int]]:
    """Yield core, thread and moment of each thread's first event: it came to the core right before."""
    pids: set[int] = set()
    for event in events:
        if event.pid not in pids:
            pids.add(event.pid)
            yield event.cpu, event.pid, max(0, event.at_ns - 1000)


def _ftrace_stats(phase: int, events: list[TraceEvent], lost_events: int) -> bytes:
    counts = sorted(Counter(event.cpu for event in events).items()) or [(0, 0)]
    cores = [
        message({1: cpu, 2: count, 3: lost_events if place == 0 else 0})
        for place, (cpu, count) in enumerate(counts)
    ]
    return message({1: phase, 2: cores})


def task_name(command_line: str) -> str:
    """Return the kernel's name of a task: the beginning of a program's file name, the end of an app's
    package.
    """
    name = command_line.rpartition("/")[2]
    return name[:_COMM_LETTERS] if "/" in command_line else name[-_COMM_LETTERS:]
