"""The summary of one case's invocations, and from earlier sessions of its device the
autocorrelation and the noise between sessions. Pure.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence
from enum import StrEnum
from itertools import groupby, pairwise
from operator import attrgetter, itemgetter
from typing import Final, NamedTuple

from orchestrator.analysis.intervals import (
    NO_AUTOCORRELATION,
    TRIM_FROM_COUNT,
    Autocorrelation,
    TrimmedMean,
    autocorrelation_of,
    margin,
    trimmed_mean,
)
from orchestrator.records import frozen
from orchestrator.records.case import CampaignId, ModelSha, Serial, SeriesKey
from orchestrator.records.history import Points
from orchestrator.units import counted, format_percent

#: Fewer figures show no groups.
STATES_FROM_COUNT: Final = 8
#: Both groups have at least two members, and at least this share.
_GROUP_SHARE: Final = 0.125
#: The groups' means are at least this many deviations within the groups apart (of few figures more,
#: divided by their count: so that normal figures look like two groups in fewer than 3 samples of
#: 100), and the empty space between the groups is at least so large.
_SEPARATION: Final = 4.5
_SEPARATION_OF_FEW: Final = 12.0
_GAP_MIN: Final = 0.01
#: States of two samples are as far apart as each other when the distances differ by less than this
#: many errors.
_MOVE_ERRORS_MAX: Final = 3.0
#: Logarithms of latencies never have a smaller variance.
_VARIANCE_MIN: Final = 1e-12


@frozen
class TwoStates:
    """Two groups of invocations, on logarithms."""

    #: Means of the fast and of the slow group.
    levels: tuple[float, float]
    #: The deviation within the groups, and the space between them in which nothing lies.
    within: float
    empty: float
    slow: int
    count: int

    @property
    def gap(self) -> float:
        """Logarithm of slow over fast, between the groups' means."""
        return self.levels[1] - self.levels[0]

    @property
    def text(self) -> str:
        """As text: ``two clock states 4.1 % apart, 5 of 12 invocations in the slow one``."""
        percent = 100 * math.expm1(self.gap)
        return f"two clock states {percent:.1f} % apart, {self.slow} of {self.count} invocations in the slow one"


def two_states(logs: Sequence[float]) -> TwoStates | None:
    """Return the two groups that logarithms fall into; None where they don't."""
    count = len(logs)
    if count < STATES_FROM_COUNT:
        return None
    ordered = sorted(logs)
    min_size = max(2, math.ceil(_GROUP_SHARE * count))
    cut = max(
        range(min_size, count - min_size + 1), key=lambda place: ordered[place] - ordered[place - 1]
    )
    empty = ordered[cut] - ordered[cut - 1]
    fast, slow = ordered[:cut], ordered[cut:]
    means = math.fsum(fast) / len(fast), math.fsum(slow) / len(slow)
    squares = math.fsum((value - means[0]) ** 2 for value in fast) + math.fsum(
        (value - means[1]) ** 2 for value in slow
    )
    within = math.sqrt(squares / (count - 2))
    if (
        empty < _GAP_MIN
        or means[1] - means[0] < (_SEPARATION + _SEPARATION_OF_FEW / count) * within
    ):
        return None
    return TwoStates(levels=means, within=within, empty=empty, slow=len(slow), count=count)


def moved_by(before: TwoStates, after: TwoStates) -> tuple[float, float, int] | None:
    """Return the common move of both states, its standard error and degrees of freedom.

    None if they didn't.

    State against state, so that another share of the two is no difference. The states' means are
    weighed by how many invocations are in both groups that they are of.
    """
    degrees = before.count + after.count - 4
    variance = (
        (before.count - 2) * before.within**2 + (after.count - 2) * after.within**2
    ) / degrees
    slow, fast = (before.slow, after.slow), (before.count - before.slow, after.count - after.slow)
    squares = [
        max(variance, _VARIANCE_MIN) * (1 / early + 1 / late) for early, late in (fast, slow)
    ]
    moves = [late - early for early, late in zip(before.levels, after.levels, strict=True)]
    if abs(moves[1] - moves[0]) > _MOVE_ERRORS_MAX * math.sqrt(math.fsum(squares)):
        return None
    total_weight = math.fsum(1 / square for square in squares)
    return (
        math.fsum(move / square for move, square in zip(moves, squares, strict=True))
        / total_weight,
        total_weight**-0.5,
        degrees,
    )


