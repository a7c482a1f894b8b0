"""Waiting until a farm has done what it was given."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.queueing.queue import FarmQueue

#: So often the queue is looked at.
WATCH_S: Final = 2.0


def is_open(jobs: Iterable[Mapping[str, Any]]) -> bool:
    """Whether one of some jobs waits or runs."""
    return any(job["status"] in {"waits", "runs"} for job in jobs)


def wait_for(
    queue: FarmQueue, submission: str, say: Callable[[str], None], *, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Return when no job of a submission waits or runs any more, also none of a phone that came meanwhile.

    ``say`` gets a line for people each time that something changed. Raises UsageError when there is no such submission,
    StoreError.
    """
    said = ""
    while True:
        jobs = queue.jobs(submission)
        if not jobs:
            raise UsageError(f"there is no submission {submission!r}", hint="'benchfarm farm status' lists all")
        counts = Counter(str(job["status"]) for job in jobs)
        text = f"{submission}: " + ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
        if text != said:
            say(text)
            said = text
        if not is_open(jobs):
            return
        sleep(WATCH_S)
