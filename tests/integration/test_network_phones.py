"""Phones by Wi-Fi: connected by their address, remembered, and connected again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchfarm_virtual.phones import VirtualPhones
from orchestrator.devices.adb_server import AdbServer
from orchestrator.devices.sockets import ServerAddress
from tests.samples.command import Cli


@pytest.fixture
def cli(adb_server: Any, tmp_path: Path) -> Callable[..., Any]:
    command = Cli(home=tmp_path / "home")

    def run(*words: object) -> Any:
        return command(*words, BENCHFARM_ADB_SERVER=f"127.0.0.1:{adb_server.port}")

    return run


def test_a_phone_that_was_connected_is_connected_again_until_it_is_forgotten(
    adb_server: Any, make_lab: Callable[..., VirtualPhones], cli: Callable[..., Any]
) -> None:
    adb_server.run("disconnect")
    server = AdbServer(ServerAddress(port=adb_server.port))
    phone = make_lab(adb_server).add("pixel-3", serial="WIFI1")

    def listed() -> list[str]:
        return [item["address"] for item in cli("devices --json").json]

    assert listed() == []
    assert phone.address in cli("device connect", phone.address).ok().stdout
    assert listed() == [phone.address]
    server.disconnect(phone.address)
    assert listed() == [phone.address]
    assert "is disconnected" in cli("device connect --undo", phone.address).ok().stdout
    assert listed() == []
    assert "wasn't remembered" in cli("device connect --undo", phone.address).ok().stdout


def test_a_remembered_phone_that_is_off_is_named_with_what_to_do_and_holds_nothing_up(
    adb_server: Any, make_lab: Callable[..., VirtualPhones], cli: Callable[..., Any], tmp_path: Path
) -> None:
    adb_server.run("disconnect")
    phone = make_lab(adb_server).add("pixel-3", serial="WIFI2")
    cli("device connect", phone.address).ok()
    (tmp_path / "home" / "network-phones.txt").write_text(
        f"127.0.0.1:1\nno address\n{phone.address}\n", "utf-8"
    )
    done = cli("devices --json")
    assert [item["address"] for item in done.ok().json] == [phone.address]
    assert "benchfarm device connect 127.0.0.1:1 --undo" in done.stderr
    assert "no address" not in done.said
    adb_server.run("disconnect")


@pytest.mark.parametrize(
    ("words", "exit_code", "told"),
    [
        (("connect", "127.0.0.1:1"), 3, "127.0.0.1:1"),
        (("connect", "a b:5555"), 2, "isn't the address of a phone"),
        (("connect", "foo:99999"), 2, "isn't the address of a phone"),
        (("connect", "foo:0"), 2, "isn't the address of a phone"),
        (("connect", "foo:٣"), 2, "isn't the address of a phone"),
        (("connect", ""), 2, "the value after 'connect' is empty"),
        (("pair", "127.0.0.1:1", "12345"), 2, "six digits"),
        (("pair", "127.0.0.1:99999", "123456"), 2, "isn't the address of a phone"),
        (("pair", "127.0.0.1:1", "123456"), 3, "Pair device with pairing code"),
    ],
)
def test_what_cannot_be_connected_or_paired_is_one_error_with_what_to_do(
    words: tuple[str, ...], exit_code: int, told: str, cli: Callable[..., Any]
) -> None:
    done = cli("device", *words)
    assert done.exit_code == exit_code
    assert told in done.stderr
    assert "Traceback" not in done.stderr
