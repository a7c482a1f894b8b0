"""One summary against another: the speed-up with its interval, and the best of a set without false winners."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from orchestrator.analysis.pairs import welch_error
from orchestrator.analysis.student import t_quantile
from orchestrator.analysis.summary import LEVEL, Interval, IntervalMethod, Summary

Key = TypeVar("Key")

#: Two figures that can't be tested (one invocation each) are called alike up to this difference: the same case
#: measured on two nights commonly differs by some percent.
UNTESTED_MARGIN = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """How many times as fast a candidate is as its baseline: 2.0 takes half the time."""

    value: float
    #: None when one side has a single invocation.
    interval: Interval | None

    @property
    def differs(self) -> bool:
        """Whether the difference is more than the noise explains; without an interval, more than a fixed margin."""
        if self.interval is None:
            return abs(math.log(self.value)) > math.log1p(UNTESTED_MARGIN)
        return not self.interval.low <= 1.0 <= self.interval.high


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfSet(Generic[Key]):
    """The fastest member of a set, and those that can't be told from it."""

    fastest: Key
    #: Members, the fastest not among them, whose difference from the fastest may be noise.
    tied: tuple[Key, ...]
    #: False when the fastest or a rival has one invocation, so that the order rests on a margin, not on a test.
    is_tested: bool

    @property
    def is_clear(self) -> bool:
        """Whether there is one winner."""
        return not self.tied


def speed_up(baseline: Summary, candidate: Summary, *, level: float = LEVEL) -> Ratio:
    """Return how many times as fast the candidate is: the ratio of middles with a Welch interval of its log."""
    log_ratio = baseline.log_middle.value - candidate.log_middle.value
    if baseline.log_middle.error is None or candidate.log_middle.error is None:
        return Ratio(value=math.exp(log_ratio), interval=None)
    error, degrees = welch_error(baseline.log_middle, candidate.log_middle)
    reach = t_quantile(0.5 + level / 2, degrees) * error
    low, high = math.exp(log_ratio - reach), math.exp(log_ratio + reach)
    return Ratio(
        value=math.exp(log_ratio), interval=Interval(low=low, high=high, level=level, method=IntervalMethod.LOG_T)
    )


def best_of(members: Mapping[Key, Summary], *, level: float = LEVEL) -> BestOfSet[Key] | None:
    """Return the fastest of a set and its ties; None for an empty set. Equal medians keep the mapping's order."""
    if not members:
        return None
    fastest = min(members, key=lambda key: members[key].median_us)
    ratios = {
        key: speed_up(summary, members[fastest], level=level) for key, summary in members.items() if key != fastest
    }
    return BestOfSet(
        fastest=fastest,
        tied=tuple(key for key, ratio in ratios.items() if not ratio.differs),
        is_tested=all(ratio.interval is not None for ratio in ratios.values()),
    )
