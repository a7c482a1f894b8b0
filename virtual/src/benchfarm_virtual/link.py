"""A phone's end of adb's link on 127.0.0.1: it accepts adb servers, has them prove their key, and
serves the streams that they open; it can go away and come back on the same port.

A packet is a header of six little-endian 32-bit words (command, two arguments, payload length,
checksum, command with all bits turned over), then the payload; protocol.txt of the Android Open
Source Project says so. Each connection has a thread that reads it, each opened stream one that
serves it.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from benchfarm_virtual.auth import KeyChallenge
from benchfarm_virtual.contract import StreamClosedError, decoded
from benchfarm_virtual.faults import FaultKind, FaultTable
from benchfarm_virtual.stream import AUTH, CLSE, CNXN, OKAY, OPEN, WRTE, Stream

#: Runs in a thread of its own with an opened stream, which it doesn't need to close.
Service = Callable[[Stream], None]

#: The only address that a virtual phone ever listens on.
LOOPBACK: Final = "127.0.0.1"
_LOG: Final = logging.getLogger(__name__)
_HEADER: Final = struct.Struct("<6I")
#: The first version that does without a checksum in every packet; servers since 2016 have it.
_VERSION: Final = 0x01000001
#: The largest payload that this side takes.
_MAX_PAYLOAD_BYTES: Final = 1024 * 1024
_AUTH_TOKEN: Final = 1
_AUTH_SIGNATURE: Final = 2
#: On a slow link, bytes move in portions that take this long.
_SLOW_PORTION_S: Final = 0.02
_ACCEPT_PAUSE_S: Final = 1.0
#: How long closing waits for the accepting thread, and how often a hanging connection checks whether
#: it was closed.
_ACCEPT_END_S: Final = 5.0
_HUNG_POLL_S: Final = 0.2


class _WireError(Exception):
    """The link ended, or received data is no packet; the connection has to be closed."""


class Connection:
    """The phone's end of one TCP connection. Methods may be called from any thread."""

    def __init__(self, sock: socket.socket, server: PhoneServer) -> None:
        self._sock = sock
        self._server = server
        self._challenge = KeyChallenge(server.allowed_keys)
        #: Whether the adb server has been let in.
        self.online = False
        self._max_payload_bytes = _MAX_PAYLOAD_BYTES
        self._streams: dict[int, Stream] = {}
        self._last_id = 0
        self._send_lock = threading.Lock()
        self._unsent = bytearray()
        self._gone = False
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def start(self) -> None:
        """Read it from now on, in a thread of its own."""
        threading.Thread(
            target=self._read_all, name=f"{self._server.serial} link", daemon=True
        ).start()

    # Sending

    def send(self, command: int, arg0: int, arg1: int, payload: bytes = b"") -> None:
        """Send one packet; while the link hangs, it is held back."""
        # Servers check the sum until both sides have agreed to skip it.
        total = sum(payload) & 0xFFFFFFFF if command in (AUTH, CNXN) else 0
        head = _HEADER.pack(command, arg0, arg1, len(payload), total, command ^ 0xFFFFFFFF)
        size = len(head) + len(payload)
        passing, cut = self._server.faults.advance(FaultKind.CUT, size, subject="down")
        with self._send_lock:
            self._unsent += b"".join((head, payload))[:passing]
            self._flush()
        if cut is not None:
            self.close()
        self._server.faults.reach("", size, subject="down")

    def resume(self) -> None:
        """Send the packets that were held back while the link hung."""
        with self._send_lock:
            self._flush()

    def _flush(self) -> None:
        data, self._unsent = memoryview(self._unsent), bytearray()
        try:
            while data and not self._gone:
                if not self._server.flows.is_set():
                    self._unsent = bytearray(data)
                    return
                count = self._server.portion(len(data))
                self._sock.sendall(data[:count])
                self._server.pace(count)
                data = data[count:]
        except OSError:
            self._hang_up()

    # Receiving

    def _read_all(self) -> None:
        try:
            self._server.faults.reach("connect")
            while not self._gone:
                self._take_packet()
        except (OSError, _WireError):
            pass
        except Exception:  # noqa: BLE001 - logged whole; the other phones go on
            _LOG.exception("a link of a virtual phone failed")
        finally:
            self.close()
            with self._send_lock:
                self._sock.close()

    def _take_packet(self) -> None:
        head = _HEADER.unpack(self._exactly(_HEADER.size))
        command, arg0, arg1, length, _, magic = head
        if magic != command ^ 0xFFFFFFFF or length > _MAX_PAYLOAD_BYTES:
            raise _WireError
        payload = self._exactly(length)
        if not self._gone:
            self._on_packet(command, arg0, arg1, payload)

    def _exactly(self, count: int) -> bytearray:
        data = bytearray(count)
        remaining = memoryview(data)
        faults = self._server.faults
        while remaining:
            received = self._sock.recv_into(remaining[: self._server.portion(len(remaining))])
            if not received:
                raise _WireError
            while not self._server.flows.wait(_HUNG_POLL_S):
                if self._gone:
                    raise _WireError
            _, cut = faults.advance(FaultKind.CUT, received, subject="up")
            if cut is not None:
                raise _WireError
            self._server.pace(received)
            faults.reach("", received, subject="up")
            remaining = remaining[received:]
        return data

    def _on_packet(self, command: int, arg0: int, arg1: int, payload: bytearray) -> None:
        if command == OPEN:
            self._on_open(arg0, payload)
        elif command == CNXN:
            self._drop_streams()
            self.online = False
            self._max_payload_bytes = min(arg1, _MAX_PAYLOAD_BYTES)
            self._ask_for_proof()
        elif command == AUTH:
            # An offered public key changes nothing: nobody is there to accept it on the screen.
            if not self.online and arg0 == _AUTH_SIGNATURE:
                self._on_signature(payload)
        elif (stream := self._streams.get(arg1)) is not None:
            if command == WRTE:
                stream.deliver(payload)
            elif command == OKAY:
                stream.acknowledged()
            elif command == CLSE:
                self._streams.pop(arg1, None)  # its service may be ending it at this moment
                stream.abandon()
                self.send(CLSE, stream.local_id, stream.remote_id)

    # Handshake

    def _ask_for_proof(self) -> None:
        self.send(AUTH, _AUTH_TOKEN, 0, self._challenge.next_token())

    def _on_signature(self, signature: bytearray) -> None:
        is_right = self._challenge.check(bytes(signature))
        if is_right and not self._server.faults.active(FaultKind.UNAUTHORIZED):
            self._welcome()
        else:
            self._ask_for_proof()

    def admit(self) -> None:
        """Let a server in that has proved its key while the phone let nobody in."""
        if not self.online and self._challenge.proved:
            self._welcome()

    def _welcome(self) -> None:
        self.online = True
        self.send(CNXN, _VERSION, _MAX_PAYLOAD_BYTES, self._server.banner())

    # Streams

    def _on_open(self, remote_id: int, payload: bytearray) -> None:
        name = decoded(payload.rstrip(b"\0"))
        if not self.online or not remote_id:
            return
        moment = f"open:{name.partition(':')[0].partition(',')[0]}"
        self._server.faults.reach(moment)
        if self._gone:
            return
        is_refused = self._server.faults.take(FaultKind.CLOSED, moment) is not None
        service = None if is_refused else self._server.service_for(name)
        if service is None:
            self.send(CLSE, 0, remote_id)
            return
        self._last_id += 1
        stream = Stream(self._last_id, remote_id, self._send_from_stream, self._max_payload_bytes)
        self._streams[stream.local_id] = stream
        self.send(OKAY, stream.local_id, remote_id)
        thread = threading.Thread(
            target=_serve,
            args=(service, stream),
            name=f"{self._server.serial} {name[:60]}",
            daemon=True,
        )
        thread.start()

    def _send_from_stream(
        self, command: int, local_id: int, remote_id: int, payload: bytes
    ) -> None:
        if command == CLSE:
            self._streams.pop(local_id, None)
        self.send(command, local_id, remote_id, payload)

    def _drop_streams(self) -> None:
        streams, self._streams = list(self._streams.values()), {}
        for stream in streams:
            stream.abandon()

    # The end

    def close(self) -> None:
        """Close the connection and everything opened over it."""
        self._hang_up()
        self._drop_streams()
        self._server.connections.discard(self)

    def _hang_up(self) -> None:
        """End both directions; the thread that reads sees it, and lets go of the socket."""
        self._gone = True
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)


