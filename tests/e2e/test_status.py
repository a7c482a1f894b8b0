"""What runs, what was cut off, what is stored, and what it advises."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import poll_until
from tests.e2e.conftest import Lab
from tests.samples.command import Cli, heard


def test_status_tells_each_phones_work_while_it_runs_and_after_it_was_cut_off(
    lab: Lab, plan_file: Callable[..., Path]
) -> None:
    # However long it takes to ask: one phone continues its first run, the other one has runs for
    # minutes.
    lab.fault(lab.serials[1], "program-hang")
    plan = plan_file(lab.serials, invocations=200, min_secs=12.0, extra="reference_check: false\n")
    process = lab.cli.start("run", plan)
    heard(process, " 3/800 ")
    campaign = _stopped_when_told(lab, process)
    phones = {phone["serial"]: phone for phone in campaign["phones"]}
    assert set(phones) == set(lab.serials)
    assert campaign["stored"] >= 3
    assert sum(phone["stored"] + phone["left"] for phone in phones.values()) == 1600
    shown = max(phones.values(), key=lambda phone: phone["stored"])
    assert shown["eta_s"] > 0
    assert shown["battery_heat_c"] > 0
    assert campaign["eta_s"] > 0
    # Nobody resumes it meanwhile, and nobody says that it ended.
    for words in ((), (campaign["campaign_id"],)):
        refused = lab.cli("run --resume", *words)
        assert refused.exit_code == 2, refused.stderr
        assert f"process {process.pid} " in refused.stderr
    (listed,) = [
        c for c in lab.cli.json("results list") if c["campaign_id"] == campaign["campaign_id"]
    ]
    assert listed["status"] == "running"
    watching = lab.cli.start("status --watch --every 0.2 --json")
    lab.cli("status").ok()
    process.kill()
    process.communicate()
    told, _ = watching.communicate(timeout=60)
    states = {item["campaign_id"]: item["status"] for item in json.loads(told)["campaigns"]}
    assert states[campaign["campaign_id"]] == "cut off"
    assert "cut off" in lab.cli("status").ok().stdout
    listed = lab.cli.json("results list --status", "cut off")
    assert [item["campaign_id"] for item in listed] == [campaign["campaign_id"]]


def test_what_was_cut_off_waits_for_a_resume_until_it_was_resumed(
    lab: Lab, plan_file: Callable[..., Path]
) -> None:
    lab.fault(lab.serial, "program-hang")
    process = lab.cli.start("run", plan_file(lab.serials[:1], invocations=1))
    campaign = re.findall(r"campaign (\S+) '", heard(process, "campaign "))[-1]
    process.kill()
    process.communicate()
    told = next(part for part in lab.cli("status").ok().stdout.split("\n\n") if campaign in part)
    assert "cut off" in told
    assert f"benchfarm run --resume {campaign}" in told
    lab.clear()
    lab.cli("run --resume", campaign).ok()
    assert campaign not in lab.cli("status").ok().stdout


def test_a_phone_that_hangs_in_mid_run_is_told_once_and_its_run_keeps_its_figure(
    lab: Lab, model: Path
) -> None:
    serial = lab.serial
    lab.fault(serial, "hang", "moment=run")
    process = lab.cli.start("bench -d xnnpack -t 1 -n 2 --min-secs 0.2 -s", serial, model)
    log = heard(process, f"{serial}: problem: doesn't answer: its run may continue")
    assert "waiting up to " in log
    assert _phone_of(lab, serial)["activity"] == "away"
    lab.clear()
    log += heard(process, f"{serial}: is back")
    _, rest = process.communicate(timeout=180)
    log += rest
    assert process.returncode == 0, log
    assert (log.count("doesn't answer"), log.count("is back")) == (1, 1)
    assert "attempt" not in log
    outcomes = [run["outcome"] for run in lab.cli.json("results runs newest")]
    assert outcomes == ["completed"] * 2


def test_a_phone_that_is_unplugged_in_mid_run_is_told_and_shown_as_away(
    lab_of: Callable[..., Lab], model: Path
) -> None:
    lab = lab_of("pixel-3", "pixel-4")
    serial = lab.serial
    lab.fault(serial, "program-hang")
    process = lab.cli.start("bench -d xnnpack -t 1 -n 2 --min-secs 0.2 -s", serial, model)
    poll_until(lambda: "#1" in _phone_of(lab, serial).get("doing", ""), "it is measured")
    lab.cli("virtual down", serial).ok()
    log = heard(process, f"{serial}: problem: can't be reached: its run may continue")
    assert "waiting up to " in log
    phone = _phone_of(lab, serial)
    assert (phone["activity"], phone["eta_s"]) == ("away", None)
    assert phone["doing"].startswith("can't be reached")


def _phone_of(lab: Lab, serial: str) -> dict[str, Any]:
    """What status says of a phone that is measured; nothing before."""
    campaigns = lab.cli.json("status")["campaigns"]
    phones = (phone for item in campaigns for phone in item["phones"])
    return next((phone for phone in phones if phone["serial"] == serial), {})


def test_status_of_nothing_says_so(cli: Cli) -> None:
    assert cli("status").ok().stdout == "no campaign is running or waits to be resumed\n"


def _stopped_when_told(lab: Lab, process: subprocess.Popen[str]) -> Any:
    """What status says once it knows of both phones and of what one measures; the campaign stands
    still meanwhile.
    """
    for _ in range(40):
        process.send_signal(signal.SIGSTOP)
        (campaign,) = [item for item in lab.cli.json("status")["campaigns"] if item["is_held"]]
        holders = {phone["holder"] for phone in campaign["phones"]}
        # Between two runs a phone is prepared.
        is_measuring = any("texturenet" in phone["doing"] for phone in campaign["phones"])
        if (
            campaign["stored"] >= 3
            and is_measuring
            and all(f"process {process.pid}" in name for name in holders)
        ):
            return campaign
        process.send_signal(signal.SIGCONT)
        time.sleep(0.1)
    pytest.fail(f"status never told of both phones: {campaign}")


@pytest.fixture
def measured(lab: Lab, model: Path) -> str:
    words = "-d cpu -n 2 --min-secs 0.1 --json"
    done = lab.cli(f"bench {words} -s {lab.serial}", model)
    return str(done.json["campaign_id"])


def test_the_output_of_the_newest_run_is_shown_without_its_id(lab: Lab, measured: str) -> None:
    runs = lab.cli.json("results runs", measured)
    newest = max(runs, key=lambda run: run["started_at"])
    shown = lab.cli.json("results log newest")
    assert shown["run_id"] == newest["run_id"]
    assert shown["attachments"]


def test_what_is_kept_on_the_disk_is_shown_with_what_frees_it(lab: Lab, measured: str) -> None:
    assert measured
    rows = {row["kind"]: row for row in lab.cli.json("store usage")}
    assert list(rows) == ["store", "reports", "checks", "cache"]
    assert rows["store"]["size_bytes"] >= Path(rows["store"]["path"]).stat().st_size
    assert rows["reports"]["files"] >= 1
    text = lab.cli("store usage").ok().stdout
    assert "benchfarm store prune --older-than" in text
    # A link takes what its file takes.
    link = lab.cli.home / "elsewhere.sqlite"
    link.symlink_to(rows["store"]["path"])
    linked = lab.cli.json("store usage", BENCHFARM_STORE=str(link))
    assert {row["kind"]: row for row in linked}["store"]["size_bytes"] >= link.stat().st_size
    link.unlink()


def test_where_nothing_is_kept_nothing_is_made(tmp_path: Path) -> None:
    cli = Cli(home=tmp_path / "home")
    rows = cli.json("store usage")
    assert {(row["files"], row["size_bytes"]) for row in rows} == {(0, 0)}
    assert not (tmp_path / "home").exists()
    assert "no campaign" in cli("results log newest").ended_with(2).stderr


def test_advice_is_a_sentence_with_its_figure(lab: Lab, model: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    words = f"-s {lab.serial} -d cpu -t 4,8 -n 3 --min-secs 0.2"
    lab.cli(f"bench --pass timing,profile {words}", model, "--out", page).ok()
    text = lab.cli("advise").ok().stdout
    assert (
        "cpu, 4 threads, native: no number of threads above it is known to be faster: 8 take "
        in text
    )
    assert "they say nothing about real ones" in text
    lines = lab.cli.json("advise")["advice"]["lines"]
    assert {line["rule"] for line in lines} >= {"threads-enough"}
    assert all(line["text"] in page.read_text("utf-8") for line in lines)
