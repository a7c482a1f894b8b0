"""A month of nights on a virtual phone: changes are found, run again side by side, told in every
form, and expected."""

from __future__ import annotations

import dataclasses
import shutil
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orchestrator.records.campaign import Campaign
from orchestrator.records.case import CampaignId, RunId
from orchestrator.records.run import RunRecord
from orchestrator.records.verdict import Quality, QualityVerdict
from orchestrator.store.opening import Store, open_store
from tests.samples.command import Cli, Done
from tests.samples.places import MODELS

NIGHTS, CHANGED = 25, 5
#: On a computer that does much else.
PATIENCE_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Nights:
    """A home whose store holds a month of one phone."""

    cli: Cli
    store: Path

    def __call__(self, *words: object) -> Done:
        return self.cli(*words, timeout_s=PATIENCE_S, BENCHFARM_STORE=str(self.store))

    json = Cli.json

    def changes(self, *words: object) -> tuple[int, dict[str, Any]]:
        """Return the exit code, and the changes by configuration."""
        done = self("history changes --json", *words)
        found = [change for group in done.json["groups"] for change in group["changes"]]
        assert done.json["fails"] == bool(done.exit_code), done.stderr
        return done.exit_code, {
            change["configuration"].rpartition(", native")[0]: change for change in found
        }


#: Configuration -> the program of the last nights, and what its figures are multiplied by.
LATE = {
    # Slower, and the program is why; in a process mode that isn't the usual one.
    ("xnnpack", "4", "top-app"): ("slow", 1.10),
    # Warm nights: the program is as fast as the one before.
    ("cpu", "1", ""): ("twin", 1.08),
    # Nothing is known that changed.
    ("xnnpack", "1", ""): ("old", 1.06),
    # Another model, which is faster.
    ("xnnpack", "2", ""): ("old", 1.07),
}


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nights]:
    folder = tmp_path_factory.mktemp("regressions")
    cli = Cli(home=folder / "home")
    try:
        (phone,) = cli.json("virtual up pixel-4 --rooted --speed 60 --seed 4")["phones"]
        programs = {"old": 0.0, "slow": 10.0, "twin": 0.0}
        for name, time in programs.items():
            cli("virtual program", folder / name, "--release", name, "--time", time).ok()
        model = min(MODELS.glob("*float*.tflite"))
        other = folder / model.name
        shutil.copy(min(MODELS.glob("*int8*.tflite")), other)
        made = open_store(folder / "nights.sqlite")
        for (delegate, threads, mode), (late, factor) in LATE.items():
            late_model = other if threads == "2" else model
            for program, measured, which in (
                ("old", model, range(NIGHTS - CHANGED)),
                (late, late_model, range(NIGHTS - CHANGED, NIGHTS)),
            ):
                cli(
                    "bench", measured, "-s", phone["serial"], "-d", delegate, "-t", threads, "-n", 1, "--min-secs", "0.1",
                    "--build", f"native={folder / program}", *(("--mode", mode) if mode else ()), timeout_s=PATIENCE_S,
                ).ok()  # fmt: skip
                real = open_store(cli.home / "store.sqlite")
                campaign = real.campaign(real.campaigns()[0].campaign_id)
                assert campaign is not None
                (run,) = list(real.runs(campaign_ids=[campaign.campaign_id], with_attachments=True))
                for night in which:
                    keep(
                        made,
                        real,
                        campaign,
                        run,
                        night,
                        factor if night >= NIGHTS - CHANGED else 1.0,
                    )
                real.close()
        made.close()
        yield Nights(cli=cli, store=folder / "nights.sqlite")
    finally:
        cli("virtual down")
        shutil.rmtree(folder, ignore_errors=True)


def keep(
    made: Store, real: Store, campaign: Campaign, run: RunRecord, night: int, factor: float
) -> None:
    """Store a campaign as if it had run on that night; its figure is a given one, half a per cent
    off.
    """
    at = datetime.now(UTC) - timedelta(days=NIGHTS - night)
    name = CampaignId(f"{at:%Y%m%d}-{uuid.uuid4().hex[:6]}")
    begun = dataclasses.replace(
        campaign, campaign_id=name, created_at=at, finished_at=at + timedelta(hours=1)
    )
    made.begin_campaign(
        begun,
        devices=real.devices().values(),
        models=real.models().values(),
        builds=real.builds().values(),
    )
    assert run.report is not None
    assert run.report.inference is not None
    noise = np.random.default_rng([night, run.case.threads]).normal(0, 0.005)
    inference = dataclasses.replace(
        run.report.inference, median_us=float(5000 * factor * np.exp(noise))
    )
    kept = dataclasses.replace(
        run,
        run_id=RunId(uuid.uuid4().hex),
        campaign_id=name,
        started_at=at,
        report=dataclasses.replace(run.report, inference=inference),
        verdict=QualityVerdict(quality=Quality.TRUSTED),
    )
    assert made.append_run(kept)


