"""``benchfarm status``: a running campaign, one that was cut off, and nothing at all."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Lab


def test_status_tells_each_phones_work_while_it_runs_and_after_it_was_cut_off(
    lab: Lab, plan_file: Callable[..., Path]
) -> None:
    process = lab.cli.start("run", plan_file(lab.serials, invocations=3, min_secs=12.0))
    assert process.stderr is not None
    for line in process.stderr:
        if " 3/12 " in line:
            break
    campaign = _stopped_when_told(lab, process)
    phones = {phone["serial"]: phone for phone in campaign["phones"]}
    assert set(phones) == set(lab.serials)
    assert campaign["stored"] >= 3
    assert sum(phone["stored"] + phone["left"] for phone in phones.values()) == 24
    shown = max(phones.values(), key=lambda phone: phone["stored"])
    assert shown["eta_s"] > 0
    assert shown["battery_heat_c"] > 0
    assert campaign["eta_s"] > 0
    # Nobody goes on with it meanwhile, and nobody says that it ended.
    for words in ((), ("--campaign", campaign["campaign_id"])):
        refused = lab.cli("run", "--resume", *words)
        assert refused.exit_code == 2, refused.stderr
        assert f"process {process.pid} " in refused.stderr
    (listed,) = [c for c in lab.cli("campaigns", "--json").ok().json if c["campaign_id"] == campaign["campaign_id"]]
    assert listed["status"] == "running"
    process.kill()
    process.communicate()
    text = lab.cli("status").ok().stdout
    assert "cut off" in text
    assert "waits for a resume" in text
    lab.cli("run", "--resume").ok()
    assert lab.cli("status").ok().stdout == "nothing is running, and nothing waits to be resumed\n"


def _stopped_when_told(lab: Lab, process: subprocess.Popen[str]) -> Any:
    """What status says once it knows of both phones and of what one measures; the campaign stands still meanwhile."""
    for _ in range(40):
        process.send_signal(signal.SIGSTOP)
        (campaign,) = [item for item in lab.cli("status", "--json").ok().json["campaigns"] if item["is_held"]]
        holders = {phone["holder"] for phone in campaign["phones"]}
        # Between two runs a phone is prepared.
        is_measuring = any("texturenet" in phone["doing"] for phone in campaign["phones"])
        if campaign["stored"] >= 3 and is_measuring and all(f"process {process.pid}" in name for name in holders):
            return campaign
        process.send_signal(signal.SIGCONT)
        time.sleep(0.1)
    pytest.fail(f"status never told of both phones: {campaign}")
