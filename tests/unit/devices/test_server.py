"""Our own adb server, with the real adb program and no phone."""

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.clock import Deadline
from orchestrator.devices.adb_server import ANSWER_TIMEOUT_S, AdbServer, ServerAddress
from orchestrator.devices.discovery import list_devices
from orchestrator.devices.own_server import OwnServer, bundled_adb, find_adb, server_of_phones
from orchestrator.errors import (
    AdbUnavailableError,
    DeviceError,
    DeviceTimeoutError,
    LinkLostError,
    UsageError,
)
from tests.conftest import debian_adb, poll_until, process_is_gone, unused_port
from tests.samples.manual_clock import ManualClock


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    home = tmp_path / "home"
    home.mkdir()
    return {"HOME": str(home), "PATH": os.environ["PATH"], "TMPDIR": str(home)}


@pytest.fixture(params=["bundled", "debian"])
def binary(request: pytest.FixtureRequest) -> Path:
    if request.param == "bundled":
        return find_adb()
    return debian_adb()


@pytest.fixture
def start(tmp_path: Path, environ: dict[str, str]) -> Iterator[Callable[..., AdbServer]]:
    servers: list[AdbServer] = []

    def start_one(binary: Path, folder: str = "state") -> AdbServer:
        servers.append(
            OwnServer.start(
                binary=binary, state_folder=tmp_path / folder, environ=environ, usb=False
            )
        )
        return servers[-1]

    yield start_one
    for server in servers:
        server.stop()


def open_ports(pid: int) -> list[str]:
    """Return the TCP ports on which a process listens, as Linux writes them."""
    held = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            held.add(str(link.readlink()))
    lines = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{name}").read_text().splitlines()
    ]
    return [line[1] for line in lines if line[3] == "0A" and f"socket:[{line[9]}]" in held]


def answers(server: AdbServer) -> bool:
    try:
        return server.version() >= 29
    except DeviceError:
        return False


def pid_in(folder: Path) -> int:
    return int(json.loads((folder / "adb-server-tcp.json").read_text())["pid"])


def test_a_private_server_is_reached_by_its_user_alone(
    start: Callable[..., AdbServer], binary: Path, tmp_path: Path, environ: dict[str, str]
) -> None:
    server = start(binary)
    assert server.version() >= 29
    assert server.device_list() == ""
    assert open_ports(pid_in(tmp_path / "state")) == []
    assert stat.S_IMODE(Path(server.address.path).parent.stat().st_mode) == 0o700
    shown = subprocess.run(
        [binary, "-L", server.address.spec, "devices"], env=environ, capture_output=True, text=True
    )
    assert shown.stdout.startswith("List of devices"), shown.stderr


def test_a_socket_with_a_long_path_lies_in_a_short_folder_of_the_user_alone(
    start: Callable[..., AdbServer], tmp_path: Path
) -> None:
    server = start(find_adb(), "state-" + "x" * 90)
    assert server.version() >= 29
    assert server.address.path.startswith(f"/tmp/benchfarm-{os.getuid()}/")
    assert stat.S_IMODE(Path(server.address.path).parent.stat().st_mode) == 0o700
    server.stop()
    assert not Path(server.address.path).exists()


def test_a_folder_that_others_may_enter_holds_no_socket(
    start: Callable[..., AdbServer], tmp_path: Path
) -> None:
    folder = tmp_path / "state" / "adb"
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    server = start(find_adb())
    assert server.version() >= 29
    assert not server.address.path.startswith(str(folder))


def test_a_server_sees_no_token_and_no_password_of_ours(
    start: Callable[..., AdbServer], environ: dict[str, str], tmp_path: Path
) -> None:
    environ |= {
        "BENCHFARM_TOKEN": "secret-1",
        "PGPASSWORD": "secret-2",
        "AWS_SECRET_ACCESS_KEY": "secret-3",
    }
    environ |= {"BENCHFARM_PASS_ENV": "WANTED", "WANTED": "passed on", "ADB_TRACE": "adb"}
    start(find_adb())
    variables = Path(f"/proc/{pid_in(tmp_path / 'state')}/environ").read_bytes().decode()
    assert "secret" not in variables
    assert "WANTED=passed on\0" in variables
    assert "ADB_TRACE=adb\0" in variables


def test_a_server_is_used_again_by_the_next_command_and_gone_after_stop(
    start: Callable[..., AdbServer], binary: Path, tmp_path: Path
) -> None:
    server = start(binary)
    pid = pid_in(tmp_path / "state")
    again = OwnServer.adopt(tmp_path / "state", usb=False)
    assert again is not None
    assert again.address == server.address
    assert start(binary).address == server.address
    again.stop()
    poll_until(lambda: process_is_gone(pid), "the server has ended")
    assert OwnServer.adopt(tmp_path / "state", usb=False) is None
    with pytest.raises(AdbUnavailableError, match=r"no adb server answers at localfilesystem:/"):
        server.version()


