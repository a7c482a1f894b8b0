"""Phones coming and going, as the adb server tells of them: nothing is asked again and again, no phone is disturbed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from orchestrator.clock import Deadline
from orchestrator.devices.discovery import parse_devices
from orchestrator.devices.server import AdbServer

#: How often one who watches looks whether to stop.
_LOOK_S: Final = 0.5
#: How long a watch may last.
_WATCH_S: Final = 30 * 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceChange:
    """A phone came, went or changed its state; the state is ``absent`` for one that went."""

    address: str
    state: str


def watch_devices(server: AdbServer, *, stopped: threading.Event | None = None) -> Iterator[DeviceChange]:
    """Yield changes as the server tells them, the phones of now first; ends once ``stopped`` is set.

    Raises AdbUnavailableError when the server doesn't answer, LinkLostError when it goes.
    """
    known: dict[str, str] = {}
    with server.open(Deadline(_WATCH_S), what="adb track-devices") as connection:
        connection.request("host:track-devices")
        while stopped is None or not stopped.is_set():
            if not connection.readable(_LOOK_S):
                continue
            told = connection.read_block().decode("utf-8", "replace")
            states = {transport.address: transport.state for transport in parse_devices(told)}
            for address in known.keys() - states.keys():
                yield DeviceChange(address=address, state="absent")
            for address, state in states.items():
                if known.get(address) != state:
                    yield DeviceChange(address=address, state=state)
            known = states
