"""Quiet mode: the steps that make a phone disturb a measurement less, each read, applied and undone;
and the undo journal, written before each change: in a file on this computer, and in one on the
phone, from which any other computer can undo it.

Android decides what the shell user may do: settings and ``svc`` always, ``cmd connectivity
airplane-mode`` and ``cmd power set-fixed-performance-mode-enabled`` since Android 11, clocks only as
root.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from shlex import quote
from typing import Final

from orchestrator.devices.adb_server import is_tcp
from orchestrator.errors import HostStorageError
from orchestrator.files import file_of, name_of, write_whole
from orchestrator.ports import SettingChange
from orchestrator.records import frozen
from orchestrator.records.case import Serial
from orchestrator.records.device import CpuCluster, DeviceFacts
from orchestrator.records.plan import Quiet, Screen
from orchestrator.scripts import script_command

_ANDROID_11: Final = 30
#: The names of the steps that switch the screen.
SCREEN_ON: Final = "the screen being on"
SCREEN_OFF: Final = "the screen being off"
_ANIMATIONS: Final = (
    "window_animation_scale",
    "transition_animation_scale",
    "animator_duration_scale",
)
#: Without a network nothing is synchronized or updated; the shell has no switch for the accounts'
#: own setting.
_RADIOS: Final = (("wifi", "wifi_on", "Wi-Fi"), ("data", "mobile_data", "mobile data"))


@frozen
class QuietStep:
    """One setting: the commands that read, apply and restore it."""

    #: For people; also the change's name in the journal.
    name: str
    #: Command that prints its value; nothing where the phone doesn't have it.
    read: str
    #: Pattern of the values that are as planned.
    planned: str
    apply: str
    #: Value -> the command that restores it.
    undo: Callable[[str], str]
    #: Why it is unavailable on this phone, empty when it may be tried.
    refusal: str = ""
    #: Nothing can be read back: the exit code of ``apply`` decides.
    by_exit_code: bool = False

    def accepts(self, value: str) -> bool:
        """Whether a value is as planned."""
        return re.fullmatch(self.planned, value) is not None

    def change(self, before: str) -> SettingChange:
        """Return the journal's entry for this step; ``before`` is the value read before it."""
        read, was = ("", "") if self.by_exit_code else (self.read, before)
        return SettingChange(what=self.name, undo=self.undo(before), read=read, was=was)


def as_root(command: str) -> str:
    """Return a shell text that runs ``command`` as root, by any way that the phone has."""
    return script_command("as_root", command)


def is_network_serial(transport: str) -> bool:
    """Whether a transport is a network one: an address with a port, or an mDNS name.

    An address of this computer counts too: it may be a tunnel to a phone anywhere.
    """
    return "._adb" in transport or is_tcp(transport)


def steps_for(quiet: Quiet, facts: DeviceFacts, *, over_network: bool) -> list[QuietStep]:
    """Return the steps of a plan's quiet mode on a phone, in the order of their application.

    ``over_network``: adb reaches the phone through its own network, so its radios stay on.
    """
    cut_off = "adb reaches the phone over the network, and would be cut off" if over_network else ""
    not_root = "" if facts.is_rooted else "it takes root"
    clusters = [step for item in facts.clusters for step in _pinned_cluster(item, not_root)]
    table = (
        (True, [screen_step(quiet.screen)]),
        (quiet.screen is not Screen.OFF, [_stay_awake()]),
        (quiet.airplane, [_airplane(facts, cut_off)]),
        (quiet.no_doze, [_doze(kind) for kind in ("deep", "light")]),
        (quiet.animations_off, [_animation(name) for name in _ANIMATIONS]),
        (quiet.sync_off, [_radio(*radio, cut_off) for radio in _RADIOS]),
        (quiet.fixed_performance, [_fixed_performance(facts)]),
        (quiet.pin_clocks, clusters),
        (quiet.pin_gpu, [_pinned_gpu(not_root)]),
    )
    return [step for is_planned, steps in table if is_planned for step in steps]


def screen_step(screen: Screen) -> QuietStep:
    """Return the step that switches the screen."""
    is_on = screen is not Screen.OFF
    return QuietStep(
        name=SCREEN_ON if is_on else SCREEN_OFF,
        read="dumpsys power | grep -m 1 mWakefulness=",
        planned=".*Awake.*" if is_on else "(?!.*Awake).*",
        apply=_screen_key("Awake" if is_on else ""),
        undo=_screen_key,
    )


def _screen_key(value: str) -> str:
    """Return the command that sets the screen to a state as printed by the power service."""
    return f"input keyevent KEYCODE_{'WAKEUP' if 'Awake' in value else 'SLEEP'}"


def _stay_awake() -> QuietStep:
    name = "stay_on_while_plugged_in"

    def undo(value: str) -> str:
        # Where the shell may not write settings, the power service may still accept the nearest of
        # its fewer values.
        nearest = {"1": "ac", "2": "usb", "4": "wireless"}.get(value, "false")
        is_undone = f'[ "$(settings get global {name})" = {quote(value)} ]'
        return f"{put_setting('global', name, value)} 2>/dev/null; {is_undone} || svc power stayon {nearest}"

    return QuietStep(
        name="staying awake while plugged in",
        read=f"settings get global {name}",
        # Bits: charger, USB, wireless, dock.
        planned="7|15",
        apply="svc power stayon true",
        undo=undo,
    )


