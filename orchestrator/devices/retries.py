"""The rules by which talk with a phone is tried again: after which errors, how often, how long.

| rule | after | further tries | between two tries |
|---|---|---|---|
| `ONE_TRY` | | none | |
| `LISTED`: a phone in a list | lost link | 2 | nothing: others may use it |
| `LINK_LOST`: a question, a transfer | lost link, no adb server | 1 | reconnect, at most 20 s |
| `until`: a run that is awaited or ended | these, and no answer in time | until a time | reconnect, in steps of 5 s |
| `DAMAGED`: a file that is sent or read | another checksum | 2 | nothing |
| `RESTORING`: a restoration | all that waiting may mend | 2 | wait until it is ready |

Below them an incomplete answer is asked for again (`scripts.run_scripts`), and a reconnection polls the adb
server and starts our own one anew (`AdbServer.reconnect`). Above them a device that stays away is
recovered (`rescue`), and a run is measured again (`engine.case_runner`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, TypeVar

from orchestrator.clock import Clock, Deadline
from orchestrator.errors import (
    RETURNING,
    AdbUnavailableError,
    DeviceError,
    DeviceTimeoutError,
    LinkLostError,
    TransferError,
)
from orchestrator.records import frozen

_T = TypeVar("_T")
_GONE: Final = (LinkLostError, AdbUnavailableError)
#: Errors of a phone that can't be reached, or hangs.
OFFLINE: Final = (*_GONE, DeviceTimeoutError)


@frozen
class Retry:
    """One rule."""

    errors: tuple[type[DeviceError], ...]
    #: The most further tries.
    tries: float = math.inf
    #: No further try begins this long after the first failure, or after ``end``: the later one.
    seconds: float = math.inf
    end: Deadline | None = None
    #: How long one attempt to reconnect the phone may take.
    step_s: float = 20.0

    def run(
        self,
        operation: Callable[[], _T],
        *,
        clock: Clock,
        between: Callable[[DeviceError, Deadline], None] = lambda error, deadline: None,
    ) -> _T:
        """Run an operation that may be repeated.

        ``between`` gets the error and the deadline for further tries; what it raises isn't retried.
        """
        failures = 0
        deadline: Deadline | None = None
        while True:
            try:
                return operation()
            except self.errors as error:
                failures += 1
                end_s = self.end.remaining_s if self.end is not None else 0.0
                deadline = deadline or Deadline(max(self.seconds, end_s), clock)
                if failures > self.tries or deadline.expired:
                    raise
                between(error, deadline)


ONE_TRY: Final = Retry(errors=())
LISTED: Final = Retry(errors=(LinkLostError,), tries=2)
LINK_LOST: Final = Retry(errors=_GONE, tries=1, seconds=20.0)
DAMAGED: Final = Retry(errors=(TransferError,), tries=2)
RESTORING: Final = Retry(errors=RETURNING, tries=2)


def until(seconds: float, end: Deadline | None = None) -> Retry:
    """Return the rule for a run: it continues on the phone, whatever becomes of the link."""
    return Retry(errors=OFFLINE, seconds=seconds, end=end, step_s=5.0)
