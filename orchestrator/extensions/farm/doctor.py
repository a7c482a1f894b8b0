"""What keeps the farm from measuring tonight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from orchestrator import __version__
from orchestrator.app.doctor import Finding, ok, problem, run_checks, warning
from orchestrator.extensions.farm.control import shortcomings, worst_text
from orchestrator.extensions.farm.phones import away_text
from orchestrator.extensions.farm.queue import HOST_SILENT_S, FarmQueue
from orchestrator.plugins import Workspace
from orchestrator.units import format_duration

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

#: What failed longer ago was seen, or nobody waits for it.
_FAILED_S: Final = 7 * 86400.0
#: A job whose phone is free is taken within seconds.
_LAG_S: Final = 120.0
_CLOCK_WARN_S: Final = 2.0
_CLOCK_MOST_S: Final = 30.0


def of_farm(workspace: Workspace) -> list[Finding]:
    """Return what the checks of the farm found; raises StoreError when its queue can't be asked."""
    with FarmQueue(workspace.settings.store) as queue:
        phones, jobs = queue.phones(), queue.jobs()
        checks: Sequence[tuple[str, Callable[[], Iterable[Finding]]]] = (
            ("queue", lambda: _queue(queue, jobs, {phone["serial"] for phone in phones})),
            ("results", lambda: _results(workspace.store, jobs)),
            ("clock", lambda: _clock(queue)),
            ("hosts", lambda: _hosts(queue.hosts(), {phone["host"] for phone in phones})),
            ("phones", lambda: _phones(phones, queue.clashes())),
            ("away", lambda: _away(queue.away())),
            ("holds", lambda: _holds(queue.holds())),
        )
        return run_checks(checks)


def _queue(queue: FarmQueue, jobs: Sequence[dict[str, Any]], announced: set[str]) -> list[Finding]:
    waiting = [job["serial"] for job in jobs if job["status"] == "waits"]
    running = sum(job["status"] == "runs" for job in jobs)
    found = [ok("queue", f"{len(waiting)} jobs wait, {running} run")]
    lag_s = queue.lag_s()
    if lag_s > _LAG_S:
        text = f"a job has waited {format_duration(lag_s)} though its phone is free"
        found.append(
            problem("queue", text, "look at its host's worker: is it alive, and what does it log?")
        )
    # The newest are the last.
    for row in queue.failures(within_s=_FAILED_S)[-5:]:
        text = f"{row['submission']}: {row['jobs']} jobs failed; {row['serial']}: {row['note']}"
        found.append(problem("queue", text, f"benchfarm farm status {row['submission']}"))
    if lost := sorted({*waiting} - announced):
        text = f"jobs wait for phones that no host has: {', '.join(lost)}"
        found.append(problem("queue", text, "plug them in, or 'benchfarm farm cancel SUBMISSION'"))
    return found


def _results(store: Store, jobs: Sequence[dict[str, Any]]) -> list[Finding]:
    """Tell of phones that measured all for nothing the last time; each plan's newest submission
    that is over counts.
    """
    newest = {job["plan_name"]: job["submission"] for job in jobs if job["status"] == "done"}
    found = []
    for submission in newest.values():
        done = [job for job in jobs if job["submission"] == submission and job["status"] == "done"]
        if serials := worst_text(shortcomings(store, done)):
            step = f"benchfarm farm status {submission}; 'benchfarm results log RUN' shows what a run said"
            found.append(
                problem("results", f"{submission}: no run of {serials} gave a result", step)
            )
    return found or [
        ok("results", f"of {len(newest)} plans every phone gave some" if newest else "none yet")
    ]


def _clock(queue: FarmQueue) -> list[Finding]:
    asked, told, answered = datetime.now(UTC), queue.now(), datetime.now(UTC)
    # While the answer was on its way both clocks went on.
    off_s = max(0.0, (asked - told).total_seconds(), (told - answered).total_seconds())
    text = f"this host's clock and the database's are {off_s:.1f} s apart"
    step = "let both follow NTP; runs are stamped by their host's"
    if off_s > _CLOCK_MOST_S:
        return [problem("clock", text, step)]
    return [warning("clock", text, step)] if off_s > _CLOCK_WARN_S else [ok("clock", text)]


def _hosts(hosts: Sequence[dict[str, Any]], with_phones: Collection[str]) -> list[Finding]:
    if not hosts:
        return [
            problem(
                "hosts", "no host works for the farm", "start 'benchfarm farm worker' on each host"
            )
        ]
    found = []
    for host in hosts:
        name = host["name"]
        if host["silent_s"] > HOST_SILENT_S:
            text = f"{name} was last heard {format_duration(host['silent_s'])} ago"
            step = f"start 'benchfarm farm worker' on {name} again, or look at its network; if it is gone for good: "
            found.append(problem("hosts", text, f"{step}'benchfarm farm forget host:{name}'"))
            continue
        if host["note"]:
            found.append(
                problem(
                    "hosts",
                    f"{name}: {host['note']}",
                    f"mend that on {name}; its worker looks again",
                )
            )
        elif name not in with_phones:
            step = f"plug some in, or look at {name} with 'benchfarm doctor'"
            found.append(warning("hosts", f"{name} has announced no phone", step))
        if host["benchfarm_version"] != __version__:
            text = f"{name} has benchfarm {host['benchfarm_version']}, this host {__version__}"
            found.append(warning("hosts", text, "install the same benchfarm on every host"))
    alive = [host["name"] for host in hosts if host["silent_s"] <= HOST_SILENT_S]
    return [*([ok("hosts", f"{len(alive)} alive: {', '.join(alive)}")] if alive else []), *found]


def _phones(
    phones: Sequence[dict[str, Any]], several: Mapping[str, Mapping[str, Any]]
) -> list[Finding]:
    usable = {row["serial"] for row in phones if not row["unusable"] and row["state"] != "silent"}
    usable -= several.keys()
    found = [
        problem(
            "phones",
            f"{phone['serial']} at {phone['host']}: {phone['unusable']}",
            f"look at it at {phone['host']}",
        )
        for phone in phones
        if phone["unusable"] and phone["serial"] not in usable
    ]
    found += [
        problem(
            "phones",
            f"{serial}: {row['reason']}",
            f"unplug all but one, then 'benchfarm farm forget phone:{serial}'",
        )
        for serial, row in sorted(several.items())
    ]
    hosts = Counter(phone["serial"] for phone in phones)
    twice = sorted(serial for serial, count in hosts.items() if count > 1 and serial not in several)
    if twice:
        text = f"announced by several hosts: {', '.join(twice)}"
        found.append(
            warning("phones", text, "a phone that was moved, or one adb server that two hosts use?")
        )
    if not usable:
        return [*found, problem("phones", "no phone can be used", "benchfarm farm status")]
    return [ok("phones", f"{len(usable)} usable"), *found]


def _away(rows: Sequence[dict[str, Any]]) -> list[Finding]:
    """Tell of phones that a host had lately: one that went while it had no job is missed by nobody
    else.
    """
    return [
        warning(
            "away",
            f"{row['serial']} is {away_text(row)}",
            f"plug it in, or start its host's worker; gone for good: 'benchfarm farm forget phone:{row['serial']}'",
        )
        for row in rows
    ] or [ok("away", "no phone of the last days is missing")]


def _holds(holds: dict[str, str]) -> list[Finding]:
    found = [
        warning(
            "holds",
            f"{scope} is held ({kind})",
            f"'benchfarm farm pause --undo {scope}' when it may work again",
        )
        for scope, kind in sorted(holds.items())
    ]
    return found or [ok("holds", "nothing is paused or drained")]