def put_setting(namespace: str, name: str, value: str) -> str:
    """Return the command that sets a setting to a value as printed by ``settings get``."""
    if value in {"null", ""}:
        return f"settings delete {namespace} {name}"
    return f"settings put {namespace} {name} {quote(value)}"


def _animation(name: str) -> QuietStep:
    return QuietStep(
        name=name.replace("_", " "),
        read=f"settings get global {name}",
        planned=r"0(\.0*)?",
        apply=f"settings put global {name} 0",
        undo=lambda value: put_setting("global", name, value),
    )


def _airplane(facts: DeviceFacts, refusal: str) -> QuietStep:
    command = "cmd connectivity airplane-mode"
    return QuietStep(
        name="airplane mode",
        read="settings get global airplane_mode_on",
        planned="1",
        apply=f"{command} enable",
        undo=lambda value: f"{command} {'enable' if value == '1' else 'disable'}",
        refusal=refusal or _since_11(facts),
    )


def _doze(kind: str) -> QuietStep:
    return QuietStep(
        name=f"{kind} doze being off",
        read=f"dumpsys deviceidle enabled {kind}",
        planned="0",
        apply=f"dumpsys deviceidle disable {kind}",
        undo=lambda value: f"dumpsys deviceidle {'enable' if value == '1' else 'disable'} {kind}",
    )


def _radio(service: str, setting: str, name: str, refusal: str) -> QuietStep:
    return QuietStep(
        name=f"{name} being off",
        read=f"settings get global {setting}",
        planned="0|null",
        apply=f"svc {service} disable",
        undo=lambda value: f"svc {service} {'disable' if value == '0' else 'enable'}",
        refusal=refusal,
    )


def _since_11(facts: DeviceFacts) -> str:
    return "" if (facts.sdk or 0) >= _ANDROID_11 else "it came with Android 11"


def _fixed_performance(facts: DeviceFacts) -> QuietStep:
    command = "cmd power set-fixed-performance-mode-enabled"
    return QuietStep(
        name="fixed performance mode",
        # Android can't report it; it is off unless a test harness has switched it on.
        read="echo off",
        planned="on",
        apply=f"{command} true",
        undo=lambda value: f"{command} false",
        refusal=_since_11(facts),
        by_exit_code=True,
    )


def _pinned_cluster(cluster: CpuCluster, refusal: str) -> list[QuietStep]:
    first = min(cluster.cpus)
    settings = [("scaling_governor", "performance", "governor")]
    if cluster.max_khz is not None:
        settings.append(("scaling_min_freq", str(cluster.max_khz), "smallest clock"))
    return [
        _cpufreq_file(f"policy{first}/{file_name}", target, f"{title} of cpu{first}", refusal)
        for file_name, target, title in settings
    ]


def _cpufreq_file(file_name: str, target: str, name: str, refusal: str) -> QuietStep:
    path = f"/sys/devices/system/cpu/cpufreq/{file_name}"
    return QuietStep(
        name=name,
        read=f"cat {path}",
        planned=re.escape(target),
        apply=as_root(f"echo {target} >{path}"),
        undo=lambda value: as_root(f"echo {quote(value)} >{path}"),
        refusal=refusal,
    )


def _pinned_gpu(refusal: str) -> QuietStep:
    def undo(value: str) -> str:
        folder, min_clock, _ = value.split()
        return as_root(f"echo {quote(min_clock)} >{quote(folder)}/min_freq")

    return QuietStep(
        name="the GPU's smallest clock",
        # On some systems only root may read them.
        read=as_root(script_command("gpu_clock", "read")),
        planned=r"\S+\s+(\S+)\s+\1",
        apply=as_root(script_command("gpu_clock", "raise")),
        undo=undo,
        refusal=refusal,
    )


#: Section -> command of the snapshot; of properties only those for debugging, and the one that a
#: trace may change.
SNAPSHOT_COMMANDS: Final[Mapping[str, str]] = {
    **{f"settings {name}": f"settings list {name}" for name in ("global", "secure", "system")},
    "property": r"getprop | grep -E '^\[(debug\.|persist\.traced\.enable\])'",
    "file": script_command("snapshot_files"),
    "state": script_command("snapshot_state"),
}
#: The snapshot's name of the screen's state.
SCREEN_STATE: Final = "state mWakefulness"
#: Counters, timestamps and other values that Android changes by itself.
_RESTLESS: Final = re.compile(
    r"boot_count|_count$|timestamp|_time$|time_|last_|_last|phenotype|^settings \w+ _|"
    r"next_alarm|battery_|ssid|config_|token|hash|version|adb_wifi",
    re.IGNORECASE,
)


