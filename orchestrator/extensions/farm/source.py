"""The farm as benchfarm's other commands and pages meet it: its queue, the control of it, and
doctor's checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Final

from orchestrator import __version__
from orchestrator.extensions.farm.job_table import HOST_SILENT_S
from orchestrator.extensions.farm.queue import FarmQueue
from orchestrator.extensions.farm.submissions import cancel, pause, resume
from orchestrator.plugins import (
    HostCheck,
    Queue,
    QueueSource,
    Workspace,
    ok,
    problem,
    read_farm,
    run_checks,
    state_counts,
    warning,
)
from orchestrator.records.answers import FarmAnswer
from orchestrator.units import format_duration

#: A job whose phone is free is taken within seconds.
_LAG_S: Final = 120.0
_CLOCK_MOST_S: Final = 5.0
_WRONG: Final = ("clash", "quarantined", "unusable")


def farm_findings(workspace: Workspace) -> list[HostCheck]:
    """Return the findings of the farm's checks; raises StoreError when its queue can't be read."""
    with FarmQueue(workspace.settings.store) as queue:
        farm = read_farm(workspace, queue)
        return run_checks(
            [
                ("queue", lambda: _queue(farm)),
                ("clock", lambda: [_clock(queue)]),
                ("hosts", lambda: _hosts(farm)),
                ("phones", lambda: _phones(farm)),
                ("pauses", lambda: _pauses(farm)),
            ]
        )


def _queue(farm: FarmAnswer) -> Iterable[HostCheck]:
    yield ok("queue", f"jobs: {state_counts(job.status for job in farm.jobs) or 'none'}")
    if farm.lag_s > _LAG_S:
        text = f"a job has waited {format_duration(farm.lag_s)} though its phone is free"
        yield problem("queue", text, "check that its host's worker runs, and read its log")
    for job in farm.jobs:
        if job.status == "failed":
            text = f"{job.submission}: the job of {job.serial} failed: {job.note}"
            yield problem("queue", text, f"benchfarm farm status {job.submission}")
    # No host announces a phone with ``seen_at``. The state "away" may be that of a campaign only.
    announced = {item.serial for item in farm.devices if item.seen_at is None}
    if unplugged := {job.serial for job in farm.jobs if job.status == "waits"} - announced:
        text = f"jobs wait for phones that no host has: {', '.join(sorted(unplugged))}"
        yield problem("queue", text, "plug them in, or 'benchfarm farm cancel SUBMISSION'")


def _clock(queue: FarmQueue) -> HostCheck:
    difference_s = abs((queue.now() - datetime.now(UTC)).total_seconds())
    text = f"this host's clock and the database's are {difference_s:.1f} s apart"
    if difference_s <= _CLOCK_MOST_S:
        return ok("clock", text)
    return problem("clock", text, "let both follow NTP; runs are stamped by their host's")


def _hosts(farm: FarmAnswer) -> Iterable[HostCheck]:
    yield ok("hosts", state_counts(host.state for host in farm.hosts) or "none")
    if not farm.hosts:
        step = "start 'benchfarm farm worker' on each host"
        yield problem("hosts", "no host works for the farm", step)
    for host in farm.hosts:
        name = host.name
        if host.silent_s > HOST_SILENT_S:
            text = f"{name} was last heard {format_duration(host.silent_s)} ago"
            step = f"start its worker again; gone for good: 'benchfarm farm forget host:{name}'"
            yield problem("hosts", text, step)
            continue
        if host.note:
            step = f"fix that on {name}; its worker checks again"
            yield problem("hosts", f"{name}: {host.note}", step)
        if host.benchfarm_version != __version__:
            text = f"{name} has benchfarm {host.benchfarm_version}, this host {__version__}"
            yield warning("hosts", text, "install the same benchfarm on every host")


def _phones(farm: FarmAnswer) -> Iterable[HostCheck]:
    yield ok("phones", state_counts(item.state for item in farm.devices) or "none")
    for phone in farm.devices:
        forget = f"'benchfarm farm forget phone:{phone.serial}'"
        if phone.state == "clash":
            step = f"unplug all but one, then {forget}"
            yield problem("phones", f"{phone.serial}: {phone.reason}", step)
        elif phone.state in _WRONG:
            text = f"{phone.serial} at {phone.host}: {phone.state}: {phone.reason}"
            yield problem("phones", text, f"check it at {phone.host}")
        elif phone.state == "away" and phone.seen_at is not None:
            step = f"plug it in, or start its host's worker; gone for good: {forget}"
            yield warning("phones", f"{phone.serial} is away {phone.reason}", step)
    if not {item.state for item in farm.devices} - {*_WRONG, "away", "silent"}:
        yield problem("phones", "no phone can be used", "benchfarm farm status")


def _pauses(farm: FarmAnswer) -> Iterable[HostCheck]:
    for scope in farm.pauses:
        step = f"'benchfarm farm pause --undo {scope}' when it may work again"
        yield warning("pauses", f"{scope} is paused", step)


@contextmanager
def _reading(url: str) -> Iterator[Queue | None]:
    with FarmQueue(url, is_guest=True) as queue:
        yield queue if queue.is_there() else None


QUEUE = QueueSource(
    reading=_reading, pause=pause, resume=resume, cancel=cancel, findings=farm_findings
)
