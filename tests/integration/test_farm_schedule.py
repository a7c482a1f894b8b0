"""Schedules on a real PostgreSQL server: each time once or never, whatever workers and clocks do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import psycopg
import pytest

from orchestrator.app.farm_schedules import ScheduleRequest
from orchestrator.bootstrap import Settings
from orchestrator.cli.farm import add as add_schedule
from orchestrator.cli.farm import list_schedules
from orchestrator.config.farm_documents import read_manifest
from orchestrator.errors import NoDeviceError, UsageError
from orchestrator.queueing.contents import Contents
from orchestrator.queueing.queue import FarmQueue
from orchestrator.queueing.schedule import Cron, Line, Schedule, Schedules
from tests.samples.distant_times import half_a_day_away, half_an_hour_ago
from tests.samples.places import MODELS
from tests.samples.submissions import at_once

MODEL = MODELS / "texturenet_0.25_256_int8.tflite"


def schedule(name: str = "nightly", cron: str = "", **changes: object) -> Schedule:
    values: dict[str, object] = {
        "name": name, "cron": Cron(text=cron or half_a_day_away(), timezone="UTC"), "document": "{}", "plan_name": "p",
        "files": [], "priority": 0, "grace_s": 3600.0, **changes,
    }  # fmt: skip
    return Schedule(**values)  # type: ignore[arg-type]


@pytest.fixture
def schedules(connect: Callable[[], FarmQueue]) -> Schedules:
    return Schedules(connect())


class Submissions:
    """What was submitted."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, scheduled: Schedule, submission: str, moment: datetime) -> str:
        assert submission == f"{scheduled.name}-{moment:%Y%m%dT%H%MZ}"
        self.names.append(submission)
        return "1 job"


#: Why nothing was submitted.
NOBODY = "no phone that a host has announced fits the plan"


def nobody(scheduled: Schedule, submission: str, moment: datetime) -> str:
    raise NoDeviceError(NOBODY)


def change(url: str, what: str, *values: object) -> None:
    """Change what the queue's tables hold, as time does or a host that is older."""
    with psycopg.connect(url) as connection:
        connection.execute(f"UPDATE benchfarm_queue.{what}".encode(), values)


def let_be_due(url: str, late: str = "1 second") -> None:
    change(url, "farm_schedules SET next_at = date_trunc('second', now()) - %s::interval", late)


def texts(lines: Sequence[Line]) -> list[str]:
    return [line.text for line in lines]


def outcomes(schedules: Schedules) -> list[str]:
    return [tick["outcome"] for row in schedules.listed() for tick in row["ticks"]]


def test_a_time_is_submitted_once_by_many_workers(
    schedules: Schedules, connect: Callable[[], FarmQueue], url: str
) -> None:
    schedules.put(schedule(), replace=False)
    submissions = Submissions()
    assert schedules.make_due(submissions, host="one") == []
    let_be_due(url)

    def look(other: Schedules) -> None:
        for _ in range(5):
            other.make_due(submissions, host="h")

    at_once(partial(look, Schedules(connect())) for _ in range(4))
    assert len(submissions.names) == 1
    assert outcomes(schedules) == ["submitted"]
    (row,) = schedules.listed()
    assert datetime.now(UTC) < row["next_at"] < datetime.now(UTC) + timedelta(hours=25)


def test_a_submissions_name_is_the_same_whatever_time_zone_a_connection_has(url: str) -> None:
    database = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    with psycopg.connect(url) as connection:
        connection.execute(f"ALTER DATABASE {database} SET timezone = 'Asia/Tokyo'".encode())
    submissions = Submissions()
    with FarmQueue(url) as queue:
        Schedules(queue).put(schedule(), replace=False)
        let_be_due(url)
        (line,) = texts(Schedules(queue).make_due(submissions, host="one"))
        (row,) = Schedules(queue).listed()
        due = row["ticks"][0]["tick_at"].astimezone(UTC)
    assert submissions.names == [f"nightly-{due:%Y%m%dT%H%MZ}"]
    assert f"{due:%Y-%m-%d %H:%M} UTC" in line


