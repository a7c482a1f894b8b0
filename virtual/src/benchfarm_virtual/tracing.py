"""The kernel's trace buffer as perfetto uses it: programs write slices into it while somebody
records; and a recording as perfetto writes it (protobuf).

Field numbers are those of perfetto's public ``trace/*.proto``; nothing here knows the code that
reads traces.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from benchfarm_virtual.contract import CpuCluster, TraceEvent
from benchfarm_virtual.protos import bytes_field, number_field
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
    """One recording: which processes may write, how much there is room for, and what came."""

    #: Command lines (argv[0], an app's package) whose slices are wanted; "*" is all.
    apps: tuple[str, ...]
    capacity_bytes: int
    begun_ns: int = 0
    ended_ns: int | None = None
    events: list[TraceEvent] = field(default_factory=list)
    #: Process -> its command line and user.
    processes: dict[int, tuple[str, int]] = field(default_factory=dict)
    lost: int = 0
    _used_bytes: int = 0

    def add(self, events: Iterable[TraceEvent]) -> None:
        """Keep what there is room for; the rest is counted."""
        for event in events:
            size_bytes = _EVENT_BYTES + len(event.text)
            if self._used_bytes + size_bytes > self.capacity_bytes:
                self.lost += 1
                continue
            self._used_bytes += size_bytes
            self.events.append(event)

    def recorded(self) -> list[TraceEvent]:
        """Return what happened before the end, oldest first."""
        end_ns = self.ended_ns
        kept = [event for event in self.events if end_ns is None or event.at_ns <= end_ns]
        return sorted(kept, key=lambda event: event.at_ns)


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
        """Record from now on; apps are told by properties, as atrace does."""
        with self._lock:
            session.begun_ns = self.now_ns()
            self._sessions.append(session)
            self._tell()

    def end(self, session: TraceSession) -> None:
        """Stop recording."""
        with self._lock:
            session.ended_ns = self.now_ns()
            if session in self._sessions:
                self._sessions.remove(session)
            self._tell()

    def restart(self) -> None:
        """For a reboot: nothing records any more, and what was recorded is gone."""
        with self._lock:
            self._sessions.clear()

    def _tell(self) -> None:
        apps = list(dict.fromkeys(app for session in self._sessions for app in session.apps))
        self._props.set(_TAGS_PROP, "0x1000" if apps else "0")
        self._props.set(_NUMBER_PROP, str(len(apps)))
        for number, app in enumerate(apps):
            self._props.set(f"debug.atrace.app_{number}", app)

    def wants(self, command_line: str) -> bool:
        """Whether somebody records this process's slices now (what ATrace_isEnabled says)."""
        with self._lock:
            return any(self._is_wanted(session, command_line) for session in self._sessions)

    def write(self, pid: int, command_line: str, uid: int, events: Sequence[TraceEvent]) -> None:
        """Write a process's events into every recording that wants them."""
        with self._lock:
            for session in self._sessions:
                if self._is_wanted(session, command_line):
                    session.processes[pid] = (command_line, uid)
                    session.add(events)

    def _is_wanted(self, session: TraceSession, command_line: str) -> bool:
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
#: A moment, the energy of each rail since boot in microjoules, and what the battery's gauge says.
PowerLook = tuple[int, Sequence[int], tuple[int, int, int]]


