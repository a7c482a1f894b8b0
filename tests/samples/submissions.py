"""Submissions to a farm's queue, whose plans nobody reads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from orchestrator.queueing.submissions import Submission

if TYPE_CHECKING:
    from orchestrator.queueing.queue import FarmQueue


def empty(execute: Callable[[str], object]) -> None:
    """Take everything out of a queue, by what does a statement."""
    for table in ("jobs", "submissions", "hosts", "holds"):
        execute(f"DELETE FROM farm_{table}")
    for table in ("jobs", "workers"):
        execute(f"DELETE FROM procrastinate_{table}")


def submission(name: str = "night", **changes: Any) -> Submission:
    """Return a submission of an hour ago."""
    values: dict[str, Any] = {
        "document": "{}", "plan_name": "p", "files": [], "priority": 0, "joins": True, "replaces_lost": False,
        "opens_at": datetime.now(UTC) - timedelta(hours=1), **changes,
    }  # fmt: skip
    return Submission(submission=name, **values)


def submit(queue: FarmQueue, *serials: str, name: str = "night", **changes: Any) -> list[int]:
    """Queue a job for each of some phones, whose facts are their serial numbers; return the jobs' numbers."""
    return queue.submit(submission(name, **changes), {serial: serial for serial in serials})


def at_once(works: Iterable[Callable[[], Any]]) -> list[Any]:
    """Do several things at the same moment, each in a thread; return what they return."""
    works = list(works)
    start = threading.Barrier(len(works))

    def begun(work: Callable[[], Any]) -> Any:
        start.wait(30)
        return work()

    with ThreadPoolExecutor(len(works)) as pool:
        return [item.result(120) for item in [pool.submit(begun, work) for work in works]]
