"""Simple commands: assignments, redirections, and the builtin, function or program that a name
stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

from benchfarm_virtual.launching import Launch, LaunchFaultError, launch
from benchfarm_virtual.shell.expansion import ExpansionFaultError
from benchfarm_virtual.shell.flow import ExitError
from benchfarm_virtual.shell.redirection import RedirectFaultError, redirected
from benchfarm_virtual.shell.syntax import Redirect, Simple

if TYPE_CHECKING:
    from benchfarm_virtual.shell.builtins import Builtin
    from benchfarm_virtual.shell.interpreter import Shell

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
