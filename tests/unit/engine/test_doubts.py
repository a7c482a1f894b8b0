"""What checks doubt stands in the store, for whoever reads it, and stays there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.engine.reference_check import (
    CODE,
    earlier_figures_us,
    store_doubts,
    with_stored_doubt,
)
from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.case import Build, CampaignId, Model, Pass, RunId
from orchestrator.records.run import RunRecord
from orchestrator.records.verdict import Quality
from orchestrator.store.opening import MemoryStore, Store
from tests.samples.records import facts_of
from tests.unit.analysis.test_brackets import CALM, NIGHT, check
from tests.unit.analysis.test_rounds import SERIAL, START, campaign, case


def begin(store: Store, name: str, runs: list[RunRecord]) -> None:
    one = case(1)
    store.begin_campaign(
        replace(
            campaign(),
            campaign_id=CampaignId(name),
            created_at=START,
            status=CampaignStatus.FINISHED,
            invocations=(),
        ),
        devices=[facts_of(SERIAL, is_virtual=True)],
        models=[Model(sha256=one.model_sha256, name="m", size_bytes=1)],
        builds=[Build(name="native", tool=one.tool, sha256=one.build_sha256, abi="arm64-v8a")],
    )
    for item in runs:
        store.append_run(
            replace(item, run_id=RunId(f"{name} {item.run_id}"), campaign_id=CampaignId(name))
        )


@pytest.fixture
def store() -> Store:
    made = MemoryStore()
    for night, latency_us in enumerate(CALM):
        begin(made, f"night-{night}", check(0, 0, latency_us))
    begin(made, "tonight", NIGHT)
    return made


def doubted_in(store: Store, name: str = "tonight") -> set[str]:
    return {
        run.run_id.split()[-1]
        for run in store.runs(campaign_ids=[CampaignId(name)])
        if run.verdict.has(CODE)
    }


def test_doubted_runs_are_suspect_in_the_store_and_doing_it_again_changes_nothing(
    store: Store,
) -> None:
    assert len(store_doubts(store, CampaignId("tonight"))) == 2
    assert doubted_in(store) == {"timing-2", "timing-3"}
    found = {run.run_id: run for run in store.runs(campaign_ids=[CampaignId("tonight")])}
    doubtful = found[RunId("tonight timing-2")]
    assert doubtful.verdict.quality is Quality.SUSPECT
    assert doubtful.latency_us == 500.0
    assert found[RunId("tonight timing-1")].verdict.quality is Quality.TRUSTED
    assert store_doubts(store, CampaignId("tonight")) == ()
    assert all(
        [item.code for item in run.verdict.findings].count(CODE) < 2
        for run in store.runs(campaign_ids=[CampaignId("tonight")])
    )


def test_what_was_stored_later_is_no_history(store: Store) -> None:
    reference = case(1).case_key
    before = earlier_figures_us(store, reference, CampaignId("tonight"))
    begin(store, "later", check(0, 0, 3000.0))
    assert earlier_figures_us(store, reference, CampaignId("tonight")) == before
    assert len(before) == len(CALM)
    assert len(earlier_figures_us(store, reference, CampaignId("later"))) > len(CALM)


def test_only_the_last_hundred_checks_before_a_campaign_are_its_history(store: Store) -> None:
    begin(
        store,
        "busy",
        [run for number in range(120) for run in check(number, 10 * number, 1000.0 + number)],
    )
    begin(store, "last", check(0, 0, 1000.0))
    found = earlier_figures_us(store, case(1).case_key, CampaignId("last"))
    assert len(found) == 100
    assert (found[0], found[-1]) == (1021.0, 1120.0)


def test_a_verdict_made_again_from_the_output_keeps_the_doubt(store: Store) -> None:
    store_doubts(store, CampaignId("tonight"))
    for run in store.runs(campaign_ids=[CampaignId("tonight")]):
        again = with_stored_doubt(NIGHT[3].verdict, run.verdict)
        assert again.has(CODE) == run.verdict.has(CODE)
        assert (again.quality is Quality.SUSPECT) == run.verdict.has(CODE)
    assert any(
        run.run_pass is Pass.REFERENCE for run in store.runs(campaign_ids=[CampaignId("tonight")])
    )
