"""What adb's and the system's errors mean: every one of them becomes an error of benchfarm's tree."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from orchestrator.errors import (
    AdbUnavailableError,
    BenchfarmError,
    DeviceCommandError,
    DeviceError,
    DeviceStorageError,
    DeviceTimeoutError,
    DeviceUnauthorizedError,
    DeviceUnusableError,
    InstallError,
    LinkLostError,
    NoDeviceError,
    TransferError,
)

#: adbutils' exception classes, by name so that the library is imported only where it is used.
ADBUTILS_ERRORS: Final[Mapping[str, type[DeviceError]]] = {
    "AdbError": LinkLostError,
    "AdbTimeout": DeviceTimeoutError,
    "AdbConnectionError": AdbUnavailableError,
    "AdbInstallError": InstallError,
    "AdbSyncError": TransferError,
}

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


def error_of_ours(error: Exception, *, serial: str = "", what: str = "") -> BenchfarmError:
    """Return benchfarm's error for one of adbutils', of the socket's, or one that is benchfarm's already."""
    if isinstance(error, BenchfarmError):
        return error
    lead = f"{what}: " if what else ""
    for kind in type(error).__mro__:
        if kind.__module__.startswith("adbutils") and kind.__name__ in ADBUTILS_ERRORS:
            mapped = ADBUTILS_ERRORS[kind.__name__]
            if mapped is InstallError:
                return InstallError(f"{lead}{error}", install_code=getattr(error, "reason", ""), serial=serial)
            if mapped is LinkLostError and str(error):
                return server_failure(str(error), serial=serial, what=what)
            return mapped(f"{lead}{str(error) or 'adb gave no reason'}", serial=serial)
    if isinstance(error, TimeoutError):
        return DeviceTimeoutError(f"{lead}no answer in time", serial=serial)
    if isinstance(error, (OSError, EOFError, ValueError)):
        # ValueError: adbutils reads a length of four hex digits from whatever a dying server sends.
        return LinkLostError(f"{lead}{str(error) or type(error).__name__}", serial=serial)
    return DeviceError(f"{lead}{type(error).__name__}: {error}", serial=serial)


@contextmanager
def as_errors_of_ours(*, serial: str = "", what: str = "") -> Iterator[None]:
    """Raise what is raised inside as an error of benchfarm's; a fault in our own code stays what it is."""
    try:
        yield
    except BenchfarmError:
        raise
    except Exception as error:
        foreign = any(kind.__module__.startswith("adbutils") for kind in type(error).__mro__)
        if not foreign and not isinstance(error, (OSError, EOFError, ValueError)):
            raise
        raise error_of_ours(error, serial=serial, what=what) from error
