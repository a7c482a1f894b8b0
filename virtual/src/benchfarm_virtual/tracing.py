"""The kernel's trace buffer as perfetto and atrace use it: programs write slices into it while
somebody records.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from benchfarm_virtual.contract import TraceEvent
from benchfarm_virtual.props import PhoneProps

if TYPE_CHECKING:
    from benchfarm_virtual.time import ScaledTime

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
        #: atrace's own recording, which outlives the command that started it.
        self.atrace: TraceSession | None = None

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
            self.atrace = None

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
