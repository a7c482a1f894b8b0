"""One connection to the adb server with one deadline for all, and which errors its failures are."""

from __future__ import annotations

import contextlib
import re
import select
import socket
import time
from collections.abc import Iterator
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

#: What the server answers with FAIL, as a pattern of its text -> what it means (adb 29 and 36), what to do.
SERVER_FAILURES: Final[tuple[tuple[str, type[DeviceError], str], ...]] = (
    (
        "device unauthorized|failed to authenticate", DeviceUnauthorizedError,
        "accept the key of this computer on the phone's screen (USB debugging), then try again",
    ),
    (
        "device still authorizing", DeviceUnauthorizedError,
        "wait a moment, or accept the key of this computer on the phone's screen",
    ),
    (
        "insufficient permissions|no permissions", DeviceUnusableError,
        "this user may not open the USB device: install udev rules and join the group plugdev",
    ),
    (
        "more than one device with serial", DeviceUnusableError,
        "two phones have the same serial number: attach one of them only, or reach it over TCP",
    ),
    (
        "no devices/emulators found|more than one device/emulator", NoDeviceError,
        "name the phone's serial; 'benchfarm devices' lists them",
    ),
    (
        "not found|no device with transport|device offline|still connecting|closed|no transport", LinkLostError,
        "check the cable or the network; 'benchfarm devices' shows how the phone is",
    ),
)  # fmt: skip

#: Why a phone's folder of ours can't be written: pattern, what it means, the cause for people, what to do.
WRITING_FAILURES: Final[tuple[tuple[str, type[DeviceError], str, str], ...]] = (
    (
        "no space left|quota exceeded", DeviceStorageError, "there is no space left on the phone",
        "free some space on the phone",
    ),
    (
        "read-only file system", DeviceUnusableError, "the phone's storage is read-only",
        "reboot the phone; when it stays read-only, its storage is damaged",
    ),
    (
        "permission denied|operation not permitted", DeviceCommandError, "the phone's shell user may not write there",
        "remove /data/local/tmp/benchfarm on the phone as who made it (root, after 'adb root'), then try again",
    ),
)  # fmt: skip


def server_failure(message: str, *, serial: str = "", what: str = "") -> DeviceError:
    """Return the error for a FAIL answer of the adb server (or of a phone's service)."""
    text = f"{what}: adb says {message!r}" if what else f"adb says {message!r}"
    for pattern, kind, hint in SERVER_FAILURES:
        if re.search(pattern, message, re.I):
            return kind(text, serial=serial, hint=hint)
    return DeviceError(text, serial=serial)


def sync_failure(message: str, *, serial: str, path: str) -> DeviceError:
    """Return the error for a FAIL answer of the phone's file service."""
    return writing_failure(message, serial=serial, what=path) or TransferError(
        f"{path}: the phone says {message!r}", serial=serial
    )


def writing_failure(message: str, *, serial: str, what: str) -> DeviceError | None:
    """Return the error for what the phone says when our folder can't be written; None when it says something else."""
    for pattern, kind, cause, hint in WRITING_FAILURES:
        if re.search(pattern, message, re.I):
            return kind(f"{what}: {cause}: the phone says {message.strip()[-300:]!r}", serial=serial, hint=hint)
    return None


#: The four hex digits in front of a request can't say more.
LONGEST_REQUEST_BYTES: Final = 0xFFFF
#: Large enough for a whole adb payload in one system call.
READ_BYTES: Final = 1 << 18
_SENT_AHEAD_BYTES: Final = 1 << 20
_QUEUE_PAUSE_S: Final = 0.005


class Connection:
    """A socket to the adb server. Every method may raise LinkLostError or DeviceTimeoutError."""

    def __init__(self, address: ServerAddress, deadline: Deadline, *, what: str, serial: str = "") -> None:
        """Connect; raises AdbUnavailableError when nothing listens there."""
        self.deadline = deadline
        self.what = what
        self.serial = serial
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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the other side sees its end."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def request(self, service: str) -> None:
        """Ask for a service and read its OKAY; a FAIL raises what its text means."""
        body = service.encode("utf-8", "surrogateescape")
        if len(body) > LONGEST_REQUEST_BYTES:
            raise UsageError(f"a command of {len(body)} bytes is longer than adb takes ({LONGEST_REQUEST_BYTES})")
        self.send(b"%04x%s" % (len(body), body))
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
        """Read ``size`` bytes; the end before that is a lost link."""
        found = bytearray()
        while len(found) < size:
            with self._io():
                data = self._socket.recv(min(size - len(found), READ_BYTES))
            if not data:
                raise self._lost("the connection ended early")
            found += data
        return bytes(found)

    def read_some(self) -> bytes:
        """Block until something comes; ``b""`` is the end."""
        with self._io():
            try:
                return self._socket.recv(READ_BYTES)
            except ConnectionResetError:
                return b""

    def readable(self, wait_s: float) -> bool:
        """Wait up to ``wait_s`` (and the deadline) for something to read or the end; tell whether there is."""
        return bool(self._poll(select.POLLIN, max(0.0, min(wait_s, self.deadline.remaining_s))))

    def send(self, data: bytes) -> None:
        """Send all of it."""
        with self._io():
            self._socket.sendall(data)

    def exchange(self, outgoing: memoryview, *, wait_s: float = float("inf")) -> tuple[int, bytes | None]:
        """Send what goes out now and read what is there; return (bytes sent, what came: None nothing, b"" the end).

        Both directions make progress, so that a phone that answers before it has read all can't block us. Returns
        with nothing done after ``wait_s``, so that the caller can look at something else.
        """
        remaining_s = self.deadline.remaining_s
        events = self._poll(select.POLLIN | (select.POLLOUT if len(outgoing) else 0), min(wait_s, remaining_s))
        if not events and wait_s >= remaining_s:
            raise self._timeout()
        received = self.read_some() if events & ~select.POLLOUT else None
        sent = 0
        if events & select.POLLOUT and received != b"":
            with self._io(), contextlib.suppress(BlockingIOError):
                self._socket.setblocking(False)
                sent = self._socket.send(outgoing[:READ_BYTES])
        return sent, received

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
        return DeviceTimeoutError(f"{self.what} took longer than {self.deadline.seconds:g} s", serial=self.serial)

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
            except BlockingIOError as error:
                # Where many connect at once, the server's queue is full for a moment.
                if deadline.expired:
                    raise TimeoutError(f"its queue of connections stayed full for {timeout_s:.1f} s") from error
                time.sleep(_QUEUE_PAUSE_S)
            else:
                break
        # Room for the next part of a push while the server sends the last one on; TCP finds its own size.
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SENT_AHEAD_BYTES)
    except BaseException:
        link.close()
        raise
    return link