def _serve(service: Service, stream: Stream) -> None:
    try:
        service(stream)
    except (StreamClosedError, EOFError):
        pass  # the client has gone, as clients do
    except Exception:  # noqa: BLE001 - logged whole; the other phones go on
        _LOG.exception("a service of a virtual phone failed")
    finally:
        stream.finish()


class PhoneServer:
    """Listens for one phone, and is what its connections share: allowed keys, services, the link's
    behaviour. Methods may be called from any thread.
    """

    def __init__(
        self,
        serial: str,
        allowed_keys: Sequence[RSAPublicKey],
        faults: FaultTable,
        *,
        banner: Callable[[], bytes],
        service_for: Callable[[str], Service | None],
    ) -> None:
        """``service_for``: a service's name -> its function, or None to refuse it."""
        self.serial = serial
        self.allowed_keys = allowed_keys
        self.faults = faults
        self.banner = banner
        self.service_for = service_for
        #: Set while nothing is held back: a link that hangs is neither read nor written.
        self.flows = threading.Event()
        self.flows.set()
        #: 0: as fast as it goes.
        self.bytes_per_s = 0.0
        self._listener: socket.socket | None = None
        #: Holds the port while the phone is away.
        self._reserved: socket.socket | None = None
        self._acceptor: threading.Thread | None = None
        self.connections: set[Connection] = set()
        self.port = 0

    def pace(self, count_bytes: int) -> None:
        """Wait for the time of ``count_bytes`` bytes on a slow link."""
        rate = self.bytes_per_s  # another thread may change it between two reads
        if rate:
            time.sleep(count_bytes / rate)

    def portion(self, count_bytes: int) -> int:
        """Return how many of ``count_bytes`` bytes move at once."""
        rate = self.bytes_per_s
        if not rate:
            return count_bytes
        return min(count_bytes, max(1, int(rate * _SLOW_PORTION_S)))

    @property
    def listening(self) -> bool:
        """Whether an adb server could connect now."""
        return self._listener is not None

    def listen(self, port: int) -> None:
        """Listen on a port (0: a free one); raise OSError when it can't be had."""
        self._accept_from(_bound_socket(port))

    def close(self) -> None:
        """Stop listening and close every connection."""
        listener, self._listener = self._listener, None
        if listener is not None and self._acceptor is not None:
            # Wakes the accepting thread: on Linux at once, elsewhere at the next connection.
            try:
                listener.shutdown(socket.SHUT_RDWR)
            except OSError:
                with contextlib.suppress(OSError):
                    socket.create_connection((LOOPBACK, self.port), timeout=_ACCEPT_PAUSE_S).close()
            self._acceptor.join(timeout=_ACCEPT_END_S)
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None
        self.drop_connections()

    def go_offline(self) -> None:
        """As close, but reserve the port until go_online."""
        self.close()
        with contextlib.suppress(OSError):  # another process took it; go_online raises the error
            self._reserved = _bound_socket(self.port)

    def go_online(self) -> None:
        """Listen again on the port that go_offline reserved; raise OSError when it was lost."""
        reserved, self._reserved = self._reserved, None
        self._accept_from(reserved or _bound_socket(self.port))

    def drop_connections(self) -> None:
        """Close every connection; the phone goes on listening."""
        self._each(Connection.close)

    def hang(self, *, hung: bool) -> None:
        """Hold everything back, or let it go on."""
        if hung:
            self.flows.clear()
        else:
            self.flows.set()
            self._each(Connection.resume)

    def admit(self) -> None:
        """Let in the servers that had proved their key while the phone let nobody in."""
        self._each(Connection.admit)

    def _each(self, action: Callable[[Connection], None]) -> None:
        for connection in tuple(self.connections):
            action(connection)

    def _accept_from(self, sock: socket.socket) -> None:
        sock.listen(16)
        self._listener = sock
        self.port = sock.getsockname()[1]
        self._acceptor = threading.Thread(
            target=self._accept, args=(sock,), name=f"{self.serial} listens", daemon=True
        )
        self._acceptor.start()

    def _accept(self, listener: socket.socket) -> None:
        with listener:
            while self._listener is listener:
                try:
                    sock, _ = listener.accept()
                except OSError:
                    if self._listener is listener:
                        # No descriptor is left: trying on would only spin.
                        time.sleep(_ACCEPT_PAUSE_S)
                    continue
                try:
                    if self._listener is not listener:
                        raise RuntimeError("the phone went away")
                    connection = Connection(sock, self)
                    self.connections.add(connection)
                    connection.start()
                except (OSError, RuntimeError) as failed:  # the phone goes on listening
                    _LOG.warning("%s: no connection was made: %s", self.serial, failed)
                    sock.close()


def _bound_socket(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((LOOPBACK, port))
    return sock
