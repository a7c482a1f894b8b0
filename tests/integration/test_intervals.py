"""The interval of a case is one figure, whatever is asked for beside it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestrator.app.comparing import compare
from orchestrator.app.lab import Lab
from orchestrator.app.requests import CompareOptions
from orchestrator.app.stored import find_campaigns, report_data
from orchestrator.app.workspace import Workspace
from orchestrator.records.campaign import Campaign, CampaignStatus, Terms
from orchestrator.records.case import CampaignId, CaseKey, DelegateName
from orchestrator.records.run import RunRecord
from orchestrator.store.opening import MemoryStore, open_store
from tests.samples.records import pairing_of, settings_in
from tests.samples.sample_lab import START, campaign_of, case, lab_of, run

#: Autocorrelation that a device had shown before: (weight, total).
BEFORE = {"first": (24.0, 4.0), "second": (70.0, 60.0)}
CASES = [
    case(threads=threads, delegate=delegate)
    for delegate in (DelegateName.CPU, DelegateName.XNNPACK)
    for threads in (1, 2, 4)
]
OWN = case(threads=8, delegate=DelegateName.CPU)


def drifting(name: str, cases: Iterable[Any], speed: float) -> list[RunRecord]:
    """Return 12 runs of each case, whose latencies come and go with different periods."""
    return [
        replace(
            run(
                owner,
                number,
                speed * 10_000 * math.exp(0.01 * math.sin(number * (place + 1) / 2)),
                campaign_id=CampaignId(name),
            ),
            started_at=START + timedelta(minutes=10 * number + place),
        )
        for place, owner in enumerate(cases)
        for number in range(12)
    ]


@pytest.fixture
def workspace(tmp_path: Path) -> Any:
    """Two campaigns of one phone: the second one has a case of the first, and one of its own."""
    settings = settings_in(tmp_path)
    with Workspace(settings) as opened:
        for night, (name, cases) in enumerate({"first": CASES, "second": [CASES[0], OWN]}.items()):
            runs = drifting(name, cases, 1 + 0.2 * night)
            campaign = campaign_of(
                runs, campaign_id=CampaignId(name), name=name, created_at=START + timedelta(night)
            )
            shown = {str(runs[0].case.serial): BEFORE[name]}
            terms = replace(campaign.terms, autocorrelations=shown)
            lab = replace(lab_of(runs), campaigns=(replace(campaign, terms=terms),))
            lab.store_in(opened.store)
        yield opened


def intervals(workspace: Workspace, *names: str) -> Mapping[CaseKey, float | None]:
    data = report_data(workspace, find_campaigns(workspace.store, *names), has_logs=False)
    return {row.case.case_key: row.precision for row in data.results}


def test_an_interval_is_the_same_beside_another_campaign(workspace: Workspace) -> None:
    first, second, both = (
        intervals(workspace, *names) for names in (["first"], ["second"], ["first", "second"])
    )
    assert None not in both.values()
    # Of the case that both have the newer one is shown.
    assert both == {**first, **second}
    assert first[CASES[0].case_key] != second[CASES[0].case_key]


@pytest.mark.parametrize(
    ("by", "sides"),
    [("delegate", ("cpu", "xnnpack")), ("config", ("threads=1", "threads=2"))],
)
@pytest.mark.parametrize("named", [(), ("first",)])
def test_a_comparison_shows_the_intervals_of_the_report(
    workspace: Workspace, by: str, sides: tuple[str, str], named: tuple[str, ...]
) -> None:
    known = intervals(workspace, "first")
    found = compare(workspace, sides, CompareOptions(by=by, campaign=named))
    assert found.rows
    for row in found.rows:
        for side in (row.baseline, row.candidate):
            assert side.campaign_id == "first"
            assert side.precision == known[side.case.case_key]
    assert found.notes == ()
    workspace.store.set_status(CampaignId("first"), CampaignStatus.INTERRUPTED, None)
    (left,) = compare(workspace, sides, CompareOptions(by=by, campaign=named)).notes
    assert "'benchfarm run --resume first'" in left


class CountingStore(MemoryStore):
    """Remembers which campaigns are read one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[str] = []

    def campaign(self, campaign_id: CampaignId) -> Campaign | None:
        self.reads.append(campaign_id)
        return super().campaign(campaign_id)


def test_a_comparison_within_one_campaign_reads_it_once(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    store = CountingStore()
    runs = drifting("first", CASES, 1.0)
    lab_of(runs, campaign_id=CampaignId("first"), status=CampaignStatus.INTERRUPTED).store_in(store)
    sides = ["cpu", "xnnpack"]
    with Workspace(settings, store=store) as opened:
        comparison = compare(opened, sides, CompareOptions(by="delegate"))
    assert store.reads == ["first"]
    assert comparison.notes == ("Runs are left to measure: 'benchfarm run --resume first'.",)


def test_python_shows_a_finished_ab_comparison(tmp_path: Path) -> None:
    old, new = CASES[0], replace(CASES[0], threads=2)
    pairing = pairing_of((old, new), baseline="threads 1", candidate="threads 2")
    runs = drifting("pairs", (old, new), 1.0)
    store = tmp_path / "store.sqlite"
    with closing(open_store(store)) as opened:
        lab_of(runs, campaign_id=CampaignId("pairs"), terms=Terms(pairing=pairing)).store_in(opened)
    with Lab(home=tmp_path, store=store) as lab:
        for word in ("pairs", "newest"):
            comparison = lab.compare(word)
            assert (comparison.compared.baseline, len(comparison)) == ("threads 1", 1)
            assert "pairs" in str(comparison)
