"""Runs the parts of a script: simple commands, and compound ones."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Final

from benchfarm_virtual.contract import PhoneFileError
from benchfarm_virtual.launching import Launch, LaunchFaultError, launch
from benchfarm_virtual.open_files import OpenFile, null_file, open_pipe
from benchfarm_virtual.shell.expansion import matches
from benchfarm_virtual.shell.syntax import (
    AndOr,
    Block,
    Case,
    ExitError,
    For,
    Function,
    If,
    LeaveLoopError,
    Loop,
    Pipeline,
    Redirect,
    Redirected,
    Simple,
    Statement,
    Subshell,
)

if TYPE_CHECKING:
    from benchfarm_virtual.shell.builtins import Builtin
    from benchfarm_virtual.shell.interpreter import Shell

#: From this number of rounds on a loop keeps one of the phone's cores busy; then each takes this
#: time, in real seconds.
_SPINS: Final = 500
_SPIN_PAUSE_S: Final = 0.004


def execute(shell: Shell, statement: Statement) -> int:
    """Run one statement and return its status."""
    match statement:
        case Simple():
            return run_simple(shell, statement)
        case AndOr(left, operator, right):
            status = shell.status = execute(shell, left)
            return execute(shell, right) if (status == 0) == (operator == "&&") else status
        case Pipeline(commands, negated):
            piped = len(commands) > 1
            status = run_pipe(shell, commands) if piped else execute(shell, commands[0])
            return int(status == 0) if negated else status
        case Redirected(body, redirects):
            return with_redirects(shell, redirects, lambda: execute(shell, body))
        case Block():
            return shell.block(statement)
        case If(branches, otherwise):
            for condition, block in branches:
                if shell.block(condition) == 0:
                    return shell.block(block)
            shell.status = 0
            return shell.block(otherwise) if otherwise is not None else 0
        case For():
            return _for(shell, statement)
        case Loop():
            return _while(shell, statement)
        case Case(value, items):
            text = shell.expander.text(value)
            for patterns, block in items:
                if any(matches(shell.expander.pieces(pattern), text) for pattern in patterns):
                    shell.status = 0
                    return shell.block(block)
            return 0
        case Subshell(block):
            child = shell.fork(shell.fds)
            return shell.ended(child.process, child.live(lambda: child.block(block)))
        case Function(name, body):
            shell.functions[name] = body
            return 0


def _for(shell: Shell, statement: For) -> int:
    values = iter(shell.expander.arguments(statement.words))

    def begins() -> bool:
        value = next(values, None)
        if value is not None:
            shell.assign(statement.name, value)
        return value is not None

    return _rounds(shell, statement.body, begins)


def _while(shell: Shell, statement: Loop) -> int:
    """Many rounds keep one of the phone's cores busy."""
    process, rounds = shell.process, itertools.count()
    with contextlib.ExitStack() as busy:

        def begins() -> bool:
            done = next(rounds)
            if done == _SPINS:
                busy.enter_context(shell.system.hardware.spinning(process.pid, process))
            if done >= _SPINS:
                # The phone's core is busy; this computer's needn't be.
                process.killed.wait(_SPIN_PAUSE_S)
            return (shell.block(statement.condition) == 0) != statement.until

        return _rounds(shell, statement.body, begins)


def _rounds(shell: Shell, body: Block, begins: Callable[[], bool]) -> int:
    """Run a loop's rounds; a ``break`` in a condition is one, too."""
    status = 0
    while True:
        try:
            if not begins():
                return status
            status = shell.block(body)
        except LeaveLoopError as exc:
            if not exc.again:
                return 0
            status = 0


