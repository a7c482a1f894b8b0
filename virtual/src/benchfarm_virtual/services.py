"""The services that a client can open on a phone: shell, exec, sync and reboot.

The names are those of SERVICES.TXT in the Android Open Source Project's adb.

In the shell protocol every piece of data has a head of one byte (which stream) and a 32-bit length;
the exit code is a piece of its own. Source of the format: shell_protocol.h in the Android Open
Source Project's adb.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from benchfarm_virtual.contract import ShellSession, StreamClosedError
from benchfarm_virtual.faults import Cut, FaultKind, FaultTable
from benchfarm_virtual.link import Service
from benchfarm_virtual.stream import Stream
from benchfarm_virtual.sync import SyncService
from benchfarm_virtual.userland import run_command

if TYPE_CHECKING:
    from benchfarm_virtual.userland import PhoneSystem


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
        self._answer = Cut(faults, FaultKind.ANSWER_CUT, moment)

    def write(self, framed_as: int | None, data: bytes) -> None:
        """Write to the stream, with the shell protocol's head when ``framed_as`` says which of its
        streams it is.
        """
        for start in range(0, len(data), _PIECE_BYTES):
            piece = data[start : start + _PIECE_BYTES]
            passing, cut = self._faults.advance(FaultKind.OUTPUT_CUT, len(piece), self._moment)
            if piece := self._answer.passing(piece[:passing]):
                self._stream.write(
                    piece if framed_as is None else _HEAD.pack(framed_as, len(piece)) + piece
                )
            if cut is not None:
                self._stream.finish()
                raise StreamClosedError("the output is cut off on request")

    def exit(self, code: int) -> None:
        """Send the exit code of the shell protocol."""
        self._stream.write(_HEAD.pack(_EXIT, 1) + bytes([code & 0xFF]))


class FramedInput:
    """Stdin in the shell protocol; its end can be told apart from the stream's."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._left_bytes = 0
        self._ended = False

    def read(self, limit: int) -> bytes:
        """Block until at least one byte is there; ``b""`` is the end."""
        try:
            while not self._left_bytes and not self._ended:
                kind, length = _HEAD.unpack(self._stream.exactly(_HEAD.size))
                if kind == _STDIN:
                    self._left_bytes = length
                elif kind == _CLOSE_STDIN:
                    self._ended = True
                else:
                    self._stream.exactly(length)  # the window's size, which matters to nothing here
        except EOFError:
            self._ended = True
        data = b"" if self._ended else self._stream.read(min(limit, self._left_bytes))
        self._left_bytes -= len(data)
        self._ended = not data
        return data


#: What a phone says it can do; only what is served here.
FEATURES: Final = (
    "shell_v2",
    "cmd",
    "fixed_push_mkdir",
    "fixed_push_symlink_timestamp",
)
#: What an ``adb shell`` without a command runs.
_NO_COMMAND: Final = "echo 'a virtual phone has no shell to type in: adb shell COMMAND' >&2; exit 1"


@dataclass(slots=True, kw_only=True)
class ServiceDesk:
    """Maps the name of a service to what runs it, for one phone."""

    system: PhoneSystem
    faults: FaultTable
    #: True for a phone without shell_v2.
    legacy: bool
    reboot: Callable[[], None]

    def service_for(self, name: str) -> Service | None:
        """Return the service of this name, or None."""
        head, _, rest = name.partition(":")
        kind, *options = head.split(",")
        if kind == "shell":
            return self._shell(options, rest)
        if kind == "exec":
            return lambda stream: self._run(stream, rest, "exec")
        if kind == "sync":
            return SyncService(self.system.files, self.faults)
        if kind == "reboot":  # whatever it is to start into
            return lambda stream: self.reboot()
        return None

    # Commands

    def _shell(self, options: list[str], command: str) -> Service | None:
        command, framed = command or _NO_COMMAND, "v2" in options
        if framed and self.legacy:
            return None
        return lambda stream: self._run(stream, command, "shell", framed=framed)

    def _run(
        self,
        stream: Stream,
        command: str,
        moment: str,
        *,
        framed: bool = False,
    ) -> None:
        """Run a command.

        Without frames its exit code is lost, and its output is one stream.
        """
        outlet = Outlet(stream, self.faults, moment)
        banner = self.faults.active(FaultKind.BANNER)
        stdout = partial(outlet.write, STDOUT if framed else None)
        stderr = partial(outlet.write, STDERR if framed else None)
        if banner is not None:
            stdout(f"{banner.text('text')}\n".encode())
        session = ShellSession(
            stdin=FramedInput(stream).read if framed else stream.read,
            stdout=stdout,
            stderr=stderr,
            hangup=stream.hangup,
        )
        code = run_command(self.system, command, session)
        if framed:
            outlet.exit(code)
