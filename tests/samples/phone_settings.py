"""What a phone's settings are, to be compared before and after."""

import re
from collections.abc import Callable

from orchestrator.ports import ShellResult
from orchestrator.scripts import ask

_COMMANDS = {
    **{f"settings {name}": f"settings list {name}" for name in ("global", "secure", "system")},
    "file": "cd /sys/devices/system/cpu/cpufreq; for f in policy[0-9]*/scaling_governor"
    " policy[0-9]*/scaling_min_freq; do [ ! -f $f ] || echo $f=$(cat $f); done",
    "state": "dumpsys power | grep -m 1 mWakefulness=; for k in deep light; do"
    " echo doze $k=$(dumpsys deviceidle enabled $k); done",
    "property": r"getprop | grep -E '^\[(debug\.|persist.traced.enable|init.svc.*thermal)'"
    r" | sed -e 's/^\[//' -e 's/]$//' -e 's/\]: \[/=/'",
}
#: What Android counts and stamps by itself, whoever does what.
_RESTLESS = re.compile(
    r"boot_count|_count$|timestamp|_time$|time_|last_|_last|phenotype|^settings \w+ _|"
    r"next_alarm|battery_|ssid|config_|token|hash|version|adb_wifi",
    re.IGNORECASE,
)


def settings_of(shell: Callable[[str], ShellResult]) -> dict[str, str]:
    """Return name -> value of what preparing a phone may change; what is empty is as good as
    missing.
    """
    found: dict[str, str] = {}
    for section, text in ask(shell, _COMMANDS).texts().items():
        for line in text.splitlines():
            name, _, value = line.strip().partition("=")
            what = f"{section} {name.strip()}"
            if value and not _RESTLESS.search(what) and (section, value) != ("property", "0"):
                found[what] = value
    return found


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    """Return what differs."""
    return {what for what in before | after if before.get(what) != after.get(what)}
