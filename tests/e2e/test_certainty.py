"""Phone time goes where certainty is missing: added rounds, phones bracketed, heat measured, unfit
phones kept open."""

from __future__ import annotations

import json
import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any

from tests.conftest import poll_until
from tests.e2e.conftest import Lab
from tests.samples.command import Cli, heard


def runs_of(cli: Cli, *campaign: str) -> list[dict[str, Any]]:
    return cli.json("results runs", *campaign)


def doubted_of(cli: Cli) -> set[str]:
    found = {
        run["run_id"]: run["verdict"]
        for run in runs_of(cli)
        if "reference-moved" in json.dumps(run["verdict"])
    }
    assert all(verdict["quality"] != "trusted" for verdict in found.values())
    return set(found)


def plan(tmp_path: Path, model: Path, serials: tuple[str, ...], text: str) -> Path:
    path = tmp_path / "plan.yaml"
    path.write_text(
        f"models: [{json.dumps(str(model))}]\nmatrix: {{threads: [1]}}\n"
        f"devices: {{serials: {json.dumps(serials)}}}\n{text}"
    )
    return path


def test_a_case_gets_as_many_invocations_as_its_noise_needs(lab: Lab, model: Path) -> None:
    words = f"-s {lab.serial} -d xnnpack -t 1 --min-secs 0.1 -n 3-5"
    wide = lab.cli.json(f"bench --precision 90% {words}", model)
    narrow = lab.cli(f"bench --precision 0.1% --json {words}", model).ok()
    assert [item["stored"] for item in (wide, narrow.json)] == [3, 5]
    assert [item["stopped"][0]["reason"] for item in (wide, narrow.json)] == ["reached", "most"]
    assert "invocations up to 4 are added" in narrow.stderr
    listed = lab.cli.json("results list")[0]
    assert listed["planned"] == listed["stored"]


def test_a_campaign_killed_among_its_added_rounds_continues_to_the_same_end(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    text = "settings: {min_secs: 4}\ninvocations: {first: 2, most: 6}\nprecision: 0.1 %\n"
    # However late the kill comes, the campaign isn't over before.
    lab.fault(lab.serials[1], "program-hang")
    process = lab.cli.start("run", plan(tmp_path, model, lab.serials, text))
    heard(process, "invocations up to 4 are added")
    process.kill()
    process.communicate()
    lab.clear()
    before = {run["run_id"] for run in runs_of(lab.cli)}
    done = lab.cli("run --resume --json").ok()
    result = done.json
    assert (result["left"], result["status"]) == (0, "finished")
    # What is stored isn't measured again.
    assert len(re.findall(r"#\d+: ", done.stderr)) == 12 - len(before), done.stderr
    runs = runs_of(lab.cli, result["campaign_id"])
    assert {run["run_id"] for run in runs} >= before
    assert Counter((run["case"]["serial"], run["invocation"]) for run in runs) == {
        (serial, number): 1 for serial in lab.serials for number in range(1, 7)
    }


def test_a_phone_that_changed_is_set_aside_and_its_runs_since_are_doubted(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    # Minutes of the phone's, so that it isn't done before the process is killed.
    text = "settings: {min_secs: 12}\ninvocations: 8\nreference_check: true\nlimits: {wait: 1 s}\n"
    process = lab.cli.start("run", plan(tmp_path, model, lab.serials[:1], text))
    heard(process, "native #2:")
    process.kill()
    process.communicate()
    measured = sum(run["run_pass"] == "timing" for run in runs_of(lab.cli))
    lab.fault(lab.serial, "throttle", "steps=8")
    done = lab.cli("run --resume --json")
    assert done.exit_code == 1
    assert "set aside: after cooling its reference workload is" in done.json["lost"][lab.serial]
    # Nothing was measured on it any more.
    assert done.json["left"] == 8 - measured > 0
    rows = json.loads(lab.cli("report --format json").ok().stdout)["results"]
    (row,) = rows
    assert row["quality"] != "trusted"
    assert "reference-moved" in json.dumps(row)
    # The store says so to every reader, and reading the output again leaves it.
    doubted = doubted_of(lab.cli)
    assert doubted
    lab.cli("results reparse").ok()
    assert doubted_of(lab.cli) == doubted
    assert "suspect" in lab.cli("table --all --json").ok().stdout
    lab.clear()
    kept_out = lab.cli("run --resume")
    assert kept_out.exit_code == 3
    assert "in quarantine: set aside" in kept_out.stderr
    released = lab.cli.json("device release", lab.serial)
    assert "set aside: after cooling its reference workload is" in released["reason"]
    # All is measured, and what was doubted leaves its one case suspect.
    again = lab.cli("run --resume --json").ended_with(1).json
    assert (again["left"], again["lost"], "reference-moved" in again["nothing_clean"]) == (
        0,
        {},
        True,
    )


def test_a_cut_sustained_measurement_is_begun_again_and_shown_beside_whole_ones(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    process = lab.cli.start(
        "bench --sustained 10s", model, "-s", *lab.serials[:1], "-s", lab.serials[1]
    )
    heard(process, "(sustained pass) #3")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=180)
    assert process.returncode == 130
    result = lab.cli.json("run --resume")
    assert (result["left"], result["status"]) == (0, "finished")
    numbers = {run["invocation"] // 100_000 for run in runs_of(lab.cli, result["campaign_id"])}
    assert numbers == {0, 1}
    page = tmp_path / "report.html"
    lab.cli("report newest --out", page).ok()
    text = page.read_text("utf-8")
    section = text.partition('id="sustained-title"')[2].partition("<h2")[0]
    assert section.count("(virtual)") == 4
    # Of each phone the attempt that was cut, and the whole one.
    assert "This table of 4 rows" in section


def test_an_unfit_phone_is_recorded_with_its_reason_and_tried_again(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    text = "settings: {min_secs: 0.1}\ninvocations: 2\nlimits: {wait: 1 s, battery_min: 60 %}\n"
    lab.fault(lab.serial, "battery-low", "percent=10")
    done = lab.cli("run --json", plan(tmp_path, model, lab.serials, text))
    assert done.exit_code == 1
    assert list(done.json["lost"]) == [lab.serial]
    assert "battery at 1" in done.json["lost"][lab.serial]
    assert [done.json[name] for name in ("stored", "left", "status")] == [2, 2, "interrupted"]
    unfit = [run for run in runs_of(lab.cli, done.json["campaign_id"]) if run["outcome"] == "unfit"]
    assert {run["reason_code"] for run in unfit} == {"battery-low"}
    assert all(run["state_before"]["battery_percent"] < 20 for run in unfit)
    lab.fault(lab.serial, "battery-low", "percent=10")
    told = lab.cli("run --resume").ended_with(1).stdout
    assert f"2 runs left: 'benchfarm run --resume {done.json['campaign_id']}'" in told
    lab.fault(lab.serial, "battery-low", "percent=90")
    again = lab.cli.json("run --resume")
    assert (again["left"], {run["outcome"] for run in again["runs"]}) == (0, {"completed"})
    assert len(again["runs"]) == 4
    poll_until(
        lambda: lab.cli.json("device restore")["failed"] == {},
        "nothing is left changed",
    )