def test_times_without_a_worker_are_told_as_missed_and_not_made_up_for(schedules: Schedules, url: str) -> None:
    last = half_an_hour_ago()
    schedules.put(schedule(cron=f"{last.minute} * * * *"), replace=False)
    change(url, "farm_schedules SET next_at = %s, grace_s = 3601", last - timedelta(hours=5))
    submissions = Submissions()
    lines = texts(schedules.make_due(submissions, host="one"))
    assert len(submissions.names) == 1
    assert outcomes(schedules) == ["submitted", *["missed"] * 5]
    assert "5 times were missed" in lines[0]
    assert schedules.make_due(submissions, host="one") == []


def test_a_time_beyond_its_grace_is_missed(schedules: Schedules, url: str) -> None:
    schedules.put(schedule(), replace=False)
    let_be_due(url, "2 hours")
    submissions = Submissions()
    (line,) = texts(schedules.make_due(submissions, host="one"))
    assert "missed: no worker looked until" in line
    assert (submissions.names, outcomes(schedules)) == ([], ["missed"])


def test_a_time_without_phones_is_tried_again_and_fails_when_half_its_grace_is_over(
    schedules: Schedules, url: str
) -> None:
    schedules.put(schedule(), replace=False)

    let_be_due(url, "10 minutes")
    (line,) = schedules.make_due(nobody, host="one")
    assert line.text.endswith("tried again")
    assert (line.level, line.schedule) == ("warning", "nightly")
    assert outcomes(schedules) == []
    change(url, "farm_schedules SET grace_s = 900")
    (line,) = schedules.make_due(nobody, host="one")
    assert "failed: no phone" in line.text
    assert (line.level, line.schedule) == ("error", "nightly")
    assert outcomes(schedules) == ["failed"]


def test_a_time_that_was_tried_and_then_overtaken_keeps_its_reason(schedules: Schedules, url: str) -> None:
    schedules.put(schedule(), replace=False)

    let_be_due(url, "9 minutes")
    assert schedules.make_due(nobody, host="one")[0].text.endswith("tried again")
    # It isn't over, so it is neither listed nor counted.
    assert outcomes(schedules) == []
    assert [row["missed"] for row in schedules.listed()] == [0]
    (tried,) = [row["next_at"] for row in schedules.listed()]
    change(url, "farm_schedules SET cron = '*/5 * * * *'")
    submissions = Submissions()
    lines = texts(schedules.make_due(submissions, host="two"))
    (row,) = schedules.listed()
    told = {tick["tick_at"]: (tick["outcome"], tick["note"]) for tick in row["ticks"]}
    assert told[tried] == ("failed", NOBODY)
    assert f"schedule nightly, {tried.astimezone(UTC):%Y-%m-%d %H:%M} UTC: failed: {NOBODY}" in lines
    assert len(submissions.names) == 1


def test_a_time_that_was_tried_until_its_grace_was_over_keeps_its_reason(schedules: Schedules, url: str) -> None:
    schedules.put(schedule(), replace=False)

    let_be_due(url, "10 minutes")
    schedules.make_due(nobody, host="one")
    change(url, "farm_schedules SET grace_s = 60")
    (line,) = texts(schedules.make_due(nobody, host="one"))
    assert line.endswith(f"failed: {NOBODY}")


def test_a_schedule_that_this_host_cannot_read_stops_no_other(schedules: Schedules, url: str) -> None:
    for name in ("a", "b", "c"):
        schedules.put(schedule(name), replace=False)
    let_be_due(url)
    # As it looks to a host whose time zones are older.
    change(url, "farm_schedules SET timezone = 'Mars/Olympus' WHERE name = 'b'")
    submissions = Submissions()
    lines = texts(schedules.make_due(submissions, host="one"))
    assert [name[0] for name in submissions.names] == ["a", "c"]
    (line,) = [line for line in lines if line.startswith("schedule b")]
    assert "can't be read here" in line
    assert "Mars/Olympus" in line
    assert [row["name"] for row in schedules.listed()] == ["a", "b", "c"]
    schedules.pause("b", paused=True)
    assert not [line for line in schedules.make_due(submissions, host="one") if line.text.startswith("schedule b")]