def run_simple(shell: Shell, command: Simple, *, replace: bool = False) -> int:
    """Run a simple command.

    ``replace``: it is the shell's last, so a program takes over the shell's process.
    """
    shell.check_signals()
    arguments = shell.expander.arguments(command.words)
    if not arguments:
        return _assign(shell, command)
    name = arguments[0]
    builtin = _builtins().get(name)
    if name == "exec":
        return _exec(shell, command, arguments[1:])
    if name in shell.functions and not (builtin and builtin.special):
        return _inside(shell, command, lambda: _call(shell, name, arguments))
    if builtin is not None:
        if not command.assignments and not command.redirects:
            return builtin.run(shell, arguments)
        return _inside(
            shell, command, lambda: builtin.run(shell, arguments), special=builtin.special
        )
    # A signal that is ignored stays so whoever has the process.
    if replace and not any(shell.traps.values()):
        assigned = _assigned(shell, command)
        shell.take_redirects(command.redirects)
        return external(shell, arguments, assigned, replace=True)
    return with_redirects(
        shell, command.redirects, lambda: external(shell, arguments, _assigned(shell, command))
    )


@cache
def _builtins() -> Mapping[str, Builtin]:
    from benchfarm_virtual.shell.builtins import BUILTINS

    return BUILTINS


def with_redirects(
    shell: Shell, redirects: Sequence[Redirect], body: Callable[[], int], *, special: bool = False
) -> int:
    """Run something with the shell's open files redirected; return its status, 1 when they can't
    be.

    Raises ExitError when they can't be for a special builtin: that ends the shell.
    """
    if not redirects:
        return body()
    try:
        fds, opened = redirected(shell, redirects, special=special)
    except RedirectFaultError as exc:
        if special:
            raise ExitError(1) from exc
        return 1
    before, shell.fds = shell.fds, fds
    try:
        return body()
    finally:
        if shell.fds is fds:
            shell.fds = before
        for handle in opened:
            handle.release()


def external(
    shell: Shell, arguments: Sequence[str], assigned: Mapping[str, str], *, replace: bool = False
) -> int:
    """Run a program: in a child process, or in the shell's own."""
    processes = shell.system.processes
    if replace:
        process = shell.process
        process.is_shell = False
        process.caught.clear()
    else:
        process = processes.spawn(
            arguments, uid=shell.uid, parent=shell.process, group=shell.process.group
        )
    request = Launch(
        system=shell.system,
        process=process,
        argv=arguments,
        env={**{name: shell.values[name] for name in sorted(shell.exported)}, **assigned},
        cwd=shell.cwd,
        fds=shell.fds,
        surrender=shell.close if replace else None,
    )

    def run() -> int:
        try:
            return launch(request)
        except LaunchFaultError as exc:
            shell.complain(str(exc))
            return exc.code

    return run() if replace else shell.ended(process, processes.run(process, run))


# Assignments


def _assigned(shell: Shell, command: Simple) -> dict[str, str]:
    return {name: shell.expander.text(word) for name, word in command.assignments}


def _assign(shell: Shell, command: Simple) -> int:
    """Run a command without a name: its assignments and redirections."""
    # ``$?`` in a value is that of the previous command; the status is that of the last substitution.
    before, shell.has_substituted = shell.status, False
    for name, word in command.assignments:
        shell.assign(name, shell.expander.text(word))
    status = shell.status if shell.has_substituted else 0
    shell.status = before
    return with_redirects(shell, command.redirects, lambda: status)


def _inside(
    shell: Shell, command: Simple, body: Callable[[], int], *, special: bool = False
) -> int:
    """Run a builtin or function with the redirections of its command; assignments are for programs
    only.
    """
    if command.assignments:
        shell.complain("a virtual phone knows no assignments before builtins and functions")
        return 1
    return with_redirects(shell, command.redirects, body, special=special)


# Commands by name


def _exec(shell: Shell, command: Simple, arguments: list[str]) -> int:
    shell.take_redirects(command.redirects, special=True)
    if arguments:
        shell.traps.clear()
        builtin = _builtins().get(arguments[0])
        raise ExitError(
            builtin.run(shell, arguments)
            if builtin
            else external(shell, arguments, {}, replace=True)
        )
    return 0


def _call(shell: Shell, name: str, arguments: list[str]) -> int:
    """Run one of the shell's functions."""
    before, shell.positional = shell.positional, arguments[1:]
    try:
        return execute(shell, shell.functions[name])
    finally:
        shell.positional = before


