"""The latency model: what makes it faster or slower."""

from __future__ import annotations

import numpy as np
import pytest

from benchfarm_virtual import latency
from benchfarm_virtual.graph import read_graph
from benchfarm_virtual.latency import Noise, OpWork
from benchfarm_virtual.profiles import load_profile, profile_names


@pytest.fixture
def works(models) -> list[OpWork]:
    graph = read_graph(models.BY_NAME["mobilenet_v1_0.25_128_static_float.tflite"]()).subgraphs[0]
    return [latency.op_work(graph, operator) for operator in graph.operators]


@pytest.mark.parametrize("name", profile_names())
def test_more_threads_and_higher_clocks_are_faster_on_every_phone(name, works):
    profile = load_profile(name)

    def time_us(threads: int, clock: float) -> float:
        everywhere = (1 << profile.cpu_count) - 1
        placed = latency.place_threads(
            profile, threads=threads, affinity=everywhere, group="top-app", stray_draw=1.0
        )
        speed = latency.cpu_speed(
            profile, placed, dict.fromkeys(range(profile.cpu_count), clock), xnnpack=True
        )
        return sum(speed.op_us(work) for work in works)

    assert time_us(2, 1.0) < time_us(1, 1.0)
    assert time_us(1, 0.5) > 1.5 * time_us(1, 1.0)


def test_threads_stay_within_the_affinity_mask():
    profile = load_profile("pixel-4")
    placed = latency.place_threads(profile, threads=4, affinity=0x0F, group="shell", stray_draw=0.0)
    assert set(placed) <= {0, 1, 2, 3}
    assert latency.place_threads(
        profile, threads=1, affinity=0xFF, group="shell", stray_draw=1.0
    ) == (7,)


def test_noise_has_a_heavy_tail_and_a_hard_floor():
    values = Noise(3).samples_us(20_000, 20_000)
    median = float(np.median(values))
    assert float(values.min()) > 0.97 * median
    assert float(np.quantile(values, 0.999)) > 1.1 * median
    assert float(values.mean()) > median
