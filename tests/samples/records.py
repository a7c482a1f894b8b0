"""Records that many tests need, with what none of them cares about filled in."""

from __future__ import annotations

from pathlib import Path

from orchestrator.records.campaign import Pairing
from orchestrator.records.case import Case, Serial
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.settings import Settings


def settings_in(home: Path, *, store: str = "") -> Settings:
    """Return the settings of a home, from which no adb server of this computer's user is found."""
    return Settings.from_environment({"ANDROID_ADB_SERVER_PORT": "1"}, home=home, store=store)


def facts_of(
    serial: str = "P",
    *,
    kind: DeviceKind = DeviceKind.ANDROID,
    is_virtual: bool = False,
    **others: object,
) -> DeviceFacts:
    """Return what a device is; of a phone, unless another kind is given."""
    return DeviceFacts(serial=Serial(serial), kind=kind, is_virtual=is_virtual, **others)  # type: ignore[arg-type]


def pairing_of(*sides: tuple[Case, Case], **others: object) -> Pairing:
    """Return what an A/B comparison of threads is about."""
    values: dict[str, object] = {
        "sides": tuple((a.case_key, b.case_key) for a, b in sides), "baseline": "a",
        "candidate": "b", "kind": "threads", "detect": 0.02, "level": 0.99, "threshold": 0.02,
    }  # fmt: skip
    return Pairing(**(values | others))  # type: ignore[arg-type]
