"""Looking at a farm of many hosts and steering it: its state, and cancelling, pausing, forgetting, cleaning."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from orchestrator.app import time_limits
from orchestrator.app.farm_beside import shortcomings, unknown_submission
from orchestrator.app.farm_payload import contents_of
from orchestrator.app.resuming import close_cancelled
from orchestrator.bootstrap import Farm, Settings
from orchestrator.config.farm_documents import read_labels
from orchestrator.errors import UsageError
from orchestrator.quantities import parse_age
from orchestrator.queueing.queue import FarmQueue
from orchestrator.records.identity import CampaignId
from orchestrator.serve.answers import DoneAnswer
from orchestrator.tables.escapes import one_line
from orchestrator.units import format_bytes

#: Seconds between two polls of the queue.
WATCH_S: Final = 2.0


@dataclass(frozen=True, kw_only=True)
class FarmState:
    """A farm's hosts, phones and jobs, rows as the queue has them; of one submission also what it lacks."""

    hosts: Sequence[Mapping[str, Any]]
    phones: Sequence[Mapping[str, Any]]
    #: Phones that were announced and are at no host now.
    away: Sequence[Mapping[str, Any]]
    jobs: Sequence[Mapping[str, Any]]
    #: ``farm``, ``host:NAME`` or ``phone:SERIAL`` -> pause or drain.
    holds: Mapping[str, str]
    #: Serial number -> what there was no time for.
    no_time_for: Mapping[str, Sequence[Mapping[str, object]]]
    #: Serial number -> how many runs gave no result.
    without_result: Mapping[str, int]


def read_state(settings: Settings, submission: str) -> FarmState:
    """Return how a farm is, with all jobs or those of a submission; raises UsageError for one that isn't there."""
    with FarmQueue(settings.store) as queue, Farm(settings) as farm:
        hosts, phones, jobs, holds = queue.hosts(), queue.phones(), queue.jobs(submission), queue.holds()
        away = queue.away()
        serials = {CampaignId(job["campaign_id"]): job["serial"] for job in jobs} if submission else {}
        cut = {serials[name]: items for name, items in time_limits.stored_left_out(farm.store, list(serials)).items()}
        lacking = shortcomings(farm.store, jobs) if submission else {}
    if submission and not jobs:
        raise unknown_submission(submission)
    return FarmState(
        hosts=hosts,
        phones=[
            {name: value for name, value in row.items() if name != "facts"} | {"labels": read_labels(row["labels"])}
            for row in phones
        ],
        away=[{name: row[name] for name in ("serial", "host", "seen_at")} for row in away],
        jobs=jobs,
        holds=holds,
        no_time_for=cut,
        without_result={serial: given.without_result for serial, given in lacking.items()},
    )


def is_open(jobs: Iterable[Mapping[str, Any]]) -> bool:
    """Whether one of some jobs waits or runs."""
    return any(job["status"] in {"waits", "runs"} for job in jobs)


def wait_for(settings: Settings, submission: str, say: Callable[[str], None]) -> None:
    """Return when no job of a submission waits or runs any more, also none of a phone that came meanwhile.

    ``say`` gets a line for people each time that something changed. Raises UsageError when there is no such submission,
    StoreError.
    """
    said = ""
    with FarmQueue(settings.store) as queue:
        while True:
            jobs = queue.jobs(submission)
            if not jobs:
                raise unknown_submission(submission)
            counts = Counter(str(job["status"]) for job in jobs)
            text = f"{submission}: " + ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
            if text != said:
                say(text)
                said = text
            if not is_open(jobs):
                return
            time.sleep(WATCH_S)