def _median_ends(logs: Sequence[float], error_factor: float) -> tuple[float, float]:
    """Return the interval of the median; ``error_factor`` is that of a mean's standard error."""
    ordered, count = sorted(logs), len(logs)
    reach = margin(math.sqrt(count), count - 1, LEVEL) / 2 * error_factor
    return _at_rank(ordered, (count - 1) / 2 - reach), _at_rank(ordered, (count - 1) / 2 + reach)


def neighbour_std(logs: Sequence[float]) -> float:
    """Return the deviation by the median of differences of neighbours, which slow changes of level
    don't touch.
    """
    differences = [abs(after - before) for before, after in pairwise(logs)]
    return 1.4826 * statistics.median(differences) / math.sqrt(2)


def _at_rank(ordered: Sequence[float], rank: float) -> float:
    """Return the figure of a rank, counted from 0, between two of them linearly."""
    rank = min(max(rank, 0.0), len(ordered) - 1.0)
    low = min(int(rank), len(ordered) - 2)
    return ordered[low] + (rank - low) * (ordered[low + 1] - ordered[low])


#: The default confidence level of intervals.
LEVEL = 0.95


class IntervalMethod(StrEnum):
    """The method of an interval."""

    #: Student's t of the trimmed mean of the logarithms. Can't be negative.
    LOG_T = "log-t"
    #: Half of the program's rounding step, where that is more than the others give.
    RESOLUTION = "print-resolution"
    #: Order statistics of the median, for invocations that fall into two groups.
    ORDER = "order-statistics"


@frozen
class Interval:
    """A confidence interval, in the unit of its figure; of latencies, that of their
    :class:`TrimmedMean`.
    """

    low: float
    high: float
    method: IntervalMethod

    @property
    def half_width(self) -> float:
        """Half of its length."""
        return (self.high - self.low) / 2


class Round(NamedTuple):
    """An invocation's round, and its place in time."""

    campaign: str
    #: Counts from 0; the cases of a device are measured once in each round.
    number: int
    #: When it began, in seconds from any zero.
    at_s: float


@frozen
class Summary:
    """A sample of latencies, one per invocation, in microseconds."""

    count: int
    #: In the order in which the invocations were made.
    latencies_us: tuple[float, ...]
    median_us: float
    mean_us: float
    min_us: float
    max_us: float
    #: Of the sample (n - 1); None for one invocation.
    std_us: float | None
    #: The trimmed mean of the natural logarithms; of it the interval is, and ratios are made.
    log_mean: TrimmedMean
    #: None for one invocation: nothing is known about how another one would differ.
    interval: Interval | None
    #: The autocorrelation of the device's other cases and campaigns.
    others: Autocorrelation = NO_AUTOCORRELATION
    #: The step that the program rounds its figures to, in microseconds; 0 where it doesn't matter.
    resolution_us: float = 0.0
    #: The two groups that they fall into; the interval is the median's then. None where they don't.
    states: TwoStates | None = None
    #: Of each invocation: the round that it was made in; empty where unknown.
    rounds: tuple[Round, ...] = ()

    @property
    def logs(self) -> list[float]:
        """The natural logarithms of the latencies."""
        return logs_of(self.latencies_us)

    @property
    def spread(self) -> float | None:
        """Half the interval against the median (0.02 is plus or minus 2 %).

        None when there is no interval.
        """
        return None if self.interval is None else self.interval.half_width / self.median_us


