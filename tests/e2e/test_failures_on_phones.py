"""What a phone's own log says of a failed run: SELinux denials and apps that don't respond, from
fault to code."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchfarm_virtual.samples import benchmark_apk
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


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("INSTALL_FAILED_USER_RESTRICTED: Install canceled by user", "Install via USB"),
        ("INSTALL_FAILED_USER_RESTRICTED: Invalid apk", "Install via USB"),
        ("INSTALL_FAILED_VERIFICATION_FAILURE: Install not allowed", "Auto Blocker"),
        ("INSTALL_FAILED_ABORTED: User rejected permissions", "look at its screen"),
        ("INSTALL_FAILED_ABORTED: Permission denied", "look at its screen"),
    ],
)
def test_a_phone_that_refuses_an_install_is_told_with_its_words_and_the_next_step(
    lab: Lab, model: Path, tmp_path: Path, text: str, step: str
) -> None:
    serial = lab.serials[0]
    lab.shell(serial, "pm uninstall org.tensorflow.lite.benchmark")
    lab.fault(serial, "install-refused", f"text={text}")
    words = ("-d", "xnnpack", "-t", "1", "-s", serial, "--tool", "apk", "-n", "1")
    page = tmp_path / "report.html"
    (run,) = lab.cli("bench", model, *words, "--out", page, "--json").ended_with(1).json["runs"]
    assert (run["outcome"], run["reason_code"]) == ("failed", "install")
    assert text in run["reason"]
    assert step in page.read_text("utf-8")


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("Could not set capabilities: Operation not permitted", "forbids run-as"),
        ("setegid(AID_PACKAGE_INFO) failed: Operation not permitted", "set-uid"),
        ("unknown package: org.tensorflow.lite.benchmark", "installed for the user"),
    ],
)
def test_an_app_s_run_keeps_its_figure_where_run_as_is_refused_and_each_cause_is_told(
    lab: Lab, model: Path, tmp_path: Path, text: str, step: str
) -> None:
    serial, page = lab.serials[0], tmp_path / "report.html"
    lab.fault(serial, "run-as-refused", f"text={text}")
    words = ("-d", "xnnpack", "-t", "1", "-s", serial, "--tool", "apk", "-n", "1")
    (run,) = lab.cli("bench", model, *words, "--out", page, "--json").json["runs"]
    assert (run["outcome"], run["report"]["inference"]["mean_us"] > 0) == ("completed", True)
    (finding,) = (item for item in run["verdict"]["findings"] if item["code"] == "files-refused")
    assert text in finding["evidence"]
    assert step in finding["evidence"]
    assert step in page.read_text("utf-8")


def test_an_app_whose_files_are_refused_has_its_figure_and_the_report_says_why(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    serial, apk, page = lab.serials[0], tmp_path / "release.apk", tmp_path / "report.html"
    lab.shell(serial, "pm uninstall org.tensorflow.lite.benchmark")
    apk.write_bytes(benchmark_apk(debuggable=False))
    words = ("-d", "xnnpack", "-t", "1", "-s", serial, "--tool", "apk", "-n", "1")
    try:
        done = lab.cli("bench", model, *words, "--build", f"apk={apk}", "--out", page, "--json")
        (run,) = done.json["runs"]
        assert (run["outcome"], run["report"]["inference"]["mean_us"] > 0) == ("completed", True)
        (finding,) = (
            item for item in run["verdict"]["findings"] if item["code"] == "files-refused"
        )
        assert "debuggable" in finding["evidence"]
        assert "files-refused" in page.read_text("utf-8")
    finally:
        lab.shell(serial, "pm uninstall org.tensorflow.lite.benchmark")
