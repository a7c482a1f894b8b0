"""After a power cut, in a restarted container, without /proc: work is resumed, and no stranger's process dies."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from orchestrator.processes import running
from tests.conftest import poll_until
from tests.e2e.conftest import Lab
from tests.e2e.test_host_native import build
from tests.samples.command import Cli
from tests.samples.places import BENCHFARM

#: Where the commands after the cut run: how it is entered, and what is done in it first.
WORLDS = {
    "another boot": (
        ("--mount",),
        "cat /proc/sys/kernel/random/uuid >$TMP/boot && mount --bind $TMP/boot /proc/sys/kernel/random/boot_id",
    ),
    "another pid namespace": (("--mount", "--pid", "--fork", "--mount-proc"), "true"),
    "no /proc": (("--mount",), "mount -t tmpfs none /proc"),
}
needs_namespaces = pytest.mark.skipif(
    subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True, check=False
    ).returncode
    != 0,
    reason="this user may not make namespaces (root may)",
)
pytestmark = needs_namespaces


def ask(cli: Cli, world: str, folder: Path, script: str) -> str:
    """Return what a shell says in a world; ``$B`` is the command there."""
    options, first = WORLDS[world]
    done = subprocess.run(
        ["unshare", *options, "sh", "-c", f"{first}\n{script}"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, check=False, timeout=180, env=cli.environ(B=str(BENCHFARM), TMP=str(folder)),
    )  # fmt: skip
    assert "Traceback" not in done.stdout, done.stdout
    return done.stdout


def cut_off(lab: Lab, model: Path) -> str:
    """Begin a campaign on the first phone, cut it off as a power cut does when the phone was
    changed; return its id."""
    serial = lab.serial
    lab.fault(serial, "program-hang")
    process = lab.cli.start(f"bench -d xnnpack -t 1 -n 2 --min-secs 0.1 -s {serial}", model)
    journal = lab.cli.home / "state" / "journals" / f"device-{serial}.undo"
    poll_until(journal.exists, "the phone is changed")
    poll_until(lambda: lab.cli.json("status")["campaigns"], "the campaign is begun")
    (campaign,) = lab.cli.json("status")["campaigns"]
    process.kill()
    process.communicate()
    lab.clear()
    return str(campaign["campaign_id"])


@pytest.mark.parametrize("world", ["another pid namespace", "no /proc"])
def test_a_campaign_that_was_cut_off_is_resumed_and_its_phone_restored(
    lab: Lab, model: Path, tmp_path: Path, world: str
) -> None:
    serial = lab.serial
    campaign = cut_off(lab, model)
    script = "$B doctor; $B run --resume; echo ended with $?"
    before, resumed = ask(lab.cli, world, tmp_path, script).split("resumes campaign", 1)
    assert f"{serial} was left changed by a process that ended" in before
    assert f"run --resume {campaign}' resumes it" in before
    assert "ended with 0" in resumed
    assert "left changed" not in lab.cli("doctor").said
    (listed,) = [item for item in lab.cli.json("results list") if item["campaign_id"] == campaign]
    assert listed["status"] == "finished"


def test_a_campaign_that_was_cut_off_is_closed(lab: Lab, model: Path, tmp_path: Path) -> None:
    campaign = cut_off(lab, model)
    said = ask(lab.cli, "another boot", tmp_path, f"$B results close {campaign}")
    assert f"{campaign} (" in said
    assert "closed, 2 invocations abandoned" in said
    assert "left changed" not in lab.cli("doctor").said


def test_a_phone_that_is_left_changed_by_a_campaign_that_is_closed_is_named(
    lab: Lab, model: Path
) -> None:
    campaign = cut_off(lab, model)
    lab.fault(lab.serial, "unauthorized")
    said = lab.cli("results close", campaign).ok().stderr
    assert f"{lab.serial} could not be restored" in said
    lab.clear()
    poll_until(lambda: not lab.cli("device restore").exit_code, "the phone is back and restored")


@pytest.mark.parametrize("world", ["another boot", "no /proc"])
def test_a_stranger_that_has_the_number_of_a_run_that_was_cut_off_lives_on(
    cli: Cli, model: Path, tmp_path: Path, world: str
) -> None:
    recording = "xnnpack_true_fully_delegated.txt"
    (tmp_path / "slow").mkdir()
    slow, quick = build(tmp_path / "slow", recording, lasts_s=600), build(tmp_path, recording)
    words = ("bench -d xnnpack --with-host --tool native -t 1 -n 1", model)
    runs = cli.home / "state" / "host" / "runs"
    process = cli.start(*words, "--build", f"native={slow}")
    poll_until(lambda: any(note.read_text() for note in runs.glob("*/leader")), "a run is begun")
    (note,) = runs.glob("*/leader")
    number = int(note.read_text().split()[0])
    process.kill()
    process.communicate()
    os.killpg(number, signal.SIGKILL)
    again = " ".join(map(str, words))
    said = ask(
        cli, world, tmp_path,
        f"""
        setsid sleep 600 & stranger=$!
        sed -i "s/\\b{number}\\b/$stranger/g" {note}
        $B {again} --build native={quick}
        kill -9 $stranger && echo the stranger lived
        """,
    )  # fmt: skip
    assert "1 stored, 0 left" in said, said
    assert "the stranger lived" in said
    assert not note.exists()


#: A mount namespace of its own whose /proc is empty.
_WITHOUT = ("unshare", "--mount", "--propagation", "private", "sh", "-c")
_EMPTY_PROC = 'mount -t tmpfs none /proc && exec "$@"'


def without_proc(cli: Cli, *words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*_WITHOUT, _EMPTY_PROC, "sh", BENCHFARM, *map(str, words)],
        env=cli.environ(), capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip


@pytest.mark.skipif(os.geteuid() != 0, reason="taking /proc away takes root")
def test_phones_are_measured_told_and_released_without_proc(tmp_path: Path, model: Path) -> None:
    cli = Cli(home=tmp_path / "home")
    up = without_proc(cli, "virtual", "up", "pixel-3", "--speed", 60)
    try:
        assert up.returncode == 0, up.stderr
        words = ("-d", "xnnpack", "-t", 1, "-n", 1, "--min-secs", 0.1, "--json")
        done = without_proc(cli, "bench", model, *words)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
    finally:
        down = without_proc(cli, "virtual", "down")
    assert down.returncode == 0, down.stderr
    (address,) = re.findall(r"adb server at (\S+);", up.stdout)
    poll_until(lambda: not running(("-L", address, "server", "nodaemon")), "its end")
    runs = cli.json("results runs")
    assert [run["outcome"] for run in runs] == ["completed"]
    assert cli.json("virtual list")["phones"] == []
