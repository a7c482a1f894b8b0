"""What is stored is found by the word newest, and what it takes on the disk is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import Lab
from tests.samples.command import Cli


@pytest.fixture
def measured(lab: Lab, model: Path) -> str:
    words = ("-d", "cpu", "-n", 2, "--min-secs", 0.1, "--json")
    done = lab.cli("bench", model, "-s", lab.serials[0], *words)
    return str(done.json["campaign_id"])


def test_the_output_of_the_newest_run_is_shown_without_its_id(lab: Lab, measured: str) -> None:
    runs = lab.cli("results", "runs", measured, "--json").ok().json
    newest = max(runs, key=lambda run: run["started_at"])
    shown = lab.cli("results", "log", "newest", "--json").ok().json
    assert shown["run_id"] == newest["run_id"]
    assert shown["attachments"]


def test_what_is_kept_on_the_disk_is_shown_with_what_frees_it(lab: Lab, measured: str) -> None:
    assert measured
    rows = {row["kind"]: row for row in lab.cli("store", "usage", "--json").ok().json}
    assert list(rows) == ["store", "reports", "checks", "cache"]
    assert rows["store"]["size_bytes"] >= Path(rows["store"]["path"]).stat().st_size
    assert rows["reports"]["files"] >= 1
    text = lab.cli("store", "usage").ok().stdout
    assert "benchfarm store prune --older-than" in text


def test_where_nothing_is_kept_nothing_is_made(tmp_path: Path) -> None:
    cli = Cli(home=tmp_path / "home")
    rows = cli("store", "usage", "--json").ok().json
    assert {(row["files"], row["size_bytes"]) for row in rows} == {(0, 0)}
    assert not (tmp_path / "home").exists()
    assert "no campaign" in cli("results", "log", "newest").ended_with(2).stderr
