"""Messages reach their server as they should, and one that doesn't answer holds nobody up."""

import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.errors import UsageError
from orchestrator.extensions.history.notifying import find_receiver, send
from orchestrator.plugins import Message, Receiver
from tests.samples.records import settings_in

TEXT = "2 changes, in 1 series\n\n..a line that begins with a dot: Größe\n"
MESSAGE = Message(content={"groups": []}, text=TEXT)

Server = Callable[[type[socketserver.BaseRequestHandler]], str]


@pytest.fixture
def server() -> Iterator[Server]:
    """Start a server for a handler; returns ``HOST:PORT``."""
    with_threads: list[socketserver.ThreadingTCPServer] = []

    def start(handler: type[socketserver.BaseRequestHandler]) -> str:
        found = socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler)
        found.daemon_threads = True
        threading.Thread(target=found.serve_forever, daemon=True).start()
        with_threads.append(found)
        return f"127.0.0.1:{found.server_address[1]}"

    yield start
    for item in with_threads:
        item.shutdown()
        item.socket.close()


def to(address: str) -> Receiver:
    settings = settings_in(Path("/nowhere"))
    return find_receiver(address, settings)


def test_a_server_that_does_not_answer_is_abandoned(server: Server) -> None:
    tried = []

    class Silent(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            tried.append(self)
            while self.request.recv(65536):
                pass

    receiver = to(f"http://{server(Silent)}/hooks/secret")
    told = send(receiver, MESSAGE, answer_s=0.2, pause_s=0.0)
    assert f"the message to {receiver.name} wasn't delivered: " in told
    assert "secret" not in told
    assert len(tried) == 3


def test_what_is_no_address_is_refused_before_anything_is_read() -> None:
    with pytest.raises(UsageError, match="it is no address of http, https"):
        to("ftp://h")
