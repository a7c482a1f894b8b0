"""``test``, ``[`` and ``[[``."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchfarm_lab.contract import FileStat, PhoneFileError

if TYPE_CHECKING:
    from benchfarm_lab.shell.interpreter import Shell

_UNARY = frozenset("defhLnrstwxz")
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
        return shell.files.stat(shell.absolute(path), follow=follow, uid=shell.uid) if path else None
    except PhoneFileError:
        return None


def _unary(shell: Shell, operator: str, operand: str) -> bool:
    letter = operator[1]
    match letter:
        case "n":
            return bool(operand)
        case "z":
            return not operand
        case "t":
            handle = shell.fds.get(int(operand)) if operand.isdigit() else None
            return handle is not None and handle.is_terminal
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
    return {"-eq": a == b, "-ne": a != b, "-lt": a < b, "-le": a <= b, "-gt": a > b, "-ge": a >= b}[operator]
