"""What the adb server and a phone say when they fail, and which error of benchfarm's tree it is."""

from __future__ import annotations

import re
from typing import Final

from orchestrator.errors import (
    DeviceCommandError,
    DeviceError,
    DeviceStorageError,
    DeviceUnauthorizedError,
    DeviceUnusableError,
    LinkLostError,
    NoDeviceError,
    TransferError,
)

#: What the server answers with FAIL, as a pattern of its text -> what it means (adb 29 and 36).
SERVER_FAILURES: Final[tuple[tuple[re.Pattern[str], type[DeviceError], str], ...]] = (
    (
        re.compile(r"device unauthorized|failed to authenticate", re.I),
        DeviceUnauthorizedError,
        "accept the key of this computer on the phone's screen (USB debugging), then try again",
    ),
    (
        re.compile(r"device still authorizing", re.I),
        DeviceUnauthorizedError,
        "wait a moment, or accept the key of this computer on the phone's screen",
    ),
    (
        re.compile(r"insufficient permissions|no permissions", re.I),
        DeviceUnusableError,
        "this user may not open the USB device: install udev rules and join the group plugdev",
    ),
    (
        re.compile(r"more than one device with serial", re.I),
        DeviceUnusableError,
        "two phones have the same serial number: attach one of them only, or reach it over TCP",
    ),
    (
        re.compile(r"no devices/emulators found|more than one device/emulator", re.I),
        NoDeviceError,
        "name the phone's serial; 'benchfarm devices' lists them",
    ),
    (
        re.compile(r"not found|no device with transport|device offline|still connecting|closed|no transport", re.I),
        LinkLostError,
        "check the cable or the network; 'benchfarm devices' shows how the phone is",
    ),
)

#: Why a phone's folder of ours can't be written: pattern, what it means, the cause for people, what to do.
WRITING_FAILURES: Final[tuple[tuple[re.Pattern[str], type[DeviceError], str, str], ...]] = (
    (
        re.compile(r"no space left|quota exceeded", re.I),
        DeviceStorageError,
        "there is no space left on the phone",
        "free some space on the phone or lower the blob budget",
    ),
    (
        re.compile(r"read-only file system", re.I),
        DeviceUnusableError,
        "the phone's storage is read-only",
        "boot the phone anew; when it stays read-only, its storage is damaged",
    ),
    (
        re.compile(r"permission denied|operation not permitted", re.I),
        DeviceCommandError,
        "the phone's shell user may not write there",
        "remove /data/local/tmp/benchfarm on the phone as who made it (root, after 'adb root'), then try again",
    ),
)


def server_failure(message: str, *, serial: str = "", what: str = "") -> DeviceError:
    """Return the error for a FAIL answer of the adb server (or of a phone's service)."""
    text = f"{what}: adb says {message!r}" if what else f"adb says {message!r}"
    for pattern, kind, hint in SERVER_FAILURES:
        if pattern.search(message):
            return kind(text, serial=serial, hint=hint)
    return DeviceError(text, serial=serial)


def sync_failure(message: str, *, serial: str, path: str) -> DeviceError:
    """Return the error for a FAIL answer of the phone's file service."""
    return writing_failure(message, serial=serial, what=path) or TransferError(
        f"{path}: the phone says {message!r}", serial=serial
    )


def writing_failure(message: str, *, serial: str, what: str) -> DeviceError | None:
    """Return the error for what the phone says when our folder can't be written; None when it says something else."""
    found = next((entry for entry in WRITING_FAILURES if entry[0].search(message)), None)
    if found is None:
        return None
    _, kind, cause, hint = found
    return kind(f"{what}: {cause}: the phone says {message.strip()[-300:]!r}", serial=serial, hint=hint)
