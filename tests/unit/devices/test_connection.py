"""Connections to an adb server that can't take all of them at once, and what it says of a phone."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from itertools import repeat
from pathlib import Path

import pytest

from orchestrator.clock import Deadline
from orchestrator.devices.adb_server import AdbServer
from orchestrator.devices.sockets import Connection, ServerAddress
from orchestrator.errors import AdbUnavailableError, DeviceUnauthorizedError


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
        with Connection(address, Deadline(30), action="asking") as connection:
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
        Connection(busy_server[0], Deadline(0.2), action="asking")


def said_of_a_phone(answers: Iterator[bytes]) -> AdbServer:
    """Return an adb server that gives these answers, one a connection, when it is asked for a
    state.
    """
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listening:
            for answer in answers:
                client, _ = listening.accept()
                with client:
                    assert client.recv(1 << 10).endswith(b"host-serial:ON-A-CABLE:get-state")
                    client.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    return AdbServer(ServerAddress(port=listening.getsockname()[1]))


def test_a_phone_on_a_cable_is_waited_for_until_the_server_has_it() -> None:
    told = [
        b"OKAY0007offline",
        b"FAIL000edevice offline",
        b"OKAY000cunauthorized",
        b"OKAY0006device",
    ]
    answers = iter(told)
    said_of_a_phone(answers).reconnect("ON-A-CABLE", Deadline(30))
    assert not list(answers)


def test_a_phone_on_a_cable_that_lets_nobody_in_is_told() -> None:
    server = said_of_a_phone(repeat(b"OKAY000cunauthorized"))
    with pytest.raises(DeviceUnauthorizedError, match="doesn't know this computer's key"):
        server.reconnect("ON-A-CABLE", Deadline(0.5))
