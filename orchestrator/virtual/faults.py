"""What can go wrong with a virtual phone on request: the kinds of fault, and the table each phone keeps of them.

A fault waits in its phone's :class:`FaultTable` until the part it concerns asks for it: the transport, the files, the
log, a program. It fires ``times`` times (0: until it is removed) and can be tied to

* a **moment**, a name that the parts announce as they pass it. The transport announces ``connect``, ``open:shell``,
  ``open:exec``, ``open:sync``, ``open:abb``, ``push``, ``push:done``, ``pull``, ``list``; the package manager
  ``install``; programs ``init``, ``warmup``, ``run``, ``results``. A fault with moment ``open`` fires at every ``open:...``;
* a **byte count**: it fires when that many bytes have passed since it was added;
* a **subject**, a glob for what it concerns: a path (``/data/local/tmp/*``), a delegate (``gpu``), a program's name, or
  for the link its direction: ``up`` (computer to phone) or ``down``.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase

from orchestrator.errors import UsageError

FaultArg = str | float


class FaultKind(StrEnum):
    """Every fault that can be asked for; :data:`FAULT_NOTES` says what each one does."""

    CUT = "cut"
    HANG = "hang"
    SLOW = "slow"
    REBOOT = "reboot"
    UNAUTHORIZED = "unauthorized"
    OUTPUT_CUT = "output-cut"
    BIT_FLIP = "bit-flip"
    NO_SPACE = "no-space"
    PERMISSION_DENIED = "permission-denied"
    SEGV = "segv"
    LOW_MEMORY = "low-memory"
    PROGRAM_HANG = "program-hang"
    DELEGATE_MISSING = "delegate-missing"
    DELEGATE_PARTIAL = "delegate-partial"
    DELEGATE_FAILING = "delegate-failing"
    LOG_GARBAGE = "log-garbage"
    LOG_UTF8 = "log-utf8"
    CLOCK_JUMP = "clock-jump"
    OVERHEAT = "overheat"
    BATTERY_LOW = "battery-low"
    SCREEN_LOCK = "screen-lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultNote:
    """What a kind of fault does, for people, and the settings it takes with their defaults."""

    summary: str
    #: Setting -> default; a setting not listed here is refused.
    args: Mapping[str, FaultArg] = field(default_factory=dict)
    #: True for a condition that lasts until the fault is removed, unless ``times`` is given.
    lasting: bool = False


FAULT_NOTES: Mapping[FaultKind, FaultNote] = {
    FaultKind.CUT: FaultNote(
        summary="The connection to the adb server is closed: at once, at a moment, or when 'bytes' bytes have passed "
        "(subject 'up': computer to phone, 'down': phone to computer). The server may connect again."
    ),
    FaultKind.HANG: FaultNote(
        summary="The phone stops answering and reading, but every connection stays open and new ones are accepted: "
        "a half-open link. It ends after 'seconds' (0: when the fault is removed).",
        args={"seconds": 0.0},
        lasting=True,
    ),
    FaultKind.SLOW: FaultNote(
        summary="The link carries no more than 'bytes_per_s' bytes a second in each direction.",
        args={"bytes_per_s": 1_000_000.0},
        lasting=True,
    ),
    FaultKind.REBOOT: FaultNote(
        summary="The phone restarts: connections end, processes die, and after 'seconds' phone seconds it listens "
        "again on the same port with a new boot_id.",
        args={"seconds": 2.0},
    ),
    FaultKind.UNAUTHORIZED: FaultNote(
        summary="The phone lets no computer in (state 'unauthorized'), as before someone has accepted its key on the "
        "screen; present connections are closed. Removing the fault is the tap on 'allow'.",
        lasting=True,
    ),
    FaultKind.OUTPUT_CUT: FaultNote(
        summary="A service's stream (moment 'shell' or 'exec') or a program's output is closed after 'bytes' bytes, "
        "without exit code; the connection stays."
    ),
    FaultKind.BIT_FLIP: FaultNote(
        summary="One bit of a pushed (moment 'push') or pulled (moment 'pull') file is turned over at byte 'bytes'; "
        "sizes stay right and nobody is told."
    ),
    FaultKind.NO_SPACE: FaultNote(
        summary="Writing files fails with 'No space left on device' once 'bytes' more bytes are written "
        "(0: at once); the subject is the path.",
        lasting=True,
    ),
    FaultKind.PERMISSION_DENIED: FaultNote(
        summary="Opening, listing, changing or executing the subject path fails with 'Permission denied'.",
        lasting=True,
    ),
    FaultKind.SEGV: FaultNote(
        summary="A benchmark program dies of SIGSEGV at the moment (default: run), with a tombstone in the crash log."
    ),
    FaultKind.LOW_MEMORY: FaultNote(
        summary="The low memory killer ends a benchmark program with SIGKILL at the moment (default: run)."
    ),
    FaultKind.PROGRAM_HANG: FaultNote(
        summary="A benchmark program stops at the moment (default: run) and does nothing until it is killed."
    ),
    FaultKind.DELEGATE_MISSING: FaultNote(
        summary="The delegate (subject) isn't on the phone: its library or driver can't be opened."
    ),
    FaultKind.DELEGATE_PARTIAL: FaultNote(
        summary="The delegate (subject) takes only 'share' of the nodes it would take.", args={"share": 0.5}
    ),
    FaultKind.DELEGATE_FAILING: FaultNote(
        summary="The delegate (subject) is there but fails while it is applied to the model."
    ),
    FaultKind.LOG_GARBAGE: FaultNote(
        summary="Bytes that are no UTF-8 come into logcat between other lines.",
    ),
    FaultKind.LOG_UTF8: FaultNote(
        summary="Lines with 4-byte UTF-8 (emoji) come into logcat between other lines.",
    ),
    FaultKind.CLOCK_JUMP: FaultNote(
        summary="The phone's wall clock jumps by 'seconds' (negative: back); uptime doesn't.", args={"seconds": 3600.0}
    ),
    FaultKind.OVERHEAT: FaultNote(
        summary="The phone is at 'heat_c' degrees at once; it cools down from there.", args={"heat_c": 70.0}
    ),
    FaultKind.BATTERY_LOW: FaultNote(summary="The battery is at 'percent' at once.", args={"percent": 4.0}),
    FaultKind.SCREEN_LOCK: FaultNote(summary="The screen goes off and the keyguard is shown at once."),
}


def describe() -> str:
    """Return every kind of fault with its settings and defaults, one paragraph each, for people."""
    parts = []
    for kind, note in FAULT_NOTES.items():
        settings = ", ".join(
            f"{name}={default:g}" if isinstance(default, float) else f"{name}={default}"
            for name, default in note.args.items()
        )
        head = f"{kind}" + (f" ({settings})" if settings else "") + (" [until removed]" if note.lasting else "")
        parts.append(f"{head}\n    {note.summary}")
    return "\n".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault that was asked for. Raises UsageError for a setting that its kind doesn't have."""

    kind: FaultKind
    #: The moment that it waits for; "" is any moment, or at once for what concerns the whole phone.
    moment: str = ""
    #: It fires when this many bytes have passed since it was added; None: not tied to bytes.
    at_bytes: int | None = None
    #: A glob for what it concerns; "" is everything.
    subject: str = ""
    #: How often it fires; 0: until it is removed; None: as is usual for its kind.
    times: int | None = None
    args: Mapping[str, FaultArg] = field(default_factory=dict)
    #: Given by the table.
    fault_id: int = 0

    def __post_init__(self) -> None:
        known = FAULT_NOTES[self.kind].args
        for name in self.args:
            if name not in known:
                listed = ", ".join(known) or "none"
                raise UsageError(f"fault {self.kind} has no setting {name!r}; its settings: {listed}")
        if self.at_bytes is not None and self.at_bytes < 0:
            raise UsageError(f"fault {self.kind}: bytes must be 0 or more, not {self.at_bytes}")
        if self.times is not None and self.times < 0:
            raise UsageError(f"fault {self.kind}: times must be 0 (until removed) or more, not {self.times}")

    @property
    def times_left(self) -> int:
        """How often it still fires, 0 being without end."""
        if self.times is not None:
            return self.times
        return 0 if FAULT_NOTES[self.kind].lasting else 1

    def number(self, name: str) -> float:
        """Return a setting as a number, its default when it wasn't given."""
        value = self.args.get(name, FAULT_NOTES[self.kind].args[name])
        return float(value)

    def concerns(self, moment: str, subject: str) -> bool:
        """Say whether it is meant for a moment and a subject."""
        if self.moment and moment != self.moment and not moment.startswith(self.moment + ":"):
            return False
        return not self.subject or fnmatchcase(subject, self.subject)

    def to_json(self) -> dict[str, object]:
        """Return it as plain JSON values."""
        return {
            "fault_id": self.fault_id, "kind": str(self.kind), "moment": self.moment, "bytes": self.at_bytes,
            "subject": self.subject, "times": self.times_left, "args": dict(self.args),
        }  # fmt: skip

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> Fault:
        """Read what to_json wrote; raise UsageError for a kind or setting that doesn't exist."""
        settings = [
            f"{key}={value[key]}" for key in ("moment", "bytes", "subject", "times") if value.get(key) is not None
        ]
        args = value.get("args")
        if isinstance(args, Mapping):
            settings += [f"{name}={arg}" for name, arg in args.items()]
        return parse_fault(str(value.get("kind", "")), settings)


