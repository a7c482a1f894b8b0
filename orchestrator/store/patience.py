"""How long a thread waits before it gives up: as long as something is done, and no longer."""

from __future__ import annotations

from orchestrator.clock import Clock, SystemClock


class Patience:
    """A limit on waiting that begins anew whenever something was done for anybody.

    A hundred phones may end a run in the same second: what counts isn't how many are before one, but whether they come
    to an end.
    """

    def __init__(self, limit_s: float, clock: Clock | None = None) -> None:
        self.limit_s = limit_s
        self._clock = clock or SystemClock()
        self._done_s = self._clock.monotonic_s() - limit_s

    def now_s(self) -> float:
        """Return the moment, for ``left_s``."""
        return self._clock.monotonic_s()

    def note_done(self) -> None:
        """Take note that something was done."""
        self._done_s = self._clock.monotonic_s()

    def left_s(self, since_s: float) -> float:
        """Return how much longer somebody waits who has waited since a moment, zero for no longer."""
        return max(0.0, max(since_s, self._done_s) + self.limit_s - self._clock.monotonic_s())
