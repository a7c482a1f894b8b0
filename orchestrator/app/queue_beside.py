"""A farm's queue beside a store, which an extension has, and what becomes of campaigns that are its
jobs'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import ModuleType
from typing import Any, Final, Protocol

from orchestrator.bootstrap import Settings
from orchestrator.plugins import load, plugins
from orchestrator.records.case import CampaignId, Serial

#: How the reason begins for which a phone can't be used that its host keeps in quarantine.
IN_QUARANTINE: Final = "in quarantine: "
_Rows = Sequence[Mapping[str, Any]]


class Owner(Protocol):
    """A campaign's job."""

    @property
    def submission(self) -> str:
        """The submission that it is of."""
        ...

    @property
    def serial(self) -> Serial:
        """Its phone."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether it waits or runs: a worker resumes the campaign, and nobody else."""
        ...


class QueueView(Protocol):
    """What pages, numbers and checks read of a farm's queue; rows as the extension's ``FarmQueue``
    describes them.
    """

    def hosts(self) -> _Rows: ...  # noqa: D102
    def phones(self) -> _Rows: ...  # noqa: D102
    def away(self) -> _Rows: ...  # noqa: D102
    def seen(self) -> _Rows: ...  # noqa: D102
    def clashes(self) -> Mapping[str, Mapping[str, Any]]: ...  # noqa: D102
    def jobs(self, submission: str = "") -> _Rows: ...  # noqa: D102
    def job_counts(self) -> _Rows: ...  # noqa: D102
    def failures(self, *, within_s: float) -> _Rows: ...  # noqa: D102
    def lag_s(self) -> float: ...  # noqa: D102
    def holds(self) -> Mapping[str, str]: ...  # noqa: D102
    def owners(self, campaign_ids: Sequence[CampaignId]) -> Mapping[CampaignId, Owner]: ...  # noqa: D102
    def ask_release(self, serial: str) -> str: ...  # noqa: D102


def extension(module: str) -> Any:  # noqa: ANN401 - a module
    """Return a module of who has queues.

    Raises ImportError without its packages, KeyError where nobody has.
    """
    return load(plugins("queues")[module], ModuleType)


def queue_beside(settings: Settings, stack: ExitStack) -> QueueView | None:
    """Return the queue in the store's database.

    None without the packages, or where there is none to be read.
    """
    if not settings.store.startswith(("postgresql", "postgres")):
        return None
    try:
        module = extension("queue")
    except (ImportError, KeyError):
        return None
    queue = stack.enter_context(module.FarmQueue(settings.store, is_guest=True))
    view: QueueView | None = queue if queue.is_there() else None
    return view


def owners_of(settings: Settings, campaign_ids: Sequence[CampaignId]) -> Mapping[CampaignId, Owner]:
    """Return the jobs that some campaigns belong to; campaigns of no job aside.

    Raises StoreError.
    """
    with ExitStack() as stack:
        queue = queue_beside(settings, stack) if campaign_ids else None
        return queue.owners(campaign_ids) if queue is not None else {}
