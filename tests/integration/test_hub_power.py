"""A port that is powered off for a block and on again, by a program that stands in for uhubctl."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchfarm_lab.farm import VirtualLab
from orchestrator.devices.adb import AdbDevice
from orchestrator.devices.address import ServerAddress
from orchestrator.devices.hub_power import HubPower
from orchestrator.devices.server import AdbServer
from tests.conftest import poll_until

ON, OFF = "-l 1-4 -p 2 -a on", "-l 1-4 -p 2 -a off"


@pytest.fixture
def told(tmp_path: Path) -> Path:
    return tmp_path / "told"


@pytest.fixture
def power(tmp_path: Path, told: Path) -> HubPower:
    program = tmp_path / "bin" / "uhubctl"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >>{told}\n')
    program.chmod(0o755)
    return HubPower(search_path=str(program.parent))


@pytest.fixture
def device(adb_server: Any, make_lab: Callable[..., VirtualLab]) -> Iterator[AdbDevice]:
    server = AdbServer(ServerAddress(port=adb_server.port))
    phone = make_lab(adb_server, time_factor=1.0).add("pixel-3", serial="ON-A-HUB")
    server.connect_tcp(phone.address)
    device = AdbDevice(server, phone.address)
    # As its adb server would tell of a phone on a cable.
    device.usb_path = "usb:1-4.2"
    yield device
    server.disconnect(phone.address)


def said(told: Path) -> list[str]:
    return told.read_text().splitlines() if told.exists() else []


def test_a_port_is_off_for_a_while_and_on_at_the_end(power: HubPower, device: AdbDevice, told: Path) -> None:
    assert power.can_switch(device)
    with power.off(device, after_s=0, lasts_s=60):
        poll_until(lambda: said(told) == [OFF], what="the port's being off")
    assert said(told) == [OFF, ON]


def test_a_port_is_on_again_by_itself_and_after_a_failure(power: HubPower, device: AdbDevice, told: Path) -> None:
    with power.off(device, after_s=0, lasts_s=0):
        poll_until(lambda: said(told) == [OFF, ON], what="the port's being on again")
    with pytest.raises(KeyError), power.off(device, after_s=60, lasts_s=60):
        raise KeyError
    # Never off, and on unless it was ended before it had begun.
    assert said(told)[2:] in ([], [ON])


def test_a_killed_process_leaves_no_port_off(power: HubPower, device: AdbDevice, told: Path) -> None:
    child = os.fork()
    if child == 0:
        with power.off(device, after_s=0, lasts_s=1):
            signal.pause()
    poll_until(lambda: said(told)[:1] == [OFF], what="the port's being off")
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    poll_until(lambda: said(told) == [OFF, ON], what="the port's being on again")


def test_without_a_known_port_or_a_program_nothing_is_switched(power: HubPower, device: AdbDevice) -> None:
    assert not HubPower(search_path="").can_switch(device)
    device.usb_path = ""
    assert not power.can_switch(device)
