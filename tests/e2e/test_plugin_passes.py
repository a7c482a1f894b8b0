"""A third party's pass, as examples/plugin has it: from the help to the report."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.e2e.conftest import Lab
from tests.samples.command import Cli
from tests.samples.places import REPO

EXAMPLE = REPO / "examples" / "plugin" / "acme" / "passes.py"
REPETITION = "from orchestrator.passes.specification import Repetition"


def installed(folder: Path, *, name: str = "acme.idle", text: str = "") -> str:
    """Return a folder for PYTHONPATH in which a distribution of the page's example lies as pip
    installs it."""
    package, told = folder / "acme", folder / "benchfarm_acme-1.0.dist-info"
    package.mkdir(parents=True)
    told.mkdir()
    (package / "__init__.py").write_text("")
    (package / "passes.py").write_text(text or EXAMPLE.read_text("utf-8"))
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: benchfarm-acme\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text(f"[benchfarm.passes]\n{name} = acme.passes:IDLE\n")
    return str(folder)


@pytest.fixture(scope="module")
def lab(lab_of: Callable[..., Lab]) -> Lab:
    return lab_of("pixel-4")


def test_a_pass_of_a_third_party_is_in_help_schema_run_store_and_report(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    where = installed(tmp_path / "site")
    cli = lab.cli
    assert "acme.idle" in cli("bench --help", PYTHONPATH=where, COLUMNS="200").ok().stdout
    assert "acme.idle" in cli("plan schema", PYTHONPATH=where).ok().stdout
    assert "up and idle" in cli("explain acme.idle", PYTHONPATH=where).ok().stdout
    words = ("bench -d xnnpack -t 1 --pass timing,acme.idle -n 2", model, "-s", lab.serial)
    told = cli(*words, PYTHONPATH=where).ok().stdout
    assert "acme.idle" in told
    assert re.search(r"\bup s +[\d.]+ +1\b", told), told
    assert re.search(r"\bidle s +[\d.]+ +1\b", told), told
    runs = cli.json("results runs newest")
    assert sorted(run["run_pass"] for run in runs) == ["acme.idle", "timing", "timing"]
    page, alone = tmp_path / "report.html", tmp_path / "alone.html"
    cli("report newest -o", page, PYTHONPATH=where).ok()
    assert "Further passes" in page.read_text("utf-8")
    # Without it the run stays where it is, and is no case's figure.
    cli("report newest -o", alone).ok()
    assert "Further passes" not in alone.read_text("utf-8")
    assert "2 runs parsed again, 0 changed; 1 unchanged" in cli("results reparse").ok().stdout
    refused = cli(*words)
    assert refused.exit_code == 2
    assert "there is no pass 'acme.idle'" in refused.stderr


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [
        (
            "acme.idle",
            (
                "IDLE = PassSpec(",
                f"{REPETITION}\nIDLE = PassSpec(\n    repetition=Repetition.AROUND_OTHERS,",
            ),
            "has the repetition 'around-others', which is of 'reference' alone",
        ),
        ("acme.other", ("", ""), "calls itself 'acme.idle'"),
        ("unprefixed", ('Pass("acme.idle")', 'Pass("unprefixed")'), "a prefix and a dot"),
    ],
)
def test_a_pass_that_is_not_whole_is_refused_by_name(
    cli: Cli, tmp_path: Path, name: str, change: tuple[str, str], why: str
) -> None:
    installed(tmp_path / "whole")
    text = (
        (tmp_path / "whole" / "acme" / "passes.py").read_text("utf-8").replace(*change)
        if change[0]
        else ""
    )
    where = installed(tmp_path / "site", name=name, text=text)
    done = replace(cli, is_cold=True)("bench m.tflite", "--pass", name, PYTHONPATH=where)
    assert done.exit_code == 2
    assert name in done.stderr
    assert why in done.stderr


@pytest.mark.parametrize(
    ("name", "what"),
    [("enrgy", "did you mean 'energy'?"), ("reference", "choose one of timing, memory")],
)
def test_an_unknown_pass_is_refused_with_the_nearest(
    cli: Cli, tmp_path: Path, name: str, what: str
) -> None:
    done = cli("bench --pass", name, tmp_path / "m.tflite")
    assert done.exit_code == 2
    assert f"there is no pass '{name}'; {what}" in done.stderr
    assert json.dumps("Traceback") not in done.stderr
