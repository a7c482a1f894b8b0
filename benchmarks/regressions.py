"""How well changes are found, against a fixed threshold and Mann-Whitney, on series of known truth.

    python benchmarks/regressions.py [--series 300] [--seed 20261122]

Simulated nights: lognormal noise of a stated night-to-night size, 70 % of its variance white and 30
% AR(1) with rho 0.8 (heat), 2 % one-sided outliers of +5 to +40 %, a step at night 100 of 150.
Every detector looks every night from the 90th on, at what it would have seen then. Found: an alarm
in the step's direction within 14 nights of it. Candidates: alarms on series without a step, those
within 14 nights of each other counted once, for 1,000 series-nights. "under 1.5 %" is noise drawn
log-uniformly from 0.3 to 1.5 %. Every candidate is then run again side by side: 40 simulated pairs,
each invocation 1.5 % off, 3 % of them outliers, drifting heat, judged as 'compare --ab' does.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

import numpy as np

from orchestrator.analysis.effect import compare_pairs, threshold_for
from orchestrator.extensions.history.changepoint import (
    PENALTY,
    backtrack,
    best_cuts,
    changes,
    is_alarm,
)
from orchestrator.records.verdict import ChangeRule, ComparisonOutcome

STEP, NIGHTS, FIRST, SPAN, WINDOW = 100, 150, 90, 14, 90
#: Alarms: series x nights, -1 faster, 1 slower, 0 none.
Detector = Callable[[np.ndarray], np.ndarray]


def simulated(
    generator: np.random.Generator, count: int, cv: np.ndarray, step: float
) -> np.ndarray:
    """Return night figures of series, whose noise is given for each, with a step of a relative
    size."""
    white = generator.normal(0, 1, (count, NIGHTS))
    drift = np.empty((count, NIGHTS))
    drift[:, 0] = generator.normal(0, 1, count)
    for night in range(1, NIGHTS):
        drift[:, night] = 0.8 * drift[:, night - 1] + 0.6 * generator.normal(0, 1, count)
    logs = cv[:, None] * (np.sqrt(0.7) * white + np.sqrt(0.3) * drift)
    outlier = generator.random((count, NIGHTS)) < 0.02
    logs += np.where(outlier, np.log1p(generator.uniform(0.05, 0.40, (count, NIGHTS))), 0.0)
    logs[:, STEP:] += np.log1p(step)
    return 10_000 * np.exp(logs)


def partitioning(penalty: float) -> Detector:
    """Return our detector with a penalty."""

    def detect(latency: np.ndarray) -> np.ndarray:
        alarms = np.zeros(latency.shape, dtype=int)
        for night in range(FIRST, NIGHTS):
            seen = latency[:, max(0, night + 1 - WINDOW) : night + 1]
            for change in changes(seen, penalty=penalty):
                if is_alarm(change, nights=seen.shape[1]):
                    alarms[change.series, night] = 1 if change.ratio > 1 else -1
        return alarms

    return detect


def fixed_threshold(latency: np.ndarray) -> np.ndarray:
    """Alarm when the newest night is 5 % off the median of the 20 nights before it."""
    alarms = np.zeros(latency.shape, dtype=int)
    for night in range(FIRST, NIGHTS):
        ratio = latency[:, night] / np.median(latency[:, night - 20 : night], axis=1)
        alarms[:, night] = np.where(ratio > 1.05, 1, np.where(ratio < 1 / 1.05, -1, 0))
    return alarms


def mann_whitney(latency: np.ndarray) -> np.ndarray:
    """Alarm when Mann-Whitney's z of the last 5 nights against the 20 before them is over 3.26."""
    alarms = np.zeros(latency.shape, dtype=int)
    for night in range(FIRST, NIGHTS):
        new, old = latency[:, night - 4 : night + 1], latency[:, night - 24 : night - 4]
        u = (new[:, :, None] > old[:, None, :]).sum(axis=(1, 2))
        z = (u - 50) / np.sqrt(5 * 20 * 26 / 12)
        alarms[:, night] = np.where(z > 3.26, 1, np.where(z < -3.26, -1, 0))
    return alarms


DETECTORS: dict[str, Detector] = {
    **{f"partitioning ({penalty:g})": partitioning(penalty) for penalty in (14.0, PENALTY, 36.0)},
    "fixed 5 % threshold": fixed_threshold,
    "Mann-Whitney 5 v 20": mann_whitney,
}


