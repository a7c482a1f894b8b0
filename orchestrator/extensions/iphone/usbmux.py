"""Talks to this computer's iPhones by the command line of ``pymobiledevice3``.

That program is under the GPL: it is only ever started as a process of its own, never imported. This
module relies on its commands, the JSON of its lists, ``Process launched with pid N``, and the words
of its errors.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from orchestrator.errors import (
    DeviceCommandError,
    DeviceError,
    DeviceStorageError,
    DeviceTimeoutError,
    DeviceUnauthorizedError,
    DeviceUnusableError,
    InstallError,
    LinkLostError,
    NoDeviceError,
    UsageError,
)
from orchestrator.ports import ListedPhone
from orchestrator.processes import child_environment, run_program
from orchestrator.reading.lines import COLOUR

PROGRAM: Final = "pymobiledevice3"
ASK_TIMEOUT_S: Final = 60.0
#: Its message when developer services are missing.
NO_SERVICE: Final = "Failed to start service"
#: The list's key of a virtual iPhone of the tests.
VIRTUAL: Final = "BenchfarmVirtual"
_SOCKET: Final = Path("/var/run/usbmuxd")
#: Variables with usbmuxd's address.
_SOCKET_NAMES: Final = ("USBMUXD_SOCKET_ADDRESS", "PYMOBILEDEVICE3_USBMUX")
#: A line of the program's own: time, host, module, process, level.
_ERROR: Final = re.compile(r"^.*\[\d{1,9}\] ERROR ", re.ASCII | re.MULTILINE)
_UDID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}", re.ASCII)
_PLAIN: Final = re.compile(r"[ -~]{1,200}", re.ASCII)
#: Keys of a list's entry that are stored; the owner's name for the phone isn't.
_LIST_KEYS: Final = (
    "ProductType",
    "ProductVersion",
    "BuildVersion",
    "ConnectionType",
    "DeviceClass",
)
_ABSENT: Final = re.compile(r"not found during afc|ObjectNotFound|OBJECT_NOT_FOUND", re.IGNORECASE)
_UNLOCK: Final = "unlock it and keep it unlocked: Settings, Display & Brightness, Auto-Lock, Never"

#: Causes of the program's errors: pattern of its message, error, text, hint.
_CAUSES: Final[tuple[tuple[str, type[DeviceError], str, str], ...]] = (
    (
        "connect to usbmuxd",
        NoDeviceError,
        "usbmuxd doesn't answer",
        "install and start usbmuxd, plug the phone in",
    ),
    (
        "not paired|user dialog|refused to trust|InvalidHostID",
        DeviceUnauthorizedError,
        "the iPhone doesn't trust this computer",
        f"unlock it, '{PROGRAM} lockdown pair', and tap Trust",
    ),
    ("password protected", DeviceUnusableError, "the iPhone is locked", _UNLOCK),
    (
        "Developer Mode is disabled",
        DeviceUnusableError,
        "its developer mode is off",
        f"'{PROGRAM} amfi enable-developer-mode' (the phone reboots), or Settings, Privacy & Security",
    ),
    (
        "Unable to connect to Tunneld",
        DeviceUnusableError,
        "iOS 17.0 to 17.3 need a tunnel",
        f"sudo {PROGRAM} remote tunneld; from iOS 17.4 on none is needed",
    ),
    (
        NO_SERVICE,
        DeviceUnusableError,
        "its developer services don't start",
        f"'{PROGRAM} mounter auto-mount' (needs Apple's server), developer mode, and from 17.0 to 17.3 a tunnel",
    ),
    (
        "enough disk space|no space left|NO_SPACE",
        DeviceStorageError,
        "its disk is full",
        "free some space on it",
    ),
    (
        "No app with bundle id",
        InstallError,
        "the app isn't installed",
        "name its .ipa, or $BENCHFARM_IPHONE_APP its bundle id (docs/reference/iphone.md)",
    ),
    (
        "not connected|no device|device .*not found|disconnected|connection (?:was )?(?:terminated|reset|lost|aborted)",
        LinkLostError,
        "the iPhone isn't attached any more",
        "check its cable",
    ),
)


class FileAbsentError(DeviceCommandError):
    """An app's folder has no such file."""


