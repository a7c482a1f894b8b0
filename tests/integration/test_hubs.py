"""Files and measurements on phones that share a USB hub, through a real adb server and virtual slow links."""

from __future__ import annotations

import hashlib
import select
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
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
from tests.samples.places import REPO

DEADLINE_S = 180.0


class HubProcess:
    """Another process that uses the same hubs."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process, self._input, self._output = process, process.stdin, process.stdout
        self._said = b""

    def tell(self, word: str) -> None:
        self._input.write(f"{word}\n".encode())

    def until(self, word: str) -> None:
        """Wait until it says so."""
        assert self.has_said(word, wait_s=DEADLINE_S), f"the other process said {self._said!r}, not {word!r}"

    def has_said(self, word: str, *, wait_s: float = 0.0) -> bool:
        """Whether it has said so by now, since it was last found to have said something."""
        while word.encode() not in self._said.split() and select.select([self._output], [], [], wait_s)[0]:
            said = self._output.read(4096)
            if not said:
                break
            self._said += said
        found = word.encode() in self._said.split()
        if found:
            self._said = self._said.partition(word.encode())[2]
        return found

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(DEADLINE_S)


class Hubs:
    """Phones at USB paths; what is sent to each is told in ``order``."""

    def __init__(self, lab: VirtualLab, server: AdbServer, source: Path) -> None:
        self.lab, self.server, self.source = lab, server, source
        self.folder = source.parent / "hubs"
        self.limits = PushLimits()
        self.order: list[str] = []
        self.begun = threading.Event()

    def phone(self, name: str, usb: str, **more: threading.Event) -> AdbDevice:
        address = self._plug(name, usb)

        def moved(file: str, sent_bytes: int, size_bytes: int) -> None:
            self.order.append(f"{name} {'whole' if sent_bytes >= size_bytes else 'sends'}")
            self.begun.set()

        device = AdbDevice(self.server, address, progress=moved)
        hub = hub_of(device.facts().properties["ro.benchfarm.usb"])
        device.take_lane(Lane(self.folder, hub, lambda: self.limits, **more))
        return device

    def _plug(self, name: str, usb: str) -> str:
        phone = self.lab.add("pixel-3", serial=name, usb=usb)
        phone.faults.add(parse_fault("slow", ("bytes_per_s=4000000",)))
        self.server.connect_tcp(phone.address)
        return phone.address

    @contextmanager
    def process(self, name: str, usb: str) -> Iterator[HubProcess]:
        """Start another process with a phone of its own; its files are one at a time from this computer."""
        words = (str(self.server.address.port), self._plug(name, usb), hub_of(usb), str(self.folder), str(self.source))
        started = subprocess.Popen(
            [sys.executable, "-m", "tests.samples.hub_process", *words],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, cwd=REPO,
        )  # fmt: skip
        try:
            process = HubProcess(started)
            process.until("ready")
            yield process
        finally:
            started.kill()
            started.communicate()

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


def test_a_measurement_waits_for_the_file_that_is_on_its_way_on_its_hub(hubs: Hubs) -> None:
    measuring, neighbour = hubs.phone("A", "1-2.1"), hubs.phone("B", "1-2.2")
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(hubs.place, neighbour)
        assert hubs.begun.wait(DEADLINE_S)
        with measuring.measuring():
            hubs.order.append("A measures")
        sending.result(DEADLINE_S)
    assert hubs.order[-2:] == ["B whole", "A measures"]


def test_a_file_that_waits_for_a_measurement_is_abandoned_when_all_is_cancelled(hubs: Hubs) -> None:
    cancelled = threading.Event()
    measuring, neighbour = hubs.phone("A", "1-2.1"), hubs.phone("B", "1-2.2", cancelled=cancelled)
    with ThreadPoolExecutor(1) as pool, measuring.measuring():
        waiting = pool.submit(hubs.place, neighbour)
        cancelled.set()
        with pytest.raises(InterruptedByUserError):
            waiting.result(DEADLINE_S)
    assert hubs.order == []


@pytest.mark.parametrize("end", ["ends", "is killed"])
def test_a_file_waits_for_another_processes_measurement_on_its_hub_until_that_ends_or_is_killed(
    hubs: Hubs, end: str
) -> None:
    neighbour, stranger = hubs.phone("B", "1-2.4.2"), hubs.phone("C", "1-3.1")
    with hubs.process("A", "1-2.1") as other, ThreadPoolExecutor(1) as pool:
        other.tell("measure")
        other.until("measures")
        waiting = pool.submit(hubs.place, neighbour)
        hubs.place(stranger)
        assert "B sends" not in hubs.order
        hubs.order.append("A ends")
        if end == "ends":
            other.tell("")
        else:
            other.kill()
        waiting.result(DEADLINE_S)
    ended = hubs.order.index("A ends")
    assert {word for told in hubs.order[:ended] for word in told.split()[:1]} == {"C"}
    assert {word for told in hubs.order[ended + 1 :] for word in told.split()[:1]} == {"B"}


def test_a_measurement_waits_for_the_file_that_another_process_sends_on_its_hub(hubs: Hubs) -> None:
    # Of several parts, each of which is told.
    hubs.source.write_bytes(bytes(range(256)) * 32000)
    measuring = hubs.phone("A", "1-2.1")
    with hubs.process("B", "1-2.2") as other:
        other.tell("push")
        other.until("sends")
        with measuring.measuring():
            assert other.has_said("whole")
            other.tell("measure")
            other.until("measures")


def test_files_of_two_processes_keep_to_the_computers_limit(hubs: Hubs) -> None:
    hubs.limits = PushLimits(per_host=1)
    mine = hubs.phone("A", "1-2.1")
    with hubs.process("B", "1-3.1") as other, ThreadPoolExecutor(1) as pool:
        with Lane(hubs.folder, "", lambda: hubs.limits).pushing():
            other.tell("push")
            waiting = pool.submit(hubs.place, mine)
            with pytest.raises(TimeoutError):
                waiting.result(1.0)
        other.until("placed")
        waiting.result(DEADLINE_S)


def test_a_file_that_waits_for_another_process_is_abandoned_when_all_is_cancelled(hubs: Hubs) -> None:
    cancelled = threading.Event()
    neighbour = hubs.phone("B", "1-2.2", cancelled=cancelled)
    with hubs.process("A", "1-2.1") as other, ThreadPoolExecutor(1) as pool:
        other.tell("measure")
        other.until("measures")
        waiting = pool.submit(hubs.place, neighbour)
        cancelled.set()
        with pytest.raises(InterruptedByUserError):
            waiting.result(DEADLINE_S)
        other.tell("")
        other.until("measured")
    assert hubs.order == []
