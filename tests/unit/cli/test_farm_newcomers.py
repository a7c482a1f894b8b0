"""Which of the phones that come later a farm's submission means, and with what it measures them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from orchestrator.app.farm_payload import by_kind
from orchestrator.app.farm_phones import usable
from orchestrator.app.farm_submitting import kept_submission, meant
from orchestrator.config.farm_documents import Content, Payload, PhoneLabels, dump, read_payload, read_plan
from orchestrator.planning.time_budget import bounded
from orchestrator.queueing.newcomers import GONE_S, Added
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.identity import BuildSha, ModelSha, Serial
from orchestrator.records.plan import DeviceSelection, Plan, PlanModel
from orchestrator.records.workload import Build, Model, ToolName
from orchestrator.store.opening import MemoryStore

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
MODEL = Model(name="m", sha256=ModelSha("aa" * 32), size_bytes=1, path=Path("m.tflite"))
BUILD = Build(
    name="mine", tool=ToolName.NATIVE, sha256=BuildSha("bb" * 32), abi="arm64-v8a", version="1", path=Path("program")
)
PLAN = Plan(name="nightly", models=(PlanModel(name="m", path=Path("m.tflite"), sha256=MODEL.sha256),))


def phone(serial: str, *, abi: str = "arm64-v8a", model: str = "Pixel 4") -> DeviceFacts:
    return DeviceFacts(serial=Serial(serial), kind=DeviceKind.ANDROID, is_virtual=False, model=model, abis=(abi,))


def announced(facts: DeviceFacts, **changes: object) -> Mapping[str, Any]:
    row: dict[str, Any] = {
        "serial": facts.serial, "host": "h", "unusable": "", "silent_s": 1.0, "labels": "",
        "facts": dump(facts), **changes,
    }  # fmt: skip
    return row


def added(
    plan: Plan,
    first: DeviceFacts,
    *rows: Mapping[str, Any],
    inventory: Mapping[Serial, PhoneLabels] | None = None,
) -> list[Added]:
    """Submit a plan for a phone at noon; return what is added of the phones that are there later."""
    reference = Content(name="reference.tflite", sha256="cc" * 32)
    bare = Payload(reference=reference)
    limited, opens_at = bounded(plan, NOON)
    submission = kept_submission(
        "night",
        limited,
        by_kind({first.serial: replace(bare, builds=(BUILD,))}, bare, [first], [MODEL]),
        [first],
        inventory=inventory or {},
        priority=0,
        opens_at=opens_at,
    )
    return meant(MemoryStore(), submission, submission.facts, rows)


def selecting(**devices: Any) -> Plan:
    return replace(PLAN, devices=DeviceSelection(**devices))


def test_a_phone_gets_what_others_of_its_kind_got_and_one_of_another_kind_its_hosts_own_programs() -> None:
    same, other = added(PLAN, phone("A"), announced(phone("B")), announced(phone("C", abi="armeabi-v7a")))
    assert [build.sha256 for build in read_payload(same.job.payload).builds] == [BUILD.sha256]
    # What isn't a program goes to every phone.
    payload = read_payload(other.job.payload)
    assert (payload.builds, payload.reference is not None) == ((), True)
    assert read_plan(same.job.plan) == replace(PLAN, text=read_plan(same.job.plan).text)


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
    assert [item.job.serial for item in added(selecting(**devices), phone("A"), *rows)] == serials


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
    assert [item.job.serial for item in added(PLAN, phone("A"), *rows)] == ([] if is_left_out else ["B"])
    kept, out = usable(rows, ["B"])
    assert (list(kept), list(out)) == (([], ["B"]) if is_left_out else (["B"], []))
    assert all("several phones have this serial number: a Pixel 4 at h, a Pixel" in reason for reason in out.values())
    # One that can't be used there, or was there before its host fell silent, isn't seen twice now.
    for change in ({"unusable": "offline"}, {"silent_s": 300.0}):
        assert usable([rows[0], {**rows[1], **change}], [])[1] == {}
