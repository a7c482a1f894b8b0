"""One connection to the adb server with one deadline for all, and which errors its failures are."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import struct
from collections.abc import Sequence
from types import TracebackType
from typing import Final

from orchestrator.clock import Deadline
from orchestrator.devices.address import ServerAddress
from orchestrator.errors import (
    AdbUnavailableError,
    DeviceCommandError,
    DeviceError,
    DeviceStorageError,
    DeviceTimeoutError,
    DeviceUnauthorizedError,
    DeviceUnusableError,
    LinkLostError,
    NoDeviceError,
    TransferError,
    UsageError,
)

#: What the server answers with FAIL, as a pattern of its text -> what it means (adb 29 and 36).
SERVER_FAILURES: Final[tuple[tuple[re.Pattern[str], type[DeviceError], str], ...]] = (
    (
        re.compile(r"device unauthorized|failed to authenticate", re.I),
        DeviceUnauthorizedError,
        "accept the key of this computer on the phone's screen (USB debugging), then try again",
    ),
    (
        re.compile(r"device still authorizing", re.I),
        DeviceUnauthorizedError,
        "wait a moment, or accept the key of this computer on the phone's screen",
    ),
    (
        re.compile(r"insufficient permissions|no permissions", re.I),
        DeviceUnusableError,
        "this user may not open the USB device: install udev rules and join the group plugdev",
    ),
    (
        re.compile(r"more than one device with serial", re.I),
        DeviceUnusableError,
        "two phones have the same serial number: attach one of them only, or reach it over TCP",
    ),
    (
        re.compile(r"no devices/emulators found|more than one device/emulator", re.I),
        NoDeviceError,
        "name the phone's serial; 'benchfarm devices' lists them",
    ),
    (
        re.compile(r"not found|no device with transport|device offline|still connecting|closed|no transport", re.I),
        LinkLostError,
        "check the cable or the network; 'benchfarm devices' shows how the phone is",
    ),
)

#: Why a phone's folder of ours can't be written: pattern, what it means, the cause for people, what to do.
WRITING_FAILURES: Final[tuple[tuple[re.Pattern[str], type[DeviceError], str, str], ...]] = (
    (
        re.compile(r"no space left|quota exceeded", re.I),
        DeviceStorageError,
        "there is no space left on the phone",
        "free some space on the phone or lower the blob budget",
    ),
    (
        re.compile(r"read-only file system", re.I),
        DeviceUnusableError,
        "the phone's storage is read-only",
        "reboot the phone; when it stays read-only, its storage is damaged",
    ),
    (
        re.compile(r"permission denied|operation not permitted", re.I),
        DeviceCommandError,
        "the phone's shell user may not write there",
        "remove /data/local/tmp/benchfarm on the phone as who made it (root, after 'adb root'), then try again",
    ),
)


def server_failure(message: str, *, serial: str = "", what: str = "") -> DeviceError:
    """Return the error for a FAIL answer of the adb server (or of a phone's service)."""
    text = f"{what}: adb says {message!r}" if what else f"adb says {message!r}"
    for pattern, kind, hint in SERVER_FAILURES:
        if pattern.search(message):
            return kind(text, serial=serial, hint=hint)
    return DeviceError(text, serial=serial)


def sync_failure(message: str, *, serial: str, path: str) -> DeviceError:
    """Return the error for a FAIL answer of the phone's file service."""
    return writing_failure(message, serial=serial, what=path) or TransferError(
        f"{path}: the phone says {message!r}", serial=serial
    )


def writing_failure(message: str, *, serial: str, what: str) -> DeviceError | None:
    """Return the error for what the phone says when our folder can't be written; None when it says something else."""
    found = next((entry for entry in WRITING_FAILURES if entry[0].search(message)), None)
    if found is None:
        return None
    _, kind, cause, hint = found
    return kind(f"{what}: {cause}: the phone says {message.strip()[-300:]!r}", serial=serial, hint=hint)


#: The four hex digits in front of a request can't say more.
LONGEST_REQUEST_BYTES: Final = 0xFFFF
#: Large enough for a whole adb payload in one system call.
READ_BYTES: Final = 1 << 18
_SENT_AHEAD_BYTES: Final = 1 << 20


def encode_request(service: str | bytes) -> bytes:
    """Return a request as the adb server reads it: the length in four hex digits, then the service."""
    body = service.encode("utf-8", "surrogateescape") if isinstance(service, str) else service
    if len(body) > LONGEST_REQUEST_BYTES:
        raise UsageError(f"a command of {len(body)} bytes is longer than adb takes ({LONGEST_REQUEST_BYTES})")
    return b"%04x%s" % (len(body), body)


class Connection:
    """A socket to the adb server. Every method may raise LinkLostError or DeviceTimeoutError."""

    def __init__(self, address: ServerAddress, deadline: Deadline, *, what: str, serial: str = "") -> None:
        """Connect; raises AdbUnavailableError when nothing listens there."""
        self.deadline = deadline
        self.what = what
        self.serial = serial
        try:
            self._socket = _connect(address, max(0.001, deadline.remaining_s))
        except (OSError, UnicodeError) as error:
            raise AdbUnavailableError(
                f"no adb server answers at {address}{_named(address)}: {error}",
                hint=(
                    f"start it (adb {_option(address)} start-server), or unset {address.named_by or 'its address'} "
                    "so that benchfarm starts one of its own"
                    if address.is_local
                    else f"start it there: adb -a -P {address.port} nodaemon server"
                ),
            ) from error

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the other side sees its end."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def request(self, service: str | bytes) -> None:
        """Ask for a service and read its OKAY; a FAIL raises what its text means."""
        self.send(encode_request(service))
        self.expect_okay()

    def expect_okay(self) -> None:
        """Read OKAY; a FAIL raises what its text means."""
        status = self.read_exact(4)
        if status == b"FAIL":
            raise server_failure(self.read_block().decode("utf-8", "replace"), serial=self.serial, what=self.what)
        if status != b"OKAY":
            raise LinkLostError(f"{self.what}: the adb server answered {status!r}", serial=self.serial)

    def read_block(self) -> bytes:
        """Read a block with its length in four hex digits in front."""
        head = self.read_exact(4)
        try:
            size = int(head, 16)
        except ValueError:
            raise LinkLostError(f"{self.what}: {head!r} came instead of a length", serial=self.serial) from None
        return self.read_exact(size)

    def read_exact(self, size: int) -> bytes:
        """Read so many bytes; the end before that is a lost link."""
        buffer = bytearray(size)
        self.read_into(memoryview(buffer))
        return bytes(buffer)

    def read_into(self, view: memoryview) -> None:
        """Fill a buffer; the end before that is a lost link."""
        filled = 0
        while filled < len(view):
            self._arm()
            try:
                count = self._socket.recv_into(view[filled:])
            except TimeoutError:
                raise self._timeout() from None
            except OSError as error:
                raise self._lost(str(error)) from error
            if count == 0:
                raise self._lost("the connection ended early")
            filled += count

    def read_some(self, limit: int = READ_BYTES) -> bytes:
        """Block until something comes; ``b""`` is the end."""
        self._arm()
        try:
            return self._socket.recv(limit)
        except TimeoutError:
            raise self._timeout() from None
        except ConnectionResetError:
            return b""
        except OSError as error:
            raise self._lost(str(error)) from error

    def readable(self, wait_s: float) -> bool:
        """Wait up to ``wait_s`` (and the deadline) for something to read or the end; tell whether there is."""
        return bool(self._poll(select.POLLIN, max(0.0, min(wait_s, self.deadline.remaining_s))))

    def send(self, data: bytes | memoryview) -> None:
        """Send all of it."""
        self._arm()
        try:
            self._socket.sendall(data)
        except TimeoutError:
            raise self._timeout() from None
        except OSError as error:
            raise self._lost(str(error)) from error

    def send_parts(self, parts: Sequence[bytes | memoryview]) -> None:
        """Send several buffers one after the other, without putting them together first."""
        rest = [memoryview(part) for part in parts]
        while rest:
            self._arm()
            try:
                sent = self._socket.sendmsg(rest)
            except TimeoutError:
                raise self._timeout() from None
            except OSError as error:
                raise self._lost(str(error)) from error
            while rest and sent >= len(rest[0]):
                sent -= len(rest.pop(0))
            if rest and sent:
                rest[0] = rest[0][sent:]

    def exchange(self, outgoing: memoryview, *, wait_s: float = float("inf")) -> tuple[int, bytes | None]:
        """Send what goes out now and read what is there; return (bytes sent, what came: None nothing, b"" the end).

        Both directions make progress, so that a phone that answers before it has read all can't block us. Returns
        with nothing done after ``wait_s``, so that the caller can look at something else.
        """
        remaining_s = self.deadline.remaining_s
        events = self._poll(select.POLLIN | (select.POLLOUT if len(outgoing) else 0), min(wait_s, remaining_s))
        if not events:
            if wait_s >= remaining_s:
                raise self._timeout()
            return 0, None
        received = self.read_some() if events & ~select.POLLOUT else None
        sent = 0
        if events & select.POLLOUT and received != b"":
            self._socket.setblocking(False)
            try:
                sent = self._socket.send(outgoing[:READ_BYTES])
            except BlockingIOError:
                sent = 0
            except OSError as error:
                raise self._lost(str(error)) from error
        return sent, received

    def _poll(self, events: int, wait_s: float) -> int:
        # poll, not select: a farm's process may hold more than 1024 descriptors.
        poll = select.poll()
        poll.register(self._socket, events)
        return sum(event for _, event in poll.poll(wait_s * 1000))

    def _arm(self) -> None:
        remaining_s = self.deadline.remaining_s
        if remaining_s <= 0:
            raise self._timeout()
        self._socket.settimeout(remaining_s)

    def _timeout(self) -> DeviceTimeoutError:
        return DeviceTimeoutError(f"{self.what} took longer than {self.deadline.seconds:g} s", serial=self.serial)

    def _lost(self, reason: str) -> LinkLostError:
        return LinkLostError(f"{self.what}: the link was lost ({reason})", serial=self.serial)


def _named(address: ServerAddress) -> str:
    return f", which {address.named_by} names" if address.named_by else ""


def _option(address: ServerAddress) -> str:
    return f"-L {address.spec}" if address.path else f"-P {address.port}"


def _seconds_and_micros(seconds: float) -> tuple[int, int]:
    micros = max(1, round(seconds * 1e6))
    return micros // 1_000_000, micros % 1_000_000


def _connect(address: ServerAddress, timeout_s: float) -> socket.socket:
    if address.path:
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        # Where many connect at once, the server's queue is full for a moment: only a socket that blocks waits for room
        # in it (unix(7)), at most this long.
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", *_seconds_and_micros(timeout_s)))
        try:
            link.connect(address.path)
        except BlockingIOError as error:
            link.close()
            raise TimeoutError(f"its queue of connections stayed full for {timeout_s:.1f} s") from error
        except BaseException:
            link.close()
            raise
        # Room for the next part of a push while the server sends the last one on; TCP finds its own size.
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SENT_AHEAD_BYTES)
        link.settimeout(timeout_s)
        return link
    link = socket.create_connection((address.host, address.port), timeout=timeout_s)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # A remote server that vanishes without a word must not look like one that is busy.
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return link