def parse_snapshot(sections: Mapping[str, str]) -> dict[str, str]:
    """Return name -> value from the outputs of SNAPSHOT_COMMANDS."""
    values: dict[str, str] = {}
    for section in SNAPSHOT_COMMANDS:
        for line in sections.get(section, "").splitlines():
            if section == "property":
                name, equals, value = line.strip()[1:-1].partition("]: [")
            else:
                name, equals, value = line.strip().partition("=")
            if equals and name:
                values[f"{section} {name.strip()}"] = value
    return values


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the differences as sentences, sorted, without those that Android makes by itself."""
    texts = []
    for name in sorted(before.keys() | after.keys()):
        # An empty property equals a missing one, and so does one that is off.
        old, new = before.get(name, ""), after.get(name, "")
        is_off = name.startswith("property ") and {old, new} in ({"", "0"}, {"", "false"})
        if old != new and not is_off and not _RESTLESS.search(name):
            texts.append(f"{name} was {old or 'not there'!r} and is {new or 'not there'!r}")
    return texts


_KEYS: Final = tuple(item.name for item in fields(SettingChange))


def format_changes(changes: Sequence[SettingChange]) -> str:
    """Return changes as text, one line of JSON each."""
    rows = ({key: value for key, value in asdict(change).items() if value} for change in changes)
    return "".join(json.dumps(row) + "\n" for row in rows)


def parse_changes(text: str) -> list[SettingChange]:
    """Read the text that format_changes wrote.

    Raises ValueError for a line that isn't a change, whose undo would be lost.
    """
    changes: list[SettingChange] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            change = SettingChange(**{key: str(row[key]) for key in _KEYS if key in row})
        except (ValueError, TypeError) as error:
            raise ValueError(f"line {number} can't be read: {line[:80]!r}") from error
        if not (change.undo or change.port):
            raise ValueError(f"line {number} doesn't say how it is undone: {line[:80]!r}")
        changes.append(change)
    return changes


class UndoJournal:
    """Files of each device in ``folder``; every line is on the disk before the change that it
    describes is made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def pending(self, serial: Serial) -> list[SettingChange]:
        """Return the changes that weren't undone, oldest first.

        Raises HostStorageError when the file is unreadable: read as empty, it would be overwritten.
        """
        path = self._path(serial, "undo")
        try:
            changes = parse_changes(path.read_text("utf-8"))
            if not changes:
                raise ValueError("it is empty")
            return changes
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise _unreadable(path, error) from error

    def add(self, serial: Serial, *changes: SettingChange) -> None:
        """Add changes; raises HostStorageError, and then the changes must not be made."""
        self.keep(serial, [*self.pending(serial), *changes])

    def keep(self, serial: Serial, changes: Sequence[SettingChange]) -> None:
        """Keep only these changes; raises HostStorageError."""
        self._store(serial, "undo", format_changes(changes))

    def forget(self, serial: Serial, undone: SettingChange) -> None:
        """Remove one change."""
        self.keep(serial, [change for change in self.pending(serial) if change != undone])

    def ports_off(self, serial: Serial) -> list[SettingChange]:
        """Return the changes of a device that powered a hub's port off."""
        return [change for change in self.pending(serial) if change.port]

    def serials(self) -> list[Serial]:
        """Return the devices with changes to undo, or with a snapshot that isn't compared yet.

        Raises HostStorageError.
        """
        suffixes = {".undo", ".snapshot"}
        try:
            names = {name_of(path) for path in self.folder.iterdir() if path.suffix in suffixes}
        except FileNotFoundError:
            return []
        except OSError as error:
            raise _unreadable(self.folder, error) from error
        return [Serial(name.removeprefix("device-")) for name in sorted(names)]

    def snapshot(self, serial: Serial) -> dict[str, str] | None:
        """Return the snapshot from before the first change that isn't undone and compared yet, or
        None.

        Raises HostStorageError.
        """
        path = self._path(serial, "snapshot")
        try:
            return {
                str(key): str(value) for key, value in json.loads(path.read_text("utf-8")).items()
            }
        except FileNotFoundError:
            return None
        except (OSError, ValueError, AttributeError) as error:
            raise _unreadable(path, error) from error

    def keep_snapshot(self, serial: Serial, snapshot: Mapping[str, str] | None) -> None:
        """Keep a snapshot, or remove it (None); raises HostStorageError."""
        self._store(serial, "snapshot", "" if snapshot is None else json.dumps(dict(snapshot)))

    def _store(self, serial: Serial, suffix: str, text: str) -> None:
        """Write a file durably, readable by this user only; remove it for an empty text."""
        path = self._path(serial, suffix)
        try:
            if text:
                write_whole(path, text, is_durable=True)
            else:
                with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                    path.unlink()
        except OSError as error:
            raise HostStorageError(
                f"the undo journal of {serial} can't be written to {path}: {error}"
            ) from error

    def _path(self, serial: Serial, suffix: str) -> Path:
        return file_of(self.folder, f"device-{serial}", f".{suffix}")


def _unreadable(path: Path, error: Exception) -> HostStorageError:
    return HostStorageError(
        f"the undo journal can't be read from {path}: {error}",
        hint="make it readable, or undo the changes that it names and move it away",
    )
