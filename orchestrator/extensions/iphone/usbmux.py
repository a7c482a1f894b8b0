"""What reaches this computer's iPhones: the command line of ``pymobiledevice3``.

That program is under the GPL: it is only ever started as a process of its own, never imported. What
is relied on: its commands, the JSON of its lists, ``Process launched with pid N``, and the words of
its errors.
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
from orchestrator.ports import Seen
from orchestrator.processes import child_environment, run_program

PROGRAM: Final = "pymobiledevice3"
ASK_TIMEOUT_S: Final = 60.0
#: What it says when developer services are missing.
NO_SERVICE: Final = "Failed to start service"
#: The list's key by which a virtual iPhone of the tests is known.
VIRTUAL: Final = "BenchfarmVirtual"
_SOCKET: Final = Path("/var/run/usbmuxd")
#: Variables that say where usbmuxd is.
_SOCKET_NAMES: Final = ("USBMUXD_SOCKET_ADDRESS", "PYMOBILEDEVICE3_USBMUX")
#: A line of the program's own: time, host, module, process, level.
_ERROR: Final = re.compile(r"^.*\[\d{1,9}\] ERROR ", re.ASCII | re.MULTILINE)
_COLOURS: Final = re.compile(r"\x1b\[[\d;]*m", re.ASCII)
_UDID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}", re.ASCII)
_PLAIN: Final = re.compile(r"[ -~]{1,200}", re.ASCII)
#: What is kept of a list's entry; its owner's name for the phone isn't.
_KEPT: Final = ("ProductType", "ProductVersion", "BuildVersion", "ConnectionType", "DeviceClass")
_ABSENT: Final = re.compile(r"not found during afc|ObjectNotFound|OBJECT_NOT_FOUND", re.IGNORECASE)
_UNLOCK: Final = "unlock it and keep it so: Settings, Display & Brightness, Auto-Lock, Never"

#: What a text of the program means: words, error, text, hint.
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
        "look at its cable",
    ),
)


class FileAbsentError(DeviceCommandError):
    """An app's folder has no such file."""


def find_command(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words that start pymobiledevice3, installed beside us or on the PATH; none where
    it isn't there.
    """
    if find_spec(PROGRAM) is not None:
        return (sys.executable, "-m", PROGRAM)
    found = shutil.which(PROGRAM, path=environ.get("PATH"))
    return (found,) if found is not None else ()


def has_usbmuxd(environ: Mapping[str, str]) -> bool:
    """Whether there may be iPhones: the service that reaches them is there."""
    return _SOCKET.exists() or any(environ.get(name) for name in _SOCKET_NAMES)


class Usbmux:
    """What lists this computer's iPhones and talks to them."""

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

    def seen(self) -> list[Seen]:
        """Return the iPhones that are attached, each with what the list says of it.

        None where usbmuxd doesn't answer.

        One that is reached by cable and by Wi-Fi is there once.
        """
        try:
            listed = self.json("usbmux", "list")
        except DeviceError:
            return []
        found: dict[str, Mapping[str, str]] = {}
        for item in listed if isinstance(listed, list) else []:
            udid = item.get("UniqueDeviceID") if isinstance(item, dict) else None
            if not isinstance(udid, str) or not _UDID.fullmatch(udid):
                continue
            told = {name: plain(item.get(name)) for name in (*_KEPT, VIRTUAL)}
            if udid not in found or told["ConnectionType"] == "USB":
                found[udid] = told
        return [
            Seen(
                address=udid,
                serial=udid,
                state="device",
                model=told["ProductType"],
                codename=told["ProductType"],
                usable=True,
                properties=told,
            )
            for udid, told in sorted(found.items())
        ]

    def json(self, *words: str, udid: str = "") -> object:
        """Return what a command prints as JSON; raises DeviceError kinds."""
        told = self.run(*words, udid=udid)
        try:
            return json.loads(told)
        except ValueError:
            raise DeviceCommandError(
                f"{PROGRAM} {' '.join(words[:3])} printed no JSON: {told[:80]!r}", serial=udid
            ) from None

    def run(self, *words: str, udid: str = "", timeout_s: float = ASK_TIMEOUT_S) -> str:
        """Run a command to its end and return what it printed.

        Versions before 11 exit with 0 after an error: what it logged counts too. Raises DeviceError
        kinds by its words.
        """
        group = next((n for n, word in enumerate(words) if word.startswith("-")), len(words))
        what = f"{PROGRAM} {' '.join(words[: min(group, 3)])}"
        chosen = (*words, "--udid", udid) if udid else words
        try:
            code, out, err = run_program(
                [*self._command, *chosen], environ=self._environ, timeout_s=timeout_s
            )
        except OSError as error:
            raise UsageError(f"{self._command[0]} can't be started: {error.strerror}") from error
        except subprocess.TimeoutExpired:
            raise DeviceTimeoutError(f"{what} didn't end in {timeout_s:g} s", serial=udid) from None
        stdout, stderr = out.decode("utf-8", "replace"), err.decode("utf-8", "replace")
        logged = _COLOURS.sub("", stderr)
        if code != 0 or _ERROR.search(logged):
            raise _error(what, f"{logged}\n{stdout}", udid)
        return _COLOURS.sub("", stdout)


def plain(value: object) -> str:
    """Return what a phone says as a text that any store and terminal takes; empty for anything
    else.
    """
    text = str(value) if isinstance(value, str | bool) else ""
    return text if _PLAIN.fullmatch(text) else ""


def _error(what: str, text: str, udid: str) -> DeviceError:
    """Return the error that a failed command's words mean."""
    errors = [line[match.end() :] for line in text.splitlines() if (match := _ERROR.match(line))]
    said = errors or [line.strip() for line in text.splitlines() if line.strip()][-3:]
    told = " / ".join(said)[-300:] or "no reason given"
    if _ABSENT.search(text):
        return FileAbsentError(f"{what}: {told}", serial=udid)
    for words, error, meaning, hint in _CAUSES:
        if re.search(words, "\n".join(errors) or text, re.IGNORECASE):
            # The hint is in the text too: of a device that is abandoned nothing else is shown.
            return error(f"{meaning} ({told}): {hint}", serial=udid)
    return DeviceCommandError(f"{what} failed: {told}", serial=udid)
