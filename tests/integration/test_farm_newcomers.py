"""Phones that come after a submission, and spare ones for lost phones, on a real PostgreSQL server: each once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.app.farm_control import cancel
from orchestrator.bootstrap import Settings
from orchestrator.errors import PlanError
from orchestrator.queueing.contents import Contents
from orchestrator.queueing.newcomers import Newcomers
from orchestrator.queueing.queue import Announced, FarmQueue
from orchestrator.queueing.submissions import Submission
from orchestrator.queueing.worker import TRIES_MAX, Callbacks, Ended, Look, Worker
from tests.samples.submissions import at_once
from tests.samples.submissions import submit as submit_to

if TYPE_CHECKING:
    from pathlib import Path


def hours_from_now(hours: float) -> datetime:
    return datetime.now(UTC) + timedelta(hours=hours)


@pytest.fixture
def queue(connect: Callable[[], FarmQueue]) -> FarmQueue:
    queue = connect()
    queue.register("one", benchfarm_version="1")
    return queue


submit = partial(submit_to, priority=3)


def announce(queue: FarmQueue, *serials: str, host: str = "one") -> None:
    queue.announce(host, {serial: Announced(facts=serial) for serial in serials})


class Most:
    """Means phones up to a number, by serial number."""

    def __init__(self, most: int = 100) -> None:
        self.most = most
        self.asked = 0

    def __call__(
        self, submission: Submission, kept: Mapping[str, str], phones: Sequence[Mapping[str, Any]]
    ) -> Mapping[str, str]:
        self.asked += 1
        assert all(serial == facts for serial, facts in kept.items())
        free = [row["serial"] for row in phones if not row["unusable"]]
        return {serial: serial for serial in free[: max(0, self.most - len(kept))]}


def rows(queue: FarmQueue, submission: str = "night") -> dict[str, tuple[str, str]]:
    """What each phone's job is, and in whose place it is or who is in its."""
    return {
        row["serial"]: (
            row["status"],
            "later" if row["came_later"] else f"{row['replaces']}>{row['replaced_by']}".strip(">"),
        )
        for row in queue.jobs(submission)
    }


def test_a_phone_that_comes_is_added_once_by_many_workers_and_as_urgent_as_the_others(
    queue: FarmQueue, connect: Callable[[], FarmQueue]
) -> None:
    submit(queue, "A")
    announce(queue, "A", "B", "C")
    lines: list[str] = []

    def look(other: Newcomers) -> None:
        for _ in range(5):
            lines.extend(other.look())

    at_once(partial(look, Newcomers(connect(), Most())) for _ in range(4))
    assert sorted(lines) == [
        "night: B came and is measured too: job 2",
        "night: C came and is measured too: job 3",
    ]
    assert rows(queue) == {"A": ("waits", ""), "B": ("waits", "later"), "C": ("waits", "later")}
    assert {row["priority"] for row in queue.jobs("night")} == {3}


def test_it_is_chosen_beside_those_that_have_their_jobs_and_only_when_something_changed(queue: FarmQueue) -> None:
    submit(queue, "Z")
    announce(queue, "A", "B")
    choose = Most(2)
    newcomers = Newcomers(queue, choose)
    assert newcomers.look() == ["night: A came and is measured too: job 2"]
    assert newcomers.look() == []
    assert choose.asked == 1
    announce(queue, "A", "B", "C")
    assert newcomers.look() == []
    assert choose.asked == 2


@pytest.mark.parametrize("why", ["ended", "cancelled", "over", "not wanted", "one job cancelled"])
def test_a_phone_is_added_to_no_submission_that_is_over(queue: FarmQueue, why: str) -> None:
    worker = queue.register("one", benchfarm_version="1")
    submit(queue, "A", "Z", joins=why != "not wanted", until=hours_from_now(-1) if why == "over" else None)
    if why == "ended":
        for _ in range(2):
            claimed = queue.claim("one", worker, ["A", "Z"])
            assert claimed is not None
            queue.finish(worker, claimed.job_id, "succeeded", "")
    if why == "cancelled":
        # What runs isn't at its end yet.
        assert queue.claim("one", worker, ["A"]) is not None
        queue.cancel("night")
        assert "doing" in {row["status"] for row in queue.rows("SELECT status::text FROM procrastinate_jobs")}
    if why == "one job cancelled":
        queue.cancel("night", ["A"])
    announce(queue, "B")
    assert bool(Newcomers(queue, Most()).look()) == (why == "one job cancelled")


