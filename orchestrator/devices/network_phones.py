"""Phones that are reached over the network: their addresses are kept, and connected when they are
missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from orchestrator.devices.discovery import parse_devices
from orchestrator.devices.server import AdbServer, is_tcp
from orchestrator.errors import DeviceError, HostStorageError, UsageError
from orchestrator.files import write_whole

#: Where adbd listens after 'adb tcpip 5555'.
_USUAL_PORT: Final = 5555
#: How long a phone that is switched off may delay a command.
_JOIN_TIMEOUT_S: Final = 2.0
_LONGEST_FILE_BYTES: Final = 65_536


class NetworkPhones:
    """The remembered addresses, a line each in a file."""

    def __init__(self, folder: Path) -> None:
        """Name the folder; the file is made with the first address."""
        self._path = folder / "network-phones.txt"

    def addresses(self) -> list[str]:
        """Return the addresses in the order in which they were added; what isn't one is ignored.

        Raises HostStorageError.
        """
        try:
            with self._path.open("rb") as file:
                text = file.read(_LONGEST_FILE_BYTES).decode("utf-8", "replace")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise HostStorageError(f"{self._path} can't be read: {error}") from error
        return [line for line in text.splitlines() if is_tcp(line) and " " not in line]

    def add(self, address: str) -> None:
        """Remember an address; raises HostStorageError."""
        if address not in (known := self.addresses()):
            self._write([*known, address])

    def remove(self, address: str) -> bool:
        """Forget an address; return whether it was remembered. Raises HostStorageError."""
        known = self.addresses()
        if address in known:
            self._write([item for item in known if item != address])
        return address in known

    def join(self, server: AdbServer) -> Iterator[tuple[str, DeviceError]]:
        """Connect the phones that a server doesn't know; yield those that can't be, and why."""
        if not (addresses := self.addresses()):
            return
        known = {item.address for item in parse_devices(server.device_list())}
        for address in addresses:
            if address not in known:
                try:
                    server.connect_tcp(address, timeout_s=_JOIN_TIMEOUT_S)
                except DeviceError as error:
                    yield address, error

    def _write(self, addresses: list[str]) -> None:
        try:
            write_whole(self._path, "".join(f"{address}\n" for address in addresses))
        except OSError as error:
            raise HostStorageError(f"{self._path} can't be written: {error}") from error


def full_address(text: str) -> str:
    """Return ``host:port`` of what a user writes; adb's usual port where none is given.

    Raises UsageError.
    """
    address = text.strip()
    if address and not address.rpartition(":")[1]:
        address = f"{address}:{_USUAL_PORT}"
    if not is_tcp(address) or any(c.isspace() or not c.isprintable() for c in address):
        raise UsageError(
            f"{text!r} isn't the address of a phone", hint="give HOST:PORT, as the phone shows it"
        )
    return address
