"""The kinds of fault that a virtual phone can have on request, what each does, and the settings it
takes (``faults.yaml``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

from benchfarm_virtual.data import read_yaml

#: What a benchmark program announces as it goes.
IN_A_RUN: Final = ("start", "init", "delegate", "warmup", "run", "results")
#: While which service sends its output, or a program prints.
PRINTING: Final = ("shell", "exec", "program")
#: At which so many bytes of a file pass.
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
    """Every fault that can be asked for; :data:`FAULT_NOTES` says what each one does."""

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
    LOG_UTF8 = "log-utf8"
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
    #: True for a condition that lasts until the fault is removed, unless ``times`` is given.
    lasting: bool = False
    #: The moment that is meant when none is given.
    moment: str = ""
    #: The moments that it can wait for.
    moments: tuple[str, ...] = ANNOUNCED
    #: Whether it can wait until a number of bytes has passed.
    counts_bytes: bool = True
    #: True for what happens some time after its moment, wherever there is an occasion.
    lingers: bool = False


def _notes() -> Iterator[tuple[FaultKind, FaultNote]]:
    for kind, note in read_yaml(Path(__file__).with_name("faults.yaml")).items():
        if "moments" in note:
            note["moments"] = tuple(note["moments"])
        yield FaultKind(kind), FaultNote(**note)


FAULT_NOTES: Final[Mapping[FaultKind, FaultNote]] = dict(_notes())


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
