"""The farm's queue on a real PostgreSQL server: what is given out once, taken back, and ended by its holder only."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from orchestrator.errors import UsageError
from orchestrator.queueing.queue import DEATHS_MAX, Announced, FarmQueue
from orchestrator.queueing.submissions import PROTOCOL
from tests.samples.submissions import at_once, empty, submit

if TYPE_CHECKING:
    from tests.samples.postgresql import Cluster

#: Nothing counts as dead in such a test unless its worker was taken out.
LONG_S = 3600.0


@pytest.fixture(scope="module")
def database(postgresql: Cluster) -> str:
    url = postgresql.url(postgresql.create())
    with FarmQueue(url):
        return url


@pytest.fixture
def url(database: str) -> str:
    """A queue in which nothing is."""
    with psycopg.connect(database, options="-c search_path=benchfarm_queue") as connection:
        empty(lambda text: connection.execute(text.encode()))
    return database


@pytest.fixture
def queue(connect: Callable[[], FarmQueue]) -> FarmQueue:
    return connect()


def worker(queue: FarmQueue, host: str = "one") -> int:
    return queue.register(host, benchfarm_version="1")


def end_worker(url: str, worker_id: int) -> None:
    """Do what a long silence does, without waiting for it."""
    with psycopg.connect(url) as connection:
        connection.execute(
            "UPDATE benchfarm_queue.procrastinate_workers SET last_heartbeat = now() - interval '2 hours'"
            " WHERE id = %s",
            (worker_id,),
        )


def test_a_job_is_given_to_one_of_many_hosts_that_want_it(queue: FarmQueue, connect: Callable[[], FarmQueue]) -> None:
    submit(queue, *(f"P{number}" for number in range(8)))
    serials = [f"P{number}" for number in range(8)]
    taken: list[int] = []

    def take(other: FarmQueue, name: str) -> None:
        number, misses = worker(other, name), 0
        while misses < 5:
            claimed = other.claim(name, number, serials)
            misses += claimed is None
            taken.extend([claimed.job_id] if claimed else [])

    at_once(partial(take, connect(), f"h{number}") for number in range(4))
    assert len(taken) == len(set(taken)) == 8


def test_a_phone_has_one_job_at_a_time_and_the_most_urgent_first(queue: FarmQueue) -> None:
    (nightly,) = submit(queue, "A", name="nightly", priority=0)
    (check,) = submit(queue, "A", name="check", priority=10)
    one, two = worker(queue, "one"), worker(queue, "two")
    first = queue.claim("one", one, ["A"])
    assert first is not None
    assert first.job_id == check
    assert queue.claim("two", two, ["A"]) is None
    assert queue.finish(one, check, "succeeded", "done")
    second = queue.claim("two", two, ["A"])
    assert second is not None
    assert second.job_id == nightly


def test_many_reapers_at_once_put_a_job_back_once(queue: FarmQueue, connect: Callable[[], FarmQueue], url: str) -> None:
    numbers = submit(queue, *(f"P{number}" for number in range(6)))
    dead = worker(queue, "dead")
    for number in range(6):
        assert queue.claim("dead", dead, [f"P{number}"]) is not None
    end_worker(url, dead)
    found: list[int] = []

    def reap(other: FarmQueue) -> None:
        for _ in range(5):
            found.extend(other.reap(dead_after_s=60))

    at_once(partial(reap, connect()) for _ in range(4))
    assert sorted(found) == numbers
    assert {(row["tries"], row["deaths"]) for row in queue.jobs()} == {(0, 1)}


def test_a_host_thought_dead_ends_nothing_that_another_one_has_now(queue: FarmQueue, url: str) -> None:
    (number,) = submit(queue, "A")
    slept, alive = worker(queue, "slept"), worker(queue, "alive")
    queue.claim("slept", slept, ["A"])
    end_worker(url, slept)
    queue.reap(dead_after_s=60)
    assert not queue.finish(slept, number, "succeeded", "late")
    assert queue.claim("alive", alive, ["A"]) is not None
    assert not queue.finish(slept, number, "succeeded", "late")
    assert not queue.requeue(slept, number, delay_s=0, note="late")
    assert number not in queue.beat("slept", slept).held
    assert [(row["status"], row["host"]) for row in queue.jobs()] == [("runs", "alive")]
    assert queue.finish(alive, number, "succeeded", "in time")


def test_a_worker_started_again_takes_its_name_and_its_jobs_back(queue: FarmQueue) -> None:
    (number,) = submit(queue, "A")
    first = worker(queue, "one")
    queue.claim("one", first, ["A"])
    second = worker(queue, "one")
    assert not queue.beat("one", first).is_ours
    assert queue.beat("one", second).is_ours
    assert queue.reap(dead_after_s=LONG_S) == [number]
    assert queue.claim("one", second, ["A"]) is not None


def test_cancelling_ends_what_waits_and_tells_the_worker_of_what_runs(queue: FarmQueue) -> None:
    numbers = submit(queue, "A", "B")
    one = worker(queue)
    queue.claim("one", one, ["A"])
    assert queue.cancel("night") == dict(zip(numbers, ["doing", "todo"], strict=True))
    assert queue.beat("one", one).cancelled == {numbers[0]}
    assert queue.claim("one", one, ["B"]) is None
    assert queue.finish(one, numbers[0], "aborted", "stopped")
    assert [row["status"] for row in queue.jobs("night")] == ["cancelled", "cancelled"]


def test_a_submission_given_twice_is_queued_once(queue: FarmQueue) -> None:
    submit(queue, "A", "B")
    with pytest.raises(UsageError, match="in the queue already"):
        submit(queue, "C")
    assert [row["serial"] for row in queue.jobs()] == ["A", "B"]


def test_a_hosts_death_is_no_try_of_the_phone(queue: FarmQueue, url: str) -> None:
    (number,) = submit(queue, "A")
    for deaths in range(1, DEATHS_MAX + 1):
        mortal = worker(queue, f"h{deaths}")
        claimed = queue.claim(f"h{deaths}", mortal, ["A"])
        assert claimed is not None
        assert claimed.tries == int(deaths > 1)
        if deaths == 1:
            assert queue.requeue(mortal, number, delay_s=0, note="the phone hung")
            assert queue.claim("h1", mortal, ["A"]) is not None
        end_worker(url, mortal)
        assert queue.reap(dead_after_s=60) == [number]
    (row,) = queue.jobs()
    # What kills so many hosts isn't given to one more.
    assert (row["status"], row["tries"], row["deaths"]) == ("failed", 1, DEATHS_MAX)
    assert "died 10 times" in row["note"]


def test_a_job_that_waits_for_another_try_does_not_hold_up_its_phone(queue: FarmQueue) -> None:
    (urgent,) = submit(queue, "A", name="check", priority=10)
    (nightly,) = submit(queue, "A", name="nightly", priority=0)
    one = worker(queue)
    queue.claim("one", one, ["A"])
    queue.requeue(one, urgent, delay_s=300, note="busy")
    claimed = queue.claim("one", one, ["A"])
    assert claimed is not None
    assert claimed.job_id == nightly
    (waiting,) = queue.jobs("check")
    assert 200 < waiting["waits_s"] <= 300


def test_a_phone_that_two_hosts_have_is_given_out_once(queue: FarmQueue, connect: Callable[[], FarmQueue]) -> None:
    submit(queue, "A")
    submit(queue, "A", name="other", priority=0)
    found: list[tuple[str, int]] = []

    def want(name: str, own: FarmQueue) -> None:
        number = worker(own, name)
        for _ in range(10):
            claimed = own.claim(name, number, ["A"])
            if claimed is not None:
                found.append((name, claimed.job_id))

    at_once(partial(want, name, connect()) for name in ("one", "two"))
    # Two jobs of one phone: whoever got the first has the phone.
    assert len(found) == 1


@pytest.mark.parametrize(
    ("name", "serial", "told"),
    [
        ("../../etc", "A", "can't name a submission"),
        ("night", "", "can't be a serial number"),
        ("night", "host", "can't be a serial number"),
    ],
)
def test_names_that_mean_a_file_or_a_host_are_refused(queue: FarmQueue, name: str, serial: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        submit(queue, serial, name=name)
    assert queue.jobs() == []


def test_a_job_of_a_newer_benchfarm_is_left_to_its_workers(queue: FarmQueue) -> None:
    submit(queue, "A")
    queue.rows("UPDATE farm_submissions SET protocol = %s", PROTOCOL + 1)
    submit(queue, "A", name="known")
    claimed = queue.claim("one", worker(queue), ["A"])
    assert claimed is not None
    assert claimed.submission == "known"


def test_what_is_said_of_phones_again_is_not_written_again(queue: FarmQueue) -> None:
    def written() -> list[dict[str, object]]:
        return queue.rows("SELECT serial, facts, unusable, labels, xmin::text, xmax::text FROM farm_phones ORDER BY 1")

    phones = {serial: Announced(facts=f'{{"of": "{serial}"}}', labels="{}") for serial in ("A", "B", "C")}
    worker(queue)
    queue.announce("one", phones)
    before = written()
    queue.announce("one", phones)
    assert written() == before
    del phones["C"]
    phones |= {"A": Announced(facts="{}", labels="{}"), "D": Announced(facts="{}", unusable="offline")}
    queue.announce("one", phones)
    said = {row["serial"]: (row["facts"], row["unusable"], row["labels"]) for row in queue.phones()}
    assert said == {serial: (phone.facts, phone.unusable, phone.labels) for serial, phone in phones.items()}
    assert written()[1] == before[1]


def test_a_store_that_is_not_on_postgresql_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="needs a store on PostgreSQL"):
        FarmQueue(str(tmp_path / "store.sqlite"))
