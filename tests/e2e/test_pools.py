"""Which phones a campaign measures: chosen by rules, of those that are there and fit; the others are told."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.app import virtual_phones
from orchestrator.app.requests import LabRequest
from orchestrator.app.workspace import Workspace
from orchestrator.errors import UsageError
from orchestrator.records.case import Serial
from orchestrator.settings import Settings
from tests.e2e.conftest import Lab
from tests.samples.command import Done
from tests.samples.records import settings_in

A, B, LATE = "VIRTUAL-PIXEL-3", "VIRTUAL-PIXEL-4", "VIRTUAL-PIXEL-3-2"
DEADLINE_S = 180.0
#: What is told before anything is measured: who comes now comes in time.
BEGUN = r" campaign \S+ '"


@pytest.fixture
def late(lab: Lab) -> Iterator[Callable[[], None]]:
    """Plug a phone of the same kind as the first one in; it is unplugged at the end."""
    yield lambda: plug(lab, LATE)
    unplug(lab, LATE)


def plug(lab: Lab, serial: str) -> None:
    # Without the start of another process: the campaign goes on meanwhile.
    request = LabRequest(profiles=("pixel-3@1-2.3",), serial=serial)
    virtual_phones.attach(settings_of(lab), request)


def unplug(lab: Lab, serial: str) -> None:
    with contextlib.suppress(UsageError):
        virtual_phones.detach(settings_of(lab), serial)


def settings_of(lab: Lab) -> Settings:
    # No adb server of this computer's user is ever touched.
    return settings_in(lab.cli.home)


def write(tmp_path: Path, model: Path, devices: str, *, min_secs: float = 0.2) -> Path:
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        f"models: ['{model}']\nmatrix: {{delegates: [xnnpack], threads: [1, 2]}}\ndevices: {{{devices}}}\n"
        f"settings: {{min_secs: {min_secs}, warmup_min_secs: 0.1}}\ninvocations: 2\n"
        "reference_check: false\n"
    )
    return plan


def run_and_act(lab: Lab, plan: Path, *acts: tuple[str, Callable[[], None]]) -> Done:
    """Run a plan; do each act, one after the other, once the progress says what it waits for."""
    process = lab.cli.start("run --json", plan)
    assert process.stderr is not None
    told, waiting = [], list(acts)
    for line in process.stderr:
        told.append(line)
        if waiting and re.search(waiting[0][0], line):
            waiting.pop(0)[1]()
        if not waiting:
            break
    stdout, stderr = process.communicate(timeout=DEADLINE_S)
    return Done(exit_code=process.returncode, stdout=stdout, stderr="".join(told) + stderr)


def stored(lab: Lab, done: Done) -> list[dict[str, Any]]:
    """The campaign's runs, each of which is there once."""
    runs: list[dict[str, Any]] = lab.cli.json("results runs", done.json["campaign_id"])
    keys = Counter(
        (run["case"]["serial"], run["case"]["threads"], run["invocation"]) for run in runs
    )
    assert set(keys.values()) == {1}, keys
    return runs


def test_the_plan_tells_which_phones_it_takes_and_why_not_the_others(
    lab: Lab, model: Path, tmp_path: Path
) -> None:
    (lab.cli.home / "devices.yaml").write_text(
        f"devices: {{{A}: {{pools: nightly}}, {B}: {{pools: [nightly, release]}}}}"
    )
    try:
        shown = lab.cli.json("plan show", write(tmp_path, model, "where: pool = nightly, any: 1"))
        assert shown["devices"] == {
            "chosen": [A],
            "left_out": {B: "1 phone is enough for the plan"},
            "lacking": "",
        }
    finally:
        (lab.cli.home / "devices.yaml").unlink()


def test_a_plan_shows_phones_of_one_name_with_their_serials(
    lab: Lab, model: Path, tmp_path: Path, late: Callable[[], None]
) -> None:
    late()
    shown = lab.cli("plan show", write(tmp_path, model, "profiles: pixel-3")).ok().stdout
    assert {
        serial: shown.count(f"Google Pixel 3 (virtual) ({serial})  ") for serial in (A, LATE)
    } == {A: 2, LATE: 2}


