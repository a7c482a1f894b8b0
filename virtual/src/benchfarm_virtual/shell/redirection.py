"""Redirections: open files of a shell and of what it starts; jobs in the background."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from benchfarm_virtual.contract import PhoneFileError
from benchfarm_virtual.open_files import DeviceFile, OpenFile, ReadFile, open_pipe
from benchfarm_virtual.shell.syntax import Redirect, Statement

if TYPE_CHECKING:
    from benchfarm_virtual.shell.interpreter import Shell


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
