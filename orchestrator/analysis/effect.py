"""The effect between two samples of invocations: its size and interval, the verdict, the best of a
set. Pure.

A change is claimed when two things hold: the interval of the ratio leaves out 1, so that it is no
accident, and the ratio itself is at least the threshold away from 1, so that it matters. The
interval is a 99 % one unless a caller says otherwise: among equals, one comparison in a hundred at
most may be called a change. docs/evidence.md shows how the rule does on series of known truth.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from statistics import NormalDist
from typing import Final, Generic, TypeVar

from orchestrator.analysis.intervals import (
    PRIOR,
    SAMPLES_LOST,
    Autocorrelation,
    autocorrelation_of,
    margin,
    t_quantile,
    trimmed_mean,
)
from orchestrator.analysis.summary import (
    LEVEL,
    Interval,
    IntervalMethod,
    SessionNoise,
    Summary,
    logs_of,
    moved_by,
    two_states,
)
from orchestrator.records import frozen
from orchestrator.records.verdict import (
    CHANGE_LEVEL,
    THRESHOLD,
    USUAL_CHANGE_RULE,
    ChangeRule,
    ComparisonOutcome,
    ComparisonVerdict,
)

#: The probability of seeing the minimum detectable effect.
DETECTION_POWER: Final = 0.8
#: Pairs after which a comparison in turns is judged (its interim looks), and the share of its error
#: that each look has. The looks have most of their pairs in common, so that all together have less
#: than nine such shares: about 1 in series of known truth whose pairs are correlated by 0.3.
LOOKS: Final = (8, 12, 18, 27, 40, 60, 90, 135, 200)
LOOK_SHARE: Final = 0.15
#: Larger exponentials are beyond what a number can hold.
_LOG_MAX: Final = 700.0
#: Fewer common rounds make no pairs, but those of an A/B comparison: of ten configurations whose
#: prints have few digits, one was called faster than its equals 11 times of 100 by three rounds.
PAIRED_MIN: Final = 4
#: Degrees of freedom that two samples that aren't in pairs have less than Welch and Satterthwaite
#: give them.
WELCH_CORRECTION: Final = 2
#: Of the groups that both sides together show: the space between them in deviations within.
_GAP_OF_BOTH: Final = 3.1
#: Outcomes that claim a change.
CHANGES: Final = {ComparisonOutcome.SLOWER, ComparisonOutcome.FASTER}


def interim_counts(most_pairs: int) -> tuple[int, ...]:
    """Return the numbers of pairs after which a comparison of at most ``most_pairs`` is judged."""
    return (*(pairs for pairs in LOOKS if pairs < most_pairs), most_pairs)


@frozen
class Effect:
    """A difference of logarithms, the candidate's less the baseline's, and how well it is known."""

    log: float = 0.0
    error: float
    #: Infinite for an error that isn't estimated from the sample itself.
    degrees: float = math.inf
    #: By how much it may be off because both sides are rounded.
    rounding: float = 0.0

    def ends(self, level: float) -> tuple[float, float]:
        """Return Student's interval, never narrower than what rounding may hide."""
        reach = max(margin(self.error, self.degrees, level), self.rounding)
        return self.log - reach, self.log + reach

    def detectable(self, level: float = CHANGE_LEVEL, threshold: float = 0.0) -> float:
        """Return the smallest change that would have been seen with DETECTION_POWER.

        Both halves of the rule must hold: the interval leaves out 1, and the ratio passes the
        threshold.
        """
        by_chance = margin(self.error, self.degrees, level)
        missed = t_quantile(DETECTION_POWER, self.degrees) * self.error
        return math.expm1(min(_LOG_MAX, max(by_chance, math.log1p(threshold)) + missed))


def _paired_effect(logs: Sequence[float], rounding: float) -> Effect:
    """Return the effect of the log ratios of pairs.

    Pairs are made so that they have little in common: nothing is expected of their correlation.
    """
    mean = trimmed_mean(logs, correlation=autocorrelation_of(logs).correlation(prior=0.0))
    return Effect(log=mean.value, error=mean.error or 0.0, degrees=mean.degrees, rounding=rounding)


