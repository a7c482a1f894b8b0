"""Looking at a farm of many hosts and steering it: its state, and cancelling, pausing, forgetting,
cleaning.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from orchestrator.app import time_limits
from orchestrator.app.resuming import close_cancelled
from orchestrator.errors import UsageError
from orchestrator.extensions.farm.manifest import read_labels
from orchestrator.extensions.farm.payload import contents_of
from orchestrator.extensions.farm.queue import FarmQueue
from orchestrator.plugins import Settings, Workspace
from orchestrator.records.answers import DoneAnswer
from orchestrator.records.case import CampaignId
from orchestrator.records.history import Yield
from orchestrator.tables.escapes import one_line
from orchestrator.units import format_bytes, parse_age

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

#: Seconds between two polls of the queue.
WATCH_S: Final = 2.0


@dataclass(frozen=True, kw_only=True)
class FarmState:
    """A farm's hosts, phones and jobs, rows as the queue has them; of one submission also what it
    lacks.
    """

    hosts: Sequence[Mapping[str, Any]]
    phones: Sequence[Mapping[str, Any]]
    #: Phones that were announced and are at no host now.
    away: Sequence[Mapping[str, Any]]
    jobs: Sequence[Mapping[str, Any]]
    #: Serial number -> why nothing is measured under it: several phones have it.
    clashes: Mapping[str, Mapping[str, Any]]
    #: ``farm``, ``host:NAME`` or ``phone:SERIAL`` -> pause or drain.
    holds: Mapping[str, str]
    #: Serial number -> what there was no time for.
    no_time_for: Mapping[str, Sequence[Mapping[str, object]]]
    #: Serial number -> how many runs gave no result.
    without_result: Mapping[str, int]


def read_state(settings: Settings, submission: str) -> FarmState:
    """Return how a farm is, with all jobs or those of a submission.

    Raises UsageError for one that isn't there.
    """
    with FarmQueue(settings.store) as queue, Workspace(settings) as workspace:
        hosts, phones, jobs, holds = (
            queue.hosts(),
            queue.phones(),
            queue.jobs(submission),
            queue.holds(),
        )
        away, clashes = queue.away(), queue.clashes()
        serials = (
            {CampaignId(job["campaign_id"]): job["serial"] for job in jobs} if submission else {}
        )
        cut = {
            serials[name]: items
            for name, items in time_limits.stored_left_out(workspace.store, list(serials)).items()
        }
        lacking = shortcomings(workspace.store, jobs) if submission else {}
    if submission and not jobs:
        raise unknown_submission(submission)
    return FarmState(
        hosts=hosts,
        phones=[
            {
                name: row[name]
                for name in ("serial", "host", "unusable", "job", "silent_s", "state", "reason")
            }
            | {"labels": read_labels(row["labels"])}
            for row in phones
        ],
        away=[{name: row[name] for name in ("serial", "host", "seen_at")} for row in away],
        jobs=jobs,
        clashes=clashes,
        holds=holds,
        no_time_for=cut,
        without_result={serial: given.without_result for serial, given in lacking.items()},
    )


def is_open(jobs: Iterable[Mapping[str, Any]]) -> bool:
    """Whether one of some jobs waits or runs."""
    return any(job["status"] in {"waits", "runs"} for job in jobs)


def wait_for(settings: Settings, submission: str, say: Callable[[str], None]) -> None:
    """Return when no job of a submission waits or runs any more, also none of a phone that came
    meanwhile.

    ``say`` gets a line for people each time that something changed. Raises UsageError when there is
    no such submission, StoreError.
    """
    said = ""
    with FarmQueue(settings.store) as queue:
        while True:
            jobs = queue.jobs(submission)
            if not jobs:
                raise unknown_submission(submission)
            counts = Counter(str(job["status"]) for job in jobs)
            text = f"{submission}: " + ", ".join(
                f"{count} {status}" for status, count in sorted(counts.items())
            )
            if text != said:
                say(text)
                said = text
            if not is_open(jobs):
                return
            time.sleep(WATCH_S)


def cancel(settings: Settings, submission: str, serials: Sequence[str]) -> DoneAnswer:
    """Cancel a submission, or some phones' part of it: what waits at once, what runs once its phone
    is restored.

    What is left of their campaigns is abandoned, of what waits at once, of what runs by its worker.
    """
    with FarmQueue(settings.store) as queue, Workspace(settings) as workspace:
        jobs = queue.jobs(submission)
        if not jobs:
            raise unknown_submission(submission)
        unknown = sorted(set(serials) - {job["serial"] for job in jobs})
        if unknown:
            raise UsageError(f"{submission} has no job for {', '.join(unknown)}")
        stopped = queue.cancel(submission, list(serials) or None)
        over = [job["campaign_id"] for job in jobs if stopped.get(job["job_id"]) == "waits"]
        closed = close_cancelled(workspace, map(CampaignId, over))
    waiting, running = (list(stopped.values()).count(status) for status in ("waits", "runs"))
    text = f"{submission}: {waiting} jobs cancelled, {running} are being stopped"
    if closed:
        text += f"; what was left of {closed} that had begun is abandoned"
    data = {"submission": submission, "jobs": sorted(stopped), "running": running, "closed": closed}
    return DoneAnswer(text=text, data=data)


def clean(settings: Settings, *, older_than: str, is_trial: bool) -> DoneAnswer:
    """Forget old jobs and take files away that no job needs, at the farm and on this host.

    Raises UsageError.
    """
    try:
        older_than_s = parse_age(older_than)
    except ValueError as error:
        raise UsageError(
            f"--older-than: {error}", hint="a number with its unit, for example 30d"
        ) from error
    with FarmQueue(settings.store) as queue:
        contents = contents_of(settings, queue)
        found = contents.clean(older_than_s=older_than_s, is_trial=is_trial)
        copies = contents.clean_copies(is_trial=is_trial)
    what = "would be taken away" if is_trial else "were taken away"
    return DoneAnswer(
        text=f"{found.jobs} jobs and {found.files} files ({format_bytes(found.size_bytes)}) of the workspace, "
        f"{copies.files} copies ({format_bytes(copies.size_bytes)}) of this host {what}",
        data={"trial": is_trial, "farm": found, "host": copies},
    )


def hold(settings: Settings, scopes: Sequence[str], kind: str) -> DoneAnswer:
    """Pause or drain hosts or phones (``host:NAME``, ``phone:SERIAL``) or the whole farm."""
    named = _checked(scopes)
    with FarmQueue(settings.store) as queue:
        known = {f"host:{row['name']}" for row in queue.hosts()} | {
            f"phone:{row['serial']}" for row in queue.phones()
        }
        unknown = [scope for scope in named if scope != "farm" and scope not in known]
        if unknown:
            raise UsageError(
                f"{', '.join(unknown)}: the farm has none of that name",
                hint="'benchfarm farm status' lists what it has",
            )
        for scope in named:
            queue.hold(scope, kind)
        holds = queue.holds()
    return DoneAnswer(text=held_text(holds), data={"holds": holds})


def release(settings: Settings, scopes: Sequence[str]) -> DoneAnswer:
    """End pauses and drains; raises UsageError for one that isn't there."""
    with FarmQueue(settings.store) as queue:
        named = _checked(scopes)
        for scope in named:
            if not queue.release(scope):
                raise UsageError(
                    f"{scope} isn't held", hint="'benchfarm farm status' lists what is"
                )
        holds = queue.holds()
    lines = [f"{_scope_text(scope)} goes on" for scope in named]
    return DoneAnswer(
        text="\n".join([*lines, *([held_text(holds)] if holds else [])]), data={"holds": holds}
    )


