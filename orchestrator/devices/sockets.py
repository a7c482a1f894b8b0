"""Connections to the adb server, each with one deadline, and the errors of their failures; and the
phone's shell by shell protocol v2, whose exit code must arrive.
"""

from __future__ import annotations

import contextlib
import re
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator
from dataclasses import field
from types import TracebackType
from typing import Final

from orchestrator.clock import Deadline
from orchestrator.errors import (
    AdbUnavailableError,
    DeviceError,
    DeviceTimeoutError,
    InterruptedByUserError,
    LinkLostError,
    TransferError,
    UsageError,
)
from orchestrator.files import OUTPUT_MOST_BYTES, BothEnds
from orchestrator.ports import ShellResult
from orchestrator.records import frozen
from orchestrator.records.failures import Source, next_step_of
from orchestrator.scripts import failure_in, service_failure, writing_failure

DEFAULT_PORT: Final = 5037


@frozen
class ServerAddress:
    """Host and port of an adb server, or the path of its socket file."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    #: A socket in the file system (``localfilesystem:``); host and port don't count then.
    path: str = ""
    #: The setting that named it, for people.
    named_by: str = field(default="", compare=False)

    @property
    def is_local(self) -> bool:
        """Whether the server is on this computer."""
        return bool(self.path) or self.host in {"127.0.0.1", "localhost", "::1"}

    @property
    def spec(self) -> str:
        """The value for adb's ``-L`` and ``ADB_SERVER_SOCKET``; adb 29 and 36 refuse
        "tcp:127.0.0.1:N".
        """
        if self.path:
            return f"localfilesystem:{self.path}"
        return f"tcp:{'localhost' if self.host == '127.0.0.1' else self.host}:{self.port}"

    def __str__(self) -> str:
        if self.path:
            return self.spec
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def server_failure(message: str, *, serial: str, action: str) -> DeviceError:
    """Return the error for a FAIL answer of the adb server (or of a phone's service)."""
    return failure_in(message, Source.ADB, serial=serial, action=action) or DeviceError(
        f"{action}: adb says {message!r}", serial=serial
    )


def sync_failure(message: str, *, serial: str, path: str) -> DeviceError:
    """Return the error for a FAIL answer of the phone's file service."""
    if re.search("couldn't read from device|protocol fault", message):
        return server_failure(message, serial=serial, action=path)
    return writing_failure(message, serial=serial, action=path) or TransferError(
        f"{path}: the phone says {message!r}", serial=serial
    )


#: The largest length in the four hex digits in front of a request.
LONGEST_REQUEST_BYTES: Final = 0xFFFF
#: Large enough for a whole adb payload in one system call.
READ_BYTES: Final = 1 << 18
_SENT_AHEAD_BYTES: Final = 1 << 20
_QUEUE_PAUSE_S: Final = 0.005


class Connection:
    """A socket to the adb server. Every method may raise LinkLostError or DeviceTimeoutError."""

    def __init__(
        self, address: ServerAddress, deadline: Deadline, *, action: str, serial: str = ""
    ) -> None:
        """Connect; raises AdbUnavailableError when nothing listens there."""
        self.deadline = deadline
        self.action = action
        self.serial = serial
        #: Ends all waits by InterruptedByUserError; None: waits can't be cancelled.
        self.cancelled: threading.Event | None = None
        try:
            self._socket = _connect(address, deadline)
        except (OSError, UnicodeError) as error:
            setting_note = f", which {address.named_by} names" if address.named_by else ""
            option = f"-L {address.spec}" if address.path else f"-P {address.port}"
            raise AdbUnavailableError(
                f"no adb server answers at {address}{setting_note}: {error}",
                hint=(
                    f"start it (adb {option} start-server), or unset {address.named_by or 'its address'} "
                    "so that benchfarm starts one of its own"
                    if address.is_local
                    else f"start it there: adb -a -P {address.port} nodaemon server"
                ),
            ) from error

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the other side sees its end."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def request(self, service: str) -> None:
        """Ask for a service and read its OKAY; a FAIL raises the error of its text."""
        body = service.encode("utf-8", "surrogateescape")
        if len(body) > LONGEST_REQUEST_BYTES:
            raise UsageError(
                f"a command of {len(body)} bytes is longer than adb takes ({LONGEST_REQUEST_BYTES})"
            )
        self.send(b"%04x%s" % (len(body), body))
        status = self.read_exact(4)
        if status == b"FAIL":
            raise server_failure(
                self.read_block().decode("utf-8", "replace"), serial=self.serial, action=self.action
            )
        if status != b"OKAY":
            raise LinkLostError(
                f"{self.action}: the adb server answered {status!r}", serial=self.serial
            )

    def read_block(self) -> bytes:
        """Read a block with its length in four hex digits in front.

        A FAIL, which may come after the OKAY, raises the error of its text.
        """
        head = self.read_exact(4)
        if head == b"FAIL":
            message = self.read_block().decode("utf-8", "replace")
            raise server_failure(message, serial=self.serial, action=self.action)
        try:
            size = int(head, 16)
        except ValueError:
            raise LinkLostError(
                f"{self.action}: {head!r} came instead of a length", serial=self.serial
            ) from None
        return self.read_exact(size)

    def read_exact(self, size: int) -> bytes:
        """Read ``size`` bytes; an earlier end raises LinkLostError."""
        received = bytearray()
        while len(received) < size:
            self._wait_ready(select.POLLIN)
            with self._io():
                data = self._socket.recv(min(size - len(received), READ_BYTES))
            if not data:
                raise self._link_error("the connection ended early")
            received += data
        return bytes(received)

    def read_some(self) -> bytes:
        """Wait for some bytes; ``b""`` at the end."""
        self._wait_ready(select.POLLIN)
        with self._io():
            try:
                return self._socket.recv(READ_BYTES)
            except ConnectionResetError:
                return b""

    def readable(self, wait_s: float) -> bool:
        """Wait up to ``wait_s`` (and the deadline) for bytes or the end; return whether they came."""
        return bool(self._poll(select.POLLIN, max(0.0, min(wait_s, self.deadline.remaining_s))))

    def send(self, data: bytes | memoryview) -> None:
        """Send all bytes."""
        unsent = memoryview(data)
        while unsent:
            self._wait_ready(select.POLLOUT)
            with self._io():
                unsent = unsent[self._socket.send(unsent) :]

    def exchange(self, outgoing: memoryview, *, wait_s: float) -> tuple[int, bytes | None]:
        """Send and read without blocking; return (bytes sent, received bytes: None for none, b"" at
        the end).

        Both directions make progress, so that a phone that answers before it has read all can't
        block us. Returns after ``wait_s`` even if nothing was possible.
        """
        remaining_s = self.deadline.remaining_s
        events = self._poll(
            select.POLLIN | (select.POLLOUT if len(outgoing) else 0), min(wait_s, remaining_s)
        )
        if not events and wait_s >= remaining_s:
            raise self._timeout()
        received = self.read_some() if events & ~select.POLLOUT else None
        sent = 0
        if events & select.POLLOUT and received != b"":
            with self._io(), contextlib.suppress(BlockingIOError):
                self._socket.setblocking(False)
                sent = self._socket.send(outgoing[:READ_BYTES])
        return sent, received

    def _wait_ready(self, events: int) -> None:
        """Wait until the socket is ready, if waits can be cancelled."""
        while self.cancelled is not None and not self.deadline.expired:
            if self.cancelled.is_set():
                raise InterruptedByUserError
            if self._poll(events, min(CANCEL_POLL_S, self.deadline.remaining_s)):
                return

    def _poll(self, events: int, wait_s: float) -> int:
        # poll, not select: a farm's process may hold more than 1024 descriptors.
        poll = select.poll()
        poll.register(self._socket, events)
        return sum(event for _, event in poll.poll(wait_s * 1000))

    @contextlib.contextmanager
    def _io(self) -> Iterator[None]:
        """Limit a socket operation to the rest of the deadline; translate its errors."""
        remaining_s = self.deadline.remaining_s
        if remaining_s <= 0:
            raise self._timeout()
        self._socket.settimeout(remaining_s)
        try:
            yield
        except TimeoutError:
            raise self._timeout() from None
        except OSError as error:
            raise self._link_error(str(error)) from error

    def _timeout(self) -> DeviceTimeoutError:
        return DeviceTimeoutError(
            f"{self.action} took longer than {self.deadline.seconds:g} s", serial=self.serial
        )

    def _link_error(self, reason: str) -> LinkLostError:
        return LinkLostError(f"{self.action}: the link was lost ({reason})", serial=self.serial)


def _connect(address: ServerAddress, deadline: Deadline) -> socket.socket:
    timeout_s = max(0.001, deadline.remaining_s)
    if not address.path:
        link = socket.create_connection((address.host, address.port), timeout=timeout_s)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A remote server that vanishes silently must not look busy.
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return link
    link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        link.settimeout(timeout_s)
        while True:
            try:
                link.connect(address.path)
            except BlockingIOError:
                # Where many connect at once, the server's queue is full for a moment.
                if deadline.expired:
                    raise
                time.sleep(_QUEUE_PAUSE_S)
            else:
                break
        # Buffer for the next part of a push while the server forwards the last one; TCP sizes its
        # own.
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SENT_AHEAD_BYTES)
    except BaseException:
        link.close()
        raise
    return link