def _unpaired_effect(before: Summary, after: Summary, sessions: SessionNoise | None) -> Effect:
    """Return the effect of two samples that aren't in pairs."""
    means = before.log_mean, after.log_mean
    variances = [((mean.error or 0.0) ** 2, float(mean.degrees)) for mean in means]
    if sessions is not None:
        variances.append(sessions.variance)
    error, degrees = pooled_error(variances)
    return Effect(
        log=after.log_mean.value - before.log_mean.value,
        error=error,
        degrees=degrees,
        rounding=_rounding_of(before, after),
    )


def compare_pairs(
    baseline_us: Sequence[float],
    candidate_us: Sequence[float],
    change_rule: ChangeRule = USUAL_CHANGE_RULE,
    *,
    resolution_us: float = 0.0,
) -> ComparisonVerdict:
    """Return the verdict on invocations that were measured in pairs, the i-th of each side next to
    each other in time.

    Latencies in microseconds, one for each invocation, rounded to ``resolution_us``. The effect is
    the trimmed mean of the log ratios, which takes out what both runs of a pair have in common
    (heat, clocks); the correlation of neighbouring pairs widens its error.

    With ``change_rule.most_pairs`` the verdict is that of the first look that finds a change or none, else
    of all pairs. Its interval holds the truth at all looks together as often as the level says; it is
    wider than that of as many pairs that were decided on before.

    Raises ValueError for sides of different length and for latencies that aren't positive numbers.
    """
    sides = logs_of(baseline_us), logs_of(candidate_us)
    logs = [after - before for before, after in zip(*sides, strict=True)]
    level, most_pairs = change_rule.level, change_rule.most_pairs
    verdict = change_rule.verdict((len(logs), len(logs)))
    if len(logs) < 2:
        return _single_verdict(verdict, logs[0] if logs else None)
    interim = (
        [pairs for pairs in interim_counts(most_pairs) if pairs < len(logs)]
        if most_pairs is not None
        else []
    )
    look_level = level if most_pairs is None else _level_per_look(level)
    for count in (*interim, len(logs)):
        centers = [trimmed_mean(side[:count]).value for side in sides]
        rounding = _rounding(centers, resolution_us)
        blank = replace(verdict, method="paired-t", level=look_level, counts=(count, count))
        verdict = _effect_verdict(blank, _paired_effect(logs[:count], rounding))
        if verdict.is_decided:
            break
    return replace(verdict, level=level)


def _level_per_look(level: float) -> float:
    return 1 - LOOK_SHARE * (1 - level)


def detectable_in_pairs(noise: float, pairs: int) -> float:
    """Return the smallest change that a comparison of at most ``pairs`` usually detects, as a share.

    ``noise`` is the deviation of a pair's log ratio. Its error is that of a normal sample whose
    pairs show no correlation.
    """
    scores = [NormalDist().inv_cdf((place + 0.5) / pairs) for place in range(pairs)]
    autocorrelation = Autocorrelation(weight=max(0, pairs - SAMPLES_LOST))
    mean = trimmed_mean(scores, correlation=autocorrelation.correlation(prior=0.0))
    effect = Effect(error=noise * (mean.error or 0.0), degrees=mean.degrees)
    return effect.detectable(_level_per_look(CHANGE_LEVEL))


def compare_samples(
    baseline: Summary,
    candidate: Summary,
    change_rule: ChangeRule = USUAL_CHANGE_RULE,
    *,
    sessions: SessionNoise | None = None,
) -> ComparisonVerdict:
    """Return the verdict on two samples that weren't measured in pairs: another session, another
    device.

    Welch's interval of the trimmed means of the logs. ``sessions`` is the noise between sessions of
    one device, part of the interval; None for samples of one session. Where both sides fall into
    the same two groups, group is compared with group; where one does, only a difference that no
    other share of the groups explains is claimed.
    """
    log_ratio = candidate.log_mean.value - baseline.log_mean.value
    verdict = change_rule.verdict((baseline.count, candidate.count))
    if min(verdict.counts) < 2:
        return _single_verdict(verdict, log_ratio)
    states = baseline.states, candidate.states
    reasons = [
        f"The {name} has {side.text}."
        for name, side in zip(("baseline", "candidate"), states, strict=True)
        if side
    ]
    effect, state_ends, is_by_state = _effect_by_state(baseline, candidate, sessions)
    if is_by_state:
        reasons.append("Each state is compared with its own.")
    method = "state-by-state" if is_by_state else "welch"
    is_between_sessions = sessions is not None
    verdict = replace(verdict, method=method, is_between_sessions=is_between_sessions)
    verdict = _effect_verdict(verdict, effect, state_ends)
    may_be_share = any(states) or state_ends is not None
    if (
        abs(log_ratio) >= math.log1p(change_rule.threshold)
        and may_be_share
        and verdict.outcome not in CHANGES
    ):
        verdict = replace(verdict, outcome=ComparisonOutcome.INCONCLUSIVE)
        reasons.append("A different share of the two states may explain the difference.")
    if sessions is not None:
        reasons.append(sessions.text)
    return replace(verdict, reasons=tuple(reasons))


