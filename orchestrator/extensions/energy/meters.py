"""What was found out about phones' power meters, a JSON file each in a folder."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote as percent_encode

from orchestrator.documents import adapter_of, dump_document
from orchestrator.extensions.energy.records import PowerMeters
from orchestrator.files import keep_file
from orchestrator.records.case import Serial


class MeterBook:
    """The meters of this computer's phones."""

    def __init__(self, folder: Path) -> None:
        """Name the folder; it is made when the first meters are kept."""
        self._folder = folder

    def load(self, serial: Serial, fingerprint: str) -> PowerMeters | None:
        """Return what is known of a phone with this system image.

        None where it has to be found out (again).
        """
        try:
            known = adapter_of(PowerMeters).validate_json(
                self._path(serial).read_bytes(), strict=True
            )
        except (OSError, ValueError):
            return None
        return known if known.serial == serial and known.fingerprint == fingerprint else None

    def save(self, meters: PowerMeters) -> None:
        """Keep what was found, whole or not at all. Raises HostStorageError."""
        keep_file(self._path(meters.serial), dump_document(meters) + "\n")

    def _path(self, serial: Serial) -> Path:
        return self._folder / f"{percent_encode(serial, safe='')}.json"
