"""An iPhone in what was made for Android's phones: one campaign with both, one table, a farm's
worker."""

from __future__ import annotations

import json
from pathlib import Path

from orchestrator.extensions.farm.queue import FarmQueue
from tests.conftest import poll_until
from tests.e2e.conftest import Lab
from tests.extensions.iphone import cabled_iphone
from tests.extensions.iphone.test_iphone_on_a_cable import UDID, environ
from tests.samples.command import Cli
from tests.samples.farm_hosts import OVER, Host, private_database

SETTINGS = (
    "settings: {min_secs: 0.1, warmup_min_secs: 0.1}\ninvocations: 2\nreference_check: false\n"
)


def test_one_plan_measures_an_iphone_and_an_android_phone_and_one_report_shows_both(
    lab: Lab, tmp_path: Path, model: Path
) -> None:
    cabled_iphone.install(tmp_path / "bin", tmp_path / "phone")
    plan, android = tmp_path / "plan.yaml", lab.serial
    plan.write_text(
        f"models: [{json.dumps(str(model))}]\nmatrix: {{delegates: [xnnpack], threads: 2}}\n"
        f"devices: {{serials: [{android}, {UDID}]}}\n{SETTINGS}"
    )
    own = environ(tmp_path / "bin")
    campaign = lab.cli.json("run", plan, **own)["campaign_id"]
    runs = lab.cli.json("results", "runs", campaign)
    of = {
        serial: {run["case"]["tool"] for run in runs if run["case"]["serial"] == serial}
        for serial in (android, UDID)
    }
    assert of == {android: {"native"}, UDID: {"litert-ios"}}
    assert {run["outcome"] for run in runs} == {"completed"}
    shown = lab.cli("report", campaign, "--format", "text").ok().stdout
    assert "iPhone18,1 (virtual)" in shown
    compared = lab.cli(
        "compare",
        "--by",
        "device",
        android,
        UDID,
        "--campaign",
        campaign,
        "--allow",
        "tool,settings,grade",
    )
    assert f"device {UDID}" in compared.ok().stdout


def test_a_farms_worker_offers_its_iphone_and_measures_a_job_on_it(
    cli: Cli, tmp_path: Path, model: Path
) -> None:
    cabled_iphone.install(tmp_path / "bin", tmp_path / "phone")
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        f"models: [{json.dumps(str(model))}]\nmatrix: {{delegates: [gpu], threads: 1}}\n{SETTINGS}"
    )
    with private_database() as database:
        host = Host(name="one", cli=cli, url=database.url, serial=UDID)
        with FarmQueue(database.url) as queue:
            try:
                host.work(**environ(tmp_path / "bin"))
                poll_until(
                    lambda: any(row["facts"] for row in queue.phones()),
                    "the iPhone is announced",
                    60.0,
                )
                sent = host("farm", "submit", plan, "--name", "night")
                assert [job["serial"] for job in sent["jobs"]] == [UDID]
                poll_until(
                    lambda: all(job["status"] in OVER for job in queue.jobs("night")),
                    "it is measured",
                    120.0,
                )
            finally:
                host.rest()
            (job,) = queue.jobs("night")
        assert job["status"] == "done", host.log()
        runs = host("results", "runs", job["campaign_id"])
        assert [(run["case"]["tool"], run["outcome"]) for run in runs] == [
            ("litert-ios", "completed")
        ] * 2
    assert list((tmp_path / "phone" / "app" / "Documents").iterdir()) == []
