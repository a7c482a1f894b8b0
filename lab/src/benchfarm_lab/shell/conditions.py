"""``test``, ``[`` and ``[[``."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchfarm_lab.contract import FileStat, PhoneFileError

if TYPE_CHECKING:
    from benchfarm_lab.shell.interpreter import Shell

_UNARY = frozenset("abcdefghkLnoprsStuwxzOG")
_BINARY = frozenset({"=", "==", "!=", "<", ">", "-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-nt", "-ot", "-ef"})


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
        case 3 if args[0] == "!":
            return not holds(shell, args[1:])
        case 3 if args[0] == "(" and args[2] == ")":
            return bool(args[1])
        case 4 if args[0] == "!":
            return not holds(shell, args[1:])
    reader = _Reader(shell, list(args))
    value = reader.either()
    if reader.args:
        raise ConditionFaultError(f"{reader.args[0]}: unexpected operator/operand")
    return value


class _Reader:
    """Longer conditions: ``-a``, ``-o``, ``!`` and parentheses."""

    def __init__(self, shell: Shell, args: list[str]) -> None:
        self.shell = shell
        self.args = args

    def either(self) -> bool:
        value = self.both()
        while self.args[:1] == ["-o"]:
            self.args.pop(0)
            value = self.both() or value
        return value

    def both(self) -> bool:
        value = self.negated()
        while self.args[:1] == ["-a"]:
            self.args.pop(0)
            value = self.negated() and value
        return value

    def negated(self) -> bool:
        if self.args[:1] == ["!"]:
            self.args.pop(0)
            return not self.negated()
        return self.primary()

    def primary(self) -> bool:
        if not self.args:
            raise ConditionFaultError("expected operator/operand")
        if len(self.args) >= 3 and self.args[1] in _BINARY:
            left, operator, right = self.args[:3]
            del self.args[:3]
            return _binary(self.shell, left, operator, right)
        first = self.args.pop(0)
        if first == "(":
            value = self.either()
            if self.args[:1] != [")"]:
                raise ConditionFaultError("missing )")
            self.args.pop(0)
            return value
        if len(first) == 2 and first[0] == "-" and first[1] in _UNARY and self.args:
            return _unary(self.shell, first, self.args.pop(0))
        return bool(first)


def _found(shell: Shell, path: str, *, follow: bool = True) -> FileStat | None:
    try:
        return shell.files.stat(shell.absolute(path), follow=follow, uid=shell.uid) if path else None
    except PhoneFileError:
        return None


def _unary(shell: Shell, operator: str, operand: str) -> bool:
    if len(operator) != 2 or operator[0] != "-" or operator[1] not in _UNARY:
        raise ConditionFaultError(f"{operator}: unexpected operator/operand")
    letter = operator[1]
    match letter:
        case "n":
            return bool(operand)
        case "z":
            return not operand
        case "o":
            return shell.has_option(operand)
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
        case "c":
            return stat.S_ISCHR(found.mode)
        case "O":
            return found.uid == shell.uid
        case "G":
            return found.gid == shell.uid
        case "a" | "e":
            return True
    return False


def _binary(shell: Shell, left: str, operator: str, right: str) -> bool:
    match operator:
        case "=" | "==":
            return left == right
        case "!=":
            return left != right
        case "<":
            return left < right
        case ">":
            return left > right
        case "-nt" | "-ot" | "-ef":
            return _compare_files(_found(shell, left), operator, _found(shell, right))
    a, b = shell.calculator.value(left), shell.calculator.value(right)
    return {"-eq": a == b, "-ne": a != b, "-lt": a < b, "-le": a <= b, "-gt": a > b, "-ge": a >= b}[operator]


def _compare_files(left: FileStat | None, operator: str, right: FileStat | None) -> bool:
    if operator == "-ef":
        return left is not None and right is not None and left.inode == right.inode
    older, newer = (right, left) if operator == "-nt" else (left, right)
    return newer is not None and (older is None or newer.mtime_s > older.mtime_s)
