"""The phone's shell: commands with an exit code that must come, over shell protocol v2."""

from __future__ import annotations

import signal
import struct
import threading
from collections.abc import Iterator
from typing import Final

from orchestrator.devices.connection import Connection, without_stack
from orchestrator.errors import InterruptedByUserError, LinkLostError
from orchestrator.files import OUTPUT_MOST_BYTES, BothEnds
from orchestrator.ports import ShellResult
from orchestrator.records.failures import next_step_of, service_failure
from orchestrator.scripts import Answer

#: Ids of shell protocol v2's packets: one byte id, four bytes little-endian length, payload.
STDIN: Final = 0
STDOUT: Final = 1
STDERR: Final = 2
EXIT: Final = 3
CLOSE_STDIN: Final = 4
#: An exit code above it is that of a process which a signal ended: this and the signal's number.
BY_SIGNAL: Final = 128
_HEAD: Final = struct.Struct("<BI")
#: A length above this isn't from a shell; adb's own largest payload is 1 MiB.
_LONGEST_PACKET_BYTES: Final = 64 << 20
_STDIN_PACKET_BYTES: Final = 1 << 16
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
    lines = (line.strip() for line in said.splitlines() if service_failure(line) == code)
    return next((f"{line} ({code}). {next_step_of(code)}" for line in lines), "")


def encode_packet(packet_id: int, payload: bytes = b"") -> bytes:
    """Return one packet of shell protocol v2."""
    return _HEAD.pack(packet_id, len(payload)) + payload


class PacketReader:
    """Cuts a stream of bytes into packets of shell protocol v2, however the stream was torn."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Take bytes as they came; yield (id, payload) of each packet that is whole now.

        Raises ValueError.
        """
        self._rest += data
        start = 0
        try:
            while len(self._rest) - start >= _HEAD.size:
                packet_id, size = _HEAD.unpack_from(self._rest, start)
                if size > _LONGEST_PACKET_BYTES:
                    raise ValueError(f"a packet of {size} bytes isn't from a shell")
                end = start + _HEAD.size + size
                if len(self._rest) < end:
                    break
                payload = bytes(self._rest[start + _HEAD.size : end])
                start = end
                yield packet_id, payload
        finally:
            del self._rest[:start]


def run_shell(
    connection: Connection,
    command: str,
    *,
    stdin: bytes = b"",
    cancelled: threading.Event | None = None,
    most_bytes: int = OUTPUT_MOST_BYTES,
) -> ShellResult:
    """Run a command on a connection whose transport is chosen; its standard input ends after
    ``stdin``.

    Of a stream of more than ``most_bytes`` both ends are kept, with a line between them that says
    so.

    Raises LinkLostError when the connection ends before the exit packet, InterruptedByUserError
    when ``cancelled`` is set (what runs gets SIGHUP).
    """
    connection.request("shell,v2,raw:" + command)
    outgoing = memoryview(
        b"".join(
            encode_packet(STDIN, stdin[i : i + _STDIN_PACKET_BYTES])
            for i in range(0, len(stdin), _STDIN_PACKET_BYTES)
        )
        + encode_packet(CLOSE_STDIN)
    )
    reader, stdout, stderr = PacketReader(), BothEnds(most_bytes), BothEnds(most_bytes)
    while True:
        if cancelled is not None and cancelled.is_set():
            raise InterruptedByUserError
        sent, data = connection.exchange(
            outgoing, wait_s=float("inf") if cancelled is None else CANCEL_LOOK_S
        )
        outgoing = outgoing[sent:]
        if data is None:
            continue
        if not data:
            raise LinkLostError(
                f"{connection.what}: the link ended before the exit code of the command",
                serial=connection.serial,
            )
        try:
            for packet_id, payload in reader.feed(data):
                if packet_id == STDOUT:
                    stdout.add(payload)
                elif packet_id == STDERR:
                    stderr.add(payload)
                elif packet_id == EXIT and payload:
                    return ShellResult(
                        exit_code=payload[0], stdout=stdout.content(), stderr=stderr.content()
                    )
        except ValueError as error:
            raise LinkLostError(f"{connection.what}: {error}", serial=connection.serial) from error
