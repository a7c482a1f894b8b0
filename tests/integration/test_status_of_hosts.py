"""What ``benchfarm status`` and ``run --resume`` make of campaigns that another computer runs."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.cli.commands import Reporting
from orchestrator.cli.live import status
from orchestrator.cli.measuring import run
from orchestrator.cli.stored import campaigns
from orchestrator.errors import NoDeviceError, UsageError
from orchestrator.records.campaign import CampaignStatus, Invocation
from orchestrator.records.case import CampaignId, Pass
from orchestrator.settings import Settings, this_computer
from orchestrator.store.opening import open_store
from tests.samples.records import settings_in

OTHER = "lab-2 (Linux x86_64)"


def settings_for(home: Path, where: str, samples) -> Settings:
    """A store with a campaign that this computer was killed at, and newer ones of another: running,
    and stopped."""
    store = open_store(where)
    start = samples.campaign().created_at
    for hours, (campaign_id, host) in enumerate(
        (("ours", this_computer()), ("stopped", OTHER), ("theirs", OTHER))
    ):
        begun = samples.campaign(campaign_id, host=host, created_at=start + timedelta(hours=hours))
        samples.begin(store, begun)
        store.append_run(samples.run(run_id=campaign_id, campaign_id=begun.campaign_id))
    store.set_status(CampaignId("stopped"), CampaignStatus.INTERRUPTED, start + timedelta(hours=4))
    store.close()
    return settings_in(home, store=where)


def test_a_shared_store_says_what_another_computer_runs(url: str, samples, tmp_path: Path) -> None:
    told = status(settings_for(tmp_path, url, samples))

    assert isinstance(told.data, dict)
    by_id = {item["campaign_id"]: item for item in told.data["campaigns"]}
    assert {name: item["status"] for name, item in by_id.items()} == {
        "theirs": "elsewhere", "stopped": "interrupted", "ours": "cut off",
    }  # fmt: skip
    assert (by_id["theirs"]["host"], by_id["theirs"]["stored"], by_id["theirs"]["left"]) == (
        OTHER,
        1,
        7,
    )
    assert by_id["theirs"]["phones"] == []
    assert f"theirs nightly, on {OTHER}: 1/8 runs" in told.text
    assert "ours nightly, cut off: 1/8 runs; benchfarm run --resume ours" in told.text


def test_a_campaign_that_is_open_is_never_said_to_have_all_its_runs(
    samples, tmp_path: Path
) -> None:
    # Of a curve one invocation is planned, and as many are stored as its time allows.
    planned = (Invocation(case=samples.case(), run_pass=Pass.SUSTAINED, number=0),)
    curve = samples.campaign("curve", host=this_computer(), invocations=planned, skipped=())
    path = tmp_path / "store.sqlite"
    with closing(open_store(path)) as store:
        samples.begin(store, curve)
        for number in range(3):
            run_id = f"run{number}"
            changes = {"campaign_id": "curve", "case": samples.case(), "invocation": number}
            store.append_run(samples.run(run_id=run_id, run_pass=Pass.SUSTAINED, **changes))
        store.set_status(CampaignId("curve"), CampaignStatus.INTERRUPTED, curve.created_at)
    environ = {"ANDROID_ADB_SERVER_PORT": "1"}
    settings = Settings.from_environment(environ, home=tmp_path, store=str(path))
    assert "interrupted: 3 runs; benchfarm run --resume curve" in status(settings).text
    (line,) = campaigns(settings).text.splitlines()[1:]
    assert line.split()[-2:] == ["interrupted", "3"]


def test_a_resume_that_names_none_leaves_what_another_computer_runs(
    url: str, samples, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path, url, samples)
    store = open_store(url)
    for name in ("ours", "stopped"):
        store.set_status(CampaignId(name), CampaignStatus.FINISHED, samples.campaign().created_at)
    store.close()

    with pytest.raises(UsageError, match=r"resumed here: theirs is run by .*lab-2"):
        run(settings, {}, resume=True, reporting=Reporting())


def test_in_a_file_all_campaigns_are_this_computers(samples, tmp_path: Path) -> None:
    settings = settings_for(tmp_path, str(tmp_path / "store.sqlite"), samples)

    told = status(settings)

    assert isinstance(told.data, dict)
    assert [item["status"] for item in told.data["campaigns"]] == [
        "cut off",
        "interrupted",
        "cut off",
    ]
    # The newest is resumed, as far as its files are there.
    with pytest.raises((UsageError, NoDeviceError), match="gone"):
        run(settings, {}, resume=True, reporting=Reporting())
