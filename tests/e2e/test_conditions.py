"""The mode top-app, and undoing from another computer, by the installed command."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.clock import SystemClock
from orchestrator.devices.lease import Claims
from orchestrator.devices.phone import WORK_FOLDER
from orchestrator.scripts import script_command
from tests.e2e.conftest import Lab
from tests.samples.places import MODELS

MODEL = MODELS / "texturenet_0.25_256_float.tflite"


@pytest.fixture(scope="module")
def rooted(lab_of: Callable[..., Lab]) -> Lab:
    return lab_of("pixel-4", "--rooted")


def test_top_app_is_measured_beside_the_shell_and_proven(rooted: Lab) -> None:
    serial = rooted.serial
    done = rooted.cli(
        f"bench --mode top-app,shell -n 1 --min-secs 0.2 --json -s {serial}", MODEL
    )  # fmt: skip
    runs = done.ok().json["runs"]
    assert {run["case"]["mode"] for run in runs} == {"top-app", None}
    assert all("cgroup.procs" in run["command"] for run in runs if run["case"]["mode"] == "top-app")


def test_a_phone_that_keeps_the_shell_out_of_top_app_gives_no_figure_under_its_name(
    lab: Lab,
) -> None:
    done = lab.cli(
        f"bench --mode top-app -n 1 --min-secs 0.2 --json -s {lab.serials[1]}", MODEL
    )  # fmt: skip
    assert done.exit_code == 1
    (run,) = done.json["runs"]
    assert (run["outcome"], run["reason_code"]) == ("failed", "mode-not-reached")
    assert "cpuset" in run["reason"]


def test_a_phone_left_changed_by_another_home_is_restored_from_the_phones_own_file(
    rooted: Lab,
) -> None:
    serial = rooted.serial
    folder = "/data/local/tmp/benchfarm"
    rooted.shell(serial, "settings put global window_animation_scale 0.5")
    change = '{"what": "window animation scale", "undo": "settings put global window_animation_scale 1.0"}'
    rooted.shell(serial, f"mkdir -p {folder}; echo '{change}' >{folder}/undo")
    audit = rooted.cli("device restore --dry-run --json", serial)
    assert audit.exit_code == 1
    assert audit.json[0]["pending"] == ["window animation scale"]
    restored = rooted.cli.json("device restore")
    assert restored["restored"] == {serial: ["window animation scale"]}
    assert rooted.shell(serial, "settings get global window_animation_scale") == "1.0"
    assert "undo" not in rooted.shell(serial, f"ls {folder}").split()


def test_a_phone_that_is_away_is_told_from_one_that_differs_and_no_other_is_meant(
    lab: Lab,
) -> None:
    serial, away = lab.serial, f"{lab.serial}-AWAY"
    (lab.cli.home / "devices.yaml").write_text(f"devices: {{{away}: {{pools: [nightly]}}}}")
    try:
        dry = lab.cli("device restore --dry-run", serial, away).ended_with(3).stdout
        assert dry.splitlines() == [
            f"{serial} (virtual): as it was",
            f"{away}: not checked: is not attached; 'benchfarm devices' lists attached phones",
        ]
        assert "did you mean" not in lab.cli("device restore", away).ended_with(3).said
    finally:
        (lab.cli.home / "devices.yaml").unlink()
    said = lab.cli("device restore", away).ended_with(3).stdout
    assert f"no such phone is known here; did you mean '{serial}'?" in said


def test_a_phone_that_another_computer_holds_is_refused_with_its_name(rooted: Lab) -> None:
    serial = rooted.serial
    folder = "/data/local/tmp/benchfarm"
    boot_id = rooted.shell(serial, "cat /proc/sys/kernel/random/boot_id")
    note = f'feed {boot_id} 99999999 {{"host": "lab-west", "pid": 7, "hold_s": 900}}'
    rooted.shell(serial, f"mkdir -p {folder}; echo '{note}' >{folder}/owner")
    try:
        done = rooted.cli("device restore", serial)
        assert done.exit_code == 3
        assert "process 7 on lab-west" in done.stdout
        assert rooted.cli("device restore --force").exit_code == 2
        rooted.cli("device restore --force", serial).ok()
        assert "owner" not in rooted.shell(serial, f"ls {folder}").split()
    finally:
        rooted.shell(serial, f"rm -f {folder}/owner")


def test_a_phone_that_another_home_uses_is_left_alone_before_a_campaign_exists(
    lab: Lab, tmp_path: Path
) -> None:
    serial, other = lab.serials[1], Claims(tmp_path, clock=SystemClock())
    before = lab.cli.json("results list")
    lab.shell(serial, other.script(WORK_FOLDER, hold_s=100_000))
    try:
        done = lab.cli(f"bench -d xnnpack -n 1 --min-secs 0.1 --json -s {serial}", MODEL)
    finally:
        lab.shell(serial, script_command("release", WORK_FOLDER, other.token))
    assert done.exit_code == 3
    assert f"{serial}: in use by process {os.getpid()}" in done.stderr
    # Nothing was changed on it.
    assert "be restored" not in done.stderr
    assert lab.cli.json("results list") == before


def test_a_screen_that_the_plan_wants_off_is_no_fault_of_a_run(lab: Lab, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        f"models: [{MODEL}]\nmatrix: {{delegates: [xnnpack], threads: [1]}}\ninvocations: 1\n"
        f"devices: {{serials: [{lab.serial}]}}\nsettings: {{min_secs: 100 ms}}\nquiet: {{screen: 'off'}}\n"
    )
    campaign = lab.cli.json("run", plan)["campaign_id"]
    (run,) = lab.cli.json("results runs", campaign)
    assert run["state_after"]["screen_on"] is False
    assert "screen-off" not in [finding["code"] for finding in run["verdict"]["findings"]]
    assert lab.cli.json("results reparse", campaign)["changed"] == []
