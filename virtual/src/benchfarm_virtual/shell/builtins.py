"""What the shell does itself: variables, flow, traps, jobs, ``echo``, ``test`` and so on."""

from __future__ import annotations

import errno
import posixpath
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchfarm_virtual.contract import FileStat, PhoneFileError, StreamClosedError
from benchfarm_virtual.launching import DEFAULT_PATH, find_program
from benchfarm_virtual.shell.arithmetic import ArithmeticFaultError
from benchfarm_virtual.shell.flow import ExitError, LeaveLoopError
from benchfarm_virtual.shell.interpreter import Shell
from benchfarm_virtual.shell.parsing import RESERVED
from benchfarm_virtual.shell.printing import echoed
from benchfarm_virtual.shell.variable_builtins import (
    kill_builtin,
    read_builtin,
    set_builtin,
    shift_builtin,
    trap_builtin,
    wait_builtin,
)

_UNARY = frozenset("defhLnrswxz")
_BINARY = frozenset({"=", "!=", "-eq", "-ne", "-lt", "-le", "-gt", "-ge"})


class ConditionFaultError(Exception):
    """The condition can't be read: status 2."""


def holds(shell: Shell, args: Sequence[str]) -> bool:
    """Say whether ``test args`` is true, by the POSIX rules for few arguments first."""
    match len(args):
        case 0:
            return False
        case 1:
            return bool(args[0])
        case 2:
            if args[0] == "!":
                return not args[1]
            if len(args[0]) != 2 or args[0][0] != "-" or args[0][1] not in _UNARY:
                raise ConditionFaultError(f"{args[1]}: unexpected operator/operand")
            return _unary(shell, args[0], args[1])
        case 3 if args[1] in _BINARY:
            return _binary(shell, args[0], args[1], args[2])
        case 3 | 4 if args[0] == "!":
            return not holds(shell, args[1:])
    raise ConditionFaultError(f"{args[1]}: unexpected operator/operand")


def _found(shell: Shell, path: str, *, follow: bool = True) -> FileStat | None:
    try:
        return (
            shell.files.stat(shell.absolute(path), follow=follow, uid=shell.uid) if path else None
        )
    except PhoneFileError:
        return None


def _unary(shell: Shell, operator: str, operand: str) -> bool:
    letter = operator[1]
    match letter:
        case "n":
            return bool(operand)
        case "z":
            return not operand
        case "r" | "w" | "x":
            want = {"r": 4, "w": 2, "x": 1}[letter]
            return bool(operand) and shell.files.may(shell.absolute(operand), want, uid=shell.uid)
        case "L" | "h":
            found = _found(shell, operand, follow=False)
            return found is not None and stat.S_ISLNK(found.mode)
    found = _found(shell, operand)
    if found is None:
        return False
    match letter:
        case "f":
            return stat.S_ISREG(found.mode)
        case "d":
            return stat.S_ISDIR(found.mode)
        case "s":
            return found.size_bytes > 0
    return True


def _binary(shell: Shell, left: str, operator: str, right: str) -> bool:
    match operator:
        case "=":
            return left == right
        case "!=":
            return left != right
    a, b = shell.calculator.value(left), shell.calculator.value(right)
    return {"-eq": a == b, "-ne": a != b, "-lt": a < b, "-le": a <= b, "-gt": a > b, "-ge": a >= b}[
        operator
    ]


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


def _echo(shell: Shell, args: Sequence[str]) -> int:
    try:
        if 1 not in shell.fds:
            raise PhoneFileError(errno.EBADF, "Bad file descriptor")
        shell.write(1, echoed(args))
    except PhoneFileError as exc:
        shell.complain(f"echo: write: {exc}")
        return 1
    return 0


def _test(shell: Shell, args: Sequence[str], name: str = "test") -> int:
    try:
        return 0 if holds(shell, args) else 1
    except ConditionFaultError as exc:
        shell.complain(f"{name}: {exc}")
        return 2
    except ArithmeticFaultError as exc:
        shell.complain(str(exc))
        return 2


def _bracket(shell: Shell, args: Sequence[str]) -> int:
    if not args or args[-1] != "]":
        shell.complain("[: missing ]")
        return 2
    return _test(shell, args[:-1], "[")


