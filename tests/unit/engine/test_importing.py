"""Imports that an older benchfarm left as running are over; what somebody may be at is left alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orchestrator.engine.importing import end_cut_off
from orchestrator.records.campaign import Campaign, CampaignStatus, Invocation, Terms
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.identity import BuildSha, CampaignId, ModelSha, Serial
from orchestrator.records.workload import Build, Case, DelegateName, Model, Pass, ToolName
from orchestrator.store.opening import MemoryStore

NOW = datetime(2026, 3, 2, 1, 0, tzinfo=UTC)


def stored(store: MemoryStore, tool: ToolName, *, age: timedelta, terms: Terms | None = None) -> Campaign:
    phone = DeviceFacts(serial=Serial("A"), kind=DeviceKind.ANDROID, is_virtual=False)
    model = Model(sha256=ModelSha("aa" * 32), name="m", path=Path("m.tflite"), size_bytes=1)
    build = Build(name="app", tool=tool, sha256=BuildSha("bb" * 32), abi="")
    case = Case(
        serial=phone.serial, model_sha256=model.sha256, model_name=model.name, delegate=DelegateName.XNNPACK, threads=4,
        tool=tool, build_sha256=build.sha256,
    )  # fmt: skip
    campaign = Campaign(
        campaign_id=CampaignId(f"c-{tool}-{age.total_seconds():g}"), name="p", created_at=NOW - age,
        status=CampaignStatus.RUNNING, plan_text="", seed=0, benchfarm_version="1", host="h", terms=terms or Terms(),
        invocations=(Invocation(case=case, run_pass=Pass.TIMING, number=0),),
    )  # fmt: skip
    store.begin_campaign(campaign, devices=[phone], models=[model], builds=[build])
    return campaign


@pytest.mark.parametrize("tool", [ToolName.FIREBASE, ToolName.DELEGATE_PERFORMANCE, ToolName.IOS_APP])
def test_an_import_that_was_left_running_is_over(tool: ToolName) -> None:
    store = MemoryStore()
    campaign = stored(store, tool, age=timedelta(days=3))
    assert end_cut_off(store, NOW) == [campaign.campaign_id]
    (listed,) = store.campaigns()
    assert (listed.status, listed.finished_at) == (CampaignStatus.FINISHED, campaign.created_at)
    assert end_cut_off(store, NOW) == []


def test_what_somebody_may_be_at_goes_on() -> None:
    store = MemoryStore()
    stored(store, ToolName.FIREBASE, age=timedelta(minutes=10))
    stored(store, ToolName.NATIVE, age=timedelta(days=3))
    # A cabled iPhone is measured by us, by a plan's terms.
    stored(store, ToolName.IOS_APP, age=timedelta(days=2), terms=Terms(fingerprints={"A": "x"}))
    assert end_cut_off(store, NOW) == []
    assert {campaign.status for campaign in store.campaigns()} == {CampaignStatus.RUNNING}
