"""What a project has beside code: workflows, forms, source archives and releases say what is
there."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.samples.command import Cli
from tests.samples.places import REPO

WORKFLOWS = sorted((REPO / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["project"]
TARGETS = set(re.findall(r"^([\w-]+)(?: [\w-]+)*:", (REPO / "Makefile").read_text("utf-8"), re.M))


def steps(path: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(path.read_text("utf-8"))["jobs"].values()
    return [step for job in jobs for step in job.get("steps", ())]


def targets_of(path: Path) -> list[str]:
    jobs = yaml.safe_load(path.read_text("utf-8"))["jobs"].values()
    matrices = [job.get("strategy", {}).get("matrix", {}) for job in jobs]
    return [target for matrix in matrices for target in matrix.get("target", ())]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_what_is_there(path: Path) -> None:
    commands = "\n".join(step.get("run", "") for step in steps(path))
    # A matrix names targets, or the last word of one.
    commands = re.sub(r"\$\{\{ *matrix\.target *\}\}", " ".join(targets_of(path)), commands)
    commands = re.sub(r"\$\{\{.*?\}\}", "", commands)
    for words in re.findall(r"\bmake ([^\n]+)", commands):
        for word in words.split():
            if "=" not in word and not word.endswith("-"):
                assert word in TARGETS, word
    for file in re.findall(r"(?:bash|sh) (\S+)", commands):
        assert (REPO / file).is_file(), file
    for file in re.findall(r"(tests/\S+\.py)", commands):
        assert (REPO / file).is_file(), file


def test_a_package_that_is_unknown_keeps_no_other_from_being_installed(tmp_path: Path) -> None:
    installs = tmp_path / "installs"
    commands = {
        "id": "echo 0",
        "apt-get": f'echo "$*" >>{installs}; case "$*" in *chromium*) exit 100; esac',
    }
    for name, line in commands.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n", "utf-8")
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", REPO / "tests" / "system_packages.sh"],
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1].endswith("older: chromium-headless-shell")
    asked = [line for line in installs.read_text("utf-8").splitlines() if "mksh" in line]
    assert [line for line in asked if "chromium" not in line]


def test_the_matrix_has_each_python_and_system_that_is_promised() -> None:
    path = REPO / ".github" / "workflows" / "tests.yml"
    matrix = yaml.safe_load(path.read_text("utf-8"))["jobs"]["versions"]["strategy"]["matrix"]
    named = {
        words[-1]
        for words in (text.split(" :: ") for text in PROJECT["classifiers"])
        if words[0] == "Programming Language" and re.fullmatch(r"3\.\d+", words[-1])
    }
    assert set(matrix["python"]) == named
    assert min(named) == PROJECT["requires-python"].removeprefix(">=")
    systems = {*matrix["os"], *(item["os"] for item in matrix["include"])}
    assert {name.partition("-")[0] for name in systems} == {"ubuntu", "macos"}
    versions = {*matrix["versions"], *(item["versions"] for item in matrix["include"])}
    assert {f"test-{name}" for name in versions} <= TARGETS


def test_the_issue_form_asks_for_what_the_command_writes(tmp_path: Path) -> None:
    text = (REPO / ".github" / "ISSUE_TEMPLATE" / "phone.yml").read_text("utf-8")
    assert yaml.safe_load(text)["body"]
    assert "benchfarm device check -s SERIAL --out check.json" in " ".join(text.split())
    help_text = Cli(home=tmp_path)("device", "check", "--help").ok().stdout
    assert "--serial" in help_text
    assert "--out" in help_text


def test_a_source_archive_has_what_its_tests_need(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", tmp_path]
    subprocess.run(build, cwd=REPO, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    for name in (
        "Makefile",
        "requirements/pinned.txt",
        "CONTRIBUTING.md",
        "virtual/src",
        ".ci/run",
    ):
        assert (folder / name).exists(), name
    code = "import orchestrator, json; print(json.dumps(orchestrator.__file__))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, check=True, capture_output=True, text=True
    )
    assert Path(json.loads(done.stdout)).is_relative_to(folder)
    tests = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "tests/unit/test_units.py",
    ]
    tested = subprocess.run(tests, cwd=folder, check=False, capture_output=True, text=True)
    assert tested.returncode == 0, tested.stdout


def test_a_tag_is_released_only_where_code_and_changelog_say_the_same(tmp_path: Path) -> None:
    path = REPO / "requirements" / "release.py"
    spec = importlib.util.spec_from_file_location("release", path)
    assert spec is not None
    assert spec.loader is not None
    release = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(release)
    (tmp_path / "orchestrator").mkdir()
    (tmp_path / "virtual").mkdir()
    (tmp_path / "orchestrator" / "__init__.py").write_text('__version__ = "1.2.3"\n')
    (tmp_path / "virtual" / "pyproject.toml").write_text('[project]\nversion = "1.2.3"\n')
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3 (2026-12-01)\n")
    assert release.faults("v1.2.3", tmp_path) == []
    assert len(release.faults("v1.2.4", tmp_path)) == 3
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 1.2.3 (unreleased)\n")
    assert len(release.faults("v1.2.3", tmp_path)) == 1


def test_what_contributing_names_is_there() -> None:
    text = (REPO / "CONTRIBUTING.md").read_text("utf-8")
    paths = re.findall(
        r"`((?:orchestrator|tests|virtual|reports|docs|\.github)/[\w./*-]+|\w+\.md)`", text
    )
    assert len(paths) > 20
    missing = [path for path in paths if not path.startswith("orchestrator/extensions/NAME")]
    missing = [
        path for path in missing if not list(REPO.glob(path)) and path != "tests/extensions/NAME"
    ]
    assert not missing
    assert set(re.findall(r"`?make ([\w-]+)", text)) - {"it", "and"} <= TARGETS


def test_each_extension_has_its_tests_beside_it() -> None:
    folders = {path.parent.name for path in REPO.glob("orchestrator/extensions/*/__init__.py")}
    tested = {
        path.relative_to(REPO).parts[2] for path in REPO.glob("tests/extensions/*/**/test_*.py")
    }
    assert tested == folders
