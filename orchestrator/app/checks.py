"""When a phone was last checked, and the offer to check one that wasn't."""

from __future__ import annotations

import json
import re
from pathlib import Path

from orchestrator.bootstrap import Settings
from orchestrator.records.device import DeviceFacts, DeviceKind


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
