"""What a USB device calls itself drives no terminal, in text, in JSON and in errors."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.samples.command import Cli, Done

#: As ``adb devices -l`` tells it of a device that a stranger has plugged in.
SERIAL = "S\x1b[2J\u202egpj"
LISTED = f"{SERIAL}\tunauthorized usb:1-2\n".encode()


@pytest.fixture
def strange_server() -> Iterator[str]:
    """Yield the address of what answers as an adb server does, with that device."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_answer, args=(listening,), daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def test_where_no_phone_shows_it_is_said_what_hides_a_samsung(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_answer, args=(listening, b""), daemon=True).start()
        for command in ("devices", "doctor"):
            said = Cli(home=tmp_path)(
                command, BENCHFARM_ADB_SERVER=f"127.0.0.1:{listening.getsockname()[1]}"
            ).said
            assert "Auto Blocker" in said, command
        listening.shutdown(socket.SHUT_RDWR)


def _answer(listening: socket.socket, listed: bytes = LISTED) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with connection, connection.makefile("rwb") as stream:
            asked = stream.read(int(stream.read(4) or b"0", 16))
            body = {b"host:version": b"0029", b"host:devices-l": listed}.get(asked)
            stream.write(b"FAIL0003not" if body is None else b"OKAY%04x%s" % (len(body), body))


def is_harmless(done: Done) -> bool:
    return not set("\x1b\u202e") & set(done.stdout + done.stderr)


def test_a_serial_number_with_escapes_is_shown_and_not_obeyed(
    strange_server: str, tmp_path: Path
) -> None:
    cli = Cli(home=tmp_path / "home")
    for words in (("devices",), ("doctor",), ("status",), ("bench m.tflite", "-s", SERIAL)):
        assert is_harmless(cli(*words, BENCHFARM_ADB_SERVER=strange_server)), words
    shown = cli("devices", BENCHFARM_ADB_SERVER=strange_server).ended_with(3)
    assert "S\\u001b[2J\\u202egpj" in shown.stdout
    told = cli("devices --json", BENCHFARM_ADB_SERVER=strange_server).ended_with(3)
    assert is_harmless(told)
    assert [item["address"] for item in told.json] == [SERIAL]


def test_an_error_shows_what_was_typed_and_obeys_nothing(tmp_path: Path) -> None:
    cli = Cli(home=tmp_path / "home")
    for words in (
        ("--store", f"/{SERIAL}/x", "results", "list"),
        ("results runs", SERIAL),
        (SERIAL,),
        ("bench --json", SERIAL),
    ):
        done = cli(*words)
        assert done.exit_code != 0
        assert is_harmless(done), words