def _effect_by_state(
    before: Summary, after: Summary, sessions: SessionNoise | None
) -> tuple[Effect, tuple[float, float] | None, bool]:
    """Return the effect of two samples that aren't in pairs, the ends of the difference that a
    device's states alone may make, and whether each state is compared with its own.
    """
    moved = moved_by(before.states, after.states) if before.states and after.states else None
    if moved is None:
        return _unpaired_effect(before, after, sessions), _state_ends(before, after), False
    factor = max(before.log_mean.error_factor, after.log_mean.error_factor)
    between = [sessions.variance] if sessions else []
    error, degrees = pooled_error([((moved[1] * factor) ** 2, moved[2]), *between])
    rounding = _rounding_of(before, after)
    return Effect(log=moved[0], error=error, degrees=degrees, rounding=rounding), None, True


def _state_ends(before: Summary, after: Summary) -> tuple[float, float] | None:
    """Return the ends of the difference that two sides may have because each drew a device's states
    in another share, or None.

    A side that shows one state may have a single invocation in the other, which only both sides
    together show.
    """
    sides = before.logs, after.logs
    if before.states or after.states:
        old, new = (
            side.states.levels if side.states else (trimmed_mean(side.logs).value,)
            for side in (before, after)
        )
        return min(new) - max(old), max(new) - min(old)
    both = two_states([*sides[0], *sides[1]])
    cut = math.fsum(both.levels) / 2 if both else 0.0
    # A step makes two groups of both sides, too, with an invocation of a noisy side across the cut;
    # of states that mix, nothing lies between.
    is_mixed = any(min(logs) < cut < max(logs) for logs in sides)
    return (
        (-both.gap, both.gap)
        if both and is_mixed and both.empty >= _GAP_OF_BOTH * both.within
        else None
    )


