"""The columns of a farm's phones, jobs and hosts, on terminals and on its live page."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeVar
from urllib.parse import quote

from orchestrator.records.answers import DeviceAnswer, FarmAnswer, HostAnswer, JobAnswer
from orchestrator.tables.html import mark
from orchestrator.tables.table import LINES, PAGE, Column, Kind, Table
from orchestrator.units import format_remaining

_R = TypeVar("_R")
#: The colours of states; normal states have none.
TONES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("abandoned", "clash", "quarantined", "unusable", "silent", "failed"), "v-error"
    ),
    **dict.fromkeys(("away", "paused"), "v-warning"),
}


def phones_table(farm: FarmAnswer, now: datetime) -> Table[DeviceAnswer]:
    """Return the farm's phones, those that need attention first."""

    def done_in(item: DeviceAnswer) -> str:
        if item.done_at is None:
            return ""
        text = format_remaining((item.done_at - now).total_seconds())
        return mark("done_in", text, item.done_at)

    def progress(item: DeviceAnswer) -> str:
        work = item.stored + item.left
        if not (work and item.campaign_id):
            return ""
        return mark("progress", item.stored, work, f"progress of {item.serial}")

    def actions(item: DeviceAnswer) -> str:
        release = _act(
            "Release",
            f"DELETE /quarantine/{quote(item.serial, safe='')}",
            asks=f"Release {item.serial} from quarantine?",
        )
        pause = pause_button(farm, f"phone:{item.serial}", "phone") if farm.has_queue else ""
        return (release if item.state == "quarantined" else "") + pause

    columns: list[Column[DeviceAnswer]] = [
        Column("phone", value=lambda item: mark("phone", item), kind=Kind.MARKUP, forms=PAGE),
        Column("serial", "phone", lambda row: row.serial, forms=LINES),
        Column("host", value=lambda row: row.host, is_optional=True),
        Column("state", value=lambda row: row.state, tone=lambda i: TONES.get(i.state, "")),
        Column("doing", "what it does", lambda item: mark("doing", item), Kind.MARKUP, forms=PAGE),
        Column("does", "what it does", lambda i: i.reason or i.doing, forms=LINES),
        Column("progress", value=progress, kind=Kind.MARKUP, forms=PAGE),
        Column("done_in", value=done_in, kind=Kind.MARKUP, forms=PAGE),
        _figure("heat", "heat °C", lambda item: item.battery_heat_c),
        _figure("battery", "battery %", lambda item: item.battery_percent),
    ]
    return Table(
        name="phones",
        caption="Phones",
        columns=[*columns, *_actions(farm, actions)],
        rows=farm.devices,
        nothing="No phone was seen in the last 24 hours.",
    )


def _figure(
    name: str, head: str, value: Callable[[DeviceAnswer], float | None]
) -> Column[DeviceAnswer]:
    """Return the column of a figure; phones without it have an empty cell."""
    return Column(
        name,
        head,
        value,
        Kind.NUMBER,
        digits=0,
        shown=lambda item: "" if value(item) is None else None,
        is_optional=True,
    )


def jobs_table(rows: Sequence[JobAnswer], now: datetime) -> Table[JobAnswer]:
    """Return the table of jobs, of one submission (page) or of several (lines)."""

    def status(job: JobAnswer) -> str:
        is_later = job.again_at is not None and job.again_at > now
        return f"{job.status} until {job.again_at:%H:%M} UTC" if is_later else job.status

    columns: Sequence[Column[JobAnswer]] = (
        Column("submission", value=lambda row: row.submission, forms=LINES),
        Column("serial", "phone", lambda row: row.serial),
        Column("status", value=status, tone=lambda job: TONES.get(job.status, "")),
        Column("plan", value=lambda row: row.plan),
        Column("priority", value=lambda row: row.priority, kind=Kind.COUNT),
        Column("host", value=lambda row: row.host),
        Column("note", value=lambda row: row.note, is_optional=True),
    )
    return Table(name="jobs", caption="Jobs", columns=columns, rows=rows)


def hosts_table(farm: FarmAnswer) -> Table[HostAnswer]:
    """Return the farm's hosts."""
    columns: list[Column[HostAnswer]] = [
        Column("name", "host", lambda row: row.name),
        Column("state", value=lambda row: row.state, tone=lambda i: TONES.get(i.state, "")),
        Column("benchfarm_version", "benchfarm", lambda row: row.benchfarm_version),
        Column("note", value=lambda row: row.note, is_optional=True),
        *_actions(farm, lambda item: pause_button(farm, f"host:{item.name}", "host")),
    ]
    nothing = "No host is known: 'benchfarm farm worker' adds one."
    return Table(name="hosts", caption="Hosts", columns=columns, rows=farm.hosts, nothing=nothing)


def _actions(farm: FarmAnswer, buttons: Callable[[_R], str]) -> list[Column[_R]]:
    """Return the column of buttons; no column without a token."""
    column = Column("actions", value=buttons, kind=Kind.MARKUP, forms=PAGE)
    return [column] if farm.can_be_steered else []


def pause_button(farm: FarmAnswer, scope: str, label: str) -> str:
    """Return the button that pauses a part of the farm, or resumes it."""
    if scope in farm.pauses:
        return _act(f"Resume {label}", f"DELETE /pauses?scope={quote(scope, safe='')}")
    return _act(f"Pause {label}", "POST /pauses", body=json.dumps({"scope": scope}))


def cancel_button(submission: str) -> str:
    """Return the button that cancels a submission."""
    return _act(
        f"Cancel {submission}",
        f"DELETE /submissions/{quote(submission, safe='')}",
        asks=f"Cancel all waiting and running jobs of {submission}?",
    )


def _act(label: str, request: str, *, asks: str = "", body: str = "") -> str:
    """Return a button that sends a request to the API once its question is confirmed."""
    return mark("act", label, request, asks, body)
