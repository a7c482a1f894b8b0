"""Fake programs whose version says how fast they are."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from benchfarm_virtual.programs.process import time_factor_of


@pytest.mark.parametrize(
    ("version", "factor"),
    [
        ("virtual", 1.0),
        ("2.1 time+3%", 1.03),
        ("time-12.5%", 0.875),
        ("2.1 time+3", 1.0),
        ("uptime+3%", 1.0),
        ("time+3%x", 1.0),
        ("time-99%", 0.05),
        ("", 1.0),
    ],
)
def test_a_version_says_how_long_inferences_take(version: str, factor: float) -> None:
    assert time_factor_of(version) == pytest.approx(factor)


def inference_us(text: str) -> float:
    found = re.search(r"Inference \(avg\): ([0-9.e+]+)", text)
    assert found is not None, text
    return float(found[1])


@pytest.mark.parametrize("is_app", [False, True])
def test_a_marked_program_takes_that_much_longer_on_a_phone(
    bench_phone: Callable[..., Any], models: ModuleType, is_app: bool
) -> None:
    latencies_us = []
    for version in ("1", "1 time+25%"):
        phone = bench_phone()
        phone.version = version
        path = phone.put("m.tflite", models.tiny_cnn())
        if is_app:
            phone.run(group="top-app", extras={"args": f"--graph={path} --num_threads=1"})
            text = "\n".join(entry.message.decode() for entry in phone.logs.entries(["main"]))
        else:
            text = phone.run(f"--graph={path}", "--num_threads=1").text
        latencies_us.append(inference_us(text))
    # Both phones draw the same noise.
    assert latencies_us[1] / latencies_us[0] == pytest.approx(1.25, abs=0.03)
