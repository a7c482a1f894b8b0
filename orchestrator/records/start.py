"""The pass ``cold``: how a model starts, in stages that differ by what is cached."""

from __future__ import annotations

import enum
from typing import Final

from orchestrator.records.workload import IMPORTED_TOOLS, Case, DelegateName, Pass, ToolName


class StartStage(enum.StrEnum):
    """What is cached when a process starts; in the order in which the stages are run."""

    #: Nothing of the delegate is cached; this start writes its cache, as an app's very first one does.
    FIRST_LOAD = "first-load"
    #: A new process that neither reads nor writes a cache.
    PROCESS_COLD = "process-cold"
    #: A new process with the cache that the first load has written.
    CACHE_WARM = "cache-warm"


_STAGES: Final = tuple(StartStage)
#: Delegates that keep what they compiled or packed: GPU and NNAPI in a serialisation folder, XNNPACK in a weight cache.
CACHING_DELEGATES: Final = frozenset({DelegateName.XNNPACK, DelegateName.GPU, DelegateName.NNAPI})
#: Programs of which one process measures several cases, or that a person starts: their starts aren't cold ones.
_WITHOUT_STARTS: Final = frozenset({ToolName.PERF_OPTIONS}) | IMPORTED_TOOLS
#: Programs that can be told where caches are.
_CACHING_TOOLS: Final = frozenset({ToolName.NATIVE, ToolName.APK})


def stage_of(run_pass: Pass, number: int) -> StartStage | None:
    """Return the stage that an invocation's number means: 0, 1, 2 in the first round, 3, 4, 5 in the second."""
    return _STAGES[number % len(_STAGES)] if run_pass is Pass.COLD else None


def cold_numbers(case: Case, rounds: int) -> tuple[int, ...]:
    """Return the numbers of a case's cold invocations.

    Without a cache there is only the stage ``process-cold``; a program whose process isn't the case's own has none.
    """
    if case.tool in _WITHOUT_STARTS:
        return ()
    caches = case.delegate in CACHING_DELEGATES and case.tool in _CACHING_TOOLS
    wanted = _STAGES if caches else (StartStage.PROCESS_COLD,)
    return tuple(len(_STAGES) * turn + _STAGES.index(stage) for turn in range(rounds) for stage in wanted)
