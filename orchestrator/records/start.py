"""The pass ``cold``: how a model starts, in stages that differ by what is cached."""

from __future__ import annotations

import enum
from typing import Final


class StartStage(enum.StrEnum):
    """What is cached when a process starts; in the order in which the stages are run."""

    #: Nothing of the delegate is cached; this start writes its cache, as an app's very first one
    #: does.
    FIRST_LOAD = "first-load"
    #: A new process that neither reads nor writes a cache.
    PROCESS_COLD = "process-cold"
    #: A new process with the cache that the first load has written.
    CACHE_WARM = "cache-warm"


START_STAGES: Final = tuple(StartStage)


def stage_of(number: int) -> StartStage:
    """Return the stage that an invocation's number means: 0, 1, 2 in the first round, 3, 4, 5 in
    the second.
    """
    return START_STAGES[number % len(START_STAGES)]