def test_a_worker_that_dies_while_it_submits_leaves_the_time_to_another(schedules: Schedules, url: str) -> None:
    schedules.put(schedule(), replace=False)
    let_be_due(url)

    def dies(scheduled: Schedule, submission: str, moment: datetime) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        schedules.make_due(dies, host="one")
    submissions = Submissions()
    schedules.make_due(submissions, host="two")
    assert len(submissions.names) == 1


def test_a_paused_schedule_rests_and_owes_nothing_afterwards(schedules: Schedules, url: str) -> None:
    schedules.put(schedule(), replace=False)
    schedules.pause("nightly", paused=True)
    let_be_due(url)
    submissions = Submissions()
    assert schedules.make_due(submissions, host="one") == []
    schedules.pause("nightly", paused=False)
    assert schedules.make_due(submissions, host="one") == []
    assert (submissions.names, outcomes(schedules)) == ([], [])
    with pytest.raises(UsageError, match="there is no schedule 'other'"):
        schedules.pause("other", paused=True)


def test_what_went_wrong_before_a_pause_does_not_count_after_it_and_what_does_later_counts(
    schedules: Schedules, url: str
) -> None:
    def counted() -> tuple[bool, int]:
        (row,) = schedules.listed()
        return row["went_wrong"], row["missed"]

    schedules.put(schedule(cron="0 0 29 2 *"), replace=False)
    let_be_due(url, "2 hours")
    schedules.make_due(Submissions(), host="one")
    assert counted() == (True, 1)
    # It didn't rest, so nothing is forgotten.
    schedules.pause("nightly", paused=False)
    assert counted() == (True, 1)
    schedules.pause("nightly", paused=True)
    schedules.pause("nightly", paused=False)
    assert counted() == (False, 0)
    assert outcomes(schedules) == ["missed"]
    change(url, "farm_schedules SET went_on_at = now() - interval '3 hours', next_at = now() - interval '90 minutes'")
    schedules.make_due(Submissions(), host="one")
    # Both come after the pause of three hours ago.
    assert counted() == (True, 2)


def test_what_a_schedule_needs_is_not_cleaned_away(connect: Callable[[], FarmQueue], url: str, tmp_path: Path) -> None:
    import hashlib

    queue = connect()
    content = b"model"
    (tmp_path / "m.tflite").write_bytes(content)
    sha256 = hashlib.sha256(content).hexdigest()
    contents = Contents(queue, tmp_path / "here")
    contents.keep(tmp_path / "m.tflite", sha256)
    Schedules(queue).put(schedule(files=[sha256]), replace=False)
    change(url, "farm_files SET used_at = now() - interval '9 days'")
    assert contents.clean(older_than_s=0).files == 0
    Schedules(queue).remove("nightly")
    assert contents.clean(older_than_s=0).files == 1


def test_a_schedule_whose_file_was_cleaned_away_is_not_kept(schedules: Schedules) -> None:
    with pytest.raises(UsageError, match="cleaned away"):
        schedules.put(schedule(files=["0" * 64]), replace=False)
    assert schedules.listed() == []


def test_a_name_is_one_schedule_unless_it_is_replaced(schedules: Schedules) -> None:
    schedules.put(schedule(), replace=False)
    with pytest.raises(UsageError, match="already"):
        schedules.put(schedule(cron="0 2 * * *"), replace=False)
    schedules.put(schedule(cron="0 2 * * *"), replace=True)
    assert [row["cron"] for row in schedules.listed()] == ["0 2 * * *"]
    schedules.remove("nightly")
    with pytest.raises(UsageError, match="there is no schedule 'nightly'"):
        schedules.remove("nightly")


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("cron", "after", "times"),
    [
        # 02:30 is left out on the 29th, and comes twice on 25 October.
        ("30 2 * * *", "2026-03-28T12:00", ["2026-03-29T01:00", "2026-03-30T00:30"]),
        ("30 2 * * *", "2026-10-24T12:00", ["2026-10-25T00:30", "2026-10-26T01:30"]),
        ("0 * * * *", "2026-10-24T23:30", ["2026-10-25T00:00", "2026-10-25T01:00", "2026-10-25T02:00"]),
    ],
)
def test_times_are_those_of_the_wall_clock_also_when_it_changes(cron: str, after: str, times: list[str]) -> None:
    berlin, moment = Cron(text=cron, timezone="Europe/Berlin"), utc(after)
    for expected in times:
        following = berlin.after(moment)
        assert following == utc(expected)
        moment = following