def found(alarms: np.ndarray, step: float) -> tuple[float, float]:
    """Return the share of series with an alarm of the step's direction within 14 nights, and the
    median delay."""
    hit = alarms[:, STEP : STEP + SPAN] == (1 if step > 0 else -1)
    is_found = hit.any(axis=1)
    delay = np.argmax(hit, axis=1)[is_found]
    return float(is_found.mean()), float(np.median(delay)) + 1 if delay.size else float("nan")


def candidates(alarms: np.ndarray) -> int:
    """Return the number of alarms, those within 14 nights of the first counted once."""
    total = 0
    for row in alarms:
        last = -SPAN - 1
        for night in np.flatnonzero(row):
            if night - last > SPAN:
                total += 1
                last = night
    return total


def confirmations(
    generator: np.random.Generator, count: int, ratio: float, pairs: int = 40
) -> float:
    """Return the share of A/B reruns of a true ratio whose verdict is "slower"."""
    slower = 0
    for _ in range(count):
        noise = generator.normal(0, 0.015, (pairs, 2))
        noise += np.where(
            generator.random((pairs, 2)) < 0.03, generator.uniform(0.03, 0.3, (pairs, 2)), 0
        )
        heat = np.cumsum(generator.normal(0, 0.03 / pairs, 2 * pairs)).reshape(pairs, 2)
        heat = np.where(generator.random(pairs)[:, None] < 0.5, heat[:, ::-1], heat)
        latency = 10_000 * np.exp(noise + heat)
        verdict = compare_pairs(
            latency[:, 0].tolist(),
            (latency[:, 1] * ratio).tolist(),
            ChangeRule(threshold=threshold_for(max(0.01, (ratio - 1) / 2))),
        )
        slower += verdict.outcome is ComparisonOutcome.SLOWER
    return slower / count


def like_ruptures(generator: np.random.Generator, count: int) -> str:
    """Return how many series have the very same cuts as ruptures' KernelCPD, in squared sigmas of
    white noise."""
    try:
        import ruptures
    except ModuleNotFoundError:
        return "ruptures isn't installed"
    z = generator.normal(0, 1, (count, WINDOW))
    z[: count // 2, 60:] += 3.0
    lengths = np.full(count, WINDOW)
    came_from = best_cuts(z, lengths, penalty=PENALTY, correlation=np.zeros(count))
    ours = [backtrack(came_from[:, series], WINDOW) for series in range(count)]
    theirs = [
        ruptures.KernelCPD(kernel="linear", min_size=3)
        .fit(row.reshape(-1, 1))
        .predict(pen=PENALTY)[:-1]
        for row in z
    ]
    return f"{sum(one == other for one, other in zip(ours, theirs, strict=True))} of {count}"


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--series", type=int, default=300)
    parser.add_argument("--seed", type=int, default=20261122)
    parser.add_argument("--reruns", type=int, default=2000)
    options = parser.parse_args()
    generator = np.random.default_rng(options.seed)
    count = options.series
    noises = {
        "under 1.5 %": np.exp(generator.uniform(np.log(0.003), np.log(0.015), count)),
        "1 %": np.full(count, 0.01),
        "2 %": np.full(count, 0.02),
        "3 %": np.full(count, 0.03),
    }
    table = {}
    for noise, cv in noises.items():
        quiet = simulated(generator, count, cv, 0.0)
        stepped = {
            step: simulated(generator, count, cv, step) for step in (0.03, 0.05, 0.10, -0.05)
        }
        for name, detect in DETECTORS.items():
            row = {
                "candidates_per_1000": round(
                    1000 * candidates(detect(quiet)) / (count * (NIGHTS - FIRST)), 2
                )
            }
            for step, latency in stepped.items():
                share, delay = found(detect(latency), step)
                row[f"{step:+.0%}"] = f"{100 * share:.1f} %, {delay:.0f} nights"
            table[f"noise {noise}: {name}"] = row
    false = confirmations(generator, options.reruns, 1.0)
    rerun = {
        f"{ratio}": confirmations(generator, options.reruns // 5, ratio)
        for ratio in (1.03, 1.05, 1.1)
    }
    most = max(row["candidates_per_1000"] for name, row in table.items() if "default" in name)
    print(
        json.dumps(
            {
                "table": table,
                "rerun_confirms": {"no change": false, **rerun},
                "false_alarms_per_1000_after_rerun": most * false * 2,
                "cuts_identical_to_ruptures": like_ruptures(generator, count),
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