@pytest.fixture(scope="module")
def confirmed(nights: Nights) -> dict[str, Any]:
    before, candidates = nights.changes()
    assert before == 1, "nothing refutes them yet"
    assert {change["status"] for change in candidates.values()} == {"unconfirmed"}
    assert nights.changes("--fail-on", "confirmed")[0] == 0
    exit_code, found = nights.changes("--confirm")
    assert (exit_code, len(found)) == (1, len(LATE)), found
    return found


def of(found: dict[str, Any], delegate: str, threads: str) -> dict[str, Any]:
    (change,) = [
        item
        for item in found.values()
        if (item["case"]["delegate"], item["case"]["threads"]) == (delegate, int(threads))
    ]
    return dict(change)


def test_changes_are_found_with_their_night_size_and_program(confirmed: dict[str, Any]) -> None:
    change = of(confirmed, "xnnpack", "4")
    assert change["low"] < 1.10 < change["high"]
    assert change["is_virtual"]
    assert "build" in [cause["name"] for cause in change["causes"]]
    assert change["nights_after"] == CHANGED


def test_a_slow_program_is_confirmed_in_the_process_mode_of_its_series(
    nights: Nights, confirmed: dict[str, Any]
) -> None:
    change = of(confirmed, "xnnpack", "4")
    assert change["status"] == "confirmed", change["status_detail"]
    campaign = change["status_detail"].split()[-1]
    runs = nights.json("results runs", campaign)
    assert {run["case"]["mode"] for run in runs} == {"top-app"}
    assert len({run["case"]["build_sha256"] for run in runs}) == 2


def test_a_change_that_the_program_did_not_make_is_refuted(confirmed: dict[str, Any]) -> None:
    change = of(confirmed, "cpu", "1")
    assert change["status"] == "refuted", change["status_detail"]


def test_another_model_is_run_again_with_the_program_of_its_nights(
    nights: Nights, confirmed: dict[str, Any]
) -> None:
    change = of(confirmed, "xnnpack", "2")
    assert change["status"] == "refuted", change["status_detail"]
    runs = nights.json("results runs", change["status_detail"].split()[-1])
    assert {run["case"]["build_sha256"] for run in runs} == {change["after"]["build_sha256"]}
    assert len({run["case"]["model_sha256"] for run in runs}) == 2


def test_a_change_without_an_old_side_cannot_be_run_again_and_says_why(
    confirmed: dict[str, Any],
) -> None:
    change = of(confirmed, "xnnpack", "1")
    assert change["status"] == "cannot"
    assert "neither build nor model changed" in change["status_detail"]


def test_what_was_confirmed_or_refuted_is_not_run_again(
    nights: Nights, confirmed: dict[str, Any]
) -> None:
    campaigns = len(nights.json("results list"))

    exit_code, again = nights.changes("--confirm")

    assert exit_code == 1
    assert {name: item["status"] for name, item in again.items()} == {
        name: item["status"] for name, item in confirmed.items()
    }
    assert len(nights.json("results list")) == campaigns


def test_changes_are_told_in_text_and_markdown(nights: Nights, confirmed: dict[str, Any]) -> None:
    text = nights("history changes")
    assert text.exit_code == 1
    told = " ".join(text.stdout.split())
    assert "status confirmed" in told.split("status refuted")[0]
    assert told.count("(virtual)") >= 3
    assert max(len(line) for line in text.stdout.splitlines()) <= 80
    markdown = nights("history changes --format markdown --fail-on never").ok().stdout
    assert markdown.startswith(
        "## 4 new changes in the last 14 nights, more where a series lacks nights, in 4 series"
    )
    assert markdown.count("| confirmed |") == 1
    assert nights("history changes --format xml").exit_code == 2
    assert nights("history changes --series colour=red").exit_code == 2
    assert "no series fits 'delegate=gpu'" in nights("history changes --series delegate=gpu").stderr
    assert nights("history expect delegate=cpu 2026-03-09", " ").exit_code == 2
    only = nights.changes("--series", "delegate=cpu")
    assert (only[0], [item["case"]["delegate"] for item in only[1].values()]) == (0, ["cpu"])


def test_an_expected_change_is_told_as_such_and_fails_nothing(
    nights: Nights, confirmed: dict[str, Any]
) -> None:
    night = of(confirmed, "xnnpack", "4")["night"]
    added = nights.json("history expect delegate=xnnpack,threads=4", night, "slower on purpose")

    exit_code, found = nights.changes("--fail-on", "confirmed")
    assert exit_code == 0
    assert [item["expected"] for item in found.values() if item["expected"]] == [
        "slower on purpose"
    ]
    assert "slower on purpose" in nights("history expect").ok().stdout
    assert nights("history expect --remove", added["annotation_id"]).exit_code == 0
    assert nights("history expect --remove", added["annotation_id"]).exit_code == 2
    assert nights.changes("--fail-on", "confirmed")[0] == 1
