"""A host's worker: it offers its phones, and Procrastinate's workers, one per phone, work their
queues.

Only the holder of a phone's lock offers it (``HostLocks``), so a job that the phone's queue has as
begun and that doesn't run here has no owner any more. A phone's host puts its open jobs into the
queue if they aren't there.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import procrastinate
from procrastinate import exceptions, retry
from procrastinate.jobs import Job

from orchestrator import __version__
from orchestrator.errors import BenchfarmError, StoreError, UsageError
from orchestrator.extensions.farm.phones import Doubt, add_new_phones
from orchestrator.extensions.farm.queue import DEATHS_MAX, Announced, Delivery, Ended, FarmQueue
from orchestrator.extensions.farm.schema import POOL, HostLocks, as_store_error, connection_settings
from orchestrator.tables.escapes import one_line

if TYPE_CHECKING:
    from orchestrator.extensions.farm.job import Jobs
    from orchestrator.extensions.farm.phones import HostPhones, Say

#: Tries of a job on its phone after which it is abandoned.
TRIES_MAX: Final = 10
#: Seconds until the next try: doubled after each further failed one, up to the maximum.
_RETRY_S: Final = 5.0
_MAX_RETRY_S: Final = 300.0
_TASK: Final = "benchfarm.phone"
#: Prefix of a phone's lock.
_PHONE: Final = "phone "
#: Threads for jobs, at most: a phone that measures takes one.
_THREADS: Final = 256
#: Procrastinate's own heartbeats aren't needed beside the locks; they are rare, as each phone sends
#: them.
_HEARTBEAT_S, _STALLED_S = 60.0, 600.0
_NEVER_S: Final = 7 * 86400.0


class _Retry(Exception):  # noqa: N818 - no error of anybody
    """A job is to be retried, not before a time of the database's clock."""

    def __init__(self, retry_at: datetime) -> None:
        super().__init__(f"again at {retry_at}")
        self.retry_at = retry_at


class _RetryOnRequest(retry.BaseRetryStrategy):
    """Retries a job at the time that it asks for, by the database's clock: hosts' clocks differ."""

    def get_retry_decision(
        self, *, exception: BaseException, job: Job
    ) -> retry.RetryDecision | None:
        return (
            retry.RetryDecision(retry_at=exception.retry_at)
            if isinstance(exception, _Retry)
            else None
        )