#: Ids of shell protocol v2's packets: one byte id, four bytes little-endian length, payload.
STDOUT: Final = 1
STDERR: Final = 2
EXIT: Final = 3
_CLOSE_STDIN: Final = 4
_HEAD: Final = struct.Struct("<BI")
#: A length above this isn't from a shell; adb's own largest payload is 1 MiB.
_LONGEST_PACKET_BYTES: Final = 64 << 20
#: Interval at which a wait checks whether it was cancelled.
CANCEL_POLL_S: Final = 0.2


def shell_refusal(output: str) -> str:
    """Return the output's line that refuses something to the shell user, and what to do; empty for
    none.
    """
    code = "shell-restricted"
    for line in map(str.strip, output.splitlines()):
        failure = service_failure(line, serial="", action="")
        if failure is not None and failure.code == code:
            return f"{line} ({code}). {next_step_of(code)}"
    return ""


def cut_packets(data: bytearray) -> Iterator[tuple[int, bytes]]:
    """Yield (id, payload) of each whole packet of shell protocol v2; the rest stays in ``data``.

    Raises ValueError.
    """
    while len(data) >= _HEAD.size:
        packet_id, size = _HEAD.unpack_from(data)
        if size > _LONGEST_PACKET_BYTES:
            raise ValueError(f"a packet of {size} bytes isn't from a shell")
        end = _HEAD.size + size
        if len(data) < end:
            return
        payload = bytes(data[_HEAD.size : end])
        del data[:end]
        yield packet_id, payload


