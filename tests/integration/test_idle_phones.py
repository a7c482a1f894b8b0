"""Phones without a job that hang, on a real adb server: what is tried on them while others of their host are used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchfarm_lab.farm import VirtualLab
from benchfarm_lab.faults import Fault, FaultKind
from orchestrator.app.farm_host import IdlePhones
from orchestrator.bootstrap import Attached
from orchestrator.devices.address import ServerAddress
from orchestrator.devices.discovery import KnownPhones, list_devices
from orchestrator.devices.server import AdbServer

AT_ONCE_S = 1e-12


def test_no_port_is_powered_off_and_on_while_any_phone_of_the_host_is_used(
    adb_server: Any, make_lab: Callable[..., VirtualLab]
) -> None:
    adb_server.run("disconnect")
    server, known = AdbServer(ServerAddress(port=adb_server.port)), KnownPhones()
    phone = make_lab(adb_server, time_factor=1.0).add("pixel-3", serial="S1")
    server.connect_tcp(phone.address)
    list_devices(server, known=known)
    # It can be reconnected, as a plugged one always can, and doesn't answer then either.
    phone.faults.add(Fault(kind=FaultKind.OUTPUT_CUT, times=0))
    known.forget("S1")
    said: list[str] = []
    cycled: list[str] = []
    idle = IdlePhones(KnownPhones(), every_s=AT_ONCE_S, say=said.append)
    attached = [Attached(server=server, seen=item) for item in list_devices(server, timeout_s=1.0, known=known)]

    def cycle_port(path: str) -> bool:
        cycled.append(path)
        return True

    def wake(*used: str) -> None:
        assert list(idle.wake(attached, used=lambda: used, elsewhere=lambda: (), cycle_port=cycle_port)) == ["S1"]

    wake("another phone")
    assert [text for text in said if "reconnected" in text]
    assert cycled == []
    wake()
    assert len(cycled) == 1
    server.disconnect(phone.address)
