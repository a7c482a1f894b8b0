"""The way to one phone: every round trip to it, each with a deadline, and getting it back when the way was lost."""

from __future__ import annotations

import contextlib
import hashlib
import io
import secrets
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from orchestrator.clock import Clock, Deadline, SystemClock
from orchestrator.devices import sync
from orchestrator.devices.connection import Connection, writing_failure
from orchestrator.devices.heartbeat import HeldNote
from orchestrator.devices.probes import parse_serial
from orchestrator.devices.server import AdbServer
from orchestrator.devices.shell import quote, reason_of, run_marked_shell, run_shell
from orchestrator.devices.traffic import Lane
from orchestrator.errors import (
    AdbUnavailableError,
    DeviceChangedError,
    DeviceCommandError,
    DeviceError,
    DeviceTimeoutError,
    InterruptedByUserError,
    LinkLostError,
    TransferError,
    UsageError,
)
from orchestrator.ports import ShellResult
from orchestrator.scripts import call

_T = TypeVar("_T")
_RECONNECT_TIMEOUT_S: Final = 20.0
_READ_ATTEMPTS: Final = 3
_READ_TIMEOUT_S: Final = 120.0
#: Begins what a command is found by on the phone, as a comment in front of it.
_MARK: Final = "benchfarm:"
#: How long a phone may take for ending a command that ran too long; one that hangs as a whole doesn't answer.
_END_S: Final = 2.0
#: Prints sha256 (64 digits), or md5 (32) on phones that have no sha256sum.
_HASH: Final = "{ sha256sum <%s || md5sum <%s; } 2>/dev/null"


def hash_command(path: str) -> str:
    """Return the command that prints the checksum of a file, whatever is in its name."""
    return _HASH % (quote(path), quote(path))


def hash_of(data: bytes, *, like: str) -> str:
    """Return the checksum of ``data`` with the algorithm that ``like``'s length tells."""
    return hashlib.sha256(data).hexdigest() if len(like) == 64 else hashlib.md5(data, usedforsecurity=False).hexdigest()


def expected_checksum(source: Path, sha256: str, *, like: str) -> str:
    """Return the checksum that a phone should tell of a file: its sha256, or its md5 where the phone knows no other."""
    if len(like) == 64:
        return sha256
    with source.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


