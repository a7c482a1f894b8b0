"""Submissions to a farm, whose plans nobody reads, and jobs of hosts that are played."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from orchestrator.extensions.farm.job_table import Job, Submission

if TYPE_CHECKING:
    from orchestrator.extensions.farm.queue import FarmQueue


def empty(execute: Callable[[str], object]) -> None:
    """Take everything out of a farm, by what does a statement."""
    for table in ("submissions", "hosts", "pauses", "clashes"):
        execute(f"DELETE FROM farm_{table}")
    for table in ("jobs", "workers"):
        execute(f"DELETE FROM procrastinate_{table}")


def submission(name: str = "night", **changes: Any) -> Submission:
    """Return a submission."""
    values: dict[str, Any] = {
        "document": "{}",
        "plan_name": "p",
        "files": [],
        "priority": 0,
        **changes,
    }
    return Submission(submission=name, **values)


def submit(queue: FarmQueue, *serials: str, name: str = "night", **changes: Any) -> list[int]:
    """Make a job for each of some phones, whose facts are their serial numbers; return the jobs'
    numbers.
    """
    return queue.submit(submission(name, **changes), {serial: serial for serial in serials})


def host_lives(queue: FarmQueue, host: str, *, version: str = "1", note: str = "") -> None:
    """Have a host that is played be heard."""
    queue.heartbeat(host, benchfarm_version=version, note=note)


def begin(queue: FarmQueue, serial: str, *, host: str) -> Job:
    """Begin the first due job of a phone, as a host does."""
    begun = queue.claim(serial, host)
    assert begun is not None
    return begun


def at_once(works: Iterable[Callable[[], Any]]) -> list[Any]:
    """Do several things at the same moment, each in a thread; return what they return."""
    works = list(works)
    start = threading.Barrier(len(works))

    def begun(work: Callable[[], Any]) -> Any:
        start.wait(30)
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return [item.result(120) for item in [pool.submit(begun, work) for work in works]]
