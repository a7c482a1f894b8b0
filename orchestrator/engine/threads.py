"""A thread for each device, in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

#: How often the waiting thread wakes up, so that the interpreter handles signals on every platform.
_LOOK_S: Final = 0.5

Job = tuple[str, Callable[[], None]]


class ThreadExecutor:
    """Does every job in a thread of its own, all at the same time."""

    def __init__(self, cancelled: threading.Event) -> None:
        self._cancelled = cancelled

    def run(self, jobs: Sequence[Job], *, more: Callable[[], Sequence[Job]] | None = None) -> None:
        """Do all jobs and wait for them; what ``more`` returns meanwhile is done too, as long as any job runs.

        A job that raises sets ``cancelled``, so that the others end at their next step; the first exception is raised
        again when all have ended. Ctrl-C is heard while waiting, sets ``cancelled`` too, and is raised at the end:
        however often it is pressed, the jobs put their devices back first.
        """
        errors: list[BaseException] = []
        running: list[threading.Event] = []
        interrupt: KeyboardInterrupt | None = None
        waiting = list(jobs)
        # Not by Thread.join: interrupted by a signal, Python 3.11's join takes a thread that still runs for ended.
        while True:
            try:
                while waiting and interrupt is None:
                    running.append(self._start(waiting.pop(0), errors))
                still = next((ended for ended in running if not ended.is_set()), None)
                if still is not None:
                    still.wait(_LOOK_S)
                # Asked after the last one's end, too: it may have left something to others.
                waiting += self._come(more, errors)
                if still is None and (not waiting or interrupt is not None):
                    break
            except KeyboardInterrupt as error:
                interrupt = error
                self._cancelled.set()
        if interrupt is not None:
            raise interrupt
        if errors:
            raise errors[0]

    def _start(self, job: Job, errors: list[BaseException]) -> threading.Event:
        name, work = job
        ended = threading.Event()

        def guarded() -> None:
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - carried to the calling thread
                errors.append(error)
                self._cancelled.set()
            finally:
                ended.set()

        threading.Thread(target=guarded, name=name, daemon=True).start()
        return ended

    def _come(self, more: Callable[[], Sequence[Job]] | None, errors: list[BaseException]) -> Sequence[Job]:
        if more is None or self._cancelled.is_set():
            return ()
        try:
            return more()
        except Exception as error:  # noqa: BLE001 - what runs puts its devices back first
            errors.append(error)
            self._cancelled.set()
            return ()
