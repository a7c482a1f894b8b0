"""Virtual phones in a process of their own, which is started, asked and stopped."""

import json
import socket
import subprocess
import sys

import pytest

from benchfarm_virtual.control import ask_phones, read_phones, start_phones, stop_phones
from benchfarm_virtual.errors import UsageError
from benchfarm_virtual.spec import PhoneSpec
from tests.conftest import process_is_gone
from tests.samples.places import REPO


@pytest.fixture
def running(state_dir, adb_server):
    return start_phones(
        state_dir,
        [PhoneSpec(profile="pixel-3", serial="ONE"), PhoneSpec(profile="pixel-4", serial="TWO")],
        adb_keys=[adb_server.public_key],
        time_factor=10.0,
        exit_with_parent=True,
    )


def test_a_process_serves_its_phones_until_it_is_stopped(
    running, state_dir, adb_server, wait_until
):
    assert read_phones(state_dir) == running
    # The token is for its owner only.
    assert (state_dir / "virtual.json").stat().st_mode & 0o077 == 0
    assert [(phone.serial, phone.profile) for phone in running.phones] == [
        ("ONE", "pixel-3"),
        ("TWO", "pixel-4"),
    ]
    for phone in running.phones:
        adb_server.connect(phone.address)
        assert adb_server.run("-s", phone.address, "shell", "echo here").stdout == b"here\n"
    assert stop_phones(state_dir) is True
    wait_until(lambda: process_is_gone(running.pid), "its process has ended")
    assert not (state_dir / "virtual.json").exists()
    assert stop_phones(state_dir) is False
    for phone in running.phones:
        adb_server.run("disconnect", phone.address)


WRONG = [
    ({"request": "dance"}, "dance"),
    ({"request": "remove", "serial": "NONE"}, "NONE"),
    ({"request": "fault", "serial": "ONE"}, "no fault"),
    ({"request": "fault", "serial": "ONE", "kind": "explode"}, "explode"),
    ({"request": "add", "phone": {"profile": "pixel-3", "serial": "ONE"}}, "already"),
    ({"request": "add", "phone": {"profile": "nokia-3310", "serial": "X"}}, "nokia-3310"),
    ({"request": "add", "phone": {"profile": "pixel-3", "serial": "../x"}}, r"\.\./x"),
    ({"request": "add", "phone": {"profile": "pixel-3", "serial": "X", "colour": "red"}}, "colour"),
    ({"request": "add", "phone": {"profile": "pixel-3"}}, "serial"),
]


def test_wrong_request_or_token_or_folder_is_refused_and_the_process_continues(
    running, state_dir, adb_server
):
    for request, word in WRONG:
        with pytest.raises(UsageError, match=word):
            ask_phones(state_dir, request)
    with socket.create_connection(("127.0.0.1", running.control_port), timeout=60) as sock:
        for line in (
            b'{"request": "stop"}\n',
            b'{"request": "stop", "token": "guess"}\n',
            b"[]\n",
            b"\xff{\n",
        ):
            sock.sendall(line)
            answer = json.loads(sock.makefile("rb").readline())
            assert answer["ok"] is False
    with pytest.raises(UsageError, match="already"):
        start_phones(
            state_dir, [PhoneSpec(profile="pixel-3", serial="X")], adb_keys=[adb_server.public_key]
        )
    assert read_phones(state_dir).pid == running.pid
    assert len(ask_phones(state_dir, {"request": "list"})["phones"]) == 2


def test_a_process_that_cannot_start_says_why(state_dir, tmp_path, adb_server):
    with pytest.raises(UsageError, match=r"nokey\.pub"):
        start_phones(
            state_dir, [PhoneSpec(profile="pixel-3", serial="X")], adb_keys=[tmp_path / "nokey.pub"]
        )
    with pytest.raises(UsageError, match="nokia-3310"):
        start_phones(
            state_dir,
            [PhoneSpec(profile="nokia-3310", serial="X")],
            adb_keys=[adb_server.public_key],
        )
    with pytest.raises(UsageError, match="time factor"):
        start_phones(state_dir, [], adb_keys=[adb_server.public_key], time_factor=0)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "usage: python -m benchfarm_virtual FOLDER SETTINGS"),
        (["phones", "{"], "usage: python -m benchfarm_virtual FOLDER SETTINGS"),
        (["nowhere", "{}"], "nowhere: no folder for virtual phones: No such file or directory"),
    ],
)
def test_a_wrong_call_is_one_error(tmp_path, words, error):
    called = subprocess.run(
        [sys.executable, "-m", "benchfarm_virtual", *words], capture_output=True, text=True, cwd=tmp_path,
        check=False,
    )  # fmt: skip
    assert called.returncode == UsageError.exit_code
    assert called.stderr.startswith(error)
    assert "Traceback" not in called.stderr


def test_a_process_ends_with_the_one_that_started_it(state_dir, adb_server, wait_until):
    script = (
        "import sys; from pathlib import Path; from benchfarm_virtual.control import start_phones;"
        "print(start_phones(Path(sys.argv[1]), [], adb_keys=[Path(sys.argv[2])], exit_with_parent=True).pid)"
    )
    started = subprocess.run(
        [sys.executable, "-c", script, state_dir, adb_server.public_key], capture_output=True, text=True, cwd=REPO,
        check=True,
    )  # fmt: skip
    wait_until(lambda: process_is_gone(int(started.stdout)), "it has ended")
