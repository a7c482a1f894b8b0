"""What this process did, counted as it happens: for its own numbers under ``/metrics``."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from orchestrator.engine.events import RunStored
from orchestrator.ports import Observer
from orchestrator.records.device import DeviceState
from orchestrator.records.run import Outcome


@dataclass(slots=True)
class Counts:
    """Runs by how they ended, and how each device was after its last one. Used by several threads."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _runs: Counter[tuple[str, str]] = field(default_factory=Counter)
    _states: dict[str, DeviceState] = field(default_factory=dict)

    def on_event(self, event: object) -> None:
        """Count a run that was stored."""
        if not isinstance(event, RunStored):
            return
        run = event.run
        state = run.state_after or run.state_before
        with self._lock:
            self._runs[run.outcome.value, "" if run.outcome is Outcome.COMPLETED else run.reason_code] += 1
            if state is not None:
                self._states[run.case.serial] = state

    @property
    def runs(self) -> Mapping[tuple[str, str], int]:
        """Outcome and reason code -> how many."""
        with self._lock:
            return dict(self._runs)

    @property
    def states(self) -> Mapping[str, DeviceState]:
        """Serial number -> how the device was when it was last looked at."""
        with self._lock:
            return dict(self._states)


#: Of this process.
COUNTS: Final = Counts()


@dataclass(frozen=True, slots=True)
class Counting:
    """Counts what another observer is told."""

    told: Observer
    counts: Counts = field(default_factory=lambda: COUNTS)

    def on_event(self, event: object) -> None:
        """Take an event."""
        self.counts.on_event(event)
        self.told.on_event(event)
