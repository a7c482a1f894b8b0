"""Connections to the adb server, each with one deadline for all that goes over it: which errors its
failures are, and the phone's shell by shell protocol v2, whose exit code must come.
"""

from __future__ import annotations

import contextlib
import re
import select
import signal
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
    kinds_below,
)
from orchestrator.files import OUTPUT_MOST_BYTES, BothEnds
from orchestrator.frozen import frozen
from orchestrator.ports import ShellResult
from orchestrator.records.failures import Source, next_step_of, texts_of
from orchestrator.scripts import Answer

DEFAULT_PORT: Final = 5037
#: Code -> the error that has it.
_KINDS: Final = {kind().code: kind for kind in kinds_below(DeviceError)}


@frozen
class ServerAddress:
    """Host and port of an adb server, or the path of its socket file."""

    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    #: A socket in the file system (``localfilesystem:``); host and port don't count then.
    path: str = ""
    #: Where it was named, for people.
    named_by: str = field(default="", compare=False)

    @property
    def is_local(self) -> bool:
        """Whether the server is on this computer."""
        return bool(self.path) or self.host in {"127.0.0.1", "localhost", "::1"}

    @property
    def spec(self) -> str:
        """What adb's ``-L`` and ``ADB_SERVER_SOCKET`` take; "tcp:127.0.0.1:N" is refused by 29 and
        36.
        """
        if self.path:
            return f"localfilesystem:{self.path}"
        return f"tcp:{'localhost' if self.host == '127.0.0.1' else self.host}:{self.port}"

    def __str__(self) -> str:
        if self.path:
            return self.spec
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _failure_in(message: str, source: Source, *, serial: str, what: str) -> DeviceError | None:
    """Return the error for a message of adb or of the phone's.

    None when no text of the source is in it.
    """
    for text, failure in texts_of(source):
        if re.search(text.pattern, message, re.I):
            told = without_stack(message)[-300:] if source is not Source.ADB else message
            said = f"adb says {told!r}" if source is Source.ADB else f"the phone says {told!r}"
            parts = (what, text.meaning, said)
            return _KINDS[failure.code](
                ": ".join(filter(None, parts)),
                serial=serial,
                hint=text.next_step or failure.next_step,
            )
    return None


def server_failure(message: str, *, serial: str, what: str) -> DeviceError:
    """Return the error for a FAIL answer of the adb server (or of a phone's service)."""
    return _failure_in(message, Source.ADB, serial=serial, what=what) or DeviceError(
        f"{what}: adb says {message!r}", serial=serial
    )


def sync_failure(message: str, *, serial: str, path: str) -> DeviceError:
    """Return the error for a FAIL answer of the phone's file service."""
    if re.search("couldn't read from device|protocol fault", message):
        return server_failure(message, serial=serial, what=path)
    return writing_failure(message, serial=serial, what=path) or TransferError(
        f"{path}: the phone says {message!r}", serial=serial
    )


def writing_failure(message: str, *, serial: str, what: str) -> DeviceError | None:
    """Return the error for what the phone says when our folder can't be written.

    None when it says something else.
    """
    return _failure_in(message, Source.WRITING, serial=serial, what=what)


def service_failure(message: str, *, serial: str, what: str) -> DeviceError | None:
    """Return the error for what a tool of the phone's says of Android's services.

    None when it says something else.
    """
    return _failure_in(message, Source.SERVICE, serial=serial, what=what)


def without_stack(text: str) -> str:
    """Return what a phone said without the frames of a Java exception: its message stands above
    them.

    Of an exception that has a cause, and the cause another, the first cause of all is what stands
    last.
    """
    lines = [line.strip() for line in text.strip().splitlines()]
    kept = [
        line for line in lines if line and not re.match(r"at [\w.$<>]+\(|\.\.\. \d+ more$", line)
    ]
    causes = [line for line in kept if line.startswith("Caused by: ")]
    return "\n".join([*(line for line in kept if line not in causes[-1:]), *causes[-1:]])


