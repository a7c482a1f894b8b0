"""What equal phones share: each invocation is run once, also when phones are lost, and the store says whose it is."""

import dataclasses
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.clock import SystemClock
from orchestrator.engine.campaign import DevicePool
from orchestrator.engine.device_queue import Assigner
from orchestrator.engine.rounds import open_works
from orchestrator.engine.workload import Arrival, Services, Workload
from orchestrator.errors import InterruptedByUserError
from orchestrator.planning.assignment import Assignment, Present, assign, equal_phones, share_key
from orchestrator.records.campaign import Campaign, CampaignStatus, Invocation, Terms
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import CampaignId, RunId, Serial
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.workload import Build, Model
from orchestrator.store.opening import MemoryStore
from tests.unit.analysis.test_rounds import run
from tests.unit.test_assignment import phone, queue

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CASE = queue("A")[0].case
MODEL = Model(name="m", sha256=CASE.model_sha256, size_bytes=1)
BUILD = Build(name="b", tool=CASE.tool, sha256=CASE.build_sha256, abi="arm64-v8a")
DEADLINE_S = 30.0


def run_of(campaign: Campaign, item: Invocation, outcome: Outcome = Outcome.COMPLETED) -> RunRecord:
    run_id = RunId(f"{item.case.serial}-{item.case.threads}-{item.number}-{outcome}")
    return run(item, run_id=run_id, campaign_id=campaign.campaign_id, outcome=outcome, report=None, is_virtual=False)


def brought(*serials: str) -> list[Present]:
    return [Present(facts=phone(serial), invocations=queue(serial)) for serial in serials]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def begin(store: MemoryStore) -> Callable[..., Assigner]:
    def make(*serials: str) -> Assigner:
        devices = [phone(serial) for serial in serials]
        begun = assign(Assignment(shards=equal_phones(devices)), brought(*serials))
        campaign = Campaign(
            campaign_id=CampaignId("c"), name="c", created_at=NOW, status=CampaignStatus.RUNNING, plan_text="", seed=0,
            benchfarm_version="0", host="h", terms=Terms(shards=begun.shards, replaces_lost=True),
            invocations=tuple(item for queue in begun.work.values() for item in queue),
        )  # fmt: skip
        store.begin_campaign(campaign, devices=devices, models=[MODEL], builds=[BUILD])
        return Assigner(campaign, store, [], cancelled=threading.Event())

    return make


def work(assigner: Assigner, serial: str, *, most: int = 1000) -> list[Invocation]:
    """Run what a phone is given, as a device's thread does."""
    ran: list[Invocation] = []
    while len(ran) < most and (item := assigner.begin(Serial(serial))) is not None:
        assert assigner._store.append_run(run_of(assigner.campaign, item))
        assigner.end(Serial(serial), is_done=True)
        ran.append(item)
    return ran


def test_a_shared_case_is_no_single_phones_series() -> None:
    alone = queue("A")[0].case
    part = dataclasses.replace(alone, shard="t")
    assert (part.case_key, part.series_key) != (alone.case_key, alone.series_key)
    assert part.series_key != alone.series_key
    assert "shared by equal phones" in part.configuration


def test_a_phone_takes_over_what_another_left_and_the_store_says_so(
    begin: Callable[..., Assigner], store: MemoryStore
) -> None:
    assigner = begin("A", "B")
    work(assigner, "A", most=2)
    # Given up in the middle of a third.
    assert assigner.begin(Serial("A")) is not None
    assigner.end(Serial("A"), is_done=False)
    ran = work(assigner, "B")
    assert len(ran) == 10
    assert store.campaign(assigner.campaign.campaign_id) == assigner.campaign
    runs = list(store.runs())
    assert {(run.case.case_key, run.invocation) for run in runs} == {
        (item.case.case_key, item.number) for item in assigner.campaign.invocations
    }
    assert {item.case.serial for item in ran} == {"B"}


def test_a_whole_queue_moves_in_a_few_steps(begin: Callable[..., Assigner]) -> None:
    assigner = begin("A", "B")
    seen = [assigner.campaign]
    while assigner.begin(Serial("B")) is not None:
        assigner.end(Serial("B"), is_done=True)
        if assigner.campaign is not seen[-1]:
            seen.append(assigner.campaign)
    assert len(seen) == 1 + 3


