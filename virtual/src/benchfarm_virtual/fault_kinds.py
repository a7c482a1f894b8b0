"""The kinds of fault that a virtual phone can have on request, what each does, and the settings it
takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

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
        summary="Output ends after 'bytes' bytes: a service's (moments 'shell', 'exec') is closed without exit "
        "code while the connection stays; of a program's stdout (moment 'program', counted from its init) the rest "
        "is lost.",
        moments=PRINTING,
    ),
    FaultKind.ANSWER_CUT: FaultNote(
        summary="What a service (moments 'shell', 'exec') prints after 'bytes' bytes is lost; its exit code comes.",
        moment="shell",
        moments=("shell", "exec"),
    ),
    FaultKind.CLOSED: FaultNote(
        summary="The phone refuses to open a service (moment, default open:shell): adb says 'closed'.",
        moment="open:shell",
        moments=("open", "open:shell", "open:exec", "open:sync"),
        counts_bytes=False,
    ),
    FaultKind.BANNER: FaultNote(
        summary="Each shell begins with the line 'text' on its standard output, as some makers' do.",
        args={"text": "Welcome to ACME OS"},
        lasting=True,
        moments=(),
        counts_bytes=False,
    ),
    FaultKind.TOOL_WARNING: FaultNote(
        summary="Each tool and program (subject: its path) begins with the linker's line 'text' on its standard error.",
        args={"text": "WARNING: linker: Warning: unable to normalize /vendor/lib64"},
        lasting=True,
        moments=(),
        counts_bytes=False,
    ),
    FaultKind.PROPERTIES_DENIED: FaultNote(
        summary="getprop prints 'Permission denied' instead of properties.",
        lasting=True,
        moments=(),
        counts_bytes=False,
    ),
    FaultKind.SHELL_RESTRICTED: FaultNote(
        summary="The maker lets the shell user neither put settings, press keys nor switch by svc (subject: settings, "
        "input or svc), as without 'USB debugging (Security settings)'.",
        lasting=True,
        moments=(),
        counts_bytes=False,
    ),
    FaultKind.INSTALL_REFUSED: FaultNote(
        summary="The package manager takes an APK and refuses it with 'Failure [text]'.",
        args={"text": "INSTALL_FAILED_USER_RESTRICTED: Install canceled by user"},
        lasting=True,
        moments=(),
        counts_bytes=False,
    ),
    FaultKind.BIT_FLIP: FaultNote(
        summary="One bit of a pushed file is turned over at byte 'bytes'; "
        "sizes stay right and nobody is told.",
        moments=OF_FILES,
    ),
    FaultKind.NO_SPACE: FaultNote(
        summary="Writing files fails with 'No space left on device' once 'bytes' more bytes are written "
        "(0: at once); the subject is the path.",
        lasting=True,
        moments=(),
    ),
    FaultKind.PERMISSION_DENIED: FaultNote(
        summary="Opening, listing, changing or executing the subject path fails with 'Permission denied'.",
        lasting=True,
        moments=(),
        counts_bytes=False,
    ),
    FaultKind.SEGV: FaultNote(
        summary="A benchmark program dies of SIGSEGV at the moment (default: run), with its last words in logcat.",
        moment="run",
        moments=IN_A_RUN,
        counts_bytes=False,
    ),
    FaultKind.LOW_MEMORY: FaultNote(
        summary="The low memory killer ends a benchmark program with SIGKILL at the moment (default: run).",
        moment="run",
        moments=IN_A_RUN,
        counts_bytes=False,
    ),
    FaultKind.PROGRAM_HANG: FaultNote(
        summary="A benchmark program stops at the moment (default: run) and does nothing until it is killed.",
        moment="run",
        moments=IN_A_RUN,
        counts_bytes=False,
    ),
    FaultKind.SELINUX_DENIAL: FaultNote(
        summary="SELinux denies a benchmark program the subject path: opening it fails with 'Permission denied', and "
        "the log has the denial.",
        lasting=True,
        moments=(),
        counts_bytes=False,
    ),
    FaultKind.NOT_RESPONDING: FaultNote(
        summary="The benchmark app doesn't respond (ANR) at the moment (default: run): the log says so, and Android "
        "ends it after 'seconds' phone seconds (0: never).",
        moment="run",
        args={"seconds": 5.0},
        moments=IN_A_RUN,
        counts_bytes=False,
    ),
    FaultKind.DELEGATE_MISSING: FaultNote(
        summary="The delegate (subject) isn't on the phone: its library or driver can't be opened.",
        moments=("delegate",),
        counts_bytes=False,
    ),
    FaultKind.DELEGATE_PARTIAL: FaultNote(
        summary="The delegate (subject) takes only 'share' of the nodes it would take.",
        args={"share": 0.5},
        moments=("delegate",),
        counts_bytes=False,
    ),
    FaultKind.DELEGATE_FAILING: FaultNote(
        summary="The delegate (subject) is there but fails while it is applied to the model.",
        moments=("delegate",),
        counts_bytes=False,
    ),
    FaultKind.DELEGATE_WRONG: FaultNote(
        summary="The delegate (subject) takes its nodes but computes wrong numbers: the outputs that the program "
        "writes are far from those of the CPU.",
        moments=("delegate",),
        counts_bytes=False,
    ),
    FaultKind.LOG_GARBAGE: FaultNote(
        summary="Bytes that are no UTF-8 come into logcat before the next message.",
        lingers=True,
        counts_bytes=False,
    ),
    FaultKind.LOG_UTF8: FaultNote(
        summary="Bytes of 4-byte UTF-8 (emoji) come into logcat before the next message.",
        lingers=True,
        counts_bytes=False,
    ),
    FaultKind.NOISY_LOG: FaultNote(
        summary="Another app logs 'lines_per_s' lines a second (of this computer's), until the fault is removed.",
        args={"lines_per_s": 20.0},
        lasting=True,
    ),
    FaultKind.CLOCK_JUMP: FaultNote(
        summary="The phone's wall clock jumps by 'seconds' (negative: back); uptime doesn't.",
        args={"seconds": 3600.0},
    ),
    FaultKind.OVERHEAT: FaultNote(
        summary="The phone is at 'heat_c' degrees at once; it cools down from there.",
        args={"heat_c": 70.0},
    ),
    FaultKind.THROTTLE: FaultNote(
        summary="Every clock loses 'steps' of its steps, as heat takes them, until the fault is removed.",
        args={"steps": 4.0},
        lasting=True,
    ),
    FaultKind.FOREIGN_LOAD: FaultNote(
        summary="Something else keeps 'cores' of the fastest cores, a share of the 'memory' and of the 'gpu' busy, "
        "until the fault is removed.",
        args={"cores": 1.0, "memory": 0.0, "gpu": 0.0},
        lasting=True,
    ),
    FaultKind.CABLE_OUT: FaultNote(
        summary="Nothing charges the phone, which is reached as before, until the fault is removed.",
        lasting=True,
    ),
    FaultKind.BATTERY_LOW: FaultNote(
        summary="The battery is at 'percent' at once.", args={"percent": 4.0}
    ),
    FaultKind.BATTERY_HEALTH: FaultNote(
        summary="The battery says that its health is 'health' (as BatteryManager counts: 3 overheat, 4 dead, 5 over "
        "voltage, 6 failure, 7 cold), until the fault is removed.",
        args={"health": 6.0},
        lasting=True,
    ),
    FaultKind.SCREEN_LOCK: FaultNote(
        summary="The screen goes off and the keyguard is shown at once."
    ),
}


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
