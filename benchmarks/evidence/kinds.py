"""Seventeen kinds of noise, of invocations and of nights, and trials of all that is promised on them
at the defaults of the commands."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from history import alarms, false_candidates
from noise import PHONE_INVOCATION_STD as STD
from noise import Floats
from remembering import alternated, autoregression, staying
from trials import AT_95, CHANGED, RULE, in_turns, stopped_at, us

from orchestrator.analysis.effect import best_of, compare_samples, mean_of
from orchestrator.analysis.intervals import NO_AUTOCORRELATION, Autocorrelation, autocorrelation_of
from orchestrator.analysis.summary import Round, SessionNoise, session_noise, summarize

Draw = Callable[[np.random.Generator, int], Floats]
#: Nights of a trial, the night of a step, and from which night on is asked.
NIGHTS, STEP_AT, ASKED_FROM = 130, 100, 90


@dataclass(frozen=True)
class Kind:
    """A kind of noise, in logs around 10 ms."""

    name: str
    draw: Draw
    #: What endless invocations would come to; None: the middle of 100,000 of them.
    truth: float | None = 0.0
    #: What its program rounds figures to, in microseconds.
    resolution_us: float = 0.0
    #: Whether the figure of a whole session is one draw more: states and heat that last for a night.
    by_session: bool = False


def normal(std: float = STD) -> Draw:
    return lambda rng, count: std * rng.standard_normal(count)


def correlated(rho: float) -> Draw:
    return lambda rng, count: STD * autoregression(rng, rho, count)


def mixed(rng: np.random.Generator, count: int) -> Floats:
    slow: Floats = autoregression(rng, 0.8, count)
    return STD * (math.sqrt(0.7) * rng.standard_normal(count) + math.sqrt(0.3) * slow)


def states(stay: float) -> Draw:
    def draw(rng: np.random.Generator, count: int) -> Floats:
        fast = staying(rng, 0.3, stay, count)
        found: Floats = 0.005 * rng.standard_normal(count) - math.log1p(0.04) * fast
        return found

    return draw


def outliers(share: float) -> Draw:
    def draw(rng: np.random.Generator, count: int) -> Floats:
        slow = np.log1p(rng.uniform(0.05, 0.4, count))
        found: Floats = STD * rng.standard_normal(count)
        return found + np.where(rng.random(count) < share, slow, 0.0)

    return draw


def skewed(rng: np.random.Generator, count: int) -> Floats:
    found: Floats = STD * (rng.exponential(1, count) - 1)
    return found


def heavy(rng: np.random.Generator, count: int) -> Floats:
    found: Floats = STD / math.sqrt(3) * rng.standard_t(3, count)
    return found


def tripling(rng: np.random.Generator, count: int) -> Floats:
    at = STEP_AT if count > STEP_AT else count // 2
    found: Floats = STD * rng.standard_normal(count) * np.where(np.arange(count) < at, 1, 3)
    return found


def swapped(rng: np.random.Generator, count: int) -> Floats:
    at = STEP_AT if count > STEP_AT else 0
    found: Floats = STD * rng.standard_normal(count) * np.where(np.arange(count) < at, 0.5, 1.5)
    return found


def heating(rng: np.random.Generator, count: int) -> Floats:
    course = 0.02 * (1 - np.exp(-np.arange(count) / 3)) - 0.02
    found: Floats = STD * rng.standard_normal(count) + course
    return found


def first_slow(rng: np.random.Generator, count: int) -> Floats:
    found: Floats = STD * rng.standard_normal(count)
    found[0] += math.log1p(0.2)
    return found


def printed(latency_us: float, std: float, step_us: float) -> Draw:
    def draw(rng: np.random.Generator, count: int) -> Floats:
        whole = np.round(latency_us * np.exp(std * rng.standard_normal(count)) / step_us) * step_us
        found: Floats = np.log(whole / 10_000)
        return found

    return draw


KINDS = (
    Kind("white, 1.5 %", normal()),
    Kind("white, 3 %", normal(0.03)),
    Kind("autocorrelation 0.3", correlated(0.3)),
    Kind("autocorrelation 0.5", correlated(0.5)),
    Kind("autocorrelation 0.8", correlated(0.8)),
    Kind("30 % of it with 0.8", mixed),
    Kind("two states", states(0.0), truth=None),
    Kind("two states, staying 0.5", states(0.5), truth=None),
    Kind("outliers, 3 %", outliers(0.03)),
    Kind("outliers, 10 %", outliers(0.10), truth=None),
    Kind("skewed", skewed, truth=None),
    Kind("heavy tails (t3)", heavy),
    Kind("noise that triples", tripling),
    Kind("a swap to a noisier phone", swapped),
    Kind("the first ones warm it", heating),
    Kind("prints whole ms", printed(20_400, 0.01, 1000), math.log(2.04), 1000.0),
    Kind("prints 10 us", printed(303, 0.015, 10), math.log(0.0303), 10.0),
)


def truth_of(kind: Kind) -> float:
    """Return what an interval is to hold: of two states the median, else the trimmed mean."""
    if kind.truth is not None:
        return kind.truth
    logs = np.sort(kind.draw(np.random.default_rng(1), 100_000))
    if kind.name.startswith("two states"):
        return float(np.median(logs))
    return float(logs[len(logs) // 5 : -len(logs) // 5].mean())


@dataclass(frozen=True)
class Alone:
    """One case alone: coverage, and processes that the stopping rule takes."""

    eight: float
    twelve: float
    stopped: float
    processes: float
    known_processes: float
    energy: float


def alone(kind: Kind, rng: np.random.Generator, trials: int) -> Alone:
    """Return what the interval of one case holds; *known*: beside four earlier campaigns."""
    truth = truth_of(kind)

    def holds(logs: Floats, others: Autocorrelation = NO_AUTOCORRELATION) -> bool:
        found = summarize(us(logs), others=others, resolution_us=kind.resolution_us).interval
        assert found is not None
        return bool(found.low <= 10_000 * math.exp(truth) <= found.high)

    counts = [0, 0, 0]
    processes, known, energy = [], [], 0
    for _ in range(trials):
        logs = kind.draw(rng, RULE.most)
        taken = stopped_at(us(logs))
        for place, count in enumerate((8, 12, taken)):
            counts[place] += holds(logs[:count])
        processes.append(taken)
        earlier = sum(
            (autocorrelation_of(kind.draw(rng, 16).tolist()) for _ in range(4)), NO_AUTOCORRELATION
        )
        known.append(stopped_at(us(logs), others=earlier))
        blocks = mean_of(np.exp(logs[:12]).tolist())
        energy += blocks is not None and abs(blocks.value - math.exp(truth)) <= (
            blocks.half_width or 0.0
        )
    eight, twelve, stopped = (count / trials for count in counts)
    return Alone(
        eight, twelve, stopped, float(np.mean(processes)), float(np.mean(known)), energy / trials
    )


def turns(kind: Kind, rng: np.random.Generator, trials: int) -> list[tuple[float, float, float]]:
    """Return what ``ab`` claims of equals, and of steps of 2, 3 and 5 %: claims, SAME, pairs."""
    found = []
    for effect in (0.0, 0.02, 0.03, 0.05):

        def draw(pairs: int, effect: float = effect) -> tuple[Floats, Floats]:
            return alternated(lambda count: kind.draw(rng, count), pairs, math.log1p(effect))

        one = in_turns(draw, trials, effect=effect)
        found.append((one.claimed, one.same, one.pairs))
    return found


def sessions(
    rng: np.random.Generator, trials: int, between: float, known: int
) -> tuple[float, float, float]:
    """Return how often equal sessions are called a change, how often the interval holds the next
    session's figure, and how often 8 % are found."""

    def session(effect: float = 0.0) -> list[float]:
        level = between * rng.standard_normal() + math.log1p(effect)
        return us(level + 0.01 * rng.standard_normal(12))

    claimed = held = found = 0
    for _ in range(trials):
        noise = session_noise([session() for _ in range(known)]) if known else SessionNoise()
        before, after, slower = (summarize(session(effect)) for effect in (0.0, 0.0, 0.08))
        claimed += compare_samples(before, after, sessions=noise).outcome in CHANGED
        found += compare_samples(before, slower, sessions=noise).outcome in CHANGED
        ends = compare_samples(before, after, AT_95, sessions=noise)
        held += (ends.low or 1) <= 1 <= (ends.high or 1)
    return claimed / trials, held / trials, found / trials


