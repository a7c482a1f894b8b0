"""The faults that a virtual phone can have on request (``faults.yaml`` describes each), and the
table of them that each phone has.

A fault waits in its phone's :class:`FaultTable` until the part it concerns asks for it: the
transport, the files, the log, a program. It fires ``times`` times (0: until it is removed) and can
be tied to

* a **moment**, a name that the parts announce as they pass it (:data:`MOMENTS`): the transport
  connections, services and files, programs their phases. A fault with moment ``open`` fires at
  every ``open:...``;
* a **byte count**: it fires when that many bytes have passed since it was added;
* a **subject**, a glob for what it concerns: a path (``/data/local/tmp/*``), a delegate (``gpu``),
  a program's name, or
  for the link its direction: ``up`` (computer to phone) or ``down``.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from benchfarm_virtual.data import as_record, read_yaml
from benchfarm_virtual.errors import UsageError

#: Subjects of faults that count the link's bytes: to the phone, and from it.
_DIRECTIONS: Final = ("up", "down")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One requested fault.

    Raises UsageError for a setting that its kind doesn't have, or never comes to.
    """

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
        note = FAULT_NOTES[self.kind]
        for name in self.args.keys() - note.args.keys():
            settings = ", ".join(note.args) or "none"
            raise UsageError(f"fault {self.kind} has no setting {name!r}; its settings: {settings}")
        if self.moment and self.moment not in note.moments:
            has = ", ".join(note.moments) or "none"
            raise UsageError(
                f"fault {self.kind} meets no moment {self.moment!r}; its moments: {has}"
            )
        if self.at_bytes is not None and not note.counts_bytes:
            raise UsageError(f"fault {self.kind} counts no bytes: leave 'bytes' out")
        if min(self.at_bytes or 0, self.times or 0) < 0:
            raise UsageError(f"fault {self.kind}: bytes and times must be 0 or more")
        for name, value in self.args.items():
            if isinstance(value, float) and not note.least <= value < math.inf:
                raise UsageError(
                    f"fault {self.kind}: {name} must be {note.least:g} or more, not {value:g}"
                )
        if self.at_bytes and self.moment and self.moment not in (*OF_FILES, *PRINTING):
            counting = ", ".join(name for name in (*OF_FILES, *PRINTING) if name in note.moments)
            raise UsageError(
                f"fault {self.kind}: no bytes pass at {self.moment!r}; they do at {counting}"
            )
        if self.moment and self.subject in _DIRECTIONS:
            raise UsageError(
                f"fault {self.kind}: subject {self.subject!r} is the link's, which goes without a moment"
            )

    @property
    def times_left(self) -> int:
        """How many times it still fires; 0: without limit."""
        if self.times is not None:
            return self.times
        return 0 if FAULT_NOTES[self.kind].lasting else 1

    def number(self, name: str) -> float:
        """Return a setting, or its default, as a number."""
        return float(self.text(name))

    def text(self, name: str) -> str:
        """Return a setting, or its default, as text."""
        return str(self.args.get(name, FAULT_NOTES[self.kind].args[name]))

    def concerns(self, moment: str, subject: str) -> bool:
        """Say whether it is meant for a moment and a subject."""
        if self.moment and moment != self.moment and not moment.startswith(self.moment + ":"):
            return False
        return not self.subject or fnmatchcase(subject, self.subject)

    def to_json(self) -> dict[str, object]:
        """Return it as plain JSON values."""
        return {
            "fault_id": self.fault_id,
            "kind": str(self.kind),
            "moment": self.moment,
            "bytes": self.at_bytes,
            "subject": self.subject,
            "times": self.times_left,
            "args": dict(self.args),
        }


