"""The latency model: how near it is to published figures, and what makes it faster or slower."""

from __future__ import annotations

import csv
import statistics

import numpy as np
import pytest

from benchfarm_virtual import latency
from benchfarm_virtual.delegation import (
    GPU,
    NNAPI,
    XNNPACK,
    SubgraphPlan,
    accelerator_takes,
    dynamic_outputs,
    gpu_objection,
    xnnpack_takes,
)  # fmt: skip
from benchfarm_virtual.latency import Noise, UnitSpeeds
from benchfarm_virtual.profiles import load_profile, profile_names
from tests.samples.places import REPO

PUBLISHED = REPO / "reports" / "published" / "tflite_published.csv"
BIG_CORES = {"pixel-3": 0xF0, "pixel-4": 0xF0}


def predicted_ms(subgraph, profile_name: str, configuration: str) -> float:
    """Return the model's time of a network on a cool phone, pinned to the big cores, in ms."""
    profile = load_profile(profile_name)
    threads = latency.place_threads(
        profile, threads=4, affinity=BIG_CORES[profile_name], group="shell", stray_draw=1.0
    )
    shares = dict.fromkeys(range(profile.cpu_count), 1.0)
    plan = SubgraphPlan.of(subgraph, 0)
    nodes = list(enumerate(subgraph.operators))
    device = None
    if configuration == "cpu_4_threads":
        dynamic = dynamic_outputs(subgraph)
        plan.replace(
            XNNPACK, frozenset(i for i, op in nodes if xnnpack_takes(subgraph, op, dynamic))
        )
    elif configuration == "gpu":
        taken = frozenset(
            i for i, op in nodes if gpu_objection(subgraph, op, quantized=True) is None
        )
        plan.replace(GPU, plan.largest(taken, 1))
    else:
        device = max(
            profile.nnapi,
            key=lambda d: (
                sum(accelerator_takes(subgraph, op, d, hexagon=False) for _, op in nodes)
                + max(d.f32_gmacs, d.int8_gmacs) / 1e6
            ),
        )
        plan.replace(
            NNAPI,
            frozenset(
                i for i, op in nodes if accelerator_takes(subgraph, op, device, hexagon=False)
            ),
        )
    speeds = UnitSpeeds(
        builtin=latency.cpu_speed(profile, threads, shares, xnnpack=False),
        xnnpack=latency.cpu_speed(profile, threads, shares, xnnpack=True),
        gpu=latency.gpu_speed(profile.gpu, 1.0, fp16=True, backend="cl"), gpu_fixed_us=profile.gpu.fixed_us,
        accelerator=latency.accelerator_speed(device) if device else None,
        accelerator_fixed_us=device.fixed_us if device else 0.0,
    )  # fmt: skip
    return sum(work.time_us(speeds) for work in latency.plan_work(plan)) / 1e3


def published_cells() -> list[tuple[str, str, str, float]]:
    with PUBLISHED.open() as file:
        rows = list(csv.DictReader(file))
    return [
        (
            row["model"],
            row["device"].lower().replace(" ", "-"),
            row["configuration"],
            float(row["latency_ms"]),
        )
        for row in rows
        if row["device"].startswith("Pixel") and row["latency_ms"]
    ]


def test_pixel_phones_come_out_near_the_published_table(networks):
    errors = {}
    graphs = {name: build() for name, build in networks.PUBLISHED.items()}
    for model, device, configuration, published_ms in published_cells():
        found_ms = predicted_ms(graphs[model], device, configuration)
        errors[model, device, configuration] = found_ms / published_ms - 1
    assert len(errors) == 32
    far = {cell: f"{error:+.0%}" for cell, error in errors.items() if abs(error) > 0.25}
    assert not far
    assert statistics.median(abs(error) for error in errors.values()) < 0.10


def test_networks_have_the_multiply_adds_that_their_papers_say(networks):
    expected = {
        "Mobilenet_1.0_224(float)": 569e6, "NASNet mobile": 564e6, "SqueezeNet": 837e6, "Inception_ResNet_V2": 13.2e9,
        "Inception_V4": 12.3e9,
    }  # fmt: skip
    for name, macs in expected.items():
        graph = networks.PUBLISHED[name]()
        assert sum(graph.macs(op) for op in graph.operators) == pytest.approx(macs, rel=0.06)


@pytest.mark.parametrize("name", profile_names())
def test_more_threads_and_higher_clocks_are_faster_on_every_phone(name, networks):
    profile = load_profile(name)
    works = [latency.op_work(g, op) for g in [networks.mobilenet_v1()] for op in g.operators]

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


def test_builtin_kernels_collapse_with_more_threads_than_cores(networks):
    profile = load_profile("pixel-3")
    shares = dict.fromkeys(range(8), 1.0)
    placed = latency.place_threads(profile, threads=4, affinity=0x30, group="shell", stray_draw=1.0)
    enough = latency.place_threads(profile, threads=2, affinity=0x30, group="shell", stray_draw=1.0)
    work = latency.op_work(networks.mobilenet_v1(), networks.mobilenet_v1().operators[0])
    builtin = [
        latency.cpu_speed(profile, p, shares, xnnpack=False).op_us(work) for p in (placed, enough)
    ]
    pooled = [
        latency.cpu_speed(profile, p, shares, xnnpack=True).op_us(work) for p in (placed, enough)
    ]
    assert builtin[0] > 10 * builtin[1]
    assert 1.0 < pooled[0] / pooled[1] < 2.0


def test_threads_stay_within_the_affinity_mask():
    profile = load_profile("pixel-4")
    placed = latency.place_threads(profile, threads=4, affinity=0x0F, group="shell", stray_draw=0.0)
    assert set(placed.cpus) <= {0, 1, 2, 3}
    assert latency.place_threads(
        profile, threads=1, affinity=0xFF, group="shell", stray_draw=1.0
    ).cpus == (7,)


def test_noise_is_the_same_from_the_same_seed_and_differs_between_processes():
    first, again, other = (
        Noise(5).samples_us(1000, 400),
        Noise(5).samples_us(1000, 400),
        Noise(6).samples_us(1000, 400),
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_noise_has_a_heavy_tail_and_a_hard_floor():
    values = Noise(3).samples_us(20_000, 20_000)
    median = float(np.median(values))
    assert float(values.min()) > 0.97 * median
    assert float(np.quantile(values, 0.999)) > 1.1 * median
    assert float(values.mean()) > median
