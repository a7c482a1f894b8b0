"""Two samples of invocations against each other: verdict, ratio with its interval, the best of a
set. Pure.

A change is claimed when two things hold: the interval of the ratio leaves out 1, so that it is no
accident, and the ratio itself is at least the threshold away from 1, so that it matters. The
interval is a 99 % one unless a caller says otherwise: among equals, one comparison in a hundred at
most may be called a change. docs/evidence.md shows how the rule does on series of known truth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from orchestrator.analysis.autocorrelation import autocorrelation_of
from orchestrator.analysis.sessions import SessionNoise
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
from orchestrator.analysis.trimmed_mean import (
    TRIM_FROM_COUNT,
    TrimmedMean,
    t_quantile,
    trimmed_mean,
)
from orchestrator.records.verdict import ComparisonOutcome, ComparisonVerdict

#: How sure the interval is that a claim rests on.
CLAIM_LEVEL: Final = 0.99
#: Relative differences below this are not called a change.
THRESHOLD: Final = 0.02
#: With which probability the minimum detectable effect would have been seen.
SEEN_POWER: Final = 0.8
#: Pairs after which a comparison in turns is looked at, and the share of its error that each look
#: has. The looks have most of their pairs in common, so that all together have less than nine such
#: shares: about 1 in series of known truth whose pairs are correlated by 0.3.
LOOKS: Final = (8, 12, 18, 27, 40, 60, 90, 135, 200)
LOOK_SHARE: Final = 0.15
#: Larger exponentials are beyond what a number can hold.
_MOST_LOG: Final = 700.0
#: Degrees of freedom that two samples that aren't in pairs have less than Welch and Satterthwaite
#: give them.
WELCH_LESS: Final = 2
#: Of the groups that both sides together show: the space between them in deviations within.
_EMPTY_OF_BOTH: Final = 3.1
#: Outcomes that claim a change.
CHANGES: Final = {ComparisonOutcome.SLOWER, ComparisonOutcome.FASTER}


def looks_of(most: int) -> tuple[int, ...]:
    """Return the numbers of pairs after which a comparison of at most ``most`` is looked at."""
    return (*(look for look in LOOKS if look < most), most)


def compare_in_turns(
    baseline_us: Sequence[float],
    candidate_us: Sequence[float],
    *,
    most: int,
    threshold: float = THRESHOLD,
    level: float = CLAIM_LEVEL,
    resolution_us: float = 0.0,
) -> ComparisonVerdict:
    """Return the verdict on pairs that end as soon as it is known: of the first look that finds a
    change or none, else of all pairs.

    The interval is one that holds the truth at all looks together as often as ``level`` says; it is
    wider than that of as many pairs that were decided on before. Raises as :func:`compare_pairs`.
    """
    shared = 1 - LOOK_SHARE * (1 - level)
    looks = [look for look in looks_of(most) if look < len(baseline_us)]
    for count in (*looks, len(baseline_us)):
        verdict = compare_pairs(
            baseline_us[:count],
            candidate_us[:count],
            threshold=threshold,
            level=shared,
            resolution_us=resolution_us,
        )
        if verdict.is_decided:
            break
    return replace(verdict, level=level)


def compare_pairs(
    baseline_us: Sequence[float],
    candidate_us: Sequence[float],
    *,
    threshold: float = THRESHOLD,
    level: float = CLAIM_LEVEL,
    resolution_us: float = 0.0,
) -> ComparisonVerdict:
    """Return the verdict on invocations that were measured in pairs, the i-th of each side next to
    each other in time.

    Latencies in microseconds, one for each invocation, rounded to ``resolution_us``. The effect is
    the trimmed mean of the log ratios, which takes out what both of a pair had in common (heat, clocks);
    what pairs have in common with the pair before them widens its error. Raises ValueError for sides
    of different length and for latencies that aren't positive numbers.
    """
    if len(baseline_us) != len(candidate_us):
        raise ValueError(
            f"pairs need sides of one length, not {len(baseline_us)} and {len(candidate_us)}"
        )
    sides = logs_of(baseline_us), logs_of(candidate_us)
    logs = [after - before for before, after in zip(*sides, strict=True)]
    counts = (len(logs), len(logs))
    if len(logs) < 2:
        return _untested(
            math.exp(logs[0]) if logs else None, counts, threshold=threshold, level=level
        )
    # Pairs are made so that they have little in common: nothing is expected of their correlation.
    found = trimmed_mean(logs, correlation=autocorrelation_of(logs).correlation(prior=0.0))
    error, rounding = found.error or 0.0, _rounding(sides, resolution_us)
    ends = _student_ends(found.value, error, found.degrees, level, rounding)
    least = _detectable(error, found.degrees, SEEN_POWER, level, threshold)
    return _verdict(found.value, ends, counts, "paired-t", least, threshold=threshold, level=level)


def compare_samples(
    baseline: Summary,
    candidate: Summary,
    *,
    threshold: float = THRESHOLD,
    level: float = CLAIM_LEVEL,
    sessions: SessionNoise | None = None,
) -> ComparisonVerdict:
    """Return the verdict on two samples that weren't measured in pairs: another session, another
    device.

    Welch's interval of the trimmed means of the logs. ``sessions`` is what sessions of one device
    differ by as a whole, and part of the interval; None for samples of one session. Both sides
    together show what invocations remember. Where both sides fall into the same two groups, group is
    compared with group; where one does, only a difference that no other share of the groups explains
    is claimed.
    """
    before, after = baseline.logs, candidate.logs
    counts = (len(before), len(after))
    if min(counts) < 2:
        ratio = math.exp(candidate.log_mean.value - baseline.log_mean.value)
        return _untested(ratio, counts, threshold=threshold, level=level)
    shown = autocorrelation_of(before) + autocorrelation_of(after)
    correlation = (shown + baseline.others + candidate.others).correlation()
    sides = [trimmed_mean(logs, correlation=correlation) for logs in (before, after)]
    states = baseline.states, candidate.states
    between = [sessions.variance] if sessions else []
    if states[0] and states[1] and (moved := moved_by(states[0], states[1])):
        mean, method = moved[0], "state-by-state"
        error, degrees = pooled_error(
            [((moved[1] * max(side.error_factor for side in sides)) ** 2, moved[2]), *between]
        )
    else:
        mean, method = sides[1].value - sides[0].value, "welch"
        error, degrees = pooled_error([*map(_variance, sides), *between])
    rounding = _rounding((before, after), max(baseline.resolution_us, candidate.resolution_us))
    ends = _student_ends(mean, error, degrees, level, rounding)
    found = [
        (name, side) for name, side in zip(("baseline", "candidate"), states, strict=True) if side
    ]
    reasons = [f"The {name} has {side.text}." for name, side in found]
    margin = math.log1p(threshold)
    explained = None if method == "state-by-state" else _explained(before, after, states)
    if explained is not None:
        ends = min(ends[0], explained[0] - margin), max(ends[1], explained[1] + margin)
    least = _detectable(error, degrees, SEEN_POWER, level, threshold)
    verdict = _verdict(mean, ends, counts, method, least, threshold=threshold, level=level)
    if method == "state-by-state":
        reasons.append("Each state is compared with its own.")
    moved_apart = abs(candidate.log_mean.value - baseline.log_mean.value) >= margin
    if moved_apart and (states[0] or states[1] or explained) and verdict.outcome not in CHANGES:
        verdict = replace(verdict, outcome=ComparisonOutcome.INCONCLUSIVE)
        reasons.append("Another share of the two states may be all of the difference.")
    if sessions is not None:
        reasons.append(sessions.text)
    return replace(
        verdict,
        reasons=(*verdict.reasons, *reasons),
        is_between_sessions=sessions is not None,
    )


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
            side.levels if side else (trimmed_mean(logs).value,)
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


def _variance(side: TrimmedMean) -> tuple[float, float]:
    return (side.error or 0.0) ** 2, side.degrees


def pooled_error(parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the standard error of a difference and its degrees of freedom, from the variances that
    it is made of with theirs.

    Those of Welch and Satterthwaite less WELCH_LESS, but never fewer than the part with fewest has:
    at 99 % they are too many for trimmed samples of unlike size, and among equals one comparison in
    a hundred may be called a change.
    """
    total, fewest = math.fsum(variance for variance, _ in parts), min(of for _, of in parts)
    if total == 0.0:
        return 0.0, fewest
    freedom = total**2 / math.fsum(variance**2 / of for variance, of in parts)
    # The last digits of the sum must not decide between two whole numbers.
    return math.sqrt(total), max(fewest, math.floor(freedom + 1e-6) - WELCH_LESS)