def lose(queue: FarmQueue, newcomers: Newcomers, serial: str = "A") -> str:
    worker = queue.register("one", benchfarm_version="1")
    claimed = queue.claim("one", worker, [serial])
    assert claimed is not None
    is_held, line = newcomers.give_up(worker, claimed.job_id, "it isn't attached")
    assert is_held
    return line


def test_a_phone_whose_tries_are_used_up_is_stood_in_for_once_also_in_the_last_job(queue: FarmQueue) -> None:
    submit(queue, "A", replaces_lost=True)
    newcomers = Newcomers(queue, Most(1))
    announce(queue, "A", "B", "C")
    assert lose(queue, newcomers) == "night: B takes the place of A: job 2"
    assert newcomers.look() == []
    assert rows(queue) == {"A": ("replaced", "B"), "B": ("waits", "A")}
    assert queue.jobs("night")[0]["note"] == "it isn't attached"
    # The spare one may be lost too.
    assert lose(queue, newcomers, "B") == "night: C takes the place of B: job 3"
    assert lose(queue, newcomers, "C") == ""
    assert [status for status, _ in rows(queue).values()] == ["replaced", "replaced", "failed"]


def test_a_phone_that_comes_later_stands_in_as_long_as_the_submission_is_open(queue: FarmQueue) -> None:
    submit(queue, "A", "Z", replaces_lost=True)
    newcomers = Newcomers(queue, Most(2))
    announce(queue, "A", "Z")
    assert lose(queue, newcomers) == ""
    assert newcomers.look() == []
    announce(queue, "A", "B", "Z")
    assert newcomers.look() == ["night: B takes the place of A: job 3"]
    assert newcomers.look() == []
    assert rows(queue) == {"A": ("replaced", "B"), "Z": ("waits", ""), "B": ("waits", "A")}


def test_none_stands_in_unless_the_plan_wants_it(queue: FarmQueue) -> None:
    submit(queue, "A")
    announce(queue, "A", "B")
    assert lose(queue, Newcomers(queue, Most(1))) == ""


def test_jobs_wait_until_their_window_opens_also_of_a_phone_that_comes_before(queue: FarmQueue) -> None:
    opens_at = hours_from_now(2)
    submit(queue, "A", opens_at=opens_at)
    announce(queue, "A", "B")
    assert Newcomers(queue, Most()).look() == ["night: B came and is measured too: job 2"]
    worker = queue.register("one", benchfarm_version="1")
    assert queue.claim("one", worker, ["A", "B"]) is None
    note = f"its window opens at {opens_at:%Y-%m-%d %H:%M} UTC"
    assert {(row["status"], row["note"], row["waits_s"] > 6600) for row in queue.jobs()} == {("waits", note, True)}
    # Another night's job doesn't wait for it.
    submit(queue, "A", name="check")
    check = queue.claim("one", worker, ["A"])
    assert check is not None
    assert check.submission == "check"
    queue.finish(worker, check.job_id, "succeeded", "")
    age(queue, "procrastinate_jobs.scheduled_at")
    assert {queue.claim("one", worker, [serial]) is None for serial in ("A", "B")} == {False}


