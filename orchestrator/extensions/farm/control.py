"""Steering a farm of many hosts: cancelling, pausing, forgetting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from orchestrator.app.resuming import close_cancelled
from orchestrator.errors import NotFoundError, UsageError
from orchestrator.extensions.farm.queue import FarmQueue
from orchestrator.plugins import Workspace
from orchestrator.records.answers import DoneAnswer
from orchestrator.records.case import CampaignId
from orchestrator.tables.escapes import one_line
from orchestrator.units import counted

_LISTED: Final = "'benchfarm farm status' lists all"
_SCOPES: Final = "write farm, host:NAME or phone:SERIAL"


def cancel(
    workspace: Workspace, queue: FarmQueue, submission: str, serials: Sequence[str]
) -> DoneAnswer:
    """Cancel a submission, or some phones' part of it: what waits at once, what runs once its phone
    is restored.

    What is left of their campaigns is abandoned, of what waits at once, of what runs by its worker.
    """
    jobs = queue.jobs(submission)
    if not jobs:
        raise unknown_submission(submission)
    unknown = sorted(set(serials) - {job["serial"] for job in jobs})
    if unknown:
        raise UsageError(f"{submission} has no job for {', '.join(unknown)}")
    stopped = queue.cancel(submission, list(serials) or None)
    # Those of an earlier call too, if it couldn't end what it had begun.
    over = [
        job["campaign_id"]
        for job in jobs
        if stopped.get(job["job_id"]) == "waits" or job["status"] == "cancelled"
    ]
    closed = close_cancelled(workspace, map(CampaignId, over))
    waiting, running = (list(stopped.values()).count(status) for status in ("waits", "runs"))
    text = f"{submission}: {counted(waiting, 'job')} cancelled, {running} being stopped"
    if closed:
        text += f"; what was left of {closed} that had begun is abandoned"
    data = {"submission": submission, "jobs": sorted(stopped), "running": running, "closed": closed}
    return DoneAnswer(text=text, data=data)


def pause(queue: FarmQueue, scopes: Sequence[str]) -> DoneAnswer:
    """Pause hosts or phones (``host:NAME``, ``phone:SERIAL``) or the whole farm."""
    known = {"farm"}
    known |= {f"host:{row['name']}" for row in queue.hosts()}
    known |= {f"phone:{row['serial']}" for row in queue.phones()}
    if unknown := set(scopes) - known:
        names = ", ".join(sorted(unknown))
        raise UsageError(f"the farm has no {names}", hint=f"{_SCOPES}; {_LISTED}")
    for scope in scopes or ["farm"]:
        queue.pause(scope)
    return _paused(queue)


def resume(queue: FarmQueue, scopes: Sequence[str]) -> DoneAnswer:
    """End pauses; raises UsageError for one that isn't there."""
    for scope in scopes or ["farm"]:
        if not queue.resume(scope):
            raise UsageError(f"{scope} isn't paused", hint=_LISTED)
    return _paused(queue)


def _paused(queue: FarmQueue) -> DoneAnswer:
    pauses = queue.pauses()
    return DoneAnswer(text=paused_text(pauses), data={"pauses": pauses})


def paused_text(pauses: Sequence[str]) -> str:
    """Return what is paused, for people."""
    return f"paused: {', '.join(pauses) or 'nothing'}"


def forget(queue: FarmQueue, scopes: Sequence[str]) -> DoneAnswer:
    """Take hosts and phones out of the farm that are gone for good (``host:NAME``,
    ``phone:SERIAL``).

    Of a serial number that several phones have, forget that: one of them is gone.

    Raises UsageError for a host that lives, and a phone that a host announces.
    """
    for scope in scopes:
        if not queue.forget(scope):
            raise UsageError(
                f"{scope} isn't known, or it is there now",
                hint=f"end its worker or unplug it first; {_SCOPES}; {_LISTED}",
            )
    text = "\n".join(one_line(f"{scope}: forgotten") for scope in scopes)
    return DoneAnswer(text=text, data={"forgotten": list(scopes)})


def unknown_submission(name: str) -> NotFoundError:
    """Return the error for a submission that isn't there."""
    return NotFoundError(
        f"there is no submission {name!r}",
        hint="'benchfarm farm status' lists the open ones, 'benchfarm results list' what is stored",
    )
