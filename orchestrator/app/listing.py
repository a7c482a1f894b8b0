"""The phones that are attached, why some can't be used, and when each was last checked."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from orchestrator.app.restoring import all_at_once
from orchestrator.bootstrap import Attached, Farm, Settings
from orchestrator.errors import BenchfarmError
from orchestrator.records.device import DeviceFacts, DeviceKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedDevice:
    """A phone as an adb server sees it."""

    serial: str
    #: The server's name for it.
    address: str
    #: As the phone calls itself, empty where it can't be asked.
    model: str
    #: As the server says: ``device``, ``offline``, ``unauthorized`` ...
    state: str
    usable: bool
    #: Why it can't be used, and what to do; empty for a usable one.
    reason: str
    hint: str
    #: None for a phone that can't be asked.
    facts: DeviceFacts | None
    adb_server: str


def list_devices(farm: Farm) -> list[ListedDevice]:
    """Return what is attached, by serial number.

    Raises PlanError for faults of devices.yaml, without which no phone can be opened; AdbUnavailableError.
    """
    _ = farm.inventory
    attached = farm.attached()
    usable = [item for item in attached if item.seen.usable]
    opened = all_at_once(lambda item: _facts(farm, item), usable)
    known = {item.seen.address: facts for item, facts in zip(usable, opened, strict=True)}
    # What is known of those that are kept out is shown all the same.
    return [_listed(farm.kept_out(item), known.get(item.seen.address)) for item in attached]


def _listed(item: Attached, known: DeviceFacts | str | None) -> ListedDevice:
    seen = item.seen
    facts = known if isinstance(known, DeviceFacts) else None
    is_usable = facts is not None and seen.usable
    return ListedDevice(
        serial=facts.serial if facts else seen.serial or seen.address,
        address=seen.address,
        model=seen.model,
        state=seen.state,
        usable=is_usable,
        reason="" if is_usable else known if isinstance(known, str) else seen.reason,
        hint=seen.advice,
        facts=facts,
        adb_server=str(item.server.address),
    )


def _facts(farm: Farm, attached: Attached) -> DeviceFacts | str:
    """Return a phone's facts, or why they can't be had."""
    try:
        return farm.open_phone(attached)[1]
    except BenchfarmError as error:
        return str(error)


def check_file(settings: Settings, serial: str) -> Path:
    """Return where the last check of a phone is kept."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", serial).lstrip(".")[:80] or "phone"
    return settings.data_folder / "checks" / f"{name}.json"


def unchecked_hint(settings: Settings, facts: DeviceFacts) -> str:
    """Return an offer to check a phone that wasn't checked since its last system update; empty when it was.

    A virtual phone needs none, nor does this computer.
    """
    if facts.is_virtual or facts.kind is not DeviceKind.ANDROID:
        return ""
    try:
        kept = json.loads(check_file(settings, facts.serial).read_text("utf-8"))
        if kept["phone"]["fingerprint"] == facts.fingerprint:
            return ""
    except (OSError, ValueError, TypeError, KeyError):
        pass
    return f"{facts.serial} was never checked with its system: benchfarm device check -s {facts.serial}"
