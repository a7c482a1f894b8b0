"""Connections to an adb server that can't take all of them at once."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from orchestrator.clock import Deadline
from orchestrator.devices.sockets import Connection, ServerAddress
from orchestrator.errors import AdbUnavailableError


@pytest.fixture
def busy_server(tmp_path: Path) -> Iterator[tuple[ServerAddress, socket.socket, ExitStack]]:
    """A server's socket with a full queue of connections, as adb's is when forty phones begin."""
    path = tmp_path / "adb.socket"
    with socket.socket(socket.AF_UNIX) as server, ExitStack() as held:
        server.bind(str(path))
        server.listen(1)
        server.settimeout(30)
        while True:
            client = held.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            try:
                client.connect(str(path))
            except BlockingIOError:
                break
        yield ServerAddress(path=str(path)), server, held


def test_many_connections_at_once_wait_for_room_in_the_servers_queue(
    busy_server: tuple[ServerAddress, socket.socket, ExitStack],
) -> None:
    address, server, held = busy_server
    answered = threading.Event()

    def ask(_: int) -> bytes:
        with Connection(address, Deadline(30), what="asking") as connection:
            assert connection.read_exact(4) == b"OKAY"
        return b"OKAY"

    def serve() -> None:
        while not answered.is_set():
            client, _ = server.accept()
            held.enter_context(client)
            with suppress(BrokenPipeError):
                client.send(b"OKAY")

    with ThreadPoolExecutor(41) as pool:
        asked = [pool.submit(ask, number) for number in range(40)]
        serving = pool.submit(serve)
        try:
            assert [each.result() for each in asked] == [b"OKAY"] * 40
        finally:
            answered.set()
            with socket.socket(socket.AF_UNIX) as last:
                last.connect(address.path)
    serving.result()


def test_a_queue_that_stays_full_is_told_at_the_deadline(
    busy_server: tuple[ServerAddress, socket.socket, ExitStack],
) -> None:
    with pytest.raises(AdbUnavailableError, match="no adb server answers"):
        Connection(busy_server[0], Deadline(0.2), what="asking")
