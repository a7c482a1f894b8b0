"""Running the parts of a script: simple commands, and what groups them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from benchfarm_virtual.contract import PhoneFileError
from benchfarm_virtual.launching import Launch, LaunchFaultError, launch
from benchfarm_virtual.open_files import DeviceFile, OpenFile, ReadFile, open_pipe
from benchfarm_virtual.shell.expansion import ExpansionFaultError, matches
from benchfarm_virtual.shell.syntax import (
    AndOr,
    Case,
    ExitError,
    For,
    Function,
    Group,
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

#: From so many rounds on a loop keeps one of the phone's cores busy; each takes so long then, in
#: real seconds.
_SPINS: Final = 500
_SPIN_PAUSE_S: Final = 0.004


def execute(shell: Shell, statement: Statement) -> int:
    """Run one statement and return its status."""
    return _KINDS[type(statement)](shell, statement)


def _and_or(shell: Shell, statement: AndOr) -> int:
    status = shell.status = execute(shell, statement.left)
    if (status == 0) == (statement.operator == "&&"):
        return execute(shell, statement.right)
    return status


def _pipeline(shell: Shell, pipeline: Pipeline) -> int:
    if len(pipeline.commands) > 1:
        status = run_pipe(shell, pipeline.commands)
    else:
        status = execute(shell, pipeline.commands[0])
    return (0 if status else 1) if pipeline.negated else status


def _redirected(shell: Shell, statement: Redirected) -> int:
    return with_redirects(shell, statement.redirects, lambda: execute(shell, statement.body))


def _group(shell: Shell, statement: Group) -> int:
    return shell.block(statement.body)


def _if(shell: Shell, statement: If) -> int:
    for condition, body in statement.branches:
        if shell.block(condition) == 0:
            return shell.block(body)
    shell.status = 0
    return shell.block(statement.otherwise) if statement.otherwise is not None else 0


def _loop(shell: Shell, statement: Loop) -> int:
    shell.loops += 1
    try:
        return _rounds(shell, statement)
    finally:
        shell.loops -= 1


def _rounds(shell: Shell, statement: Loop) -> int:
    status, rounds, spinning = 0, 0, None
    try:
        while True:
            try:
                if (shell.block(statement.condition) == 0) == statement.until:
                    return status
                status = shell.block(statement.body)
            except LeaveLoopError as exc:
                if not _goes_on(exc):
                    return 0
                status = 0
            rounds += 1
            if rounds == _SPINS:
                spinning = shell.system.hardware.begin_spin(shell.process.pid)
            if rounds >= _SPINS:
                # The phone's core is busy; this computer's needn't be.
                shell.process.killed.wait(_SPIN_PAUSE_S)
    finally:
        if spinning is not None:
            shell.system.hardware.end_work(spinning)


def _for(shell: Shell, statement: For) -> int:
    values = (
        shell.positional if statement.words is None else shell.expander.arguments(statement.words)
    )
    status = 0
    for value in list(values):
        shell.assign(statement.name, value)
        shell.loops += 1
        try:
            status = shell.block(statement.body)
        except LeaveLoopError as exc:
            if not _goes_on(exc):
                return 0
            status = 0
        finally:
            shell.loops -= 1
    return status


def _goes_on(leaving: LeaveLoopError) -> bool:
    """Say whether a loop that is left continues with its next round; hand what outer loops are to
    do on to them.
    """
    if leaving.levels > 1:
        raise LeaveLoopError(leaving.levels - 1, again=leaving.again) from None
    return leaving.again


def _case(shell: Shell, statement: Case) -> int:
    value = shell.expander.text(statement.value)
    for patterns, body in statement.items:
        if any(matches(shell.expander.pieces(pattern), value) for pattern in patterns):
            shell.status = 0
            return shell.block(body)
    return 0


def _subshell(shell: Shell, statement: Subshell) -> int:
    child = shell.fork(shell.fds)
    status = 1
    try:
        status = child.run_as_subshell(lambda: child.block(statement.body))
    finally:
        child.close()
        shell.system.processes.end(child.process, status)
    return shell.ended(child.process, status)


def _function(shell: Shell, statement: Function) -> int:
    shell.functions[statement.name] = statement.body
    return 0


_MAX_CALLS: Final = 120


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
    if replace and not shell.traps:
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
        fds, opened = redirected(shell, redirects)
    except RedirectFaultError as exc:
        shell.complain(str(exc))
        if special:
            shell.complain("redirection failure")
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
        process.ignored |= {signal for signal, script in shell.traps.items() if not script}
    request = Launch(
        system=shell.system,
        process=process,
        argv=arguments,
        env={**shell.variables.environment(), **assigned},
        cwd=shell.cwd,
        fds=shell.fds,
        surrender=shell.close if replace else None,
    )
    status = 1
    try:
        status = launch(request)
    except LaunchFaultError as exc:
        shell.complain(str(exc))
        status = exc.code
    finally:
        if not replace:
            processes.end(process, status)
    return status if replace else shell.ended(process, status)


# Assignments


def _assigned(shell: Shell, command: Simple) -> dict[str, str]:
    return {name: shell.expander.text(word) for name, word in command.assignments}


def _assign(shell: Shell, command: Simple) -> int:
    """Do what a command without a name does."""
    # ``$?`` in a value is still that of the command before; a substitution in one is what the whole
    # ends with.
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


# What a name stands for


def _exec(shell: Shell, command: Simple, arguments: list[str]) -> int:
    for name, value in _assigned(shell, command).items():
        shell.assign(name, value)
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
    if shell.calls >= _MAX_CALLS:
        raise ExpansionFaultError(f"{name}: functions are nested too deeply")
    before, shell.positional = shell.positional, arguments[1:]
    shell.calls += 1
    try:
        return shell.execute(shell.functions[name])
    finally:
        shell.calls -= 1
        shell.positional = before


_KINDS: Final[Mapping[type, Callable[[Shell, Any], int]]] = {
    Simple: run_simple,
    AndOr: _and_or,
    Pipeline: _pipeline,
    Redirected: _redirected,
    Group: _group,
    If: _if,
    Loop: _loop,
    For: _for,
    Case: _case,
    Subshell: _subshell,
    Function: _function,
}


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
    shell: Shell, redirects: Sequence[Redirect]
) -> tuple[dict[int, OpenFile], list[OpenFile]]:
    """Return the open files after redirections, and those that were opened for them (to release
    afterwards).
    """
    fds = dict(shell.fds)
    opened: list[OpenFile] = []
    try:
        for redirect in redirects:
            _apply(shell, redirect, fds, opened)
    except (PhoneFileError, RedirectFaultError) as exc:
        for handle in opened:
            handle.release()
        raise RedirectFaultError(str(exc)) from exc
    return fds, opened


def _apply(
    shell: Shell, redirect: Redirect, fds: dict[int, OpenFile], opened: list[OpenFile]
) -> None:
    operator, descriptor = redirect.operator, redirect.descriptor
    target = shell.expander.text(redirect.target)
    match operator:
        case "<<":
            handle: OpenFile = ReadFile.of(target.encode("utf-8", "surrogateescape"))
        case "<&" | ">&":
            default = 0 if operator == "<&" else 1
            if target == "-":
                fds.pop(default if descriptor is None else descriptor, None)
                return
            if target.isdigit():
                source = fds.get(int(target))
                if source is None:
                    raise RedirectFaultError(f"{operator}{target} : bad file descriptor")
                fds[default if descriptor is None else descriptor] = source
                return
            raise RedirectFaultError(f"{target}: illegal file descriptor name")
        case _:
            handle = _open(shell, target, operator)
    opened.append(handle)
    fds[(0 if operator.startswith("<") else 1) if descriptor is None else descriptor] = handle


def _open(shell: Shell, path: str, operator: str) -> OpenFile:
    if path == "/dev/null":
        return DeviceFile()
    where = shell.absolute(path)
    try:
        if operator == "<":
            return shell.files.open_read(where, uid=shell.uid)
        return shell.files.open_write(
            where, mode=0o666 & ~shell.process.umask, append=operator == ">>", uid=shell.uid
        )
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

    def body() -> None:
        status = 1
        try:
            status = child.run_as_subshell(lambda: child.alone(statement))
        finally:
            child.close()
            shell.system.processes.end(child.process, status)

    return child, threading.Thread(target=body, daemon=True, name=f"phone-{child.process.pid}")


def start_job(shell: Shell, statement: Statement) -> int:
    """Run a statement in the background, its stdin /dev/null; return 0."""
    child, thread = _prepare(shell, statement, retained({**shell.fds, 0: DeviceFile()}))
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
