"""Phones coming and going, as the adb server tells of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.devices.failures import as_errors_of_ours
from orchestrator.devices.server import AdbServer
from orchestrator.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceChange:
    """A phone came, went or changed its state; the state is ``absent`` for one that went."""

    address: str
    state: str


def watch_devices(server: AdbServer) -> Iterator[DeviceChange]:
    """Yield changes as the server tells them, the phones of now first.

    Raises AdbUnavailableError when the server doesn't answer, LinkLostError when it goes.
    """
    if server.address.path:
        raise UsageError(f"phones can't be watched through the socket file {server.address.path}; use host:port")
    # Imported here: it takes 0.2 s, and only those who watch need it.
    import adbutils

    class Link(adbutils.AdbConnection):  # type: ignore[misc]  # adbutils has no types
        """A connection that never starts a server: adbutils would start one on 5037, whatever it was asked for."""

        def _safe_connect(self) -> object:
            return self._create_socket()

    class Client(adbutils.AdbClient):  # type: ignore[misc]
        """A client whose connections are these."""

        def make_connection(self, timeout: float | None = None) -> Link:
            return Link(self.host, self.port)

    with as_errors_of_ours(what="adb track-devices"):
        for event in Client(host=server.address.host, port=server.address.port).track_devices():
            yield DeviceChange(address=event.serial, state=event.status)