def test_a_phone_waits_for_the_last_invocation_of_its_equal_which_may_be_lost(begin: Callable[..., Assigner]) -> None:
    assigner = begin("A", "B")
    last = assigner.begin(Serial("A"))
    assert last is not None
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(work, assigner, "B")
        assigner.end(Serial("A"), is_done=False)
        assert share_key(last) in {share_key(item) for item in other.result(DEADLINE_S)}
    assert assigner.begin(Serial("A")) is None
    assert not assigner.has_shared(Serial("A"))


def test_a_phone_that_waits_ends_when_all_is_cancelled(begin: Callable[..., Assigner]) -> None:
    assigner = begin("A", "B")
    assigner.begin(Serial("A"))
    assigner._cancelled.set()
    with pytest.raises(InterruptedByUserError):
        assigner.begin(Serial("B"))


def test_many_phones_at_once_run_each_invocation_once(begin: Callable[..., Assigner], store: MemoryStore) -> None:
    serials = [f"P{number}" for number in range(6)]
    assigner = begin(*serials)
    with ThreadPoolExecutor(len(serials)) as pool:
        ran = [item for done in pool.map(lambda serial: work(assigner, serial), serials) for item in done]
    assert Counter(share_key(item) for item in ran) == Counter({share_key(item): 1 for item in queue("P0")})
    assert store.progress()[assigner.campaign.campaign_id] == (12, 12)


def replace_a(assigner: Assigner, store: MemoryStore, spare: DeviceFacts) -> DevicePool:
    """Have a spare stand in for A, which has run two of its six invocations and whose equal is B."""
    arrival = Arrival(
        device=cast(Any, SimpleNamespace(serial=spare.serial)),
        facts=spare,
        invocations=queue(spare.serial),
        models=(MODEL,),
        builds=(BUILD,),
    )
    pool = DevicePool(
        Workload(campaign=assigner.campaign, models={}, builds={}),
        [phone("A"), phone("B")],
        Services(
            store=store,
            tools={},
            conditioner=cast(Any, None),
            observer=cast(Any, SimpleNamespace(on_event=lambda event: None)),
            clock=SystemClock(),
            cancelled=threading.Event(),
        ),
        cast(Any, SimpleNamespace(take=lambda: (), spare_for=lambda serial, is_free: arrival)),
        list(store.runs()),
        {},
    )
    pool.replace_lost(Serial("A"), lambda serial: True)
    for device in pool.newcomers():
        pool.begin(device)
    return pool


@pytest.mark.parametrize("fingerprint", ["one", "other"])
def test_what_a_replaced_phone_shared_is_open_until_its_equals_have_measured_it(
    begin: Callable[..., Assigner], store: MemoryStore, fingerprint: str
) -> None:
    assigner = begin("A", "B")
    work(assigner, "A", most=2)
    spare = phone("C", fingerprint)
    pool = replace_a(assigner, store, spare)
    assert pool.has_work_for(Serial("A"), open_works(pool.campaign, list(store.runs()), {}))
    # The process is killed, and the campaign resumed from what is stored.
    stored = store.campaign(assigner.campaign.campaign_id)
    assert stored is not None
    assert stored.terms.replaced == {"A": "C"}
    again = Assigner(stored, store, store.runs(), cancelled=threading.Event())
    assert len(open_works(stored, list(store.runs()), {})[Serial("A")].planned) == 4
    work(again, "C" if fingerprint == "one" else "B")
    shared = [run for run in store.runs() if run.case.shard]
    assert Counter((run.case.threads, run.invocation) for run in shared) == Counter(
        {(item.case.threads, item.number): 1 for item in queue("P0")}
    )
    works = open_works(again.campaign, list(store.runs()), {})
    assert not works[Serial("A")].invocations
    # One that isn't their equal measures the plan's cases as its own.
    assert len(works[Serial("C")].invocations if Serial("C") in works else ()) == (0 if fingerprint == "one" else 12)


def test_a_resume_goes_on_with_what_is_not_stored_whoever_had_it(
    begin: Callable[..., Assigner], store: MemoryStore
) -> None:
    assigner = begin("A", "B")
    work(assigner, "B", most=8)
    stored = store.campaign(assigner.campaign.campaign_id)
    assert stored is not None
    unfit = run_of(stored, next(item for item in stored.invocations if item.case.serial == "A"), Outcome.UNFIT)
    again = Assigner(stored, store, [*store.runs(), unfit], cancelled=threading.Event())
    assert len(work(again, "A")) == 4
    assert len({share_key(item) for item in again.campaign.invocations}) == 12
