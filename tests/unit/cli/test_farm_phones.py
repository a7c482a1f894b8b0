"""Which of the announced phones a submission means, now and later, and with what it measures them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from orchestrator.app.farm_host import hanging
from orchestrator.app.farm_phones import meant, usable
from orchestrator.app.farm_submitting import submission_of
from orchestrator.bootstrap import Attached
from orchestrator.config.farm_documents import Content, Manifest, Payload, PhoneLabels, dump, kind_of, read_manifest
from orchestrator.devices.discovery import Seen
from orchestrator.devices.server import AdbServer
from orchestrator.queueing.newcomers import GONE_S
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.identity import BuildSha, Serial
from orchestrator.records.plan import DeviceSelection, Plan, PlanModel
from orchestrator.records.workload import Build, ToolName
from orchestrator.store.opening import MemoryStore

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MODEL_SHA = "aa" * 32
BUILD = Build(
    name="mine", tool=ToolName.NATIVE, sha256=BuildSha("bb" * 32), abi="arm64-v8a", version="1", path=Path("program")
)
PLAN = Plan(name="nightly", models=(PlanModel(name="m", path=Path("m.tflite"), sha256=MODEL_SHA),))


def phone(serial: str, *, abi: str = "arm64-v8a", model: str = "Pixel 4") -> DeviceFacts:
    return DeviceFacts(serial=Serial(serial), kind=DeviceKind.ANDROID, is_virtual=False, model=model, abis=(abi,))


def announced(facts: DeviceFacts, **changes: object) -> Mapping[str, Any]:
    row: dict[str, Any] = {
        "serial": facts.serial, "host": "h", "unusable": "", "silent_s": 1.0, "labels": "",
        "facts": dump(facts), **changes,
    }  # fmt: skip
    return row


BARE = Payload(reference=Content(name="reference.tflite", sha256="cc" * 32))
MANIFEST = Manifest(plan=PLAN, payloads={"": BARE, kind_of(phone("A")): replace(BARE, builds=(BUILD,))})


def added(
    plan: Plan,
    first: DeviceFacts,
    *rows: Mapping[str, Any],
    inventory: Mapping[Serial, PhoneLabels] | None = None,
) -> list[str]:
    """Submit a plan for a phone at noon; return which phones are added of those that are there later."""
    made = submission_of("night", replace(MANIFEST, plan=plan), inventory or {}, priority=0, now=NOON)
    return list(meant(MemoryStore(), made, {first.serial: dump(first)}, rows))


def selecting(**devices: Any) -> Plan:
    return replace(PLAN, devices=DeviceSelection(**devices))


def test_a_phone_gets_what_others_of_its_kind_got_and_one_of_another_kind_its_hosts_own_programs() -> None:
    made = submission_of("night", MANIFEST, {}, priority=0, now=NOON)
    manifest = read_manifest(made.document)
    assert manifest == MANIFEST
    assert [build.sha256 for build in manifest.payload_for(phone("B")).builds] == [BUILD.sha256]
    # What isn't a program goes to every phone.
    assert manifest.payload_for(phone("C", abi="armeabi-v7a")) == BARE
    assert made.files == sorted([MODEL_SHA, BUILD.sha256, "cc" * 32])


@pytest.mark.parametrize(
    ("devices", "serials"),
    [
        ({}, ["B", "C"]),
        ({"most": 2}, ["B"]),
        ({"most": 1}, []),
        ({"one_of_each": "model"}, ["C"]),
        ({"where": ("model = 'Pixel 8'",)}, ["C"]),
        ({"serials": ("A", "C")}, ["C"]),
        ({"pools": ("nightly",)}, ["C"]),
    ],
)
def test_it_is_chosen_as_among_attached_phones(devices: dict[str, Any], serials: list[str]) -> None:
    pools = json.dumps({"pools": ["nightly"], "tags": []})
    # A fits whatever is said of it now: it has its place.
    rows = [announced(phone("B")), announced(phone("C", model="Pixel 8"), labels=pools)]
    assert added(selecting(**devices), phone("A"), *rows) == serials


def test_what_the_submitter_says_of_a_phone_wins() -> None:
    said = {Serial("B"): PhoneLabels(pools=("nightly",))}
    rows = [announced(phone("B"), labels=json.dumps({"pools": ["other"], "tags": []}))]
    assert added(selecting(pools=("nightly",)), phone("A"), *rows) == []
    assert len(added(selecting(pools=("nightly",)), phone("A"), *rows, inventory=said)) == 1


@pytest.mark.parametrize("state", [{"unusable": "offline"}, {"silent_s": GONE_S + 1}], ids=str)
def test_a_phone_that_can_not_have_a_job_now_comes_when_it_can(state: dict[str, object]) -> None:
    assert added(PLAN, phone("A"), announced(phone("B"), **state)) == []


@pytest.mark.parametrize(
    ("other", "is_left_out"),
    [
        ({"model": "Pixel 8"}, True),
        ({"fingerprint": "b/c"}, True),
        ({"boot_id": "2"}, True),
        ({"fingerprint": ""}, False),
        ({"is_rooted": True}, False),
    ],
)
def test_a_serial_number_that_two_phones_have_is_left_out(other: dict[str, Any], is_left_out: bool) -> None:
    facts = replace(phone("B"), fingerprint="b/a", boot_id="1")
    rows = [announced(facts), announced(replace(facts, **other), host="g")]
    assert added(PLAN, phone("A"), *rows) == ([] if is_left_out else ["B"])
    kept, out = usable(rows, ["B"])
    assert (list(kept), list(out)) == (([], ["B"]) if is_left_out else (["B"], []))
    assert all("several phones have this serial number: a Pixel 4 at h, a Pixel" in reason for reason in out.values())
    # One that can't be used there, or was there before its host fell silent, isn't seen twice now.
    for change in ({"unusable": "offline"}, {"silent_s": 300.0}):
        assert usable([rows[0], {**rows[1], **change}], [])[1] == {}


def seen(serial: str, host: str, *, silent_s: float = 1.0, unusable: str = "", facts: str = "{}") -> Mapping[str, Any]:
    return {"serial": serial, "host": host, "facts": facts, "unusable": unusable, "silent_s": silent_s}


def test_phones_of_a_host_that_was_not_heard_for_long_are_left_out_with_the_reason() -> None:
    rows = [seen("A", "dead", silent_s=30 * 86400.0), seen("B", "live"), seen("C", "slow", silent_s=60)]
    chosen, left_out = usable(rows, ())
    assert list(chosen) == ["B", "C"]
    assert left_out == {"A": "its host dead wasn't heard for 720 h 00 min"}


@pytest.mark.parametrize("unusable", ["", "offline"])
def test_a_phone_that_moved_is_the_living_hosts(unusable: str) -> None:
    rows = [seen("A", "dead", silent_s=86400.0), seen("A", "live", unusable=unusable)]
    chosen, left_out = usable(rows, ())
    assert [row["host"] for row in chosen.values()] == ([] if unusable else ["live"])
    assert left_out == ({"A": unusable} if unusable else {})


def test_a_phone_that_is_named_is_what_a_host_knows_of_it() -> None:
    rows = [seen("A", "asked", unusable="offline"), seen("A", "never", unusable="unauthorized", facts="")]
    for order in (rows, rows[::-1]):
        chosen, left_out = usable(order, ["A"])
        assert (chosen["A"]["host"], left_out) == ("asked", {})


def attached(serial: str, how: str, address: str = "") -> Attached:
    seen = Seen(serial=serial, address=address or serial, state="device", usable=how == "works", hangs=how == "hangs")
    return Attached(server=AdbServer(), seen=seen)


HUNG = {"S1": attached("S1", "hangs"), "T1": attached("T1", "hangs", "10.0.0.7:5555")}


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        ([("S2", "hangs")], ["S2", "T1"]),
        ([("S2", "hangs"), ("T1", "works", "10.0.0.8:5555")], ["S2"]),
        # One that works by another of its transports doesn't hang.
        ([("S1", "hangs"), ("S1", "works", "10.0.0.9:5555")], ["T1"]),
        # Still listed, in whichever state; a used one is new to nobody, one without a name can't be told from others.
        ([("S1", "offline"), ("USED", "hangs"), ("", "hangs")], ["S1", "T1"]),
        ([], ["T1"]),
    ],
)
def test_which_phones_of_a_host_hang(seen: list[tuple[str, ...]], found: list[str]) -> None:
    now = [attached(*item) for item in seen]
    assert sorted(hanging(HUNG, now, {"USED"}, lambda: ())) == found
    # It answers at another host by now, which is asked about phones that aren't listed alone.
    assert "T1" not in hanging(HUNG, now, {"USED"}, lambda: {"T1"})
    assert hanging({}, now[:1], (), lambda: pytest.fail("no phone is missing")).keys() <= {"S1", "S2"}
