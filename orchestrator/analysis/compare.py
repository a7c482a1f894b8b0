"""Two samples of invocations against each other: verdict, ratio with its interval, the best of a
set. Pure.

A change is claimed when two things hold: the interval of the ratio leaves out 1, so that it is no
accident, and the ratio itself is at least the threshold away from 1, so that it matters. The
interval is a 99 % one unless a caller says otherwise: among equals, one comparison in a hundred at
most may be called a change. docs/evidence.md shows how the rule does on series of known truth.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from orchestrator.analysis.memory import EVEN, Pace, growth, weights_of
from orchestrator.analysis.middle import (
    BOOTSTRAP_FROM_COUNT,
    Middle,
    bootstrap_difference,
    bootstrap_middle,
    degrees_of,
    middle,
    t_quantile,
)
from orchestrator.analysis.summary import (
    LEVEL,
    Interval,
    IntervalMethod,
    Summary,
    TwoStates,
    logs_of,
    moved_by,
    two_states,
)
from orchestrator.records.verdict import ComparisonOutcome, ComparisonVerdict

#: How sure the interval is that a claim rests on.
CLAIM_LEVEL: Final = 0.99
#: Relative differences below this are not called a change.
THRESHOLD: Final = 0.02
#: With which probability the minimum detectable effect would have been seen, and a planned one is.
SEEN_POWER: Final = 0.8
PLANNED_POWER: Final = 0.95
#: The most pairs that are ever planned.
PAIRS_MOST: Final = 10_000
#: Larger exponentials are beyond what a number can hold.
_MOST_LOG: Final = 700.0
#: Degrees of freedom that two samples that aren't in pairs have less than Welch and Satterthwaite
#: give them.
WELCH_LESS: Final = 2
#: Of the groups that both sides together show: the space between them in deviations within.
_EMPTY_OF_BOTH: Final = 3.1
_CHANGES: Final = {ComparisonOutcome.SLOWER, ComparisonOutcome.FASTER}


def compare_pairs(
    baseline_us: Sequence[float],
    candidate_us: Sequence[float],
    *,
    threshold: float = THRESHOLD,
    level: float = CLAIM_LEVEL,
) -> ComparisonVerdict:
    """Return the verdict on invocations that were measured in pairs, the i-th of each side next to
    each other in time.

    Latencies in microseconds, one for each invocation. The effect is the middle of the log ratios,
    which takes out what both of a pair had in common (heat, clocks). Raises ValueError for sides of
    different length and for latencies that aren't positive numbers.
    """
    if len(baseline_us) != len(candidate_us):
        raise ValueError(
            f"pairs need sides of one length, not {len(baseline_us)} and {len(candidate_us)}"
        )
    logs = [
        after - before
        for before, after in zip(logs_of(baseline_us), logs_of(candidate_us), strict=True)
    ]
    counts = (len(logs), len(logs))
    if len(logs) < 2:
        return _untested(
            math.exp(logs[0]) if logs else None, counts, threshold=threshold, level=level
        )
    found = middle(logs)
    if len(logs) < BOOTSTRAP_FROM_COUNT or not found.error:
        ends, method = (
            _student_ends(found.value, found.error or 0.0, found.degrees, level),
            "paired-t",
        )
    else:
        ends, method = bootstrap_middle(logs, None, level=level), "paired-bootstrap"
    seen = _detectable(found.error or 0.0, found.degrees, SEEN_POWER, level, threshold)
    return _verdict(found.value, ends, counts, method, seen, threshold=threshold, level=level)


def compare_samples(
    baseline_us: Sequence[float],
    candidate_us: Sequence[float],
    *,
    threshold: float = THRESHOLD,
    level: float = CLAIM_LEVEL,
    baseline_errors: Sequence[float] | None = None,
    candidate_errors: Sequence[float] | None = None,
    paces: tuple[Pace, Pace] = (EVEN, EVEN),
) -> ComparisonVerdict:
    """Return the verdict on two samples that weren't measured in pairs: another night, another
    device.

    Latencies in microseconds, one for each invocation in order of time; the errors are the relative
    standard errors of each (:func:`orchestrator.analysis.summary.own_error`), the paces say when
    they were made. Welch's interval of the logs when one side is below 20 invocations, the
    hierarchical bootstrap from there on. Both sides together show what invocations remember. Where
    both sides fall into the same two groups, group is compared with group; where one does, only a
    difference that no other share of the groups explains is claimed. Raises ValueError for
    latencies that aren't positive numbers.
    """
    before, after = logs_of(baseline_us), logs_of(candidate_us)
    counts = (len(before), len(after))
    if min(counts) < 2:
        has_both = min(counts) > 0
        ratio = math.exp(middle(after).value - middle(before).value) if has_both else None
        return _untested(ratio, counts, threshold=threshold, level=level)
    weights = weights_of([(before, paces[0]), (after, paces[1])])
    growths = growth(before, weights, paces[0]), growth(after, weights, paces[1])
    states = two_states(before), two_states(after)
    if states[0] and states[1] and (moved := moved_by(states[0], states[1])):
        mean, error, degrees = moved[0], moved[1] * max(growths), moved[2]
        ends, method = _student_ends(mean, error, degrees, level), "state-by-state"
    else:
        sides = middle(before, growth=growths[0]), middle(after, growth=growths[1])
        mean = sides[1].value - sides[0].value
        error, degrees = welch_error(*sides)
        if min(counts) < BOOTSTRAP_FROM_COUNT or error == 0.0:
            ends, method = _student_ends(mean, error, degrees, level), "welch"
        else:
            ends = bootstrap_difference(
                after,
                before,
                candidate_errors,
                baseline_errors,
                level=level,
                growths=(growths[1], growths[0]),
            )
            method = "hierarchical-bootstrap"
    found = [
        (name, side) for name, side in zip(("baseline", "candidate"), states, strict=True) if side
    ]
    reasons = [f"The {name} has {side.text}." for name, side in found]
    margin = math.log1p(threshold)
    explained = None if method == "state-by-state" else _explained(before, after, states)
    if explained is not None:
        ends = min(ends[0], explained[0] - margin), max(ends[1], explained[1] + margin)
    seen = _detectable(error, degrees, SEEN_POWER, level, threshold)
    verdict = _verdict(mean, ends, counts, method, seen, threshold=threshold, level=level)
    if method == "state-by-state":
        reasons.append("Each state is compared with its own.")
    moved_apart = abs(middle(after).value - middle(before).value) >= margin
    if moved_apart and (states[0] or states[1] or explained) and verdict.outcome not in _CHANGES:
        verdict = replace(verdict, outcome=ComparisonOutcome.INCONCLUSIVE)
        reasons.append("Another share of the two states may be all of the difference.")
    return replace(verdict, reasons=(*verdict.reasons, *reasons))


def _explained(
    before: Sequence[float],
    after: Sequence[float],
    states: tuple[TwoStates | None, TwoStates | None],
) -> tuple[float, float] | None:
    """Return the ends of what two sides may differ by because each drew a device's states in
    another share, or None.

    A side that shows one state may have a single invocation in the other, which only both sides
    together tell.
    """
    if any(states):
        old, new = (
            side.levels if side else (middle(logs).value,)
            for side, logs in zip(states, (before, after), strict=True)
        )
        return min(new) - max(old), max(new) - min(old)
    both = two_states([*before, *after])
    cut = math.fsum(both.levels) / 2 if both else 0.0
    # A step makes two groups of both sides, too, with an invocation of a noisy side across the cut;
    # of states that mix, nothing lies between.
    is_mixed = any(min(logs) < cut < max(logs) for logs in (before, after))
    return (
        (-both.gap, both.gap)
        if both and is_mixed and both.empty >= _EMPTY_OF_BOTH * both.within
        else None
    )


def welch_error(baseline: Middle, candidate: Middle) -> tuple[float, int]:
    """Return the standard error of the difference of two middles and its degrees of freedom.

    Those of Welch and Satterthwaite less WELCH_LESS, but never fewer than the side with fewer has:
    at 99 % they are too many for trimmed samples of unlike size, and among equals one comparison in
    a hundred may be called a change.
    """
    one, other = (baseline.error or 0.0) ** 2, (candidate.error or 0.0) ** 2
    degrees = baseline.degrees, candidate.degrees
    total, fewest = one + other, min(degrees)
    if total == 0.0:
        return 0.0, fewest
    freedom = total**2 / (one**2 / degrees[0] + other**2 / degrees[1])
    # The last digits of the sum must not decide between two whole numbers.
    return math.sqrt(total), max(fewest, math.floor(freedom + 1e-6) - WELCH_LESS)


def detectable(
    log_std: float,
    count: int,
    *,
    power: float = SEEN_POWER,
    level: float = CLAIM_LEVEL,
    paired: bool,
    threshold: float = THRESHOLD,
) -> float:
    """Return the smallest relative change that would be claimed with ``power``: 0.03 is 3 %.

    ``log_std`` is the deviation of the log ratios of ``count`` pairs, or (not paired) of the logs
    of each side's ``count`` invocations. Raises ValueError below two.
    """
    if count < 2:
        raise ValueError("a single invocation shows no effect, however large")
    error = log_std * math.sqrt((1 if paired else 2) / count)
    one = degrees_of(count)
    return _detectable(
        error, one if paired else max(one, 2 * one - WELCH_LESS), power, level, threshold
    )


def pairs_for(
    detect: float,
    log_std: float,
    *,
    power: float = PLANNED_POWER,
    level: float = CLAIM_LEVEL,
    threshold: float | None = None,
) -> int:
    """Return how many pairs are needed to claim a relative change of ``detect`` with ``power``.

    At most PAIRS_MOST.

    ``log_std`` is the deviation of the log ratios of pairs. ``threshold`` None takes
    :func:`threshold_for`; the comparison must then be made with that. Raises ValueError when the
    threshold isn't below the change.
    """
    least = threshold_for(detect) if threshold is None else threshold
    if detect <= 0 or least >= detect:
        raise ValueError(
            f"a change of {detect:.1%} can't be claimed with a threshold of {least:.1%}"
        )

    def is_enough(count: int) -> bool:
        return (
            detectable(log_std, count, power=power, level=level, paired=True, threshold=least)
            <= detect
        )

    return fewest(is_enough)


def fewest(is_enough: Callable[[int], bool]) -> int:
    """Return the fewest pairs that are enough, two or more; at most PAIRS_MOST."""
    return 2 + bisect_left(range(2, PAIRS_MOST), True, key=is_enough)


def factor_of(log: float) -> float:
    """Return how many times as long a difference of logarithms is, within what a number can hold.

    The interval of two invocations that have nothing in common reaches beyond; its ends say that
    nothing is known.
    """
    return math.exp(max(-_MOST_LOG, min(_MOST_LOG, log)))


def threshold_for(detect: float) -> float:
    """Return the threshold to compare with when a change of ``detect`` is looked for: two thirds of
    it, at most 2 %.
    """
    return min(THRESHOLD, detect * 2 / 3)


def _detectable(
    error: float, degrees: float, power: float, level: float, threshold: float
) -> float:
    by_chance = t_quantile(0.5 + level / 2, degrees) * error
    missed = t_quantile(power, degrees) * error if power != 0.5 else 0.0
    # Both halves of the rule must hold: the interval leaves out 1, and the ratio passes the
    # threshold.
    return math.expm1(min(_MOST_LOG, max(by_chance, math.log1p(threshold)) + missed))


def _student_ends(mean: float, error: float, degrees: int, level: float) -> tuple[float, float]:
    reach = t_quantile(0.5 + level / 2, degrees) * error
    return mean - reach, mean + reach


def _untested(
    ratio: float | None, counts: tuple[int, int], *, threshold: float, level: float
) -> ComparisonVerdict:
    if ratio is None:
        side = "baseline" if counts[0] == 0 else "candidate"
        outcome, reason = ComparisonOutcome.INCOMPARABLE, f"The {side} has no figure."
    else:
        outcome = ComparisonOutcome.INCONCLUSIVE
        reason = (
            "One side has a single invocation: nothing is known of how another one would differ."
        )
    return ComparisonVerdict(
        outcome=outcome,
        ratio=ratio,
        counts=counts,
        threshold=threshold,
        level=level,
        reasons=(reason,),
    )


def _verdict(
    mean: float,
    ends: tuple[float, float],
    counts: tuple[int, int],
    method: str,
    seen: float | None,
    *,
    threshold: float,
    level: float,
) -> ComparisonVerdict:
    margin = math.log1p(threshold)
    low, high = ends
    outcome = ComparisonOutcome.INCONCLUSIVE
    if low > 0 and mean >= margin:
        outcome = ComparisonOutcome.SLOWER
    elif high < 0 and mean <= -margin:
        outcome = ComparisonOutcome.FASTER
    elif -margin <= low and high <= margin:
        outcome = ComparisonOutcome.SAME
    return ComparisonVerdict(
        outcome=outcome,
        ratio=factor_of(mean),
        low=factor_of(low),
        high=factor_of(high),
        level=level,
        threshold=threshold,
        detectable=seen,
        method=method,
        counts=counts,
    )


Key = TypeVar("Key")

#: Two figures that can't be tested (one invocation each) are called alike up to this difference:
#: the same case measured on two nights commonly differs by some percent.
UNTESTED_MARGIN = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """How many times as fast a candidate is as its baseline: 2.0 takes half the time."""

    value: float
    #: None when one side has a single invocation.
    interval: Interval | None

    @property
    def differs(self) -> bool:
        """Whether the difference is more than the noise explains.

        Without an interval, more than a fixed margin.
        """
        if self.interval is None:
            return abs(math.log(self.value)) > math.log1p(UNTESTED_MARGIN)
        return not self.interval.low <= 1.0 <= self.interval.high


@dataclass(frozen=True, slots=True, kw_only=True)
class BestOfSet(Generic[Key]):
    """The fastest member of a set, and those that don't differ from it by more than noise."""

    fastest: Key
    #: Members, the fastest not among them, whose difference from the fastest may be noise.
    tied: tuple[Key, ...]
    #: False when the fastest or a rival has one invocation, so that the order rests on a margin,
    #: not on a test.
    is_tested: bool


