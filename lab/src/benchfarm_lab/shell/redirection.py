"""Redirections: open files of a shell and of what it starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from benchfarm_lab.contract import PhoneFileError
from benchfarm_lab.handles import BytesHandle, Handle, NullHandle, SourceHandle, WriterHandle
from benchfarm_lab.shell.syntax import Redirect

if TYPE_CHECKING:
    from benchfarm_lab.shell.interpreter import Shell

#: Where mksh on Android makes temporary files without a TMPDIR; the shell user may not write there.
_TEMPORARY: Final = "/data/local"
_STANDARD: Final[Mapping[str, int]] = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}


class RedirectFaultError(Exception):
    """A redirection failed; the command doesn't run."""


def retained(fds: Mapping[int, Handle]) -> dict[int, Handle]:
    """Return a copy of open files for another process, each held once more."""
    return {descriptor: handle.retain() for descriptor, handle in fds.items()}


def release_all(fds: Mapping[int, Handle]) -> None:
    """Let go of a process's open files."""
    for handle in fds.values():
        handle.release()


def redirected(shell: Shell, redirects: Sequence[Redirect]) -> tuple[dict[int, Handle], list[Handle]]:
    """Return the open files after redirections, and those that were opened for them (to release afterwards)."""
    fds = dict(shell.fds)
    opened: list[Handle] = []
    try:
        for redirect in redirects:
            _apply(shell, redirect, fds, opened)
    except (PhoneFileError, RedirectFaultError) as exc:
        for handle in opened:
            handle.release()
        raise RedirectFaultError(str(exc)) from exc
    return fds, opened


def _apply(shell: Shell, redirect: Redirect, fds: dict[int, Handle], opened: list[Handle]) -> None:
    operator, descriptor = redirect.operator, redirect.descriptor
    target = shell.expander.text(redirect.target)
    match operator:
        case "<<":
            _check_temporary(shell)
            handle: Handle = BytesHandle(target.encode("utf-8", "surrogateescape"))
        case "<<<":
            handle = BytesHandle((target + "\n").encode("utf-8", "surrogateescape"))
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
            if operator == "<&" or descriptor not in {None, 1}:
                raise RedirectFaultError(f"{target}: illegal file descriptor name")
            handle = _open(shell, target, "&>", fds)
            fds[2] = handle
        case "&>" | "&>>":
            handle = _open(shell, target, operator, fds)
            fds[2] = handle
        case _:
            handle = _open(shell, target, operator, fds)
    opened.append(handle)
    fds[(0 if operator.startswith("<") else 1) if descriptor is None else descriptor] = handle


def _check_temporary(shell: Shell) -> None:
    """Refuse a here-document where its temporary file can't be made, as mksh does.

    Source: mksh 59, ``maketemp``: in TMPDIR if that is a folder that may be written, else in the built-in one.
    """
    folder = shell.lookup("TMPDIR") or ""
    if not (folder.startswith("/") and shell.files.may(folder, 2, uid=shell.uid)):
        folder = _TEMPORARY
    if not shell.files.may(folder, 2, uid=shell.uid):
        raise RedirectFaultError(f"can't open temporary file {folder}/shXXXXXX.tmp: Permission denied")


def _open(shell: Shell, path: str, operator: str, fds: Mapping[int, Handle]) -> Handle:
    if path == "/dev/null":
        return NullHandle()
    known = _STANDARD.get(path)
    if known is None and path.startswith(("/dev/fd/", "/proc/self/fd/")) and path.rsplit("/", 1)[1].isdigit():
        known = int(path.rsplit("/", 1)[1])
    if known is not None:
        if known not in fds:
            raise RedirectFaultError(f"{path}: open: No such file or directory")
        return fds[known].retain()
    where = shell.absolute(path)
    try:
        if operator == "<":
            return SourceHandle(shell.files.open_read(where, uid=shell.uid))
        return WriterHandle(
            shell.files.open_write(
                where, mode=0o666 & ~shell.process.umask, append=operator in {">>", "&>>", "<>"}, uid=shell.uid
            )
        )
    except PhoneFileError as exc:
        raise RedirectFaultError(f"{path}: {'open' if operator == '<' else 'create'}: {exc}") from exc