def test_a_server_survives_the_command_that_started_it(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    script = (
        "import os, sys; from pathlib import Path\n"
        "from orchestrator.devices.own_server import OwnServer, find_adb\n"
        "OwnServer.start(binary=find_adb(), state_folder=Path(sys.argv[1]), environ=dict(os.environ), usb=False)"
    )
    subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        check=True,
        env={**environ, "PYTHONPATH": ":".join(sys.path)},
    )
    server = OwnServer.adopt(tmp_path, usb=False)
    assert server is not None
    assert server.version() >= 29
    server.stop()


def test_commands_that_start_together_share_one_server(
    tmp_path: Path, environ: dict[str, str], start: Callable[..., AdbServer]
) -> None:
    servers: list[AdbServer] = []
    threads = [threading.Thread(target=lambda: servers.append(start(find_adb()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({server.address for server in servers}) == 1


def test_a_record_that_names_a_strangers_pid_is_not_adopted_and_the_stranger_lives(
    tmp_path: Path,
) -> None:
    stranger = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    )
    try:
        record = {
            "pid": stranger.pid,
            "address": f"tcp:localhost:{unused_port()}",
            "binary": "/usr/bin/adb",
            "environ": {},
        }
        (tmp_path / "adb-server-tcp.json").write_text(json.dumps(record))
        assert OwnServer.adopt(tmp_path, usb=False) is None
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"pid": 1}', '{"pid": 1, "address": "x y", "binary": "", "environ": {}}'],
)
def test_a_damaged_record_is_no_server(tmp_path: Path, text: str) -> None:
    (tmp_path / "adb-server-tcp.json").write_text(text)
    assert OwnServer.adopt(tmp_path, usb=False) is None


@pytest.mark.slow
def test_a_server_of_ours_that_is_only_slow_is_used_again(tmp_path: Path) -> None:
    path = tmp_path / "adb.socket"
    record = {"pid": 1, "address": f"localfilesystem:{path}", "binary": "/adb", "environ": {}}
    (tmp_path / "adb-server-tcp.json").write_text(json.dumps(record))
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(1)

        def answer_late() -> None:
            client, _ = server.accept()
            with client:
                time.sleep(ANSWER_TIMEOUT_S + 1)
                client.sendall(b"OKAY00040029")

        thread = threading.Thread(target=answer_late, daemon=True)
        thread.start()
        assert OwnServer.adopt(tmp_path, usb=False) is not None
        thread.join()


def test_an_adopted_server_that_died_is_revived_with_the_same_key(
    start: Callable[..., AdbServer],
    tmp_path: Path,
    environ: dict[str, str],
    wait_until: Callable[..., None],
) -> None:
    start(find_adb())
    adopted = OwnServer.adopt(tmp_path / "state", usb=False)
    assert adopted is not None
    pid = pid_in(tmp_path / "state")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: process_is_gone(pid), "the server is dead")
    adopted.revive()
    try:
        assert adopted.version() >= 29
        variables = Path(f"/proc/{pid_in(tmp_path / 'state')}/environ").read_bytes().split(b"\0")
        assert f"HOME={environ['HOME']}".encode() in variables
    finally:
        adopted.stop()


@pytest.fixture
def killed(
    start: Callable[..., AdbServer], tmp_path: Path, wait_until: Callable[..., None]
) -> list[AdbServer]:
    """Two commands' view of one server that has died."""
    started, adopted = start(find_adb()), OwnServer.adopt(tmp_path / "state", usb=False)
    assert adopted is not None
    pid = pid_in(tmp_path / "state")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: process_is_gone(pid), "the server is dead")
    return [started, adopted]


@pytest.mark.parametrize("first", [0, 1])
def test_a_server_that_another_command_has_revived_is_taken_over_and_not_started_twice(
    killed: list[AdbServer], tmp_path: Path, first: int
) -> None:
    killed[first].revive()
    pid = pid_in(tmp_path / "state")
    killed[1 - first].revive()
    assert pid_in(tmp_path / "state") == pid
    again = OwnServer.adopt(tmp_path / "state", usb=False)
    assert again is not None
    killed[1 - first].stop()
    poll_until(lambda: process_is_gone(pid), "the server has ended")


