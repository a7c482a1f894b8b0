"""Every fault of the way to a phone, at every phase of a run: nothing lost, nothing doubled, nothing left changed.

Each campaign has a fault for each of its first runs; the faults of one kind at all its phases share a campaign.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from orchestrator.virtual.faults import parse_fault
from orchestrator.virtual.lab import lab_request
from tests.e2e.conftest import Lab

pytestmark = pytest.mark.xdist_group("e2e")

#: Kind and settings -> the phases at which it makes sense.
LINK = ("shell", "run", "warmup", "init", "results")
MATRIX = {
    ("cut",): (*LINK, "open", "push"),
    ("cut", "bytes=200", "subject=down"): ("",),
    ("cut", "bytes=4000", "subject=down"): ("",),
    ("cut", "bytes=900", "subject=up"): ("",),
    ("reboot",): (*LINK, "push"),
    ("hang", "seconds=1", "times=1"): ("shell", "run"),
    ("output-cut", "bytes=0"): ("shell",),
    ("output-cut", "bytes=60"): ("shell",),
    ("bit-flip",): ("push",),
    ("clock-jump", "seconds=-86400"): ("init", "run", "results"),
    ("clock-jump", "seconds=86400"): ("init", "run", "results"),
    ("screen-lock",): ("shell", "run"),
    ("log-garbage",): ("run",),
    ("slow", "bytes_per_s=100000", "times=4"): ("",),
}
#: Kinds with few phases share a campaign.
OTHERS = ("bit-flip", "screen-lock", "log-garbage", "slow")
CELLS = [(words, phase) for words, phases in MATRIX.items() for phase in phases]


def give(lab: Lab, serial: str, words: Sequence[str], phase: str) -> None:
    settings = [*words[1:], f"moment={phase}"] if phase else list(words[1:])
    fault = parse_fault(words[0], settings).to_json()
    lab_request(lab.cli.home / "state" / "lab", {"request": "fault", "serial": serial, "fault": fault})


def check(lab: Lab, before: dict[str, str], count: int, log: str) -> None:
    campaign = lab.cli("campaigns", "--json").ok().json[0]
    assert (campaign["status"], campaign["stored"]) == ("finished", count), log
    runs = lab.cli("runs", campaign["campaign_id"], "--json").ok().json
    keys = Counter((run["case"]["serial"], run["case"]["threads"], run["invocation"]) for run in runs)
    assert (len(keys), set(keys.values())) == (count, {1}), log
    assert {run["outcome"] for run in runs} == {"completed"}, log
    for serial in lab.serials:
        assert changed(lab, serial) == before[serial], log
        assert lab.shell(serial, "ls /data/local/tmp/benchfarm/undo /data/local/tmp/benchfarm/runs 2>/dev/null") in (
            "",
            "/data/local/tmp/benchfarm/runs:",
        ), log


def changed(lab: Lab, serial: str) -> str:
    """What preparation changes on a phone."""
    return lab.shell(serial, "settings get global stay_on_while_plugged_in; settings get global window_animation_scale")


@pytest.mark.parametrize("kind", ["cut", "reboot", "hang", "output-cut", "clock-jump", "others"])
def test_no_fault_on_the_way_at_any_phase_costs_a_result(lab: Lab, model: Path, tmp_path: Path, kind: str) -> None:
    cells = [cell for cell in CELLS if (cell[0][0] if cell[0][0] not in OTHERS else "others") == kind]
    before = {serial: changed(lab, serial) for serial in lab.serials}
    invocations = max(2, (len(cells) + 1) // 2 + 1)
    plan = tmp_path / "plan.yaml"
    copied = tmp_path / f"{kind}.tflite"
    # Another content: it has to be pushed.
    copied.write_bytes(model.read_bytes() + kind.encode())
    plan.write_text(
        f"models: ['{copied}']\nmatrix: {{delegates: [xnnpack], threads: 2}}\ndevices: {{where: virtual}}\n"
        f"settings: {{min_secs: 0.2, warmup_min_secs: 0.1}}\ninvocations: {invocations}\nsentinel: false\n"
    )
    waiting = {serial: cells[number::2] for number, serial in enumerate(lab.serials)}
    for serial, own in waiting.items():
        for cell in [cell for cell in own if cell[1] == "push"] or own[:1]:
            give(lab, serial, *cell)
            own.remove(cell)
    process = lab.cli.start("run", plan)
    assert process.stderr is not None
    told = []
    for line in process.stderr:
        told.append(line)
        stored = re.match(r"\S+ (\S+): \d+/\d+ ", line)
        if stored and waiting[stored[1]]:
            give(lab, stored[1], *waiting[stored[1]].pop(0))
    process.wait()
    lab.clear()
    check(lab, before, 2 * invocations, "".join(told))


def test_a_killed_adb_server_costs_no_result(lab: Lab, model: Path, tmp_path: Path) -> None:
    before = {serial: changed(lab, serial) for serial in lab.serials}
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        f"models: ['{model}']\nmatrix: {{delegates: [xnnpack], threads: 2}}\ndevices: {{where: virtual}}\n"
        "settings: {min_secs: 4, warmup_min_secs: 0.1}\ninvocations: 4\nsentinel: false\n"
    )
    process = lab.cli.start("run", plan)
    assert process.stderr is not None
    told, killed = [], 0
    for line in process.stderr:
        told.append(line)
        if re.search(r": [12]/4 ", line) and killed < 2:
            killed += 1
            os.kill(server_pid(lab), signal.SIGKILL)
    process.wait()
    assert killed == 2
    check(lab, before, 8, "".join(told))


def server_pid(lab: Lab) -> int:
    """The lab's own adb server, as benchfarm remembers it."""
    (record,) = (path for path in (lab.cli.home / "state" / "lab").glob("adb*.json"))
    return int(json.loads(record.read_text("utf-8"))["pid"])
