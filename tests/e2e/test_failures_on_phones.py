"""What a phone's own log says of a failed run: SELinux denials and apps that don't respond, from fault to code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import Lab

pytestmark = pytest.mark.xdist_group("e2e")


def test_a_model_that_selinux_denies_the_app_is_told_as_a_denial(lab: Lab, model: Path) -> None:
    lab.fault(lab.serials[0], "selinux-denial", "subject=*.tflite")
    result = lab.cli("bench", model, "-s", lab.serials[0], "--tool", "apk", "-n", "1", "--json")
    assert result.exit_code == 1
    (run,) = result.json["runs"]
    assert (run["outcome"], run["reason_code"]) == ("failed", "selinux-denied")
    assert run["reason"].startswith(f'avc: denied {{ read }} for name="{model.name}"')
    assert "untrusted_app" in run["reason"]


def test_an_app_that_does_not_respond_is_told_with_android_s_reason(lab: Lab, model: Path) -> None:
    lab.fault(lab.serials[0], "not-responding")
    (run,) = lab.cli("bench", model, "-s", lab.serials[0], "--tool", "apk", "-n", "1", "--json").json["runs"]
    assert (run["outcome"], run["reason_code"]) == ("failed", "app-not-responding")
    assert "Input dispatching timed out" in run["reason"]
    assert lab.shell(lab.serials[0], "pidof org.tensorflow.lite.benchmark") == ""


def test_an_app_that_hangs_for_good_is_stopped_at_its_time_and_the_anr_told(lab: Lab, model: Path) -> None:
    lab.fault(lab.serials[0], "not-responding", "seconds=0")
    words = ("--tool", "apk", "-n", "1", "--timeout", "3", "--max-secs", "0.5", "--min-secs", "0.1", "--json")
    (run,) = lab.cli("bench", model, "-s", lab.serials[0], *words).json["runs"]
    assert (run["outcome"], run["reason_code"]) == ("timed-out", "timed-out")
    assert "ANR in org.tensorflow.lite.benchmark" in run["reason"]
    assert lab.shell(lab.serials[0], "pidof org.tensorflow.lite.benchmark") == ""
