"""What is asked of an adb server: a proxy in front of one, which writes down every request, and may
refuse some."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from types import TracebackType


class Overheard:
    """A context manager: an address that answers as the adb server at ``port`` does."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._lock = threading.Lock()
        #: The server's name for a phone (empty: the server itself), and what was asked of it.
        self.requests: list[tuple[str, str]] = []
        #: Beginnings of requests to phones that are refused once, and the words for it.
        self.refusals: dict[str, str] = {}
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])

    def of(self, address: str) -> list[str]:
        """Return what was asked of one phone, or about it."""
        with self._lock:
            return [asked for name, asked in self.requests if name == address]

    def forget(self) -> None:
        """Begin again."""
        with self._lock:
            self.requests.clear()

    def __enter__(self) -> Overheard:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._server_port))
                threading.Thread(target=self._forward, args=(client, server), daemon=True).start()
                threading.Thread(target=_copy, args=(server, client), daemon=True).start()

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        """Send on what a client says; its first request, and the one after a transport's, are
        written down.
        """
        with suppress(OSError):
            message = _request(client)
            told = _text(message)
            if told.startswith("host:transport:"):
                server.sendall(message)
                message = _request(client)
                self._note(told.removeprefix("host:transport:"), _text(message))
                if why := self._refusal(_text(message)):
                    client.sendall(b"FAIL%04x%s" % (len(why), why.encode()))
                    client.shutdown(socket.SHUT_RDWR)
                    return
            elif told.startswith("host-serial:"):
                address, _, asked = told.removeprefix("host-serial:").rpartition(":")
                self._note(address, f"host-{asked}")
            else:
                self._note("", told)
            # Not before it is written down: whoever has the answer looks.
            server.sendall(message)
        _copy(client, server)

    def _refusal(self, asked: str) -> str:
        with self._lock:
            begun = next((begin for begin in self.refusals if asked.startswith(begin)), "")
            return self.refusals.pop(begun) if begun else ""

    def _note(self, address: str, asked: str) -> None:
        with self._lock:
            self.requests.append((address, asked))


def _request(client: socket.socket) -> bytes:
    head = client.recv(4, socket.MSG_WAITALL)
    if len(head) < 4:
        raise OSError("the client has gone")
    return head + client.recv(int(head, 16), socket.MSG_WAITALL)


def _text(message: bytes) -> str:
    return message[4:].decode("utf-8", "replace")


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    with suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
