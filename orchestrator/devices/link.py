"""The connection to one phone: every round trip to it, each with a deadline, and getting it back
when it was lost.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import stat
import struct
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from io import BufferedIOBase, BytesIO, FileIO
from pathlib import Path
from typing import Final, TypeVar

from orchestrator.clock import Clock, Deadline, SystemClock
from orchestrator.devices.adb_server import AdbServer
from orchestrator.devices.lease import HeldNote
from orchestrator.devices.probes import parse_serial
from orchestrator.devices.sockets import (
    Connection,
    quote,
    reason_of,
    run_shell,
    service_failure,
    sync_failure,
    writing_failure,
)
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
from orchestrator.files import OUTPUT_MOST_BYTES
from orchestrator.ports import ShellResult
from orchestrator.processes import turn
from orchestrator.records.case import Serial
from orchestrator.scripts import Answer, ask, call, mark

_T = TypeVar("_T")
#: Hears how a phone is away that is waited for, and for how many seconds more at the most.
OnAway = Callable[[str, float], None]
#: How long a phone may be away; of a longer wait, one try to get it back.
_AWAY_S: Final = 20.0
_RECONNECT_STEP_S: Final = 5.0
#: How a phone is away: its link ended, or it doesn't answer in time.
_IS_GONE: Final = "can't be reached"
_HANGS: Final = "doesn't answer"
_RETRY_PAUSE_S: Final = 0.1
_READ_ATTEMPTS: Final = 3
_READ_TIMEOUT_S: Final = 120.0
#: What read_files.sh notes of a file that is larger than it may print.
TOO_LARGE: Final = "+"
#: Begins the mark by which a command is found on the phone, as a comment in front of it.
_MARK: Final = "benchfarm:"
#: How long a phone may take for ending a command that ran too long; one that hangs as a whole
#: doesn't answer.
_END_S: Final = 2.0
#: The head of a frame of adb's sync service, and the largest payload that every adbd takes.
_FRAME: Final = struct.Struct("<4sI")
_FRAME_BYTES: Final = 1 << 16
#: How much of a file is sent at once: fewer calls than a frame each, and it stays in the cache.
_PORTION_BYTES: Final = 8 * (_FRAME_BYTES + _FRAME.size)
#: A link slower than this is of no use any more.
_SLOWEST_BYTES_PER_S: Final = 200_000.0


def checksum_of(stream: BufferedIOBase, *, like: str) -> str:
    """Return the checksum of what is read: sha256, or md5 where ``like`` has the length of one."""
    kind = "sha256" if len(like) == 64 else partial(hashlib.md5, usedforsecurity=False)
    return hashlib.file_digest(stream, kind).hexdigest()


def no_checksum(serial: str) -> DeviceCommandError:
    """Return the error for a phone that can compute no checksum."""
    return DeviceCommandError(
        "the phone has neither sha256sum nor md5sum: nothing that is sent or read can be compared",
        serial=serial,
    )


def push_timeout_s(source: Path) -> float:
    """Return how long a push of this file may take, on the slowest link that is of use."""
    return 30.0 + source.stat().st_size / _SLOWEST_BYTES_PER_S


class PhoneLink:
    """A phone as a transport of an adb server."""

    def __init__(
        self,
        server: AdbServer,
        transport: str,
        *,
        clock: Clock | None = None,
    ) -> None:
        """Name the phone by the server's word for it (USB serial or host:port); nothing is sent
        yet.
        """
        self.server = server
        self.transport = transport
        self.serial = Serial(transport)
        self.clock = clock or SystemClock()
        #: Who uses the phone: renewed in front of what is sent anyway.
        self.note = HeldNote(self.clock)
        #: How many files may be on their way.
        self.slots = PushSlots()

    def open(self, *services: str, deadline: Deadline, what: str) -> Connection:
        """Connect to the phone and open services on it; the connection is to be closed by the
        caller.
        """
        way = f"host:transport:{self.transport}"
        return self.server.open(way, *services, deadline=deadline, what=what, serial=self.serial)

    def shell(
        self,
        command: str,
        *,
        timeout_s: float = 30.0,
        cancelled: threading.Event | None = None,
        what: str = "",
        most_bytes: int = OUTPUT_MOST_BYTES,
    ) -> ShellResult:
        """Run a command line; see run_shell for what is kept of its output, and for the errors."""
        if "\0" in command:
            raise UsageError("a command line can't hold a NUL")
        deadline = Deadline(timeout_s, self.clock)
        what = what or f"shell {_short(command)}"
        command, renews = self.note.before(command)
        # What may be cancelled waits for a run, which outlives it.
        mark = f"{_MARK}{secrets.token_hex(6)}" if cancelled is None else ""
        command = f"#{mark}\n{command}" if mark else command
        with self.open(deadline=deadline, what=what) as connection:
            connection.cancelled = cancelled
            try:
                result = run_shell(connection, command, most_bytes=most_bytes)
            except DeviceTimeoutError:
                if mark:
                    self._end(mark)
                raise
        if renews:
            self.note.after(result, serial=self.serial)
        return result

    def _end(self, mark: str) -> None:
        """End a command that runs past its deadline, with all that it started.

        At a connection's end adbd tells the shell alone, not what that waits for; but each shell of
        its is the leader of a group. On a phone that doesn't answer at all, everything stays.
        """
        # The pattern isn't what it finds: neither this shell nor its grep is ended.
        script = call("end_marked", f"{mark[:-1]}[{mark[-1]}]")
        deadline = Deadline(_END_S, self.clock)
        with (
            contextlib.suppress(DeviceError),
            self.open(deadline=deadline, what="ending it") as connection,
        ):
            run_shell(connection, script)

    def must(self, command: str, *, timeout_s: float = 30.0, what: str) -> str:
        """Run a command that has to succeed and return its output.

        Raises DeviceCommandError with its reason.
        """
        result = self.shell(command, timeout_s=timeout_s, what=what)
        self._check(result, what)
        return result.text

    def _check(self, result: ShellResult | Answer, what: str) -> None:
        if result.exit_code != 0:
            reason = reason_of(result)
            raise (
                service_failure(reason, serial=self.serial, what=what)
                or writing_failure(reason, serial=self.serial, what=what)
                or DeviceCommandError(
                    f"{what} failed with exit code {result.exit_code}: {reason}", serial=self.serial
                )
            )

    def ask(
        self,
        scripts: Mapping[str, str],
        *,
        timeout_s: float = 30.0,
        cancelled: threading.Event | None = None,
        what: str,
        must: bool = False,
    ) -> Answer:
        """Run scripts that may be run twice and return their whole answer; see `scripts.ask`.

        ``must``: raises DeviceCommandError, with the reason, when they end with another exit code
        than 0.
        """
        shell = partial(self.shell, timeout_s=timeout_s, cancelled=cancelled, what=what)
        answer = ask(shell, scripts, serial=self.serial)
        if must:
            self._check(answer, what)
        return answer

    def again(
        self,
        operation: Callable[[], _T],
        *,
        through_s: float = 0.0,
        cancelled: threading.Event | None = None,
        on_away: OnAway = lambda what, left_s: None,
    ) -> _T:
        """Do something that may be done twice; once more when the link was lost and the phone could
        be got back.

        ``through_s``: as often as the link is lost, or the phone doesn't answer in time, until so
        many seconds after the first time. ``on_away`` hears of a phone that doesn't come back at
        once. Raises InterruptedByUserError when cancelled meanwhile.
        """
        last: Deadline | None = None
        while True:
            try:
                return operation()
            except (LinkLostError, DeviceTimeoutError, AdbUnavailableError) as error:
                has_hung = isinstance(error, DeviceTimeoutError)
                is_second = last is not None
                last = last or Deadline(through_s or _AWAY_S, self.clock)
                if last.expired if through_s else (has_hung or is_second):
                    raise
            if not through_s:
                self.reconnect(last)
                continue
            away = partial(on_away, _HANGS if has_hung else _IS_GONE)
            # What hangs was waited for already; a link may break again and again.
            if has_hung or last.elapsed_s >= _RECONNECT_STEP_S:
                away(last.remaining_s)
            self._await_return(last, fresh=has_hung, cancelled=cancelled, on_away=away)

    def _await_return(
        self,
        last: Deadline,
        *,
        fresh: bool,
        cancelled: threading.Event | None,
        on_away: Callable[[float], None],
    ) -> None:
        """Try to get the phone back, again and again until a deadline; ``on_away`` hears of each try
        in vain and of the seconds that are left.
        """
        while True:
            if self.clock.wait(_RETRY_PAUSE_S, cancelled):
                raise InterruptedByUserError
            step = Deadline(min(_RECONNECT_STEP_S, last.remaining_s), self.clock)
            try:
                self.reconnect(step, fresh=fresh)
            except (LinkLostError, DeviceTimeoutError, AdbUnavailableError) as error:
                fresh = isinstance(error, DeviceTimeoutError)
                if last.expired:
                    raise
                on_away(last.remaining_s)
            else:
                return

    def reconnect(self, deadline: Deadline, *, fresh: bool = False) -> None:
        """Get the phone back, ``fresh``: by a new connection even if the server takes the old one
        for sound.

        Raises DeviceTimeoutError, LinkLostError, and DeviceChangedError when another phone answers.
        """
        self.server.reconnect(self.transport, deadline, fresh=fresh)
        if self.serial == self.transport:
            return
        answer = self.ask_serial(timeout_s=max(1.0, deadline.remaining_s))
        if answer and answer != self.serial:
            raise DeviceChangedError(
                f"{self.transport} is now another phone, {answer}", serial=self.serial
            )

    def ask_serial(self, *, timeout_s: float) -> str:
        """Return the phone's own serial number, empty where it has none."""
        scripts, what = {"serial": "getprop ro.serialno"}, "asking who it is"
        return parse_serial(self.ask(scripts, timeout_s=timeout_s, what=what).text("serial"))

    def push(
        self,
        source: Path,
        path: str,
        *,
        mode: int = 0o644,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Send a file, with its modification time; ``progress`` hears of the bytes sent so far.

        Waits while four files are on their way; that time isn't counted. The phone says nothing
        about what arrived: compare checksums afterwards. Raises DeviceStorageError, TransferError
        (with the phone's reason), LinkLostError, DeviceTimeoutError, InterruptedByUserError (the
        phone drops what came; a draft that stays is removed by the next push).
        """
        with (
            self.slots.pushing(),
            source.open("rb", buffering=0) as file,
            self.open(
                deadline=Deadline(push_timeout_s(source), self.clock), what=f"push of {source.name}"
            ) as link,
        ):
            link.cancelled = self.slots.cancelled
            link.request("sync:")
            head = f"{path},{stat.S_IFREG | mode}".encode("utf-8", "surrogateescape")
            link.send(_FRAME.pack(b"SEND", len(head)) + head)
            portion = memoryview(bytearray(_PORTION_BYTES))
            try:
                while frames := _frames_from(file, portion):
                    link.send(frames)
                    if progress is not None:
                        progress(file.tell())
                    if link.readable(0):
                        break  # the phone speaks before the end only to say FAIL
                else:
                    link.send(_FRAME.pack(b"DONE", int(source.stat().st_mtime) & 0xFFFFFFFF))
            except LinkLostError:
                # A phone that fails closes the stream; its reason may still be there to read.
                link.deadline = Deadline(min(2.0, link.deadline.remaining_s))
                with contextlib.suppress(LinkLostError, DeviceTimeoutError):
                    self._expect_okay(link, path)
                raise
            self._expect_okay(link, path)

    def _expect_okay(self, link: Connection, path: str) -> None:
        """Read the file service's last answer; raises what its FAIL means."""
        kind, size = _FRAME.unpack(link.read_exact(_FRAME.size))
        if kind == b"FAIL":
            raise sync_failure(
                link.read_exact(size).decode("utf-8", "replace"), serial=self.serial, path=path
            )
        if kind != b"OKAY":
            raise TransferError(
                f"{path}: the phone's file service answered {kind!r}", serial=self.serial
            )

    def read_files(
        self,
        paths: Sequence[str],
        *,
        limit_bytes: int,
        package: str = "",
    ) -> list[bytes | None]:
        """Return files' bytes (None: no such file), whole and compared by checksum, in one round
        trip.

        Raises TransferError when size or checksum differ, DeviceCommandError when one has more than
        ``limit_bytes``.
        """
        names, script = ", ".join(paths), call("read_files", mark(), limit_bytes, *paths)
        command = f"run-as {quote(package)} sh -c {quote(script)}" if package else script
        # All that may come, beside what the shell says of itself.
        shell = partial(
            self.shell,
            timeout_s=_READ_TIMEOUT_S,
            what=f"reading {names}",
            most_bytes=2 * (limit_bytes * len(paths) + OUTPUT_MOST_BYTES),
        )
        for _ in range(_READ_ATTEMPTS):
            answer = ask(shell, {"read": command}, serial=self.serial)
            if (files := files_of(answer, len(paths))) is not None:
                return files
            said = [
                line
                for line in answer.stderr.decode("utf-8", "replace").splitlines()
                if line.startswith("run-as:")
            ]
            if package and said:
                failure = service_failure(
                    " ".join(said), serial=self.serial, what=f"reading {names}"
                )
                raise failure or DeviceCommandError(" ".join(said), serial=self.serial)
            if any(re.fullmatch(r"file\.\d+ \d+ ?", head) for head in answer.sections):
                raise no_checksum(self.serial)
            if any(head.endswith(f" {TOO_LARGE}") for head in answer.sections):
                raise DeviceCommandError(
                    f"{names}: more than {limit_bytes} bytes",
                    serial=self.serial,
                    hint="let the program print less",
                )
        raise TransferError(
            f"{names}: size or checksum differ from the phone's ({'; '.join(answer.sections)[-200:]})",
            serial=self.serial,
        )


def _frames_from(file: FileIO, portion: memoryview) -> memoryview:
    """Fill a portion with DATA frames of what follows in the file; empty at its end."""
    frame = _FRAME.size + _FRAME_BYTES
    starts = range(_FRAME.size, len(portion), frame)
    left = os.readv(file.fileno(), [portion[start : start + _FRAME_BYTES] for start in starts])
    end = 0
    while left:
        count = min(left, _FRAME_BYTES)
        _FRAME.pack_into(portion, end, b"DATA", count)
        end += _FRAME.size + count
        left -= count
    return portion[:end]


def files_of(answer: Answer, count: int) -> list[bytes | None] | None:
    """Return the files that read_files.sh printed.

    None when anything doesn't agree, or a file was too large.
    """
    files: list[bytes | None] = []
    for head, data in answer.sections.items():
        name, size, checksum = (*head.split(), "", "", "")[:3]
        if name != f"file.{len(files) + 1}":
            continue
        if size != "-" and (
            size != str(len(data)) or checksum_of(BytesIO(data), like=checksum) != checksum
        ):
            return None
        files.append(None if size == "-" else data)
    return files if len(files) == count else None


def _short(command: str) -> str:
    line = " ".join(command.split())
    return repr(line if len(line) <= 60 else line[:57] + "...")


#: Files on their way, of all phones of this process: a farm's jobs have a workspace each.
_PUSHES: Final = threading.BoundedSemaphore(4)


class PushSlots:
    """The slots that all phones of a process share."""

    def __init__(self, cancelled: threading.Event | None = None) -> None:
        """``cancelled`` ends all waiting, and what is on its way."""
        self.cancelled = cancelled or threading.Event()

    @contextlib.contextmanager
    def pushing(self) -> Generator[None]:
        """Send one file while the context lasts.

        Raises InterruptedByUserError when cancelled while waiting.
        """
        with turn(_PUSHES, self.cancelled):
            yield
