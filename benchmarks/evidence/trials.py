"""Trials on series of known truth: coverage, false alarms and power, and what people do today
beside it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from noise import Floats, Noise, drift, gaussian

from orchestrator.analysis.effect import (
    compare_pairs,
    compare_samples,
    threshold_for,
)
from orchestrator.analysis.intervals import NO_AUTOCORRELATION, Autocorrelation, t_cdf, t_quantile
from orchestrator.analysis.rounds import decide
from orchestrator.analysis.summary import SessionNoise, summarize
from orchestrator.records.campaign import Pairing
from orchestrator.records.plan import StoppingRule
from orchestrator.records.verdict import CHANGE_LEVEL, ChangeRule, ComparisonOutcome

RUNS = 50
RULE = StoppingRule()
#: The default budget of a comparison: as many pairs as a case gets invocations at the most.
PAIRS = RULE.most
CHANGED = (ComparisonOutcome.FASTER, ComparisonOutcome.SLOWER)
#: Comparisons with the interval that a figure has.
AT_95 = ChangeRule(level=0.95)


@dataclass(frozen=True)
class Kind:
    """A kind of noise: several recorded series under one treatment."""

    name: str
    series: tuple[Noise, ...]
    drifts: bool = False
    #: Whether bounds on power hold for it: of the size of a quiet phone's noise.
    is_phone_sized: bool = True


def kinds_of(recorded: Sequence[Noise]) -> list[Kind]:
    """Return the kinds that everything is tried on."""
    real = [noise for noise in recorded if not noise.is_virtual]
    sized = tuple(noise.sized() for noise in real)
    return [
        Kind("this computer, as recorded", tuple(real), is_phone_sized=False),
        Kind("sized to a phone", sized),
        Kind("with heavy tails", tuple(noise.heavy_tailed() for noise in sized)),
        Kind("with drift", sized, drifts=True),
        Kind("virtual phones", tuple(noise for noise in recorded if noise.is_virtual)),
    ]


def normal_kinds(stds: Sequence[float], rng: np.random.Generator) -> list[Kind]:
    """Return normal noise of several sizes: where the stopping rule looks most often."""
    return [
        Kind(noise.name, (noise,), is_phone_sized=False)
        for noise in (gaussian(std, rng) for std in stds)
    ]


def us(logs: Floats | Sequence[float]) -> list[float]:
    """Return latencies around 10 ms."""
    return [10_000 * math.exp(log) for log in logs]


# --- coverage


def coverage(kind: Kind, way: str, rng: np.random.Generator, trials: int) -> float:
    """Return how often the 95 % interval held the truth."""
    truths = [noise.truth(runs=RUNS) for noise in kind.series]
    hits = 0
    for trial in range(trials):
        index = trial % len(kind.series)
        low, high, truth = WAYS[way](kind, kind.series[index], truths[index], rng)
        hits += low <= truth <= high
    return hits / trials


def _fixed(count: int) -> Callable[..., tuple[float, float, float]]:
    def way(
        kind: Kind, noise: Noise, truth: float, rng: np.random.Generator
    ) -> tuple[float, float, float]:
        logs = noise.draw(rng, count, runs=RUNS)
        if kind.drifts:
            course = drift(rng, count)
            logs, truth = logs + course, truth + float(course.mean())
        return *_ends(us(logs)), truth

    return way


def _stopped(
    kind: Kind, noise: Noise, truth: float, rng: np.random.Generator
) -> tuple[float, float, float]:
    logs, course = noise.draw(rng, RULE.most, runs=RUNS), np.zeros(RULE.most)
    if kind.drifts:
        course = drift(rng, RULE.most)
        logs = logs + course
    count = stopped_at(us(logs))
    return *_ends(us(logs[:count])), truth + float(course[:count].mean())


def stopped_coverage(kind: Kind, rng: np.random.Generator, trials: int) -> tuple[float, float]:
    """Return how often the stopping rule's interval held the truth, and how many invocations it
    took in the mean."""
    truths = [noise.truth(runs=RUNS) for noise in kind.series]
    hits = given = 0
    for trial in range(trials):
        index = trial % len(kind.series)
        latencies_us = us(kind.series[index].draw(rng, RULE.most, runs=RUNS))
        count = stopped_at(latencies_us)
        low, high = _ends(latencies_us[:count])
        hits += low <= truths[index] <= high
        given += count
    return hits / trials, given / trials


def stopped_at(
    latencies_us: Sequence[float],
    rule: StoppingRule = RULE,
    others: Autocorrelation = NO_AUTOCORRELATION,
) -> int:
    """Return how many of the invocations the rule takes.

    The engine asks after each one whether they are enough.

    Between two looks the answer is always no (a test shows it), so only the looks are asked for
    here.
    """
    count = 0
    while not (decision := decide(latencies_us[:count], rule, others)).is_enough:
        count = decision.next_count
    return count


def _paired(count: int) -> Callable[..., tuple[float, float, float]]:
    def way(
        kind: Kind, noise: Noise, truth: float, rng: np.random.Generator
    ) -> tuple[float, float, float]:
        baseline, candidate = alternated(kind, noise, rng, count, effect=0.0)
        verdict = compare_pairs(us(baseline), us(candidate), AT_95)
        return math.log(verdict.low or 0), math.log(verdict.high or 0), 0.0

    return way


def _ends(latencies_us: list[float]) -> tuple[float, float]:
    interval = summarize(latencies_us).interval
    assert interval is not None
    return math.log(interval.low / 10_000), math.log(interval.high / 10_000)


def coverage_of_means(kind: Kind, rng: np.random.Generator, trials: int, *, count: int) -> float:
    """Return how often mean and Student's t held the mean of endless invocations."""
    truths = [float(np.mean(noise.draw(rng, 40_000, runs=RUNS))) for noise in kind.series]
    quantile, hits = t_quantile(0.975, count - 1), 0
    for trial in range(trials):
        index = trial % len(kind.series)
        logs, truth = kind.series[index].draw(rng, count, runs=RUNS), truths[index]
        if kind.drifts:
            course = drift(rng, count)
            logs, truth = logs + course, truth + float(course.mean())
        hits += abs(float(logs.mean()) - truth) <= quantile * float(logs.std(ddof=1)) / math.sqrt(
            count
        )
    return hits / trials