def find_command(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words that start pymobiledevice3, installed beside us or on the PATH; empty if it
    isn't installed.
    """
    if find_spec(PROGRAM) is not None:
        return (sys.executable, "-m", PROGRAM)
    path = shutil.which(PROGRAM, path=environ.get("PATH"))
    return (path,) if path is not None else ()


def has_usbmuxd(environ: Mapping[str, str]) -> bool:
    """Whether there may be iPhones: usbmuxd is there."""
    return _SOCKET.exists() or any(environ.get(name) for name in _SOCKET_NAMES)


class Usbmux:
    """Lists this computer's iPhones and runs commands on them."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        """``command`` starts pymobiledevice3."""
        self._command = tuple(command)
        # The socket's address and the tunnel are the user's choice.
        chosen = {
            name: value
            for name, value in environ.items()
            if name.startswith(("USBMUXD_", "PYMOBILEDEVICE3_"))
        }
        chosen.pop("PYMOBILEDEVICE3_UDID", None)
        self._environ = child_environment(environ, **chosen, NO_COLOR="1", PYTHONUNBUFFERED="1")

    def attached(self) -> list[ListedPhone]:
        """Return the attached iPhones with their properties; none where usbmuxd doesn't answer.

        An iPhone that is reached by cable and by Wi-Fi is listed once.
        """
        try:
            entries = self.json("usbmux", "list")
        except DeviceError:
            return []
        phones: dict[str, Mapping[str, str]] = {}
        for item in entries if isinstance(entries, list) else []:
            udid = item.get("UniqueDeviceID") if isinstance(item, dict) else None
            if not isinstance(udid, str) or not _UDID.fullmatch(udid):
                continue
            properties = {name: plain(item.get(name)) for name in (*_LIST_KEYS, VIRTUAL)}
            if udid not in phones or properties["ConnectionType"] == "USB":
                phones[udid] = properties
        return [
            ListedPhone(
                address=udid,
                serial=udid,
                state="device",
                model=properties["ProductType"],
                codename=properties["ProductType"],
                usable=True,
                properties=properties,
            )
            for udid, properties in sorted(phones.items())
        ]

    def json(self, *words: str, udid: str = "") -> object:
        """Return the JSON that a command prints; raises DeviceError kinds."""
        text = self.run(*words, udid=udid)
        try:
            return json.loads(text)
        except ValueError:
            raise DeviceCommandError(
                f"{PROGRAM} {' '.join(words[:3])} printed no JSON: {text[:80]!r}", serial=udid
            ) from None

    def run(self, *words: str, udid: str = "", timeout_s: float = ASK_TIMEOUT_S) -> str:
        """Run a command to its end and return its output.

        Versions before 11 exit with 0 after an error: logged errors count too. Raises DeviceError
        kinds by their words.
        """
        group = next((n for n, word in enumerate(words) if word.startswith("-")), len(words))
        label = f"{PROGRAM} {' '.join(words[: min(group, 3)])}"
        arguments = (*words, "--udid", udid) if udid else words
        try:
            code, out, err = run_program(
                [*self._command, *arguments], environ=self._environ, timeout_s=timeout_s
            )
        except OSError as error:
            raise UsageError(f"{self._command[0]} can't be started: {error.strerror}") from error
        except subprocess.TimeoutExpired:
            raise DeviceTimeoutError(
                f"{label} didn't end in {timeout_s:g} s", serial=udid
            ) from None
        stdout, stderr = out.decode("utf-8", "replace"), err.decode("utf-8", "replace")
        logged = COLOUR.sub("", stderr)
        if code != 0 or _ERROR.search(logged):
            raise _error(label, f"{logged}\n{stdout}", udid)
        return COLOUR.sub("", stdout)


def plain(value: object) -> str:
    """Return a phone's value as printable ASCII of at most 200 characters, else ""."""
    text = str(value) if isinstance(value, str | bool) else ""
    return text if _PLAIN.fullmatch(text) else ""


def _error(command: str, text: str, udid: str) -> DeviceError:
    """Return the error that a failed command's words mean."""
    errors = [line[match.end() :] for line in text.splitlines() if (match := _ERROR.match(line))]
    reasons = errors or [line.strip() for line in text.splitlines() if line.strip()][-3:]
    reason = " / ".join(reasons)[-300:] or "no reason given"
    if _ABSENT.search(text):
        return FileAbsentError(f"{command}: {reason}", serial=udid)
    for words, error, meaning, hint in _CAUSES:
        if re.search(words, "\n".join(errors) or text, re.IGNORECASE):
            # The hint is in the text too: of a device that is abandoned nothing else is shown.
            return error(f"{meaning} ({reason}): {hint}", serial=udid)
    return DeviceCommandError(f"{command} failed: {reason}", serial=udid)
