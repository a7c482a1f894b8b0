"""Builtins about variables, positional parameters and processes: export, set, shift, read, trap, wait, kill."""

from __future__ import annotations

from collections.abc import Sequence

from benchfarm_lab.handles import NullHandle
from benchfarm_lab.processes import SIGNAL_NUMBERS, signal_number
from benchfarm_lab.shell.flow import ExitError
from benchfarm_lab.shell.interpreter import Shell
from benchfarm_lab.shell.variables import quoted


def export_builtin(shell: Shell, args: Sequence[str]) -> int:
    """Mark variables for the environment."""
    names = [arg for arg in args if not arg.startswith("-")]
    if not names:
        for name, value in shell.variables.environment().items():
            shell.write(1, f"export {name}={quoted(value)}\n".encode("utf-8", "surrogateescape"))
    for arg in names:
        name, equals, value = arg.partition("=")
        if not name.isidentifier():
            shell.complain(f"export: {name}: is not an identifier")
            return 1
        if equals:
            shell.assign(name, value)
        shell.variables.exported.add(name)
    return 0


def unset_builtin(shell: Shell, args: Sequence[str]) -> int:
    """Forget variables or functions."""
    functions = args[:1] == ["-f"]
    for name in args:
        if name in {"-f", "-v"}:
            continue
        if functions:
            shell.functions.pop(name, None)
        else:
            shell.variables.values.pop(name, None)
            shell.variables.exported.discard(name)
    return 0


def set_builtin(shell: Shell, args: Sequence[str]) -> int:
    """Set the positional parameters: ``set -- ARGUMENT...``."""
    if args and args[0] != "--" and args[0][:1] in {"-", "+"}:
        shell.complain(f"set: {args[0]}: unknown option")
        return 1
    shell.positional = list(args[1:] if args[:1] == ["--"] else args)
    return 0


def shift_builtin(shell: Shell, args: Sequence[str]) -> int:
    """Drop positional parameters."""
    count = int(args[0]) if args and args[0].isdigit() else 1
    if count > len(shell.positional):
        shell.complain("shift: nothing to shift")
        raise ExitError(1)
    del shell.positional[:count]
    return 0


def read_builtin(shell: Shell, args: Sequence[str]) -> int:
    """Read a line into variables."""
    raw, names, descriptor = False, [], 0
    todo = list(args)
    while todo:
        arg = todo.pop(0)
        if arg == "--":
            names += todo
            break
        if arg.startswith("-u") and len(arg) > 2:
            descriptor = int(arg[2:]) if arg[2:].isdigit() else 0
        elif arg in {"-p", "-t", "-n", "-d"} and todo:
            todo.pop(0)
        elif arg.startswith("-"):
            raw = raw or "r" in arg
        else:
            names.append(arg)
    handle = shell.fds.get(descriptor) or NullHandle()
    line = handle.read_line(shell.process)
    complete = line.endswith(b"\n")
    while not raw and line.endswith(b"\\\n"):
        following = handle.read_line(shell.process)
        line = line[:-2] + following
        complete = following.endswith(b"\n")
    text = line.removesuffix(b"\n").replace(b"\0", b"").decode("utf-8", "surrogateescape")
    for name, value in zip(names or ["REPLY"], _split_line(shell, text, len(names) or 1, raw=raw), strict=True):
        shell.assign(name, value)
    return 0 if complete else 1


