"""A host's worker, wired: its phones, the jobs that it does on them, and the numbers that it
serves.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from orchestrator.app.options import opt
from orchestrator.app.resuming import close_cancelled
from orchestrator.config.profiles import KeptInventory
from orchestrator.errors import BenchfarmError, UsageError
from orchestrator.extensions.farm.job import run_job
from orchestrator.extensions.farm.looking import HostPhones, Look, Say, Shared
from orchestrator.extensions.farm.payload import contents_of
from orchestrator.extensions.farm.phones import Newcomers
from orchestrator.extensions.farm.queue import Announced, Delivery, Ended, FarmQueue
from orchestrator.extensions.history.access import Listening, access_of, address_of
from orchestrator.installation import require_packages
from orchestrator.plugins import Settings, Workspace
from orchestrator.ports import Observer
from orchestrator.tables.escapes import one_line

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

#: Connections to the queue, at most: of all that a worker does beside its main work, and of that.
_CONNECTIONS: Final = 3
_OWN_CONNECTIONS: Final = 2
#: Seconds between two polls of the queue by default, and their share of --dead-after at most.
_POLL_S: Final = 2.0
_POLL_SHARE: Final = 0.25
#: How often copies that weren't used for long are deleted.
_CLEANED_S: Final = 24 * 3600.0


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
    look_s: Annotated[
        float | None,
        opt(
            "--every",
            "Seconds between two polls of the queue (default: 2, or --dead-after / 4).",
            min=0.1,
        ),
    ] = None
    until_empty: Annotated[bool, opt("--until-empty", "Exit when no job waits for this host.")] = (
        False
    )
    idle_look_s: Annotated[
        float,
        opt("--idle-every", "Seconds between two checks of an idle phone. 0: no checks.", min=0),
    ] = 180.0
    metrics_port: Annotated[
        int | None,
        opt("--port", "Port for Prometheus metrics of this host.", min=0, max=65535),
    ] = None
    metrics_host: Annotated[
        str,
        opt(
            "--host",
            "Address for them. Any other than this computer's own requires a token.",
        ),
    ] = "127.0.0.1"
    token_file: Annotated[
        Path | None, opt("--token-file", "File with the token for them ($BENCHFARM_TOKEN).")
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """What a worker did until it ended."""

    host: str
    #: How many of its jobs ended.
    jobs: int
    #: What was drained, so that it ended: ``farm`` or ``host:NAME``; empty for another end.
    drained: str


def work(
    settings: Settings, request: WorkerRequest, *, tell: Say, observer: Callable[[], Observer]
) -> Worked:
    """Do the queue's jobs on this host's phones.

    ``tell`` hears what the worker does, ``observer`` makes one that hears of a job's runs.

    Raises UsageError without PostgreSQL, for polls that would be too rare, for an address that
    needs a token, or when another worker has the name; StoreError, HostStorageError.
    """
    from orchestrator.extensions.farm.worker import Callbacks, HostWorker

    host, most_s = request.name or socket.gethostname(), request.dead_after_s * _POLL_SHARE
    if request.look_s is not None and request.look_s > most_s:
        raise UsageError(
            f"a host heard every {request.look_s:g} s is soon taken for dead when {request.dead_after_s:g} s of silence"
            " do that",
            hint=f"--every {most_s:g} at most, or a longer --dead-after",
        )
    with ExitStack() as stack:
        queue = stack.enter_context(FarmQueue(settings.store, connections=_CONNECTIONS))
        # Its own: whatever the jobs fetch meanwhile, this host is heard.
        own_queue = stack.enter_context(FarmQueue(settings.store, connections=_OWN_CONNECTIONS))

        def say(text: str, /, *, level: str = "info", **keys: object) -> None:
            tell(f"farm: {text}", level=level, host=host, **keys)

        opened = stack.enter_context(Workspace(settings))
        inventory = KeptInventory(opened.inventory_file)
        shared = Shared(settings=settings, store=opened.store, inventory=inventory)
        if request.metrics_port is not None:
            where = Listening(
                host=request.metrics_host, port=request.metrics_port, token_file=request.token_file
            )
            stack.enter_context(_numbers_served(settings, opened.store, where, say))
        contents = contents_of(settings, queue)

        def run(job: Delivery, cancelled: threading.Event) -> Ended:
            ended = run_job(lambda: shared.open(observer()), contents, job, host, cancelled)
            if ended.status != "done":
                # It may have stopped answering, which its server doesn't notice.
                shared.asked.forget(job.serial)
            return ended

        def abandon(job: Delivery) -> None:
            """Close the campaign of a job that was cancelled; it can be closed later too."""
            try:
                with shared.open() as workspace:
                    close_cancelled(workspace, [job.campaign_id])
            except BenchfarmError as error:
                text = f"job {job.job_id}: its campaign stays open, 'benchfarm results close' ends it: {error}"
                say(one_line(text), level="error", job=job.job_id, serial=job.serial)

        phones = HostPhones(shared, queue, host, idle_look_s=request.idle_look_s, say=say)
        cleaned_s = 0.0

        def look(known: Mapping[str, Announced], busy: Collection[str]) -> Look:
            nonlocal cleaned_s
            if not cleaned_s or time.monotonic() - cleaned_s > _CLEANED_S:
                cleaned_s = time.monotonic()
                try:
                    contents.clean_copies()
                except BenchfarmError as error:
                    say(one_line(f"old copies of files stay: {error}"), level="error")
            return phones.look(known, busy)

        newcomers = Newcomers(queue, opened.store)
        worker = HostWorker(
            own_queue,
            Callbacks(run=run, look=look, give_up=abandon, announced=newcomers.announced, say=say),
            host=host,
            dead_after_s=request.dead_after_s,
            look_s=request.look_s or min(_POLL_S, most_s),
        )
        done = worker.run(until_empty=request.until_empty)
    return Worked(host=host, jobs=done, drained=worker.drained)


@contextmanager
def _numbers_served(
    settings: Settings, store: Store, listening: Listening, say: Say
) -> Iterator[None]:
    """Serve ``/metrics`` of this host while the context lasts."""
    require_packages("farm worker --port", "prometheus_client")
    from orchestrator.extensions.history import web
    from orchestrator.extensions.history.metrics import Numbers

    access = access_of(settings, listening)
    with (
        Workspace(settings, store=store) as workspace,
        web.listen(listening.host, listening.port) as opened,
    ):
        numbers = Numbers(workspace)
        app = web.make_app(
            lambda path: numbers.page() if path == "metrics" else None, access=access
        )
        with web.answering(app, opened):
            say(f"numbers for Prometheus: {address_of(opened)}/metrics")
            yield
