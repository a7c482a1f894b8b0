"""At most four files are on their way at the same time, through a real adb server and virtual
phones."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from benchfarm_virtual.faults import parse_fault
from benchfarm_virtual.phone import Phone
from benchfarm_virtual.phones import VirtualPhones
from benchfarm_virtual.samples import BENCHMARK_PACKAGE, benchmark_apk
from orchestrator.devices.adb_server import AdbServer
from orchestrator.devices.link import PUSHES
from orchestrator.devices.phone import AdbDevice
from orchestrator.devices.sockets import ServerAddress
from orchestrator.errors import InterruptedByUserError
from tests.samples.phones import host_file

DEADLINE_S = 180.0


def test_a_fifth_file_waits_until_one_is_there_or_all_is_cancelled(
    adb_server: Any, make_lab: Callable[..., VirtualPhones], tmp_path: Path
) -> None:
    server, source = AdbServer(ServerAddress(port=adb_server.port)), tmp_path / "model.tflite"
    source.write_bytes(bytes(range(256)) * 4000)
    phone = make_lab(adb_server).add("pixel-3", serial="A")
    server.connect_tcp(phone.address)
    cancelled = threading.Event()
    device = AdbDevice(server, phone.address)
    device.pushes_cancelled = cancelled

    def place(kind: str) -> int:
        return device.place(host_file(source, "m", kind)).pushed_bytes

    with ThreadPoolExecutor(1) as pool, contextlib.ExitStack() as others:
        for _ in range(3):
            # A farm's jobs have slots of their own.
            others.enter_context(PUSHES)
        assert place("models") == source.stat().st_size
        with PUSHES:
            waiting = pool.submit(place, "inputs")
        assert waiting.result(DEADLINE_S) == source.stat().st_size
        with PUSHES:
            cancelled.set()
            with pytest.raises(InterruptedByUserError):
                place("libraries")
    server.disconnect(phone.address)


def is_installing(phone: Phone) -> bool:
    return any("install" in process.argv for process in phone.userland.processes.rows())


def test_an_app_that_a_phone_thinks_about_is_no_file_on_its_way(
    adb_server: Any,
    make_lab: Callable[..., VirtualPhones],
    wait_until: Callable[..., None],
    tmp_path: Path,
) -> None:
    server, apk = AdbServer(ServerAddress(port=adb_server.port)), tmp_path / "app.apk"
    apk.write_bytes(benchmark_apk())
    sha256 = hashlib.sha256(apk.read_bytes()).hexdigest()
    phone = make_lab(adb_server).add("pixel-3", serial="B")
    server.connect_tcp(phone.address)
    device, cancelled = AdbDevice(server, phone.address), threading.Event()
    phone.faults.add(parse_fault("hang", ["moment=tool", "subject=/system/bin/cmd"]))

    with ThreadPoolExecutor(1) as pool, contextlib.ExitStack() as others:
        for _ in range(3):
            others.enter_context(PUSHES)
        installing = pool.submit(
            device.install, apk, sha256=sha256, package=BENCHMARK_PACKAGE, cancelled=cancelled
        )
        try:
            wait_until(lambda: is_installing(phone), "the phone to think about the app", DEADLINE_S)
            with PUSHES:
                assert not installing.done()
        finally:
            cancelled.set()
        with pytest.raises(InterruptedByUserError):
            installing.result(DEADLINE_S)
    server.disconnect(phone.address)
