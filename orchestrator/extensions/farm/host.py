"""A host's worker, wired: its phones, and the jobs that it does on them."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Final

from orchestrator.app.options import opt
from orchestrator.config.profiles import KeptInventory
from orchestrator.extensions.farm.contents import Contents
from orchestrator.extensions.farm.host_phones import HostPhones, Say, Shared
from orchestrator.extensions.farm.job import Jobs
from orchestrator.extensions.farm.queue import FarmQueue
from orchestrator.plugins import Settings, Workspace
from orchestrator.ports import Observer

#: Connections to the queue, at most: of all that a worker does beside its main work, and of that.
_CONNECTIONS: Final = 3
_OWN_CONNECTIONS: Final = 2
#: Of --dead-after, the share that two polls of the queue are apart at most: who is heard more
#: rarely is soon taken for dead.
_POLL_SHARE: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRequest:
    """How a worker of a host works."""

    name: Annotated[
        str, opt("--name", "Name of this host in the farm (default: its network name).")
    ] = ""
    dead_after_s: Annotated[
        float,
        opt(
            "--dead-after", "Seconds without a heartbeat after which a host counts as dead.", min=2
        ),
    ] = 30.0
    poll_s: Annotated[
        float,
        opt(
            "--every",
            "Seconds between two polls of the queue, at most --dead-after / 4.",
            min=0.1,
        ),
    ] = 2.0
    until_empty: Annotated[bool, opt("--until-empty", "Exit when no job waits for this host.")] = (
        False
    )
    idle_check_s: Annotated[
        float,
        opt("--idle-every", "Seconds between two checks of an idle phone. 0: no checks.", min=0),
    ] = 180.0


def work(
    settings: Settings, request: WorkerRequest, *, tell: Say, observer: Callable[[], Observer]
) -> tuple[str, int]:
    """Do the queue's jobs on this host's phones; return the host's name and how many jobs ended.

    ``tell`` logs what the worker does, ``observer`` makes one that hears of a job's runs.

    Raises UsageError without PostgreSQL, or when another worker has the name; StoreError,
    HostStorageError.
    """
    from orchestrator.extensions.farm.worker import HostWorker

    host = request.name or socket.gethostname()

    def say(text: str, /, *, level: str = "info", **keys: object) -> None:
        tell(f"farm: {text}", level=level, host=host, **keys)

    with ExitStack() as stack:
        queue = stack.enter_context(FarmQueue(settings.store, connections=_CONNECTIONS))
        # Its own: whatever the jobs fetch meanwhile, this host is heard.
        own_queue = stack.enter_context(FarmQueue(settings.store, connections=_OWN_CONNECTIONS))
        opened = stack.enter_context(Workspace(settings))
        inventory = KeptInventory(opened.inventory_file)
        shared = Shared(settings=settings, store=opened.store, inventory=inventory)
        contents = Contents(queue, settings.cache_folder)
        contents.clean_copies()
        worker = HostWorker(
            own_queue,
            HostPhones(shared, own_queue, host, idle_check_s=request.idle_check_s, say=say),
            Jobs(shared=shared, contents=contents, host=host, observer=observer, say=say),
            host=host,
            dead_after_s=request.dead_after_s,
            poll_s=min(request.poll_s, request.dead_after_s * _POLL_SHARE),
            say=say,
        )
        return host, worker.run(until_empty=request.until_empty)