class PhoneWorkers:
    """Procrastinate's workers of a host, one per offered phone, on an event loop in a thread of
    its own.
    """

    def __init__(
        self, url: str, host: str, run: Callable[[str, int], None], *, poll_s: float
    ) -> None:
        """``run`` runs a job (serial number, job number) in a thread."""
        self._host, self._url = host, url
        self._poll_s = poll_s
        settings = {"kwargs": connection_settings(url), "max_size": 3, **POOL}
        self._app = procrastinate.App(
            connector=procrastinate.PsycopgConnector(conninfo=url, **settings)
        )
        self._app.task(name=_TASK, retry=_RetryOnRequest())(run)
        self._loop = asyncio.new_event_loop()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopping: set[str] = set()
        self._is_open = False

    def open(self) -> None:
        """Start the loop, once; raises StoreError."""
        self._loop.set_default_executor(ThreadPoolExecutor(_THREADS, thread_name_prefix="job"))
        threading.Thread(target=self._loop.run_forever, name="phone workers", daemon=True).start()
        self._run_on_loop(self._open())
        self._is_open = True

    async def _open(self) -> None:
        await self._app.open_async()

    def close(self) -> None:
        """End the loop; all workers have ended before."""
        if self._is_open:
            with suppress(StoreError):
                self._run_on_loop(self._app.close_async())
        self._loop.call_soon_threadsafe(self._loop.stop)

    def alive(self) -> set[str]:
        """Return the phones whose workers have not ended."""
        return {serial for serial, task in list(self._tasks.items()) if not task.done()}

    def start(self, serial: str) -> None:
        """Start a phone's worker unless it still runs."""
        if serial not in self.alive():
            self._stopping.discard(serial)
            self._run_on_loop(self._start(serial))

    async def _start(self, serial: str) -> None:
        self._tasks[serial] = asyncio.create_task(self._work(serial), name=serial)

    async def _work(self, serial: str) -> None:
        # Errors can be ignored: the next worker raises them again, or the database is away.
        with suppress(Exception):
            await self._app.run_worker_async(
                queues=[_queue_name(serial)],
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
        """Let a phone's worker end after its job; a second call changes nothing."""
        task = self._tasks.get(serial)
        if task is not None and serial not in self._stopping:
            self._stopping.add(serial)
            self._loop.call_soon_threadsafe(task.cancel)

    def settle(self, serial: str, jobs: Mapping[int, int], running: int | None) -> None:
        """Put those of a phone's jobs (number -> priority) into the queue that it lacks.

        A job that it has as begun, and that doesn't run here, is retried. Raises StoreError.
        """
        self._run_on_loop(self._settle(serial, jobs, running))

    async def _settle(self, serial: str, jobs: Mapping[int, int], running: int | None) -> None:
        manager, queued = self._app.job_manager, set()
        for job in await manager.list_jobs_async(queue=_queue_name(serial)):
            queued.add(job.task_kwargs["job"])
            if job.status == "doing" and job.task_kwargs["job"] != running:
                await manager.retry_job(job)
        # The most urgent first: it may be dispatched before the others are there.
        for number in sorted(jobs.keys() - queued, key=lambda number: (-jobs[number], number)):
            task = self._app.configure_task(
                _TASK,
                queue=_queue_name(serial),
                queueing_lock=f"job {number}",
                priority=jobs[number],
            )
            with suppress(exceptions.AlreadyEnqueued):
                await task.defer_async(serial=serial, job=number)

    def _run_on_loop(self, coroutine: Coroutine[Any, Any, None]) -> None:
        with as_store_error(self._url):
            try:
                asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
            except exceptions.ProcrastinateException as error:
                raise StoreError(f"the farm's queue: {error.__cause__ or error}") from error


def _queue_name(serial: str) -> str:
    return f"phone-{serial}"


@dataclass(slots=True, kw_only=True)
class _Running:
    delivery: Delivery
    cancelled: threading.Event = field(default_factory=threading.Event)


class HostWorker:
    """The worker process of a host.

    A thread of its own accesses the farm's database, so that no signal interrupts that.
    """

    def __init__(
        self,
        queue: FarmQueue,
        phones: HostPhones,
        jobs: Jobs,
        *,
        host: str,
        dead_after_s: float,
        poll_s: float,
        say: Say,
    ) -> None:
        self._queue = queue
        self._host_phones, self._jobs = phones, jobs
        self._say = say
        self._host, self._name = host, f"host {host}"
        self._dead_after_s, self._poll_s = dead_after_s, poll_s
        self._locks = HostLocks(queue.url, dead_after_s=dead_after_s)
        self._workers = PhoneWorkers(queue.url, host, self._do, poll_s=poll_s)
        self._stopped = threading.Event()
        #: Set when a job ended or the phones changed, to poll at once.
        self._woken = threading.Event()
        self._running: dict[str, _Running] = {}
        #: None before the first check.
        self._phones: Mapping[str, Announced] | None = None
        #: Jobs that are in the queue, as far as this process knows.
        self._queued: set[int] = set()
        self._added_s = 0.0
        self._doubts: set[Doubt] = set()
        #: Whether a job of an offered phone is due.
        self._has_due = True
        self._done = 0
        self._logged: set[str] = set()

    def run(self, *, until_empty: bool) -> int:
        """Work until stopped or interrupted (or no job is left); return the number of ended jobs.

        Raises UsageError when another worker has the name, StoreError.
        """
        interrupt: KeyboardInterrupt | None = None
        with ThreadPoolExecutor(1, "farm") as pool:
            work = pool.submit(self._work, until_empty)
            try:
                while not work.done():
                    try:
                        wait([work], timeout=0.5)
                    except KeyboardInterrupt as error:
                        if interrupt is not None:
                            self._say("restoring phones; please wait")
                        interrupt = interrupt or error
                        self.stop()
            finally:
                self.stop()
        if interrupt is not None:
            raise interrupt
        work.result()
        return self._done

    def stop(self) -> None:
        """Make the worker end its jobs, restore the phones and return from `run`."""
        self._stopped.set()
        self._woken.set()

    def _work(self, until_empty: bool) -> None:
        try:
            self._take_name()
            self._heartbeat()
            self._say(f"works as {self._host}")
            self._workers.open()
            # In a thread: with a phone or adb server that hangs the host must not look dead.
            threading.Thread(target=self._check_phones, name="phones", daemon=True).start()
            while not self._stopped.is_set() and not (self._step() and until_empty):
                self._wait()
        finally:
            self._stopped.set()
            self._end()

    def _wait(self) -> None:
        self._woken.wait(self._poll_s)
        self._woken.clear()

    def _take_name(self) -> None:
        """Take the host's name.

        Raises UsageError when another worker holds it for longer than a dead one can.
        """
        until_s = time.monotonic() + self._dead_after_s * 1.2
        while not self._locks.take(self._name):
            if time.monotonic() > until_s or self._stopped.wait(min(1.0, self._poll_s)):
                raise UsageError(
                    f"another worker works as {self._host!r}",
                    hint="give each host a name of its own (--name)",
                )

    def _heartbeat(self) -> None:
        self._queue.heartbeat(
            self._host, benchfarm_version=__version__, note=self._host_phones.fault
        )

    def _step(self) -> bool:
        """Poll once; return whether no job is due or running."""
        try:
            locks = set(self._locks.held)
            if not self._locks.is_alive() and locks:
                message = "the connection that holds its phones is lost; running jobs are stopped"
                self._say(message, level="error")
                self._stop_jobs()
            self._take_name()
            self._heartbeat()
            if self._phones is None:
                # A restarted worker must not announce its phones as away for a moment.
                return False
            self._announce(self._phones)
            offered = self._offer(self._phones)
            # Before a phone's worker begins: a job that was queued before a pause of its phone
            # would be dispatched ahead of a more urgent one that was submitted during the pause.
            self._sweep()
            for serial in offered:
                self._workers.start(serial)
        except StoreError as error:
            self._log_once(f"{error}; trying again", level="error")
            return False
        self._logged = {line for line in self._logged if not line.endswith("trying again")}
        return not self._has_due and not self._running

    def _stop_jobs(self) -> None:
        self._queued.clear()
        for job in list(self._running.values()):
            job.cancelled.set()
        for serial in self._workers.alive():
            self._workers.stop(serial)

    def _announce(self, phones: Mapping[str, Announced]) -> None:
        is_new = self._queue.announce(self._host, phones)
        if is_new or time.monotonic() - self._added_s > self._dead_after_s:
            self._added_s = time.monotonic()
            self._queued.clear()
            try:
                lines = add_new_phones(self._queue, phones, self._doubts)
            except StoreError:
                raise
            except BenchfarmError as error:
                lines = [f"new phones can't be added to open submissions: {error}"]
            for line in lines:
                self._log_once(line)

    def _offer(self, phones: Mapping[str, Announced]) -> list[str]:
        """Lock the phones that may measure, so that each belongs to one host, and return them; end
        the workers of all others.
        """
        clashes, paused = self._queue.clashes(), set(self._queue.pauses())
        allowed = {
            serial
            for serial, phone in phones.items()
            if not phone.unusable
            and serial not in clashes
            and not paused & {"farm", f"host:{self._host}", f"phone:{serial}"}
        }
        taken = []
        for serial in sorted(allowed | self._workers.alive() | self._offered()):
            name = f"{_PHONE}{serial}"
            if serial in allowed and self._locks.take(name):
                taken.append(serial)
                continue
            self._workers.stop(serial)
            if serial in clashes and (running := self._running.get(serial)) is not None:
                running.cancelled.set()
            if serial not in self._workers.alive():
                self._locks.release(name)
        return taken

    def _offered(self) -> set[str]:
        return {name.removeprefix(_PHONE) for name in self._locks.held if name.startswith(_PHONE)}

    def _sweep(self) -> None:
        """Put the due jobs of the offered phones into the queue, and stop cancelled ones."""
        running = {job.delivery.job_id: job for job in list(self._running.values())}
        for job_id in self._queue.cancelled(running.keys()):
            running[job_id].cancelled.set()
        by_serial: dict[str, dict[int, int]] = {}
        for row in self._queue.open_jobs(self._offered()):
            if row["is_due"]:
                by_serial.setdefault(row["serial"], {})[row["job_id"]] = row["priority"]
        self._has_due = bool(by_serial)
        for serial, jobs in by_serial.items():
            if jobs.keys() - self._queued:
                now = self._running.get(serial)
                self._workers.settle(serial, jobs, now.delivery.job_id if now is not None else None)
                self._queued |= jobs.keys()

    # A job, in its thread

    def _do(self, serial: str, job: int) -> None:
        """Run a job from the queue; raises _Retry when it is to be retried."""
        # The phone's host puts its open jobs into the queue again.
        self._queued.discard(job)
        if f"{_PHONE}{serial}" not in self._locks.held or self._stopped.is_set():
            return
        delivery = self._queue.begin(job, self._host)
        if delivery is None:
            return
        self._queued.add(job)
        running = self._running[serial] = _Running(delivery=delivery)
        try:
            if delivery.deaths >= DEATHS_MAX:
                ended = Ended(status="failed", note=f"its host died {delivery.deaths} times")
            else:
                self._say(f"job {job}: begins on {serial}", **_log_keys(delivery))
                ended = self._jobs.run(delivery, running.cancelled)
            self._report(delivery, ended)
        finally:
            del self._running[serial]
            self._woken.set()

    def _report(self, delivery: Delivery, ended: Ended) -> None:
        """Store and log a delivery's end; raises _Retry when the job is to be retried."""
        status, note, wait_s = ended.status, ended.note, ended.wait_s
        if status == "aborted":
            status, note = "waits", f"{self._host} stopped it"
        elif status == "later":
            status = "waits"
        elif status == "again":
            status = "waits" if delivery.tries < TRIES_MAX else "failed"
            wait_s = min(_MAX_RETRY_S, _RETRY_S * 2**delivery.tries)
        level = "warning" if ended.status == "again" else "info"
        again_at, outcome = None, "another host has begun it since"
        if (
            job_state := self._end_delivery(delivery, status, note, ended.status == "again", wait_s)
        ) is not None:
            status, again_at = job_state
            outcome = f"waits {wait_s:.0f} s" if status == "waits" else status
            self._done += status != "waits"
            if status == "cancelled":
                self._jobs.abandon(delivery)
        self._say(
            f"job {delivery.job_id}: {outcome}: {note}",
            level="error" if status == "failed" else level,
            **_log_keys(delivery),
        )
        if again_at is not None and status == "waits":
            raise _Retry(again_at)

    def _end_delivery(
        self, delivery: Delivery, status: str, note: str, is_try: bool, wait_s: float
    ) -> tuple[str, datetime] | None:
        """Store a delivery's end, trying again while the database is away; once this process is
        stopped, for at most ``dead_after_s``.
        """
        until_s: float | None = None
        is_logged = False
        while True:
            try:
                return self._queue.end(delivery, status, note, is_try=is_try, wait_s=wait_s)
            except StoreError as error:
                if not is_logged:
                    text = f"job {delivery.job_id}: its end can't be stored: {error}; trying again"
                    self._say(one_line(text), level="error", **_log_keys(delivery))
                    is_logged = True
                if self._stopped.is_set():
                    until_s = until_s or time.monotonic() + self._dead_after_s
                if until_s is not None and time.monotonic() > until_s:
                    raise
                time.sleep(self._poll_s)

    def _check_phones(self) -> None:
        while not self._stopped.is_set():
            phones = self._host_phones.check(list(self._running))
            if self._phones is None or phones.keys() != self._phones.keys():
                self._woken.set()
            self._phones = phones
            self._stopped.wait(self._poll_s)

    def _end(self) -> None:
        """End running jobs, wait until their phones are restored, and leave the farm."""
        self._stop_jobs()
        while self._workers.alive():
            self._wait()
            with suppress(BenchfarmError):
                # Restoring may take longer than ``dead_after_s``: stay alive for the others.
                self._locks.is_alive()
                self._heartbeat()
        try:
            if self._name in self._locks.held:
                self._queue.leave(self._host)
        except BenchfarmError as error:
            self._say(str(error), level="error")
        finally:
            self._workers.close()
            self._locks.close()

    def _log_once(self, text: str, *, level: str = "info") -> None:
        if text not in self._logged:
            self._logged.add(text)
            self._say(one_line(text), level=level)


def _log_keys(delivery: Delivery) -> dict[str, object]:
    """Return a job's keys in logs: its number, its phone, and its campaign."""
    return {"job": delivery.job_id, "serial": delivery.serial, "campaign_id": delivery.campaign_id}