def _cd(shell: Shell, args: Sequence[str]) -> int:
    # As written, links and all, with each ``..`` taking the name before it away.
    where = posixpath.normpath(shell.absolute(args[0] if args else shell.lookup("HOME") or "."))
    try:
        found = shell.files.stat(where, uid=shell.uid)
    except PhoneFileError as exc:
        shell.complain(f"cd: {where}: {exc}")
        return 2
    if not stat.S_ISDIR(found.mode):
        shell.complain(f"cd: {where}: Not a directory")
        return 2
    if not shell.files.may(where, 1, uid=shell.uid):
        shell.complain(f"cd: {where}: Permission denied")
        return 2
    shell.cwd = where
    shell.assign("PWD", where)
    return 0


def _pwd(shell: Shell, args: Sequence[str]) -> int:
    if args:
        shell.complain(f"pwd: {args[0]}: unknown option")
        return 1
    shell.write(1, f"{shell.cwd}\n".encode("utf-8", "surrogateescape"))
    return 0


def _eval(shell: Shell, args: Sequence[str]) -> int:
    return shell.run_text(" ".join(args))


def _status_argument(shell: Shell, args: Sequence[str]) -> int:
    if not args:
        return shell.status
    try:
        return int(args[0]) & 0xFF
    except ValueError:
        return shell.calculator.value(args[0]) & 0xFF


def _exit(shell: Shell, args: Sequence[str]) -> int:
    if args and not args[0].lstrip("-").isdigit():
        shell.complain(f"exit: bad number: {args[0]}")
        raise ExitError(1)
    raise ExitError(_status_argument(shell, args))


def _leave(*, again: bool) -> Callable[[Shell, Sequence[str]], int]:
    def run(shell: Shell, args: Sequence[str]) -> int:
        wanted = max(1, int(args[0])) if args and args[0].isdigit() else 1
        name, did = ("continue", "continue") if again else ("break", "break")
        if not shell.loops:
            shell.complain(f"{name}: can't {did}")
            return 0
        if wanted > shell.loops:
            shell.complain(f"{name}: can only {did} {shell.loops} level(s)")
        raise LeaveLoopError(min(wanted, shell.loops), again=again)

    return run


def _command(shell: Shell, args: Sequence[str]) -> int:
    if args[:1] != ["-v"]:
        shell.complain("command: -v NAME is all that a virtual phone knows")
        return 1
    return _where(shell, args[1:])


def _where(shell: Shell, names: Sequence[str]) -> int:
    """Print what names stand for; the first that stands for nothing is the last looked at, as in
    mksh.
    """
    for name in names:
        path = find_program(
            shell.system,
            name,
            path=shell.lookup("PATH") or DEFAULT_PATH,
            cwd=shell.cwd,
            uid=shell.uid,
        )
        if name in shell.functions or name in RESERVED or name in BUILTINS:
            text = name
        elif path is not None and shell.files.may(shell.absolute(path), 1, uid=shell.uid):
            text = path
        else:
            return 1
        shell.write(1, f"{text}\n".encode("utf-8", "surrogateescape"))
    return 0


def _nothing(shell: Shell, args: Sequence[str]) -> int:
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


BUILTINS: Mapping[str, Builtin] = {
    ":": Builtin(_nothing, special=True),
    "true": Builtin(_nothing),
    "false": Builtin(_false),
    "echo": Builtin(_echo),
    "test": Builtin(_test),
    "[": Builtin(_bracket),
    "cd": Builtin(_cd),
    "pwd": Builtin(_pwd),
    "set": Builtin(set_builtin, special=True),
    "shift": Builtin(shift_builtin, special=True),
    "read": Builtin(read_builtin),
    "eval": Builtin(_eval, special=True),
    "exit": Builtin(_exit, special=True),
    "break": Builtin(_leave(again=False), special=True),
    "continue": Builtin(_leave(again=True), special=True),
    "trap": Builtin(trap_builtin, special=True),
    "wait": Builtin(wait_builtin),
    "kill": Builtin(kill_builtin),
    "times": Builtin(_times, special=True),
    "command": Builtin(_command),
    "exec": Builtin(_nothing, special=True),
}