def speed_up(baseline: Summary, candidate: Summary, *, level: float = LEVEL) -> Ratio:
    """Return how many times as fast the candidate is: the ratio of middles with a Welch interval of
    its log.
    """
    log_ratio = baseline.log_middle.value - candidate.log_middle.value
    if baseline.log_middle.error is None or candidate.log_middle.error is None:
        return Ratio(value=math.exp(log_ratio), interval=None)
    error, degrees = welch_error(baseline.log_middle, candidate.log_middle)
    reach = t_quantile(0.5 + level / 2, degrees) * error
    low, high = math.exp(log_ratio - reach), math.exp(log_ratio + reach)
    return Ratio(
        value=math.exp(log_ratio),
        interval=Interval(low=low, high=high, level=level, method=IntervalMethod.LOG_T),
    )


def best_of(members: Mapping[Key, Summary], *, level: float = LEVEL) -> BestOfSet[Key] | None:
    """Return the fastest of a set and its ties; None for an empty set.

    Equal medians keep the mapping's order.
    """
    if not members:
        return None
    fastest = min(members, key=lambda key: members[key].median_us)
    ratios = {
        key: speed_up(summary, members[fastest], level=level)
        for key, summary in members.items()
        if key != fastest
    }
    return BestOfSet(
        fastest=fastest,
        tied=tuple(key for key, ratio in ratios.items() if not ratio.differs),
        is_tested=all(ratio.interval is not None for ratio in ratios.values()),
    )
