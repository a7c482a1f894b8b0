"""``benchfarm results close``, and cancelled jobs: what is left of a campaign is abandoned, what
was measured stays."""

from __future__ import annotations

import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator.analysis.measured import judge_cases
from orchestrator.analysis.rounds import progress_by_case
from orchestrator.app.doctor import host_findings
from orchestrator.app.resuming import resume
from orchestrator.app.workspace import Workspace
from orchestrator.cli import live, measuring, stored
from orchestrator.cli.commands import Reporting
from orchestrator.engine.campaign import close_campaign
from orchestrator.engine.decisions import open_work_by_serial
from orchestrator.engine.events import Notice
from orchestrator.errors import BenchfarmError, UsageError
from orchestrator.extensions.farm import submissions
from orchestrator.extensions.farm.queue import FarmQueue
from orchestrator.records.campaign import Campaign, CampaignStatus, Invocation, Terms
from orchestrator.records.case import CampaignId, Pass, RunId
from orchestrator.records.plan import StoppingRule
from orchestrator.records.run import Outcome
from orchestrator.settings import Settings
from orchestrator.store.opening import Store
from tests.samples.records import settings_in
from tests.samples.stores import Samples
from tests.samples.submissions import begin, host_lives, submit

if TYPE_CHECKING:
    from tests.samples.postgresql import Cluster

NIGHT = "night"


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """A command that has measured ignores further stops, and ends then; these tests go on."""
    stops = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in stops}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_in(tmp_path)


@pytest.fixture
def shared(postgresql: Cluster, postgresql_template: str, tmp_path: Path) -> Settings:
    """Of a store on PostgreSQL."""
    url = postgresql.url(postgresql.create(postgresql_template))
    return settings_in(tmp_path, store=url)


def interrupted(store: Store, samples: Samples, name: str = "cut", **changes: object) -> Campaign:
    """Store a campaign that was interrupted after its first run."""
    begun = samples.begin(
        store, samples.campaign(name, **({"status": CampaignStatus.INTERRUPTED} | changes))
    )
    store.append_run(samples.run(campaign_id=begun.campaign_id))
    return begun


def test_a_closed_campaign_is_over_and_says_what_was_abandoned(
    settings: Settings, samples: Samples
) -> None:
    with Workspace(settings) as opened:
        interrupted(opened.store, samples)
    with Workspace(settings) as opened:
        (advice,) = [item for item in host_findings(opened) if item.check == "campaigns"]
    assert "'benchfarm results close cut' abandons the rest" in advice.next_step
    with pytest.raises(UsageError, match="nightly is a name"):
        stored.close(settings, ["nightly"])
    result = stored.close(settings, ["cut", "newest"])
    assert result.text == "cut (nightly): closed, 7 invocations abandoned"
    assert result.data == [{"campaign_id": "cut", "abandoned": 7}]
    listed = stored.campaigns(settings, status="closed")
    assert re.search(r"^cut +nightly .* closed +1/8$", listed.text, re.MULTILINE)
    assert isinstance(listed.data, list)
    (row,) = listed.data
    assert [row[key] for key in ("status", "stored", "planned", "abandoned")] == ["closed", 1, 8, 7]
    with Workspace(settings) as opened:
        campaign, runs = (
            opened.store.campaign(samples.campaign("cut").campaign_id),
            list(opened.store.runs()),
        )
        assert campaign is not None
        assert (campaign.status, campaign.finished_at is None) == (CampaignStatus.CLOSED, False)
        assert not any(
            work.invocations for work in open_work_by_serial(campaign, runs, opened.tools).values()
        )
        (advice,) = [item for item in host_findings(opened) if item.check == "campaigns"]
    assert advice.level == "ok"
    ended = Counter((run.outcome, run.reason_code) for run in runs)
    assert ended == {(Outcome.COMPLETED, ""): 1, (Outcome.SKIPPED, "abandoned"): 7}
    # What was measured is as it was.
    assert {run.run_id for run in runs if run.report is not None} == {"cut-timing-0"}
    for command in (
        lambda: stored.close(settings, ["cut"]),
        lambda: measuring.run(settings, {}, Path("cut"), resume=True, reporting=Reporting()),
    ):
        with pytest.raises(UsageError, match=r"campaign cut .* is closed: nothing is left to run"):
            command()
    # As a closing that was cut off leaves it.
    with Workspace(settings) as opened:
        opened.store.set_status(CampaignId("cut"), CampaignStatus.INTERRUPTED, None)
    (row,) = live.status(settings).data["campaigns"]  # type: ignore[index]
    assert (row["stored"], row["left"]) == (1, 0)


