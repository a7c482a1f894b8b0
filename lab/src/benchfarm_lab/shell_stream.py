"""A service's stdin, stdout and stderr over one stream: framed (shell protocol, v2), plain (v1, exec), or a terminal.

In the shell protocol every piece of data has a head of one byte (which stream) and a 32-bit length; the exit code is a
piece of its own. Source of the format: shell_protocol.h in the Android Open Source Project's adb.
"""

from __future__ import annotations

import struct
from typing import Final

from benchfarm_lab.contract import StreamClosedError
from benchfarm_lab.faults import FaultKind, FaultTable
from benchfarm_lab.stream import Stream, StreamReader

_HEAD: Final = struct.Struct("<BI")
_STDIN: Final = 0
STDOUT: Final = 1
STDERR: Final = 2
_EXIT: Final = 3
_CLOSE_STDIN: Final = 4
#: A piece of output that is longer goes out in several.
_PIECE_BYTES: Final = 256 * 1024


class Outlet:
    """Where all of a service's output passes; the fault that cuts it off sits here."""

    def __init__(self, stream: Stream, faults: FaultTable, moment: str) -> None:
        self._stream = stream
        self._faults = faults
        self._moment = moment

    def write(self, data: bytes, *, framed_as: int | None = None) -> None:
        """Write to the stream, with the shell protocol's head when ``framed_as`` says which of its streams it is."""
        for start in range(0, len(data), _PIECE_BYTES):
            piece = data[start : start + _PIECE_BYTES]
            passing, cut = self._faults.advance(FaultKind.OUTPUT_CUT, len(piece), self._moment)
            piece = piece[:passing]
            if piece:
                self._stream.write(piece if framed_as is None else _HEAD.pack(framed_as, len(piece)) + piece)
            if cut is not None:
                self._stream.finish()
                raise StreamClosedError("the output is cut off on request")

    def exit(self, code: int) -> None:
        """Send the exit code of the shell protocol."""
        self._stream.write(_HEAD.pack(_EXIT, 1) + bytes([code & 0xFF]))


class Output:
    """One of a service's output streams."""

    def __init__(self, outlet: Outlet, *, framed_as: int | None = None) -> None:
        self._outlet = outlet
        self._framed_as = framed_as

    def write(self, data: bytes) -> None:
        """Write all of ``data``; raise StreamClosedError when nobody reads any more."""
        self._outlet.write(data, framed_as=self._framed_as)


class FramedInput:
    """Stdin in the shell protocol; its end can be told apart from the stream's."""

    def __init__(self, reader: StreamReader) -> None:
        self._reader = reader
        self._left_bytes = 0
        self._ended = False

    def read(self, limit: int = -1) -> bytes:
        """Block until at least one byte is there; ``b""`` is the end. A negative limit reads to the end."""
        if limit < 0:
            return b"".join(iter(lambda: self.read(1 << 20), b""))
        try:
            while not self._left_bytes and not self._ended:
                kind, length = _HEAD.unpack(self._reader.exactly(_HEAD.size))
                if kind == _STDIN:
                    self._left_bytes = length
                elif kind == _CLOSE_STDIN:
                    self._ended = True
                else:
                    self._reader.exactly(length)  # the window's size, which matters to nothing here
        except EOFError:
            self._ended = True
        if self._ended:
            return b""
        data = bytes(self._reader.take(min(limit, self._left_bytes)))
        self._left_bytes -= len(data)
        self._ended = not data and limit != 0
        return data
