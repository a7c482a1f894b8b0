"""A thread for each device, in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final

#: How often the waiting thread wakes up, so that the interpreter handles signals on every platform.
_LOOK_S: Final = 0.5


class ThreadExecutor:
    """Does every job in a thread of its own, all at the same time."""

    def __init__(self, cancelled: threading.Event) -> None:
        self._cancelled = cancelled

    def run(self, jobs: Sequence[tuple[str, Callable[[], None]]]) -> None:
        """Do all jobs and wait for them.

        A job that raises sets ``cancelled``, so that the others end at their next step; the first exception is raised
        again when all have ended. Ctrl-C is heard while waiting, sets ``cancelled`` too, and is raised at the end:
        however often it is pressed, the jobs put their devices back first.
        """
        errors: list[BaseException] = []
        running: list[threading.Event] = []
        interrupt: KeyboardInterrupt | None = None

        def guarded(job: Callable[[], None], ended: threading.Event) -> None:
            try:
                job()
            except BaseException as error:  # noqa: BLE001 - carried to the calling thread
                errors.append(error)
                self._cancelled.set()
            finally:
                ended.set()

        try:
            for name, job in jobs:
                ended = threading.Event()
                thread = threading.Thread(target=guarded, args=(job, ended), name=name, daemon=True)
                thread.start()
                running.append(ended)
        except KeyboardInterrupt as error:
            interrupt = error
            self._cancelled.set()
        # Not by Thread.join: interrupted by a signal, Python 3.11's join takes a thread that still runs for ended.
        for ended in running:
            while True:
                try:
                    if ended.wait(_LOOK_S):
                        break
                except KeyboardInterrupt as error:
                    interrupt = error
                    self._cancelled.set()
        if interrupt is not None:
            raise interrupt
        if errors:
            raise errors[0]