WAYS: dict[str, Callable[..., tuple[float, float, float]]] = {
    "t, 8 invocations": _fixed(8),
    "t, 15 invocations": _fixed(15),
    "t, 20 invocations": _fixed(20),
    "t, 40 invocations": _fixed(40),
    "stopping rule, 8 to 40": _stopped,
    "ratio of 10 ABBA pairs": _paired(10),
    "ratio of 40 ABBA pairs": _paired(40),
}


# --- comparisons


def alternated(
    kind: Kind, noise: Noise, rng: np.random.Generator, pairs: int, *, effect: float
) -> tuple[Floats, Floats]:
    """Return the logs of a baseline and a candidate measured A B B A A B ...; ``effect`` is a log
    ratio."""
    logs = noise.draw(rng, 2 * pairs, runs=RUNS)
    if kind.drifts:
        logs = logs + drift(rng, 2 * pairs)
    first, second = logs[0::2], logs[1::2]
    turned = np.arange(pairs) % 2 == 1
    return np.where(turned, second, first), np.where(turned, first, second) + effect


def claims(
    kind: Kind, rng: np.random.Generator, trials: int, *, effect: float, pairs: int = PAIRS
) -> float:
    """Return how often a change was claimed; with an effect, in its direction."""
    wanted = {0.0: CHANGED}.get(effect, CHANGED[effect > 0 :][:1])
    hits = 0
    for trial in range(trials):
        both = alternated(kind, kind.series[trial % len(kind.series)], rng, pairs, effect=effect)
        hits += compare_pairs(us(both[0]), us(both[1])).outcome in wanted
    return hits / trials


#: What the command looks for when nobody says otherwise.
PAIRING = Pairing(
    sides=(),
    baseline="",
    candidate="",
    kind="build",
    detect=0.02,
    level=CHANGE_LEVEL,
    threshold=threshold_for(0.02),
)


@dataclass(frozen=True)
class InTurns:
    """Comparisons as the command makes them: claims, equals called the same, and pairs spent."""

    claimed: float
    same: float
    pairs: float


def in_turns(
    draw: Callable[[int], tuple[Floats, Floats]],
    trials: int,
    *,
    effect: float,
    pairing: Pairing = PAIRING,
) -> InTurns:
    """Return what the shipped procedure reaches; ``draw`` gives both sides' logs in pairs."""
    wanted = {0.0: CHANGED}.get(effect, CHANGED[effect > 0 :][:1])
    hits, same, spent = 0, 0, 0
    for _ in range(trials):
        both = draw(pairing.most)
        verdict = compare_pairs(us(both[0]), us(both[1]), pairing.change_rule)
        hits += verdict.outcome in wanted
        same += verdict.outcome is ComparisonOutcome.SAME
        spent += verdict.counts[0]
    return InTurns(claimed=hits / trials, same=same / trials, pairs=spent / trials)