def perfetto_trace(session: TraceSession, clusters: Iterable[CpuCluster]) -> bytes:
    """Return the recording as a ``perfetto.protos.Trace``, events in a bundle for each core."""
    events = session.recorded()
    packets = [bytes_field(6, _clock_snapshot(session.begun_ns))]
    packets.append(
        bytes_field(2, b"".join(_process(pid, *who) for pid, who in session.processes.items()))
    )
    packets.append(bytes_field(34, _ftrace_stats(_START, events, 0)))
    by_cpu: dict[int, list[bytes]] = {}
    for cluster in clusters:
        for cpu in cluster.cpus:
            clock = number_field(1, cluster.current_khz) + number_field(2, cpu)
            by_cpu.setdefault(cpu, []).append(_event(session.begun_ns, 0, bytes_field(11, clock)))
    for cpu, pid, at_ns in _switches(events):
        comm = comm_of(session.processes.get(pid, ("<...>", 0))[0])
        switch = (
            bytes_field(1, "swapper")
            + number_field(2, 0)
            + bytes_field(5, comm)
            + number_field(6, pid)
        )
        by_cpu.setdefault(cpu, []).append(_event(at_ns, 0, bytes_field(4, switch)))
    for event in events:
        text = bytes_field(3, bytes_field(2, event.text + "\n"))
        by_cpu.setdefault(event.cpu, []).append(_event(event.at_ns, event.pid, text))
    for cpu, written in sorted(by_cpu.items()):
        packets.append(
            bytes_field(
                1, number_field(1, cpu) + b"".join(bytes_field(2, item) for item in written)
            )
        )
    packets.append(bytes_field(34, _ftrace_stats(_END, events, session.lost)))
    return b"".join(bytes_field(1, packet + number_field(10, _SEQUENCE)) for packet in packets)


def power_packets(rails: Sequence[str], looks: Sequence[PowerLook]) -> bytes:
    """Return what android.power writes: rails with their descriptors once, and the battery's
    counters, at each look.
    """
    packets = []
    for number, (at_ns, energy_uj, gauge) in enumerate(looks):
        if rails:
            told = b""
            if number == 0:
                told = b"".join(
                    bytes_field(
                        1, number_field(1, index) + bytes_field(2, name) + bytes_field(3, "virtual")
                    )
                    for index, name in enumerate(rails)
                )
            for index, energy in enumerate(energy_uj):
                told += bytes_field(
                    2,
                    number_field(1, index)
                    + number_field(2, at_ns // 1_000_000)
                    + number_field(3, energy),
                )
            packets.append(number_field(8, at_ns) + bytes_field(40, told))
        current, voltage_uv, charge_uah = gauge
        battery = (
            number_field(1, charge_uah)
            + number_field(3, current % (1 << 64))
            + number_field(7, voltage_uv)
        )
        packets.append(number_field(8, at_ns) + bytes_field(38, battery))
    return b"".join(
        bytes_field(1, packet + number_field(10, _POWER_SEQUENCE)) for packet in packets
    )


def _event(at_ns: int, pid: int, content: bytes) -> bytes:
    return number_field(1, at_ns) + number_field(2, pid) + content


def _switches(events: list[TraceEvent]) -> Iterable[tuple[int, int, int]]:
    """Yield core, thread and moment of each thread's first event: it came to the core right before."""
    seen: set[int] = set()
    for event in events:
        if event.pid not in seen:
            seen.add(event.pid)
            yield event.cpu, event.pid, max(0, event.at_ns - 1000)


def _process(pid: int, command_line: str, uid: int) -> bytes:
    return bytes_field(
        1,
        number_field(1, pid)
        + number_field(2, 1)
        + bytes_field(3, command_line)
        + number_field(5, uid),
    )


def _clock_snapshot(now_ns: int) -> bytes:
    return bytes_field(1, number_field(1, _BOOTTIME) + number_field(2, now_ns))


def _ftrace_stats(phase: int, events: list[TraceEvent], lost: int) -> bytes:
    stats = number_field(1, phase)
    for cpu, count in sorted(Counter(event.cpu for event in events).items()):
        stats += bytes_field(
            2, number_field(1, cpu) + number_field(2, count) + number_field(3, lost)
        )
        lost = 0
    return stats if not lost else stats + bytes_field(2, number_field(1, 0) + number_field(3, lost))


def comm_of(command_line: str) -> str:
    """Return what the kernel calls a task: of a program its file name's beginning, of an app its
    package's end.
    """
    name = command_line.rpartition("/")[2]
    return name[:_COMM_LETTERS] if "/" in command_line else name[-_COMM_LETTERS:]
