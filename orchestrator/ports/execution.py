"""Who does the devices' jobs, and who hears of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol


class Executor(Protocol):
    """Does the devices' jobs."""

    def run(
        self,
        jobs: Sequence[tuple[str, Callable[[], None]]],
        *,
        more: Callable[[], Sequence[tuple[str, Callable[[], None]]]] | None = None,
    ) -> None:
        """Do all jobs, each with its name, and return when all have ended; raises the first error of any.

        ``more`` is asked for further jobs again and again as long as any job runs, and must return at once.
        """
        ...


class Observer(Protocol):
    """Hears what the engine does, as it does it; must return quickly and never raise."""

    def on_event(self, event: object) -> None:
        """Take one of the records of engine/events.py."""
        ...
