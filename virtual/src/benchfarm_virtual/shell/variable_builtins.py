"""Builtins about variables, positional parameters and processes: set, shift, read, trap, wait, kill."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest

from benchfarm_virtual.handles import NullHandle
from benchfarm_virtual.processes import signal_number
from benchfarm_virtual.shell.flow import ExitError
from benchfarm_virtual.shell.interpreter import Shell


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
    """Read a line into variables, the rest of it into the last one: ``read -r NAME...``."""
    raw = args[:1] == ["-r"]
    names = args[raw:] or ["REPLY"]
    line = (shell.fds.get(0) or NullHandle()).read_line(shell.process)
    if not all(name.isidentifier() for name in names) or (b"\\" in line and not raw):
        shell.complain(
            "read: a virtual phone knows read -r NAME..., and no -r where no line has a backslash"
        )
        return 1
    text = (
        line.removesuffix(b"\n").replace(b"\0", b"").decode("utf-8", "surrogateescape").strip(" \t")
    )
    values = re.split("[ \t]+", text, maxsplit=len(names) - 1) if len(names) > 1 else [text]
    for name, value in zip_longest(names, values, fillvalue=""):
        shell.assign(name, value)
    return 0 if line.endswith(b"\n") else 1


def trap_builtin(shell: Shell, args: Sequence[str]) -> int:
    """Do something when a signal comes."""
    if len(args) < 2:
        shell.complain("trap: ACTION SIGNAL... is all that a virtual phone knows")
        return 1
    script, *names = args
    for name in names:
        signal = signal_number(name) if name != "EXIT" else 0
        if signal is None:
            shell.complain(f"trap: bad signal: {name}")
            return 1
        shell.process.caught.discard(signal)
        shell.process.ignored.discard(signal)
        if script == "-":
            shell.traps.pop(signal, None)
            continue
        shell.traps[signal] = script
        if signal:
            (shell.process.caught if script else shell.process.ignored).add(signal)
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
        shell.complain("kill: -SIGNAL PID... is all that a virtual phone knows")
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