def parse_fault(kind: str, settings: Sequence[str] = ()) -> Fault:
    """Read a fault as people write it: ``parse_fault("cut", ["moment=push", "bytes=65536"])``.

    Raises UsageError naming the wrong part.
    """
    try:
        fault_kind = FaultKind(kind)
    except ValueError:
        raise UsageError(
            f"there is no fault {kind!r}; the faults: {', '.join(FaultKind)}"
        ) from None
    fields: dict[str, Any] = {}
    args: dict[str, FaultArg] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise UsageError(f"fault {kind}: {setting!r} isn't name=value")
        form = _FORMS.get(name) or type(FAULT_NOTES[fault_kind].args.get(name, ""))
        try:
            value = form(text)
        except ValueError:
            raise UsageError(f"fault {kind}: {name} must be a number, not {text!r}") from None
        if name in _FORMS:
            fields["at_bytes" if name == "bytes" else name] = value
        else:
            args[name] = value
    return Fault(kind=fault_kind, args=args, **fields)


#: The settings that every fault has.
_FORMS: Final[Mapping[str, type]] = {"moment": str, "bytes": int, "subject": str, "times": int}


@dataclass(slots=True)
class _Waiting:
    fault: Fault
    bytes_left: int | None


class Cut:
    """Bytes of which nothing passes after the one that a fault of a kind names."""

    def __init__(
        self, faults: FaultTable, kind: FaultKind, moment: str, *, subject: str = ""
    ) -> None:
        self._faults = faults
        self._kind = kind
        self._moment = moment
        self._subject = subject
        self._is_over = False

    def passing(self, data: bytes) -> bytes:
        """Return the part of the data that passes."""
        size = 0 if self._is_over else len(data)
        size, cut = self._faults.advance(self._kind, size, self._moment, subject=self._subject)
        self._is_over = self._is_over or cut is not None
        return data[:size]


#: Called with a fault that has just fired (for kinds that a handler was given for).
FaultHandler = Callable[[Fault], None]


