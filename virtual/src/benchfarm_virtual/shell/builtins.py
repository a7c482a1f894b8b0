"""The shell's builtin commands, including those of its variables and processes."""

from __future__ import annotations

import errno
import operator
import posixpath
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from benchfarm_virtual.contract import FileStat, PhoneFileError, StreamClosedError, decoded, encoded
from benchfarm_virtual.launching import find_program
from benchfarm_virtual.processes import signal_number
from benchfarm_virtual.shell.interpreter import Shell
from benchfarm_virtual.shell.parsing import RESERVED
from benchfarm_virtual.shell.printing import echoed
from benchfarm_virtual.shell.syntax import ExitError, LeaveLoopError, ShellFaultError


def holds(shell: Shell, args: Sequence[str]) -> bool:
    """Return whether ``test args`` is true, by the POSIX rules for few arguments first."""
    match list(args):
        case []:
            return False
        case [text]:
            return bool(text)
        case [left, "=" | "!=" as sign, right]:
            return (left == right) == (sign == "=")
        case [left, sign, right] if sign in _NUMBERS:
            return _NUMBERS[sign](shell.calculate(left), shell.calculate(right))
        case ["!", *rest] if len(rest) < 4:
            return not holds(shell, rest)
        case [sign, operand] if sign in _UNARY:
            return _UNARY[sign](shell, operand)
    raise ShellFaultError(f"test: {args[1]}: unexpected operator/operand")


def _file_is(condition: Callable[[FileStat], bool]) -> Callable[[Shell, str], bool]:
    def check(shell: Shell, path: str) -> bool:
        file_stat = shell.files.find(shell.absolute(path)) if path else None
        return file_stat is not None and condition(file_stat)

    return check


_UNARY: Final[Mapping[str, Callable[[Shell, str], bool]]] = {
    "-n": lambda shell, text: bool(text),
    "-z": lambda shell, text: not text,
    "-e": _file_is(lambda found: True),
    "-f": _file_is(lambda found: stat.S_ISREG(found.mode)),
    "-d": _file_is(lambda found: stat.S_ISDIR(found.mode)),
    "-s": _file_is(lambda found: found.size_bytes > 0),
    "-x": lambda shell, path: shell.files.may(shell.absolute(path), 1),
}
_NUMBERS: Final[Mapping[str, Callable[[int, int], bool]]] = {
    f"-{name}": getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")
}


@dataclass(frozen=True, slots=True)
class Builtin:
    """A builtin; assignments before a special one stay."""

    body: Callable[[Shell, Sequence[str]], int]
    special: bool = False

    def run(self, shell: Shell, arguments: Sequence[str]) -> int:
        """Run it; a stream that nobody reads any more ends it as SIGPIPE would."""
        try:
            return self.body(shell, arguments[1:])
        except StreamClosedError:
            return 128 + 13
        except PhoneFileError as exc:
            shell.complain(f"{arguments[0]}: {exc}")
            return 1
        except (ValueError, LookupError) as exc:
            # Of an argument that isn't there, or not the number or name that it has to be.
            shell.complain(f"{arguments[0]}: bad argument: {exc}")
            return 1


def _echo(shell: Shell, args: Sequence[str]) -> int:
    try:
        shell.write(1, echoed(args))
    except (PhoneFileError, ShellFaultError) as exc:
        shell.complain(f"echo: write: {exc}")
        return 1
    return 0


def _test(shell: Shell, args: Sequence[str]) -> int:
    try:
        return int(not holds(shell, args))
    except ShellFaultError as exc:
        shell.complain(str(exc))
        return 2


def _cd(shell: Shell, args: Sequence[str]) -> int:
    # As written, links and all, with each ``..`` taking the name before it away.
    where = posixpath.normpath(shell.absolute(args[0] if args else shell.lookup("HOME") or "."))
    try:
        if not stat.S_ISDIR(shell.files.stat(where).mode):
            raise PhoneFileError(errno.ENOTDIR)
        if not shell.files.may(where, 1):
            raise PhoneFileError(errno.EACCES)
    except PhoneFileError as exc:
        shell.complain(f"cd: {where}: {exc}")
        return 2
    shell.cwd = where
    shell.assign("PWD", where)
    return 0


def _pwd(shell: Shell, args: Sequence[str]) -> int:
    shell.write(1, encoded(f"{shell.cwd}\n"))
    return 0


def _eval(shell: Shell, args: Sequence[str]) -> int:
    return shell.run_text(" ".join(args))


def _exit(shell: Shell, args: Sequence[str]) -> int:
    raise ExitError(int(args[0]) & 0xFF if args else shell.status)


def _leave(name: str) -> Callable[[Shell, Sequence[str]], int]:
    def run(shell: Shell, args: Sequence[str]) -> int:
        raise LeaveLoopError(again=name == "continue")

    return run


def _command(shell: Shell, args: Sequence[str]) -> int:
    """Print what a name stands for: ``command -v NAME``."""
    _, name = args
    path = find_program(shell.system, name, path=shell.lookup("PATH"))
    if name in shell.functions or name in RESERVED or name in BUILTINS:
        path = name
    elif path is None or not shell.files.may(shell.absolute(path), 1):
        return 1
    shell.write(1, encoded(f"{path}\n"))
    return 0


def _nothing(shell: Shell, args: Sequence[str]) -> int:
    return 0


