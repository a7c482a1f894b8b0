"""Our own adb server, with the real adb program and no phone."""

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.app.workspace import Workspace
from orchestrator.devices.adb_server import (
    ANSWER_TIMEOUT_S,
    AdbServer,
    PrivateAdbServer,
    bundled_adb,
    find_adb,
)
from orchestrator.devices.sockets import ServerAddress
from orchestrator.errors import (
    AdbUnavailableError,
    DeviceTimeoutError,
)
from orchestrator.processes import running
from orchestrator.settings import Settings
from tests.conftest import debian_adb, poll_until, process_is_gone, unused_port


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
def own(tmp_path: Path, environ: dict[str, str]) -> Iterator[Callable[..., PrivateAdbServer]]:
    """Return another command's view of the server of a folder."""
    servers: list[PrivateAdbServer] = []

    def view(binary: Path | str = "", folder: str = "state") -> PrivateAdbServer:
        servers.append(
            PrivateAdbServer(tmp_path / folder, setting=str(binary), environ=environ, usb=False)
        )
        return servers[-1]

    yield view
    for server in servers:
        server.stop()


@pytest.fixture
def start(own: Callable[..., PrivateAdbServer]) -> Callable[..., PrivateAdbServer]:
    def start_one(binary: Path | str = "", folder: str = "state") -> PrivateAdbServer:
        server = own(binary, folder)
        server.revive()
        return server

    return start_one


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


def pid_of(server: PrivateAdbServer) -> int:
    (process,) = running(server.arguments)
    return process.pid


def test_a_private_server_is_reached_by_its_user_alone(
    start: Callable[..., PrivateAdbServer], binary: Path, tmp_path: Path, environ: dict[str, str]
) -> None:
    server = start(binary)
    assert server.version() >= 29
    assert server.device_list() == ""
    assert open_ports(pid_of(server)) == []
    assert stat.S_IMODE(Path(server.address.path).parent.stat().st_mode) == 0o700
    shown = subprocess.run(
        [binary, "-L", server.address.spec, "devices"], env=environ, capture_output=True, text=True
    )
    assert shown.stdout.startswith("List of devices"), shown.stderr


def test_a_socket_with_a_long_path_lies_in_a_short_folder_of_the_user_alone(
    start: Callable[..., PrivateAdbServer], tmp_path: Path
) -> None:
    server = start(folder="state-" + "x" * 90)
    assert server.version() >= 29
    assert server.address.path.startswith(f"/tmp/benchfarm-{os.getuid()}/")
    assert stat.S_IMODE(Path(server.address.path).parent.stat().st_mode) == 0o700
    server.stop()
    assert not Path(server.address.path).exists()


def test_a_folder_that_others_may_enter_holds_no_socket(
    own: Callable[..., PrivateAdbServer],
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short:
        folder = Path(short) / "adb"
        folder.mkdir(mode=0o755)
        with pytest.raises(AdbUnavailableError, match="others may enter") as raised:
            own(folder=short).revive()
    assert raised.value.hint == f"chmod 700 {folder}"


def test_a_server_sees_no_token_and_no_password_of_ours(
    start: Callable[..., PrivateAdbServer], environ: dict[str, str], tmp_path: Path
) -> None:
    environ |= {
        "BENCHFARM_TOKEN": "secret-1",
        "PGPASSWORD": "secret-2",
        "AWS_SECRET_ACCESS_KEY": "secret-3",
    }
    environ |= {"BENCHFARM_PASS_ENV": "WANTED", "WANTED": "passed on", "ADB_TRACE": "adb"}
    server = start()
    variables = Path(f"/proc/{pid_of(server)}/environ").read_bytes().decode()
    assert "secret" not in variables
    assert "WANTED=passed on\0" in variables
    assert "ADB_TRACE=adb\0" in variables


def test_a_server_is_used_again_by_the_next_command_and_gone_after_stop(
    start: Callable[..., PrivateAdbServer], own: Callable[..., PrivateAdbServer], binary: Path
) -> None:
    pid = pid_of(start(binary))
    again = own(binary)
    again.revive()
    assert pid_of(again) == pid
    again.stop()
    poll_until(lambda: process_is_gone(pid), "the server has ended")
    assert not again.answers()
    with pytest.raises(AdbUnavailableError, match=r"no adb server answers at localfilesystem:/"):
        again.version()


def test_a_server_survives_the_command_that_started_it(
    tmp_path: Path, environ: dict[str, str], own: Callable[..., PrivateAdbServer]
) -> None:
    script = (
        "import os, sys; from pathlib import Path\n"
        "from orchestrator.devices.adb_server import PrivateAdbServer\n"
        "PrivateAdbServer(Path(sys.argv[1]), setting='', environ=dict(os.environ), usb=False).revive()"
    )
    subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "state")],
        check=True,
        env={**environ, "PYTHONPATH": ":".join(sys.path)},
    )
    assert own().version() >= 29


