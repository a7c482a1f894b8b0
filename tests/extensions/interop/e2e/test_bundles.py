"""What campaigns of phones say in the store that a bundle brings them to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.e2e.conftest import Lab
from tests.samples.command import Cli

#: Of a case in an export: what hangs on what its campaign knew of the phone and of earlier nights.
JUDGED = (
    "campaign_id", "configuration", "median_us", "interval_low_us", "interval_high_us", "is_precise", "outputs", "status",
    "winner", "speed_up_low", "quality", "is_judged",
)  # fmt: skip


def judged(cli: Cli, folder: Path) -> list[list[str]]:
    path = folder / "cases.json"
    cli("export night --format json --force --out", path).ok()
    cases = json.loads(path.read_text())["results"]
    return sorted([str(case[name]) for name in JUDGED] for case in cases)


def compared(cli: Cli, *sides: str) -> dict[str, Any]:
    said = cli("compare --json", *sides).json
    return {name: said[name] for name in ("baseline", "candidate", "counts", "overall")}


def test_an_imported_night_is_judged_and_compared_as_it_was_where_it_was_measured(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    here, there = lab.cli, Cli(home=tmp_path / "there")
    serial = lab.serial
    lab.fault(serial, "delegate-wrong", "subject=gpu", "times=0")
    words = ("-d", "cpu,gpu", "-t", "1", "-n", "3", "--inferences", "10", "--min-secs", "0.1")
    # The second knows of the first that the GPU's outputs are wrong, and how alike runs are.
    for passes in ("timing,parity", "timing"):
        here("bench", model, "-s", serial, *words, "--pass", passes, "--name", "night").ended_with(
            1
        )
    pairs = ("threads:1", "threads:2", "-d", "xnnpack", "--runs", "4", "--inferences", "10")
    done = here("ab", *pairs, "-m", model, "-s", serial, "--min-secs", "0.1")
    assert done.exit_code in (0, 1), done.said
    listed = here("results list --json").json
    # The newest first, as a list has them.
    here("export", *(item["campaign_id"] for item in listed), "--out", tmp_path / "all.zip").ok()
    there("import", tmp_path / "all.zip").ok()
    assert [item["campaign_id"] for item in there("results list --json").json] == [
        item["campaign_id"] for item in listed
    ]
    ours = judged(here, tmp_path)
    assert judged(there, tmp_path) == ours
    assert any("differ" in case for case in ours)
    first, second = (item["campaign_id"] for item in reversed(listed[1:]))
    for sides in ((first, second), ("newest",)):
        assert compared(there, *sides) == compared(here, *sides)

    # Some runs alone say of a comparison what of it is there.
    run = here("results runs newest --json").json[0]["run_id"]
    here("export --run", run, "--out", tmp_path / "one.zip").ok()
    part = Cli(home=tmp_path / "part")
    part("import", tmp_path / "one.zip").ok()
    assert "no pair that counts is complete" in part("compare newest").ended_with(1).said
