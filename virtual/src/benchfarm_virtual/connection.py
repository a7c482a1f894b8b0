"""One connection of an adb server to a phone: handshake, proof of the key, and the streams opened
over it.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from selectors import EVENT_READ, EVENT_WRITE
from typing import Final

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from benchfarm_virtual.auth import KeyChallenge
from benchfarm_virtual.contract import StreamClosedError
from benchfarm_virtual.faults import FaultKind, FaultTable
from benchfarm_virtual.loop import LinkLoop
from benchfarm_virtual.stream import (
    AUTH,
    AUTH_SIGNATURE,
    AUTH_TOKEN,
    CLSE,
    CNXN,
    MAX_PAYLOAD_BYTES,
    OKAY,
    OLD_MAX_PAYLOAD_BYTES,
    OPEN,
    VERSION_CHECKSUM,
    VERSION_NO_CHECKSUM,
    WRTE,
    Packet,
    PacketReader,
    Stream,
    WireError,
    checksum,
    header_for,
)

#: Runs in a thread of its own with an opened stream, which it doesn't need to close.
Service = Callable[[Stream], None]

_LOG: Final = logging.getLogger(__name__)

_MAX_PROOFS: Final = 256
#: On a slow link, bytes move in portions that take this long.
_SLOW_PORTION_S: Final = 0.02


@dataclass(slots=True, kw_only=True)
class LinkState:
    """What all connections of one phone share: who may come in, what is served, how the link
    behaves.
    """

    serial: str
    allowed_keys: Sequence[RSAPublicKey]
    banner: Callable[[], bytes]
    #: Maps a service's name to what runs it, or None to refuse it. Called in the loop's thread.
    service_for: Callable[[str], Service | None]
    faults: FaultTable
    hung: bool = False
    #: 0: as fast as it goes.
    bytes_per_s: float = 0.0


class Connection:
    """The phone's end of one TCP connection.

    ``send`` may be called from any thread, the rest in the loop's.
    """

    def __init__(
        self,
        sock: socket.socket,
        loop: LinkLoop,
        link: LinkState,
        on_close: Callable[[Connection], None],
    ) -> None:
        self._sock = sock
        self._loop = loop
        self._link = link
        self._on_close = on_close
        self._reader = PacketReader(self._on_packet, loop.shared_buffer)
        self._challenge = KeyChallenge(link.allowed_keys)
        self._proofs = 0
        self._online = False
        self._max_payload_bytes = OLD_MAX_PAYLOAD_BYTES
        self._streams: dict[int, Stream] = {}
        self._last_id = 0
        self._send_lock = threading.Lock()
        self._queue: deque[memoryview] = deque()
        self._close_when_sent = False
        self._broken = False
        self._gone = False
        self._waits_for_timer = False
        self._read_from_s = 0.0
        self._write_from_s = 0.0
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.refresh()

    @property
    def online(self) -> bool:
        """Whether the adb server has been let in."""
        return self._online

    # Sending

    def send(self, command: int, arg0: int, arg1: int, payload: bytes | memoryview = b"") -> None:
        """Send one packet, at once if the socket takes it; what it doesn't take follows as it can."""
        summed = self._reader.verify or command in (AUTH, CNXN)
        head = header_for(command, arg0, arg1, len(payload), checksum(payload) if summed else 0)
        pieces = [memoryview(head), memoryview(payload)] if payload else [memoryview(head)]
        size = len(head) + len(payload)
        faults = self._link.faults
        passing, cut = faults.advance(FaultKind.CUT, size, subject="down")
        with self._send_lock:
            if self._gone or self._close_when_sent:
                return
            if cut is not None:
                pieces = _first_bytes(pieces, passing)
                self._close_when_sent = True
            if not self._queue and not self._link.hung and not self._link.bytes_per_s:
                pieces = self._send_now(pieces)
            self._queue.extend(pieces)
            waits = bool(self._queue) or self._close_when_sent or self._broken
        if waits:
            self._loop.call(self._flush)
        faults.reach("", size, subject="down")

    def _send_now(self, pieces: list[memoryview]) -> list[memoryview]:
        """Send what the socket takes and return the rest; called under the lock."""
        try:
            sent = self._sock.sendmsg(pieces) if pieces else 0
        except (BlockingIOError, InterruptedError):
            return pieces
        except OSError:
            self._broken = True
            return []
        return _after_bytes(pieces, sent)

    def _flush(self) -> None:
        with self._send_lock:
            if self._gone or self._link.hung:
                return
            rate = self._link.bytes_per_s
            if self._queue and not (rate and time.monotonic() < self._write_from_s):
                pieces = list(self._queue)[:64]
                if rate:
                    pieces = _first_bytes(pieces, max(1, int(rate * _SLOW_PORTION_S)))
                left = self._send_now(pieces)
                sent = sum(map(len, pieces)) - sum(map(len, left))
                self._queue = deque(_after_bytes(list(self._queue), sent))
                if rate:
                    self._write_from_s = time.monotonic() + sent / rate
            over = self._broken or (self._close_when_sent and not self._queue)
        if over:
            self.close()
        else:
            self.refresh()

    # Receiving

    def refresh(self) -> None:
        """Watch the socket for what the link's state allows now; what waited to be sent goes when
        it may.
        """
        if self._gone:
            return
        now_s = time.monotonic()
        events = 0
        if not self._link.hung:
            if now_s >= self._read_from_s:
                events |= EVENT_READ
            if (self._queue or self._close_when_sent) and now_s >= self._write_from_s:
                events |= EVENT_WRITE
        self._loop.watch(self._sock, events, self._on_ready)
        paced_s = [due_s for due_s in (self._read_from_s, self._write_from_s) if due_s > now_s]
        if paced_s and not self._waits_for_timer:
            self._waits_for_timer = True
            self._loop.call_later(min(paced_s) - now_s, self._after_pause)

    def _after_pause(self) -> None:
        self._waits_for_timer = False
        self._flush()
        self.refresh()

    def _on_ready(self, events: int) -> None:
        if events & EVENT_READ and not self._gone:
            self._receive()
        if events & EVENT_WRITE and not self._gone:
            self._flush()

    def _receive(self) -> None:
        rate = self._link.bytes_per_s
        room = self._reader.room()
        if rate:
            room = room[: max(1, int(rate * _SLOW_PORTION_S))]
        try:
            count = self._sock.recv_into(room)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            count = 0
        if count == 0:
            self.close()
            return
        faults = self._link.faults
        passing, cut = faults.advance(FaultKind.CUT, count, subject="up")
        try:
            self._reader.received(passing)
        except WireError:
            self.close()
            return
        if cut is not None:
            self.close()
            return
        faults.reach("", count, subject="up")
        if rate:
            self._read_from_s = time.monotonic() + count / rate
            self.refresh()

    def _on_packet(self, packet: Packet) -> None:
        if self._gone:
            return
        command = packet.command
        if command == WRTE:
            stream = self._streams.get(packet.arg1)
            if stream is not None:
                stream.deliver(packet.payload)
        elif command == OKAY:
            stream = self._streams.get(packet.arg1)
            if stream is not None:
                stream.acknowledged()
        elif command == CLSE:
            self._on_close_packet(packet)
        elif command == OPEN:
            self._on_open(packet)
        elif command == CNXN:
            self._on_connect(packet)
        elif command == AUTH:
            self._on_auth(packet)

    # Handshake

    def _on_connect(self, packet: Packet) -> None:
        self._drop_streams()
        self._online = False
        self._reader.verify = packet.arg0 < VERSION_NO_CHECKSUM
        self._max_payload_bytes = max(OLD_MAX_PAYLOAD_BYTES, min(packet.arg1, MAX_PAYLOAD_BYTES))
        self._ask_for_proof()

    def _ask_for_proof(self) -> None:
        self._proofs += 1
        if self._proofs > _MAX_PROOFS:
            self.close()
            return
        self.send(AUTH, AUTH_TOKEN, 0, self._challenge.next_token())

    def _on_auth(self, packet: Packet) -> None:
        if self._online or packet.arg0 != AUTH_SIGNATURE:
            return  # an offered public key changes nothing: nobody is there to accept it on the screen
        if self._challenge.check(bytes(packet.payload)) and not self._link.faults.active(
            FaultKind.UNAUTHORIZED
        ):
            self._welcome()
        else:
            self._ask_for_proof()

    def admit(self) -> None:
        """Let a server in that has proved its key while the phone let nobody in."""
        if not self._online and self._challenge.proved:
            self._welcome()

    def _welcome(self) -> None:
        version = VERSION_CHECKSUM if self._reader.verify else VERSION_NO_CHECKSUM
        self._online = True
        self.send(CNXN, version, MAX_PAYLOAD_BYTES, self._link.banner())

    # Streams

    def _on_open(self, packet: Packet) -> None:
        name = bytes(packet.payload).rstrip(b"\0").decode("utf-8", "surrogateescape")
        remote_id = packet.arg0
        if not self._online or not remote_id:
            return
        self._link.faults.reach(f"open:{name.partition(':')[0].partition(',')[0]}")
        if self._gone:
            return
        refused = self._link.faults.take(
            FaultKind.CLOSED, f"open:{name.partition(':')[0].partition(',')[0]}"
        )
        service = None if refused is not None else self._link.service_for(name)
        if service is None:
            self.send(CLSE, 0, remote_id)
            return
        self._last_id += 1
        stream = Stream(self._last_id, remote_id, self._send_from_stream, self._max_payload_bytes)
        self._streams[stream.local_id] = stream
        self.send(OKAY, stream.local_id, remote_id)
        try:
            threading.Thread(
                target=_serve,
                args=(service, stream),
                name=f"{self._link.serial} {name[:60]}",
                daemon=True,
            ).start()
        except RuntimeError:
            _LOG.warning("%s: no thread is left for %s", self._link.serial, name[:60])
            stream.finish()

    def _send_from_stream(
        self, command: int, local_id: int, remote_id: int, payload: bytes | memoryview
    ) -> None:
        if command == CLSE:
            self._streams.pop(local_id, None)
        self.send(command, local_id, remote_id, payload)

    def _on_close_packet(self, packet: Packet) -> None:
        stream = self._streams.pop(packet.arg1, None)
        if stream is not None:
            stream.abandon()
            self.send(CLSE, stream.local_id, stream.remote_id)

    def _drop_streams(self) -> None:
        streams, self._streams = list(self._streams.values()), {}
        for stream in streams:
            stream.abandon()

    # The end

    def close(self) -> None:
        """Close the connection and everything opened over it; in the loop's thread."""
        with self._send_lock:
            if self._gone:
                return
            self._gone = True
            self._queue.clear()
            self._loop.watch(self._sock, 0, self._on_ready)
            self._sock.close()
        self._drop_streams()
        self._on_close(self)


def _serve(service: Service, stream: Stream) -> None:
    try:
        service(stream)
    except (StreamClosedError, EOFError):
        pass  # the client has gone, as clients do
    except Exception:  # noqa: BLE001 - logged whole; the other phones go on
        _LOG.exception("a service of a virtual phone failed")
    finally:
        stream.finish()


def _first_bytes(pieces: Sequence[memoryview], count: int) -> list[memoryview]:
    kept = []
    for piece in pieces:
        if count <= 0:
            break
        kept.append(piece[:count])
        count -= len(kept[-1])
    return kept


def _after_bytes(pieces: Sequence[memoryview], count: int) -> list[memoryview]:
    rest = []
    for piece in pieces:
        dropped = min(count, len(piece))
        count -= dropped
        if dropped < len(piece):
            rest.append(piece[dropped:])
    return rest
