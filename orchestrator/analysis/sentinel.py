"""Has the device itself changed? The reference workload before and after other work, against its history. Pure."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.analysis.student import t_quantile
from orchestrator.analysis.summary import logs_of

#: A device is called moved wrongly once in a thousand times.
SENTINEL_LEVEL: Final = 0.999
#: Moves below this matter to nobody.
MOVE_MIN: Final = 0.02
#: The reference workload never repeats better than this, whatever few figures say.
NOISE_MIN: Final = 0.003
#: What is assumed of a device with too little history.
NOISE_ASSUMED: Final = 0.02
#: Figures that are needed to know a device's own noise.
HISTORY_MIN: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SentinelVerdict:
    """What the reference workload says of the device."""

    #: True when the figure moved beyond noise; None when one side has no figure.
    moved: bool | None
    #: after / before: 1.05 takes 5 % longer now; None without figures.
    ratio: float | None
    #: A ratio outside 1 / (1 + limit) to 1 + limit is a move.
    limit: float


def sentinel_moved(
    before: Sequence[float],
    after: Sequence[float],
    history: Sequence[float],
    *,
    level: float = SENTINEL_LEVEL,
    least: float = MOVE_MIN,
) -> SentinelVerdict:
    """Return whether the reference workload's figure moved between ``before`` and ``after``.

    All are latencies in microseconds, one for each invocation; ``history`` are earlier figures of the same workload on
    the same device, each taken to be at rest. Single outliers of the history don't widen the limit. Raises ValueError
    for latencies that aren't positive numbers.
    """
    logs_before, logs_after, logs_history = logs_of(before), logs_of(after), logs_of(history)
    is_known = len(logs_history) >= HISTORY_MIN
    noise = max(NOISE_MIN, _robust_std(logs_history)) if is_known else NOISE_ASSUMED
    if not logs_before or not logs_after:
        return SentinelVerdict(moved=None, ratio=None, limit=least)
    degrees = len(logs_history) - 1 if is_known else HISTORY_MIN
    error = noise * math.sqrt(1 / len(logs_before) + 1 / len(logs_after))
    limit = max(math.log1p(least), t_quantile(0.5 + level / 2, degrees) * error)
    move = statistics.median(logs_after) - statistics.median(logs_before)
    return SentinelVerdict(moved=abs(move) > limit, ratio=math.exp(move), limit=math.expm1(limit))


def _robust_std(logs: Sequence[float]) -> float:
    """Return the deviation by the median of differences of neighbours, which slow changes of level don't touch."""
    differences = [abs(after - before) for before, after in itertools.pairwise(logs)]
    return 1.4826 * statistics.median(differences) / math.sqrt(2)
