"""Bias and coverage of the pass energy: blocks of virtual rails, and of a virtual fuel gauge, whose
truth is known.

    python benchmarks/energy.py [--experiments 1000]

Each experiment is a case of 6 blocks. Between blocks the work's power and the latency differ by 1.5
and 1 % (log-normal), and so does the phone's rest; within one the power is noisy and the rest
drifts. A meter is read every 250 ms: rails count whole microjoules, the gauge tells whole
milliamperes with 1 % of noise. Told are the bias of the mean net energy, and how often its 95 %
interval holds the truth.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Callable

from orchestrator.analysis.effect import mean_of
from orchestrator.extensions.energy.figure import (
    BatterySample,
    Inferences,
    Marks,
    NoEnergyError,
    battery_energy,
    rails_energy,
)

BLOCKS = 6
WORK_W, REST_W, PERIOD_S = 2.3, 0.4, 0.00374
TRUTH_UJ = WORK_W * PERIOD_S * 1e6
STEP_S = 0.25


def powers(noise: random.Random, marks: Marks, work_w: float) -> list[tuple[float, float]]:
    """Return time and watts, a step each: the rest's level and drift, and the work above it."""
    level = REST_W * (1 + noise.gauss(0, 0.05))
    slope = noise.gauss(0, 0.0002)
    at_s, found = marks.rest_s - 1 + noise.random() * STEP_S, []
    while at_s < marks.over_s + 1:
        rest = level + slope * (at_s - marks.rest_s)
        share = max(0.0, min(at_s + STEP_S, marks.end_s) - max(at_s, marks.work_s)) / STEP_S
        found.append(
            (at_s, rest * (1 + noise.gauss(0, 0.03)) + share * work_w * (1 + noise.gauss(0, 0.03)))
        )
        at_s += STEP_S
    return found


def rails(noise: random.Random) -> float:
    """Return the net energy of one block by rails."""
    work_w, period_s = (
        WORK_W * math.exp(noise.gauss(0, 0.015)),
        PERIOD_S * math.exp(noise.gauss(0, 0.01)),
    )
    marks = Marks(rest_s=100.0, work_s=130.0, end_s=164.0, over_s=194.0)
    counters: dict[str, list[tuple[float, float]]] = {"S2M_VDD_CPUCL2": [], "S5M_VDD_INT": []}
    energy = dict.fromkeys(counters, 1e9)
    for at_s, watts in powers(noise, marks, work_w):
        for name, share in (("S2M_VDD_CPUCL2", 0.8), ("S5M_VDD_INT", 0.2)):
            counters[name].append((round(at_s, 3), math.floor(energy[name])))
            energy[name] += watts * share * STEP_S * 1e6
    return rails_energy(
        counters, marks, Inferences(count=round(33 / period_s), period_s=period_s)
    ).net_uj


def battery(noise: random.Random) -> float:
    """Return the net energy of one block by a gauge in milliamperes, positive while discharging,
    new every 500 ms."""
    work_w, period_s = (
        WORK_W * math.exp(noise.gauss(0, 0.015)),
        PERIOD_S * math.exp(noise.gauss(0, 0.01)),
    )
    marks = Marks(rest_s=100.0, work_s=160.0, end_s=494.0, over_s=554.0)
    samples, charge_uah, told, mean_w = [], 2e6, 0.0, 0.0
    for number, (at_s, watts) in enumerate(powers(noise, marks, work_w)):
        if number % 2 == 0:
            told = round(mean_w / 2 / 4.0 * 1e3 * (1 + noise.gauss(0, 0.01)))
            mean_w = 0.0
        mean_w += watts
        samples.append(
            BatterySample(
                at_s=at_s, current=told, voltage_uv=4e6, charge_uah=10 * round(charge_uah / 10)
            )
        )
        charge_uah -= watts / 4.0 * 1e6 * STEP_S / 3600
    inferences = Inferences(count=round(330 / period_s), period_s=period_s)
    return battery_energy(samples, marks, inferences, is_charged=False).net_uj


def tried(block: Callable[[random.Random], float], experiments: int) -> str:
    """Return bias and coverage of so many experiments."""
    noise = random.Random(1)
    held, means, none = 0, [], 0
    for _ in range(experiments):
        values = []
        for _ in range(BLOCKS):
            try:
                values.append(block(noise))
            except NoEnergyError:
                none += 1
        mean = mean_of(values)
        assert mean is not None
        assert mean.half_width is not None
        means.append(mean.value)
        # The truth of a population of blocks: the mean of a log-normal product.
        truth = TRUTH_UJ * math.exp((0.015**2 + 0.01**2) / 2)
        held += abs(mean.value - truth) <= mean.half_width
    bias = statistics.fmean(means) / (TRUTH_UJ * math.exp((0.015**2 + 0.01**2) / 2)) - 1
    return f"bias {bias:+.2%}, coverage {held / experiments:.1%} of {experiments}, blocks without a figure {none}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--experiments", type=int, default=1000)
    count = parser.parse_args().experiments
    print(f"rails:   {tried(rails, count)}")
    print(f"battery: {tried(battery, count // 3)}")
