"""Trials on noise that remembers: autocorrelated invocations, two clock states, devices of several
cases."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from noise import PHONE_INVOCATION_STD, Floats
from numpy.typing import NDArray
from trials import AT_95, CHANGED, PAIRING, RULE, UNKNOWN_SESSIONS, in_turns, stopped_at, us

from orchestrator.analysis.effect import compare_pairs, compare_samples, threshold_for
from orchestrator.analysis.intervals import (
    NO_AUTOCORRELATION,
    PRIOR,
    Autocorrelation,
    autocorrelation_of,
    t_quantile,
    trimmed_mean,
)
from orchestrator.analysis.summary import summarize
from orchestrator.records.verdict import ComparisonOutcome

Bools = NDArray[np.bool_]
#: Two clock states: how far apart, how often the fast one, and the noise of each.
STATES_GAP, FAST_SHARE, STATE_STD = math.log1p(0.04), 0.3, 0.005
#: Cases of one device that run in turns.
SIBLINGS = 12


@dataclass(frozen=True)
class Remembering:
    """A kind of noise whose draws are in order of time."""

    name: str
    draw: Callable[[np.random.Generator, int], Floats]
    #: What an interval is to hold.
    truth: float = 0.0
    #: Whether neighbours resemble each other by as much as is expected of an unknown device, or more.
    is_lasting: bool = False


def autoregressive(rho: float, std: float = PHONE_INVOCATION_STD) -> Remembering:
    """Return normal noise with a correlation between neighbours."""

    def draw(rng: np.random.Generator, count: int) -> Floats:
        return std * autoregression(rng, rho, count)

    return Remembering(
        name=f"autocorrelation {rho:g}" + ("" if std == PHONE_INVOCATION_STD else f", {std:.0%}"),
        draw=draw,
        is_lasting=rho >= PRIOR,
    )


def autoregression(rng: np.random.Generator, rho: float, count: int) -> Floats:
    """Return a series of deviation 1."""
    found: Floats = _weights(rho, count) @ rng.standard_normal(count)
    return found


@lru_cache(maxsize=64)
def _weights(rho: float, count: int) -> Floats:
    """Return what each of independent draws counts in each place of an autoregression."""
    lags = np.subtract.outer(np.arange(count), np.arange(count))
    found: Floats = np.where(lags >= 0, rho ** np.maximum(lags, 0), 0.0)
    found[:, 1:] *= math.sqrt(1 - rho**2)
    return found


def staying(rng: np.random.Generator, share: float, stay: float, count: int) -> Bools:
    """Return whether each of some invocations is in a state of such a share; with probability
    ``stay`` it is as the one before was.
    """
    fresh = rng.random(count) < share
    begins = np.where(rng.random(count) < stay, 0, np.arange(count))
    found: Bools = fresh[np.maximum.accumulate(begins)]
    return found


def two_clocks(stay: float) -> Remembering:
    """Return a phone with two clock states; with probability ``stay`` the next invocation has the
    last one's.
    """

    def draw(rng: np.random.Generator, count: int) -> Floats:
        fast = staying(rng, FAST_SHARE, stay, count)
        noise: Floats = STATE_STD * rng.standard_normal(count) - STATES_GAP * fast
        return noise

    low, high = -STATES_GAP, STATE_STD
    for _ in range(60):
        center = (low + high) / 2
        below = FAST_SHARE * NormalDist(-STATES_GAP, STATE_STD).cdf(center)
        below += (1 - FAST_SHARE) * NormalDist(0, STATE_STD).cdf(center)
        low, high = (low, center) if below > 0.5 else (center, high)
    return Remembering(
        name="two clock states" + (f", staying {stay:g}" if stay else ""),
        draw=draw,
        truth=low,
        is_lasting=stay >= PRIOR,
    )


def kinds() -> list[Remembering]:
    """Return the kinds that all is tried on."""
    return [*map(autoregressive, (0.0, 0.3, 0.5, 0.6)), two_clocks(0.0), two_clocks(0.5)]


def holds(logs: Floats, truth: float, others: Autocorrelation = NO_AUTOCORRELATION) -> bool:
    """Whether the 95 % interval holds the truth."""
    return judged(logs, truth, others)[0]


def judged(
    logs: Floats, truth: float, others: Autocorrelation = NO_AUTOCORRELATION
) -> tuple[bool, float]:
    """Return whether the 95 % interval holds the truth, and by how much memory widens it."""
    found = summarize(us(logs), others=others)
    assert found.interval is not None
    holds_it = found.interval.low <= 10_000 * math.exp(truth) <= found.interval.high
    return bool(holds_it), found.log_mean.error_factor


def holds_as_if_independent(logs: Floats, truth: float) -> bool:
    """Whether Student's interval of the trimmed middle holds it, as if no invocation knew of
    another."""
    found = trimmed_mean(logs.tolist())
    return abs(found.value - truth) <= t_quantile(0.975, found.degrees) * (found.error or 0.0)


def fixed(
    kind: Remembering, rng: np.random.Generator, trials: int, count: int
) -> tuple[float, float, float]:
    """Return the coverage of one case alone, that as if independent, and the width against the
    latter's."""
    hits = naive = 0
    grown = []
    for _ in range(trials):
        logs = kind.draw(rng, count)
        holds_it, width = judged(logs, kind.truth)
        hits += holds_it
        grown.append(width)
        naive += holds_as_if_independent(logs, kind.truth)
    return hits / trials, naive / trials, float(np.mean(grown))


