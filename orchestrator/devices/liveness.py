"""Whether a process that left its name somewhere is still the one that wrote it.

A pid alone doesn't tell: it is given again, and two containers of one name have the same ones. A *life* names the
computer's boot, the pid namespace, the pid and when it was started; where one of them can't be read, nothing is known.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_NAMESPACE: Final = Path("/proc/self/ns/pid")
#: Fields of /proc/PID/stat after the name in parentheses: state is the first, the start in clock ticks the 20th.
_STATE, _STARTED = 0, 19


def own_life() -> str:
    """Return this process's life, empty where the system doesn't tell (no Linux)."""
    place, started = _place(), _stat(os.getpid())
    return f"{place} {os.getpid()} {started[1]}" if place and started else ""


def is_dead(life: str) -> bool:
    """Whether the process that wrote this life is certainly gone; False when nothing is known of it."""
    place, _, rest = life.rpartition(" ")
    place, _, pid = place.rpartition(" ")
    if not place or place != _place() or not pid.isdigit():
        return False
    found = _stat(int(pid))
    # A zombie does nothing any more, its parent just hasn't looked.
    return found is None or found[0] in {"Z", "X"} or found[1] != rest


def own_boot() -> str:
    """Return what is another one after each start of this computer, empty where the system doesn't tell (no Linux)."""
    try:
        return _BOOT.read_text("ascii").strip()
    except (OSError, ValueError):
        return ""


def _place() -> str:
    """Return within what a pid means something: this boot and this pid namespace."""
    boot = own_boot()
    try:
        return f"{boot} {_NAMESPACE.readlink()}" if boot else ""
    except OSError:
        return ""


def _stat(pid: int) -> tuple[str, str] | None:
    """Return a process's state and start; None when there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return (fields[_STATE], fields[_STARTED]) if len(fields) > _STARTED else None
