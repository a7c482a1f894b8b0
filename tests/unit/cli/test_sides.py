"""Whatever two sides of an A/B comparison may differ in, the command understands it before it looks for a phone."""

import pytest

from orchestrator.app.pairing import KINDS
from tests.samples.command import Cli
from tests.samples.places import MODELS

MODEL, OTHER = sorted(MODELS.glob("*.tflite"))
SIDES = {
    "build": ("build:benchmark_model", "build:benchmark_model_plus_flex"),
    "model": (f"model:{MODEL}", f"model:{OTHER}"),
    "flags": ("flags:use_caching=true", "flags:use_caching=false"),
    "delegate": ("delegate:gpu", "delegate:xnnpack"),
    "threads": ("threads:1", "threads:4"),
    "tool": ("tool:native", "tool:apk"),
    "mode": ("mode:shell", "mode:top-app"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_side_is_understood(tmp_path, kind):
    model = () if kind == "model" else ("-m", MODEL)
    done = Cli(home=tmp_path)("ab", *SIDES[kind], *model, "-s", "NOT-THERE")
    assert "no adb server answers" in done.ended_with(3).stderr