def _export(shell: Shell, args: Sequence[str]) -> int:
    for arg in args:
        name, _, value = arg.partition("=")
        shell.assign(name, value)
        shell.exported |= {name}
    return 0


def _false(shell: Shell, args: Sequence[str]) -> int:
    return 1


def _times(shell: Shell, args: Sequence[str]) -> int:
    """Tell the processor time of the shell, and that of the children that it has waited for: user
    and system.
    """
    hardware = shell.system.hardware
    for used_s in (
        hardware.cpu_s(shell.process.pid),
        sum(map(hardware.cpu_s, shell.process.ended_children)),
    ):
        parts = (f"{int(s // 60)}m{s % 60:05.2f}s" for s in (0.97 * used_s, 0.03 * used_s))
        shell.write(1, (" ".join(parts) + "\n").encode())
    return 0


def set_builtin(shell: Shell, args: Sequence[str]) -> int:
    """Set the positional parameters: ``set -- ARGUMENT...``."""
    if args[0] != "--":
        shell.complain("a virtual phone knows set -- only")
        return 1
    shell.positional = list(args[1:])
    return 0


def shift_builtin(shell: Shell, args: Sequence[str]) -> int:
    """Drop positional parameters."""
    del shell.positional[: int(args[0]) if args else 1]
    return 0


def read_builtin(shell: Shell, args: Sequence[str]) -> int:
    """Read a line into variables, the rest of it into the last one: ``read -r NAME...``."""
    names = args[1:] if args[0] == "-r" else args
    line = shell.fds[0].read_line()
    text = decoded(line.removesuffix(b"\n").replace(b"\0", b"")).strip(" \t")
    values = re.split("[ \t]+", text, maxsplit=len(names) - 1) if len(names) > 1 else [text]
    for name, value in zip_longest(names, values, fillvalue=""):
        shell.assign(name, value)
    return 0 if line.endswith(b"\n") else 1


def trap_builtin(shell: Shell, args: Sequence[str]) -> int:
    """Do something when a signal comes."""
    script, *names = args
    for name in names:
        signal = signal_number(name)
        if script == "-":
            shell.process.treat(signal)
            shell.traps.pop(signal, None)
            continue
        shell.traps[signal] = script
        if signal:
            shell.process.treat(signal, caught=bool(script), ignored=not script)
    return 0


def wait_builtin(shell: Shell, args: Sequence[str]) -> int:
    """Wait for jobs."""
    if not args:
        for job in list(shell.jobs):
            if not shell.wait_for(job):
                return _interrupted(shell)
        shell.jobs.clear()
        return 0
    status = 0
    for name in args:
        waited = next((job for job in shell.jobs if str(job.pid) == name), None)
        if waited is None:
            status = 127
            continue
        if not shell.wait_for(waited):
            return _interrupted(shell)
        shell.jobs.remove(waited)
        status = shell.ended(waited, waited.status)
    return status


def _interrupted(shell: Shell) -> int:
    signal = shell.process.pending[0] if shell.process.pending else 0
    shell.check_signals()
    return 128 + signal


def kill_builtin(shell: Shell, args: Sequence[str]) -> int:
    """Signal processes: ``kill [-SIGNAL] [--] PID...``."""
    todo, signal = list(args), 15
    if todo and todo[0].startswith("-") and todo[0] != "--":
        signal = signal_number(todo.pop(0)[1:])
    if todo[:1] == ["--"]:
        todo.pop(0)
    return max((_kill_one(shell, name, signal) for name in todo), default=1)


def _kill_one(shell: Shell, name: str, signal: int) -> int:
    table, number = shell.system.processes, int(name.removeprefix("-"))
    if name.startswith("-") or number == 0:
        processes = [row for row in table.live() if row.pgid == (number or shell.process.pgid)]
        processes.sort(key=lambda process: process is shell.process)
    else:
        processes = [row for row in (table.find(number),) if row is not None]
    processes = [process for process in processes if not process.done.is_set()]
    allowed = [process for process in processes if shell.uid in {0, process.uid}]
    for process in allowed:
        table.kill(process, signal)
    shell.check_signals()
    if not allowed:
        reason = "Operation not permitted" if processes else "No such process"
        shell.complain(f"kill: {name}: {reason}")
    return int(not allowed)


BUILTINS: Final[Mapping[str, Builtin]] = {
    ":": Builtin(_nothing, special=True),
    "true": Builtin(_nothing),
    "false": Builtin(_false),
    "echo": Builtin(_echo),
    "test": Builtin(_test),
    "[": Builtin(lambda shell, args: _test(shell, args[:-1])),
    "cd": Builtin(_cd),
    "pwd": Builtin(_pwd),
    "set": Builtin(set_builtin, special=True),
    "shift": Builtin(shift_builtin, special=True),
    "read": Builtin(read_builtin),
    "eval": Builtin(_eval, special=True),
    "exit": Builtin(_exit, special=True),
    "break": Builtin(_leave("break"), special=True),
    "continue": Builtin(_leave("continue"), special=True),
    "trap": Builtin(trap_builtin, special=True),
    "wait": Builtin(wait_builtin),
    "kill": Builtin(kill_builtin),
    "times": Builtin(_times, special=True),
    "command": Builtin(_command),
    "exec": Builtin(_nothing, special=True),
    "export": Builtin(_export, special=True),
}
