"""A campaign that changes while it runs, in every kind of store."""

import dataclasses

import pytest

from orchestrator.errors import StoreError
from orchestrator.records.campaign import Invocation
from orchestrator.records.plan import Shard
from orchestrator.records.workload import Pass
from orchestrator.store.opening import Store


def test_what_joins_a_campaign_and_what_moves_comes_back_and_what_was_measured_stays(store: Store, samples) -> None:
    begun = samples.begin(store)
    run = samples.run()
    assert store.append_run(run)
    newcomer = dataclasses.replace(samples.phone, serial="LATE")
    moved = samples.case(serial="LATE", shard="Pixel 3")
    amended = dataclasses.replace(
        begun,
        invocations=(*begun.invocations[1:], Invocation(case=moved, run_pass=Pass.TIMING, number=7)),
        skipped=(),
        terms=dataclasses.replace(begun.terms, shards=(Shard(title="Pixel 3", serials=("A", "LATE")),), joins=True),
    )

    store.amend_campaign(amended, devices=[newcomer], models=[], builds=[])

    assert store.campaign(begun.campaign_id) == amended
    assert store.devices()[newcomer.serial] == newcomer
    assert [item.run_id for item in store.runs(campaign_ids=[begun.campaign_id])] == [run.run_id]
    assert store.progress()[begun.campaign_id] == (1, len(begun.invocations))


def test_an_amendment_that_refers_to_something_unknown_changes_nothing(store: Store, samples) -> None:
    begun = samples.begin(store)
    wrong = Invocation(case=samples.case(serial="NEVER-SEEN"), run_pass=Pass.TIMING, number=0)

    with pytest.raises(StoreError, match="NEVER-SEEN"):
        store.amend_campaign(dataclasses.replace(begun, invocations=(wrong,)), devices=[], models=[], builds=[])
    with pytest.raises(StoreError, match="no such campaign"):
        store.amend_campaign(samples.campaign("other"), devices=[], models=[], builds=[])

    assert store.campaign(begun.campaign_id) == begun
