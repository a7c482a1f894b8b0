"""``benchfarm results remove``, ``hide`` and ``unhide``, on stores of both kinds."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.app.workspace import Workspace
from orchestrator.cli import stored
from orchestrator.errors import StoreError, UsageError
from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.case import CampaignId, RunId
from orchestrator.settings import Settings
from orchestrator.store.schema import pack, unpack
from tests.samples.records import settings_in
from tests.samples.stores import Samples


@pytest.fixture
def settings(tmp_path: Path, unused_database: str) -> Settings:
    return settings_in(tmp_path, store=unused_database)


def two_campaigns(settings: Settings, samples: Samples, **changes: object) -> None:
    with Workspace(settings) as workspace:
        for name in ("one", "two"):
            campaign = samples.begin(
                workspace.store,
                samples.campaign(name, **({"status": CampaignStatus.FINISHED} | changes)),
            )
            workspace.store.append_run(
                samples.run(campaign_id=campaign.campaign_id, run_id=RunId(name))
            )


def listed(settings: Settings, **options: bool) -> list[str]:
    found = stored.campaigns(settings, **options).data
    assert isinstance(found, list)
    return sorted(item["campaign_id"] for item in found)


def test_a_campaign_is_removed_with_its_runs_for_who_is_sure(
    settings: Settings, samples: Samples
) -> None:
    two_campaigns(settings, samples)
    with pytest.raises(UsageError, match="--yes"):
        stored.remove(settings, ["one"], yes=False)
    with pytest.raises(UsageError, match="'three'"):
        stored.remove(settings, ["one", "three"], yes=True)
    with pytest.raises(UsageError, match="nightly is a name"):
        stored.remove(settings, ["nightly"], yes=True)
    assert listed(settings) == ["one", "two"]
    result = stored.remove(settings, ["one"], yes=True)
    assert result.data == [{"campaign_id": "one", "runs": 1}]
    assert listed(settings) == ["two"]
    with Workspace(settings) as workspace:
        assert {run.run_id for run in workspace.store.runs()} == {"two"}


def test_a_campaign_that_is_being_measured_is_not_removed(
    settings: Settings, samples: Samples
) -> None:
    two_campaigns(settings, samples, status=CampaignStatus.RUNNING)
    with Workspace(settings) as workspace:
        workspace.hold_campaign(samples.campaign("one"))
        with pytest.raises(UsageError, match=r"one .* is run by process"):
            stored.remove(settings, ["one"], yes=True)
    assert listed(settings) == ["one", "two"]


def test_a_campaign_that_can_not_be_read_is_removed_by_its_whole_id(
    tmp_path: Path, samples: Samples
) -> None:
    settings = settings_in(tmp_path)
    two_campaigns(settings, samples)
    with closing(sqlite3.connect(tmp_path / "store.sqlite")) as rows:
        rows.execute("UPDATE campaigns SET document = x'00' WHERE campaign_id = 'one'")
        rows.commit()
    assert stored.remove(settings, ["one"], yes=True).text == "removed one (can't be read): 1 run"
    with Workspace(settings) as workspace:
        assert list(workspace.store.progress()) == ["two"]


def test_a_campaign_of_a_newer_benchfarm_is_said_to_be_one_and_nobody_is_told_to_remove_it(
    tmp_path: Path, samples: Samples
) -> None:
    settings = settings_in(tmp_path)
    two_campaigns(settings, samples)
    with closing(sqlite3.connect(tmp_path / "store.sqlite")) as rows:
        for number, document in rows.execute("SELECT case_no, document FROM cases").fetchall():
            case = json.loads(unpack(document, where="")) | {"delegate": "of-a-later-version"}
            rows.execute(
                "UPDATE cases SET document = ? WHERE case_no = ?",
                (pack(json.dumps(case).encode()), number),
            )
        rows.commit()
    with Workspace(settings) as workspace, pytest.raises(StoreError) as told:
        workspace.store.campaign(CampaignId("one"))
    assert "newer benchfarm" in told.value.hint
    assert "remove" not in told.value.hint


def test_hidden_campaigns_are_out_of_sight_until_they_are_named_or_shown_again(
    settings: Settings, samples: Samples
) -> None:
    two_campaigns(settings, samples)
    stored.hide(settings, ["one"])
    assert (listed(settings), listed(settings, hidden=True)) == (["two"], ["one", "two"])
    assert "nightly (hidden)" in stored.campaigns(settings, hidden=True).text
    assert any(
        "one" in line
        for line in stored.runs(settings, "one", selection=stored.RunSelection()).lines
    )
    stored.hide(settings, ["two"])
    assert "no campaign matches" in stored.campaigns(settings).text
    stored.hide(settings, ["one", "two"], undo=True)
    assert listed(settings) == ["one", "two"]
