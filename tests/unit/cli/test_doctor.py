"""What the doctor says of a store, by how its place is written, and of what others may reach."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.app.doctor import _access, _adb, _store
from orchestrator.bootstrap import Farm, Settings
from orchestrator.devices.server import AdbServer
from orchestrator.devices.server_process import find_adb
from tests.samples.command import Cli


def test_a_file_is_a_file_however_its_place_is_written(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    for where in (str(path), f"sqlite:///{path}"):
        with Farm(Settings.from_environment({}, home=tmp_path, store=where)) as farm:
            (found, *_) = _store(farm)
        assert f"0 campaigns in {path}" in found.text


@pytest.fixture
def reachable() -> Iterator[Path]:
    """Yield a folder that every account can come to; the tests' own can't be entered by others."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_what_is_made_is_the_users_alone_and_what_others_reach_is_named(reachable: Path) -> None:
    home = reachable / "home"
    Cli(home=home)("annotate", "add", "delegate=gpu", "2026-11-01", "a driver")
    with Farm(Settings.from_environment({}, home=home)) as farm:
        _ = farm.store
        assert [item.level for item in _access(farm)] == ["ok"]
        home.chmod(0o755)
        (home / "store.sqlite").chmod(0o666)
        found = {item.text: item.next_step for item in _access(farm)}
    assert found == {
        f"other accounts of this computer may read {home}": f"chmod go-rwx {home}",
        f"other accounts of this computer may change {home}/store.sqlite": f"chmod go-rwx {home}/store.sqlite",
    }


def test_a_server_that_every_account_reaches_is_named(tmp_path: Path) -> None:
    program = tmp_path / "adb"
    program.write_text(f'#!/bin/sh\ncase "$*" in *localfilesystem*) exit 1;; esac\nexec {find_adb()} "$@"\n')
    program.chmod(0o755)
    known = Settings.from_environment({"HOME": str(tmp_path), "ANDROID_ADB_SERVER_PORT": "1"}, home=tmp_path / "home")
    with Farm(known) as farm:
        for binary, levels in ((program, ["warning"]), (find_adb(), [])):
            server = AdbServer.start(binary=binary, state_folder=farm.lab_folder, environ=known.environ, usb=False)
            try:
                told = [item for item in _adb(farm) if str(server.address) in item.text]
                assert [item.level for item in told if "every account" in item.text] == levels
            finally:
                server.stop()
