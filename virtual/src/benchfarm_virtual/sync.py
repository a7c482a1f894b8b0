"""The ``sync:`` service: files to a phone, as ``adb push`` sends them.

A request is a four-letter name, a length and that many bytes (usually a path). STAT and SEND of the first
version are served. Source of the format: SYNC.TXT in the Android Open Source
Project's adb.
"""

from __future__ import annotations

import contextlib
import errno
import struct
from collections.abc import Callable, Iterator
from stat import S_ISREG
from typing import TYPE_CHECKING, Final

from benchfarm_virtual.contract import PhoneFileError, StreamClosedError, decoded, encoded
from benchfarm_virtual.faults import FaultKind, FaultTable
from benchfarm_virtual.processes import as_user
from benchfarm_virtual.stream import Stream

if TYPE_CHECKING:
    from benchfarm_virtual.files import PhoneTree
    from benchfarm_virtual.open_files import OpenFile

_HEAD: Final = struct.Struct("<4sI")
_STAT: Final = struct.Struct("<4s3I")
#: The largest DATA frame that clients take.
_DATA_BYTES: Final = 64 * 1024


class _SyncFailedError(Exception):
    """A request failed; the client gets FAIL with this text."""


@contextlib.contextmanager
def _reported(step: str) -> Iterator[None]:
    """Tell the client of a step in which a file operation failed."""
    try:
        yield
    except PhoneFileError as fault:
        raise _SyncFailedError(f"{step}: {fault}") from None


class SyncService:
    """Serves one ``sync:`` stream until the client says QUIT or goes away."""

    def __init__(self, files: PhoneTree, faults: FaultTable) -> None:
        self._files = files
        self._faults = faults

    def __call__(self, stream: Stream) -> None:
        """Answer requests one after the other."""
        requests: dict[bytes, Callable[[str, Stream], None]] = {
            b"STAT": self._stat,
            b"SEND": self._send,
        }
        while True:
            name, length = _HEAD.unpack(stream.exactly(_HEAD.size))
            request = requests.get(name)
            if request is None:  # QUIT
                return
            path = decoded(stream.exactly(length))
            try:
                request(path, stream)
            except _SyncFailedError as failed:
                stream.write(_fail(str(failed)))

    # What a path is

    def _stat(self, path: str, stream: Stream) -> None:
        try:
            stat = self._files.stat(path, follow=False)
        except PhoneFileError:
            stream.write(_STAT.pack(b"STAT", 0, 0, 0))
            return
        stream.write(
            _STAT.pack(b"STAT", stat.mode, stat.size_bytes & 0xFFFFFFFF, stat.mtime_s & 0xFFFFFFFF)
        )

    # To the phone

    def _send(self, spec: str, stream: Stream) -> None:
        """Take DATA frames up to DONE into the file that ``spec`` names, with its mode.

        A failure is told at once, the rest of the data is thrown away.
        """
        path, _, mode_text = spec.rpartition(",")
        mode = int(mode_text, 0)
        self._faults.reach("push", subject=path)
        writer: OpenFile | None = None
        try:
            writer = self._create(path, mode)
            mtime_s = self._copy_frames(path, stream, writer)
            # What has no mode of its own, such as /dev/null, is written all the same.
            with as_user(0), contextlib.suppress(PhoneFileError):
                self._files.set_mode(path, _as_adbd(mode))
                self._files.set_times(path, mtime_s)
        except _SyncFailedError as failed:
            if writer is not None:
                self._discard(path)
            stream.write(_fail(str(failed)))
            self._skip_data(stream)
            return
        except (EOFError, StreamClosedError):
            if writer is not None:
                self._discard(path)
            raise
        self._faults.reach("push:done", subject=path)
        stream.write(_HEAD.pack(b"OKAY", 0))

    def _create(self, path: str, mode: int) -> OpenFile:
        if (file_stat := self._files.find(path, follow=False)) and S_ISREG(file_stat.mode):
            # A running program has its file open: adbd unlinks before it writes.
            self._discard(path)
        with _reported("couldn't create file"):
            try:
                return self._files.open_write(path, mode=_as_adbd(mode))
            except PhoneFileError as fault:
                if fault.errno != errno.ENOENT:
                    raise
        with _reported("secure_mkdirs failed"):
            self._files.make_folders(path.rstrip("/").rpartition("/")[0] or "/")
        with _reported("couldn't create file"):
            return self._files.open_write(path, mode=_as_adbd(mode))

    def _copy_frames(self, path: str, stream: Stream, writer: OpenFile) -> int:
        """Write the frames' data; return the time that comes with DONE."""
        while True:
            name, value = _HEAD.unpack(stream.exactly(_HEAD.size))
            if name == b"DONE":
                return int(value)
            if name != b"DATA" or value > _DATA_BYTES:
                raise _SyncFailedError(f"invalid data message: {name!r} of {value} bytes")
            data = stream.exactly(value)
            with _reported("write failed"):
                writer.write(self._maybe_flipped(data, path))
            self._faults.reach("push", value, subject=path)

    def _discard(self, path: str) -> None:
        """Remove a file, such as one that was only half written when the link ended."""
        with contextlib.suppress(PhoneFileError):
            self._files.remove(path)

    def _skip_data(self, stream: Stream) -> None:
        while True:
            name, value = _HEAD.unpack(stream.exactly(_HEAD.size))
            if name != b"DATA":
                return
            stream.exactly(value)

    def _maybe_flipped(self, data: bytes, path: str) -> bytes:
        passing, flip = self._faults.advance(FaultKind.BIT_FLIP, len(data), "push", subject=path)
        if flip is None or passing >= len(data):
            return data
        return data[:passing] + bytes([data[passing] ^ 1]) + data[passing + 1 :]


def _as_adbd(mode: int) -> int:
    """Return the permission bits that adbd gives a pushed file: group and others get the user's."""
    mode &= 0o777
    mode |= (mode >> 3) & 0o070
    return mode | (mode >> 3) & 0o007


def _fail(text: str) -> bytes:
    message = encoded(text)
    return _HEAD.pack(b"FAIL", len(message)) + message
