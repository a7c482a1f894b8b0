"""Who may read what is served: a real server on loopback, asked as anybody would."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import uvicorn
from fastapi import FastAPI

from orchestrator.app.workspace import Workspace
from orchestrator.cli.campaigns import JsonObserver
from orchestrator.cli.output import write_line
from orchestrator.engine.events import DeviceNote
from orchestrator.errors import UsageError
from orchestrator.extensions.history import web
from orchestrator.extensions.history.cli import find_token, http_address, make_access
from orchestrator.extensions.history.farm_now import FarmNow
from orchestrator.extensions.history.metrics import Numbers
from orchestrator.records.case import Serial
from orchestrator.settings import Settings
from tests.conftest import poll_until
from tests.samples.places import REPO

TOKEN = "a-token-long-enough"


def settings(home: Path, **environ: str) -> Settings:
    return Settings.from_environment({"ANDROID_ADB_SERVER_PORT": "1", **environ}, home=home)


def test_another_address_needs_a_token_and_nothing_is_served_without(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "farm.example"):
        with pytest.raises(UsageError, match="needs a token"):
            make_access("", host)
        assert make_access(TOKEN, host).token == TOKEN
    assert make_access("").token == ""


def test_a_token_comes_from_option_file_or_environment_and_is_never_short(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    known = settings(tmp_path, BENCHFARM_TOKEN="another-token-long-enough")
    assert find_token(known, "", file) == TOKEN
    assert find_token(known, "", None) == "another-token-long-enough"
    assert find_token(settings(tmp_path), "", None) == ""
    assert find_token(known, "an-option-long-enough", None) == "an-option-long-enough"
    assert len(find_token(known, "new", None)) >= 24
    for wrong, told in (("short", "16 letters"), ("", "16 letters"), ("ü" * 20, "ASCII")):
        file.write_text(wrong)
        with pytest.raises(UsageError, match=told):
            find_token(known, "", file)
    with pytest.raises(UsageError, match="No such file"):
        find_token(known, "", tmp_path / "none")
    with pytest.raises(UsageError, match="--anyone-reads"):
        make_access("", anyone_reads=True)
    with pytest.raises(UsageError, match="two tokens"):
        find_token(known, TOKEN, file)


def test_a_source_that_can_t_be_read_is_told_and_the_others_stay(tmp_path: Path) -> None:
    (tmp_path / "store.sqlite").write_bytes(b"no database" * 100)
    with Workspace(settings(tmp_path)) as workspace:
        lines = (
            Numbers(workspace, FarmNow(workspace, None), list).page().content.decode().splitlines()
        )
    assert 'benchfarm_up{source="store"} 0.0' in lines
    assert 'benchfarm_up{source="history"} 1.0' in lines


def test_each_line_of_a_log_is_one_object_whatever_it_tells(
    capsys: pytest.CaptureFixture[str],
) -> None:
    JsonObserver().on_event(DeviceNote(serial=Serial("A\nB"), text="hot\x1b[31m", is_problem=True))
    JsonObserver().on_event(object())
    write_line("worker", "two\nlines", host="h", submission=None)
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (first["event"], first["level"], first["serial"]) == ("device-note", "warning", "A\nB")
    assert {"at", "pid", "benchfarm", "text"} <= first.keys()
    assert (second["event"], second["text"], second["host"]) == ("worker", "two\nlines", "h")
    assert "submission" not in second


@contextmanager
def answering(app: FastAPI, listening: socket.socket) -> Iterator[uvicorn.Server]:
    """Answer requests in a thread while the context lasts."""
    server = web.make_server(app)
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.should_exit = True
        thread.join(timeout=10)


def test_who_sends_nonsense_fills_no_log(capfd: pytest.CaptureFixture[str]) -> None:
    app = web.make_app(lambda path: None, access=web.Access())
    with web.listen("127.0.0.1", 0) as listening, answering(app, listening):
        for _ in range(60):
            with socket.create_connection(listening.getsockname(), timeout=60) as connection:
                connection.sendall(b"\0\r\n\r\n")
                while connection.recv(4096):
                    pass
    assert capfd.readouterr().err == ""


_FEW_DESCRIPTORS = """
import resource, sys, threading
resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
from orchestrator.extensions.history import web
hello = web.ServedPage(content=b"hello", media_type="text/plain")
with web.listen("127.0.0.1", 0) as listening:
    print(listening.getsockname()[1], flush=True)
    server = web.make_server(web.make_app(lambda path: hello, access=web.Access()))
    threading.Thread(target=server.run, args=([listening],), daemon=True).start()
    sys.stdin.readline()
    opened = [open("/dev/null") for _ in range(30)]
    print(len(opened), flush=True)
    sys.stdin.readline()
"""


def test_many_connections_leave_descriptors_and_a_short_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with ExitStack() as stack:
        process = subprocess.Popen(
            [sys.executable, "-c", _FEW_DESCRIPTORS], cwd=REPO, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stack.enter_context(log.open("w")),
        )  # fmt: skip
        stack.callback(process.wait, 60)
        stack.callback(process.kill)
        assert process.stdin is not None
        assert process.stdout is not None
        address = ("127.0.0.1", int(process.stdout.readline()))
        silent = [
            stack.enter_context(socket.create_connection(address, timeout=60)) for _ in range(260)
        ]
        with urllib.request.urlopen(f"http://127.0.0.1:{address[1]}/hello", timeout=60) as answer:
            assert answer.read() == b"hello"
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "30\n"
        assert len(silent) == 260
    assert log.stat().st_size < 100_000


PAGE = web.ServedPage(content=b"x" * 200_000, media_type="text/plain")
#: Together more than the system keeps for one that doesn't read.
TIMES = 60


def connected(address: tuple[str, int]) -> socket.socket:
    """Return a connection that asked for a page again and again and reads nothing of it."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(60)
    connection.connect(address)
    connection.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n" * TIMES)
    assert connection.recv(1) == b"H"
    return connection


def test_who_asks_and_never_reads_keeps_nobody_out() -> None:
    app = web.make_app(lambda path: PAGE, access=web.Access())
    with ExitStack() as stack:
        listening = stack.enter_context(web.listen("127.0.0.1", 0))
        stack.enter_context(answering(app, listening))
        for _ in range(110):
            stack.enter_context(connected(listening.getsockname()))
        with urllib.request.urlopen(f"{http_address(listening)}/metrics", timeout=60) as answer:
            assert len(answer.read()) == len(PAGE.content)


def test_who_reads_nothing_more_of_an_answer_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(web, "_REQUEST_S", 3.0)
    app = web.make_app(lambda path: PAGE, access=web.Access())
    with web.listen("127.0.0.1", 0) as listening, answering(app, listening) as server:
        with connected(listening.getsockname()):
            poll_until(lambda: not server.server_state.connections, "the connection is ended")
        # One that reads is answered to its end, however long that takes.
        with connected(listening.getsockname()) as connection:
            size = 1
            while size < TIMES * len(PAGE.content):
                size += len(connection.recv(1 << 16))
