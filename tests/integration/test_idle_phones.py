"""A phone without a job that hangs, on a real adb server: what is tried on it while others of its
host are used."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchfarm_virtual.farm import VirtualLab
from benchfarm_virtual.faults import Fault, FaultKind
from orchestrator.bootstrap import Attached, Settings, Workspace
from orchestrator.devices.adb_server import AdbServer, ServerAddress
from orchestrator.devices.discovery import KnownPhones, list_devices
from orchestrator.extensions.farm.looking import HostPhones, Shared
from orchestrator.extensions.farm.queue import FarmQueue


def test_no_port_is_powered_off_and_on_while_any_phone_of_the_host_is_used(
    adb_server: Any,
    make_lab: Callable[..., VirtualLab],
    connect: Callable[[], FarmQueue],
    tmp_path: Path,
) -> None:
    adb_server.run("disconnect")
    server, known = AdbServer(ServerAddress(port=adb_server.port)), KnownPhones()
    phone = make_lab(adb_server, time_factor=1.0).add("pixel-3", serial="S1")
    server.connect_tcp(phone.address)
    list_devices(server, known=known)
    # It can be reconnected, as a plugged one always can, and doesn't answer then either.
    phone.faults.add(Fault(kind=FaultKind.OUTPUT_CUT, times=0))
    known.forget("S1")
    (seen,) = list_devices(server, timeout_s=1.0, known=known)
    assert seen.hangs
    uhubctl, cycled = tmp_path / "bin" / "uhubctl", tmp_path / "cycled"
    uhubctl.parent.mkdir()
    uhubctl.write_text(f'#!/bin/sh\necho "$@" >>{cycled}\n')
    uhubctl.chmod(0o755)
    settings = Settings.from_environment({"PATH": f"{uhubctl.parent}"}, home=tmp_path)
    said: list[str] = []
    phones = HostPhones(
        Shared(settings=settings, asked=known),
        connect(),
        "here",
        idle_look_s=1,
        say=lambda text, **_: said.append(text),
    )
    with Workspace(settings) as workspace:

        def connect_again(*used: str) -> None:
            phones.connect_again(
                workspace, Attached(server=server, seen=replace(seen, usb="1-4.2")), lambda: used
            )

        connect_again("another phone")
        assert said == ["S1 has no job and doesn't answer; it is reconnected"]
        assert not cycled.exists()
        connect_again()
        assert cycled.read_text() == "-l 1-4 -p 2 -a cycle\n"
    server.disconnect(phone.address)
