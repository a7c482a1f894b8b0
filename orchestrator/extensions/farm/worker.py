"""A host's worker: it offers its phones, and Procrastinate's workers, one for each of them, work
their queues.

Only the holder of a phone's lock offers it (``HostLocks``), so whatever its queue says is begun and
isn't done here is nobody's any more. A phone's host puts its jobs into the queue, as long as they
are open and not there.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

import procrastinate
from procrastinate import exceptions, retry
from procrastinate.jobs import Job

from orchestrator import __version__
from orchestrator.errors import BenchfarmError, StoreError, UsageError
from orchestrator.extensions.farm.looking import Look, Say
from orchestrator.extensions.farm.queue import (
    DEATHS_MAX,
    Announced,
    Delivery,
    Ended,
    FarmQueue,
)
from orchestrator.extensions.farm.schema import POOL, HostLocks, as_store_error, connection_settings
from orchestrator.records.case import Serial
from orchestrator.tables.escapes import one_line

#: Times that a job is tried again because it failed on its phone, before it is abandoned.
TRIES_MAX: Final = 10
#: After the first failed try; twice as long after each further one, never more than the other.
_AGAIN_S: Final = 5.0
_AGAIN_MOST_S: Final = 300.0
_LATER_MOST_S: Final = 1800.0
#: How bad it is that a delivery ended so, where the job doesn't fail by it.
_LEVELS: Final = {"again": "warning", "failed": "error"}
_UNSEEN: Final = "its host can't look at its phones now"
_TASK: Final = "benchfarm.phone"
#: How the name of a phone's lock begins.
_PHONE: Final = "phone "
#: Threads for jobs, at most: a phone that measures takes one.
_THREADS: Final = 256
#: Procrastinate's own signs of life aren't needed where a lock tells; they are rare, as each phone
#: gives them.
_HEARTBEAT_S, _STALLED_S = 60.0, 600.0
_NEVER_S: Final = 7 * 86400.0


class _Again(Exception):  # noqa: N818 - no error of anybody
    """A job is to be begun again, not before a moment of the database's clock."""

    def __init__(self, at: datetime) -> None:
        super().__init__(f"again at {at}")
        self.at = at


class _WhenAsked(retry.BaseRetryStrategy):
    """A job comes again when it asks for that: by the database's clock, as hosts' clocks differ."""

    def get_retry_decision(
        self, *, exception: BaseException, job: Job
    ) -> retry.RetryDecision | None:
        return retry.RetryDecision(retry_at=exception.at) if isinstance(exception, _Again) else None


