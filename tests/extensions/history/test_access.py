"""Who may read what is served: a real server on loopback, asked as anybody would."""

from __future__ import annotations

import http.client
import json
import select
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from orchestrator.bootstrap import Settings, Workspace
from orchestrator.cli.live import JsonObserver
from orchestrator.cli.terminal import write_line
from orchestrator.engine.events import DeviceNote
from orchestrator.errors import UsageError
from orchestrator.extensions.history import web
from orchestrator.extensions.history.access import Listening, access_of, address_of
from orchestrator.extensions.history.farm_now import FarmNow
from orchestrator.extensions.history.metrics import Numbers
from orchestrator.records.case import Serial
from tests.samples.places import REPO

TOKEN = "a-token-long-enough"


def settings(home: Path, **environ: str) -> Settings:
    return Settings.from_environment({"ANDROID_ADB_SERVER_PORT": "1", **environ}, home=home)


@contextmanager
def numbers_served(known: Settings, listening: Listening) -> Iterator[str]:
    access = access_of(known, listening)
    with Workspace(known) as workspace, web.listen("127.0.0.1", 0) as opened:
        numbers = Numbers(workspace, FarmNow(workspace, None, can_be_steered=False), list)
        app = web.make_app(
            lambda path: numbers.page() if path == "metrics" else None, access=access
        )
        with web.answering(app, opened):
            yield address_of(opened)


def status(url: str, **headers: str) -> int:
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=30
        ) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_another_address_needs_a_token_and_nothing_is_served_without(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "::", "192.0.2.1", "farm.example"):
        with pytest.raises(UsageError, match="needs a token"):
            access_of(settings(tmp_path), Listening(host=host))
        assert (
            access_of(settings(tmp_path, BENCHFARM_TOKEN=TOKEN), Listening(host=host)).token
            == TOKEN
        )
    assert access_of(settings(tmp_path), Listening()).token == ""


def test_a_token_comes_from_option_file_or_environment_and_is_never_short(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    known = settings(tmp_path, BENCHFARM_TOKEN="another-token-long-enough")
    assert access_of(known, Listening(token_file=file)).token == TOKEN
    assert (
        access_of(known, Listening(token="an-option-long-enough")).token == "an-option-long-enough"
    )
    assert len(access_of(known, Listening(token="new")).token) >= 24
    for wrong, told in (("short", "16 letters"), ("", "is empty"), ("ü" * 20, "ASCII")):
        file.write_text(wrong)
        with pytest.raises(UsageError, match=told):
            access_of(known, Listening(token_file=file))
    with pytest.raises(UsageError, match="No such file"):
        access_of(known, Listening(token_file=tmp_path / "none"))
    with pytest.raises(UsageError, match="two tokens"):
        access_of(known, Listening(token=TOKEN, token_file=file))


def test_numbers_are_given_to_who_brings_the_token_and_to_no_other_site(tmp_path: Path) -> None:
    with numbers_served(settings(tmp_path), Listening(port=0, token=TOKEN)) as url:
        assert status(f"{url}/metrics") == 401
        assert status(f"{url}/metrics", Authorization="Bearer wrong-token-long-enough") == 401
        assert status(f"{url}/metrics", Authorization=f"Bearer {TOKEN}") == 200
        assert status(f"{url}/metrics", Authorization=f"Bearer {TOKEN}", Host="evil.example") == 421
        assert status(f"{url}/", Authorization=f"Bearer {TOKEN}") == 404
        request = urllib.request.Request(
            f"{url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            lines = answer.read().decode().splitlines()
    assert 'benchfarm_up{source="store"} 1.0' in lines


def test_a_source_that_can_t_be_read_is_told_and_the_others_stay(tmp_path: Path) -> None:
    (tmp_path / "store.sqlite").write_bytes(b"no database" * 100)
    with Workspace(settings(tmp_path)) as workspace:
        lines = (
            Numbers(workspace, FarmNow(workspace, None, can_be_steered=False), list)
            .page()
            .content.decode()
            .splitlines()
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


def test_a_log_format_that_isn_t_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="neither text nor json"):
        _ = settings(tmp_path, BENCHFARM_LOG="xml").log_format


def is_ended(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def test_who_sends_nonsense_fills_no_log(capfd: pytest.CaptureFixture[str]) -> None:
    app = web.make_app(lambda path: None, access=web.Access())
    with web.listen("127.0.0.1", 0) as listening, web.answering(app, listening):
        for _ in range(60):
            with socket.create_connection(listening.getsockname(), timeout=60) as connection:
                connection.sendall(b"\0\r\n\r\n")
                while connection.recv(4096):
                    pass
    assert capfd.readouterr().err == ""


_FEW_DESCRIPTORS = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (60, 60))
from orchestrator.extensions.history import web
hello = web.ServedPage(content=b"hello", media_type="text/plain")
with web.listen("127.0.0.1", 0) as listening:
    print(listening.getsockname()[1], flush=True)
    with web.answering(web.make_app(lambda path: hello, access=web.Access()), listening):
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
        stack.enter_context(web.answering(app, listening))
        for _ in range(110):
            stack.enter_context(connected(listening.getsockname()))
        with urllib.request.urlopen(f"{address_of(listening)}/metrics", timeout=60) as answer:
            assert len(answer.read()) == len(PAGE.content)


def test_who_reads_nothing_more_of_an_answer_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(web, "_REQUEST_S", 1.0)
    app = web.make_app(lambda path: PAGE, access=web.Access())
    with web.listen("127.0.0.1", 0) as listening, web.answering(app, listening):
        with connected(listening.getsockname()) as connection:
            ended = select.poll()
            ended.register(connection, 0)
            assert ended.poll(60_000), "the connection is still open"
        # One that reads is answered to its end, however long that takes.
        with connected(listening.getsockname()) as connection:
            size = 1
            while size < TIMES * len(PAGE.content):
                size += len(connection.recv(1 << 16))


def test_a_browsers_cookie_reads_and_is_no_token(tmp_path: Path) -> None:
    def steer(url: str, token: str) -> int:
        request = urllib.request.Request(f"{url}/api/v1/pauses", method="POST", data=b"{}")
        request.add_header("Authorization", f"Bearer {token}")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code

    with numbers_served(settings(tmp_path), Listening(port=0, token=TOKEN)) as url:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
        connection.request("GET", f"/metrics?token={TOKEN}")
        cookie = (connection.getresponse().headers["Set-Cookie"] or "").partition(";")[0]
        connection.close()
        assert TOKEN not in cookie
        assert status(f"{url}/metrics", Cookie=cookie) == 200
        assert status(f"{url}/metrics", Cookie=f"benchfarm-token={TOKEN}") == 401
        key = cookie.partition("=")[2]
        assert status(f"{url}/metrics", Authorization=f"Bearer {key}") == 401
        assert steer(url, key) == 401
        assert steer(url, TOKEN) not in {401, 403}
