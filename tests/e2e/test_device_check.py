"""``benchfarm device check`` by the installed command: what it finds, what it leaves, what it
writes."""

from __future__ import annotations

import json
import re
import shutil
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.conftest import Lab

#: What a check could leave behind, as the phone itself tells it: settings, processes, files of two
#: levels.
LEFT = (
    "for n in global secure system; do settings list $n; done; "
    "ps -A -o PPID,ARGS | grep -e '[s]leep' -e '[b]enchfarm'; "
    "cd /data/local/tmp/benchfarm && ls -A . * | grep -v owner"
)


def results(lab: Lab, *words: object, exit_code: int = 0) -> dict[str, str]:
    done = lab.cli("device check --json -s", lab.serial, *words).ended_with(exit_code)
    (phone,) = done.json["phones"]
    return {item["name"]: item["result"] for item in phone["checks"]}


def test_a_sound_phone_is_left_as_it_was_and_its_report_names_no_serial_number(
    lab: Lab, tmp_path: Path
) -> None:
    serial = lab.serial
    results(lab)  # makes the folders that stay
    before = lab.shell(serial, LEFT)
    assert {"wifi_on=1", "runs"} <= set(before.splitlines())
    found = results(lab, "--out", tmp_path / "check.json")
    assert "fails" not in found.values(), found
    for name in (
        "shell",
        "sha256sum try.txt | grep 911169ddaaf146af",
        "detached run",
        "deadline",
        "programs left behind",
        "push and pull",
        "log",
    ):
        assert found[name] == "works", (name, found)
    assert lab.shell(serial, LEFT) == before
    report = (tmp_path / "check.json").read_text("utf-8")
    assert serial not in report
    assert json.loads(report)["phone"]["is_virtual"] is True
    assert {item["name"] for item in json.loads(report)["checks"]} == set(found)


def test_what_a_phone_refuses_is_told_with_what_it_costs_and_the_other_checks_are_made(
    lab: Lab,
) -> None:
    lab.fault(lab.serial, "permission-denied", "subject=/proc/stat")
    found = results(lab)
    assert found["cat /proc/stat"] == "missing"
    assert found["detached run"] == "works"
    text = lab.cli("device check -s", lab.serial).ok().stdout
    assert "the load of other processes is unknown" in text


def test_a_phone_on_which_nothing_can_be_written_fails_its_check(lab: Lab) -> None:
    lab.fault(lab.serial, "no-space", "subject=/data/local/tmp/*", "bytes=4096")
    found = results(lab, exit_code=3)
    assert found["push and pull"] == "fails"
    assert found["shell"] == "works"


def test_only_phones_are_checked_and_one_file_is_for_one_phone(lab: Lab, tmp_path: Path) -> None:
    # Before sessions are measured, which takes long.
    check = partial(lab.cli, "device check --sessions 1 -n 2")
    assert "-s SERIAL" in check("--out", tmp_path / "x.json").ended_with(2).said
    nowhere = tmp_path / "nowhere" / "x.json"
    assert f"no folder {nowhere.parent}" in check("-s", lab.serial, "--out", nowhere).said
    assert "benchfarm doctor" in check("-s host").ended_with(2).said
    assert not (tmp_path / "x.json").exists()
    assert lab.cli("results list --json").json == []


def test_equal_sides_tell_what_a_phone_can_resolve_and_the_check_repeats_it(lab: Lab) -> None:
    serial = lab.serials[1]
    short = f"-s {serial} -n 4"
    (first,) = lab.cli.json(f"device check --sessions 2 {short}")["phones"]
    (found,) = first["resolutions"]
    assert [len(session["pairs"]) for session in found["sessions"]] == [2, 2]
    # Sessions add up from day to day.
    shown = lab.cli(f"device check --sessions 1 {short}").ok().stdout
    assert f"{serial} (Google Pixel 4 (virtual))" in shown
    assert "3 sessions" in shown
    (told,) = [line.split() for line in shown.splitlines() if line.startswith("two sessions")]
    (row,) = lab.cli("compare --json").json["cases"]
    assert float(told[-2]) / 100 == pytest.approx(row["verdict"]["detectable"], rel=0.3)
    found = [line.split() for line in shown.splitlines() if line.startswith("ab, ")]
    changes = [float(words[-2]) for words in found]
    assert changes == sorted(changes, reverse=True)


def test_what_ends_a_later_session_hides_none_that_was_measured(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own.tflite"
    shutil.copy(model, own)
    process = lab.cli.start("device check --sessions 3 -s", lab.serial, "-m", own, "-n", 4)
    assert process.stderr is not None
    # The phone has the model by now; the next session doesn't find it.
    assert any(" 1/4 " in line for line in process.stderr)
    own.unlink()
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 2, stderr
    assert re.search(r"\), own, .*: 1 session, .* ms to ", stderr), stderr


def test_sessions_whose_store_is_deleted_during_the_checks_are_told_to_be_lost(
    lab: Lab, tmp_path: Path
) -> None:
    store = tmp_path / "runs.sqlite"
    process = lab.cli.start(
        "device check --sessions 1 -s", lab.serial, "-n", 2, BENCHFARM_STORE=str(store)
    )
    assert process.stderr is not None
    told = ""
    while "finished: 2 stored" not in told:
        line = process.stderr.readline()
        assert line, told
        told += line
    store.unlink()
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == 1, stderr
    assert f"{store} was deleted or replaced meanwhile: these runs aren't in it" in stdout