def test_commands_that_start_together_share_one_server(
    start: Callable[..., PrivateAdbServer], own: Callable[..., PrivateAdbServer]
) -> None:
    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pid_of(own())


@pytest.mark.slow
def test_a_server_of_ours_that_is_only_slow_is_used_again(
    own: Callable[..., PrivateAdbServer],
) -> None:
    slow = own()
    Path(slow.address.path).parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(slow.address.path)
        server.listen(1)

        def answer_late() -> None:
            client, _ = server.accept()
            with client:
                time.sleep(ANSWER_TIMEOUT_S + 1)
                client.sendall(b"OKAY00040029")

        thread = threading.Thread(target=answer_late, daemon=True)
        thread.start()
        slow.revive()
        assert running(slow.arguments) == []
        thread.join()


def test_a_server_that_died_is_revived_once_with_the_same_key(
    start: Callable[..., PrivateAdbServer],
    own: Callable[..., PrivateAdbServer],
    environ: dict[str, str],
) -> None:
    views = [start(), own()]
    pid = pid_of(views[0])
    os.kill(pid, signal.SIGKILL)
    poll_until(lambda: process_is_gone(pid), "the server is dead")
    for view in views:
        view.revive()
    variables = Path(f"/proc/{pid_of(views[1])}/environ").read_bytes().split(b"\0")
    assert f"HOME={environ['HOME']}".encode() in variables


def test_a_program_that_is_no_adb_is_told_with_what_it_said(
    tmp_path: Path, environ: dict[str, str]
) -> None:
    fake = tmp_path / "adb"
    fake.write_text("#!/bin/sh\necho I am no adb\nexit 3\n")
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    with pytest.raises(AdbUnavailableError, match="I am no adb"):
        PrivateAdbServer(tmp_path / "s", setting=str(fake), environ=environ, usb=False).revive()


def test_something_else_listening_is_not_taken_for_a_server() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        address = ServerAddress(port=other.getsockname()[1])
        with pytest.raises(DeviceTimeoutError):
            AdbServer(address).version(timeout_s=1.0)


def test_a_configured_server_that_does_not_answer_is_an_error_and_none_is_started(
    tmp_path: Path,
) -> None:
    environ = {"BENCHFARM_ADB_SERVER": f"127.0.0.1:{unused_port()}"}
    with Workspace(Settings.from_environment(environ, home=tmp_path)) as workspace:
        with pytest.raises(AdbUnavailableError):
            workspace.plugged_server()
        assert not workspace.own_server().answers()


def test_a_server_that_somebody_configured_is_used_and_never_stopped(
    start: Callable[..., PrivateAdbServer], tmp_path: Path
) -> None:
    started = start()
    environ = {"ADB_SERVER_SOCKET": started.address.spec}
    with Workspace(Settings.from_environment(environ, home=tmp_path)) as workspace:
        found = workspace.plugged_server()
    assert (found.address, found.is_ours) == (started.address, False)
    found.stop()
    assert started.version() >= 29


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
        "from orchestrator.devices.adb_server import find_adb\n"
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
