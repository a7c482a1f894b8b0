"""Phones that come after a submission get its job once; two phones of one serial number get none
until that is over.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import UsageError
from orchestrator.extensions.farm.manifest import Manifest, dump
from orchestrator.extensions.farm.phones import Doubt, add_new_phones
from orchestrator.extensions.farm.queue import Announced, FarmQueue
from orchestrator.records.device import DeviceFacts
from orchestrator.records.plan import DeviceSelection, Plan, PlanModel
from tests.samples.records import facts_of
from tests.samples.submissions import at_once, begin, empty, host_lives, submission

PLAN = Plan(name="nightly", models=(PlanModel(name="m", path=Path("m.tflite"), sha256="aa" * 32),))
NIGHTLY = json.dumps({"pools": ["nightly"], "tags": []})


@pytest.fixture(scope="module")
def opened(postgresql: Any) -> Iterator[FarmQueue]:
    with FarmQueue(postgresql.url(postgresql.create())) as queue:
        yield queue


@pytest.fixture
def queue(opened: FarmQueue) -> FarmQueue:
    empty(opened.rows)
    opened.rows(
        "INSERT INTO farm_files (sha256, size_bytes) VALUES (%s, 1) ON CONFLICT DO NOTHING",
        "aa" * 32,
    )
    return opened


def phone(serial: str, **changes: Any) -> DeviceFacts:
    return facts_of(serial, **{"model": "Pixel 4", **changes})


def told(*phones: DeviceFacts, labels: str = "", unusable: str = "") -> dict[str, Announced]:
    return {
        item.serial: Announced(facts=dump(item), labels=labels, unusable=unusable)
        for item in phones
    }


def submit(
    queue: FarmQueue,
    name: str = "night",
    **devices: Any,
) -> None:
    plan = replace(PLAN, devices=DeviceSelection(**devices))
    document = dump(Manifest(plan=plan))
    made = submission(name, document=document, priority=3)
    queue.submit(made, {"A": dump(phone("A"))})


def comes(queue: FarmQueue, phones: Mapping[str, Announced], host: str = "one") -> list[str]:
    """Announce phones as a host does; return what is said of it."""
    host_lives(queue, host)
    queue.announce(host, phones)
    return add_new_phones(queue, phones, set())


def serials(queue: FarmQueue, name: str = "night") -> list[str]:
    return [row["serial"] for row in queue.jobs(name)]


@pytest.mark.parametrize(
    ("devices", "wanted"),
    [
        ({}, ["B", "C"]),
        # Those chose their phones when they were made.
        ({"any": 3}, []),
        ({"one_of_each": "model"}, []),
        ({"where": ("model = 'Pixel 8'",)}, ["C"]),
        ({"serials": ("A", "C")}, ["C"]),
        ({"pools": ("nightly",)}, ["C"]),
    ],
)
def test_a_phone_that_a_submission_means_gets_its_job_when_it_comes(
    queue: FarmQueue, devices: dict[str, Any], wanted: list[str]
) -> None:
    submit(queue, **devices)
    comes(queue, told(phone("B")) | told(phone("C", model="Pixel 8"), labels=NIGHTLY))
    assert serials(queue) == ["A", *wanted]
    assert {row["priority"] for row in queue.jobs()} == {3}


def test_a_phone_that_comes_is_what_all_its_hosts_say_of_it(queue: FarmQueue) -> None:
    submit(queue, pools=("nightly",), tags=("rooted",))
    submit(queue, "whole", where=("tag != broken",))
    comes(queue, told(phone("B"), labels=NIGHTLY))
    comes(queue, told(phone("C"), labels='{"tags": ["broken"]}'), "two")
    comes(queue, told(phone("B"), labels='{"tags": ["rooted"]}') | told(phone("C")), "three")
    assert serials(queue) == ["A", "B"]
    assert serials(queue, "whole") == ["A", "B"]
    # Of a host that died nothing counts.
    queue.rows("UPDATE farm_hosts SET seen_at = now() - interval '1 hour' WHERE name = 'two'")
    comes(queue, told(phone("C")), "one")
    assert serials(queue, "whole") == ["A", "B", "C"]


def test_it_is_added_once_by_hosts_that_all_see_it_and_told_of_once(
    queue: FarmQueue, postgresql: Any, connect_again: Callable[[], FarmQueue]
) -> None:
    submit(queue)
    phones = told(phone("B"), phone("C"))
    said = at_once([partial(comes, connect_again(), phones, f"h{number}") for number in range(6)])
    assert serials(queue) == ["A", "B", "C"]
    assert sorted(line for lines in said for line in lines) == [
        "night: B is new and was added", "night: C is new and was added",
    ]  # fmt: skip


@pytest.fixture
def connect_again(queue: FarmQueue) -> Iterator[Callable[[], FarmQueue]]:
    from contextlib import ExitStack

    with ExitStack() as stack:
        yield lambda: stack.enter_context(FarmQueue(queue.url))


@pytest.mark.parametrize("why", ["unusable", "cancelled", "over", "unreadable"])
def test_none_is_added_where_it_can_not_be(queue: FarmQueue, why: str) -> None:
    submit(queue)
    submit(queue, "other")
    if why == "cancelled":
        queue.cancel("night")
    elif why == "over":
        queue.end(begin(queue, "A", host="one"), "done", "")
    elif why == "unreadable":
        queue.rows("UPDATE farm_submissions SET document = '{' WHERE submission = 'night'")
    said = comes(queue, told(phone("B"), unusable="offline" if why == "unusable" else ""))
    assert serials(queue) == ["A"]
    # One submission that can't be read hides no other.
    assert serials(queue, "other") == (["A"] if why == "unusable" else ["A", "B"])
    assert any("night: no phone can be added" in line for line in said) is (why == "unreadable")
    if why == "unusable":
        comes(queue, told(phone("B")))
        assert serials(queue) == ["A", "B"]


@pytest.mark.parametrize(
    ("other", "is_clash"),
    [
        ({"model": "Pixel 8"}, True),
        ({"fingerprint": "b/c"}, True),
        ({"fingerprint": ""}, False),
        ({"is_rooted": True}, False),
        ({"boot_id": "2"}, False),
    ],
)
def test_a_serial_number_that_two_phones_have_now_is_remembered(
    queue: FarmQueue, tmp_path: Path, other: dict[str, Any], is_clash: bool
) -> None:
    submit(queue)
    # One that was just restarted is no other phone.
    first = phone("B", fingerprint="b/a", boot_id="1")
    comes(queue, told(first))
    said = comes(queue, told(replace(first, **other)), "two")
    assert bool(queue.clashes()) is is_clash
    assert {row["state"] for row in queue.phones()} == ({"clash"} if is_clash else {"free"})
    if is_clash:
        assert "B: several phones have this serial number: a Pixel 4 at one, a Pixel" in said[0]


def test_two_phones_of_one_number_stay_two_while_one_of_their_hosts_is_away_until_that_is_forgotten(
    queue: FarmQueue,
) -> None:
    comes(queue, told(phone("B")))
    # Its host goes, and another one has a phone of the same number: they were never seen at the
    # same time.
    queue.leave("one")
    comes(queue, told(phone("B", model="Pixel 8")), "two")
    submit(queue)
    comes(queue, told(phone("B", model="Pixel 8")), "two")
    assert serials(queue) == ["A"]
    assert "a Pixel 4 at one, a Pixel 8 at two (not the same model)" in queue.clashes()["B"]
    assert [row["state"] for row in queue.phones()] == ["clash"]
    assert queue.forget(["phone:B"]) == []
    comes(queue, told(phone("B", model="Pixel 8")), "two")
    assert (queue.clashes(), serials(queue)) == ({}, ["A", "B"])


def test_a_phone_that_was_restarted_is_not_two_phones_before_both_hosts_have_asked_it_again(
    queue: FarmQueue,
) -> None:
    for host, boot in (("two", "1"), ("one", "2")):
        host_lives(queue, host)
        queue.announce(host, told(phone("B", boot_id=boot)))
    doubts: set[Doubt] = set()
    now = told(phone("B", boot_id="2"))
    assert (add_new_phones(queue, now, doubts), queue.clashes()) == ([], {})
    # It is two phones when that stays.
    (line,) = add_new_phones(queue, now, doubts)
    assert "(not the same boot)" in line
    assert list(queue.clashes()) == ["B"]


@pytest.mark.parametrize(
    ("name", "serial", "reason"),
    [
        ("a/b", "A", "can't name a submission"),
        ("n", "host", "can't be a serial number"),
        ("n", "A\n", "can't be a serial number"),
        ("n", "A" * 113, "can't be a serial number"),
    ],
)
def test_names_that_mean_a_file_or_a_host_are_refused(
    queue: FarmQueue, name: str, serial: str, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        queue.submit(submission(name), {serial: "{}"})
    assert queue.jobs() == []
