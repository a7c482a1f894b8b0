"""Statements that run beside the shell: background jobs and the stages of a pipeline, each a process in a thread."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from benchfarm_lab.handles import Handle, NullHandle
from benchfarm_lab.pipes import open_pipe
from benchfarm_lab.processes import TableFullError
from benchfarm_lab.shell.redirection import release_all, retained
from benchfarm_lab.shell.syntax import Statement

if TYPE_CHECKING:
    from benchfarm_lab.shell.interpreter import Shell


def _prepare(shell: Shell, statement: Statement, fds: dict[int, Handle]) -> tuple[Shell, threading.Thread]:
    """Return a subshell that holds ``fds`` and a thread that runs the statement in it.

    Raises TableFullError when there is no room for its process; ``fds`` are let go of then.
    """
    try:
        child = shell.fork(fds)
    except TableFullError:
        release_all(fds)
        raise
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
    child, thread = _prepare(shell, statement, retained({**shell.fds, 0: NullHandle()}))
    shell.last_background = child.process.pid
    shell.jobs.append(child.process)
    thread.start()
    return 0


def run_pipe(shell: Shell, commands: Sequence[Statement]) -> int:
    """Run the stages of a pipeline at once, the last in this thread; return the pipeline's status."""
    incoming: Handle | None = None
    started: list[tuple[Shell, threading.Thread]] = []
    for place, command in enumerate(commands):
        fds = retained(shell.fds)
        if incoming is not None:
            _replace(fds, 0, incoming)
        if place < len(commands) - 1:
            incoming, outgoing = open_pipe()
            _replace(fds, 1, outgoing)
        try:
            started.append(_prepare(shell, command, fds))
        except TableFullError:
            if incoming is not None and place < len(commands) - 1:
                incoming.release()
            for stage, _ in started:
                stage.close()
                shell.system.processes.end(stage.process, 1)
            raise
    for _, thread in started[:-1]:
        thread.start()
    last, thread = started[-1]
    thread.run()
    for stage, _ in started[:-1]:
        shell.wait_for(stage.process)
    return shell.ended(last.process, last.status)


def _replace(fds: dict[int, Handle], descriptor: int, handle: Handle) -> None:
    old = fds.get(descriptor)
    if old is not None:
        old.release()
    fds[descriptor] = handle
