"""What experiments found about phones, one JSON file each, in the data folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import datetime
from pathlib import Path
from urllib.parse import quote as percent_encode

from orchestrator.errors import HostStorageError, UsageError
from orchestrator.files import write_whole
from orchestrator.records.identity import Serial
from orchestrator.records.plan import Quiet
from orchestrator.records.tuning import ModeRatio, OptionTrial, PhoneExperiments
from orchestrator.records.workload import ProcessMode

#: Fields of Quiet that tuning may set.
OPTIONS = tuple(item.name for item in fields(Quiet) if item.name not in {"screen", "thermal_control_off"})


class ExperimentBook:
    """One file per phone in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, serial: Serial) -> PhoneExperiments | None:
        """Return what is known of a phone, None when nothing is; raises UsageError for a file that can't be read."""
        path = self._path(serial)
        try:
            row = json.loads(path.read_text("utf-8"))
            return _from_row(row)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(
                f"{path} can't be read: {error}",
                hint=f"run 'benchfarm device quiet {serial}' again, or remove the file",
            ) from error

    def save(self, experiments: PhoneExperiments) -> Path:
        """Keep what was found, whole or not at all; return the file. Raises HostStorageError."""
        path = self._path(experiments.serial)
        try:
            write_whole(path, json.dumps(asdict(experiments), indent=2, default=_plain) + "\n")
        except OSError as error:
            raise HostStorageError(f"{path} can't be written: {error}") from error
        return path

    def options(self, serial: Serial, fingerprint: str) -> Mapping[str, bool]:
        """Return the options of Quiet that were found good for a phone with this very system image."""
        known = self.load(serial)
        return known.options if known is not None and known.fingerprint == fingerprint else {}

    def _path(self, serial: Serial) -> Path:
        return self._folder / f"{percent_encode(serial, safe='')}.json"


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} has no JSON")


def _from_row(row: Mapping[str, object]) -> PhoneExperiments:
    def rows(name: str) -> list[dict[str, object]]:
        given = row.get(name) or []
        if not isinstance(given, list):
            raise TypeError(f"{name} is no list")
        return [dict(item) for item in given]

    def moment(name: str) -> datetime | None:
        return datetime.fromisoformat(str(row[name])) if row.get(name) else None

    def trials(name: str) -> tuple[OptionTrial, ...]:
        return tuple(OptionTrial(**{k: _tuple(v) for k, v in item.items()}) for item in rows(name))  # type: ignore[arg-type]

    options = row.get("options") or {}
    if not isinstance(options, dict) or not set(options) <= set(OPTIONS):
        raise ValueError(f"options can be {', '.join(OPTIONS)}")
    return PhoneExperiments(
        serial=Serial(str(row["serial"])),
        is_virtual=bool(row["is_virtual"]),
        fingerprint=str(row.get("fingerprint", "")),
        tuned_at=moment("tuned_at"),
        options={str(name): bool(value) for name, value in options.items()},
        trials=trials("trials"),
        begun=trials("begun"),
        begun_with=str(row.get("begun_with", "")),
        biased_at=moment("biased_at"),
        modes=tuple(
            ModeRatio(**{**{k: _tuple(v) for k, v in item.items()}, "mode": ProcessMode(str(item["mode"]))})  # type: ignore[arg-type]
            for item in rows("modes")
        ),
    )


def _tuple(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value
