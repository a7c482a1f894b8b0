"""A nightly run on one host: cut to its budget in the plan's order, told and logged; its raw output
deleted later.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.e2e.conftest import Lab


def test_a_budget_that_is_too_small_measures_the_plans_first_cases_and_says_what_it_left_out(
    lab: Lab, plan_file: Callable[..., Path], tmp_path: Path
) -> None:
    serial = lab.serial
    # A second for each run: of what this computer's own work takes, its load would make anything.
    plan = plan_file((serial,), invocations=1, min_secs=40)
    whole = lab.cli.json("run", plan)
    assert (whole["stored"], whole["no_time_for"]) == (4, [])
    runs = whole["runs"]
    report = tmp_path / "night.html"
    words = (plan, "--budget", f"{0.7 * wanted_s(runs):.2f}s", "--out", report)
    cut = lab.cli("--log-format json run --json", *words)
    assert cut.exit_code == 6, cut.stderr
    told = cut.json
    assert (told["status"], told["left"]) == ("finished", 0)
    left_out = {
        (item["delegate"], item["threads"])
        for item in told["no_time_for"]
        if item["invocations"] is None
    }
    assert ("xnnpack", 1) not in left_out
    assert ("gpu", 2) in left_out, told["no_time_for"]
    reasons = [item["reason"] for item in told["no_time_for"] if not item["invocations"]]
    assert all("are left after the cases before it in the plan" in reason for reason in reasons)
    assert "it needs about" in report.read_text()
    lines = [json.loads(line) for line in cut.stderr.splitlines()]
    assert {"campaign-started", "run-stored", "campaign-ended"} <= {line["event"] for line in lines}
    assert {line["campaign_id"] for line in lines if line["event"] == "run-stored"} == {
        told["campaign_id"]
    }
    for form in ("text", "markdown"):
        assert "ut of time: " in lab.cli("report", told["campaign_id"], "-f", form).ok().stdout
    # People are told by model: another model's case of the same name may have been measured.
    said = " ".join(lab.cli("run", *words).ended_with(6).stdout.split())
    no_time = said.partition(f"no time on {serial} for texturenet_0.25_256_float: ")[2]
    assert "gpu, 2 threads, native" in no_time, said
    # A resume owes nothing.
    assert lab.cli("run --resume", told["campaign_id"]).exit_code == 2
    check_raw_output_is_deleted(lab, tmp_path)


def test_no_time_is_kept_for_a_reference_workload_that_what_is_left_does_not_get(
    lab: Lab, plan_file: Callable[..., Path]
) -> None:
    plan = plan_file((lab.serial,), invocations=50, extra="budget: 1 min\n")
    told = " ".join(lab.cli("plan show", plan).ok().stdout.split())
    assert "of 1 min 00 s are left after" in told


def test_a_phone_is_not_waited_for_longer_than_the_budget(
    lab: Lab, plan_file: Callable[..., Path]
) -> None:
    serial = lab.serial
    lab.fault(serial, "overheat", "heat_c=90")
    plan = plan_file((serial,), invocations=1, extra="limits: {wait: 10 min}\n")
    ended = lab.cli("run --json --budget 5s", plan)
    assert ended.exit_code == 6, ended.stderr
    assert "completed" not in {run["outcome"] for run in ended.json["runs"]}, ended.stderr
    assert re.search(r"waiting until it is fit: .* \(at most for [\d.]+ m?s\)", ended.stderr)


def wanted_s(runs: list[dict[str, Any]]) -> float:
    """What these runs, one of each case, are thought to take again."""
    return sum(run["duration_s"] for run in runs) + len(runs) * usual_pause_s(runs)


def usual_pause_s(runs: list[dict[str, Any]]) -> float:
    runs = sorted(runs, key=lambda run: run["started_at"])
    begins = [datetime.fromisoformat(run["started_at"]) for run in runs]
    pauses = [
        (after - before).total_seconds() - run["duration_s"]
        for before, after, run in zip(begins, begins[1:], runs, strict=False)
    ]
    own = [pause_s for pause_s in pauses if pause_s >= 0]
    return statistics.median(own) if own else 0.0


def check_raw_output_is_deleted(lab: Lab, tmp_path: Path) -> None:
    lab.cli("store backup", tmp_path / "copy.sqlite").ok()
    before = lab.cli("report --format csv").ok().stdout
    trial = lab.cli.json("store prune --older-than 0s --dry-run")
    done = lab.cli.json("store prune --older-than 0s")
    assert trial["runs"] == done["runs"] > 0
    # What takes less room than a note of its deletion stays.
    campaigns = [item["campaign_id"] for item in lab.cli.json("results list")]
    run_ids = [run["run_id"] for item in campaigns for run in lab.cli.json("results runs", item)]
    logs = ((run_id, lab.cli("results log", run_id).ok().stdout) for run_id in run_ids)
    run_id, shown = next((run_id, text) for run_id, text in logs if "deleted: on " in text)
    assert "--older-than 0s" in shown
    assert "0 changed" in lab.cli("results reparse").ok().stdout
    assert lab.cli("report --format csv").ok().stdout == before
    kept = lab.cli("results log", run_id, BENCHFARM_STORE=str(tmp_path / "copy.sqlite")).ok().stdout
    assert "deleted: on " not in kept
