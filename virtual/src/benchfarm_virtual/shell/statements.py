"""What each kind of statement does in a shell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from benchfarm_virtual.shell.flow import LeaveLoopError
from benchfarm_virtual.shell.patterns import matches
from benchfarm_virtual.shell.redirection import run_pipe
from benchfarm_virtual.shell.simple_commands import run_simple, with_redirects
from benchfarm_virtual.shell.syntax import (
    AndOr,
    Case,
    For,
    Function,
    Group,
    If,
    Loop,
    Pipeline,
    Redirected,
    Simple,
    Statement,
    Subshell,
)

if TYPE_CHECKING:
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