def false_winners(rng: np.random.Generator, trials: int, members: int, *, in_rounds: bool) -> float:
    """Return how often one of equal configurations is called slower than another."""
    called = 0
    for _ in range(trials):
        heat = 0.01 * autoregression(rng, 0.5, 12)
        rounds = [Round("", number, number) for number in range(12)] if in_rounds else []
        figures = {
            name: summarize(us(heat + STD * rng.standard_normal(12)), rounds=rounds)
            for name in range(members)
        }
        best = best_of(figures)
        called += best is not None and len(best.tied) < members - 1
    return called / trials


def nights(kind: Kind, rng: np.random.Generator, series: int) -> tuple[float, float]:
    """Return false candidates of 1,000 series-nights, and the share of steps of 5 % that are found."""
    logs = np.array([kind.draw(rng, NIGHTS) for _ in range(series)])
    quiet = false_candidates(alarms(10_000 * np.exp(logs), ASKED_FROM), ASKED_FROM)
    logs[:, STEP_AT:] += math.log1p(0.05)
    values = 10_000 * np.exp(logs[:, : STEP_AT + 14])
    found = alarms(values, STEP_AT)[:, STEP_AT:] > 0
    return quiet, float(found.any(axis=1).mean())


def fifth_remembers(rng: np.random.Generator, series: int) -> Floats:
    """Return series of which a fifth has nights with a correlation of 0.8."""
    rows = [
        STD * (autoregression(rng, 0.8, NIGHTS) if row % 5 == 0 else rng.standard_normal(NIGHTS))
        for row in range(series)
    ]
    found: Floats = 10_000 * np.exp(np.array(rows))
    return found


def young(rng: np.random.Generator, labs: int, count: int) -> tuple[float, float]:
    """Return false alarms of 1,000 series of labs of so many nights, and the share of series that
    are told of a common step of 5 % which is three to five nights old."""
    told = found = 0
    for _ in range(labs):
        logs = STD * rng.standard_normal((20, count))
        told += int(np.sum(alarms(10_000 * np.exp(logs), count - 1)[:, -1] != 0))
        logs[:, max(3, count - 5) :] += math.log1p(0.05)
        found += int(np.sum(alarms(10_000 * np.exp(logs), count - 1)[:, -1] > 0))
    return 1000 * told / (20 * labs), found / (20 * labs)


def passing(rng: np.random.Generator, series: int) -> float:
    """Return the share of series that are still called slower three nights after a step of 5 % of
    ten nights ended."""
    logs = STD * rng.standard_normal((series, STEP_AT + 13))
    logs[:, STEP_AT : STEP_AT + 10] += math.log1p(0.05)
    last = alarms(10_000 * np.exp(logs), STEP_AT + 12)[:, -1]
    return float(np.mean(last > 0))
