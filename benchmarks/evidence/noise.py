"""Noise from real runs, drawn again: series whose true level is known, and whose deviations were
measured."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from orchestrator.analysis.intervals import trimmed_means

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
HERE = Path(__file__).parent
#: What a warm, quiet phone is like: deviation between processes.
PHONE_INVOCATION_STD = 0.015
TRUTH_DRAWS = 200_000
#: What endless invocations come to, by what they are drawn from.
_TRUTHS: dict[tuple[str, float, float, int], float] = {}
#: From the median of a normal sample to p5 or p95, in standard deviations.
MEDIAN_TO_P95 = 1.6449


@dataclass(frozen=True)
class Noise:
    """One recorded series of processes: the log of each process's median against their mean, and
    what lies within."""

    name: str
    source: str
    is_virtual: bool
    #: Log residual of each process's median.
    between: Floats
    #: Log residual of each inference against its process's median, processes x inferences; None:
    #: only ``inner`` is known.
    within: Floats | None
    #: Standard deviation of the inferences of each process, as a share.
    inner: Floats
    latency_us: float
    #: Added by :func:`heavy_tailed`: with which probability an invocation is slowed by 5 to 40 %.
    tail: float = 0.0

    def draw(self, rng: np.random.Generator, count: int, *, runs: int = 50) -> Floats:
        """Return the logs of the medians of ``count`` invocations of ``runs`` inferences."""
        which = rng.integers(len(self.between), size=count)
        if self.within is None:
            own = rng.standard_normal(count) * self.inner[which] * math.sqrt(math.pi / 2 / runs)
        else:
            own = self._median_within(rng, which, runs)
        slow = np.where(rng.random(count) < self.tail, np.log1p(rng.uniform(0.05, 0.4, count)), 0.0)
        return self.between[which] + own + slow

    def _median_within(self, rng: np.random.Generator, which: Integers, runs: int) -> Floats:
        """Return the medians of inferences drawn from some processes: their ranks' order statistics,
        which is the same and faster.
        """
        assert self.within is not None
        each = self.within.shape[1]
        half = (runs + 1) // 2
        low = rng.beta(half, runs + 1 - half, len(which))
        high = low
        if runs % 2 == 0:
            # The least of the inferences above.
            high = 1 - (1 - low) * rng.random(len(which)) ** (1 / (runs - half))
        at = [np.minimum((rank * each).astype(int), each - 1) for rank in (low, high)]
        found: Floats = (self.within[which, at[0]] + self.within[which, at[1]]) / 2
        return found

    def draw_inferences(self, rng: np.random.Generator, runs: int) -> Floats:
        """Return the logs of the single inferences of one fresh process."""
        assert self.within is not None
        which = int(rng.integers(len(self.between)))
        slow = math.log1p(rng.uniform(0.05, 0.4)) if rng.random() < self.tail else 0.0
        return self.between[which] + rng.choice(self.within[which], runs) + slow

    def truth(self, *, runs: int = 50) -> float:
        """Return the middle of the logs that endless invocations would have."""
        key = (self.name, float(np.std(self.between)), self.tail, runs)
        if key not in _TRUTHS:
            logs = self.draw(np.random.default_rng(1), TRUTH_DRAWS, runs=runs)
            _TRUTHS[key] = float(trimmed_means(logs[None])[0][0])
        return _TRUTHS[key]

    def sized(self, invocation_std: float = PHONE_INVOCATION_STD) -> Noise:
        """Return the same shapes at a phone's size: both levels scaled alike."""
        factor = invocation_std / float(np.std(self.between, ddof=1))
        return replace(
            self,
            between=self.between * factor,
            within=None if self.within is None else self.within * factor,
            inner=self.inner * factor,
        )

    def heavy_tailed(self, share: float = 0.03) -> Noise:
        """Return it with one-sided outliers among the invocations, as background work makes them."""
        return replace(self, tail=share)


def gaussian(std: float, rng: np.random.Generator) -> Noise:
    """Return normal noise of one size between processes; inferences add nothing."""
    draws = rng.standard_normal(20_000)
    between = std * (draws - draws.mean()) / draws.std()
    return Noise(
        name=f"normal, {100 * std:.1f} %",
        source="drawn",
        is_virtual=False,
        between=between,
        within=None,
        inner=np.zeros(len(between)),
        latency_us=10_000.0,
    )


def drift(
    rng: np.random.Generator, count: int, *, ramp: float = 0.03, step: float = 0.002
) -> Floats:
    """Return a phone's own course over ``count`` invocations: it heats up (log ramp up to ``ramp``)
    and wanders."""
    return np.linspace(0, rng.uniform(0, ramp), count) + np.cumsum(
        rng.standard_normal(count) * step
    )


def recorded() -> list[Noise]:
    """Return every series of noise.json."""
    data = json.loads((HERE / "noise.json").read_text())
    return [_noise(series) for series in data["series"]]


def nearer(row: dict) -> float:
    """Return how far the nearer of p5 and p95 is from the median."""
    return min(row["median_us"] - row["p5_us"], row["p95_us"] - row["median_us"])


def _noise(series: dict) -> Noise:
    rows = series["invocations"]
    if "samples_us" in rows[0]:
        samples = np.log([row["samples_us"] for row in rows])
        medians = np.median(samples, axis=1)
        within = np.sort(samples - medians[:, None], axis=1)
        # The nearer percentile: slow inferences say nothing of the median.
        inner = (
            np.minimum(-np.quantile(within, 0.05, axis=1), np.quantile(within, 0.95, axis=1))
            / MEDIAN_TO_P95
        )
    else:
        medians = np.log([row["median_us"] for row in rows])
        within = None
        inner = np.array([nearer(row) / MEDIAN_TO_P95 / row["median_us"] for row in rows])
    return Noise(
        name=series["name"],
        source=series["source"],
        is_virtual=series["virtual"],
        between=medians - medians.mean(),
        within=within,
        inner=inner,
        latency_us=float(np.exp(medians.mean())),
    )
