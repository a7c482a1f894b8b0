"""Trials of changes over the nights on noise that remembers: series with and without a step, looked
at each night."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from noise import PHONE_INVOCATION_STD, Floats
from remembering import autoregression

from orchestrator.extensions.history.changepoint import (
    RECENT_NIGHTS,
    WINDOW_NIGHTS,
    changes,
    is_alarm,
)

NIGHTS, STEP_AT = 150, 100


@dataclass(frozen=True)
class NightNoise:
    """How nights' figures differ: white, correlated with the night before, or both, and outliers."""

    name: str
    rho: float = 0.0
    #: Of the variance, what is correlated.
    share: float = 1.0
    #: With which probability a night is slowed by 5 to 40 %.
    outliers: float = 0.0

    def draw(self, rng: np.random.Generator, series: int, step: float) -> Floats:
        """Return series x nights of latencies, slower by ``step`` from a night on."""
        logs = np.array([autoregression(rng, self.rho, NIGHTS) for _ in range(series)]) * math.sqrt(
            self.share
        )
        logs += math.sqrt(1 - self.share) * rng.standard_normal(logs.shape)
        logs *= PHONE_INVOCATION_STD
        slow = np.log1p(rng.uniform(0.05, 0.4, logs.shape))
        logs += np.where(rng.random(logs.shape) < self.outliers, slow, 0.0)
        logs[:, STEP_AT:] += math.log1p(step)
        latencies: Floats = 10_000 * np.exp(logs)
        return latencies


KINDS = (
    NightNoise("nights that forget"),
    NightNoise("autocorrelation 0.5", rho=0.5),
    NightNoise("autocorrelation 0.6", rho=0.6),
    NightNoise(
        "30 % of it with autocorrelation 0.8, 2 % outliers", rho=0.8, share=0.3, outliers=0.02
    ),
)


def alarms(latencies: Floats, first: int = WINDOW_NIGHTS) -> Floats:
    """Return series x nights: 1 for a slower, -1 for a faster one that would have been told on that
    night."""
    found = np.zeros(latencies.shape)
    for night in range(first, latencies.shape[1]):
        seen = latencies[:, max(0, night + 1 - WINDOW_NIGHTS) : night + 1]
        for change in changes(seen):
            if is_alarm(change, nights=seen.shape[1]):
                found[change.series, night] = 1 if change.ratio > 1 else -1
    return found


def candidates(kind: NightNoise, rng: np.random.Generator, series: int) -> float:
    """Return the false candidates of 1,000 series-nights; those within 14 nights of another count
    once.
    """
    return false_candidates(alarms(kind.draw(rng, series, 0.0)))


def false_candidates(told: Floats, first: int = WINDOW_NIGHTS) -> float:
    """Return the candidates of 1,000 series-nights from a night on."""
    total = 0
    for row in told:
        last = -math.inf
        for night in np.flatnonzero(row).tolist():
            if night - last > RECENT_NIGHTS:
                total, last = total + 1, night
    return 1000 * total / (len(told) * (told.shape[1] - first))


def found(kind: NightNoise, rng: np.random.Generator, series: int, step: float) -> float:
    """Return the share of series whose step was told within 14 nights."""
    told = alarms(kind.draw(rng, series, step))[:, STEP_AT : STEP_AT + RECENT_NIGHTS] > 0
    return float(told.any(axis=1).mean())


def attainable(
    kind: NightNoise, rng: np.random.Generator, series: int, step: float, *, knows_level: bool
) -> float:
    """Return the share of steps that a likelihood ratio finds which is told the noise, at 1 false
    of 1,000 nights.

    It knows the noise's size and correlation exactly; ``knows_level``: the level before the step,
    too. It asks for a step of any size on each of the last 14 nights. For nights of one correlation
    without outliers.
    """
    quiet, stepped = (
        _ratios(kind, rng, series, size, knows_level=knows_level) for size in (0.0, step)
    )
    low, high = 0.0, 40.0
    for _ in range(30):
        limit = (low + high) / 2
        low, high = (limit, high) if false_candidates(quiet > limit) > 1 else (low, limit)
    return float((stepped[:, STEP_AT : STEP_AT + RECENT_NIGHTS] > high).any(axis=1).mean())


def _ratios(
    kind: NightNoise, rng: np.random.Generator, series: int, step: float, *, knows_level: bool
) -> Floats:
    """Return series x nights: the largest log likelihood ratio of a step within the last 14 nights."""
    logs = np.log(kind.draw(rng, series, step) / 10_000) / PHONE_INVOCATION_STD
    news_std, lift = math.sqrt(1 - kind.rho**2), (1 - kind.rho) / math.sqrt(1 - kind.rho**2)
    news = (logs[:, 1:] - kind.rho * logs[:, :-1]) / news_std
    level = np.r_[1.0, np.full(WINDOW_NIGHTS - 1, lift)]
    found = np.zeros(logs.shape)
    for night in range(WINDOW_NIGHTS, NIGHTS):
        first = night + 1 - WINDOW_NIGHTS
        seen = np.hstack([logs[:, first : first + 1], news[:, first:night]])
        for begin in range(WINDOW_NIGHTS - RECENT_NIGHTS, WINDOW_NIGHTS):
            new = np.r_[np.zeros(begin), 1 / news_std, np.full(WINDOW_NIGHTS - begin - 1, lift)]
            if not knows_level:
                new -= level * (new @ level) / (level @ level)
            found[:, night] = np.maximum(found[:, night], (seen @ new) ** 2 / (new @ new) / 2)
    return found
