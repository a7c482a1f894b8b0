"""Starts the file of a name or path: one of the phone's own commands, a program on the shelf (with
its crash log), or a script.
"""

from __future__ import annotations

import errno
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from benchfarm_virtual.commands.invocation import (
    CommandFaultError,
    CommandFunction,
    Invocation,
)
from benchfarm_virtual.contract import PhoneFileError, ProgramDiedError, StreamClosedError, decoded
from benchfarm_virtual.faults import FaultKind
from benchfarm_virtual.logs import PhoneLogs
from benchfarm_virtual.open_files import OpenFile
from benchfarm_virtual.processes import Process, acting_for, as_user

if TYPE_CHECKING:
    from benchfarm_virtual.userland import PhoneSystem

#: Folders whose files are the phone's own commands.
_COMMAND_FOLDERS: Final = frozenset({"/system/bin", "/bin"})


class LaunchFaultError(CommandFaultError):
    """A command can't be started; ``code`` is 126 or 127."""


@dataclass(slots=True, kw_only=True)
class Launch:
    """A program to start: arguments, environment, place, open files, and the process that it
    becomes.
    """

    system: PhoneSystem
    process: Process
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    fds: Mapping[int, OpenFile]
    #: Lets go of ``fds`` for good, where the process took over its shell's: for a script that has
    #: redirected them.
    surrender: Callable[[], None] | None = None


def find_program(system: PhoneSystem, name: str, *, path: str) -> str | None:
    """Return the full path of a command name, None when there is none."""
    if "/" in name:
        return name
    for folder in path.split(":"):
        candidate = f"{folder}/{name}"
        if _phone_command(system, candidate) is not None or system.files.may(candidate, 1):
            return candidate
    return None


def launch(request: Launch) -> int:
    """Run a program to its end in this thread, as ``request.process``; return its exit status (128
    + signal).

    Raises LaunchFaultError before anything ran when it can't be started.
    """
    system, process = request.system, request.process
    name = request.argv[0]
    path = find_program(system, name, path=request.env["PATH"])
    if path is None:
        raise LaunchFaultError(f"{name}: inaccessible or not found", 127)
    process.argv = tuple(request.argv)
    with acting_for(process):
        system.faults.reach("tool", subject=path)
        warning = system.faults.active(FaultKind.TOOL_WARNING, path)
        try:
            if warning is not None:
                request.fds[2].write(f"{warning.text('text')}\n".encode())
            return _run(request, path)
        except ProgramDiedError as exc:
            process.signal = process.signal or exc.signal
            return 128 + process.signal
        except StreamClosedError:
            return 128 + 13


def _run(request: Launch, path: str) -> int:
    command = _phone_command(request.system, path)
    if command is not None:
        invocation = Invocation(request)
        try:
            result = command(invocation)
            invocation.out.flush()
            status = int(invocation.failed) if result is None else result
        except CommandFaultError as exc:
            invocation.complain(str(exc))
            status = exc.code
        except (PhoneFileError, ValueError, LookupError, OverflowError, re.error) as exc:
            # Others are of an argument that isn't there, or not the number or date it has to be.
            invocation.complain(
                str(exc) if isinstance(exc, PhoneFileError) else f"bad argument: {exc}"
            )
            status = 1
        if request.process.killed.is_set():
            return 128 + request.process.signal
        return status & 0xFF
    full = path if path.startswith("/") else f"{request.cwd}/{path}"
    try:
        if stat.S_ISDIR(request.system.files.stat(full).mode):
            raise PhoneFileError(errno.EISDIR)
        if not request.system.files.may(full, 1):
            raise PhoneFileError(errno.EACCES)
    except PhoneFileError as exc:
        if exc.errno in {errno.EACCES, errno.EISDIR}:
            raise LaunchFaultError(f"{request.argv[0]}: can't execute: {exc}", 126) from exc
        raise LaunchFaultError(f"{request.argv[0]}: inaccessible or not found", 127) from exc
    with as_user(0):
        head = request.system.files.open_read(full).read(65536)
    if head.startswith(b"\x7fELF"):
        return run_executable(request, full, head)
    interpreter = re.match(rb"#! *(\S+)", head)
    if interpreter and not request.system.files.may(decoded(interpreter[1]), 1):
        raise LaunchFaultError(f"{request.argv[0]}: No such file or directory", 126)
    return int(
        request.system.commands["sh"](Invocation(replace(request, argv=["sh", *request.argv]))) or 0
    )


def _phone_command(system: PhoneSystem, path: str) -> CommandFunction | None:
    folder, _, name = path.rpartition("/")
    return system.commands.get(name) if folder in _COMMAND_FOLDERS else None


def run_executable(launch: Launch, path: str, head: bytes) -> int:
    """Run the ELF file at a phone path; return its exit status.

    Raises LaunchFaultError when the phone can't.
    """
    abis = launch.system.hardware.profile.abis
    program = launch.system.shelf.native(path.rsplit("/", 1)[-1], head, abis)
    if program is None:
        raise LaunchFaultError(
            f"{launch.argv[0]}: not executable: {64 if 2 in head[4:5] else 32}-bit ELF file: "
            "this virtual phone has no fake binary for it",
            126,
        )
    try:
        launch.process.computes = True
        return program(Invocation(launch))
    except ProgramDiedError as exc:
        if exc.signal in CRASHES and not launch.process.killed.is_set():
            log_tombstone(launch.system.logs, launch.process, exc.signal)
        raise
    finally:
        launch.process.computes = False


_NAMES: Final[Mapping[int, tuple[str, str]]] = {
    6: ("SIGABRT", "-1 (SI_QUEUE)"),
    11: ("SIGSEGV", "1 (SEGV_MAPERR)"),
}
#: Signals after which crash_dump writes a tombstone.
CRASHES: Final = frozenset(_NAMES)


def log_tombstone(logs: PhoneLogs, process: Process, signal: int) -> None:
    """Write the lines of libc and of crash_dump into the crash buffer."""
    name, code = _NAMES[signal]
    thread = process.name[-15:]
    address = "--------" if signal == 6 else "0x0"
    logs.append(
        "F",
        "libc",
        f"Fatal signal {signal} ({name}), code {code}, fault addr {address} in tid {process.pid} ({thread}), "
        f"pid {process.pid} ({thread})",
        pid=process.pid,
        buffer="crash",
    )
    lines = [
        f"pid: {process.pid}, tid: {process.pid}, name: {thread}  >>> {process.argv[0]} <<<",
        f"signal {signal} ({name}), code {code}, fault addr {address}",
        "backtrace:",
        f"      #00 pc 00000000001d2c54  {process.argv[0]}",
    ]
    dumper = process.pid + 9
    for line in lines:
        logs.append("F", "DEBUG", line, pid=dumper, buffer="crash")