def parse_fault(kind: str, settings: Sequence[str] = ()) -> Fault:
    """Read a fault as people write it: ``parse_fault("cut", ["moment=push", "bytes=65536", "subject=up"])``.

    Raises UsageError naming what can't be used.
    """
    try:
        known = FaultKind(kind)
    except ValueError:
        raise UsageError(f"there is no fault {kind!r}; the faults: {', '.join(FaultKind)}") from None
    given: dict[str, str] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise UsageError(f"fault {kind}: {setting!r} isn't name=value")
        given[name] = text
    numbers = {"bytes": None, "times": None} | {
        name: _whole(kind, name, given.pop(name)) for name in ("bytes", "times") if name in given
    }
    moment, subject = given.pop("moment", ""), given.pop("subject", "")
    notes = FAULT_NOTES[known].args
    args: dict[str, FaultArg] = {}
    for name, text in given.items():
        try:
            args[name] = float(text) if isinstance(notes.get(name, ""), float) else text
        except ValueError:
            raise UsageError(f"fault {kind}: {name} must be a number, not {text!r}") from None
    return Fault(
        kind=known, moment=moment, at_bytes=numbers["bytes"], subject=subject, times=numbers["times"], args=args
    )


def _whole(kind: str, name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"fault {kind}: {name} must be a whole number, not {text!r}") from None