def siblings(
    kind: Remembering, rng: np.random.Generator, devices: int, count: int
) -> tuple[float, float]:
    """Return the coverage of each of a device's cases, and by how much memory widens them."""
    hits, grown = 0, []
    for _ in range(devices):
        cases = [kind.draw(rng, count) for _ in range(SIBLINGS)]
        shown = [autocorrelation_of(logs.tolist()) for logs in cases]
        for logs, own in zip(cases, shown, strict=True):
            holds_it, width = judged(logs, kind.truth, sum(shown, NO_AUTOCORRELATION) - own)
            hits += holds_it
            grown.append(width)
    return hits / len(grown), float(np.mean(grown))


def stopped(kind: Remembering, rng: np.random.Generator, trials: int) -> tuple[float, float]:
    """Return the stopping rule's coverage, and how many invocations it took in the mean."""
    hits = given = 0
    for _ in range(trials):
        logs = kind.draw(rng, RULE.most)
        count = stopped_at(us(logs))
        hits += holds(logs[:count], kind.truth)
        given += count
    return hits / trials, given / trials


def nights(
    kind: Remembering, rng: np.random.Generator, trials: int, counts: tuple[int, int]
) -> tuple[float, float, float]:
    """Return false differences, coverage and how often 5 % slower was found, of two nights'
    samples."""
    alarms = held = found = 0
    slower = math.log1p(0.05)
    for _ in range(trials):
        logs = [kind.draw(rng, count) for count in counts]
        before, after, later = (summarize(us(side)) for side in (*logs, logs[1] + slower))
        alarms += compare_samples(before, after, sessions=UNKNOWN_SESSIONS).outcome in CHANGED
        ends = compare_samples(before, after, AT_95, sessions=UNKNOWN_SESSIONS)
        held += (ends.low or 1) <= 1 <= (ends.high or 1)
        verdict = compare_samples(before, later, sessions=UNKNOWN_SESSIONS)
        found += verdict.outcome is ComparisonOutcome.SLOWER
    return alarms / trials, held / trials, found / trials


def alternated(draw: Callable[[int], Floats], pairs: int, effect: float) -> tuple[Floats, Floats]:
    """Return a baseline and a candidate measured A B B A."""
    logs = draw(2 * pairs)
    first, second = logs[0::2], logs[1::2]
    turned = np.arange(pairs) % 2 == 1
    return np.where(turned, second, first), np.where(turned, first, second) + effect


def paired(draw: Callable[[int], Floats], trials: int, pairs: int) -> float:
    """Return how often equals were called a change."""
    return (
        sum(
            compare_pairs(*map(us, alternated(draw, pairs, 0.0))).outcome in CHANGED
            for _ in range(trials)
        )
        / trials
    )


def small_steps(
    draw: Callable[[int], Floats], trials: int, *, detect: float, effect: float, level: float
) -> tuple[float, float]:
    """Return how often ``ab`` asked for a change claims one (of its direction), and the pairs it
    takes."""
    pairing = replace(PAIRING, detect=detect, threshold=threshold_for(detect), level=level)
    found = in_turns(
        lambda pairs: alternated(draw, pairs, math.log1p(effect)),
        trials,
        effect=effect,
        pairing=pairing,
    )
    return found.claimed, found.pairs


def drawn_from(
    kind_draws: Sequence[Callable[[np.random.Generator, int], Floats]], rng: np.random.Generator
) -> Callable[[int], Floats]:
    """Return draws from several series in turn."""
    turn = iter(range(1 << 30))
    return lambda count: kind_draws[next(turn) % len(kind_draws)](rng, count)