def test_a_name_means_the_newest_campaign_also_where_an_older_one_is_open(
    settings: Settings, samples: Samples
) -> None:
    with Workspace(settings) as opened:
        older = interrupted(opened.store, samples)
        later = older.created_at + timedelta(days=1)
        newer = samples.campaign("over", status=CampaignStatus.FINISHED, created_at=later)
        samples.begin(opened.store, newer)
    with pytest.raises(UsageError, match=r"campaign over \(nightly\) is finished"):
        measuring.run(settings, {}, Path("nightly"), resume=True, reporting=Reporting())


def test_rounds_that_would_be_added_and_curves_that_are_cut_are_abandoned_too(
    store: Store, samples: Samples
) -> None:
    timing, curve = samples.case(), samples.case(threads=1)
    planned = (
        Invocation(case=timing, run_pass=Pass.TIMING, number=0),
        Invocation(case=timing, run_pass=Pass.TIMING, number=1),
        Invocation(case=curve, run_pass=Pass.SUSTAINED, number=0),
    )
    terms = Terms(stopping=StoppingRule(first=2, half_width=0.001, most=40), sustained=600.0)
    campaign = interrupted(store, samples, invocations=planned, terms=terms)
    rough = replace(samples.run(1, campaign_id=campaign.campaign_id), report=samples.report(9000.0))
    cut = samples.run(
        campaign_id=campaign.campaign_id, case=curve, run_pass=Pass.SUSTAINED, run_id=RunId("curve")
    )
    store.append_run(rough)
    store.append_run(cut)
    with Workspace(settings_in(Path("/nonexistent")), store=store) as opened:
        works = open_work_by_serial(campaign, store.runs(), opened.tools)
        assert [(len(work.added), len(work.sustained)) for work in works.values()] == [(1, 1)]
        assert close_campaign(campaign, store, opened.tools, opened.clock) == 2
        assert not any(
            work.invocations
            for work in open_work_by_serial(campaign, store.runs(), opened.tools).values()
        )
    abandoned = {
        (run.run_pass, run.invocation) for run in store.runs() if run.reason_code == "abandoned"
    }
    assert abandoned == {(Pass.TIMING, 2), (Pass.SUSTAINED, 1)}
    assert progress_by_case(campaign, judge_cases(store.runs(), [campaign]))[
        timing.case_key
    ].text.endswith("after 2, then its campaign was abandoned")


def test_a_campaign_that_a_process_runs_is_not_closed_nor_any_other_that_was_named(
    settings: Settings, samples: Samples
) -> None:
    with Workspace(settings) as opened:
        interrupted(opened.store, samples)
        running = interrupted(opened.store, samples, "now", status=CampaignStatus.RUNNING)
        opened.hold_campaign(running)
        with pytest.raises(UsageError, match=r"campaign now \(nightly\) is run by process"):
            stored.close(settings, ["cut", "now"])
    with Workspace(settings) as opened:
        assert len(opened.store.campaigns(only_open=True)) == 2
    assert stored.close(settings, ["cut", "now"]).exit_code == 0


def test_what_another_computer_runs_is_closed_there(shared: Settings, samples: Samples) -> None:
    with Workspace(shared) as opened:
        interrupted(
            opened.store, samples, "there", status=CampaignStatus.RUNNING, host="elsewhere (Linux)"
        )
    with pytest.raises(UsageError, match="run by elsewhere") as caught:
        stored.close(shared, ["there"])
    assert caught.value.hint == "close it on that computer"


@pytest.fixture
def submitted(shared: Settings, samples: Samples) -> Callable[[FarmQueue], None]:
    """Submits jobs of two phones that had begun, on a host that is gone."""

    def begun(queue: FarmQueue) -> None:
        submit(queue, "A", "B", name=NIGHT)
        with Workspace(shared) as opened:
            for serial in ("A", "B"):
                interrupted(
                    opened.store,
                    samples,
                    f"{NIGHT}_{serial}",
                    status=CampaignStatus.RUNNING,
                    host="rack-1",
                )

    return begun


def open_ones(settings: Settings) -> set[str]:
    with Workspace(settings) as opened:
        return {str(item.campaign_id) for item in opened.store.campaigns(only_open=True)}


