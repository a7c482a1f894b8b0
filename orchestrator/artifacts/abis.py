"""Names of ABIs: Android's own, and ``linux-`` with the machine's name for a Linux computer."""

from __future__ import annotations

from typing import Final

from orchestrator.records.device import DeviceKind

#: Between the ABIs of an APK that has several.
ABI_SEPARATOR: Final = ","


def abi_names(abi: str, kind: DeviceKind | None) -> frozenset[str]:
    """Return the names that a build for a device's ABI may have.

    A Linux computer tells its machine's name alone, which for some is Android's name of an ABI too: ``x86_64``. When
    the device isn't known, the name says itself which of both systems is meant.
    """
    if kind is DeviceKind.HOST and not abi.startswith("linux-"):
        abi = f"linux-{abi}"
    return frozenset({abi})


def needed_abi(wanted: frozenset[str]) -> str:
    """Return the ABI that a message names: Android's when there are two."""
    return min(wanted, key=lambda abi: (abi.startswith("linux-"), abi)) or "its (unknown) ABI"


def fits(build_abi: str, wanted: frozenset[str]) -> bool:
    """Return whether a build runs there; one without native code runs everywhere."""
    return not build_abi or bool(wanted & set(build_abi.split(ABI_SEPARATOR)))