#: The four hex digits in front of a request can't say more.
LONGEST_REQUEST_BYTES: Final = 0xFFFF
#: Large enough for a whole adb payload in one system call.
READ_BYTES: Final = 1 << 18
_SENT_AHEAD_BYTES: Final = 1 << 20
_QUEUE_PAUSE_S: Final = 0.005


class Connection:
    """A socket to the adb server. Every method may raise LinkLostError or DeviceTimeoutError."""

    def __init__(
        self, address: ServerAddress, deadline: Deadline, *, what: str, serial: str = ""
    ) -> None:
        """Connect; raises AdbUnavailableError when nothing listens there."""
        self.deadline = deadline
        self.what = what
        self.serial = serial
        #: What ends all waiting for it by InterruptedByUserError; None for nothing.
        self.cancelled: threading.Event | None = None
        try:
            self._socket = _connect(address, deadline)
        except (OSError, UnicodeError) as error:
            named = f", which {address.named_by} names" if address.named_by else ""
            option = f"-L {address.spec}" if address.path else f"-P {address.port}"
            raise AdbUnavailableError(
                f"no adb server answers at {address}{named}: {error}",
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
        """Ask for a service and read its OKAY; a FAIL raises what its text means."""
        body = service.encode("utf-8", "surrogateescape")
        if len(body) > LONGEST_REQUEST_BYTES:
            raise UsageError(
                f"a command of {len(body)} bytes is longer than adb takes ({LONGEST_REQUEST_BYTES})"
            )
        self.send(b"%04x%s" % (len(body), body))
        status = self.read_exact(4)
        if status == b"FAIL":
            raise server_failure(
                self.read_block().decode("utf-8", "replace"), serial=self.serial, what=self.what
            )
        if status != b"OKAY":
            raise LinkLostError(
                f"{self.what}: the adb server answered {status!r}", serial=self.serial
            )

    def read_block(self) -> bytes:
        """Read a block with its length in four hex digits in front.

        A FAIL, which may come after the OKAY, raises what its text means.
        """
        head = self.read_exact(4)
        if head == b"FAIL":
            told = self.read_block().decode("utf-8", "replace")
            raise server_failure(told, serial=self.serial, what=self.what)
        try:
            size = int(head, 16)
        except ValueError:
            raise LinkLostError(
                f"{self.what}: {head!r} came instead of a length", serial=self.serial
            ) from None
        return self.read_exact(size)

    def read_exact(self, size: int) -> bytes:
        """Read ``size`` bytes; the end before that is a lost link."""
        found = bytearray()
        while len(found) < size:
            self._await(select.POLLIN)
            with self._io():
                data = self._socket.recv(min(size - len(found), READ_BYTES))
            if not data:
                raise self._lost("the connection ended early")
            found += data
        return bytes(found)

    def read_some(self) -> bytes:
        """Block until something comes; ``b""`` is the end."""
        self._await(select.POLLIN)
        with self._io():
            try:
                return self._socket.recv(READ_BYTES)
            except ConnectionResetError:
                return b""

    def readable(self, wait_s: float) -> bool:
        """Wait up to ``wait_s`` (and the deadline) for something to read or the end; tell whether
        there is.
        """
        return bool(self._poll(select.POLLIN, max(0.0, min(wait_s, self.deadline.remaining_s))))

    def send(self, data: bytes | memoryview) -> None:
        """Send all of it."""
        left = memoryview(data)
        while left:
            self._await(select.POLLOUT)
            with self._io():
                left = left[self._socket.send(left) :]

    def exchange(self, outgoing: memoryview, *, wait_s: float) -> tuple[int, bytes | None]:
        """Send what goes out now and read what is there; return (bytes sent, what came: None
        nothing, b"" the end).

        Both directions make progress, so that a phone that answers before it has read all can't
        block us. Returns with nothing done after ``wait_s``, so that the caller can look at
        something else.
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

    def _await(self, events: int) -> None:
        """Wait until the socket is ready, where that may be cancelled."""
        while self.cancelled is not None and not self.deadline.expired:
            if self.cancelled.is_set():
                raise InterruptedByUserError
            if self._poll(events, min(CANCEL_LOOK_S, self.deadline.remaining_s)):
                return

    def _poll(self, events: int, wait_s: float) -> int:
        # poll, not select: a farm's process may hold more than 1024 descriptors.
        poll = select.poll()
        poll.register(self._socket, events)
        return sum(event for _, event in poll.poll(wait_s * 1000))

    @contextlib.contextmanager
    def _io(self) -> Iterator[None]:
        """Give an operation of the socket the rest of the deadline, and its failures their meaning."""
        remaining_s = self.deadline.remaining_s
        if remaining_s <= 0:
            raise self._timeout()
        self._socket.settimeout(remaining_s)
        try:
            yield
        except TimeoutError:
            raise self._timeout() from None
        except OSError as error:
            raise self._lost(str(error)) from error

    def _timeout(self) -> DeviceTimeoutError:
        return DeviceTimeoutError(
            f"{self.what} took longer than {self.deadline.seconds:g} s", serial=self.serial
        )

    def _lost(self, reason: str) -> LinkLostError:
        return LinkLostError(f"{self.what}: the link was lost ({reason})", serial=self.serial)


def _connect(address: ServerAddress, deadline: Deadline) -> socket.socket:
    timeout_s = max(0.001, deadline.remaining_s)
    if not address.path:
        link = socket.create_connection((address.host, address.port), timeout=timeout_s)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A remote server that vanishes without a word must not look like one that is busy.
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
        # Room for the next part of a push while the server sends the last one on; TCP finds its own
        # size.
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
#: An exit code above it is that of a process which a signal ended: this and the signal's number.
BY_SIGNAL: Final = 128
_HEAD: Final = struct.Struct("<BI")
#: A length above this isn't from a shell; adb's own largest payload is 1 MiB.
_LONGEST_PACKET_BYTES: Final = 64 << 20
#: How often a wait looks whether it was cancelled.
CANCEL_LOOK_S: Final = 0.2


def quote(text: str) -> str:
    """Quote any text without NUL as one word for the phone's shell (and for every POSIX shell)."""
    return "'" + text.replace("'", "'\\''") + "'"


def reason_of(result: ShellResult | Answer) -> str:
    """Return why a command failed: the last of what it printed, else what its exit code tells."""
    said = without_stack((result.stderr or result.stdout).decode("utf-8", "replace"))
    if said:
        return said[-400:]
    if (number := result.exit_code - BY_SIGNAL) in set(signal.Signals):
        return f"it was killed on the phone by signal {number} ({signal.Signals(number).name})"
    return f"exit code {result.exit_code}, and it printed nothing"


def refusal_of(said: str) -> str:
    """Return the line by which a phone refuses something to its shell user, and what to do; empty
    for none.
    """
    code = "shell-restricted"
    for line in map(str.strip, said.splitlines()):
        failure = service_failure(line, serial="", what="")
        if failure is not None and failure.code == code:
            return f"{line} ({code}). {next_step_of(code)}"
    return ""


def cut_packets(data: bytearray) -> Iterator[tuple[int, bytes]]:
    """Yield (id, payload) of each packet of shell protocol v2 that is whole; the rest stays.

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
    """Yield the packets (id, payload) that come to a command without input; None when nothing came
    within ``wait_s``, where that is given.

    Raises LinkLostError when the connection ends, which it may before the exit packet.
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
                f"{connection.what}: the link ended before the exit code of the command",
                serial=connection.serial,
            )
        received += data
        try:
            yield from cut_packets(received)
        except ValueError as error:
            raise LinkLostError(f"{connection.what}: {error}", serial=connection.serial) from error


def run_shell(
    connection: Connection, command: str, *, most_bytes: int = OUTPUT_MOST_BYTES
) -> ShellResult:
    """Run a command on a connection whose transport is chosen; it has no standard input.

    Of a stream of more than ``most_bytes`` both ends are kept, with a line between them that says
    so.

    Raises LinkLostError when the connection ends before the exit packet, InterruptedByUserError
    when the connection is cancelled (what runs gets SIGHUP).
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
