"""What phones do, as lines that fit, and from a running process's events to another's eyes."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator.app.status import (
    LiveStatus,
    PublishedStatus,
    describe_run,
    phone_elsewhere,
    running_here,
)
from orchestrator.cli.live import TerminalObserver, picture
from orchestrator.cli.output import STYLES, to_json
from orchestrator.engine.events import (
    CampaignEnded,
    CampaignStarted,
    DeviceFinished,
    DeviceNote,
    RunStored,
)
from orchestrator.processes import Locks
from orchestrator.records.campaign import (
    CampaignProgress,
    CampaignStatus,
    LiveFigure,
    PhoneActivity,
    PhoneStatus,
    Status,
)
from orchestrator.records.case import CampaignId, Serial
from orchestrator.records.run import Outcome
from orchestrator.tables.results import invocations_table
from orchestrator.units import format_remaining
from tests.samples.sample_lab import case, lab_of, series
from tests.samples.stores import Samples


def row(
    number: int,
    activity: PhoneActivity = PhoneActivity.WORKING,
    *,
    left: int = 4,
    eta_s: float | None = 90.0,
) -> PhoneStatus:
    doing = f"mobilenet_v2_1.0_224_float: gpu, 1 thread, gpu_precision_loss_allowed=true #{number}"
    return PhoneStatus(
        serial=f"PHONE-{number}", activity=activity, doing=doing, stored=3, left=left, battery_heat_c=31.25,
        eta_s=eta_s,
    )  # fmt: skip


def status(*phones: PhoneStatus) -> Status:
    return Status(campaign_id="night-1", name="nightly", state="running", phones=phones)


@pytest.mark.parametrize(("count", "width", "height"), [(1, 40, 6), (100, 79, 23)])
def test_a_picture_fits_its_terminal_and_counts_who_is_not_shown(
    count: int, width: int, height: int
) -> None:
    rows = [
        row(number, PhoneActivity.DONE if number % 3 == 0 else PhoneActivity.WORKING)
        for number in range(count)
    ]
    texts, kinds = zip(*picture(status(*rows), width=width, height=height), strict=True)
    assert len(texts) <= height
    assert max(map(len, texts)) <= width
    shown = sum(text.startswith("PHONE-") for text in texts)
    if shown < count:
        assert texts[-1].startswith(f"... and {count - shown} more: ")
    assert "done" not in kinds[2:shown] or shown == count


def test_phones_in_trouble_stand_before_those_that_work() -> None:
    rows = [
        row(10),
        row(14),
        row(11, PhoneActivity.AWAY),
        row(12, PhoneActivity.DONE),
        row(13, PhoneActivity.ABANDONED),
    ]
    texts = [text.split()[0] for text, _ in picture(status(*rows))[2:]]
    assert texts == ["PHONE-13", "PHONE-11", "PHONE-10", "PHONE-14", "PHONE-12"]


def test_what_is_measured_keeps_its_end_and_gets_the_room_that_is_left() -> None:
    wide, narrow = (picture(status(row(1)), width=width)[2][0] for width in (90, 50))
    assert "=true #1" in wide
    assert "31.2 C" in wide
    assert "2 min" in wide
    assert "#1" in narrow
    assert narrow.endswith("2 min")


def test_a_campaign_takes_as_long_as_its_longest_phone() -> None:
    assert status(row(1, eta_s=None)).eta_s is None
    assert status(row(1, eta_s=90.0), row(2, left=2, eta_s=50.0)).eta_s == 90.0
    assert status(row(1, eta_s=90.0), row(2, eta_s=None)).eta_s == 90.0
    assert [format_remaining(seconds) for seconds in (None, 5.0, 130.0, 7810.0, 190_000.0)] == [
        "", "1 min", "2 min", "2 h 10 min", "52 h 47 min",
    ]  # fmt: skip


def test_serial_numbers_are_cut_only_where_a_line_must_fit() -> None:
    serial = "adb-0A1B2C3D4E5F60-aBcDeF._adb-tls-connect._tcp"
    phone = status(replace(row(1), serial=serial))
    assert serial in picture(phone)[2][0]
    assert serial not in picture(phone, width=200)[2][0]


def test_figures_stand_below_the_phones_and_all_counts_agree() -> None:
    figures = tuple(
        LiveFigure(serial="PHONE-1", case=f"m: {name}", median_us=us, precision=0.013, runs=3)
        for name, us in (("cpu", 9_000.0), ("gpu", 2_500.0))
    )
    shown = replace(status(row(1), row(2)), planned=20, figures=figures)
    texts, looks = zip(*picture(shown, width=79, height=23), strict=True)
    assert set(looks) <= {*STYLES, "working", "figure"}
    assert texts[0].startswith("nightly: [###.......] 6/20 runs, about 2 min left")
    assert [text.split()[1:3] for text in texts[-2:]] == [["2.50", "ms"], ["9.00", "ms"]]
    assert "\u00b11.3 %" in texts[-1]
    more = replace(shown, phones=(replace(row(1), stored=25, left=9),))
    assert "25/34 runs" in picture(more, width=79)[0][0]


def test_a_total_and_a_bar_never_go_back_when_rounds_are_added() -> None:
    begun = replace(status(row(1)), planned=20, most=100)
    for stored, left, bar in ((6, 14, "#........."), (20, 5, "##........"), (90, 0, "#########.")):
        now = replace(begun, phones=(replace(row(1), stored=stored, left=left),))
        assert f"[{bar}] {stored} of at most 100 runs" in picture(now, width=90)[0][0]


def test_a_campaign_that_its_rule_ended_early_has_a_full_bar() -> None:
    stored = 12
    ended = replace(row(1, PhoneActivity.DONE, left=0), stored=stored)
    shown = replace(status(ended), planned=20, most=100)
    assert f"[##########] {stored}/{stored} runs;" in picture(shown, width=90)[0][0]


def test_a_phone_whose_runs_all_failed_is_not_green() -> None:
    done = replace(row(1, PhoneActivity.DONE, left=0), doing="", stored=2)
    looks = [picture(status(replace(done, failed=failed)))[2] for failed in (0, 1, 2)]
    assert [look for _, look in looks] == ["done", "away", "abandoned"]
    assert "2 of 2 runs without a result" in looks[2][0]


CAMPAIGN = Samples().campaign("night-1", invocations=(), skipped=())
A, B = Serial("A"), Serial("B")
STARTED = CampaignStarted(
    campaign=CAMPAIGN, devices=(), total=7, done=2, stored={A: 2}, left={A: 2, B: 3}
)
ENDED = CampaignEnded(campaign=replace(CAMPAIGN, status=CampaignStatus.FINISHED), stored=7)


def test_a_phone_of_another_computer_needs_time_for_each_run_that_is_left() -> None:
    now, samples = datetime.now(UTC), Samples()
    newest = samples.run(started_at=now - timedelta(minutes=10), duration_s=600.0)
    campaign = replace(samples.campaign(), created_at=now - timedelta(minutes=50))
    progress = CampaignProgress(stored=5, planned=8)
    phone = phone_elsewhere("A", campaign, progress, newest)
    assert phone.eta_s == pytest.approx(1800.0, abs=60.0)


def test_how_long_a_phone_takes_is_unknown_while_it_is_away() -> None:
    live, samples = LiveStatus(), Samples()
    live.on_event(STARTED)
    for minutes in (0, 10):
        started_at = datetime.now(UTC) + timedelta(minutes=minutes)
        run = samples.run(case=replace(samples.case(), serial=A), started_at=started_at)
        live.on_event(RunStored(run=run, position=3, total=7))
    for is_away in (False, True):
        live.on_event(DeviceNote(serial=A, text="lost: unplugged", is_away=is_away))
        assert (live.status().phones[0].eta_s is None) is is_away


class Nobody:
    def on_event(self, event: object) -> None:
        """Nobody listens."""


def test_another_process_sees_how_a_campaign_is_as_long_as_it_runs(tmp_path: Path) -> None:
    folder, campaigns = tmp_path / "status", Locks(tmp_path / "campaigns")
    release = campaigns.take(CAMPAIGN.campaign_id)
    assert release is not None
    published = PublishedStatus(Nobody(), folder)
    published.on_event(STARTED)
    samples = Samples()
    # A wait in vain is no run.
    unfit = samples.run(outcome=Outcome.UNFIT, case=replace(samples.case(), serial=A))
    published.on_event(RunStored(run=unfit, position=3, total=7))
    shown = running_here(folder, campaigns)["night-1"]
    assert [(row.serial, row.stored, row.left, row.failed) for row in shown.phones] == [
        ("A", 2, 2, 0), ("B", 0, 3, 0),
    ]  # fmt: skip
    assert f"process {os.getpid()} on " in shown.holder
    (file,) = folder.iterdir()
    # A process that was killed leaves its file.
    (folder / "gone.json").write_text(file.read_text().replace("night-1", "gone"))
    (folder / "torn.json").write_text("{")
    assert running_here(folder, campaigns) == {"night-1": shown}
    assert list(folder.iterdir()) == [file]
    published.on_event(ENDED)
    assert not file.exists()
    published.on_event(STARTED)
    release()
    assert running_here(folder, campaigns) == {}


def test_campaigns_of_one_process_are_shown_each_until_its_own_end(tmp_path: Path) -> None:
    folder, campaigns = tmp_path / "status", Locks(tmp_path / "campaigns")
    one, other = PublishedStatus(Nobody(), folder), PublishedStatus(Nobody(), folder)
    one.on_event(STARTED)
    # Ids are anybody's words.
    job = replace(CAMPAIGN, campaign_id=CampaignId("../night/2"))
    other.on_event(replace(STARTED, campaign=job, left={A: 1}))
    for name in (CAMPAIGN.campaign_id, job.campaign_id):
        assert campaigns.take(name) is not None
    shown = running_here(folder, campaigns)
    assert {name: item.phones[0].left for name, item in shown.items()} == {
        "night-1": 2,
        "../night/2": 1,
    }
    one.on_event(ENDED)
    assert list(running_here(folder, campaigns)) == ["../night/2"]
    other.on_event(replace(ENDED, campaign=job))
    assert list(folder.iterdir()) == []


def test_a_campaign_that_could_not_say_that_it_ended_is_shown_no_more_once_its_status_is_closed(
    tmp_path: Path,
) -> None:
    published = PublishedStatus(Nobody(), tmp_path)
    published.on_event(STARTED)
    published.close()
    assert list(tmp_path.iterdir()) == []
    published.close()


def test_the_live_view_prints_what_is_to_be_remembered_and_gives_the_terminal_back() -> None:
    out = io.StringIO()
    console = Console(
        file=out, force_terminal=True, width=60, height=12, _environ={"TERM": "xterm"}
    )
    observer = TerminalObserver(console)
    observer.on_event(STARTED)
    observer.on_event(DeviceNote(serial=A, text="lost: the cable", is_problem=True, is_away=True))
    observer.on_event(DeviceFinished(serial=B, left=0))
    observer.on_event(ENDED)
    written = out.getvalue()
    assert "A: problem: lost: the cable" in written
    assert "campaign night-1 finished: 7 stored, 0 left" in written
    assert "away: the cable" in written
    assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")


def test_invocations_count_from_one_wherever_they_are_read() -> None:
    runs = series(case(), 5_000, count=3)
    assert [describe_run(item).partition("#")[2][:1] for item in runs] == ["1", "2", "3"]
    assert [item["invocation"] for item in json.loads(to_json({"runs": runs}))["runs"]] == [1, 2, 3]
    table = invocations_table(lab_of(runs).data().results)  # type: ignore[arg-type]
    assert [table.record(pair)["invocation"] for pair in table.rows] == [1, 2, 3]