def summarize(
    latencies_us: Sequence[float],
    *,
    others: Autocorrelation = NO_AUTOCORRELATION,
    resolution_us: float = 0.0,
    rounds: Sequence[Round] = (),
) -> Summary:
    """Return the summary of one latency per invocation, in the order in which they were made.

    ``others`` is the autocorrelation of the device's other cases and campaigns. ``resolution_us`` is
    the step that the program rounds its figures to: the interval is never narrower than half of it
    to either side. ``rounds`` are the rounds that the invocations were made in.

    Raises ValueError for an empty sample and for latencies that aren't positive numbers: a zero
    comes from a program that measured nothing and must have been sorted out before.
    """
    if not latencies_us:
        raise ValueError("there is nothing to summarise")
    logs = logs_of(latencies_us)
    has_several = len(latencies_us) > 1
    log_mean = trimmed_mean(logs, correlation=(autocorrelation_of(logs) + others).correlation())
    states = two_states(logs)
    mean_us = math.fsum(latencies_us) / len(latencies_us)
    return Summary(
        count=len(latencies_us),
        latencies_us=tuple(latencies_us),
        median_us=statistics.median(latencies_us),
        mean_us=mean_us,
        min_us=min(latencies_us),
        max_us=max(latencies_us),
        std_us=sample_std(latencies_us, mean_us) if has_several else None,
        log_mean=log_mean,
        interval=_interval(logs, log_mean, states, resolution_us),
        others=others,
        resolution_us=resolution_us,
        states=states,
        rounds=tuple(rounds),
    )


def logs_of(latencies_us: Sequence[float]) -> list[float]:
    """Return the natural logarithms; ValueError for latencies that aren't positive numbers."""
    if not all(math.isfinite(value) and value > 0 for value in latencies_us):
        raise ValueError(f"latencies must be positive numbers: {list(latencies_us)}")
    return [math.log(value) for value in latencies_us]


def sample_std(values: Sequence[float], mean: float) -> float:
    """Return the standard deviation (n - 1); ``statistics`` computes it in fractions, 20 times as
    slowly.
    """
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _interval(
    logs: list[float],
    log_mean: TrimmedMean,
    states: TwoStates | None,
    resolution_us: float,
) -> Interval | None:
    if log_mean.error is None:
        return None
    method = IntervalMethod.LOG_T
    half_width = margin(log_mean.error, log_mean.degrees, LEVEL)
    ends = log_mean.value - half_width, log_mean.value + half_width
    if states is not None:
        ends = _median_ends(logs, log_mean.error_factor)
        method = IntervalMethod.ORDER
    low, high = math.exp(ends[0]), math.exp(ends[1])
    # Equal prints only show that the truth was rounded to them.
    if high - low < resolution_us:
        center = (low + high) / 2
        low = max(center - resolution_us / 2, math.ulp(0.0))
        high = center + resolution_us / 2
        method = IntervalMethod.RESOLUTION
    return Interval(low=low, high=high, method=method)


#: The default noise between sessions, and its weight in steps from one session to the next.
DEFAULT_STD: Final = 0.015
DEFAULT_WEIGHT: Final = 5
_DEFAULT_DEGREES: Final = 15
#: From this many steps on the estimate is called the series' own.
_KNOWN_FROM: Final = 10
#: Steps count up to this many times their median: a change of the program is no noise, and two states
#: of a device are some.
_STEP_MAX: Final = 5.0
#: The largest weight of earlier campaigns, in invocations: a device may change.
WEIGHT_MAX: Final = 120.0


