"""``benchfarm ios run`` with a process in the place of pymobiledevice3."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.samples import cabled_iphone
from tests.samples.command import Cli

BUNDLE = ("--bundle", "org.tensorflow.lite.Benchmark", "--quiet", "0")


@pytest.fixture
def phone(tmp_path: Path) -> Path:
    cabled_iphone.install(tmp_path / "bin", tmp_path / "phone")
    (tmp_path / "phone" / "udid").write_text("00008020-1")
    return tmp_path / "phone"


@pytest.fixture
def exported(cli: Cli, tmp_path: Path, model: Path) -> Path:
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        f"models: [{json.dumps(str(model))}]\nmatrix: {{delegates: [coreml, xnnpack], threads: 2}}\n"
        "devices: {profiles: iphone-xs}\ninvocations: 2\n"
    )
    cli("ios", "export", plan, "--out", tmp_path / "out").ok()
    return tmp_path / "out"


@pytest.fixture
def run(cli: Cli, tmp_path: Path, exported: Path) -> Callable[..., Any]:
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return lambda *words: cli("ios", "run", exported, *BUNDLE, *words, PATH=path)


def calls(phone: Path) -> list[list[str]]:
    return [json.loads(line) for line in (phone / "calls").read_text().splitlines()]


def test_every_case_is_pushed_launched_and_imported_once(
    cli: Cli, run: Callable[..., Any], phone: Path, exported: Path, tmp_path: Path
) -> None:
    (tmp_path / "app.ipa").write_bytes(b"app")
    done = run("--udid", "00008020-1", "--install", tmp_path / "app.ipa", "--json").ok().json
    assert [(item["case"]["delegate"], item["outcome"]) for item in done["runs"]].count(("coreml", "completed")) == 2
    assert len(done["runs"]) == 4
    assert not any(item["is_virtual"] for item in done["runs"])
    assert (phone / "app.ipa").read_bytes() == b"app"
    made = calls(phone)
    assert all("--udid" in call for call in made)
    assert sum("launch" in call for call in made) == 4
    assert sum("kill" in call for call in made) == 4
    kept = sorted(path.name for path in exported.glob("*/results/*"))
    assert kept == ["1.txt", "1.txt", "2.txt", "2.txt"]
    text = next(exported.glob("*/results/1.txt")).read_text()
    assert text.startswith("INFO: Log parameter values verbosely: [0]\n")
    assert "channel opened" not in text
    run("--json").ok()
    assert sum("launch" in call for call in calls(phone)) == 4
    assert len(cli("campaigns", "--json").ok().json) == 1


def test_what_is_of_another_case_is_kept_aside_and_not_imported(
    cli: Cli, run: Callable[..., Any], phone: Path, exported: Path
) -> None:
    (phone / "mode").write_text("stale")
    done = run()
    assert done.exit_code == 2
    assert "Num threads: [7]" in done.stderr
    assert [path.name for path in exported.glob("*/results/*")] == [".refused-1.txt"]
    assert cli("campaigns", "--json").ok().json == []


def test_an_app_that_prints_nothing_ends_with_what_to_do(run: Callable[..., Any], phone: Path) -> None:
    (phone / "mode").write_text("waits")
    done = run("--timeout", "1")
    assert done.exit_code == 3
    assert "needs a tap" in done.stderr


def test_a_phone_that_is_not_there_ends_with_what_the_program_said(run: Callable[..., Any], phone: Path) -> None:
    (phone / "udid").unlink()
    done = run()
    assert done.exit_code == 3
    assert "Device is not connected" in done.stderr


def test_without_the_program_the_extra_is_named(cli: Cli, exported: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    done = cli("ios", "run", exported, *BUNDLE, PATH=str(tmp_path / "empty"))
    assert done.exit_code == 2
    assert "benchfarm[ios]" in done.stderr
    missing = cli("ios", "run", exported, *BUNDLE, "--command", "no-such-program")
    assert missing.exit_code == 2
    assert "no-such-program" in missing.stderr
    assert cli("ios", "run", exported, "--bundle", "x; rm -rf /").exit_code == 2
