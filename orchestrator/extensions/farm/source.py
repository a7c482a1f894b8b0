"""The farm as benchfarm's other commands and pages meet it: its queue, the control of it, and
doctor's checks. Nothing of it is loaded before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from orchestrator.plugins import QueueSource

if TYPE_CHECKING:
    from orchestrator.plugins import Finding, Queue, Settings, Workspace
    from orchestrator.records.answers import DoneAnswer


@contextmanager
def _reading(url: str) -> Iterator[Queue | None]:
    from orchestrator.extensions.farm.queue import FarmQueue

    with FarmQueue(url, is_guest=True) as queue:
        yield queue if queue.is_there() else None


def _pause(settings: Settings, scopes: Sequence[str]) -> DoneAnswer:
    from orchestrator.extensions.farm.queue import FarmQueue
    from orchestrator.extensions.farm.submissions import pause

    with FarmQueue(settings.store) as queue:
        return pause(queue, scopes)


def _resume(settings: Settings, scopes: Sequence[str]) -> DoneAnswer:
    from orchestrator.extensions.farm.queue import FarmQueue
    from orchestrator.extensions.farm.submissions import resume

    with FarmQueue(settings.store) as queue:
        return resume(queue, scopes)


def _cancel(workspace: Workspace, submission: str, serials: Sequence[str]) -> DoneAnswer:
    from orchestrator.extensions.farm.queue import FarmQueue
    from orchestrator.extensions.farm.submissions import cancel

    with FarmQueue(workspace.settings.store) as queue:
        return cancel(workspace, queue, submission, serials)


def _findings(workspace: Workspace) -> Sequence[Finding]:
    from orchestrator.extensions.farm.doctor import farm_findings

    return farm_findings(workspace)


QUEUE = QueueSource(
    reading=_reading, pause=_pause, resume=_resume, cancel=_cancel, findings=_findings
)
