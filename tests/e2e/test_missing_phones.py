"""Phones that a plan means and that can't be measured on keep no other from it, and are told; the
command.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.bootstrap import Workspace
from orchestrator.records.case import Serial
from tests.e2e.conftest import Lab
from tests.e2e.test_pools import A, B, settings_of, write

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
    listed = {item["serial"]: item for item in lab.cli("devices", "--json").ended_with(3).json}
    told = listed[kept_out]
    assert (told["usable"], told["reason"].startswith(AILS)) == (False, True)
    assert told["hint"] == f"look at it, then 'benchfarm device release {kept_out}'"
    assert told["facts"]["serial"] == kept_out
    assert (listed[A]["usable"], listed[A]["reason"]) == (True, "")
    shown = lab.cli("devices").ended_with(3).stdout.splitlines()
    states = {line.split()[0]: line for line in shown}
    assert states[kept_out].endswith("kept out")
    assert states[A].endswith("ready")
    assert AILS in shown[-1]


def test_a_plan_that_names_phones_measures_those_that_there_are_and_tells_of_the_others(
    lab: Lab, model: Path, tmp_path: Path, kept_out: str
) -> None:
    done = lab.cli(
        "run", write(tmp_path, model, f"serials: [{A}, {kept_out}, GONE]"), "--json"
    ).ended_with(1)
    missing = done.json["missing"]
    assert (missing.pop(kept_out).startswith(AILS), missing) == (True, {"GONE": "is not attached"})
    assert {run["case"]["serial"] for run in done.json["runs"]} == {A}
    refused = lab.cli("run", write(tmp_path, model, "serials: [GONE]")).ended_with(3)
    assert "GONE: is not attached" in refused.stderr
    # Whoever names a phone for an answer now means that one.
    lab.cli("bench", model, "-s", A, "-s", "GONE").ended_with(3)


def test_a_pool_of_which_a_phone_is_away_or_kept_out_is_measured_and_both_are_told(
    lab: Lab, model: Path, tmp_path: Path, kept_out: str
) -> None:
    inventory = lab.cli.home / "devices.yaml"
    pools = {A: "nightly", kept_out: "nightly", "AWAY": "nightly", "OTHER": "release"}
    inventory.write_text(
        "devices:\n" + "".join(f"  {serial}: {{pools: {pool}}}\n" for serial, pool in pools.items())
    )
    try:
        done = lab.cli("run", write(tmp_path, model, "pools: nightly")).ended_with(1)
    finally:
        inventory.unlink()
    told = [line for line in done.stdout.splitlines() if "not measured" in line]
    assert (told[0], len(told)) == ("AWAY: not measured: is not attached", 2)
    assert told[1].startswith(f"{kept_out}: not measured: {AILS}")


def test_another_phone_of_the_same_kind_and_serial_number_is_kept_out_and_listed_so(
    lab: Lab, model: Path
) -> None:
    words = ("-s", A, "-d", "xnnpack", "-t", "1", "-n", "1", "--min-secs", "0.1")
    lab.cli("bench", model, *words).ok()
    own = lab.shell(A, "settings get secure android_id")
    lab.shell(A, "settings put secure android_id fedcba9876543210")
    try:
        listed = lab.cli("devices", "--json").ended_with(3).json
        (told,) = (item for item in listed if item["serial"] == A)
        assert not told["usable"]
        assert "several phones have this serial number" in told["reason"]
        assert "(not the same first start)" in told["reason"]
        assert "in quarantine: several" in lab.cli("bench", model, *words).ended_with(3).stderr
    finally:
        lab.shell(A, f"settings put secure android_id {own}")
        lab.cli("device", "release", A)
    lab.cli("bench", model, *words).ok()
