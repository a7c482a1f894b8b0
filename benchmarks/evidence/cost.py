"""Device time for an interval of one width: benchfarm's own numbers against 10 invocations of 50
inferences for all."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from noise import PHONE_INVOCATION_STD, Floats, Noise
from trials import RULE, stopped_at, us

from orchestrator.analysis.findings import INFERENCES_MIN
from orchestrator.analysis.intervals import (
    NO_AUTOCORRELATION,
    Autocorrelation,
    autocorrelation_of,
    degrees_of,
    t_quantile,
    trimmed_mean,
)
from orchestrator.analysis.summary import summarize

PUBLISHED = Path(__file__).parents[2] / "reports" / "published" / "tflite_published.csv"
FIXED_INVOCATIONS, FIXED_RUNS = 10, 50
#: The 90th percentile of noise over benchmarks is about three times its median (525 nightly series
#: of a public project).
NOISE_SPREAD = math.log(3.0) / 1.2816
#: A process never needs more inferences than this, however much its inferences differ.
RUNS_MOST = 1000


@dataclass(frozen=True)
class Spent:
    """One case: its time against the fixed scheme's."""

    share: float
    invocations: int
    runs: int


@dataclass(frozen=True)
class Campaign:
    """A whole set of cases, measured by both schemes until equally many intervals are under the
    target."""

    spent: tuple[Spent, ...]
    reached: float
    fixed_invocations: int

    @property
    def median_share(self) -> float:
        """Over the cases, of the time against the fixed scheme's."""
        return statistics.median(case.share for case in self.spent)

    @property
    def total_share(self) -> float:
        """All invocations against all of the fixed scheme's."""
        return sum(case.invocations for case in self.spent) / (
            len(self.spent) * self.fixed_invocations
        )


def latencies_s() -> list[float]:
    """Return the published latencies of real models on real phones: what cases of a farm take."""
    with PUBLISHED.open() as lines:
        return [
            float(row["latency_ms"]) / 1000 for row in csv.DictReader(lines) if row["latency_ms"]
        ]


def campaign(
    noises: Sequence[Noise], rng: np.random.Generator, *, most_rounds: int = 20
) -> Campaign:
    """Return both schemes' times for a set in which quiet and noisy cases are mixed.

    The fixed scheme gives 10 invocations of 50 inferences to every case, and again, until as large
    a share of the cases is under the stopping rule's target as with the rule. Both make 50
    inferences in a process here. What the cases' first invocations show of their device's memory,
    they show each other.
    """
    drawn = []
    for number, _ in enumerate(latencies_s()):
        noise = noises[number % len(noises)].sized(
            PHONE_INVOCATION_STD * math.exp(rng.normal(0, NOISE_SPREAD))
        )
        logs = noise.draw(rng, most_rounds * FIXED_INVOCATIONS, runs=FIXED_RUNS)
        drawn.append(logs)
    shown = [autocorrelation_of(logs[: RULE.first].tolist()) for logs in drawn]
    others = [sum(shown, NO_AUTOCORRELATION) - own for own in shown]
    counts = [stopped_at(us(logs), others=known) for logs, known in zip(drawn, others, strict=True)]
    reached = _reached([logs[:count] for logs, count in zip(drawn, counts, strict=True)], others)
    rounds = next(
        (
            number
            for number in range(1, most_rounds + 1)
            if _reached([logs[: number * FIXED_INVOCATIONS] for logs in drawn], others) >= reached
        ),
        most_rounds,
    )
    fixed = rounds * FIXED_INVOCATIONS
    spent = tuple(
        Spent(share=count / fixed, invocations=count, runs=FIXED_RUNS) for count in counts
    )
    return Campaign(spent=spent, reached=reached, fixed_invocations=fixed)


def _reached(series: Sequence[Floats], others: Sequence[Autocorrelation]) -> float:
    spreads = [
        summarize(us(logs), others=known).spread or 0.0
        for logs, known in zip(series, others, strict=True)
    ]
    return sum(spread < RULE.half_width for spread in spreads) / len(spreads)


def one_by_one(noises: Sequence[Noise], setup_s: float, rng: np.random.Generator) -> list[Spent]:
    """Return every case's time when it alone reaches the width that 10 x 50 gives it; only
    inferences are chosen.
    """
    spent = []
    for number, run_s in enumerate(latencies_s()):
        noise = noises[number % len(noises)].sized()
        variances = {runs: _variance(noise, runs, rng) for runs in (INFERENCES_MIN, FIXED_RUNS)}
        var_run = (variances[INFERENCES_MIN] - variances[FIXED_RUNS]) / (
            1 / INFERENCES_MIN - 1 / FIXED_RUNS
        )
        var_invocation = variances[FIXED_RUNS] - max(0.0, var_run) / FIXED_RUNS
        best = _runs_per_invocation(setup_s, run_s, max(0.0, var_run), max(0.0, var_invocation))
        # Nothing is known of processes that go on for longer than the recorded ones.
        runs = min(FIXED_RUNS, max(INFERENCES_MIN, best))
        goal = _width(variances[FIXED_RUNS], FIXED_INVOCATIONS)
        variance = _variance(noise, runs, rng)
        count = next(count for count in range(2, 1000) if _width(variance, count) <= goal)
        fixed_s = FIXED_INVOCATIONS * (setup_s + FIXED_RUNS * run_s)
        spent.append(
            Spent(share=count * (setup_s + runs * run_s) / fixed_s, runs=runs, invocations=count)
        )
    return spent


def _runs_per_invocation(
    setup_s: float, run_s: float, var_run: float, var_invocation: float
) -> int:
    """Return how many inferences one process should have, so that the interval is shortest for the
    time spent.

    sqrt(cost of a process / cost of an inference x variance of inferences / variance between
    processes), after Kalibera & Jones (ISMM 2013). ``setup_s`` is what a process costs beside its
    inferences. The variances share any one unit. At least 1 and at most RUNS_MOST, which is also
    the answer when processes don't differ.
    """
    if var_invocation == 0:
        return RUNS_MOST if var_run > 0 else 1
    best = math.sqrt(setup_s / run_s * var_run / var_invocation)
    return max(1, min(RUNS_MOST, math.ceil(best)))


def _variance(noise: Noise, runs: int, rng: np.random.Generator) -> float:
    """Return the variance of the middle's single figures: the squared deviation that its error
    amounts to."""
    return (trimmed_mean(noise.draw(rng, 4000, runs=runs).tolist()).std or 0.0) ** 2


def _width(variance: float, count: int) -> float:
    return t_quantile(0.975, degrees_of(count)) * math.sqrt(variance / count)
