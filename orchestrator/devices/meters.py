"""What was found out about phones' power meters, one JSON file each, in the data folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from urllib.parse import quote as percent_encode

from orchestrator.errors import HostStorageError
from orchestrator.files import write_whole
from orchestrator.records.energy import Gauge, PowerMeters, PowerSource
from orchestrator.records.identity import Serial


class MeterBook:
    """One file per phone in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, serial: Serial, fingerprint: str) -> PowerMeters | None:
        """Return what is known of a phone with this system image; None where it has to be found out (again)."""
        try:
            known = _from_row(json.loads(self._path(serial).read_text("utf-8")))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return known if known.serial == serial and known.fingerprint == fingerprint else None

    def save(self, meters: PowerMeters) -> None:
        """Keep what was found, whole or not at all. Raises HostStorageError."""
        path = self._path(meters.serial)
        try:
            write_whole(path, json.dumps(asdict(meters), indent=2) + "\n")
        except OSError as error:
            raise HostStorageError(f"{path} can't be written: {error}") from error

    def _path(self, serial: Serial) -> Path:
        return self._folder / f"{percent_encode(serial, safe='')}.json"


def _from_row(row: Mapping[str, object]) -> PowerMeters:
    gauge, rails = row["gauge"], row["rails"]
    if not isinstance(rails, list) or not isinstance(gauge, dict | None):
        raise TypeError("rails is a list, gauge an object or null")
    return PowerMeters(
        serial=Serial(str(row["serial"])),
        fingerprint=str(row["fingerprint"]),
        is_virtual=bool(row["is_virtual"]),
        source=PowerSource(str(row["source"])),
        rails=tuple(map(str, rails)),
        is_sampled=bool(row["is_sampled"]),
        gauge=None
        if gauge is None
        else Gauge(
            unit_ua=float(gauge["unit_ua"]),
            discharging=int(gauge["discharging"]),
            period_s=float(gauge["period_s"]),
            is_verified=bool(gauge["is_verified"]),
        ),
    )
