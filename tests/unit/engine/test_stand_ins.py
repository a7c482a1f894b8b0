"""Who may stand in for a device that is lost, with real leases."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from orchestrator.devices.lease import FileLease
from orchestrator.engine.recovery import Turns
from orchestrator.errors import LinkLostError
from orchestrator.executors.local import ThreadExecutor
from orchestrator.records.device import DeviceKind
from orchestrator.records.identity import Serial

LOST, SPARE = Serial("LOST"), Serial("SPARE")


class Gone:
    """Work on a device that is lost at once."""

    def run(self) -> None:
        raise LinkLostError("gone", serial=LOST)

    def left(self) -> int:
        return 1


def test_a_lost_device_is_waited_for_while_its_spare_is_used_by_somebody_else(tmp_path: Path) -> None:
    lease = FileLease(tmp_path)
    held = lease.acquire(SPARE)
    asked: list[bool] = []
    waited: list[bool] = []
    is_over = threading.Event()

    class Long:
        """Work that lasts as long as the lost one is waited for."""

        def run(self) -> None:
            assert is_over.wait(60)

        def left(self) -> int:
            return 0

    def stand_in(serial: Serial, is_free: Callable[[Serial], bool]) -> bool:
        asked.append(is_free(SPARE))
        return asked[-1]

    def rescue(device: object, *, keep_waiting: Callable[[], bool], **others: object) -> bool:
        waited.append(keep_waiting())
        held.__exit__(None, None, None)
        waited.append(keep_waiting())
        is_over.set()
        return False

    cancelled = threading.Event()
    services = SimpleNamespace(
        observer=SimpleNamespace(on_event=lambda event: None),
        conditioner=SimpleNamespace(restore=lambda device, on_note: ()),
        cancelled=cancelled,
    )
    rescuer = SimpleNamespace(rescue=rescue)
    turns = Turns(cast(Any, services), lease, ThreadExecutor(cancelled), rescuer=cast(Any, rescuer))
    lost: dict[Serial, str] = {}
    devices = [SimpleNamespace(serial=serial, kind=DeviceKind.ANDROID) for serial in (LOST, Serial("OTHER"))]
    held.__enter__()
    turns.run([(cast(Any, devices[0]), Gone), (cast(Any, devices[1]), Long)], lost, stand_in=stand_in)
    assert (asked, waited) == ([False, True], [True, False])
    assert list(lost) == [LOST]
