"""The phone's process table as ``ps`` prints it, and who descends from whom."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.errors import UsageError
from orchestrator.records.identity import RunId


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneProcess:
    """One process; ``group`` is 0 when ps doesn't tell."""

    pid: int
    parent: int
    group: int
    command: str


def parse_processes(text: str) -> list[PhoneProcess]:
    """Read ps with a headline; columns are found by their names, lines that don't fit are left out."""
    lines = text.splitlines()
    head = lines[0].split() if lines else []
    if "PID" not in head or "PPID" not in head:
        return []
    pid, parent = head.index("PID"), head.index("PPID")
    group = head.index("PGID") if "PGID" in head else None
    last = len(head) - 1
    # Old toolbox prints a state letter before the name without naming that column.
    shift = 0 if head[-1] in {"ARGS", "CMD", "COMMAND"} else 1
    processes: list[PhoneProcess] = []
    for line in lines[1:]:
        fields = line.split(None, last + shift)
        if len(fields) <= max(pid, parent, group or 0) or not (
            fields[pid].isdigit() and fields[parent].isdigit()
        ):
            continue
        processes.append(
            PhoneProcess(
                pid=int(fields[pid]),
                parent=int(fields[parent]),
                group=int(fields[group]) if group is not None and fields[group].isdigit() else 0,
                command=fields[-1] if len(fields) > last else "",
            )
        )
    return processes


def family(processes: Sequence[PhoneProcess], leaders: Iterable[int]) -> list[int]:
    """Return the pids that live of these leaders: themselves, their process groups and all their
    descendants.
    """
    members = set(leaders)
    members |= {process.pid for process in processes if process.group in members}
    while grown := {process.pid for process in processes if process.parent in members} - members:
        members |= grown
    alive = {process.pid for process in processes}
    return sorted(members & alive)


def folder_name(run_id: RunId) -> str:
    """Return the name of a run's folder.

    Raises UsageError for an id that could lead out of the folder above.
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}", run_id):
        raise UsageError(f"{run_id!r} can't be a run's id: letters, digits, '_', '-' and '.' only")
    return str(run_id)