def _split_line(shell: Shell, text: str, count: int, *, raw: bool) -> list[str]:
    """Split a line at IFS into ``count`` values; the last one takes the rest."""
    separators = shell.lookup("IFS")
    separators = " \t\n" if separators is None else separators
    spaces = "".join(char for char in separators if char in " \t\n")
    marked: list[tuple[str, bool]] = []
    at = 0
    while at < len(text):
        if text[at] == "\\" and not raw:
            marked.append((text[at + 1 : at + 2], False))
            at += 2
        else:
            marked.append((text[at], text[at] in separators))
            at += 1
    at, end = 0, len(marked)
    while at < end and marked[at][1] and marked[at][0] in spaces:
        at += 1
    while end > at and marked[end - 1][1] and marked[end - 1][0] in spaces:
        end -= 1
    values: list[str] = []
    while len(values) < count - 1:
        start = at
        while at < end and not marked[at][1]:
            at += 1
        values.append("".join(char for char, _ in marked[start:at]))
        while at < end and marked[at][1] and marked[at][0] in spaces:
            at += 1
        if at < end and marked[at][1]:
            at += 1
            while at < end and marked[at][1] and marked[at][0] in spaces:
                at += 1
    rest = marked[at:end]
    if rest and rest[-1][1] and not any(separator for _, separator in rest[:-1]):
        rest = rest[:-1]  # one separator at the very end only ends the last field
    values.append("".join(char for char, _ in rest))
    return values


def trap_builtin(shell: Shell, args: Sequence[str]) -> int:
    """Do something when a signal comes, or at the end."""
    args = args[1:] if args[:1] == ["--"] else args
    if not args:
        names = {number: name for name, number in SIGNAL_NUMBERS.items()}
        for signal, script in sorted(shell.traps.items()):
            shell.write(1, f"trap -- {quoted(script)} {names.get(signal, signal)}\n".encode())
        return 0
    script, signals = (args[0], args[1:]) if signal_number(args[0]) is None or len(args) > 1 else ("-", args)
    for name in signals:
        number = signal_number(name)
        if number is None:
            shell.complain(f"trap: bad signal: {name}")
            return 1
        signal = number
        shell.process.caught.discard(signal)
        shell.process.ignored.discard(signal)
        if script == "-":
            shell.traps.pop(signal, None)
            continue
        shell.traps[signal] = script
        if signal and script:
            shell.process.caught.add(signal)
        elif signal:
            shell.process.ignored.add(signal)
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
        found = next((job for job in shell.jobs if str(job.pid) == name), None)
        if found is None:
            status = 127
            continue
        if not shell.wait_for(found):
            return _interrupted(shell)
        shell.jobs.remove(found)
        status = shell.ended(found, found.status)
    return status


def _interrupted(shell: Shell) -> int:
    signal = shell.process.pending[0] if shell.process.pending else 0
    shell.check_signals()
    return 128 + signal


def kill_builtin(shell: Shell, args: Sequence[str]) -> int:
    """Signal processes and jobs."""
    todo, signal = list(args), 15
    if todo and todo[0] == "-s" and len(todo) > 1:
        todo[:2] = [f"-{todo[1]}"]
    if todo and todo[0].startswith("-") and todo[0] != "--":
        number = signal_number(todo[0][1:])
        if number is None:
            shell.complain(f"kill: bad signal: {todo[0][1:]}")
            return 1
        signal = number
        todo.pop(0)
    if todo[:1] == ["--"]:
        todo.pop(0)
    status = 0
    if not todo:
        shell.error("usage:\tkill [-s signame | -signum | -signame] { job | pid | pgrp } ...")
        shell.error("\tkill -l [exit_status ...]")
        return 1
    for name in todo:
        status = _kill_one(shell, name, signal) or status
    return status


def _kill_one(shell: Shell, name: str, signal: int) -> int:
    digits = name.removeprefix("-")
    if not digits.isdigit():
        shell.complain(f"kill: {name}: arguments must be jobs or process IDs")
        return 1
    table = shell.system.processes
    if name.startswith("-") or int(digits) == 0:
        found = [row for row in table.live() if row.pgid == (int(digits) or shell.process.pgid)]
        found.sort(key=lambda process: process is shell.process)
    else:
        process = table.find(int(digits))
        found = [] if process is None else [process]
    found = [process for process in found if not process.done.is_set()]
    if not found:
        shell.complain(f"kill: {name}: No such process")
        return 1
    allowed = [process for process in found if shell.uid in {0, process.uid}]
    for process in allowed:
        table.kill(process, signal)
    shell.check_signals()
    if not allowed:
        shell.complain(f"kill: {name}: Operation not permitted")
    return int(not allowed)
