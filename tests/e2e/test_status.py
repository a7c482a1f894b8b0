"""``benchfarm status``: a running campaign, one that was cut off, and nothing at all."""

from __future__ import annotations

import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Lab
from tests.samples.command import Cli


def test_status_tells_each_phones_work_while_it_runs_and_after_it_was_cut_off(
    lab: Lab, plan_file: Callable[..., Path]
) -> None:
    # However long it takes to ask: one phone continues its first run, the other one has runs for
    # minutes.
    lab.fault(lab.serials[1], "program-hang")
    plan = plan_file(lab.serials, invocations=200, min_secs=12.0, extra="reference_check: false\n")
    process = lab.cli.start("run", plan)
    assert process.stderr is not None
    for line in process.stderr:
        if " 3/800 " in line:
            break
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
        refused = lab.cli("run", "--resume", *words)
        assert refused.exit_code == 2, refused.stderr
        assert f"process {process.pid} " in refused.stderr
    (listed,) = [
        c
        for c in lab.cli("results", "list", "--json").ok().json
        if c["campaign_id"] == campaign["campaign_id"]
    ]
    assert listed["status"] == "running"
    process.kill()
    process.communicate()
    assert "cut off" in lab.cli("status").ok().stdout
    listed = lab.cli("results", "list", "--status", "cut off", "--json").ok().json
    assert [item["campaign_id"] for item in listed] == [campaign["campaign_id"]]


def test_what_was_cut_off_waits_for_a_resume_until_it_was_resumed(
    lab: Lab, plan_file: Callable[..., Path]
) -> None:
    lab.fault(lab.serials[0], "program-hang")
    process = lab.cli.start("run", plan_file(lab.serials[:1], invocations=1))
    assert process.stderr is not None
    campaign = next(
        found[1] for line in process.stderr if (found := re.search(r"campaign (\S+) '", line))
    )
    process.kill()
    process.communicate()
    told = next(part for part in lab.cli("status").ok().stdout.split("\n\n") if campaign in part)
    assert "cut off" in told
    assert f"benchfarm run --resume {campaign}" in told
    lab.clear()
    lab.cli("run", "--resume", campaign).ok()
    assert campaign not in lab.cli("status").ok().stdout


def test_status_of_nothing_says_so(cli: Cli) -> None:
    assert cli("status").ok().stdout == "nothing is running, and nothing waits to be resumed\n"


def _stopped_when_told(lab: Lab, process: subprocess.Popen[str]) -> Any:
    """What status says once it knows of both phones and of what one measures; the campaign stands
    still meanwhile.
    """
    for _ in range(40):
        process.send_signal(signal.SIGSTOP)
        (campaign,) = [
            item for item in lab.cli("status", "--json").ok().json["campaigns"] if item["is_held"]
        ]
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