class FaultTable:
    """The faults that wait for one phone. Every method may be called from any thread.

    The parts of a phone use it in three ways: :meth:`take` at a point where something could go
    wrong ("does it, now?"), :meth:`advance` while bytes pass, and :meth:`reach` to announce a
    moment, at which the faults that concern the whole phone (those with a handler) happen.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._waiting: list[_Waiting] = []
        #: What happens when one fires, and when one is removed.
        self._handlers: dict[FaultKind, tuple[FaultHandler, FaultHandler]] = {}
        self._numbers = itertools.count(1)

    def handle(
        self,
        kind: FaultKind,
        handler: FaultHandler,
        removed: FaultHandler = lambda fault: None,
    ) -> None:
        """Have ``handler`` called (not under the lock) when such a fault fires, ``removed`` when
        one is removed.
        """
        with self._lock:
            self._handlers[kind] = handler, removed

    def add(self, fault: Fault) -> Fault:
        """Put a fault into the table and return it with its number.

        One that concerns the whole phone and waits for nothing happens before this returns.
        """
        with self._lock:
            moment = fault.moment or FAULT_NOTES[fault.kind].moment
            fault = dataclasses.replace(
                fault, fault_id=next(self._numbers), times=fault.times_left, moment=moment
            )
            handlers = self._handlers.get(fault.kind)
            at_once = handlers is not None and not fault.moment and fault.at_bytes is None
            if not at_once or FAULT_NOTES[fault.kind].lasting:
                self._waiting.append(_Waiting(fault, fault.at_bytes))
        if at_once and handlers is not None:
            handlers[0](fault)
        return fault

    def remove(self, fault_id: int) -> Fault | None:
        """Remove a fault from the table; return it, or None when it is no longer there."""
        with self._lock:
            entry = next((w for w in self._waiting if w.fault.fault_id == fault_id), None)
            if entry is None:
                return None
            self._waiting.remove(entry)
            handlers = self._handlers.get(entry.fault.kind)
        if handlers is not None:
            handlers[1](entry.fault)
        return entry.fault

    def clear(self) -> Sequence[Fault]:
        """Remove every fault; return them."""
        cleared = self.waiting()
        for fault in cleared:
            self.remove(fault.fault_id)
        return cleared

    def waiting(self) -> Sequence[Fault]:
        """Return the faults that can still fire, oldest first."""
        with self._lock:
            return [waiting.fault for waiting in self._waiting]

    @property
    def is_empty(self) -> bool:
        """Whether nothing can fire."""
        return not self._waiting

    def active(self, kind: FaultKind, subject: str = "") -> Fault | None:
        """Return a fault of this kind that waits for no moment, without counting it as fired."""
        with self._lock:
            return next((w.fault for w in self._meant(kind, "", subject, counting=False)), None)

    def _meant(
        self, kind: FaultKind, moment: str, subject: str, *, counting: bool = True
    ) -> Iterator[_Waiting]:
        """Yield the faults of a kind that are meant for a moment and a subject, those that count
        bytes among them or not.
        """
        for waiting in tuple(self._waiting):
            if (
                waiting.fault.kind is kind
                and waiting.fault.concerns(moment, subject)
                and (counting or waiting.bytes_left is None)
            ):
                yield waiting

    def take(self, kind: FaultKind, moment: str = "", *, subject: str = "") -> Fault | None:
        """Return the first fault of this kind that fires at this moment for this subject, and count
        it; else None.

        Faults tied to a byte count are left to :meth:`advance`.
        """
        with self._lock:
            entry = next(self._meant(kind, moment, subject, counting=False), None)
            return self._fire(entry) if entry else None

    def advance(
        self, kind: FaultKind, count_bytes: int, moment: str = "", *, subject: str = ""
    ) -> tuple[int, Fault | None]:
        """Let ``count_bytes`` bytes pass; return how many may, and the fault that stops the rest
        (None: all may pass).

        Faults without a byte count stop the first byte. The count of a fault that fires more than
        once restarts each time, except that one which lasts (``times`` 0) goes on stopping
        everything.
        """
        if not self._waiting or count_bytes <= 0:  # no lock, the usual case
            return count_bytes, None
        with self._lock:
            passing, stopping = count_bytes, None
            concerned = tuple(self._meant(kind, moment, subject))
            for waiting in concerned:
                bytes_left = waiting.bytes_left or 0
                if bytes_left < passing:
                    passing, stopping = bytes_left, waiting
            for waiting in concerned:
                if waiting.bytes_left is not None:
                    waiting.bytes_left = max(0, waiting.bytes_left - passing)
            if stopping is None:
                return count_bytes, None
            return passing, self._fire(stopping)

    def reach(self, moment: str, size_bytes: int = 0, *, subject: str = "") -> None:
        """Announce a moment, or bytes passing at it: faults of the whole phone waiting for it
        happen first.

        The link announces all its bytes under the moment "", which is what a byte count without a
        moment counts; a cut at such a count is left to :meth:`advance`, which is exact.
        """
        if not self._waiting:
            return
        for kind, (handler, _) in list(self._handlers.items()):
            happening = self._take_at(kind, moment, size_bytes, subject)
            if happening is not None:
                handler(happening)

    def _take_at(self, kind: FaultKind, moment: str, size_bytes: int, subject: str) -> Fault | None:
        with self._lock:
            for waiting in self._meant(kind, moment, subject):
                fault = waiting.fault
                if waiting.bytes_left is None:
                    if not fault.moment:
                        continue
                elif bool(fault.moment) != bool(moment) or (kind is FaultKind.CUT and not moment):
                    continue
                elif waiting.bytes_left > size_bytes:
                    waiting.bytes_left -= size_bytes
                    continue
                if FAULT_NOTES[kind].lasting:
                    # From here on the condition waits for nothing, and stays until it is removed.
                    waiting.fault = dataclasses.replace(fault, moment="", at_bytes=None, subject="")
                    waiting.bytes_left = None
                    return waiting.fault
                return self._fire(waiting)
        return None

    def _fire(self, waiting: _Waiting) -> Fault:
        fault = waiting.fault
        if fault.times == 0:
            return fault
        times_left = fault.times_left - 1
        if times_left == 0:
            self._waiting.remove(waiting)
        else:
            waiting.fault = dataclasses.replace(fault, times=times_left)
            waiting.bytes_left = fault.at_bytes
        return fault


#: What a benchmark program announces as it goes.
IN_A_RUN: Final = ("start", "init", "delegate", "warmup", "run", "results")
#: Moments during which a service sends its output, or a program prints.
PRINTING: Final = ("shell", "exec", "program")
#: Moments at which a number of bytes of a file pass.
OF_FILES: Final = ("push",)
#: What is announced to everything on a phone; ``open`` is for all of its kind, ``tool`` is the start
#: of a tool or program (subject: its path).
ANNOUNCED: Final = (
    "connect",
    "open",
    "open:shell",
    "open:exec",
    "open:sync",
    *OF_FILES,
    "push:done",
    "tool",
    *IN_A_RUN,
)
#: Every moment.
MOMENTS: Final = (*ANNOUNCED, *PRINTING)

FaultArg = str | float


class FaultKind(StrEnum):
    """Every fault that can be requested; :data:`FAULT_NOTES` describes each."""

    CUT = "cut"
    HANG = "hang"
    SLOW = "slow"
    REBOOT = "reboot"
    UNAUTHORIZED = "unauthorized"
    OUTPUT_CUT = "output-cut"
    ANSWER_CUT = "answer-cut"
    CLOSED = "closed"
    BANNER = "banner"
    TOOL_WARNING = "tool-warning"
    PROPERTIES_DENIED = "properties-denied"
    SHELL_RESTRICTED = "shell-restricted"
    INSTALL_REFUSED = "install-refused"
    RUN_AS_REFUSED = "run-as-refused"
    BIT_FLIP = "bit-flip"
    NO_SPACE = "no-space"
    PERMISSION_DENIED = "permission-denied"
    SEGV = "segv"
    LOW_MEMORY = "low-memory"
    PROGRAM_HANG = "program-hang"
    SELINUX_DENIAL = "selinux-denial"
    NOT_RESPONDING = "not-responding"
    DELEGATE_MISSING = "delegate-missing"
    DELEGATE_PARTIAL = "delegate-partial"
    DELEGATE_FAILING = "delegate-failing"
    DELEGATE_WRONG = "delegate-wrong"
    LOG_GARBAGE = "log-garbage"
    NOISY_LOG = "noisy-log"
    CLOCK_JUMP = "clock-jump"
    OVERHEAT = "overheat"
    THROTTLE = "throttle"
    FOREIGN_LOAD = "foreign-load"
    CABLE_OUT = "cable-out"
    BATTERY_LOW = "battery-low"
    BATTERY_HEALTH = "battery-health"
    SCREEN_LOCK = "screen-lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultNote:
    """What a kind of fault does, for people, and the settings it takes with their defaults."""

    summary: str
    #: Setting -> default; a setting not listed here is refused.
    args: Mapping[str, FaultArg] = field(default_factory=dict)
    #: The least value of those that are numbers.
    least: float = 0.0
    #: True for a condition that lasts until the fault is removed, unless ``times`` is given.
    lasting: bool = False
    #: The default moment.
    moment: str = ""
    #: The moments that it can wait for.
    moments: tuple[str, ...] = ANNOUNCED
    #: Whether it can wait until a number of bytes has passed.
    counts_bytes: bool = True


FAULT_NOTES: Final[Mapping[FaultKind, FaultNote]] = as_record(
    Mapping[FaultKind, FaultNote], read_yaml(Path(__file__).with_name("faults.yaml"))
)


def describe() -> str:
    """Return every kind of fault with its settings and defaults, one paragraph each, for people."""
    parts = []
    for kind, note in FAULT_NOTES.items():
        settings = ", ".join(
            f"{name}={default:g}" if isinstance(default, float) else f"{name}={default}"
            for name, default in note.args.items()
        )
        head = (
            f"{kind}"
            + (f" ({settings})" if settings else "")
            + (" [until removed]" if note.lasting else "")
        )
        parts.append(f"{head}\n    {note.summary}")
    return "\n".join(parts)