def in_turns_of(kind: Kind, rng: np.random.Generator, trials: int, *, effect: float) -> InTurns:
    """Return the same on a kind of recorded noise."""
    turn = iter(range(1 << 30))

    def draw(pairs: int) -> tuple[Floats, Floats]:
        noise = kind.series[next(turn) % len(kind.series)]
        return alternated(kind, noise, rng, pairs, effect=effect)

    return in_turns(draw, trials, effect=effect)


# --- two nights


#: Invocations of each side: fixed counts, and what the stopping rule makes of unlike nights.
NIGHTS = ((8, 8), (8, 40), (12, 20), (30, 30))
#: What `compare` takes sessions to differ by where it knows no earlier ones.
UNKNOWN_SESSIONS = SessionNoise()


def nights(
    kind: Kind,
    rng: np.random.Generator,
    trials: int,
    counts: tuple[int, int],
    *,
    effect: float = 0.0,
    night_std: float = 0.0,
) -> tuple[float, float]:
    """Return how often two nights of one program were called a change, and how often the 95 %
    interval held the truth.

    ``night_std`` is what a night as a whole is off by, which no number of invocations of that night
    can show.
    """
    wanted = {0.0: CHANGED}.get(effect, CHANGED[effect > 0 :][:1])
    alarms = held = 0
    for trial in range(trials):
        noise = kind.series[trial % len(kind.series)]
        sides = [
            noise.draw(rng, count, runs=RUNS) + night_std * float(rng.standard_normal())
            for count in counts
        ]
        before, after = us(sides[0]), us(sides[1] + effect)
        both = summarize(before), summarize(after)
        alarms += compare_samples(*both, sessions=UNKNOWN_SESSIONS).outcome in wanted
        ends = compare_samples(*both, AT_95, sessions=UNKNOWN_SESSIONS)
        held += math.log(ends.low or 1) <= effect <= math.log(ends.high or 1)
    return alarms / trials, held / trials


# --- what people do today


def one_run_of_fifty(before: list[Floats], after: list[Floats]) -> bool:
    """One run of 50 each; a change of the mean by more than 5 %."""
    ratio = float(np.mean(np.exp(after[0])) / np.mean(np.exp(before[0])))
    return ratio > 1.05 or ratio < 1 / 1.05


def beyond_p90_of_p90s(before: list[Floats], after: list[Floats]) -> bool:
    """Ten earlier runs; slower when the new run's median is above the 90th percentile of their 90th
    percentiles.
    """
    p90s = [float(np.quantile(run, 0.9)) for run in before]
    return float(np.median(after[0])) > float(np.quantile(p90s, 0.9))


def welch_on_inferences(before: list[Floats], after: list[Floats]) -> bool:
    """Welch's t on the inferences of one process each, significant at 5 %."""
    left, right = before[0], after[0]
    parts = [float(np.var(side, ddof=1)) / len(side) for side in (left, right)]
    error = math.sqrt(sum(parts))
    degrees = sum(parts) ** 2 / sum(
        part**2 / (len(side) - 1) for part, side in zip(parts, (left, right), strict=True)
    )
    return 2 * t_cdf(-abs(float(right.mean() - left.mean())) / error, degrees) < 0.05


TODAY: dict[str, tuple[int, Callable[[list[Floats], list[Floats]], bool]]] = {
    "one run of 50, 5 % threshold": (1, one_run_of_fifty),
    "p50 > p90 of p90s, 10 runs before": (10, beyond_p90_of_p90s),
    "Welch t on the inferences of a run": (1, welch_on_inferences),
}


def claims_today(
    kind: Kind, way: str, rng: np.random.Generator, trials: int, *, effect: float
) -> float:
    """Return how often a change is claimed by what people do today, on series whose inferences are
    known."""
    history, rule = TODAY[way]
    series = [noise for noise in kind.series if noise.within is not None]
    hits = 0
    for trial in range(trials):
        noise = series[trial % len(series)]
        course = drift(rng, history + 1) if kind.drifts else np.zeros(history + 1)
        before = [noise.draw_inferences(rng, RUNS) + at for at in course[:history]]
        after = [noise.draw_inferences(rng, RUNS) + course[-1] + effect]
        hits += rule(before, after)
    return hits / trials
