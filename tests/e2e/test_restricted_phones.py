"""Phones whose maker keeps their shell user from settings or keys: measured night after night, and
told."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import Lab

LIMITS = ("-d", "xnnpack", "-t", "1", "-n", "2", "--min-secs", "0.1", "--max-secs", "0.5")
SETTING = "settings get global stay_on_while_plugged_in"


@pytest.mark.parametrize(
    "subjects", [("settings",), ("input",), ("settings", "input", "svc")], ids=",".join
)
@pytest.mark.parametrize("is_asleep", [False, True], ids=["awake", "asleep"])
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
            done = lab.cli("bench", model, "-s", restricted, *LIMITS, "--json").ended_with(
                int(is_off)
            )
            assert [run["outcome"] for run in done.json["runs"]] == ["completed"] * 2
            assert "can't be restored" not in done.stderr
            step = "(shell-restricted). Turn on 'USB debugging (Security settings)'"
            assert done.stderr.count(step) == ("svc" in subjects) + is_off
        restored = lab.cli("device", "restore", restricted).ok()
        assert "can't" not in restored.stderr
        lab.cli("device", "restore").ok()
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
    serial = lab.serials[0]
    file = "/data/local/tmp/benchfarm/undo"
    lab.shell(serial, f"mkdir -p /data/local/tmp/benchfarm; echo broken >{file}")
    try:
        said = lab.cli("device", "restore").ended_with(3).stdout
        assert f"what is to be undone can't be read from {file}: line 1" in said
        assert "undo what it names, then remove it" in said
        assert lab.shell(serial, f"cat {file}") == "broken"
    finally:
        lab.shell(serial, f"rm {file}")
    lab.cli("device", "restore").ok()
