"""A thread for each device, in this process; or one device after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence


class InlineExecutor:
    """Does one job after the other in the calling thread."""

    def run(self, jobs: Sequence[tuple[str, Callable[[], None]]]) -> None:
        """Do all jobs; an exception ends it at once."""
        for _, job in jobs:
            job()


class ThreadExecutor:
    """Does every job in a thread of its own, all at the same time."""

    def __init__(self, cancelled: threading.Event) -> None:
        self._cancelled = cancelled

    def run(self, jobs: Sequence[tuple[str, Callable[[], None]]]) -> None:
        """Do all jobs and wait for them.

        A job that raises sets ``cancelled``, so that the others end at their next step; the first exception is raised
        again when all have ended. Ctrl-C is heard while waiting, sets ``cancelled`` too, and is raised at the end.
        """
        errors: list[BaseException] = []

        def guarded(job: Callable[[], None]) -> None:
            try:
                job()
            except BaseException as error:  # noqa: BLE001 - carried to the calling thread
                errors.append(error)
                self._cancelled.set()

        threads = [threading.Thread(target=guarded, args=(job,), name=name, daemon=True) for name, job in jobs]
        for thread in threads:
            thread.start()
        interrupt: KeyboardInterrupt | None = None
        for thread in threads:
            while thread.is_alive():
                try:
                    # A join without a timeout would not let the interpreter handle signals on every platform.
                    thread.join(timeout=1.0)
                except KeyboardInterrupt as error:
                    interrupt = error
                    self._cancelled.set()
        if interrupt is not None:
            raise interrupt
        if errors:
            raise errors[0]
