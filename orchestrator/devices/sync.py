"""Files over adb's sync service: push and pull in whole frames."""

from __future__ import annotations

import stat as stat_bits
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from orchestrator.clock import Deadline
from orchestrator.devices.connection import Connection, sync_failure
from orchestrator.errors import (
    DeviceError,
    DeviceTimeoutError,
    HostStorageError,
    LinkLostError,
    TransferError,
    UsageError,
)

#: The largest payload of a DATA frame that every adbd takes.
FRAME_BYTES: Final = 1 << 16
#: So many frames go out in one system call.
_FRAMES_AT_ONCE: Final = 16
#: adbd refuses longer paths.
LONGEST_PATH_BYTES: Final = 1024

#: A link slower than this is of no use any more.
_SLOWEST_BYTES_PER_S: Final = 200_000.0
_HEAD: Final = struct.Struct("<4sI")
#: Called with the number of bytes that have gone over so far.
Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteStat:
    """What the phone's file service tells about a path (v1: sizes over 4 GiB wrap)."""

    mode: int
    size_bytes: int
    mtime_s: int

    @property
    def is_file(self) -> bool:
        """Whether it is a regular file."""
        return stat_bits.S_ISREG(self.mode)


def encode_path(path: str, *, extra: str = "") -> bytes:
    """Return a path as the sync service takes it; raises UsageError when it is too long or has a NUL."""
    body = path.encode("utf-8", "surrogateescape")
    if len(body) > LONGEST_PATH_BYTES - 16 or b"\0" in body:
        raise UsageError(f"{path!r} can't be a path on a phone: NUL inside, or over {LONGEST_PATH_BYTES - 16} bytes")
    return body + extra.encode()


def stat(connection: Connection, path: str) -> RemoteStat | None:
    """Return what a path is (links followed by nobody), None when there is nothing. The service must be open."""
    body = encode_path(path)
    connection.send(_HEAD.pack(b"STAT", len(body)) + body)
    head = connection.read_exact(4)
    if head != b"STAT":
        raise _unexpected(connection, head, path)
    mode, size, mtime = struct.unpack("<III", connection.read_exact(12))
    return RemoteStat(mode=mode, size_bytes=size, mtime_s=mtime) if mode else None


def push(
    connection: Connection,
    source: BinaryIO,
    path: str,
    *,
    mode: int = 0o644,
    mtime_s: int = 0,
    progress: Progress | None = None,
) -> int:
    """Send a file to ``path`` on the phone and return the number of bytes sent. The service must be open.

    Raises DeviceStorageError, TransferError (with the phone's reason), LinkLostError, DeviceTimeoutError. The phone
    says nothing about what arrived: compare checksums afterwards.
    """
    body = encode_path(path, extra=f",{stat_bits.S_IFREG | mode}")
    connection.send(_HEAD.pack(b"SEND", len(body)) + body)
    buffer = bytearray(FRAME_BYTES * _FRAMES_AT_ONCE)
    view = memoryview(buffer)
    full_head = _HEAD.pack(b"DATA", FRAME_BYTES)
    sent_bytes = 0
    try:
        while count := source.readinto(buffer):  # type: ignore[attr-defined]  # every binary file has it
            parts: list[bytes | memoryview] = []
            for start in range(0, count, FRAME_BYTES):
                frame = view[start : min(start + FRAME_BYTES, count)]
                parts += [full_head if len(frame) == FRAME_BYTES else _HEAD.pack(b"DATA", len(frame)), frame]
            connection.send_parts(parts)
            sent_bytes += count
            if progress is not None:
                progress(sent_bytes)
            if connection.readable(0):
                break  # the phone speaks before the end only to say FAIL
        else:
            connection.send(_HEAD.pack(b"DONE", mtime_s & 0xFFFFFFFF))
    except LinkLostError as lost:
        # A phone that fails closes the stream; its reason may still be there to read.
        raise _reason(connection, path) or lost from lost
    _expect_okay(connection, path)
    return sent_bytes


def pull(connection: Connection, path: str, sink: BinaryIO, *, limit_bytes: int | None = None) -> int:
    """Receive a file from the phone into ``sink`` and return its size. The service must be open.

    Raises FileNotFoundError, OverflowError when it is larger than ``limit_bytes``, TransferError, LinkLostError,
    HostStorageError.
    """
    body = encode_path(path)
    connection.send(_HEAD.pack(b"RECV", len(body)) + body)
    received = 0
    while True:
        kind, size = _HEAD.unpack(connection.read_exact(_HEAD.size))
        if kind == b"DONE":
            return received
        if kind == b"FAIL":
            message = connection.read_exact(size).decode("utf-8", "replace")
            if "No such file" in message:
                raise FileNotFoundError(path)
            raise sync_failure(message, serial=connection.serial, path=path)
        if kind != b"DATA" or size > FRAME_BYTES:
            raise _unexpected(connection, kind, path)
        data = connection.read_exact(size)
        received += size
        if limit_bytes is not None and received > limit_bytes:
            raise OverflowError(f"{path} is larger than {limit_bytes} bytes")
        try:
            sink.write(data)
        except OSError as error:
            raise HostStorageError(f"can't keep {path} of {connection.serial}: {error}") from error


def push_timeout_s(source: Path) -> float:
    """Return how long a push of this file may take, on the slowest link that is of use."""
    return 30.0 + source.stat().st_size / _SLOWEST_BYTES_PER_S


def _expect_okay(connection: Connection, path: str) -> None:
    kind, size = _HEAD.unpack(connection.read_exact(_HEAD.size))
    if kind == b"OKAY":
        return
    if kind == b"FAIL":
        raise sync_failure(connection.read_exact(size).decode("utf-8", "replace"), serial=connection.serial, path=path)
    raise _unexpected(connection, kind, path)


def _reason(connection: Connection, path: str) -> DeviceError | None:
    connection.deadline = Deadline(min(2.0, connection.deadline.remaining_s))
    try:
        _expect_okay(connection, path)
    except (LinkLostError, DeviceTimeoutError):
        return None
    except DeviceError as error:
        return error
    return None


def _unexpected(connection: Connection, head: bytes, path: str) -> TransferError:
    return TransferError(f"{path}: the phone's file service answered {head!r}", serial=connection.serial)
