"""Running the parts of a script: simple commands, and what groups them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from benchfarm_virtual.launching import Launch, LaunchFaultError, launch
from benchfarm_virtual.shell.expansion import ExpansionFaultError
from benchfarm_virtual.shell.patterns import matches
from benchfarm_virtual.shell.redirection import RedirectFaultError, redirected, run_pipe
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
