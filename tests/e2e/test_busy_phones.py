"""A phone that is in use is waited for or refused before a campaign exists; a resume prefers what
has runs.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Lab
from tests.samples.command import Cli, heard

WORDS = ("-d", "xnnpack", "-t", 1, "-n", 1, "--min-secs", "0.1")


def using(lab: Lab, model: Path) -> tuple[subprocess.Popen[str], str]:
    """Have a process use the first phone until it is killed; return it with its campaign."""
    lab.fault(lab.serial, "program-hang")
    process = lab.cli.start(f"bench -s {lab.serial}", model, *WORDS)
    return process, re.findall(r"campaign (\S+) '", heard(process, "campaign "))[-1]


def listed(lab: Lab) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = lab.cli.json("results list")
    return rows


def test_a_phone_in_use_is_refused_before_a_campaign_exists(lab: Lab, model: Path) -> None:
    serial = lab.serial
    process, _ = using(lab, model)
    before = listed(lab)
    plan = lab.cli.home / "plan.yaml"
    plan.write_text(
        f"models: [{model}]\ndevices: {{serials: [{serial}]}}\nmatrix: {{delegates: [xnnpack]}}\n"
    )
    for words in (
        ("bench", model, "-s", serial, *WORDS),
        ("run", plan),
        ("ab threads:1 threads:2 -d xnnpack", "-m", model, "-s", serial),
    ):
        refused = lab.cli(*words).ended_with(3)
        assert f"{serial}: in use by process {process.pid} on " in refused.stderr
        assert "--wait 10m waits for it" in refused.stderr
    assert listed(lab) == before
    process.kill()
    process.communicate()


@pytest.mark.parametrize("away", ["profiles: [pixel-9]", "serials: [Z]"])
def test_this_computer_does_not_stand_in_for_a_phone_that_is_away(
    lab: Lab, model: Path, away: str
) -> None:
    before = listed(lab)
    plan = lab.cli.home / "plan.yaml"
    plan.write_text(
        f"models: [{model}]\ndevices: {{{away}, host: true}}\nmatrix: {{delegates: [xnnpack]}}\n"
    )
    refused = lab.cli("run", plan).ended_with(3).stderr
    assert "no attached phone fits" in refused or "Z: is not attached" in refused
    assert listed(lab) == before


def test_a_phone_in_use_is_waited_for_as_long_as_was_said(lab: Lab, model: Path) -> None:
    serial = lab.serial
    process, _ = using(lab, model)
    before = listed(lab)
    second = lab.cli.start(f"bench --wait 10m -s {serial}", model, *WORDS)
    heard(second, f"waits until it is free: in use by process {process.pid}")
    assert len(listed(lab)) == len(before)
    lab.clear()
    process.kill()
    process.communicate()
    second.communicate()
    assert second.returncode == 0
    assert len(listed(lab)) == len(before) + 1
    assert "--wait" in lab.cli(f"bench --wait soon -s {serial}", model).ended_with(2).stderr


def test_a_resume_that_names_none_prefers_what_has_runs_and_tells_of_the_others(
    lab: Lab, model: Path
) -> None:
    serial = lab.serial
    words = ("bench -n 3 --min-secs 0.1", model, "-s", serial, *WORDS[:4])
    for stored in (1, 0):
        if not stored:
            lab.fault(serial, "program-hang")
        process = lab.cli.start(*words)
        heard(process, " 1/3 " if stored else "campaign ")
        process.kill()
        process.communicate()
        lab.clear()
    newest, older = [item["campaign_id"] for item in listed(lab)[:2]]
    done = lab.cli("run --resume").ok()
    assert f"resumes campaign {older} ({model.stem}, " in done.stderr
    others = done.stderr.partition("'benchfarm run --resume ID' resumes another one: ")[2]
    assert re.match(rf"{newest} \(.*, 0/3 runs stored\)", others)
    assert (
        json.loads(lab.cli("run --resume --json", newest[:-1]).ok().stdout)["campaign_id"] == newest
    )


def test_a_campaign_is_resumed_by_no_other_home_with_the_same_store(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    process, campaign = using(lab, model)
    # By another name: what counts is the file.
    (tmp_path / "store").symlink_to(lab.cli.home / "store.sqlite")
    other = Cli(home=tmp_path / "home")
    for words in (("run --resume", campaign), ("results close", campaign)):
        refused = other(*words, BENCHFARM_STORE=str(tmp_path / "store")).ended_with(2)
        assert f"by process {process.pid} on " in refused.stderr
    assert f"by process {process.pid} on " in lab.cli("run --resume", campaign).ended_with(2).stderr
    lab.clear()
    process.kill()
    process.communicate()
    other("results close", campaign, BENCHFARM_STORE=str(tmp_path / "store")).ok()