@pytest.mark.parametrize("state", ["away", "unusable", "usable", "works", "not over"])
def test_a_job_whose_phone_is_away_when_its_window_is_over_ends_and_says_so(queue: FarmQueue, state: str) -> None:
    until = hours_from_now(1 if state == "not over" else -1)
    submit(queue, "A", opens_at=hours_from_now(-8), until=until, joins=False)
    if state in {"unusable", "usable"}:
        queue.announce("one", {"A": Announced(facts="A", unusable="unauthorized" if state == "unusable" else "")})
        age(queue, "farm_phones.changed_at")
    if state == "works":
        submit(queue, "A", name="urgent")
        queue.rows("UPDATE procrastinate_jobs SET priority = 9 WHERE id = 2")
        assert queue.claim("one", queue.register("one", benchfarm_version="1"), ["A"]) is not None
    newcomers = Newcomers(queue, Most())
    # A host that has just come back may be the first one.
    assert newcomers.look() == newcomers.look() == []
    age(queue, "farm_protocol.watched_since")
    lines = newcomers.look()
    (job,) = queue.jobs("night")
    if state in {"away", "unusable"}:
        note = "its window was over while no host could use its phone"
        assert lines == [f"night: job 1 of A failed: {note}"]
        assert (job["status"], job["note"]) == ("failed", note)
    else:
        assert (lines, job["status"]) == ([], "waits")


def age(queue: FarmQueue, what: str, hours: int = 1) -> None:
    """Do what a long time does, without waiting for it."""
    table, column = what.split(".")
    queue.rows(f"UPDATE {table} SET {column} = now() - make_interval(hours => {hours})")


def test_a_phone_that_no_host_can_use_for_long_is_stood_in_for(queue: FarmQueue) -> None:
    submit(queue, "A", replaces_lost=True)
    newcomers = Newcomers(queue, Most(1))
    announce(queue, "B")
    assert newcomers.look() == []
    age(queue, "farm_protocol.watched_since")
    assert newcomers.look() == ["night: B takes the place of A: job 2"]
    assert rows(queue) == {"A": ("replaced", "B"), "B": ("waits", "A")}
    assert queue.jobs("night")[0]["note"] == "no host could use it for too long"


@pytest.mark.parametrize("why", ["is back", "works", "before its window"])
def test_a_phone_that_is_there_again_or_not_wanted_yet_is_not_lost(queue: FarmQueue, why: str) -> None:
    opens_at = hours_from_now(1 if why == "before its window" else -1)
    submit(queue, "A", replaces_lost=True, opens_at=opens_at)
    newcomers = Newcomers(queue, Most(1))
    announce(queue, "B")
    assert newcomers.look() == []
    if why == "is back":
        announce(queue, "A", "B")
    if why == "works":
        worker = queue.register("one", benchfarm_version="1")
        assert queue.claim("one", worker, ["A"]) is not None
        announce(queue, "B")
    age(queue, "farm_protocol.watched_since")
    assert newcomers.look() == []
    assert [status for status, _ in rows(queue).values()] == ["runs" if why == "works" else "waits"]


def rest(queue: FarmQueue) -> None:
    """Let hours go by in which nobody does anything."""
    for row in queue.rows(
        "SELECT table_name, column_name FROM information_schema.columns c JOIN information_schema.tables t"
        " USING (table_schema, table_name) WHERE c.table_schema = 'benchfarm_queue' AND t.table_type = 'BASE TABLE'"
        " AND c.data_type = 'timestamp with time zone'"
    ):
        table, column = row["table_name"], row["column_name"]
        queue.rows(f"UPDATE {table} SET {column} = {column} - interval '12 hours'")


def test_a_time_in_which_nobody_looked_makes_no_phone_lost(queue: FarmQueue) -> None:
    submit(queue, "A", replaces_lost=True)
    announce(queue, "B")
    assert Newcomers(queue, Most(1)).look() == []
    rest(queue)
    # In the morning the host of B is the first one that works again.
    queue.register("one", benchfarm_version="1")
    announce(queue, "B")
    newcomers = Newcomers(queue, Most(1))
    assert newcomers.look() == []
    assert newcomers.look() == []
    age(queue, "farm_protocol.watched_since")
    assert newcomers.look() == ["night: B takes the place of A: job 2"]


