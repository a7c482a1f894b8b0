"""The farm as benchfarm's other commands and pages meet it: its queue, the control of it, and
doctor's checks.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.extensions.farm.doctor import farm_findings
from orchestrator.extensions.farm.queue import FarmQueue
from orchestrator.extensions.farm.submissions import cancel, pause, resume
from orchestrator.plugins import Queue, QueueSource


@contextmanager
def _reading(url: str) -> Iterator[Queue | None]:
    with FarmQueue(url, is_guest=True) as queue:
        yield queue if queue.is_there() else None


QUEUE = QueueSource(
    reading=_reading, pause=pause, resume=resume, cancel=cancel, findings=farm_findings
)
