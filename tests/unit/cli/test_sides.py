"""Whatever two sides of an A/B comparison may differ in, the command understands it before it looks for a phone."""

import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.cli.pairing import KINDS

BENCHFARM = Path(sys.executable).with_name("benchfarm")
MODEL, OTHER = sorted((Path(__file__).parents[3] / "orchestrator" / "models" / "samples").glob("*.tflite"))
SIDES = {
    "build": ("build:benchmark_model", "build:benchmark_model_plus_flex"),
    "model": (f"model:{MODEL}", f"model:{OTHER}"),
    "flags": ("flags:use_caching=true", "flags:use_caching=false"),
    "delegate": ("delegate:gpu", "delegate:xnnpack"),
    "threads": ("threads:1", "threads:4"),
    "tool": ("tool:native", "tool:apk"),
    "mode": ("mode:shell", "mode:top-app"),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    yield folder
    # Looking for the phone may have started an adb server.
    subprocess.run([BENCHFARM, "--home", folder, "adb", "stop"], check=True, capture_output=True, timeout=60)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_side_is_understood(home, kind):
    model = () if kind == "model" else ("-m", MODEL)
    done = subprocess.run(
        [BENCHFARM, "--home", home, "compare", "--ab", *SIDES[kind], *model, "-s", "VIRTUAL-NOT-THERE"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "VIRTUAL-NOT-THERE" in done.stderr
    assert done.returncode == 3
