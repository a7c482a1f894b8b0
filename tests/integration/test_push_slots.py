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

from benchfarm_virtual.farm import VirtualLab
from orchestrator.devices.adb_server import AdbServer, ServerAddress
from orchestrator.devices.link import PushSlots
from orchestrator.devices.phone import AdbDevice
from orchestrator.errors import InterruptedByUserError
from orchestrator.ports import HostFile

DEADLINE_S = 180.0


def test_a_fifth_file_waits_until_one_is_there_or_all_is_cancelled(
    adb_server: Any, make_lab: Callable[..., VirtualLab], tmp_path: Path
) -> None:
    server, source = AdbServer(ServerAddress(port=adb_server.port)), tmp_path / "model.tflite"
    source.write_bytes(bytes(range(256)) * 4000)
    sha256 = hashlib.sha256(source.read_bytes()).hexdigest()
    phone = make_lab(adb_server).add("pixel-3", serial="A")
    server.connect_tcp(phone.address)
    cancelled = threading.Event()
    device = AdbDevice(server, phone.address)
    device.slots = PushSlots(cancelled)

    def place(kind: str) -> int:
        return device.place(
            HostFile(source=source, kind=kind, sha256=sha256, name="m")
        ).pushed_bytes

    with ThreadPoolExecutor(1) as pool, contextlib.ExitStack() as others:
        for _ in range(3):
            # A farm's jobs have slots of their own.
            others.enter_context(PushSlots().pushing())
        assert place("models") == source.stat().st_size
        with PushSlots().pushing():
            waiting = pool.submit(place, "inputs")
        assert waiting.result(DEADLINE_S) == source.stat().st_size
        with PushSlots().pushing():
            cancelled.set()
            with pytest.raises(InterruptedByUserError):
                place("libraries")
    server.disconnect(phone.address)
