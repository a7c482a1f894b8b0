"""The examples for pipelines: files that each service's parser takes, and their commands run on a
virtual phone."""

from __future__ import annotations

import os
import re
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from tests.samples.places import BENCHFARM, MODELS, REPO

if TYPE_CHECKING:
    from tests.samples.command import Cli

CI = REPO / "examples" / "ci"
GATE = (CI / "gate.sh").read_text("utf-8")
#: What gate.sh reads, as its head lists it.
READ = set(re.findall(r"^# ([A-Z]+) ", GATE, re.M))


def gate(cli: Cli, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    path = f"{BENCHFARM.parent}{os.pathsep}{os.environ['PATH']}"
    environ = cli.environ(PATH=path, OUT=str(folder / "out"), **variables)
    return subprocess.run(
        [CI / "gate.sh"],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_slower_program_fails_the_gate_and_is_summarized(cli: Cli, tmp_path: Path) -> None:
    for name, time in (("old", "+0"), ("new", "+20")):
        cli("virtual program", tmp_path / name, "--release", name, "--time", time).ok()
    model = min(MODELS.glob("*float*.tflite"))
    summary = tmp_path / "summary.md"
    known = {"BASELINE": "./old", "MODELS": str(model), "VIRTUAL": "pixel-3 --speed 60"}
    asked = {"ARGUMENTS": "--runs 5 --inferences 5 --min-secs 0.1 --detect 10%"}
    on_github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    done = gate(cli, tmp_path, CANDIDATE="./new", **known, **asked, **on_github)
    assert done.returncode == 1, done.stdout + done.stderr
    (case,) = ET.parse(tmp_path / "out" / "benchfarm.xml").iter("testcase")
    assert case.find("failure") is not None
    assert "SLOWER" in summary.read_text("utf-8")
    assert (tmp_path / "out" / "benchfarm.html").is_file()
    assert cli("virtual list --json").json["phones"] == []
    # A fault isn't an outcome, and the lab is taken down all the same.
    faulty = gate(cli, tmp_path, CANDIDATE="./missing", **known)
    assert faulty.returncode > 1
    assert cli("virtual list --json").json["phones"] == []


def test_each_service_runs_the_gate_with_what_it_reads() -> None:
    action = yaml.safe_load((CI / "github" / "action.yml").read_text("utf-8"))
    (step,) = [step for step in action["runs"]["steps"] if "gate.sh" in step.get("run", "")]
    assert set(step["env"]) == READ
    asked = set(re.findall(r"inputs\.(\w+)", str(action["runs"])))
    assert asked == set(action["inputs"])
    workflow = yaml.safe_load((CI / "github" / "workflow.yml").read_text("utf-8"))
    needed = {name for name, item in action["inputs"].items() if item.get("required")}
    for job in workflow["jobs"].values():
        given = set(job["steps"][-1]["with"])
        assert needed <= given <= set(action["inputs"])
    gitlab = yaml.safe_load((CI / "gitlab-ci.yml").read_text("utf-8"))
    shared = gitlab.pop(".benchfarm")
    for job in gitlab.values():
        given = {*shared["variables"], *job["variables"]}
        assert {"BASELINE", "CANDIDATE", "MODELS"} <= given <= READ
    assert shared["artifacts"]["reports"]["junit"] == f"{shared['variables']['OUT']}/benchfarm.xml"
    jenkins = (CI / "Jenkinsfile").read_text("utf-8")
    assert (
        {"BASELINE", "CANDIDATE", "MODELS"}
        <= set(re.findall(r"^    ([A-Z]+) = ", jenkins, re.M))
        <= READ
    )
    assert jenkins.count("{") == jenkins.count("}")
    for text in (shared["script"][0], jenkins):
        assert "examples/ci/gate.sh" in text


def test_the_gate_is_a_shell_script_without_faults() -> None:
    checked = subprocess.run(
        [BENCHFARM.parent / "shellcheck", CI / "gate.sh"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout
    assert os.access(CI / "gate.sh", os.X_OK)