class RedirectFaultError(Exception):
    """A redirection failed; the command doesn't run."""


def retained(fds: Mapping[int, OpenFile]) -> dict[int, OpenFile]:
    """Return a copy of open files for another process, each held once more."""
    return {descriptor: handle.retain() for descriptor, handle in fds.items()}


def release_all(fds: Mapping[int, OpenFile]) -> None:
    """Let go of a process's open files."""
    for handle in fds.values():
        handle.release()


def redirected(
    shell: Shell, redirects: Sequence[Redirect], *, special: bool
) -> tuple[dict[int, OpenFile], list[OpenFile]]:
    """Return the open files after redirections, and those that were opened for them (to release
    afterwards). A failure is reported; for a special builtin it will end the shell.
    """
    fds = dict(shell.fds)
    opened: list[OpenFile] = []
    try:
        for redirect in redirects:
            _apply(shell, redirect, fds, opened)
    except (PhoneFileError, RedirectFaultError) as exc:
        for handle in opened:
            handle.release()
        shell.complain(str(exc))
        if special:
            shell.complain("redirection failure")
        raise RedirectFaultError from exc
    return fds, opened


def _apply(
    shell: Shell, redirect: Redirect, fds: dict[int, OpenFile], opened: list[OpenFile]
) -> None:
    operator, target = redirect.operator, shell.expander.text(redirect.target)
    descriptor = redirect.descriptor
    if descriptor is None:
        descriptor = 0 if operator == "<" else 1
    if operator == ">&":
        source = fds.get(int(target)) if target.isdigit() else None
        if source is None:
            raise RedirectFaultError(f"{operator}{target} : bad file descriptor")
        fds[descriptor] = source
        return
    handle = _open(shell, target, operator)
    opened.append(handle)
    fds[descriptor] = handle


def _open(shell: Shell, path: str, operator: str) -> OpenFile:
    where = shell.absolute(path)
    try:
        if operator == "<":
            return shell.files.open_read(where)
        return shell.files.open_write(where, mode=0o644, append=operator == ">>")
    except PhoneFileError as exc:
        raise RedirectFaultError(
            f"{path}: {'open' if operator == '<' else 'create'}: {exc}"
        ) from exc


def _prepare(
    shell: Shell, statement: Statement, fds: dict[int, OpenFile]
) -> tuple[Shell, threading.Thread]:
    """Return a subshell that holds ``fds`` and a thread that runs the statement in it."""
    child = shell.fork(fds)
    child.owns_fds = True
    body = partial(child.live, lambda: child.alone(statement))
    return child, threading.Thread(target=body, daemon=True, name=f"phone-{child.process.pid}")


def start_job(shell: Shell, statement: Statement) -> int:
    """Run a statement in the background, its stdin /dev/null; return 0."""
    child, thread = _prepare(shell, statement, retained({**shell.fds, 0: null_file()}))
    shell.last_background = child.process.pid
    shell.jobs.append(child.process)
    thread.start()
    return 0


def run_pipe(shell: Shell, commands: Sequence[Statement]) -> int:
    """Run the stages of a pipeline at once, the last in this thread; return the pipeline's status."""
    incoming: OpenFile | None = None
    started: list[tuple[Shell, threading.Thread]] = []
    for place, command in enumerate(commands):
        fds = retained(shell.fds)
        if incoming is not None:
            _replace(fds, 0, incoming)
        if place < len(commands) - 1:
            incoming, outgoing = open_pipe()
            _replace(fds, 1, outgoing)
        started.append(_prepare(shell, command, fds))
    for _, thread in started[:-1]:
        thread.start()
    last, thread = started[-1]
    thread.run()
    for stage, _ in started[:-1]:
        shell.wait_for(stage.process)
    return shell.ended(last.process, last.status)


def _replace(fds: dict[int, OpenFile], descriptor: int, handle: OpenFile) -> None:
    old = fds.get(descriptor)
    if old is not None:
        old.release()
    fds[descriptor] = handle