def forget(settings: Settings, scopes: Sequence[str]) -> DoneAnswer:
    """Take hosts and phones out of the farm that are gone for good (``host:NAME``,
    ``phone:SERIAL``).

    Of a serial number that several phones have, forget that: one of them is gone.

    Raises UsageError for a host that lives, and a phone that a host announces.
    """
    named = list(dict.fromkeys(scopes))
    for scope in named:
        if not scope.startswith(("host:", "phone:")):
            raise UsageError(
                f"{scope!r} names neither a host nor a phone",
                hint="write host:NAME or phone:SERIAL",
            )
    with FarmQueue(settings.store) as queue:
        for scope in named:
            queue.forget(scope)
    return DoneAnswer(
        text="\n".join(one_line(f"{scope}: forgotten") for scope in named),
        data={"forgotten": named},
    )


def _checked(scopes: Sequence[str]) -> list[str]:
    for scope in scopes:
        kind, _, name = scope.partition(":")
        if scope != "farm" and not (kind in {"host", "phone"} and name):
            raise UsageError(
                f"{scope!r} names nothing", hint="write farm, host:NAME or phone:SERIAL"
            )
    return list(scopes or ["farm"])


def _scope_text(scope: str) -> str:
    return "the whole farm" if scope == "farm" else scope


def held_text(holds: Mapping[str, str]) -> str:
    """Return what is paused or drained, a line each."""
    return "\n".join(
        f"{_scope_text(scope)} is held: {kind}" for scope, kind in sorted(holds.items())
    )


def shortcomings(store: Store, jobs: Iterable[Mapping[str, Any]]) -> dict[str, Yield]:
    """Return what the phones of a submission gave, by serial number; phones of whose runs each gave
    a result aside.
    """
    serials = {CampaignId(job["campaign_id"]): str(job["serial"]) for job in jobs}
    given = store.yields(list(serials))
    return {
        serials[campaign_id]: item for campaign_id, item in given.items() if item.without_result
    }


def worst_text(lacking: Mapping[str, Yield]) -> str:
    """Return for people which phones measured all for nothing; empty when none did."""
    return ", ".join(sorted(serial for serial, given in lacking.items() if given.is_nothing))


def unknown_submission(name: str) -> UsageError:
    """Return the error for a submission that isn't there."""
    return UsageError(f"there is no submission {name!r}", hint="'benchfarm farm status' lists all")
