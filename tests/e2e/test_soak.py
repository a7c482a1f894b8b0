"""A night in little: many phones, many cases, faults on the way from a seed; what is stored is as without faults.

``make soak`` runs it with 50 phones and 2,000 cases (SOAK_PHONES, SOAK_CASES), SOAK_SEED chooses other faults.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.errors import BenchfarmError
from orchestrator.virtual.faults import parse_fault
from orchestrator.virtual.lab import lab_request
from tests.e2e.conftest import SPEED, Cli, Lab

pytestmark = pytest.mark.xdist_group("e2e")

PHONES = int(os.environ.get("SOAK_PHONES", "6"))
CASES = int(os.environ.get("SOAK_CASES", "48"))
SEED = int(os.environ.get("SOAK_SEED", "1"))
#: Of the stored runs that are followed by a fault of their phone.
SHARE = float(os.environ.get("SOAK_SHARE", "0.3" if CASES < 100 else "0.05"))
#: What happens on the way to a phone or to the phone itself; none of it is the fault of what is measured.
FAULTS = (
    ("cut",),
    ("cut", "bytes=3000", "subject=down"),
    ("cut", "bytes=500", "subject=up"),
    ("hang", "seconds=2", "times=1"),
    ("output-cut", "moment=shell", "bytes=40"),
    ("output-cut", "moment=shell", "bytes=0"),
    ("clock-jump", "seconds=-7200"),
    ("clock-jump", "seconds=86400"),
    ("reboot",),
    ("reboot", "moment=run"),
    ("cut", "moment=run"),
    ("screen-lock",),
    ("slow", "bytes_per_s=200000", "times=3"),
)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    command = Cli(home=tmp_path_factory.mktemp("soak") / "home")
    try:
        profiles = [("pixel-3", "pixel-4")[number % 2] for number in range(PHONES)]
        up = command("lab", "up", *profiles, "--speed", SPEED, "--json").ok().json
        yield Lab(cli=command, serials=tuple(phone["serial"] for phone in up["phones"]))
    finally:
        command("lab", "down")


def plan_text(model: Path) -> str:
    """A plan of so many cases on each phone that all phones together have CASES: flags that change nothing."""
    each = CASES // PHONES
    flags = ", ".join(f"{{max_delegated_partitions: {number}}}" for number in range(1, each + 1))
    return (
        f"models: [{json.dumps(str(model))}]\nmatrix: {{delegates: [xnnpack], threads: 2, flags: [{flags}]}}\n"
        "devices: {where: virtual}\nsettings: {min_secs: 0.2, warmup_min_secs: 0.1}\ninvocations: 1\nsentinel: false\n"
    )


def test_faults_on_the_way_lose_nothing_double_nothing_and_leave_nothing_changed(
    many: Lab, model: Path, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(plan_text(model))
    stay_on = {serial: many.shell(serial, "settings get global stay_on_while_plugged_in") for serial in many.serials}
    chance = random.Random(SEED)
    given: Counter[str] = Counter()
    process = many.cli.start("run", plan)
    assert process.stderr is not None
    told = []
    for line in process.stderr:
        told.append(line)
        stored = re.match(r"\S+ (\S+): \d+/\d+ ", line)
        if stored and chance.random() < SHARE:
            words = chance.choice(FAULTS)
            given[words[0]] += 1
            try:
                fault = parse_fault(words[0], words[1:]).to_json()
                lab_request(many.cli.home / "state" / "lab", {"request": "fault", "serial": stored[1], "fault": fault})
            except BenchfarmError as error:
                pytest.fail(f"{words}: {error}")
    process.wait()
    for serial in many.serials:
        many.cli("lab", "fault", serial, "clear").ok()
    log = "".join(told)
    assert "Traceback" not in log
    assert sum(given.values()) >= CASES * SHARE / 3, given
    campaign = many.cli("campaigns", "--json").ok().json[0]
    if campaign["status"] != "finished":
        # A phone that was away when all others were done is named, and nothing of it is lost.
        assert "given up with" in log
        many.cli("run", "--resume", "--json")
    runs = many.cli("runs", campaign["campaign_id"], "--json").ok().json
    keys = Counter((run["case"]["serial"], json.dumps(run["case"]["flags"], sort_keys=True)) for run in runs)
    assert len(keys) == CASES, log
    assert set(keys.values()) == {1}, log
    assert Counter(run["outcome"] for run in runs) == {"completed": CASES}, log
    for run in runs:
        # A run is its phone's: the name that the phone itself wrote into the state beside it.
        assert run["is_virtual"]
    for serial in many.serials:
        assert many.shell(serial, "settings get global stay_on_while_plugged_in") == stay_on[serial], serial
        assert many.shell(serial, "ls /data/local/tmp/benchfarm/undo 2>/dev/null") == "", serial
        assert many.shell(serial, "pidof benchmark_model virtual_benchmark_model") == "", serial
