"""The farm's state for pages that many read: cached, and there while it can't be read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final, Generic, TypeVar

from orchestrator.clock import night_of
from orchestrator.errors import BenchfarmError
from orchestrator.plugins import Queue, Workspace, read_farm
from orchestrator.records.answers import FarmAnswer, NightAnswer

#: Minimum time for which a cached value is used, seconds.
_MIN_AGE_S: Final = 2.0
_T = TypeVar("_T")


class Cached(Generic[_T]):
    """A cached value that is read again once it is old. May be used by several threads."""

    def __init__(self, renew: Callable[[_T | None], _T], *, age_factor: float = 0.0) -> None:
        """``renew`` gets the previous value. A value is used for ``age_factor`` times the time that
        reading it took, at least _MIN_AGE_S.
        """
        self._renew, self._age_factor = renew, age_factor
        self._lock = threading.Lock()
        self._value: _T | None = None
        self._fresh_until_s = 0.0

    def read(self, *, is_fresh: bool = False) -> _T:
        """Return the value; ``is_fresh``: read it now, after a change."""
        with self._lock:
            begin_s = time.monotonic()
            if self._value is None or is_fresh or begin_s >= self._fresh_until_s:
                self._value = self._renew(self._value)
                end_s = time.monotonic()
                self._fresh_until_s = end_s + max(_MIN_AGE_S, self._age_factor * (end_s - begin_s))
            return self._value


class FarmNow(Cached[FarmAnswer]):
    """The farm as it is now; if it can't be read, as it was before, with the reason in ``fault``."""

    def __init__(
        self, workspace: Workspace, queue: Queue | None, *, can_be_steered: bool = False
    ) -> None:
        """``queue`` None: the phones are those of this computer."""
        super().__init__(self._refreshed)
        self._workspace = workspace
        self._queue = queue
        self._can_be_steered = can_be_steered

    def _refreshed(self, before: FarmAnswer | None) -> FarmAnswer:
        try:
            farm = read_farm(self._workspace, self._queue)
        except BenchfarmError as error:
            night = night_of(self._workspace.clock.now(), None)
            empty = FarmAnswer(has_queue=self._queue is not None, night=NightAnswer(night=night))
            farm = replace(before or empty, fault=str(error))
        return replace(farm, can_be_steered=self._can_be_steered)
