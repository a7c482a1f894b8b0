"""Which of the announced phones a submission means, now and later, and with what it measures them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.bootstrap import Attached
from orchestrator.devices.adb_server import AdbServer
from orchestrator.extensions.farm.looking import hanging
from orchestrator.extensions.farm.manifest import Content, Manifest, Payload, kind_of, read_manifest
from orchestrator.extensions.farm.phones import usable
from orchestrator.extensions.farm.submit import submission_of
from orchestrator.ports import Seen
from orchestrator.records.case import Build, BuildSha, Serial, ToolName
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.plan import Plan, PlanModel

MODEL_SHA = "aa" * 32
BUILD = Build(
    name="mine",
    tool=ToolName.NATIVE,
    sha256=BuildSha("bb" * 32),
    abi="arm64-v8a",
    version="1",
    path=Path("program"),
)
PLAN = Plan(name="nightly", models=(PlanModel(name="m", path=Path("m.tflite"), sha256=MODEL_SHA),))


def phone(serial: str, *, abi: str = "arm64-v8a", model: str = "Pixel 4") -> DeviceFacts:
    return DeviceFacts(
        serial=Serial(serial), kind=DeviceKind.ANDROID, is_virtual=False, model=model, abis=(abi,)
    )


BARE = Payload(reference=Content(name="reference.tflite", sha256="cc" * 32))
MANIFEST = Manifest(
    plan=PLAN, payloads={"": BARE, kind_of(phone("A")): replace(BARE, builds=(BUILD,))}
)


def test_a_phone_gets_what_others_of_its_kind_got_and_one_of_another_kind_its_hosts_own_programs() -> (
    None
):
    made = submission_of("night", MANIFEST, {}, priority=0)
    manifest = read_manifest(made.document)
    assert manifest == MANIFEST
    assert [build.sha256 for build in manifest.payload_for(phone("B")).builds] == [BUILD.sha256]
    # What isn't a program goes to every phone.
    assert manifest.payload_for(phone("C", abi="armeabi-v7a")) == BARE
    assert made.files == sorted([MODEL_SHA, BUILD.sha256, "cc" * 32])


def seen(
    serial: str, host: str, *, silent_s: float = 1.0, unusable: str = "", facts: str = "{}"
) -> Mapping[str, Any]:
    return {
        "serial": serial,
        "host": host,
        "facts": facts,
        "unusable": unusable,
        "silent_s": silent_s,
        "state": "",
    }


def test_phones_of_a_host_that_was_not_heard_for_long_are_left_out_with_the_reason() -> None:
    rows = [
        seen("A", "dead", silent_s=30 * 86400.0),
        seen("B", "live"),
        seen("C", "slow", silent_s=60),
    ]
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
    rows = [
        seen("A", "asked", unusable="offline"),
        seen("A", "never", unusable="unauthorized", facts=""),
    ]
    for order in (rows, rows[::-1]):
        chosen, left_out = usable(order, ["A"])
        assert (chosen["A"]["host"], left_out) == ("asked", {})


def attached(serial: str, how: str, address: str = "") -> Attached:
    seen = Seen(
        serial=serial,
        address=address or serial,
        state="device",
        usable=how == "works",
        hangs=how == "hangs",
    )
    return Attached(server=AdbServer(), seen=seen)


HUNG = {"S1": attached("S1", "hangs"), "T1": attached("T1", "hangs", "10.0.0.7:5555")}


@pytest.mark.parametrize(
    ("seen", "found"),
    [
        ([("S2", "hangs")], ["S2", "T1"]),
        ([("S2", "hangs"), ("T1", "works", "10.0.0.8:5555")], ["S2"]),
        # One that works by another of its transports doesn't hang.
        ([("S1", "hangs"), ("S1", "works", "10.0.0.9:5555")], ["T1"]),
        # Still listed, in whichever state; a used one is new to nobody, one without a name can't be
        # told from others.
        ([("S1", "offline"), ("USED", "hangs"), ("", "hangs")], ["S1", "T1"]),
        ([], ["T1"]),
    ],
)
def test_which_phones_of_a_host_hang(seen: list[tuple[str, ...]], found: list[str]) -> None:
    now = [attached(*item) for item in seen]
    assert sorted(hanging(HUNG, now, {"USED"}, lambda: ())) == found
    # It answers at another host by now, which is asked about phones that aren't listed alone.
    assert "T1" not in hanging(HUNG, now, {"USED"}, lambda: {"T1"})
    assert hanging({}, now[:1], (), lambda: pytest.fail("no phone is missing")).keys() <= {
        "S1",
        "S2",
    }
