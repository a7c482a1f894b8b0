"""What a store says of late: the same on every store."""

from __future__ import annotations

import dataclasses
from datetime import timedelta

from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.case import CampaignId
from orchestrator.records.history import OutcomeCount, ResultCount
from orchestrator.records.run import Outcome
from orchestrator.records.verdict import Quality, QualityVerdict
from orchestrator.store.opening import Store
from tests.samples.stores import START


def test_activity_counts_late_runs_by_ending_and_knows_each_devices_newest(
    store: Store, samples
) -> None:
    ended = ({}, {}, {"outcome": Outcome.FAILED, "reason_code": "oom"})
    for days, name in enumerate(("night-1", "night-2", "night-3")):
        samples.night(store, name, days)
        for number, changes in enumerate(ended):
            samples.keep(store, name, number, **changes)
    store.set_status(CampaignId("night-1"), CampaignStatus.FINISHED, START + timedelta(hours=3))
    store.set_status(CampaignId("night-2"), CampaignStatus.FINISHED, START + timedelta(hours=30))
    found = store.activity(START + timedelta(days=1))
    assert dict(found.campaigns) == {CampaignStatus.FINISHED: 2, CampaignStatus.RUNNING: 1}
    assert dict(found.finished_at) == {"nightly": START + timedelta(hours=30)}
    assert sorted(found.runs, key=lambda item: item.count) == [
        OutcomeCount(outcome=Outcome.FAILED, reason_code="oom", quality=Quality.SUSPECT, count=2),
        OutcomeCount(outcome=Outcome.COMPLETED, reason_code="", quality=Quality.SUSPECT, count=4),
    ]
    (newest,) = found.newest
    assert (newest.run_id, newest.attachments) == ("night-3-timing-2", ())
    assert store.activity(START + timedelta(days=9)).newest == ()
    for name in ("night-2", "night-3"):
        store.hide_campaign(CampaignId(name))
    hidden = store.activity(START + timedelta(days=1))
    assert dict(hidden.campaigns) == {CampaignStatus.FINISHED: 1}
    assert dict(hidden.finished_at) == {"nightly": START + timedelta(hours=3)}
    # The phone was as it was.
    assert (hidden.runs, hidden.newest) == ((), found.newest)
    names = [CampaignId("night-1"), CampaignId("night-9")]
    (ended,) = store.runs(campaign_ids=names, reason_codes=["oom"])
    assert (ended.campaign_id, ended.reason_code) == ("night-1", "oom")
    assert list(store.runs(campaign_ids=names, reason_codes=["nowhere"])) == []


def test_what_the_runs_of_campaigns_gave_is_counted(store: Store, samples) -> None:
    ends = {
        "night-1": (
            {},
            {"outcome": Outcome.FAILED, "reason_code": "oom"},
            {"outcome": Outcome.SKIPPED},
        ),
        "night-2": (
            {"outcome": Outcome.TIMED_OUT, "reason_code": "hang"},
            {"verdict": QualityVerdict(quality=Quality.REJECTED)},
        ),
        "night-3": ({"outcome": Outcome.SKIPPED}, {"outcome": Outcome.UNFIT}),
        "night-4": ({"outcome": Outcome.ABORTED},),
        "night-5": (),
    }
    for name, runs in ends.items():
        samples.night(store, name)
        for number, changes in enumerate(runs):
            samples.keep(store, name, number, **changes)
    found = store.result_counts([CampaignId(name) for name in ends if name != "night-4"])
    assert found == {
        "night-1": ResultCount(made=2, without_result=1),
        "night-2": ResultCount(made=2, without_result=2),
        "night-3": ResultCount(made=0, without_result=0),
    }
    assert store.result_counts([]) == {}


def test_what_campaigns_left_out_for_a_reason_is_told_of_those_asked_for(
    store: Store, samples
) -> None:
    (other,) = samples.campaign().skipped
    late = [
        dataclasses.replace(other, reason_code="out-of-time", threads=threads) for threads in (4, 1)
    ]
    samples.night(store, "night-1", skipped=(late[0], other, late[1]))
    samples.night(store, "night-2", skipped=(other,))
    samples.night(store, "night-3", skipped=(late[1],))
    names = [CampaignId(name) for name in ("night-1", "night-2", "night-9")]
    found = store.skips(names, "out-of-time")
    assert {name: list(skips) for name, skips in found.items()} == {"night-1": late}
    assert store.skips([], "out-of-time") == {}