class PhoneWorkers:
    """Procrastinate's workers of a host on an event loop in a thread of its own, one for each phone
    that it offers.
    """

    def __init__(
        self, url: str, host: str, run: Callable[[str, int], None], *, poll_s: float
    ) -> None:
        """``run`` does a job (serial number, number) in a thread."""
        self._host, self._url = host, url
        self._poll_s = poll_s
        settings = {"kwargs": connection_settings(), "max_size": 3, **POOL}
        self._app = procrastinate.App(
            connector=procrastinate.PsycopgConnector(conninfo=url, **settings)
        )
        self._app.task(name=_TASK, retry=_WhenAsked())(run)
        self._loop = asyncio.new_event_loop()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopping: set[str] = set()
        self._is_open = False

    def open(self) -> None:
        """Begin to work, one time; raises StoreError."""
        self._loop.set_default_executor(ThreadPoolExecutor(_THREADS, thread_name_prefix="job"))
        threading.Thread(target=self._loop.run_forever, name="phone workers", daemon=True).start()
        self._ask(self._open())
        self._is_open = True

    async def _open(self) -> None:
        await self._app.open_async()

    def close(self) -> None:
        """End the loop; all workers have ended before."""
        if self._is_open:
            with suppress(StoreError):
                self._ask(self._app.close_async())
        self._loop.call_soon_threadsafe(self._loop.stop)

    def alive(self) -> set[str]:
        """Return the phones whose workers have not ended."""
        return {serial for serial, task in list(self._tasks.items()) if not task.done()}

    def start(self, serial: str) -> None:
        """Work a phone's queue, unless that is done, or being ended."""
        if serial not in self.alive():
            self._stopping.discard(serial)
            self._ask(self._start(serial))

    async def _start(self, serial: str) -> None:
        self._tasks[serial] = asyncio.create_task(self._work(serial), name=serial)

    async def _work(self, serial: str) -> None:
        # What it raises the next one raises again, or nobody needs: the queue's database is away.
        with suppress(Exception):
            await self._app.run_worker_async(
                queues=[_queue_of(serial)],
                name=f"{self._host}/{serial}",
                concurrency=1,
                install_signal_handlers=False,
                listen_notify=False,
                fetch_job_polling_interval=self._poll_s,
                abort_job_polling_interval=_NEVER_S,
                update_heartbeat_interval=_HEARTBEAT_S,
                stalled_worker_timeout=_STALLED_S,
                delete_jobs="always",
            )

    def stop(self, serial: str) -> None:
        """Let a phone's worker end after its job; asked again, it changes nothing."""
        task = self._tasks.get(serial)
        if task is not None and serial not in self._stopping:
            self._stopping.add(serial)
            self._loop.call_soon_threadsafe(task.cancel)

    def settle(self, serial: str, jobs: Mapping[int, int], running: int | None) -> None:
        """Have the queue hold those of a phone's jobs (number -> priority) that it lacks.

        A job that it says is begun, and that doesn't run here, is given out again. Raises
        StoreError.
        """
        self._ask(self._settle(serial, jobs, running))

    async def _settle(self, serial: str, jobs: Mapping[int, int], running: int | None) -> None:
        manager, known = self._app.job_manager, set()
        for job in await manager.list_jobs_async(queue=_queue_of(serial)):
            known.add(job.task_kwargs["job"])
            if job.status == "doing" and job.task_kwargs["job"] != running:
                await manager.retry_job(job)
        # The most urgent first: it may be given out before the others are there.
        for number in sorted(jobs.keys() - known, key=lambda number: (-jobs[number], number)):
            task = self._app.configure_task(
                _TASK, queue=_queue_of(serial), queueing_lock=f"job {number}", priority=jobs[number]
            )
            with suppress(exceptions.AlreadyEnqueued):
                await task.defer_async(serial=serial, job=number)

    def _ask(self, asked: Coroutine[Any, Any, None]) -> None:
        with as_store_error(self._url):
            try:
                asyncio.run_coroutine_threadsafe(asked, self._loop).result()
            except exceptions.ProcrastinateException as error:
                raise StoreError(f"the farm's queue: {error.__cause__ or error}") from error


def _queue_of(serial: str) -> str:
    return f"phone-{serial}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks:
    """What a worker leaves to its caller."""

    #: Does what is open of a job until it is done or the event is set; raises nothing.
    run: Callable[[Delivery, threading.Event], Ended]
    #: Looks at this host's phones, given what is known of them and which of them work and mustn't
    #: be disturbed; raises nothing.
    look: Callable[[Mapping[str, Announced], Collection[str]], Look]
    #: Gives up what is left of a job that somebody cancelled, once it has stopped; raises nothing.
    give_up: Callable[[Delivery], None]
    #: Is told of this host's phones when something of them is new, and now and then; returns lines
    #: for people.
    announced: Callable[[Mapping[str, Announced]], list[str]]
    say: Say


@dataclass(slots=True, kw_only=True)
class _Running:
    begun: Delivery
    cancelled: threading.Event = field(default_factory=threading.Event)
    #: Somebody cancelled the job, for good.
    called_off: bool = False