def test_bench_takes_so_many_of_the_phones_that_fit(lab: Lab, model: Path) -> None:
    words = ("bench -d xnnpack -t 1 -n 1 --min-secs 0.2 --where virtual", model)
    done = lab.cli(*words, "--any", "1", "--one-of-each", "profile", "--json").ok()
    assert {run["case"]["serial"] for run in stored(lab, done)} == {A}
    refused = lab.cli(*words, "--one-of-each", "shoe")
    assert (refused.exit_code, "--one-of-each" in refused.stderr) == (2, True)


def test_a_campaign_is_for_the_phones_that_are_there_when_it_begins(
    lab: Lab, model: Path, tmp_path: Path, late: Callable[[], None]
) -> None:
    plan = write(tmp_path, model, "where: virtual", min_secs=20)
    done = run_and_act(lab, plan, (BEGUN, late))
    assert done.exit_code == 0, done.stderr
    assert Counter(run["case"]["serial"] for run in stored(lab, done)) == {A: 4, B: 4}
    assert LATE in {item["serial"] for item in lab.cli.json("devices")}


AILS = "in quarantine: battery swollen"


@pytest.fixture
def kept_out(lab: Lab) -> Iterator[str]:
    """A phone in quarantine."""
    with Workspace(settings_of(lab)) as workspace:
        workspace.quarantine.put(Serial(B), "battery swollen")
    yield B
    with Workspace(settings_of(lab)) as workspace:
        workspace.quarantine.release(Serial(B))


def test_a_phone_in_quarantine_is_listed_with_the_reason_and_not_as_ready(
    lab: Lab, kept_out: str
) -> None:
    listed = {item["serial"]: item for item in lab.cli("devices --json").ended_with(3).json}
    told = listed[kept_out]
    assert (told["usable"], told["reason"].startswith(AILS)) == (False, True)
    assert told["hint"] == f"check the phone, then 'benchfarm device release {kept_out}'"
    assert told["facts"]["serial"] == kept_out
    assert (listed[A]["usable"], listed[A]["reason"]) == (True, "")
    shown = lab.cli("devices").ended_with(3).stdout.splitlines()
    states = {line.split()[0]: line for line in shown}
    assert states[kept_out].endswith("kept out")
    assert states[A].endswith("ready")
    assert AILS in shown[-1]
    found = lab.cli("doctor --json").ended_with(1).json["findings"]
    assert [item["text"] for item in found if item["check"] == "phones"] == [f"1 usable: {A}"]


def test_a_plan_that_names_phones_measures_those_that_there_are_and_tells_of_the_others(
    lab: Lab, model: Path, tmp_path: Path, kept_out: str
) -> None:
    done = lab.cli(
        "run --json", write(tmp_path, model, f"serials: [{A}, {kept_out}, GONE]")
    ).ended_with(1)
    missing = done.json["missing"]
    assert (missing.pop(kept_out).startswith(AILS), missing) == (True, {"GONE": "is not attached"})
    assert {run["case"]["serial"] for run in done.json["runs"]} == {A}
    refused = lab.cli("run", write(tmp_path, model, "serials: [GONE]")).ended_with(3)
    assert "GONE: is not attached" in refused.stderr
    # Whoever names a phone for an answer now means that one.
    lab.cli(f"bench -s GONE -s {A}", model).ended_with(3)


def test_another_phone_of_the_same_kind_and_serial_number_is_kept_out_and_listed_so(
    lab: Lab, model: Path
) -> None:
    words = f"-s {A} -d xnnpack -t 1 -n 1 --min-secs 0.1"
    lab.cli(f"bench {words}", model).ok()
    own = lab.shell(A, "settings get secure android_id")
    lab.shell(A, "settings put secure android_id fedcba9876543210")
    try:
        listed = lab.cli("devices --json").ended_with(3).json
        (told,) = (item for item in listed if item["serial"] == A)
        assert not told["usable"]
        assert "several phones have this serial number" in told["reason"]
        assert "(not the same first start)" in told["reason"]
        assert "in quarantine: several" in lab.cli(f"bench {words}", model).ended_with(3).stderr
    finally:
        lab.shell(A, f"settings put secure android_id {own}")
        lab.cli("device release", A)
    lab.cli(f"bench {words}", model).ok()
