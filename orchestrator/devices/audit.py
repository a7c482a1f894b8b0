"""Comparing a phone with what it was: all settings, clocks, screen, some properties and services,
before and after.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from orchestrator.devices.quiet_steps import THERMAL_SERVICES
from orchestrator.scripts import call

_NAMESPACES: Final = ("global", "secure", "system")
#: Properties that are watched: those for debugging, and those that benchfarm itself may change (for
#: ``thermal_control_off``, and for a trace before Android 11).
_PROPERTIES: Final = "|".join(
    [
        r"debug\.",
        r"persist\.traced\.enable\]",
        *(
            rf"init\.svc\.{re.escape(name)}\]".replace(r"\-", "-")
            for name in THERMAL_SERVICES.split()
        ),
    ]
)
#: Section -> command: all that is watched.
SNAPSHOT_COMMANDS: Final[Mapping[str, str]] = {
    **{f"settings {name}": f"settings list {name}" for name in _NAMESPACES},
    "property": f"getprop | grep -E '^\\[({_PROPERTIES})'",
    "file": call("snapshot_files"),
    "state": call("snapshot_state"),
}
#: What Android counts and stamps by itself, whoever does what.
_RESTLESS: Final = re.compile(
    r"boot_count|_count$|timestamp|_time$|time_|last_|_last|phenotype|^settings \w+ _|"
    r"next_alarm|battery_|ssid|config_|token|hash|version|adb_wifi",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One thing that isn't what it was; None: it wasn't or isn't there."""

    what: str
    before: str | None
    after: str | None

    @property
    def text(self) -> str:
        """It in words."""
        return f"{self.what} was {_said(self.before)} and is {_said(self.after)}"


def parse_snapshot(sections: Mapping[str, str]) -> dict[str, str]:
    """Return name -> value of everything that was told in the sections of SNAPSHOT_COMMANDS."""
    found: dict[str, str] = {}
    for section in SNAPSHOT_COMMANDS:
        for line in sections.get(section, "").splitlines():
            if section == "property":
                match = re.match(r"\[([^]]+)\]: \[(.*)\]$", line.strip())
                if match is not None:
                    found[f"property {match.group(1)}"] = match.group(2)
                continue
            name, equals, value = line.strip().partition("=")
            if equals and name:
                found[f"{section} {name.strip()}"] = value
    return found


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[Difference]:
    """Return what differs, sorted; what Android changes by itself is left out."""
    found = []
    for what in sorted(before.keys() | after.keys()):
        old, new = before.get(what), after.get(what)
        # An empty property is as good as none.
        if (old or "") == (new or "") or _RESTLESS.search(what):
            continue
        if what.startswith("property ") and not (old and new) and (old or new) in {"0", "false"}:
            continue
        found.append(Difference(what=what, before=old, after=new))
    return found


def _said(value: str | None) -> str:
    return "not there" if value is None else repr(value) if value != "" else "empty"