def test_a_strangers_server_at_the_address_is_not_taken_for_the_one_that_has_ended_and_lives_on(
    killed: list[AdbServer], tmp_path: Path, wait_until: Callable[..., None]
) -> None:
    before = (tmp_path / "state" / "adb-server-tcp.json").read_text()
    stranger = subprocess.Popen(
        [str(find_adb()), "-L", killed[0].address.spec, "server", "nodaemon"],
        env={"HOME": str(tmp_path), "ADB_USB": "0", "ADB_MDNS": "0", "ADB_EMU": "0"},
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: answers(killed[0]), "the stranger's server answers")
        with pytest.raises(AdbUnavailableError, match="another program listens at"):
            killed[0].revive()
        assert (tmp_path / "state" / "adb-server-tcp.json").read_text() == before
        # Who didn't start it can't tell the two apart, but ends none whose number isn't the
        # recorded one's.
        killed[1].revive()
        killed[1].stop()
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_program_that_is_no_adb_is_told_with_what_it_said(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    fake = tmp_path / "adb"
    fake.write_text("#!/bin/sh\necho I am no adb\nexit 3\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(AdbUnavailableError, match="I am no adb"):
        OwnServer.start(binary=fake, state_folder=tmp_path / "state", environ=environ, usb=False)


def test_something_else_listening_is_not_taken_for_a_server() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = ServerAddress(port=other.getsockname()[1])
        with pytest.raises(DeviceTimeoutError):
            AdbServer(address).version(timeout_s=1.0)


def test_a_configured_server_that_does_not_answer_is_an_error_and_none_is_started(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    with pytest.raises(AdbUnavailableError):
        server_of_phones(
            setting=f"127.0.0.1:{unused_port()}", environ=environ, state_folder=tmp_path / "state"
        )
    assert not (tmp_path / "state").exists()


def test_a_server_named_by_adbs_own_variable_is_used(
    start: Callable[..., AdbServer], tmp_path: Path, environ: dict[str, str]
) -> None:
    running = start(find_adb())
    environ["ADB_SERVER_SOCKET"] = running.address.spec
    found = server_of_phones(setting="", environ=environ, state_folder=tmp_path / "other")
    assert found.address == running.address
    assert not found.is_ours
    found.stop()
    assert running.version() >= 29


def test_the_adb_program_is_the_named_one_then_the_wheels_then_the_one_in_path(
    tmp_path: Path,
) -> None:
    program = tmp_path / "adb"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert find_adb(str(program)) == program
    assert find_adb(environ={"PATH": str(tmp_path)}) == (bundled_adb() or program)
    with pytest.raises(AdbUnavailableError, match="BENCHFARM_ADB"):
        find_adb(str(tmp_path / "missing"))


def test_where_the_wheel_has_no_adb_it_is_found_in_path_or_in_the_sdk_or_asked_for(
    tmp_path: Path,
) -> None:
    code = (
        "import json, sys; sys.modules['adbutils'] = None\n"
        "from orchestrator.devices.own_server import find_adb\n"
        "print(find_adb(environ=json.loads(sys.argv[1])))"
    )
    for folder in ("bin", "sdk/platform-tools"):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "adb").write_text("#!/bin/sh\n")
        (tmp_path / folder / "adb").chmod(0o755)
    for environ, told in (
        ({"PATH": f"{tmp_path}/bin", "ANDROID_HOME": f"{tmp_path}/sdk"}, f"{tmp_path}/bin/adb"),
        ({"PATH": "/nowhere", "ANDROID_HOME": f"{tmp_path}/sdk"}, f"{tmp_path}/sdk/platform-tools/adb"),
        ({"PATH": "/nowhere", "ANDROID_SDK_ROOT": f"{tmp_path}/sdk"}, f"{tmp_path}/sdk/platform-tools/adb"),
        ({"PATH": "/nowhere", "ANDROID_HOME": f"{tmp_path}/bin"}, "there is no adb program"),
    ):  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-c", code, json.dumps(environ)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert told in done.stdout + done.stderr


def test_no_phone_is_told_as_such(start: Callable[..., AdbServer], binary: Path) -> None:
    server = start(binary)
    assert not list_devices(server)
    with pytest.raises(LinkLostError, match="not found"):
        server.open_transport("R58M12", Deadline(60.0), what="opening")


def test_a_phone_that_stays_away_is_looked_for_less_and_less_often(
    start: Callable[..., AdbServer],
) -> None:
    waits: list[float] = []

    class Counted(ManualClock):
        def wait(self, seconds: float, cancelled: threading.Event | None = None) -> bool:
            waits.append(seconds)
            return super().wait(seconds, cancelled)

    clock = Counted()
    server = AdbServer(start(find_adb()).address, clock=clock)
    with pytest.raises(DeviceTimeoutError, match="absent"):
        server.wait_for_device("R58M12", Deadline(60.0, clock))
    assert waits[:-1] == sorted(waits[:-1])
    assert (waits[0], max(waits)) == (0.05, 1.0)
    assert len(waits) < 100


@pytest.mark.parametrize("address", ["phone", "a b:1", ":5555", "host:port"])
def test_what_is_no_address_of_a_phone_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="host:port"):
        AdbServer().connect_tcp(address)