def packets(
    connection: Connection, *, wait_s: float | None = None
) -> Iterator[tuple[int, bytes] | None]:
    """Yield the packets (id, payload) of a command without input; None after ``wait_s``, if given,
    without one.

    Raises LinkLostError when the connection ends.
    """
    connection.send(_HEAD.pack(_CLOSE_STDIN, 0))
    received = bytearray()
    while True:
        is_silent = wait_s is not None and not connection.readable(wait_s)
        if is_silent and not connection.deadline.expired:
            yield None
            continue
        data = connection.read_some()
        if not data:
            raise LinkLostError(
                f"{connection.action}: the link ended before the exit code of the command",
                serial=connection.serial,
            )
        received += data
        try:
            yield from cut_packets(received)
        except ValueError as error:
            raise LinkLostError(
                f"{connection.action}: {error}", serial=connection.serial
            ) from error


def run_shell(
    connection: Connection, command: str, *, most_bytes: int = OUTPUT_MOST_BYTES
) -> ShellResult:
    """Run a command on a connection whose transport is chosen; it has no standard input.

    Of a stream of more than ``most_bytes`` both ends are kept, with a line between them that says
    so.

    Raises LinkLostError when the connection ends before the exit packet, InterruptedByUserError
    when the connection is cancelled (the command gets SIGHUP).
    """
    connection.request("shell,v2,raw:" + command)
    stdout, stderr = BothEnds(most_bytes), BothEnds(most_bytes)
    for packet in packets(connection):
        match packet:
            case (id_, payload) if id_ == STDOUT:
                stdout.add(payload)
            case (id_, payload) if id_ == STDERR:
                stderr.add(payload)
            case (id_, payload) if id_ == EXIT and payload:
                return ShellResult(
                    exit_code=payload[0], stdout=stdout.content(), stderr=stderr.content()
                )
    raise AssertionError("packets end with an error")