@dataclass(slots=True)
class _Waiting:
    fault: Fault
    bytes_left: int | None


#: Called with a fault that has just fired (for kinds that a handler was given for).
FaultHandler = Callable[[Fault], None]


class FaultTable:
    """The faults that wait for one phone. Every method may be called from any thread.

    The parts of a phone use it in three ways: :meth:`take` at a point where something could go wrong ("does it, now?"),
    :meth:`advance` while bytes pass, and :meth:`reach` to announce a moment, at which the faults that concern the whole
    phone (those with a handler) happen.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._waiting: list[_Waiting] = []
        self._handlers: dict[FaultKind, FaultHandler] = {}
        self._removers: dict[FaultKind, FaultHandler] = {}
        self._numbers = itertools.count(1)

    def handle(self, kind: FaultKind, handler: FaultHandler, removed: FaultHandler | None = None) -> None:
        """Have ``handler`` called when a fault of this kind fires, ``removed`` when one is removed; never under the lock."""
        with self._lock:
            self._handlers[kind] = handler
            if removed is not None:
                self._removers[kind] = removed

    def add(self, fault: Fault) -> Fault:
        """Put a fault into the table and return it with its number.

        One that concerns the whole phone and waits for nothing happens before this returns.
        """
        with self._lock:
            fault = dataclasses.replace(fault, fault_id=next(self._numbers), times=fault.times_left)
            handler = self._handlers.get(fault.kind)
            at_once = handler is not None and not fault.moment and fault.at_bytes is None
            if not at_once or FAULT_NOTES[fault.kind].lasting:
                self._waiting.append(_Waiting(fault, fault.at_bytes))
        if at_once and handler is not None:
            handler(fault)
        return fault

    def remove(self, fault_id: int) -> Fault | None:
        """Take a fault out of the table again; return it, or None when it is no longer there."""
        with self._lock:
            found = next((w for w in self._waiting if w.fault.fault_id == fault_id), None)
            if found is None:
                return None
            self._waiting.remove(found)
            removed = self._removers.get(found.fault.kind)
        if removed is not None:
            removed(found.fault)
        return found.fault

    def clear(self) -> None:
        """Remove every fault."""
        for fault in self.waiting():
            self.remove(fault.fault_id)

    def waiting(self) -> Sequence[Fault]:
        """Return the faults that can still fire, oldest first."""
        with self._lock:
            return [waiting.fault for waiting in self._waiting]

    def active(self, kind: FaultKind, subject: str = "") -> Fault | None:
        """Return a fault of this kind that waits for no moment, without counting it as fired."""
        with self._lock:
            for waiting in self._waiting:
                fault = waiting.fault
                if (
                    fault.kind is kind
                    and not fault.moment
                    and waiting.bytes_left is None
                    and fault.concerns("", subject)
                ):
                    return fault
        return None

    def take(self, kind: FaultKind, moment: str = "", *, subject: str = "") -> Fault | None:
        """Return the first fault of this kind that fires at this moment for this subject, and count it; else None.

        Faults tied to a byte count are left to :meth:`advance`.
        """
        with self._lock:
            for waiting in self._waiting:
                if (
                    waiting.fault.kind is kind
                    and waiting.bytes_left is None
                    and waiting.fault.concerns(moment, subject)
                ):
                    return self._fire(waiting)
        return None

    def advance(
        self, kind: FaultKind, count_bytes: int, moment: str = "", *, subject: str = ""
    ) -> tuple[int, Fault | None]:
        """Let ``count_bytes`` bytes pass; return how many may, and the fault that stops the rest (None: all may pass).

        Faults without a byte count stop the first byte. The count of a fault that fires more than once begins anew
        each time, except that one which lasts (``times`` 0) goes on stopping everything.
        """
        if not self._waiting or count_bytes <= 0:  # the usual case, and cheap: no lock for a read of a list's length
            return count_bytes, None
        with self._lock:
            passing, stopping = count_bytes, None
            concerned = [w for w in self._waiting if w.fault.kind is kind and w.fault.concerns(moment, subject)]
            for waiting in concerned:
                left = waiting.bytes_left or 0
                if left < passing:
                    passing, stopping = left, waiting
            for waiting in concerned:
                if waiting.bytes_left is not None:
                    waiting.bytes_left = max(0, waiting.bytes_left - passing)
            if stopping is None:
                return count_bytes, None
            return passing, self._fire(stopping)

    def reach(self, moment: str, *, subject: str = "") -> None:
        """Announce a moment: faults of the whole phone that wait for it happen now, before this returns."""
        if not self._waiting:
            return
        for kind, handler in list(self._handlers.items()):
            fault = self._take_named(kind, moment, subject)
            if fault is not None:
                handler(fault)

    def _take_named(self, kind: FaultKind, moment: str, subject: str) -> Fault | None:
        with self._lock:
            for waiting in self._waiting:
                fault = waiting.fault
                if (
                    fault.kind is kind
                    and fault.moment
                    and waiting.bytes_left is None
                    and fault.concerns(moment, subject)
                ):
                    if not FAULT_NOTES[kind].lasting:
                        return self._fire(waiting)
                    # From its moment on, a condition is one that waits for nothing and stays until it is removed.
                    waiting.fault = dataclasses.replace(fault, moment="")
                    return waiting.fault
        return None

    def _fire(self, waiting: _Waiting) -> Fault:
        fault = waiting.fault
        if fault.times == 0:
            return fault
        left = fault.times_left - 1
        if left == 0:
            self._waiting.remove(waiting)
        else:
            waiting.fault = dataclasses.replace(fault, times=left)
            waiting.bytes_left = fault.at_bytes
        return fault
