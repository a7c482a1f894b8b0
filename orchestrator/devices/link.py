"""The link to one phone: round trips, each with a deadline, and reconnecting after a loss."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import stat
import struct
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from io import BufferedIOBase, BytesIO, FileIO
from pathlib import Path
from shlex import quote
from typing import Final, TypeVar

from orchestrator.clock import Clock, Deadline, SystemClock
from orchestrator.devices.adb_server import AdbServer
from orchestrator.devices.lease import ClaimRenewal
from orchestrator.devices.probes import parse_serial
from orchestrator.devices.retries import DAMAGED, LINK_LOST, Retry
from orchestrator.devices.sockets import Connection, run_shell, sync_failure
from orchestrator.errors import (
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
from orchestrator.processes import hold_slot
from orchestrator.records.case import Serial
from orchestrator.scripts import (
    Answer,
    check_success,
    run_scripts,
    script_command,
    section_mark,
    service_failure,
)

_T = TypeVar("_T")
_RETRY_PAUSE_S: Final = 0.1
_READ_TIMEOUT_S: Final = 120.0
#: The mark of read_files.sh for a file that is too large to print.
TOO_LARGE: Final = "+"
#: Prefix of the comment in front of a command by which it is found on the phone.
_MARK: Final = "benchfarm:"
#: Timeout for ending a command that ran too long, on a phone that may hang as a whole.
_END_S: Final = 2.0
#: The head of a frame of adb's sync service, and the largest payload that every adbd takes.
_FRAME: Final = struct.Struct("<4sI")
_FRAME_BYTES: Final = 1 << 16
#: How much of a file is sent at once: fewer calls than a frame each, and it stays in the cache.
_PORTION_BYTES: Final = 8 * (_FRAME_BYTES + _FRAME.size)
#: A link slower than this is of no use any more.
_SLOWEST_BYTES_PER_S: Final = 200_000.0


def stream_checksum(stream: BufferedIOBase, *, like: str) -> str:
    """Return the checksum of a stream: sha256, or md5 if ``like`` has the length of an md5."""
    kind = "sha256" if len(like) == 64 else partial(hashlib.md5, usedforsecurity=False)
    return hashlib.file_digest(stream, kind).hexdigest()


def no_checksum(serial: str) -> DeviceCommandError:
    """Return the error for a phone that can compute no checksum."""
    return DeviceCommandError(
        "the phone has neither sha256sum nor md5sum: nothing that is sent or read can be compared",
        serial=serial,
    )


def push_timeout_s(source: Path) -> float:
    """Return the timeout for a push of this file, by the slowest useful link."""
    return 30.0 + source.stat().st_size / _SLOWEST_BYTES_PER_S


#: Files being sent to all phones of this process: a farm's jobs have a workspace each.
PUSHES: Final = threading.BoundedSemaphore(4)


class PhoneLink:
    """A phone as a transport of an adb server."""

    def __init__(
        self,
        server: AdbServer,
        transport: str,
        *,
        clock: Clock | None = None,
    ) -> None:
        """Set the phone's transport (USB serial or host:port); nothing is sent yet."""
        self.server = server
        self.transport = transport
        self.serial = Serial(transport)
        self.clock = clock or SystemClock()
        #: Whether the last command wasn't answered in time.
        self.hangs = False
        #: Renews our claim on the phone, in front of commands.
        self.claim_renewal = ClaimRenewal(self.clock)
        #: Ends pushes, and waits for their turn.
        self.pushes_cancelled = threading.Event()

    def open(self, *services: str, deadline: Deadline, action: str) -> Connection:
        """Connect to the phone and open services on it; the caller closes the connection."""
        transport_service = f"host:transport:{self.transport}"
        return self.server.open(
            transport_service, *services, deadline=deadline, action=action, serial=self.serial
        )

    def shell(
        self,
        command: str,
        *,
        timeout_s: float = 30.0,
        cancelled: threading.Event | None = None,
        action: str = "",
        most_bytes: int = OUTPUT_MOST_BYTES,
    ) -> ShellResult:
        """Run a command line; see run_shell for the limit of its output, and for the errors."""
        if "\0" in command:
            raise UsageError("a command line can't hold a NUL")
        deadline = Deadline(timeout_s, self.clock)
        action = action or f"shell {_shortened(command)}"
        command, is_renewal = self.claim_renewal.before(command)
        # A command that may be cancelled waits for a run, which outlives it.
        mark = f"{_MARK}{secrets.token_hex(6)}" if cancelled is None else ""
        command = f"#{mark}\n{command}" if mark else command
        with self.open(deadline=deadline, action=action) as connection:
            connection.cancelled = cancelled
            try:
                result = run_shell(connection, command, most_bytes=most_bytes)
            except DeviceTimeoutError:
                self.hangs = True
                if mark:
                    self._end(mark)
                raise
        self.hangs = False
        if is_renewal:
            self.claim_renewal.after(result, serial=self.serial)
        return result

    def _end(self, mark: str) -> None:
        """End a command that runs past its deadline, with all its processes.

        When a connection ends, adbd signals only the shell, not its children; but each shell of
        adbd is the leader of a group. On a phone that doesn't answer, they keep running.
        """
        # The pattern doesn't match itself: neither this shell nor its grep is ended.
        script = script_command("end_marked", f"{mark[:-1]}[{mark[-1]}]")
        deadline = Deadline(_END_S, self.clock)
        with (
            contextlib.suppress(DeviceError),
            self.open(deadline=deadline, action="ending a command") as connection,
        ):
            run_shell(connection, script)

    def ask(
        self,
        scripts: Mapping[str, str],
        *,
        timeout_s: float = 30.0,
        cancelled: threading.Event | None = None,
        action: str,
        must: bool = False,
    ) -> Answer:
        """Run scripts that may be run twice and return their whole answer; see `scripts.run_scripts`.

        ``must``: raises DeviceCommandError, with the reason, when they end with another exit code
        than 0.
        """
        shell = partial(self.shell, timeout_s=timeout_s, cancelled=cancelled, action=action)
        answer = run_scripts(shell, scripts, serial=self.serial)
        if must:
            check_success(answer, serial=self.serial, action=action)
        return answer

    def retry(
        self,
        operation: Callable[[], _T],
        rule: Retry = LINK_LOST,
        *,
        cancelled: threading.Event | None = None,
        on_away: Callable[[float], None] = lambda left_s: None,
    ) -> _T:
        """Run an operation that may be repeated; reconnect the phone before another try.

        ``on_away`` gets the seconds that an offline phone is awaited for, unless it is back at
        once. Raises InterruptedByUserError when cancelled meanwhile.
        """
        give_up: Deadline | None = None

        def pause(error: DeviceError, deadline: Deadline) -> None:
            nonlocal give_up
            give_up = deadline
            # A hung phone was waited for already; a link may break again and again.
            if isinstance(error, DeviceTimeoutError) or deadline.elapsed_s >= rule.step_s:
                on_away(deadline.remaining_s)
            if self.clock.wait(_RETRY_PAUSE_S, cancelled):
                raise InterruptedByUserError

        def attempt() -> _T:
            if give_up is not None:
                self.reconnect(Deadline(min(rule.step_s, give_up.remaining_s), self.clock))
            return operation()

        return rule.run(attempt, between=pause, clock=self.clock)

    def reconnect(self, deadline: Deadline) -> None:
        """Reconnect the phone, by a new connection if its last command wasn't answered: the server
        reports such a connection as good.

        Raises DeviceTimeoutError, LinkLostError, and DeviceChangedError when another phone answers.
        """
        self.server.reconnect(self.transport, deadline, fresh=self.hangs)
        if self.serial == self.transport:
            return
        answer = self.ask_serial(timeout_s=max(1.0, deadline.remaining_s))
        if answer and answer != self.serial:
            raise DeviceChangedError(
                f"{self.transport} is now another phone, {answer}", serial=self.serial
            )

    def ask_serial(self, *, timeout_s: float) -> str:
        """Return the phone's own serial number, empty where it has none."""
        answer = self.ask(
            {"serial": "getprop ro.serialno"},
            timeout_s=timeout_s,
            action="reading its serial number",
        )
        return parse_serial(answer.text("serial"))

    def push(
        self,
        source: Path,
        path: str,
        *,
        mode: int = 0o644,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Send a file, with its modification time; ``progress`` gets the bytes sent so far.

        Waits while four files are being sent; that time isn't counted. The phone doesn't verify the
        content: compare checksums afterwards. Raises DeviceStorageError, TransferError (with the
        phone's reason), LinkLostError, DeviceTimeoutError, InterruptedByUserError (the phone drops
        the part; the next push removes a remaining draft).
        """
        with (
            hold_slot(PUSHES, self.pushes_cancelled),
            source.open("rb", buffering=0) as file,
            self.open(
                deadline=Deadline(push_timeout_s(source), self.clock),
                action=f"push of {source.name}",
            ) as link,
        ):
            link.cancelled = self.pushes_cancelled
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
                        break  # before the end the phone only sends a FAIL
                else:
                    link.send(_FRAME.pack(b"DONE", int(source.stat().st_mtime) & 0xFFFFFFFF))
            except LinkLostError:
                # A failing phone closes the stream; its reason may still be readable.
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
        return DAMAGED.run(lambda: self._read_files(paths, limit_bytes, package), clock=self.clock)

    def _read_files(
        self, paths: Sequence[str], limit_bytes: int, package: str
    ) -> list[bytes | None]:
        names, script = (
            ", ".join(paths),
            script_command("read_files", section_mark(), limit_bytes, *paths),
        )
        # The largest possible output, and what the shell itself may print.
        shell = partial(
            self.shell,
            timeout_s=_READ_TIMEOUT_S,
            action=f"reading {names}",
            most_bytes=2 * (limit_bytes * len(paths) + OUTPUT_MOST_BYTES),
        )
        command = f"run-as {quote(package)} sh -c {quote(script)}" if package else script
        answer = run_scripts(shell, {"read": command}, serial=self.serial)
        if (files := parse_files(answer, len(paths))) is not None:
            return files
        errors = answer.stderr.decode("utf-8", "replace").splitlines()
        refusals = " ".join(line for line in errors if line.startswith("run-as:"))
        if package and refusals:
            raise service_failure(
                refusals, serial=self.serial, action=f"reading {names}"
            ) or DeviceCommandError(refusals, serial=self.serial)
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
    """Fill a portion with DATA frames of the file's next bytes; return them, empty at its end."""
    frame = _FRAME.size + _FRAME_BYTES
    starts = range(_FRAME.size, len(portion), frame)
    unframed = os.readv(file.fileno(), [portion[start : start + _FRAME_BYTES] for start in starts])
    end = 0
    while unframed:
        count = min(unframed, _FRAME_BYTES)
        _FRAME.pack_into(portion, end, b"DATA", count)
        end += _FRAME.size + count
        unframed -= count
    return portion[:end]


def parse_files(answer: Answer, count: int) -> list[bytes | None] | None:
    """Return the files that read_files.sh printed.

    None when a size or checksum differs, or a file was too large.
    """
    files: list[bytes | None] = []
    for head, data in answer.sections.items():
        name, size, checksum = (*head.split(), "", "", "")[:3]
        if name != f"file.{len(files) + 1}":
            continue
        if size != "-" and (
            size != str(len(data)) or stream_checksum(BytesIO(data), like=checksum) != checksum
        ):
            return None
        files.append(None if size == "-" else data)
    return files if len(files) == count else None


def _shortened(command: str) -> str:
    line = " ".join(command.split())
    return repr(line if len(line) <= 60 else line[:57] + "...")
