"""Phones that went away and come back, and files for many phones at once, through a real adb
server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from benchfarm_virtual.faults import parse_fault
from benchfarm_virtual.phones import VirtualPhones
from orchestrator.devices.adb_server import AdbServer
from orchestrator.devices.lease import QuarantineFolder
from orchestrator.devices.phone import AdbDevice
from orchestrator.devices.rescue import HubPower, Rescuer, usb_port
from orchestrator.devices.sockets import ServerAddress
from orchestrator.records.case import Serial
from tests.samples.meanwhile import switch_on_at, when


@pytest.fixture
def server(adb_server: Any) -> AdbServer:
    return AdbServer(ServerAddress(port=adb_server.port))


@pytest.fixture
def lab(
    adb_server: Any, server: AdbServer, make_lab: Callable[..., VirtualPhones]
) -> Iterator[VirtualPhones]:
    lab = make_lab(adb_server, time_factor=1.0)
    yield lab
    for phone in lab.phones.values():
        server.disconnect(phone.address)


def test_a_phone_that_was_switched_off_is_got_back_when_it_is_on_again(
    server: AdbServer, lab: VirtualPhones
) -> None:
    phone = lab.add("pixel-3", serial="GONE")
    server.connect_tcp(phone.address)
    device = AdbDevice(server, phone.address)
    port = int(phone.address.rpartition(":")[2])
    lab.remove("GONE")
    told: list[str] = []
    when(lambda: told, lambda: switch_on_at(lab, "pixel-3", serial="GONE", port=port))
    is_back = Rescuer(HubPower(search_path="")).rescue(
        device,
        keep_waiting=lambda: True,
        may_reboot=False,
        on_note=told.append,
        cancelled=threading.Event(),
    )
    assert is_back
    assert told == ["is being reconnected"]
    assert device.shell("getprop ro.serialno").text.strip() == "GONE"


def test_a_phone_isnt_waited_for_once_the_campaign_is_cancelled(
    server: AdbServer, lab: VirtualPhones
) -> None:
    phone = lab.add("pixel-3", serial="GONE")
    server.connect_tcp(phone.address)
    device = AdbDevice(server, phone.address)
    phone.faults.add(parse_fault("unauthorized", ()))
    cancelled = threading.Event()
    cancelled.set()
    assert not Rescuer(HubPower(search_path="")).rescue(
        device,
        keep_waiting=lambda: True,
        may_reboot=True,
        on_note=lambda text: None,
        cancelled=cancelled,
    )


@pytest.fixture
def hub(tmp_path: Path) -> Path:
    """A folder with a ``uhubctl`` that writes down what it was told, and ends once ``works`` is
    there."""
    program = tmp_path / "bin" / "uhubctl"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$@" >>{tmp_path}/told\nwhile [ ! -e {tmp_path}/works ]; do sleep 0.01; done\n'
    )
    program.chmod(0o755)
    return program.parent


def test_a_phone_that_a_new_connection_doesnt_bring_back_has_its_port_powered_off_and_on(
    server: AdbServer, lab: VirtualPhones, hub: Path, tmp_path: Path
) -> None:
    phone = lab.add("pixel-3", serial="HUNG")
    server.connect_tcp(phone.address)
    device = AdbDevice(server, phone.address)
    device.usb_path = "usb:1-4.2"
    phone.faults.add(parse_fault("unauthorized"))

    def go_on() -> None:
        phone.faults.clear()
        (tmp_path / "works").touch()

    powered = when((tmp_path / "told").exists, go_on)
    told: list[str] = []
    assert Rescuer(HubPower(search_path=str(hub))).rescue(
        device,
        keep_waiting=lambda: True,
        may_reboot=True,
        on_note=told.append,
        cancelled=threading.Event(),
    )
    powered.join()
    assert told == ["is being reconnected", "its USB port is being powered off and on"]
    assert (tmp_path / "told").read_text() == "-l 1-4 -p 2 -a cycle\n"
    assert device.shell("getprop ro.serialno").text.strip() == "HUNG"


def test_a_phone_whose_shell_is_broken_is_rebooted_where_the_plan_allows_it(
    server: AdbServer, lab: VirtualPhones, hub: Path, tmp_path: Path
) -> None:
    phone = lab.add("pixel-3", serial="SICK")
    server.connect_tcp(phone.address)
    # Nobody knows where it is plugged in: its port can't be switched.
    device = AdbDevice(server, phone.address)
    boot_id = device.state().boot_id
    phone.faults.add(parse_fault("output-cut", ["moment=shell", "bytes=0", "times=0"]))
    rescuer = Rescuer(HubPower(search_path=str(hub)), answer_s=1.0)
    told: list[str] = []
    assert not rescuer.rescue(
        device,
        keep_waiting=lambda: False,
        may_reboot=False,
        on_note=told.append,
        cancelled=threading.Event(),
    )
    assert told == ["is being reconnected"]
    booted = when(lambda: phone.userland.boot_id != boot_id, phone.faults.clear)
    assert rescuer.rescue(
        device,
        keep_waiting=lambda: True,
        may_reboot=True,
        on_note=told.append,
        cancelled=threading.Event(),
    )
    booted.join()
    assert told[-1] == "is being rebooted"
    assert device.state().boot_id != boot_id
    assert not (tmp_path / "told").exists()


@pytest.mark.parametrize(
    ("path", "port"),
    [("1-4.2", "1-4 2"), ("usb:2-1.3.4", "2-1.3 4"), ("3-1", "3 1"), ("", None), ("tcp", None)],
)
def test_a_usb_path_is_told_as_hub_and_port(path: str, port: str | None) -> None:
    assert usb_port(path) == port


def test_quarantine_keeps_its_first_reason_until_it_is_ended(tmp_path: Path) -> None:
    folder = QuarantineFolder(tmp_path / "quarantine")
    serial = Serial("../odd/serial")
    assert folder.reason(serial) == ""
    folder.put(serial, "its reference workload moved")
    folder.put(serial, "another")
    assert folder.reason(serial).startswith("its reference workload moved (since ")
    assert [*folder.reasons()] == [serial]
    assert folder.release(serial).startswith("its reference workload moved")
    assert (folder.release(serial), folder.reasons()) == ("", {})


def test_a_quarantine_that_can_not_be_read_still_holds(tmp_path: Path) -> None:
    folder = QuarantineFolder(tmp_path)
    folder.put(Serial("A"), "hot")
    (tmp_path / "A.json").write_text("{")
    assert "can't be read" in folder.reason(Serial("A"))
