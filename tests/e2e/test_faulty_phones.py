"""Phones that fail, refuse or say more than they are asked: each cause is told, and costs no more than it must."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Lab
from tests.samples.command import heard


def test_an_app_that_hangs_for_good_is_stopped_at_its_time_and_the_anr_told(
    lab: Lab, model: Path
) -> None:
    lab.fault(lab.serial, "not-responding", "seconds=0")
    words = "--tool apk -n 1 --timeout 10 --max-secs 0.5 --min-secs 0.1 --json"
    (run,) = lab.cli(f"bench -d xnnpack {words} -s {lab.serial}", model).json["runs"]
    assert (run["outcome"], run["reason_code"]) == ("timed-out", "timed-out")
    assert "ANR in org.tensorflow.lite.benchmark" in run["reason"]
    assert lab.shell(lab.serial, "pidof org.tensorflow.lite.benchmark") == ""


def test_a_program_that_hangs_is_told_with_how_far_it_came_and_what_may_help(
    lab: Lab, model: Path
) -> None:
    lab.fault(lab.serial, "program-hang", "moment=results")
    words = f"-s {lab.serial} -n 1 --timeout 3 --max-secs 0.5"
    said = " ".join(lab.cli(f"bench -d xnnpack {words} --min-secs 0.1", model).stdout.split())
    assert "stopped at its time limit; its measurement had begun. Raise the timeout if" in said
    assert "if not, program or driver hangs: try another delegate or build" in said


@pytest.mark.parametrize("tool", ["native", "apk"])
def test_files_that_are_removed_from_a_phone_in_mid_run_are_sent_again_and_cost_no_run(
    lab: Lab, model: Path, tool: str
) -> None:
    serial = lab.serial
    words = f"-t 1 -n 3 --min-secs 40 --tool {tool}"
    process = lab.cli.start(f"bench -d xnnpack --json {words} -s {serial}", model)
    heard(process, "1/3 ")
    gone = "pm uninstall org.tensorflow.lite.benchmark"
    lab.shell(serial, gone if tool == "apk" else "rm -rf /data/local/tmp/benchfarm")
    stdout, stderr = process.communicate(timeout=60)
    assert [run["outcome"] for run in json.loads(stdout)["runs"]] == 3 * ["completed"], stderr


def test_a_run_keeps_what_it_printed_where_its_files_cannot_be_sent_again(
    lab: Lab, model: Path
) -> None:
    serial = lab.serial
    words = "-t 1 -n 3 --min-secs 40 --tool apk"
    process = lab.cli.start(f"bench -d xnnpack --json {words} -s {serial}", model)
    heard(process, "1/3 ")
    lab.fault(serial, "install-refused", "text=INSTALL_FAILED_VERIFICATION_FAILURE", "times=0")
    lab.shell(serial, "pm uninstall org.tensorflow.lite.benchmark")
    stdout, stderr = process.communicate(timeout=60)
    _, second, third = json.loads(stdout)["runs"]
    assert "am start" in second["command"], stderr
    assert second["reason_code"] != third["reason_code"] == "install"


@pytest.mark.parametrize(
    ("fault", "code", "words"),
    [
        (("selinux-denial", "subject=*.tflite"), "selinux-denied", "avc: denied { read }"),
        (("segv",), "segfault", "Fatal signal 11 (SIGSEGV)"),
    ],
    ids=["selinux", "segv"],
)
def test_what_ended_a_native_program_is_told_from_the_log_of_its_time(
    lab: Lab, model: Path, fault: tuple[str, ...], code: str, words: str
) -> None:
    serial = lab.serial
    lab.fault(serial, *fault)
    done = lab.cli(f"bench -d xnnpack -n 1 --json -s {serial}", model)
    (run,) = done.json["runs"]
    assert (run["outcome"], run["reason_code"]) == ("failed", code)
    assert words in run["reason"]
    # That its files are still there is checked, and isn't told again.
    assert len(re.findall(rf"sent {model.name}|{model.name} is there", done.stderr)) == 1
    logged = lab.cli("results log --attachment logcat", run["run_id"]).ok().stdout
    assert words in logged


def test_what_ended_an_earlier_run_is_not_taken_for_the_end_of_one_after_the_clock_went_back(
    lab: Lab, model: Path
) -> None:
    serial = lab.serial
    lab.fault(serial, "low-memory")
    (run,) = lab.cli(f"bench -d xnnpack -n 1 --json -s {serial}", model).json["runs"]
    assert run["reason_code"] == "low-memory-kill"
    assert "Kill 'virtual_benchmark_model'" in run["reason"]
    # By the phone's clock, the kill is still to come.
    lab.fault(serial, "clock-jump", "seconds=-3600")
    lab.fault(serial, "segv")
    (run,) = lab.cli(f"bench -d xnnpack -n 1 --json -s {serial}", model).json["runs"]
    assert (run["outcome"], run["reason_code"]) == ("failed", "segfault")


def test_a_phone_that_refuses_an_install_is_told_with_its_words_and_the_next_step(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    text = "INSTALL_FAILED_VERIFICATION_FAILURE: Install not allowed"
    serial = lab.serial
    lab.shell(serial, "pm uninstall org.tensorflow.lite.benchmark")
    lab.fault(serial, "install-refused", f"text={text}")
    words = f"-d xnnpack -t 1 -s {serial} --tool apk -n 1"
    page = tmp_path / "report.html"
    (run,) = lab.cli(f"bench --json {words}", model, "--out", page).ended_with(1).json["runs"]
    assert (run["outcome"], run["reason_code"]) == ("failed", "install")
    assert text in run["reason"]
    assert "Auto Blocker" in page.read_text("utf-8")


def test_an_app_s_run_keeps_its_figure_where_run_as_is_refused_and_the_cause_is_told(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    text, step = "unknown package: org.tensorflow.lite.benchmark", "installed for the user"
    serial, page = lab.serial, tmp_path / "report.html"
    lab.fault(serial, "run-as-refused", f"text={text}")
    words = f"-d xnnpack -t 1 -s {serial} --tool apk -n 1"
    (run,) = lab.cli(f"bench --json {words}", model, "--out", page).json["runs"]
    assert (run["outcome"], run["report"]["inference"]["mean_us"] > 0) == ("completed", True)
    (finding,) = (item for item in run["verdict"]["findings"] if item["code"] == "files-refused")
    assert text in finding["evidence"]
    assert step in finding["evidence"]
    assert step in page.read_text("utf-8")


LIMITS = "-d xnnpack -t 1 -n 2 --min-secs 0.1 --max-secs 0.5"
SETTING = "settings get global stay_on_while_plugged_in"


@pytest.mark.parametrize(
    ("subjects", "is_asleep"),
    [(("settings",), False), (("settings", "input", "svc"), True)],
)
def test_a_phone_that_refuses_its_shell_is_measured_twice_in_a_row_and_owes_nothing_afterwards(
    lab: Lab, model: Path, subjects: tuple[str, ...], is_asleep: bool
) -> None:
    restricted, _ = lab.serials
    if is_asleep:
        lab.shell(restricted, "input keyevent KEYCODE_SLEEP")
    lab.shell(restricted, "settings put global stay_on_while_plugged_in 2")
    for subject in subjects:
        lab.fault(restricted, "shell-restricted", f"subject={subject}")
    try:
        for _ in range(2):
            # No way is left to have the screen on, without which a figure isn't one of the series.
            is_off = is_asleep and "svc" in subjects
            done = lab.cli(f"bench --json {LIMITS} -s {restricted}", model).ended_with(int(is_off))
            assert [run["outcome"] for run in done.json["runs"]] == ["completed"] * 2
            assert "can't be restored" not in done.stderr
            step = "(shell-restricted). Turn on 'USB debugging (Security settings)'"
            assert done.stderr.count(step) == ("svc" in subjects) + is_off
        restored = lab.cli("device restore", restricted).ok()
        assert "can't" not in restored.stderr
        lab.cli("device restore").ok()
        assert lab.shell(restricted, SETTING) == "2"
        lab.clear()
        assert lab.shell(restricted, "ls /data/local/tmp/benchfarm").split() == [
            "models",
            "programs",
            "runs",
        ]
        assert not list((lab.cli.home / "state/journals").glob("*.undo"))
    finally:
        lab.clear()
        lab.shell(
            restricted,
            "input keyevent KEYCODE_WAKEUP; settings put global stay_on_while_plugged_in 0",
        )


def test_a_phone_whose_own_list_of_changes_can_not_be_read_is_named(lab: Lab) -> None:
    serial = lab.serial
    file = "/data/local/tmp/benchfarm/undo"
    lab.shell(serial, f"mkdir -p /data/local/tmp/benchfarm; echo broken >{file}")
    try:
        said = lab.cli("device restore").ended_with(3).stdout
        assert f"the undo file {file} can't be read: line 1" in said
        assert "undo the changes that it names, then remove it" in said
        assert lab.shell(serial, f"cat {file}") == "broken"
    finally:
        lab.shell(serial, f"rm {file}")
    lab.cli("device restore").ok()


def bench(lab: Lab, model: Path, *words: str, exit_code: int = 0) -> Any:
    return lab.cli(f"bench --json {LIMITS}", model, *words).ended_with(exit_code).json


def test_a_linker_s_warning_for_each_tool_costs_no_run(lab: Lab, model: Path) -> None:
    for serial in lab.serials:
        lab.fault(serial, "tool-warning")
    done = bench(lab, model, "--tool", "native,apk", "-n", "1")
    assert {
        (run["case"]["serial"], run["case"]["tool"], run["outcome"]) for run in done["runs"]
    } == {(serial, tool, "completed") for serial in lab.serials for tool in ("native", "apk")}
    assert not done["missing"]


def test_a_banner_is_no_serial_number_and_costs_no_run(lab: Lab, model: Path) -> None:
    for serial in lab.serials:
        lab.fault(serial, "banner", "text=Welcome")
    listed = lab.cli.json("devices")
    assert {item["serial"] for item in listed if item["usable"]} == set(lab.serials)
    done = bench(lab, model, "--tool", "native,apk", "-n", "1")
    assert {run["outcome"] for run in done["runs"]} == {"completed"}
    assert {run["case"]["serial"] for run in done["runs"]} == set(lab.serials)


def test_a_phone_that_shows_no_properties_is_named_with_that_and_the_exit_code_says_so(
    lab: Lab, model: Path
) -> None:
    denied, other = lab.serials
    lab.fault(denied, "properties-denied")
    (row,) = (item for item in lab.cli("devices --json").json if not item["usable"])
    assert row["reason"] == "its properties can't be read: getprop says 'Permission denied'"
    assert row["serial"] != "Permission denied"
    done = bench(lab, model, exit_code=1)
    assert {run["case"]["serial"] for run in done["runs"]} == {other}
    assert list(done["missing"].values()) == [row["reason"]]


@pytest.mark.parametrize(
    "fault",
    [("closed",), ("properties-denied", "times=1"), ("answer-cut", "bytes=150")],
    ids=" ".join,
)
def test_a_phone_that_fails_to_answer_once_is_asked_again(
    lab: Lab, model: Path, fault: tuple[str, ...]
) -> None:
    lab.fault(lab.serial, *fault)
    done = bench(lab, model)
    assert {run["case"]["serial"] for run in done["runs"]} == set(lab.serials)
    assert {run["outcome"] for run in done["runs"]} == {"completed"}


def test_a_phone_that_never_answers_whole_is_named_and_the_exit_code_says_so(
    lab: Lab, model: Path
) -> None:
    mute, other = lab.serials
    lab.fault(mute, "answer-cut", "bytes=0", "times=0")
    said = lab.cli("bench -d xnnpack -t 1 -n 1 --min-secs 0.1", model).ended_with(1).stdout
    assert sum("not measured" in line for line in said.splitlines()) == 1
    runs = lab.cli.json("results runs newest")
    assert {run["case"]["serial"] for run in runs} == {other}


def test_an_app_that_selinux_denies_its_model_is_not_waited_for_because_others_log(
    lab: Lab, model: Path
) -> None:
    lab.fault(lab.serial, "selinux-denial", "subject=*.tflite")
    lab.fault(lab.serial, "noisy-log", "lines_per_s=20")
    words = ("--tool", "apk", "--timeout", "25", "-s", lab.serial, "-n", "1")
    (run,) = bench(lab, model, *words, exit_code=1)["runs"]
    assert (run["outcome"], run["reason_code"]) == ("failed", "selinux-denied")
    assert run["reason"].startswith(f'avc: denied {{ read }} for name="{model.name}"')
    assert "untrusted_app" in run["reason"]
    assert run["duration_s"] < 25


FULL = ("device-storage", "there is no space left on the phone", "free some space")
REFUSED = ("folder-refused", "the phone's shell user may not write there", "ls -ld /data/local/tmp")


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (("no-space", "subject=*/runs/*"), FULL),
        (("permission-denied", "subject=/data/local/tmp/benchfarm/*"), REFUSED),
    ],
    ids=lambda value: " ".join(value),
)
def test_the_cause_is_told_and_what_to_do(
    lab: Lab, plan_file: Callable[..., Path], fault: tuple[str, ...], told: tuple[str, str, str]
) -> None:
    serial = lab.serial
    lab.fault(serial, *fault)
    runs = lab.cli("run --json", plan_file((serial,), invocations=1)).json["runs"]
    failed = [(run["reason_code"], run["reason"]) for run in runs if run["outcome"] == "failed"]
    assert failed
    code, cause, hint = told
    assert all(found == code and cause in reason and hint in reason for found, reason in failed), (
        failed
    )