def pooled_error(parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the standard error of a difference and its degrees of freedom, from the variances that
    it is made of with theirs.

    Those of Welch and Satterthwaite less WELCH_CORRECTION, but never fewer than the part with fewest has:
    at 99 % they are too many for trimmed samples of unlike size, and among equals one comparison in
    a hundred may be called a change.
    """
    total, fewest = (
        math.fsum([variance for variance, _ in parts]),
        min([degrees for _, degrees in parts]),
    )
    if total == 0.0:
        return 0.0, fewest
    freedom = total**2 / math.fsum([variance**2 / degrees for variance, degrees in parts])
    # The last digits of the sum must not decide between two whole numbers.
    return math.sqrt(total), max(fewest, math.floor(freedom + 1e-6) - WELCH_CORRECTION)


def _rounding(centers: Sequence[float], resolution_us: float) -> float:
    """Return by how much the log ratio of two sides may be off because both are rounded; ``centers``
    are the trimmed means of their logarithms.
    """
    return math.fsum(resolution_us / 2 / math.exp(center) for center in centers)


def _rounding_of(*sides: Summary) -> float:
    """Return the same of two samples as a whole."""
    resolution_us = max(side.resolution_us for side in sides)
    return _rounding([side.log_mean.value for side in sides], resolution_us)


def factor_of(log: float) -> float:
    """Return the exponential of a difference of logarithms, limited to what a float can hold.

    The interval of two invocations that have nothing in common reaches beyond; its ends say that
    nothing is known.
    """
    return math.exp(max(-_LOG_MAX, min(_LOG_MAX, log)))


def threshold_for(detect: float) -> float:
    """Return the threshold to compare with when a change of ``detect`` is looked for: two thirds of
    it, at most 2 %.
    """
    return min(THRESHOLD, detect * 2 / 3)


def _single_verdict(verdict: ComparisonVerdict, log: float | None) -> ComparisonVerdict:
    """Return the verdict on a single log ratio, which says nothing of another one, or on none."""
    if log is None:
        return replace(
            verdict, outcome=ComparisonOutcome.INCOMPARABLE, reasons=("There is no pair.",)
        )
    reason = "One side has a single invocation: its noise is unknown."
    return replace(verdict, ratio=math.exp(log), reasons=(reason,))


def _effect_verdict(
    verdict: ComparisonVerdict, effect: Effect, state_ends: tuple[float, float] | None = None
) -> ComparisonVerdict:
    """Return a verdict with an effect; ``state_ends`` are the ends of the difference that a device's
    states alone may make, which widen the interval.
    """
    margin = math.log1p(verdict.threshold)
    low, high = effect.ends(verdict.level)
    if state_ends is not None:
        low, high = min(low, state_ends[0] - margin), max(high, state_ends[1] + margin)
    outcome = ComparisonOutcome.INCONCLUSIVE
    if low > 0 and effect.log >= margin:
        outcome = ComparisonOutcome.SLOWER
    elif high < 0 and effect.log <= -margin:
        outcome = ComparisonOutcome.FASTER
    elif -margin <= low and high <= margin:
        outcome = ComparisonOutcome.SAME
    return replace(
        verdict,
        outcome=outcome,
        ratio=factor_of(effect.log),
        low=factor_of(low),
        high=factor_of(high),
        detectable=effect.detectable(verdict.level, verdict.threshold),
    )


Key = TypeVar("Key")

#: Comparisons with the fastest count for slightly more than their number: it is picked by its figure.
_RIVALS_POWER: Final = 1.25

#: Two figures that can't be tested (one invocation each) are called alike up to this difference:
#: the same case measured on two nights commonly differs by some percent.
UNTESTED_MARGIN: Final = 0.05


@frozen
class Ratio:
    """A candidate's speed-up over its baseline: 2.0 takes half the time."""

    value: float
    #: None when one side has a single invocation.
    interval: Interval | None
    #: Whether the interval holds what sessions differ by.
    is_between_sessions: bool = False

    def is_faster(self, untested: float = UNTESTED_MARGIN) -> bool:
        """Return whether the candidate is faster by more than the noise explains; without an
        interval, by more than the share ``untested``.
        """
        return self.value > 1 + untested if self.interval is None else self.interval.low > 1.0


@frozen
class BestOfSet(Generic[Key]):
    """The fastest member of a set, and those that aren't slower than it by more than noise."""

    fastest: Key
    #: How many times as fast it is as each other member.
    ratios: Mapping[Key, Ratio]
    #: Members, the fastest not among them, that aren't known to be slower.
    tied: tuple[Key, ...]
    #: False when the fastest or a rival has one invocation, so that the order rests on a margin,
    #: not on a test.
    is_tested: bool
    #: Confidence level of the intervals of ``ratios``.
    level: float


def speed_up(baseline: Summary, candidate: Summary, *, level: float = LEVEL) -> Ratio:
    """Return the candidate's speed-up: the ratio of trimmed means with its interval.

    The interval is that of pairs where both were measured in the same rounds, which takes out what
    a round has in common; else Welch's, with the noise between sessions where the two share none.

    A side in two states has its median's interval. Then the ratio's holds that of the medians too,
    and Welch's is made as :func:`compare_samples` does it.
    """
    slow, fast = baseline.log_mean, candidate.log_mean
    if slow.error is None or fast.error is None:
        return Ratio(value=math.exp(slow.value - fast.value), interval=None)
    # The default: earlier sessions aren't read.
    sessions = SessionNoise() if _are_separate(baseline, candidate) else None
    has_states = baseline.states is not None or candidate.states is not None
    state_ends = None
    pairs = pairs_of(baseline, candidate)
    if len(pairs) >= PAIRED_MIN:
        sides = zip(logs_of(pairs.baseline_us), logs_of(pairs.candidate_us), strict=True)
        logs = [before - after for before, after in sides]
        effect = _paired_effect(logs, _rounding_of(baseline, candidate))
    elif has_states:
        effect, state_ends, _ = _effect_by_state(candidate, baseline, sessions)
    else:
        effect = _unpaired_effect(candidate, baseline, sessions)
    ends = [*effect.ends(level), *(state_ends or ())]
    if has_states:
        ends.append(math.log(baseline.median_us / candidate.median_us))
    low, high = factor_of(min(ends)), factor_of(max(ends))
    interval = Interval(low=low, high=high, method=IntervalMethod.LOG_T)
    return Ratio(
        value=math.exp(effect.log), interval=interval, is_between_sessions=sessions is not None
    )


def _are_separate(baseline: Summary, candidate: Summary) -> bool:
    """Whether two samples are known to be of different campaigns."""
    if not (baseline.rounds and candidate.rounds):
        return False
    before = {item.campaign for item in baseline.rounds}
    return before.isdisjoint(item.campaign for item in candidate.rounds)


@frozen
class Pairs:
    """The rounds of two samples of one device that were made in turns, in their order."""

    #: Campaign and number of each.
    rounds: tuple[tuple[str, int], ...] = ()
    baseline_us: tuple[float, ...] = ()
    candidate_us: tuple[float, ...] = ()
    #: What the figures are rounded to.
    resolution_us: float = 0.0

    def __len__(self) -> int:
        return len(self.baseline_us)


def pairs_of(baseline: Summary, candidate: Summary) -> Pairs:
    """Return the pairs of two samples; none where half of their common rounds weren't in turns.

    A round isn't in turns where another one lies between its two runs: an invocation for which the
    device wasn't fit is made after the others.
    """
    before, after = (
        {
            place[:2]: (place.at_s, us)
            for place, us in zip(side.rounds, side.latencies_us, strict=False)
        }
        for side in (baseline, candidate)
    )
    spans = {
        key: sorted((at_s, after[key][0])) for key, (at_s, _) in before.items() if key in after
    }
    in_turns, end_s = [], -math.inf
    for key, (first_s, last_s) in sorted(spans.items(), key=lambda item: item[1][1]):
        if first_s >= end_s:
            in_turns.append(key)
            end_s = last_s
    if 2 * len(in_turns) <= len(spans):
        return Pairs()
    return Pairs(
        rounds=tuple(in_turns),
        baseline_us=tuple(before[key][1] for key in in_turns),
        candidate_us=tuple(after[key][1] for key in in_turns),
        resolution_us=max(baseline.resolution_us, candidate.resolution_us),
    )


def fastest_of(members: Mapping[Key, Summary]) -> Key:
    """Return the fastest of at least one member: no other has a ratio to it above 1.

    Ratios of pairs may form a circle; then it is one of these.
    """

    def faster(first: Key, second: Key) -> Key:
        return second if speed_up(members[first], members[second]).value > 1 else first

    return reduce(faster, sorted(members, key=lambda key: members[key].median_us))


def best_of(members: Mapping[Key, Summary]) -> BestOfSet[Key] | None:
    """Return the fastest of a set and its ties; None for an empty set.

    Equals keep the mapping's order. The comparisons with the fastest share their error, so that of
    equals one is called slower in 1 - LEVEL of sets, however many they are.
    """
    if not members:
        return None
    fastest = fastest_of(members)
    level = 1 - (1 - LEVEL) / max(1, len(members) - 1) ** _RIVALS_POWER
    ratios = {
        key: speed_up(summary, members[fastest], level=level)
        for key, summary in members.items()
        if key != fastest
    }
    return BestOfSet(
        fastest=fastest,
        ratios=ratios,
        tied=tuple(key for key, ratio in ratios.items() if not ratio.is_faster()),
        is_tested=all(ratio.interval is not None for ratio in ratios.values()),
        level=level,
    )


@frozen
class Mean:
    """A trimmed mean with half the width of its 95 % interval; None for a single value."""

    value: float
    half_width: float | None
    count: int


def mean_of(values: Sequence[float], *, prior: float = PRIOR) -> Mean | None:
    """Return the trimmed mean of values in order of time, with the interval that latencies have; None
    for no value.
    """
    if not values:
        return None
    mean = trimmed_mean(values, correlation=autocorrelation_of(values).correlation(prior))
    # Values that are alike to the last digit say nothing of how another one would differ.
    half = margin(mean.error, mean.degrees, LEVEL) if mean.error else None
    return Mean(value=mean.value, half_width=half, count=mean.count)


def ratio_of(numerators: Mapping[Key, float], denominators: Mapping[Key, float]) -> Mean | None:
    """Return the mean ratio of two series over the rounds that both have; the interval is of pairs.

    ``half_width`` is of the logarithm's interval, as a share of the ratio.
    """
    pairs = [
        math.log(value / denominators[key])
        for key, value in numerators.items()
        if key in denominators
    ]
    mean = mean_of(pairs, prior=0.0)
    if mean is None:
        return None
    half = None if mean.half_width is None else math.expm1(mean.half_width)
    return Mean(value=math.exp(mean.value), half_width=half, count=mean.count)
