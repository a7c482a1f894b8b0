"""Files and measurements on phones that share a USB hub, through a real adb server and virtual slow links."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from benchfarm_lab.farm import VirtualLab
from benchfarm_lab.faults import parse_fault
from orchestrator.devices.adb import AdbDevice
from orchestrator.devices.address import ServerAddress
from orchestrator.devices.server import AdbServer
from orchestrator.devices.traffic import Lane, hub_of
from orchestrator.errors import InterruptedByUserError
from orchestrator.ports import PlacedFile
from orchestrator.records.plan import PushLimits

DEADLINE_S = 180.0


class Hubs:
    """Phones at USB paths; what is sent to each is told in ``order``."""

    def __init__(self, lab: VirtualLab, server: AdbServer, source: Path) -> None:
        self.lab, self.server, self.source = lab, server, source
        self.folder = source.parent / "hubs"
        self.limits = PushLimits()
        self.order: list[str] = []

    def phone(self, name: str, usb: str, **more: threading.Event) -> AdbDevice:
        address = self._plug(name, usb)

        def moved(file: str, sent_bytes: int, size_bytes: int) -> None:
            self.order.append(f"{name} {'whole' if sent_bytes >= size_bytes else 'sends'}")

        device = AdbDevice(self.server, address, progress=moved)
        hub = hub_of(device.facts().properties["ro.benchfarm.usb"])
        device.take_lane(Lane(self.folder, hub, lambda: self.limits, **more))
        return device

    def _plug(self, name: str, usb: str) -> str:
        phone = self.lab.add("pixel-3", serial=name, usb=usb)
        phone.faults.add(parse_fault("slow", ("bytes_per_s=4000000",)))
        self.server.connect_tcp(phone.address)
        return phone.address

    def place(self, device: AdbDevice) -> PlacedFile:
        sha256 = hashlib.sha256(self.source.read_bytes()).hexdigest()
        return device.place(self.source, kind="models", sha256=sha256, name="m")


@pytest.fixture
def hubs(adb_server: Any, make_lab: Callable[..., VirtualLab], tmp_path: Path) -> Iterator[Hubs]:
    server = AdbServer(ServerAddress(port=adb_server.port))
    lab = make_lab(adb_server, time_factor=1.0)
    source = tmp_path / "model.tflite"
    source.write_bytes(bytes(range(256)) * 4000)
    yield Hubs(lab, server, source)
    for phone in lab.phones.values():
        server.disconnect(phone.address)


def test_a_file_for_a_phone_waits_for_the_measurement_on_its_hub_and_one_on_another_hub_does_not(hubs: Hubs) -> None:
    measuring, neighbour, stranger = hubs.phone("A", "1-2.1"), hubs.phone("B", "1-2.4.2"), hubs.phone("C", "1-3.1")
    with ThreadPoolExecutor(1) as pool:
        with measuring.measuring():
            waiting = pool.submit(hubs.place, neighbour)
            placed = hubs.place(stranger)
            hubs.order.append("A ends")
        assert waiting.result(DEADLINE_S).pushed_bytes == placed.pushed_bytes == hubs.source.stat().st_size
    ended = hubs.order.index("A ends")
    assert {word for told in hubs.order[:ended] for word in told.split()[:1]} == {"C"}
    assert {word for told in hubs.order[ended + 1 :] for word in told.split()[:1]} == {"B"}


def test_a_file_that_waits_for_a_measurement_is_abandoned_when_all_is_cancelled(hubs: Hubs) -> None:
    cancelled = threading.Event()
    measuring, neighbour = hubs.phone("A", "1-2.1"), hubs.phone("B", "1-2.2", cancelled=cancelled)
    with ThreadPoolExecutor(1) as pool, measuring.measuring():
        waiting = pool.submit(hubs.place, neighbour)
        cancelled.set()
        with pytest.raises(InterruptedByUserError):
            waiting.result(DEADLINE_S)
    assert hubs.order == []
