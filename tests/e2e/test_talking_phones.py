"""Phones that say more than they are asked, or less: a banner, a warning for each tool, half an
answer; the command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Lab


def bench(lab: Lab, model: Path, *words: str, exit_code: int = 0) -> Any:
    limits = ("-d", "xnnpack", "-t", "1", "-n", "2", "--min-secs", "0.1", "--max-secs", "0.5")
    return lab.cli("bench", model, *limits, *words, "--json").ended_with(exit_code).json


def test_a_linker_s_warning_for_each_tool_costs_no_run(lab: Lab, model: Path) -> None:
    for serial in lab.serials:
        lab.fault(serial, "tool-warning")
    done = bench(lab, model, "--tool", "native,apk")
    assert {
        (run["case"]["serial"], run["case"]["tool"], run["outcome"]) for run in done["runs"]
    } == {(serial, tool, "completed") for serial in lab.serials for tool in ("native", "apk")}
    assert not done["missing"]


def test_a_banner_is_no_serial_number_and_costs_no_run(lab: Lab, model: Path) -> None:
    for serial in lab.serials:
        lab.fault(serial, "banner", "text=Welcome")
    listed = lab.cli("devices", "--json").ok().json
    assert {item["serial"] for item in listed if item["usable"]} == set(lab.serials)
    done = bench(lab, model, "--tool", "native,apk")
    assert {run["outcome"] for run in done["runs"]} == {"completed"}
    assert {run["case"]["serial"] for run in done["runs"]} == set(lab.serials)


def test_a_phone_that_shows_no_properties_is_named_with_that_and_the_exit_code_says_so(
    lab: Lab, model: Path
) -> None:
    denied, other = lab.serials
    lab.fault(denied, "properties-denied")
    (row,) = (item for item in lab.cli("devices", "--json").json if not item["usable"])
    assert row["reason"] == "its properties can't be read: getprop says 'Permission denied'"
    assert row["serial"] != "Permission denied"
    done = bench(lab, model, exit_code=1)
    assert {run["case"]["serial"] for run in done["runs"]} == {other}
    assert list(done["missing"].values()) == [row["reason"]]


@pytest.mark.parametrize(
    "fault",
    [
        ("closed",),
        ("properties-denied", "times=1"),
        *(("answer-cut", f"bytes={size}") for size in (0, 30, 150, 400, 2000, 6000)),
    ],
    ids=" ".join,
)
def test_a_phone_that_fails_to_answer_once_is_asked_again(
    lab: Lab, model: Path, fault: tuple[str, ...]
) -> None:
    lab.fault(lab.serials[0], *fault)
    done = bench(lab, model)
    assert {run["case"]["serial"] for run in done["runs"]} == set(lab.serials)
    assert {run["outcome"] for run in done["runs"]} == {"completed"}


@pytest.mark.parametrize(
    "fault", [("closed", "times=0"), ("answer-cut", "bytes=0", "times=0")], ids=" ".join
)
def test_a_phone_that_never_answers_whole_is_named_and_the_exit_code_says_so(
    lab: Lab, model: Path, fault: tuple[str, ...]
) -> None:
    mute, other = lab.serials
    lab.fault(mute, *fault)
    done = bench(lab, model, exit_code=1)
    assert {run["case"]["serial"] for run in done["runs"]} == {other}
    assert len(done["missing"]) == 1
    said = (
        lab.cli("bench", model, "-d", "xnnpack", "-n", "1", "--min-secs", "0.1")
        .ended_with(1)
        .stdout
    )
    assert sum("not measured" in line for line in said.splitlines()) == 1


def test_an_app_that_failed_is_not_waited_for_until_its_limit_because_others_log(
    lab: Lab, model: Path
) -> None:
    lab.fault(lab.serials[0], "selinux-denial", "subject=*.tflite")
    lab.fault(lab.serials[0], "noisy-log", "lines_per_s=20")
    words = ("--tool", "apk", "--timeout", "25", "-s", lab.serials[0], "-n", "1")
    (run,) = bench(lab, model, *words, exit_code=1)["runs"]
    assert (run["outcome"], run["reason_code"]) == ("failed", "selinux-denied")
    assert run["duration_s"] < 25
