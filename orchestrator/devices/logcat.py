"""The phone's log, followed line by line from a moment on."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Generator, Iterator, Sequence
from typing import Final

from orchestrator.clock import Deadline
from orchestrator.devices.connection import Connection
from orchestrator.devices.link import PhoneLink
from orchestrator.devices.shell import CLOSE_STDIN, EXIT, STDERR, STDOUT, PacketReader, encode_packet, quote
from orchestrator.errors import DeviceCommandError, DeviceTimeoutError, LinkLostError

#: After so long without a line the follower gets ``b""``.
MOMENT_S: Final = 0.1
_BEGIN_TIMEOUT_S: Final = 15.0
#: Following has no deadline of its own: the caller has one.
_FOREVER_S: Final = 7 * 24 * 3600.0
#: A line longer than that isn't from logcat, whose entries end at 4 KB each.
_LONGEST_LINE_BYTES: Final = 1 << 20


@contextlib.contextmanager
def follow_log(link: PhoneLink, *, buffers: Sequence[str] = ("main", "crash")) -> Generator[Iterator[bytes]]:
    """See Device.follow_log. When the context is entered, the phone has fixed the moment from which lines come.

    Lines of up to a second before may come too: old phones' date has whole seconds only.
    """
    ready = f"follow-{secrets.token_hex(8)}"
    chosen = " ".join(f"-b {quote(buffer)}" for buffer in buffers)
    # The shell becomes logcat, so that it is logcat that gets SIGHUP when we hang up.
    command = (
        f"t=$(date '+%m-%d %H:%M:%S.000'); echo {ready}; exec logcat -v threadtime {chosen} -T \"$t\" 2>&1 </dev/null"
    )
    service = "shell:" if link.is_legacy else "shell,v2,raw:"
    with link.open(service + command, Deadline(_BEGIN_TIMEOUT_S, link.clock), what="logcat") as connection:
        if not link.is_legacy:
            connection.send(encode_packet(CLOSE_STDIN))
        lines = _lines(connection, is_legacy=link.is_legacy)
        for line in lines:
            if line == ready.encode():
                break
            if line:
                raise DeviceCommandError(
                    f"the log can't be followed: {line.decode('utf-8', 'replace')}", serial=link.serial
                )
            if connection.deadline.expired:
                raise DeviceTimeoutError("the log didn't begin in time", serial=link.serial)
        connection.deadline = Deadline(_FOREVER_S, link.clock)
        yield (line for line in lines if not line.startswith(b"--------- "))


def _lines(connection: Connection, *, is_legacy: bool) -> Generator[bytes]:
    reader = PacketReader()
    rest = b""
    while True:
        if not connection.readable(MOMENT_S):
            yield b""
            continue
        data = connection.read_some()
        if not data:
            raise LinkLostError("the log's stream ended", serial=connection.serial)
        if not is_legacy:
            data = _output(connection, reader, data)
        rest += data
        *whole, rest = rest.split(b"\n")
        if len(rest) > _LONGEST_LINE_BYTES:
            whole, rest = [*whole, rest], b""
        for line in whole:
            if line := line.rstrip(b"\r"):
                yield line


def _output(connection: Connection, reader: PacketReader, data: bytes) -> bytes:
    output = bytearray()
    try:
        for packet_id, payload in reader.feed(data):
            if packet_id in {STDOUT, STDERR}:
                output += payload
            elif packet_id == EXIT:
                raise LinkLostError(
                    f"logcat ended with exit code {payload[0] if payload else '?'}: {bytes(output[-200:])!r}",
                    serial=connection.serial,
                )
    except ValueError as error:
        raise LinkLostError(f"logcat: {error}", serial=connection.serial) from error
    return bytes(output)