def test_a_phone_whose_job_ended_keeps_its_place_in_an_open_submission_whatever_is_cleaned(
    queue: FarmQueue, tmp_path: Path
) -> None:
    submit(queue, "A", "B")
    worker = queue.register("one", benchfarm_version="1")
    claimed = queue.claim("one", worker, ["A"])
    assert claimed is not None
    queue.finish(worker, claimed.job_id, "succeeded", "")
    contents, newcomers = Contents(queue, tmp_path / "here"), Newcomers(queue, Most(2))
    assert contents.clean(older_than_s=-1).jobs == 0
    announce(queue, "C")
    assert newcomers.look() == []
    queue.cancel("night")
    assert contents.clean(older_than_s=-1).jobs == 2


def test_nothing_stands_in_for_a_phone_that_was_abandoned_once_it_is_cancelled(
    queue: FarmQueue, url: str, tmp_path: Path
) -> None:
    settings = Settings.from_environment({}, home=tmp_path, store=url)
    submit(queue, "A", "Z", replaces_lost=True)
    newcomers = Newcomers(queue, Most(2))
    announce(queue, "A", "Z")
    assert lose(queue, newcomers) == ""
    nothing = "night: 0 jobs cancelled, 0 are being stopped"
    assert cancel(settings, "night", ["A"]).text == f"{nothing}; no phone takes the place of 1 that failed any more"
    assert cancel(settings, "night", ["A"]).text == nothing
    announce(queue, "A", "B", "Z")
    assert newcomers.look() == []
    assert rows(queue) == {"A": ("failed", ""), "Z": ("waits", "")}


def test_a_worker_hands_the_job_of_a_phone_that_it_can_not_get_to_another_phone(queue: FarmQueue) -> None:
    submit(queue, "A", replaces_lost=True)
    queue.rows("UPDATE farm_jobs SET tries = %s", TRIES_MAX)
    said: list[str] = []
    phones = {"A": Announced(facts="A"), "B": Announced(facts="B")}

    def run(claimed: Any, cancelled: threading.Event) -> Ended:
        if claimed.serial == "A":
            return Ended(status="again", note="it isn't attached", is_phone=True)
        return Ended(status="succeeded", note="2 stored")

    callbacks = Callbacks(
        run=run,
        look=lambda known, busy: Look(phones=phones),
        give_up=lambda claimed: None,
        say=lambda text, **about: said.append(text),
    )
    worker = Worker(
        queue,
        callbacks,
        host="one",
        benchfarm_version="1",
        dead_after_s=60,
        look_s=0.1,
        newcomers=Newcomers(queue, Most(1)),
    )
    assert worker.run(until_empty=True) == 2
    assert rows(queue) == {"A": ("replaced", "B"), "B": ("done", "A")}
    assert "night: B takes the place of A: job 2" in said


def test_a_submission_that_can_not_be_read_hides_no_other_and_ends_no_differently(queue: FarmQueue) -> None:
    def choose(submission: Submission, *rest: Any) -> Mapping[str, str]:
        if submission.submission == "broken":
            raise PlanError("a plan from the queue asks for more")
        return Most()(submission, *rest)

    submit(queue, "A", name="broken", replaces_lost=True)
    submit(queue, "Z")
    announce(queue, "A", "B")
    newcomers = Newcomers(queue, choose)
    assert newcomers.look() == [
        "broken: no phone can be added: a plan from the queue asks for more",
        "night: A came and is measured too: job 3",
        "night: B came and is measured too: job 4",
    ]
    assert "no phone takes the place of A: a plan from the queue asks for more" in lose(queue, newcomers)
    assert rows(queue, "broken") == {"A": ("failed", "")}


def test_what_a_phone_that_comes_may_need_stays_as_long_as_the_submission_is_known(
    queue: FarmQueue, tmp_path: Path
) -> None:
    import hashlib

    (tmp_path / "program").write_bytes(b"program")
    sha256 = hashlib.sha256(b"program").hexdigest()
    contents = Contents(queue, tmp_path / "here")
    contents.keep(tmp_path / "program", sha256)
    submit(queue, "A", files=[sha256])
    age(queue, "farm_files.used_at", hours=48)
    assert contents.clean(older_than_s=0).files == 0
    queue.cancel("night")
    assert contents.clean(older_than_s=-1).files == 1
    assert queue.rows("SELECT * FROM farm_submissions") == []