def cancel(settings: Settings, submission: str, serials: Sequence[str]) -> DoneAnswer:
    """Cancel a submission, or some phones' part of it: what waits at once, what runs once its phone is restored.

    What is left of their campaigns is abandoned, of what waits at once, of what runs by its worker.
    """
    with FarmQueue(settings.store) as queue, Farm(settings) as farm:
        jobs = queue.jobs(submission)
        if not jobs:
            raise unknown_submission(submission)
        unknown = sorted(set(serials) - {job["serial"] for job in jobs})
        if unknown:
            raise UsageError(f"{submission} has no job for {', '.join(unknown)}")
        stopped = queue.cancel(submission, list(serials) or None)
        over = [job["campaign_id"] for job in jobs if stopped.get(job["job_id"], "doing") != "doing"]
        closed = close_cancelled(farm, map(CampaignId, over))
    waiting, running, abandoned = (list(stopped.values()).count(status) for status in ("todo", "doing", "failed"))
    text = f"{submission}: {waiting} jobs cancelled, {running} are being stopped"
    if abandoned:
        text += f"; no phone takes the place of {abandoned} that failed any more"
    if closed:
        text += f"; what was left of {closed} that had begun is abandoned"
    data = {"submission": submission, "jobs": sorted(stopped), "running": running, "closed": closed}
    return DoneAnswer(text=text, data=data)


def clean(settings: Settings, *, older_than: str, is_trial: bool) -> DoneAnswer:
    """Forget old jobs and take files away that no job needs, at the farm and on this host; raises UsageError."""
    try:
        older_than_s = parse_age(older_than)
    except ValueError as error:
        raise UsageError(f"--older-than: {error}", hint="a number with its unit, for example 30d") from error
    with FarmQueue(settings.store) as queue:
        contents = contents_of(settings, queue)
        found = contents.clean(older_than_s=older_than_s, is_trial=is_trial)
        copies = contents.clean_copies(is_trial=is_trial)
    what = "would be taken away" if is_trial else "were taken away"
    return DoneAnswer(
        text=f"{found.jobs} jobs and {found.files} files ({format_bytes(found.size_bytes)}) of the farm, "
        f"{copies.files} copies ({format_bytes(copies.size_bytes)}) of this host {what}",
        data={"trial": is_trial, "farm": found, "host": copies},
    )


def hold(settings: Settings, scopes: Sequence[str], kind: str) -> DoneAnswer:
    """Pause or drain hosts or phones (``host:NAME``, ``phone:SERIAL``) or the whole farm."""
    named = _checked(scopes)
    with FarmQueue(settings.store) as queue:
        known = {f"host:{row['name']}" for row in queue.hosts()} | {f"phone:{row['serial']}" for row in queue.phones()}
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
                raise UsageError(f"{scope} isn't held", hint="'benchfarm farm status' lists what is")
        holds = queue.holds()
    lines = [f"{_scope_text(scope)} goes on" for scope in named]
    return DoneAnswer(text="\n".join([*lines, *([held_text(holds)] if holds else [])]), data={"holds": holds})


def forget(settings: Settings, scopes: Sequence[str]) -> DoneAnswer:
    """Take hosts and phones out of the farm that are gone for good (``host:NAME``, ``phone:SERIAL``).

    Raises UsageError for a host that lives, and a phone that a host announces.
    """
    named = list(dict.fromkeys(scopes))
    for scope in named:
        if not scope.startswith(("host:", "phone:")):
            raise UsageError(f"{scope!r} names neither a host nor a phone", hint="write host:NAME or phone:SERIAL")
    with FarmQueue(settings.store) as queue:
        for scope in named:
            queue.forget(scope)
    return DoneAnswer(text="\n".join(one_line(f"{scope}: forgotten") for scope in named), data={"forgotten": named})


def _checked(scopes: Sequence[str]) -> list[str]:
    for scope in scopes:
        kind, _, name = scope.partition(":")
        if scope != "farm" and not (kind in {"host", "phone"} and name):
            raise UsageError(f"{scope!r} names nothing", hint="write farm, host:NAME or phone:SERIAL")
    return list(scopes or ["farm"])


def _scope_text(scope: str) -> str:
    return "the whole farm" if scope == "farm" else scope


def held_text(holds: Mapping[str, str]) -> str:
    """Return what is paused or drained, a line each."""
    return "\n".join(f"{_scope_text(scope)} is held: {kind}" for scope, kind in sorted(holds.items()))