class HostWorker:
    """One process of a host.

    A thread of its own talks to the farm, so that no signal interrupts it there.
    """

    def __init__(
        self,
        queue: FarmQueue,
        callbacks: Callbacks,
        *,
        host: str,
        dead_after_s: float,
        look_s: float,
    ) -> None:
        self._queue = queue
        self._callbacks, self._say = callbacks, callbacks.say
        self._host = host
        self._dead_after_s, self._look_s = dead_after_s, look_s
        self._locks = HostLocks(queue.url, dead_after_s=dead_after_s)
        self._workers = PhoneWorkers(queue.url, host, self._do, poll_s=look_s)
        self._stopped = threading.Event()
        #: Something ended or the phones changed: there is no need to wait for the next look.
        self._woken = threading.Event()
        self._has_looked = False
        self._running: dict[str, _Running] = {}
        self._phones: Mapping[str, Announced] = {}
        #: The phones as they were when they were last really looked at.
        self._known: Mapping[str, Announced] = {}
        #: What was wrong with this host at the last look.
        self._ails = ""
        self._holds: Mapping[str, str] = {}
        #: Jobs that the queue holds, as far as this process knows, until it looks again.
        self._queued: set[int] = set()
        self._swept_s = 0.0
        #: Jobs of the phones offered that may begin.
        self._due = True
        self._done = 0
        self._said: set[str] = set()
        self._fault: BaseException | None = None

    @property
    def _name(self) -> str:
        return f"host {self._host}"

    def run(self, *, until_empty: bool) -> int:
        """Work until drained or interrupted (or nothing is left); return how many jobs ended here.

        Raises UsageError when another worker has the name, StoreError.
        """
        ended = threading.Event()

        def work() -> None:
            try:
                self._work(until_empty)
            except BaseException as error:  # noqa: BLE001 - raised where it is waited for
                self._fault = error
            finally:
                ended.set()

        interrupt: KeyboardInterrupt | None = None
        threading.Thread(target=work, name="farm", daemon=True).start()
        while not ended.is_set():
            try:
                ended.wait(0.5)
            except KeyboardInterrupt as error:
                if interrupt is not None:
                    self._say("restoring phones; please wait")
                interrupt = interrupt or error
                self._stopped.set()
                self._woken.set()
        if interrupt is not None:
            raise interrupt
        if self._fault is not None:
            raise self._fault
        return self._done

    def _work(self, until_empty: bool) -> None:
        try:
            self._take_name()
            self._queue.beat(self._host, benchfarm_version=__version__, note="", starts=True)
            self._say(f"works as {self._host}")
            self._workers.open()
            # In a thread: a phone or adb server that hangs mustn't make the whole host look dead.
            threading.Thread(target=self._watch_phones, name="phones", daemon=True).start()
            while not self._stopped.is_set() and not self._step(until_empty):
                self._wait()
        finally:
            self._stopped.set()
            self._stop()

    def _wait(self) -> None:
        self._woken.wait(self._look_s)
        self._woken.clear()

    def _take_name(self) -> None:
        """Take the host's name.

        Raises UsageError when another worker keeps it for longer than a dead one does.
        """
        until_s = time.monotonic() + self._dead_after_s * 1.2
        while not self._locks.take(self._name):
            if time.monotonic() > until_s or self._stopped.wait(min(1.0, self._look_s)):
                raise self._named_alike()

    def _named_alike(self) -> UsageError:
        since = next(
            (row["started_at"] for row in self._queue.hosts() if row["name"] == self._host), None
        )
        told = f" since {since.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if since is not None else ""
        return UsageError(
            f"another worker works as {self._host!r}{told}",
            hint="give each host a name of its own (--name)",
        )

    def _step(self, until_empty: bool) -> bool:
        """Look once at everything; whether the worker's work is over."""
        try:
            self._stay()
            clashes = self._queue.clashes()
            if self._has_looked:
                # Not before: a worker that is started again would take its phones out of the list
                # for a moment.
                self._announce()
            self._offer(clashes)
            self._sweep()
        except StoreError as error:
            self._tell_once(f"{error}; trying again", level="error")
            return False
        self._said = {line for line in self._said if not line.endswith("trying again")}
        is_empty = until_empty and self._has_looked and not self._due
        return (
            not self._running and not self._workers.alive()
            if self.drained
            else is_empty and not self._running
        )

    @property
    def drained(self) -> str:
        """What of ``farm`` and ``host:NAME`` is drained, empty for neither: this worker gets no
        more jobs.
        """
        return next(
            (
                scope
                for scope in ("farm", f"host:{self._host}")
                if self._holds.get(scope) == "drain"
            ),
            "",
        )

    def _stay(self) -> None:
        """Keep the host's locks, and say that it lives.

        Raises UsageError when another worker has the name by now.
        """
        held = set(self._locks.held)
        if not self._locks.is_alive() and held:
            self._say(
                "the connection that holds its phones is lost; what runs is stopped", level="error"
            )
            self._stop_jobs()
        self._take_name()
        self._queue.beat(self._host, benchfarm_version=__version__, note=self._ails)
        self._holds = self._queue.holds()

    def _stop_jobs(self) -> None:
        self._queued.clear()
        for job in list(self._running.values()):
            job.cancelled.set()
        for serial in self._workers.alive():
            self._workers.stop(serial)

    def _announce(self) -> None:
        is_new = self._queue.announce(self._host, self._phones)
        if is_new or time.monotonic() - self._swept_s > self._dead_after_s:
            self._swept_s = time.monotonic()
            self._queued.clear()
            try:
                lines = self._callbacks.announced(self._phones)
            except StoreError:
                raise
            except BenchfarmError as error:
                lines = [f"phones that come can't be looked at: {error}"]
            for line in lines:
                self._tell_once(line)

    def _offer(self, clashes: Collection[str]) -> None:
        """Work the queues of the phones that may measure, and of no others; each is one host's."""
        may = set(self._free(clashes))
        for serial in sorted(may | self._workers.alive() | self._offered()):
            name = f"{_PHONE}{serial}"
            if serial in may and self._locks.take(name):
                self._workers.start(serial)
                continue
            self._workers.stop(serial)
            if serial in clashes and serial in self._running:
                self._running[serial].cancelled.set()
            if serial not in self._workers.alive():
                self._locks.release(name)

    def _offered(self) -> set[str]:
        return {name.removeprefix(_PHONE) for name in self._locks.held if name.startswith(_PHONE)}

    def _free(self, clashes: Collection[str]) -> list[str]:
        """Return the phones that may get a job now."""
        if {"farm", f"host:{self._host}"} & self._holds.keys():
            return []
        return [
            serial
            for serial, phone in self._phones.items()
            if not phone.unusable and serial not in clashes and f"phone:{serial}" not in self._holds
        ]

    def _sweep(self) -> None:
        """Have the queue hold each open job of the phones offered, and stop what somebody
        cancelled.
        """
        rows = self._queue.open_jobs(self._offered())
        by_serial: dict[str, dict[int, int]] = {}
        for row in rows:
            if row["is_due"]:
                by_serial.setdefault(row["serial"], {})[row["job_id"]] = row["priority"]
            job = self._running.get(row["serial"])
            if row["cancel_asked"] and job is not None and job.begun.job_id == row["job_id"]:
                job.called_off = True
                job.cancelled.set()
        self._due = bool(by_serial)
        for serial, jobs in by_serial.items():
            if jobs.keys() - self._queued:
                running = self._running.get(serial)
                self._workers.settle(
                    serial, jobs, running.begun.job_id if running is not None else None
                )
                self._queued |= jobs.keys()

    # A job, in its thread

    def _do(self, serial: str, job: int) -> None:
        """Do a job that the queue gave out; raises _Again when it is to come again."""
        # Whoever has the phone puts what is open into the queue again.
        self._queued.discard(job)
        if f"{_PHONE}{serial}" not in self._locks.held or self._stopped.is_set():
            return
        begun = self._queue.begin(job, self._host)
        if begun is None:
            return
        self._queued.add(job)
        running = self._running[serial] = _Running(begun=begun)
        try:
            if begun.deaths >= DEATHS_MAX:
                ended = Ended(status="failed", note=f"its host died {begun.deaths} times")
            else:
                self._say(f"job {job}: begins on {serial}", level="info", **_about(begun))
                ended = self._callbacks.run(begun, running.cancelled)
            self._report(running, ended)
        finally:
            del self._running[serial]
            self._woken.set()

    def _report(self, running: _Running, ended: Ended) -> None:
        """Say how a delivery ended; raises _Again when the job is to come again."""
        begun, status, note = running.begun, ended.status, ended.note
        is_try, wait_s, text = False, 0.0, ended.status
        if status in {"aborted", "again", "later"} and running.called_off:
            self._callbacks.give_up(begun)
            status = text = "cancelled"
        elif status == "aborted":
            status, text = "waits", "waits for its next delivery"
            note = (
                f"{self._host} was stopped"
                if self._stopped.is_set()
                else f"{self._host} had to let its phone go"
            )
        elif status == "later":
            status, wait_s = "waits", min(_LATER_MOST_S, ended.wait_s)
            text = f"waits {wait_s:.0f} s"
        elif status == "again" and begun.tries < TRIES_MAX:
            status, is_try, wait_s = "waits", True, min(_AGAIN_MOST_S, _AGAIN_S * 2**begun.tries)
            text = f"is tried again in {wait_s:.0f} s"
        elif status == "again":
            status = text = "failed"
        again_at = self._told(begun, status, note, is_try=is_try, wait_s=wait_s)
        self._done += again_at is not None and status != "waits"
        level = "error" if status == "failed" else _LEVELS.get(ended.status, "info")
        said = f"job {begun.job_id}: {text if again_at is not None else 'somebody else has begun it since'}: {note}"
        self._say(said, level=level, **_about(begun))
        if again_at is not None and status == "waits":
            raise _Again(again_at)

    def _told(
        self, begun: Delivery, status: str, note: str, *, is_try: bool, wait_s: float
    ) -> datetime | None:
        """End a delivery, however long the database is away, but not longer than this process waits
        when it ends.
        """
        until_s: float | None = None
        while True:
            try:
                return self._queue.end(begun, status, note, is_try=is_try, wait_s=wait_s)
            except StoreError:
                if self._stopped.is_set():
                    until_s = until_s or time.monotonic() + self._dead_after_s
                if until_s is not None and time.monotonic() > until_s:
                    raise
                time.sleep(self._look_s)

    # This host's phones

    def _watch_phones(self) -> None:
        while not self._stopped.is_set():
            busy = list(self._running)
            look = self._callbacks.look(self._known, busy)
            if look.ails and look.ails != self._ails:
                self._say(look.ails, level="error")
            self._ails, found = look.ails, look.phones
            if found is None:
                found = {
                    serial: replace(phone, unusable=_UNSEEN)
                    for serial, phone in self._known.items()
                }
            else:
                self._known = self._learnt(found, busy)
            if found.keys() != self._phones.keys() or not self._has_looked:
                self._woken.set()
            self._phones, self._has_looked = found, True
            self._stopped.wait(self._look_s)

    def _learnt(
        self, found: Mapping[str, Announced], busy: Collection[str]
    ) -> Mapping[str, Announced]:
        """Return what is known after a look; a working phone that was away counts as away until its
        job is over.

        Only then may it be asked what has become of it.
        """
        known = dict(found)
        for serial in busy:
            before = self._known.get(serial)
            if before is not None and serial not in found:
                known[serial] = replace(before, unusable=_UNSEEN)
            elif before is not None and before.unusable:
                known[serial] = before
        return known

    # The end

    def _stop(self) -> None:
        """End what runs, phones restored, and give the jobs back, however long that takes."""
        self._stop_jobs()
        while self._workers.alive():
            self._wait()
            with suppress(BenchfarmError):
                # Restoring phones may take longer than the others wait.
                self._locks.is_alive()
                self._queue.beat(self._host, benchfarm_version=__version__, note=self._ails)
        try:
            if self._name in self._locks.held:
                self._queue.leave(self._host)
        except BenchfarmError as error:
            self._say(str(error), level="error")
        finally:
            self._workers.close()
            self._locks.close()

    def _tell_once(self, text: str, *, level: str = "info") -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(one_line(text), level=level)


def _about(begun: Delivery) -> dict[str, object]:
    """Return what identifies a job in logs: its number, its phone, and its campaign."""
    return {"job": begun.job_id, "serial": Serial(begun.serial), "campaign_id": begun.campaign_id}
