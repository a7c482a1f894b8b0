"""Builtins about processes: trap, wait, kill, jobs."""

from __future__ import annotations

from collections.abc import Sequence

from benchfarm_lab.processes import SIGNAL_NUMBERS, signal_number
from benchfarm_lab.shell.interpreter import Shell
from benchfarm_lab.shell.variables import quoted


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
