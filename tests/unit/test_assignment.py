"""Who measures what: each run has one device and none is lost, whatever comes, goes or has nothing left."""

import dataclasses
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.planning.assignment import (
    Assignment,
    Present,
    RunKey,
    assign,
    equal_phones,
    key_of,
    share_key,
)
from orchestrator.records.campaign import Invocation
from orchestrator.records.device import HOST_SERIAL, DeviceFacts, DeviceKind
from orchestrator.records.identity import BuildSha, ModelSha, Serial
from orchestrator.records.plan import Shard
from orchestrator.records.workload import Case, DelegateName, Pass, ToolName

CASES, INVOCATIONS = 3, 4


def phone(serial: str, fingerprint: str = "one") -> DeviceFacts:
    return DeviceFacts(
        serial=Serial(serial), kind=DeviceKind.ANDROID, is_virtual=False, model="Pixel 8", soc="Tensor G3",
        fingerprint=fingerprint,
    )  # fmt: skip


def queue(serial: str, *, cases: int = CASES, invocations: int = INVOCATIONS, first: int = 1) -> tuple[Invocation, ...]:
    """Return what a plan means on a phone; ``first`` is the least number of threads."""
    return tuple(
        Invocation(
            case=Case(
                serial=Serial(serial), model_sha256=ModelSha("a" * 64), model_name="m", delegate=DelegateName.XNNPACK,
                threads=threads, tool=ToolName.NATIVE, build_sha256=BuildSha("b" * 64),
            ),
            run_pass=Pass.TIMING,
            number=number,
        )
        for number in range(invocations)
        for threads in range(first, first + cases)
    )  # fmt: skip


def queues(*serials: str, cases: int, invocations: int) -> dict[Serial, tuple[Invocation, ...]]:
    return {Serial(serial): queue(serial, cases=cases, invocations=invocations) for serial in serials}


#: Phones of a kind are equal; each kind can run other cases, told apart by their threads.
KINDS = {"one": 1, "other": 10}


def present(serial: str, kind: str, **more: Serial) -> Present:
    return Present(facts=phone(serial, kind), invocations=queue(serial, first=KINDS[kind]), **more)


EVENT = st.tuples(
    st.sampled_from(["join", "return", "replace", "idle", "run"]), st.integers(0, 99), st.sampled_from([*KINDS])
)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(kinds=st.lists(st.sampled_from([*KINDS]), max_size=5), shares=st.booleans(), events=st.lists(EVENT, max_size=25))
def test_each_run_has_one_device_that_can_measure_it_and_none_is_lost(
    kinds: list[str], shares: bool, events: list[tuple[str, int, str]]
) -> None:
    devices = [present(f"P{number}", kind) for number, kind in enumerate(kinds)]
    begun = Assignment(shards=equal_phones([device.facts for device in devices]) if shares else ())
    kind_of = {device.facts.serial: device.facts.fingerprint for device in devices}
    now, settled = assign(begun, devices), set[RunKey]()
    measured: dict[RunKey, Serial] = {}
    for number, (event, pick, kind) in enumerate(events):
        there = [serial for serial in kind_of if serial not in now.replaced]
        chosen = there[pick % len(there)] if there else None
        come, idle = [], []
        if event == "join" or (event == "replace" and chosen):
            lost = {"instead_of": chosen} if event == "replace" and chosen else {}
            come = [present(f"N{number}", kind, **lost)]
            kind_of[come[0].facts.serial] = kind
        elif event == "return" and chosen:
            come = [present(chosen, kind_of[chosen])]
        elif event == "idle" and chosen:
            idle = [chosen]
        elif event == "run" and chosen:
            for item in [item for item in now.work.get(chosen, ()) if key_of(item) not in settled][:3]:
                settled.add(key_of(item))
                measured[key_of(item)] = chosen
        known = [*(Present(facts=phone(serial, kind_of[serial])) for serial in kind_of), *come]
        after = assign(now, known, settled, idle=idle)
        assert after == assign(now, known, settled, idle=idle)
        now = after
        items = [item for work in now.work.values() for item in work]
        assert all(item.case.serial == serial for serial, work in now.work.items() for item in work)
        assert all(
            KINDS[kind_of[item.case.serial]] <= item.case.threads < KINDS[kind_of[item.case.serial]] + CASES
            for item in items
        )
        # What is measured stays where it was.
        assert measured.items() <= {key_of(item): item.case.serial for item in items}.items()
        for shard in now.shards:
            mine = Counter(share_key(item) for serial in shard.serials for item in now.work.get(serial, ()))
            is_whole = any(serial not in now.replaced for serial in shard.serials)
            assert not mine or max(mine.values()) == 1
            assert len(mine) == CASES * INVOCATIONS if is_whole else len(mine) <= CASES * INVOCATIONS
        for serial in kind_of.keys() - {serial for shard in now.shards for serial in shard.serials}:
            own = now.work.get(serial, ())
            wanted = set(map(key_of, queue(serial, first=KINDS[kind_of[serial]])))
            if serial in now.replaced:
                wanted &= settled
            assert Counter(map(key_of, own)) == Counter(dict.fromkeys(wanted, 1))


def test_equal_phones_are_those_of_one_model_chip_and_system_build() -> None:
    computer = DeviceFacts(serial=HOST_SERIAL, kind=DeviceKind.HOST, is_virtual=False, fingerprint="one", model="x")
    nameless = dataclasses.replace(phone("F"), model="", codename="")
    groups = equal_phones(
        [phone("C"), phone("A"), phone("B", "other"), phone("D", ""), phone("E", ""), nameless, computer]
    )
    assert groups == (Shard(title="Pixel 8, Tensor G3", serials=(Serial("A"), Serial("C"))),)


@pytest.mark.parametrize(("phones", "cases", "invocations"), [(2, 3, 4), (3, 2, 8), (3, 5, 1), (4, 1, 10)])
def test_every_invocation_is_one_phones_and_each_phone_has_as_much_of_every_case(
    phones: int, cases: int, invocations: int
) -> None:
    serials = [f"P{number}" for number in range(phones)]
    planned = queues(*serials, cases=cases, invocations=invocations)
    shards = (Shard(title="t", serials=tuple(planned)),)
    present = [Present(facts=phone(serial), invocations=own) for serial, own in planned.items()]
    shared = assign(Assignment(shards=shards), present).work
    keys = Counter(share_key(item) for queue in shared.values() for item in queue)
    assert keys == Counter({share_key(item): 1 for item in planned[Serial("P0")]})
    for threads in range(1, cases + 1):
        counts = [sum(item.case.threads == threads for item in shared[Serial(serial)]) for serial in serials]
        assert max(counts) - min(counts) <= 1
    assert {item.case.shard for queue in shared.values() for item in queue} == {"t"}