@pytest.mark.parametrize(
    ("cron", "zone", "told"),
    [
        ("0 1 * *", "UTC", "five fields"),
        ("0 1 * * * *", "UTC", "five fields"),
        ("0 25 * * *", "UTC", "can't be understood"),
        ("0 0 31 2 *", "UTC", "never comes"),
        ("0 1 * * *", "Europe/Atlantis", "isn't a time zone"),
    ],
)
def test_a_cron_that_means_no_time_is_refused(cron: str, zone: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        Cron(text=cron, timezone=zone)


def options_for(plan: Path, name: str = "nightly", cron: str = "0 1 * * *", **more: str) -> ScheduleRequest:
    return ScheduleRequest(name=name, plan=plan, cron=cron, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"budget": "0"}, "--budget 0 leaves no time"),
        ({"budget": "-1h"}, "--budget -1h leaves no time"),
        ({"budget": "soon"}, "--budget: 'soon' isn't a time span"),
        ({"window": "soon"}, "soon"),
        ({"grace": "0"}, "--grace 0: every time would be missed"),
        ({"grace": "-1h"}, "--grace -1h: every time would be missed"),
        ({"grace": "long"}, "--grace: 'long' isn't a time span"),
    ],
)
def test_a_night_without_time_is_refused(
    connect: Callable[[], FarmQueue], url: str, tmp_path: Path, options: dict[str, str], told: str
) -> None:
    (tmp_path / "plan.yaml").write_text(f"models: [{MODEL}]\n")
    known = Settings.from_environment({"ANDROID_ADB_SERVER_PORT": "1"}, home=tmp_path, store=url)
    with pytest.raises(UsageError, match=told):
        add_schedule(known, options_for(tmp_path / "plan.yaml", **options))
    assert Schedules(connect()).listed() == []


@pytest.mark.parametrize(("budget", "phone_time_s"), [("", 3600.0), ("20 min", 1200.0), ("5h", 3600.0)])
def test_a_schedule_gives_its_plan_no_more_time_than_the_plan_has(
    connect: Callable[[], FarmQueue], url: str, tmp_path: Path, budget: str, phone_time_s: float
) -> None:
    (tmp_path / "plan.yaml").write_text(f"models: [{MODEL}]\nphone_time: 1 h\n")
    known = Settings.from_environment({"ANDROID_ADB_SERVER_PORT": "1"}, home=tmp_path, store=url)
    add_schedule(known, options_for(tmp_path / "plan.yaml", budget=budget))
    (row,) = connect().rows("SELECT document FROM farm_schedules")
    assert read_manifest(row["document"]).plan.phone_time_s == phone_time_s


def test_the_list_shows_window_and_time_and_a_schedule_that_is_due_outside_its_window_says_so(
    connect: Callable[[], FarmQueue], url: str, tmp_path: Path
) -> None:
    (tmp_path / "plan.yaml").write_text(f"models: [{MODEL}]\nphone_time: 1 h\n")
    known = Settings.from_environment({"ANDROID_ADB_SERVER_PORT": "1"}, home=tmp_path, store=url)
    notes = add_schedule(known, options_for(tmp_path / "plan.yaml", cron="0 12 * * *", window="01:00-06:00")).data.notes
    assert "its window 01:00-06:00 UTC isn't open when it is due: its jobs wait 13 h 00 min" in notes
    within = add_schedule(
        known, options_for(tmp_path / "plan.yaml", "within", cron="0 2 * * *", window="01:00-06:00")
    ).data
    assert not any("window" in note for note in within.notes)
    told = list_schedules(known)
    assert [item["window"] for item in told.data["schedules"]] == ["01:00-06:00 UTC"] * 2
    assert told.text.count("01:00-06:00 UTC, 1 h 00 min") == 2
