"""A host's worker: it offers its phones, and runs their due jobs.

Only the holder of a phone's lock offers it (``HostLocks``), so a job of it that runs, and not here,
has lost its host. At each poll the worker asks the farm's table which of its phones have a due job,
and wakes them; a phone that is awake claims its jobs there, one after the other. In memory is only
what runs here, to cancel it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import procrastinate
from procrastinate.exceptions import ProcrastinateException

from orchestrator import __version__
from orchestrator.clock import Deadline
from orchestrator.errors import BenchfarmError, PlanError, StoreError, UsageError
from orchestrator.extensions.farm.job import Ended
from orchestrator.extensions.farm.job_table import Job
from orchestrator.extensions.farm.phones import Doubt, add_new_phones
from orchestrator.extensions.farm.queue import Announced, FarmQueue
from orchestrator.extensions.farm.schema import POOL, HostLocks, as_store_error, connection_settings

if TYPE_CHECKING:
    from orchestrator.extensions.farm.job import Jobs
    from orchestrator.extensions.farm.phones import HostPhones

#: Earlier versions' hosts, which may work beside this one, have jobs in the queue under other names.
_TASK: Final = "benchfarm.wake"
#: Threads for jobs, at most: a phone that measures takes one.
_THREADS: Final = 256
#: Procrastinate's own heartbeats aren't needed beside the locks; they are rare, as each phone sends
#: them.
_HEARTBEAT_S, _STALLED_S = 60.0, 600.0
_NEVER_S: Final = 7 * 86400.0


class PhoneWorkers:
    """The workers, on an event loop in a thread of its own."""

    def __init__(self, url: str, run: Callable[[str], None], *, poll_s: float) -> None:
        """``run`` runs the due jobs of a phone (serial number) in a thread."""
        self._url, self._poll_s = url, poll_s
        settings = {"kwargs": connection_settings(url), "max_size": 3, **POOL}
        self._app = procrastinate.App(
            connector=procrastinate.PsycopgConnector(conninfo=url, **settings)
        )
        self._app.task(name=_TASK)(run)
        self._loop = asyncio.new_event_loop()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def open(self) -> None:
        """Start the loop, once; raises StoreError."""
        self._loop.set_default_executor(ThreadPoolExecutor(_THREADS, thread_name_prefix="job"))
        threading.Thread(target=self._loop.run_forever, name="phone workers", daemon=True).start()
        self._run_on_loop(self._open())

    async def _open(self) -> None:
        await self._app.open_async()

    def close(self) -> None:
        """End the loop; all workers have ended before."""
        if self._loop.is_running():
            with suppress(StoreError):
                self._run_on_loop(self._app.close_async())
            self._loop.call_soon_threadsafe(self._loop.stop)

    def alive(self) -> set[str]:
        """Return the phones whose workers have not ended."""
        return {serial for serial, task in list(self._tasks.items()) if not task.done()}

    def serve(self, serials: Collection[str], *, due: Collection[str]) -> None:
        """Start the workers of these phones that don't run, and wake the phones with a due job.

        Raises StoreError.
        """
        self._run_on_loop(self._serve(serials, due))

    async def _serve(self, serials: Collection[str], due: Collection[str]) -> None:
        starting = {*serials} - self.alive()
        if not due and not starting:
            return
        manager = self._app.job_manager
        wake_ups = list(await manager.list_jobs_async(task=_TASK))
        for wake_up in wake_ups:
            if wake_up.status == "doing" and wake_up.task_kwargs["serial"] in starting:
                # Its worker is gone: this host has the phone's lock.
                await manager.retry_job(wake_up)
        waiting = {item.task_kwargs["serial"] for item in wake_ups if item.status == "todo"}
        for serial in {*due} - waiting:
            task = self._app.configure_task(_TASK, queue=_queue_name(serial))
            await task.defer_async(serial=serial)
        for serial in starting:
            self._tasks[serial] = asyncio.create_task(self._work(serial), name=serial)

    async def _work(self, serial: str) -> None:
        # Errors can be ignored: the next worker raises them again, or the database is away.
        with suppress(Exception):
            await self._app.run_worker_async(
                queues=[_queue_name(serial)],
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
        if (task := self._tasks.get(serial)) is not None:
            self._loop.call_soon_threadsafe(_cancel_once, task)

    def _run_on_loop(self, coroutine: Coroutine[Any, Any, None]) -> None:
        with as_store_error(self._url):
            try:
                asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
            except ProcrastinateException as error:
                raise StoreError(f"the farm's queue: {error.__cause__ or error}") from error


def _cancel_once(task: asyncio.Task[None]) -> None:
    # A second time would end it while its job still runs.
    if not task.cancelling():
        task.cancel()


def _queue_name(serial: str) -> str:
    return f"wake-{serial}"


#: Tries of a job on its phone after which it is abandoned.
TRIES_MAX: Final = 10
#: A job during which this many hosts died isn't run by another one: it may be the cause.
DEATHS_MAX: Final = 10
#: Seconds until the next try: doubled after each further failed one, up to the maximum.
_RETRY_S: Final = 5.0
_MAX_RETRY_S: Final = 300.0
#: Prefix of a phone's lock.
_PHONE: Final = "phone "


@dataclass(slots=True, kw_only=True)
class _Running:
    #: None while it is being claimed.
    job: Job | None = None
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
        dead_after_s: float,
        poll_s: float,
    ) -> None:
        self._queue = queue
        self._host_phones, self._jobs = phones, jobs
        self._say = jobs.say
        self._host, self._name = jobs.host, f"host {jobs.host}"
        self._dead_after_s, self._poll_s = dead_after_s, poll_s
        self._locks = HostLocks(queue.url, dead_after_s=dead_after_s)
        self._workers = PhoneWorkers(queue.url, self._run_due, poll_s=poll_s)
        self._stopped = threading.Event()
        #: Set when a job ended or the phones changed, to poll at once.
        self._woken = threading.Event()
        self._running: dict[str, _Running] = {}
        #: None before the first check.
        self._phones: Mapping[str, Announced] | None = None
        #: The phones that may begin a job: this host has their locks, and nothing forbids it.
        self._offered: Collection[str] = ()
        #: When its phones are added to open submissions again, at the latest.
        self._next_adding = Deadline(0)
        self._doubts: set[Doubt] = set()
        self._done = 0
        #: Lines about new phones that were logged.
        self._logged: set[str] = set()
        #: Why the last poll failed; empty when it didn't.
        self._fault = ""

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
        deadline = Deadline(self._dead_after_s * 1.2)
        while not self._locks.take(self._name):
            if deadline.expired or self._stopped.wait(min(1.0, self._poll_s)):
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
            self._offer()
            is_idle = self._wake()
        except StoreError as error:
            if str(error) != self._fault:
                self._fault = str(error)
                self._say(f"{error}; trying again", level="error")
            return False
        self._fault = ""
        return is_idle

    def _stop_jobs(self) -> None:
        self._offered = ()
        for running in list(self._running.values()):
            running.cancelled.set()
        for serial in self._workers.alive():
            self._workers.stop(serial)

    def _announce(self, phones: Mapping[str, Announced]) -> None:
        is_new = self._queue.announce(self._host, phones)
        if is_new or self._next_adding.expired:
            self._next_adding = Deadline(self._dead_after_s)
            try:
                lines = add_new_phones(self._queue, phones, self._doubts)
            except PlanError as error:
                lines = [f"new phones can't be added to open submissions: {error}"]
            for line in lines:
                if line not in self._logged:
                    self._logged.add(line)
                    self._say(line)

    def _offer(self) -> None:
        """Lock the phones that may begin a job, so that each belongs to one host; end the workers
        of all others.
        """
        self._offered = [
            serial
            for serial in self._queue.may_begin(self._host)
            if self._locks.take(f"{_PHONE}{serial}")
        ]
        locks = self._locks.held
        locked = {name.removeprefix(_PHONE) for name in locks if name.startswith(_PHONE)}
        for serial in locked - {*self._offered}:
            self._workers.stop(serial)
            if serial not in self._workers.alive():
                self._locks.release(f"{_PHONE}{serial}")

    def _wake(self) -> bool:
        """Wake the offered phones that have a due job and run none, and stop jobs that are to be
        stopped; return whether no job is due or running.
        """
        jobs = {item.job.job_id: item for item in list(self._running.values()) if item.job}
        due, stopped = self._queue.due_and_stopped(self._offered, jobs.keys())
        for job_id in stopped & jobs.keys():
            jobs[job_id].cancelled.set()
        self._workers.serve(self._offered, due=due - set(self._running))
        return not due and not self._running

    # A phone's jobs, in its thread

    def _run_due(self, serial: str) -> None:
        """Run the due jobs of a phone, the most urgent first, while this host offers it."""
        while self._run_next(serial):
            pass
        self._woken.set()

    def _run_next(self, serial: str) -> bool:
        """Claim and run a job of a phone; return whether there was one."""
        # First: when the phone isn't offered any more, either that is noticed here, or this is
        # cancelled there.
        running = self._running[serial] = _Running()
        try:
            may_begin = serial in self._offered and not self._stopped.is_set()
            job = self._queue.claim(serial, self._host) if may_begin else None
            if job is None:
                return False
            running.job = job
            self._report(job, self._run(job, running.cancelled))
            return True
        finally:
            del self._running[serial]

    def _run(self, job: Job, cancelled: threading.Event) -> Ended:
        if job.deaths >= DEATHS_MAX:
            return Ended(status="failed", note=f"its host died {job.deaths} times")
        self._say(f"job {job.job_id}: begins on {job.serial}", **_log_keys(job))
        return self._jobs.run(job, cancelled)

    def _report(self, job: Job, ended: Ended) -> None:
        """Store and log the end of a job."""
        is_try = ended.status == "again"
        if is_try and job.tries < TRIES_MAX:
            wait_s = min(_MAX_RETRY_S, _RETRY_S * 2**job.tries)
            ended = replace(ended, status="waits", wait_s=wait_s)
        elif is_try:
            ended = replace(ended, status="failed")
        status = self._end_job(job, ended, is_try=is_try)
        self._done += status not in {None, "waits"}
        if status == "cancelled":
            self._jobs.abandon(job)
        outcome = status or "another host has begun it since"
        if status == "waits":
            outcome = f"waits {ended.wait_s:.0f} s"
        self._say(
            f"job {job.job_id}: {outcome}: {ended.note}",
            level="error" if status == "failed" else "warning" if is_try else "info",
            **_log_keys(job),
        )

    def _end_job(self, job: Job, ended: Ended, *, is_try: bool) -> str | None:
        """Store a job's end, trying again while the database is away; once this process is stopped,
        for at most ``dead_after_s``.
        """
        deadline: Deadline | None = None
        is_logged = False
        while True:
            try:
                return self._queue.end(
                    job, ended.status, ended.note, is_try=is_try, wait_s=ended.wait_s
                )
            except StoreError as error:
                if not is_logged:
                    text = f"job {job.job_id}: its end can't be stored: {error}; trying again"
                    self._say(text, level="error", **_log_keys(job))
                    is_logged = True
                if self._stopped.is_set():
                    deadline = deadline or Deadline(self._dead_after_s)
                if deadline is not None and deadline.expired:
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


def _log_keys(job: Job) -> dict[str, object]:
    """Return a job's keys in logs: its number, its phone, and its campaign."""
    return {"job": job.job_id, "serial": job.serial, "campaign_id": job.campaign_id}