class PhoneLink:
    """A phone as a transport of an adb server."""

    def __init__(
        self,
        server: AdbServer,
        transport: str,
        *,
        serial: str = "",
        features: frozenset[str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Name the phone by the server's word for it (USB serial or host:port); nothing is sent yet."""
        self.server = server
        self.transport = transport
        self.serial = serial or transport
        self.clock = clock or SystemClock()
        #: Who uses the phone: renewed in front of what is sent anyway.
        self.note = HeldNote(self.clock)
        #: Which other phones' files and measurements are to be minded.
        self.lane = Lane()
        self._features = features
        #: What doesn't need a round trip of its own: done in front of the next command that isn't a measurement's.
        self._chores: list[str] = []

    @property
    def features(self) -> frozenset[str]:
        """What the phone's adbd can do."""
        if self._features is None:
            self._features = self.server.features(self.transport)
        return self._features

    @property
    def is_legacy(self) -> bool:
        """Whether the phone has no shell protocol v2 (Android 6 and older)."""
        return "shell_v2" not in self.features

    def open(self, service: str, deadline: Deadline, *, what: str) -> Connection:
        """Open a service on the phone; the connection is to be closed by the caller."""
        connection = self.server.open_transport(self.transport, deadline, what=what, serial=self.serial)
        try:
            connection.request(service)
        except BaseException:
            connection.close()
            raise
        return connection

    def shell(
        self,
        command: str,
        *,
        timeout_s: float = 30.0,
        stdin: bytes = b"",
        limit_bytes: int | None = None,
        cancelled: threading.Event | None = None,
        what: str = "",
        with_chores: bool = True,
    ) -> ShellResult:
        """Run a command line; see run_shell for the errors. Old phones are served in their own way."""
        if "\0" in command:
            raise UsageError("a command line can't hold a NUL")
        if cancelled is not None and cancelled.is_set():
            # What a phone has once been sent it does, whether or not anybody waits for it.
            raise InterruptedByUserError
        deadline = Deadline(timeout_s, self.clock)
        what = what or f"shell {_short(command)}"
        is_legacy = self.is_legacy
        chores = tuple(self._chores) if with_chores else ()
        command, renews = self.note.before("\n".join((*chores, command)))
        # What may be cancelled waits for a run, which outlives it.
        mark = f"{_MARK}{secrets.token_hex(6)}" if cancelled is None else ""
        command = f"#{mark}\n{command}" if mark else command
        with self.server.open_transport(self.transport, deadline, what=what, serial=self.serial) as connection:
            try:
                if is_legacy:
                    result = run_marked_shell(connection, command, stdin=stdin)
                else:
                    result = run_shell(connection, command, stdin=stdin, limit_bytes=limit_bytes, cancelled=cancelled)
            except DeviceTimeoutError:
                if mark:
                    self._end(mark)
                raise
        if renews:
            self.note.after(result, serial=self.serial)
        for chore in chores:
            with contextlib.suppress(ValueError):
                self._chores.remove(chore)
        return result

    def _end(self, mark: str) -> None:
        """End a command that runs past its deadline, with all that it started.

        At a connection's end adbd tells the shell alone, not what that waits for; but each shell of its is the leader
        of a group. On a phone that doesn't answer at all, everything stays.
        """
        # The pattern isn't what it finds: neither this shell nor its grep is ended.
        pattern = f"{mark[:-1]}[{mark[-1]}]"
        script = call("end_marked", pattern)
        deadline = Deadline(_END_S, self.clock)
        with (
            contextlib.suppress(DeviceError, AdbUnavailableError),
            self.server.open_transport(self.transport, deadline, what="ending it", serial=self.serial) as connection,
        ):
            run_marked_shell(connection, script) if self.is_legacy else run_shell(connection, script)

    def leave(self, chore: str) -> None:
        """Have something done that may be done twice, late or never: a command that prints nothing."""
        self._chores.append(chore)

    def finish_chores(self, *, timeout_s: float) -> None:
        """Do what was left; raises DeviceError kinds."""
        if self._chores:
            self.shell(":", timeout_s=timeout_s, what="tidying up")

    def must(self, command: str, *, timeout_s: float = 30.0, what: str) -> str:
        """Run a command that has to succeed and return its output; raises DeviceCommandError with its reason."""
        result = self.shell(command, timeout_s=timeout_s, what=what)
        if result.exit_code != 0:
            reason = reason_of(result)
            raise writing_failure(reason, serial=self.serial, what=what) or DeviceCommandError(
                f"{what} failed with exit code {result.exit_code}: {reason}", serial=self.serial
            )
        return result.text

    def again(self, operation: Callable[[], _T]) -> _T:
        """Do something that may be done twice; once more when the link was lost and the phone could be got back."""
        try:
            return operation()
        except (LinkLostError, AdbUnavailableError):
            self.reconnect(Deadline(_RECONNECT_TIMEOUT_S, self.clock))
            return operation()

    def reconnect(self, deadline: Deadline, *, fresh: bool = False) -> None:
        """Get the phone back, ``fresh``: by a new connection even if the server takes the old one for sound.

        Raises DeviceTimeoutError, LinkLostError, and DeviceChangedError when another phone answers.
        """
        self.server.reconnect(self.transport, deadline, fresh=fresh)
        if self.serial == self.transport:
            return
        answer = parse_serial(self.shell("getprop ro.serialno", timeout_s=max(1.0, deadline.remaining_s)).text)
        if answer and answer != self.serial:
            raise DeviceChangedError(f"{self.transport} is now another phone, {answer}", serial=self.serial)

    def push(self, source: Path, path: str, *, mode: int = 0o644, progress: sync.Progress | None = None) -> int:
        """Send a file and return its size; compare its checksum afterwards. The source's time goes with it.

        Waits for measurements on the phone's hub, and while enough files are on their way; that time isn't counted.
        """
        with self.lane.pushing():
            deadline = Deadline(sync.push_timeout_s(source), self.clock)
            with self.open("sync:", deadline, what=f"push of {source.name}") as connection, source.open("rb") as file:
                mtime_s = int(source.stat().st_mtime)
                return sync.push(connection, file, path, mode=mode, mtime_s=mtime_s, progress=progress)

    def read_files(
        self, paths: Sequence[str], *, limit_bytes: int, package: str = "", timeout_s: float = _READ_TIMEOUT_S
    ) -> list[bytes | None]:
        """Return files' bytes (None: no such file), whole and compared by checksum, in one round trip.

        Raises TransferError when size or checksum differ, DeviceCommandError when there is more than ``limit_bytes``.
        """
        if self.is_legacy and not package:
            return [self._pull(path, limit_bytes=limit_bytes, timeout_s=timeout_s) for path in paths]
        script = call("read_files", *paths)
        command = f"run-as {quote(package)} sh -c {quote(script)}" if package else script
        notes: list[str] = []
        for _ in range(_READ_ATTEMPTS):
            try:
                result = self.shell(
                    command, timeout_s=timeout_s, limit_bytes=limit_bytes, what=f"reading {', '.join(paths)}"
                )
            except OverflowError as error:
                raise DeviceCommandError(
                    f"{', '.join(paths)}: {error}", serial=self.serial, hint="let the program print less"
                ) from error
            notes = result.stderr.decode("utf-8", "replace").splitlines()
            if package and any(note.startswith("run-as:") for note in notes):
                raise DeviceCommandError(" ".join(notes), serial=self.serial, hint="is the app a debuggable build?")
            files = _cut(result.stdout, notes, len(paths))
            if files is not None:
                return files
        raise TransferError(
            f"{', '.join(paths)}: size or checksum differ from the phone's ({'; '.join(notes)[-200:]})",
            serial=self.serial,
        )

    def _pull(self, path: str, *, limit_bytes: int, timeout_s: float) -> bytes | None:
        sink = io.BytesIO()
        with self.open("sync:", Deadline(timeout_s, self.clock), what=f"pull of {path}") as connection:
            status = sync.stat(connection, path)
            if status is None or not status.is_file:
                return None
            try:
                size = sync.pull(connection, path, sink, limit_bytes=limit_bytes)
            except FileNotFoundError:
                return None
            except OverflowError as error:
                raise DeviceCommandError(str(error), serial=self.serial) from error
        told = self.shell(hash_command(path), what=f"checksum of {path}").text.split()
        if size != status.size_bytes or (told and told[0] != hash_of(sink.getvalue(), like=told[0])):
            raise TransferError(f"{path}: size or checksum differ from the phone's", serial=self.serial)
        return sink.getvalue()


def _cut(output: bytes, notes: Sequence[str], count: int) -> list[bytes | None] | None:
    """Cut what came into files by the sizes in the notes; None when anything doesn't agree."""
    notes = [note for note in notes if note.strip()]
    if len(notes) != count:
        return None
    files: list[bytes | None] = []
    start = 0
    for note in notes:
        fields = note.split()
        if fields == ["-"]:
            files.append(None)
            continue
        if len(fields) < 2 or not fields[0].isdigit():
            return None
        data = output[start : start + int(fields[0])]
        start += int(fields[0])
        if len(data) != int(fields[0]) or hash_of(data, like=fields[1]) != fields[1]:
            return None
        files.append(data)
    return files if start == len(output) else None


def _short(command: str) -> str:
    line = " ".join(command.split())
    return repr(line if len(line) <= 60 else line[:57] + "...")
