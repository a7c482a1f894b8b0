"""Procrastinate's workers of a host, one per offered phone. They deliver wake-ups, which say that a
phone may have a due job; the jobs themselves are in the farm's table.

So a wake-up may be lost, as it is sent again, or come twice, as the second one changes nothing.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

import procrastinate
from procrastinate.exceptions import ProcrastinateException

from orchestrator.errors import StoreError
from orchestrator.extensions.farm.schema import POOL, as_store_error, connection_settings

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