def _rounding(sides: Sequence[Sequence[float]], resolution_us: float) -> float:
    """Return by how much the log ratio of two sides may be off because both are rounded."""
    return math.fsum(resolution_us / 2 / math.exp(trimmed_mean(logs).value) for logs in sides)


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


def _student_ends(
    mean: float, error: float, degrees: float, level: float, rounding: float = 0.0
) -> tuple[float, float]:
    """Return Student's interval, never narrower than what rounding may hide."""
    reach = max(t_quantile(0.5 + level / 2, degrees) * error, rounding)
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

#: What sessions of a device differ by where no earlier ones are looked up.
_SESSIONS: Final = SessionNoise()
#: Comparisons with the fastest count as a little more than they are: it is picked by its figure.
_RIVALS_POWER: Final = 1.15

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
        """Whether the difference is more than the noise explains; without an interval, more than a
        fixed margin.
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
    """Return how many times as fast the candidate is: the ratio of trimmed means with the interval of its
    log.

    That of pairs where both were measured in the same rounds, which takes out what a round had in
    common; else Welch's, which holds what sessions differ by where the two have none in common.
    """
    log_ratio = baseline.log_mean.value - candidate.log_mean.value
    if baseline.log_mean.error is None or candidate.log_mean.error is None:
        return Ratio(value=math.exp(log_ratio), interval=None)
    pairs = _pairs_of(baseline, candidate)
    if pairs:
        found = trimmed_mean(pairs, correlation=autocorrelation_of(pairs).correlation(prior=0.0))
        log_ratio, error, degrees = found.value, found.error or 0.0, float(found.degrees)
    else:
        between = [_SESSIONS.variance] if _are_apart(baseline, candidate) else []
        sides = baseline.log_mean, candidate.log_mean
        error, degrees = pooled_error([*map(_variance, sides), *between])
    rounding = _rounding(
        (baseline.logs, candidate.logs), max(baseline.resolution_us, candidate.resolution_us)
    )
    low, high = _student_ends(log_ratio, error, degrees, level, rounding)
    interval = Interval(
        low=factor_of(low), high=factor_of(high), level=level, method=IntervalMethod.LOG_T
    )
    return Ratio(value=math.exp(log_ratio), interval=interval)


def _are_apart(baseline: Summary, candidate: Summary) -> bool:
    """Whether two samples are known to be of different campaigns."""
    before, after = ({campaign for campaign, _ in item.rounds} for item in (baseline, candidate))
    return bool(before and after) and before.isdisjoint(after)


def _pairs_of(baseline: Summary, candidate: Summary) -> list[float]:
    """Return the log ratios of common rounds, in their order; empty where too many have no partner."""
    before, after = (
        dict(zip(item.rounds, item.logs, strict=False)) for item in (baseline, candidate)
    )
    common = [key for key in before if key in after]
    are_enough = len(common) >= TRIM_FROM_COUNT and 2 * len(common) > max(len(before), len(after))
    return [before[key] - after[key] for key in common] if are_enough else []


def best_of(members: Mapping[Key, Summary], *, level: float = LEVEL) -> BestOfSet[Key] | None:
    """Return the fastest of a set and its ties; None for an empty set.

    Equal medians keep the mapping's order. The comparisons with the fastest share their error, so
    that of equals one is called slower in 1 - ``level`` of sets, however many they are.
    """
    if not members:
        return None
    fastest = min(members, key=lambda key: members[key].median_us)
    shared = 1 - (1 - level) / max(1, len(members) - 1) ** _RIVALS_POWER
    ratios = {
        key: speed_up(summary, members[fastest], level=shared)
        for key, summary in members.items()
        if key != fastest
    }
    return BestOfSet(
        fastest=fastest,
        tied=tuple(key for key, ratio in ratios.items() if not ratio.differs),
        is_tested=all(ratio.interval is not None for ratio in ratios.values()),
    )