@frozen
class SessionNoise:
    """The noise between the sessions of one series, beside the noise within each."""

    #: Relative deviation.
    std: float = DEFAULT_STD
    #: Steps from one session to the next that it is estimated from.
    steps: int = 0

    @property
    def degrees(self) -> float:
        """Degrees of freedom of ``std``.

        The default is stated, not estimated from so few steps. Neighbouring steps share a session,
        so that n of them are worth 2n/3 (von Neumann and others, Ann. Math. Statist. 12, 1941).
        """
        return max(_DEFAULT_DEGREES, DEFAULT_WEIGHT + 2 * self.steps / 3)

    @property
    def variance(self) -> tuple[float, float]:
        """Its part of the variance of a difference of two sessions, and degrees of freedom."""
        return 2 * self.std**2, self.degrees

    @property
    def text(self) -> str:
        """A sentence about its part of an interval."""
        source = f"from {counted(self.steps + 1, 'session')}"
        if self.steps < _KNOWN_FROM:
            source = f"default until {_KNOWN_FROM + 1} sessions are known; {self.steps + 1 if self.steps else 'none'} so far"
        return (
            "Between sessions: the interval includes the noise between two sessions, "
            f"{format_percent(self.std)} each ({source})."
        )


def session_noise(sessions: Sequence[Sequence[float]]) -> SessionNoise:
    """Return the noise between sessions, from the latencies of each in any unit, the oldest first.

    From steps between neighbours, of which changes of the program are few; what the invocations
    within each session explain is taken out, and the rest drawn to the default.
    """
    means = [trimmed_mean(logs_of(latencies)) for latencies in sessions if len(latencies) > 1]
    steps = [abs(after.value - before.value) for before, after in pairwise(means)]
    if not steps:
        return SessionNoise()
    max_step = _STEP_MAX * statistics.median(steps)
    squares = math.fsum(min(step, max_step) ** 2 for step in steps) / 2
    within = math.fsum((item.error or 0.0) ** 2 for item in means) / len(means)
    excess = max(0.0, squares - len(steps) * within)
    variance = (DEFAULT_WEIGHT * DEFAULT_STD**2 + excess) / (DEFAULT_WEIGHT + len(steps))
    return SessionNoise(std=math.sqrt(variance), steps=len(steps))


def session_noises(
    points: Points, *, only: Collection[CampaignId]
) -> dict[SeriesKey, SessionNoise]:
    """Return the noise between the sessions of each series; only the given campaigns count.

    Of several programs that a campaign measured, the one first stored last counts. Of several
    models of one name the one with the most steps counts.
    """
    sessions: dict[tuple[SeriesKey, ModelSha], dict[int, list[float]]] = {}
    for (series, campaign, contents), latencies in _sessions(points):
        if points.campaigns[campaign].campaign_id in only:
            place = points.series[series].series_key, points.contents[contents].model_sha256
            sessions.setdefault(place, {})[campaign] = latencies
    noises: dict[SeriesKey, SessionNoise] = {}
    for (key, _), by_campaign in sessions.items():
        noise = session_noise([*by_campaign.values()])
        noises[key] = max(noises.get(key, noise), noise, key=attrgetter("steps"))
    return noises


def autocorrelations(
    points: Points, *, but: Collection[CampaignId] = ()
) -> dict[Serial, Autocorrelation]:
    """Return the autocorrelation of each device's invocations, without the campaigns ``but``."""
    by_device: dict[Serial, Autocorrelation] = {}
    for (series, campaign, _), latencies in _sessions(points):
        serial = points.series[series].serial
        is_left_out = points.campaigns[campaign].campaign_id in but
        if len(latencies) >= TRIM_FROM_COUNT and not is_left_out:
            by_device[serial] = by_device.get(serial, NO_AUTOCORRELATION) + autocorrelation_of(
                logs_of(latencies)
            )
    return {serial: total.at_most(WEIGHT_MAX) for serial, total in by_device.items()}


def _sessions(points: Points) -> list[tuple[tuple[int, int, int], list[float]]]:
    """Return series, campaign, contents and latencies of each session, by series and age: builds in
    turns have levels of their own.

    Those of a session are in the order of storing.
    """
    places = zip(points.series_at, points.campaign_at, points.contents_at, strict=True)
    rows = zip(places, points.latency_us, strict=True)
    return [
        (place, [latency_us for _, latency_us in group])
        for place, group in groupby(sorted(rows, key=itemgetter(0)), key=itemgetter(0))
    ]