def test_what_a_job_of_the_farm_continues_is_offered_to_nobody_else(
    shared: Settings, samples: Samples, submitted: Callable[[FarmQueue], None]
) -> None:
    with FarmQueue(shared.store) as queue:
        submitted(queue)
        with Workspace(shared) as opened:
            for campaign_id in ("night_A", "night_B"):
                opened.store.set_status(CampaignId(campaign_id), CampaignStatus.INTERRUPTED, None)
            assert [item.level for item in host_findings(opened) if item.check == "campaigns"] == [
                "ok"
            ]
        with pytest.raises(UsageError, match="night_B is a job of the farm"):
            measuring.run(shared, {}, resume=True, reporting=Reporting())
        with pytest.raises(UsageError, match="a job of the farm that waits or runs") as caught:
            stored.close(shared, ["night_B"])
        assert "benchfarm farm cancel night -s B" in caught.value.hint
        # One that failed is anybody's again, whatever computer began it.
        host_lives(queue, "two", version="1")
        queue.end(begin(queue, "B", host="two"), "failed", "the phone gave up")
        with Workspace(shared) as opened:
            opened.store.set_status(CampaignId("night_B"), CampaignStatus.RUNNING, None)
            (advice,) = [item for item in host_findings(opened) if item.check == "campaigns"]
    assert "close night_B'" in advice.next_step
    assert stored.close(shared, ["night_B"]).exit_code == 0
    assert open_ones(shared) == {"night_A"}


def test_cancelling_closes_what_had_begun_and_waits_and_leaves_what_runs_to_its_worker(
    shared: Settings, submitted: Callable[[FarmQueue], None]
) -> None:
    with FarmQueue(shared.store) as queue:
        submitted(queue)
        host_lives(queue, "two", version="1")
        begin(queue, "A", host="two")
        with Workspace(shared) as workspace:
            result = submissions.cancel(workspace, NIGHT, [])
    said = "night: 1 job cancelled, 1 being stopped; the remaining runs of 1 that had begun are abandoned"
    assert result.text == said
    assert open_ones(shared) == {"night_A"}


def test_what_is_resumed_by_name_only_is_named_by_a_resume_that_names_none(
    settings: Settings, samples: Samples
) -> None:
    def traced(store: Store, name: str) -> None:
        case = samples.case()
        invocations = (Invocation(case=case, number=0, run_pass=Pass("trace")),)
        samples.begin(
            store,
            samples.campaign(name, status=CampaignStatus.INTERRUPTED, invocations=invocations),
        )

    seen: list[object] = []

    class ListedPhone:
        def on_event(self, event: object) -> None:
            seen.append(event)

    with Workspace(settings, observer=ListedPhone()) as opened:
        traced(opened.store, "look")
        with pytest.raises(UsageError, match="look is a trace") as refused:
            resume(opened)
        assert refused.value.hint == "'benchfarm run --resume ID' resumes one by name"
        interrupted(opened.store, samples)
        # Of a phone that isn't here.
        with pytest.raises(BenchfarmError):
            resume(opened)
    (told,) = [item.text for item in seen if isinstance(item, Notice)]
    assert told.endswith("'benchfarm run --resume ID' resumes another one: look (a trace)")


def test_a_campaign_whose_pass_is_not_installed_is_named_and_another_one_resumed(
    settings: Settings, samples: Samples
) -> None:
    with Workspace(settings) as opened:
        stored_run = samples.run()
        first = Invocation(
            case=stored_run.case, run_pass=stored_run.run_pass, number=stored_run.invocation
        )
        older = interrupted(opened.store, samples, "done", invocations=(first,))
        foreign = replace(first, run_pass=Pass("acme.gone"))
        later = older.created_at + timedelta(days=1)
        interrupted(opened.store, samples, "new", invocations=(first, foreign), created_at=later)
    result = measuring.run(settings, {}, resume=True, reporting=Reporting())
    assert isinstance(result.data, dict)
    assert (result.data["campaign_id"], result.exit_code) == ("done", 1)
    assert "new (nightly) isn't resumed: there is no pass 'acme.gone'" in result.text
    with pytest.raises(
        UsageError, match=r"new is not resumable here: there is no pass 'acme\.gone'"
    ):
        measuring.run(settings, {}, resume=True, reporting=Reporting())
