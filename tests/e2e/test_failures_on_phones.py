"""What a phone's own log says of a failed run: SELinux denials and apps that don't respond, from
fault to code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import Lab


def test_a_model_that_selinux_denies_the_app_is_told_as_a_denial(lab: Lab, model: Path) -> None:
    lab.fault(lab.serials[0], "selinux-denial", "subject=*.tflite")
    result = lab.cli(
        "bench", model, "-d", "xnnpack", "-s", lab.serials[0], "--tool", "apk", "-n", "1", "--json"
    )
    assert result.exit_code == 1
    (run,) = result.json["runs"]
    assert (run["outcome"], run["reason_code"]) == ("failed", "selinux-denied")
    assert run["reason"].startswith(f'avc: denied {{ read }} for name="{model.name}"')
    assert "untrusted_app" in run["reason"]


def test_an_app_that_does_not_respond_is_told_with_android_s_reason(lab: Lab, model: Path) -> None:
    lab.fault(lab.serials[0], "not-responding")
    (run,) = lab.cli(
        "bench", model, "-d", "xnnpack", "-s", lab.serials[0], "--tool", "apk", "-n", "1", "--json"
    ).json["runs"]
    assert (run["outcome"], run["reason_code"]) == ("failed", "app-not-responding")
    assert "Input dispatching timed out" in run["reason"]
    assert lab.shell(lab.serials[0], "pidof org.tensorflow.lite.benchmark") == ""


def test_an_app_that_hangs_for_good_is_stopped_at_its_time_and_the_anr_told(
    lab: Lab, model: Path
) -> None:
    lab.fault(lab.serials[0], "not-responding", "seconds=0")
    words = (
        "--tool",
        "apk",
        "-n",
        "1",
        "--timeout",
        "3",
        "--max-secs",
        "0.5",
        "--min-secs",
        "0.1",
        "--json",
    )
    (run,) = lab.cli("bench", model, "-d", "xnnpack", "-s", lab.serials[0], *words).json["runs"]
    assert (run["outcome"], run["reason_code"]) == ("timed-out", "timed-out")
    assert "ANR in org.tensorflow.lite.benchmark" in run["reason"]
    assert lab.shell(lab.serials[0], "pidof org.tensorflow.lite.benchmark") == ""


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        (("selinux-denial", "subject=*.tflite"), "selinux-denied", "avc: denied { read }"),
        (("low-memory",), "low-memory-kill", "Kill 'virtual_benchmark_model'"),
        (("segv",), "segfault", "Fatal signal 11 (SIGSEGV)"),
    ],
    ids=["selinux", "lmkd", "segv"],
)
def test_what_ended_a_native_program_is_told_from_the_log_of_its_time(
    lab: Lab, model: Path, fault: tuple[str, ...], code: str, words: str
) -> None:
    serial = lab.serials[0]
    lab.fault(serial, *fault)
    (run,) = lab.cli("bench", model, "-d", "xnnpack", "-s", serial, "-n", "1", "--json").json[
        "runs"
    ]
    assert (run["outcome"], run["reason_code"]) == ("failed", code)
    assert words in run["reason"]
    logged = lab.cli("results", "log", run["run_id"], "--attachment", "logcat").ok().stdout
    assert words in logged


def test_a_good_native_run_asks_for_no_log(lab: Lab, model: Path) -> None:
    (run,) = (
        lab.cli("bench", model, "-d", "xnnpack", "-s", lab.serials[0], "-n", "1", "--json")
        .ok()
        .json["runs"]
    )
    assert lab.cli("results", "log", run["run_id"], "--attachment", "logcat").exit_code == 2


def test_what_ended_an_earlier_run_is_not_taken_for_the_end_of_one_after_the_clock_went_back(
    lab: Lab, model: Path
) -> None:
    serial = lab.serials[0]
    lab.fault(serial, "low-memory")
    lab.cli("bench", model, "-d", "xnnpack", "-s", serial, "-n", "1")
    # By the phone's clock, the kill is still to come.
    lab.fault(serial, "clock-jump", "seconds=-3600")
    lab.fault(serial, "segv")
    (run,) = lab.cli("bench", model, "-d", "xnnpack", "-s", serial, "-n", "1", "--json").json[
        "runs"
    ]
    assert (run["outcome"], run["reason_code"]) == ("failed", "segfault")
