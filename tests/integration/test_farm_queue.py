"""The farm's queue on a real PostgreSQL server: what is given out once, taken back, and ended by its holder only."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from orchestrator.errors import UsageError
from orchestrator.queueing.queue import DEATHS_MAX, Announced, FarmQueue
from orchestrator.queueing.submissions import PhoneJob, read_message
from orchestrator.records.identity import Serial

if TYPE_CHECKING:
    from tests.samples.postgresql import Cluster

#: Nothing counts as dead in such a test unless its worker was taken out.
LONG_S = 3600.0


def job(serial: str = "A", submission: str = "night") -> PhoneJob:
    return PhoneJob(submission=submission, serial=Serial(serial), plan="{}")


@pytest.fixture(scope="module")
def database(postgresql: Cluster) -> str:
    url = postgresql.url(postgresql.create())
    with FarmQueue(url):
        return url


@pytest.fixture
def url(database: str) -> str:
    """A queue in which nothing is."""
    with psycopg.connect(database, options="-c search_path=benchfarm_queue") as connection:
        for table in ("farm_jobs", "procrastinate_jobs", "farm_hosts", "farm_holds", "procrastinate_workers"):
            connection.execute(f"DELETE FROM {table}".encode())
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
    queue.submit([job(f"P{number}") for number in range(8)], plan_name="p", priority=0)
    serials = [f"P{number}" for number in range(8)]
    taken: list[int] = []
    start = threading.Barrier(4)

    def take(other: FarmQueue, name: str) -> None:
        number = worker(other, name)
        start.wait(30)
        misses = 0
        while misses < 5:
            claimed = other.claim(name, number, serials)
            misses += claimed is None
            taken.extend([claimed.job_id] if claimed else [])

    threads = [threading.Thread(target=take, args=(connect(), f"h{number}")) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(taken) == len(set(taken)) == 8


def test_a_phone_has_one_job_at_a_time_and_the_most_urgent_first(queue: FarmQueue) -> None:
    (nightly,) = queue.submit([job(submission="nightly")], plan_name="p", priority=0)
    (check,) = queue.submit([job(submission="check")], plan_name="p", priority=10)
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
    numbers = queue.submit([job(f"P{number}") for number in range(6)], plan_name="p", priority=0)
    dead = worker(queue, "dead")
    for number in range(6):
        assert queue.claim("dead", dead, [f"P{number}"]) is not None
    end_worker(url, dead)
    found: list[int] = []
    start = threading.Barrier(4)

    def reap(other: FarmQueue) -> None:
        start.wait(30)
        for _ in range(5):
            found.extend(other.reap(dead_after_s=60))

    threads = [threading.Thread(target=reap, args=(connect(),)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(found) == numbers
    assert {(row["tries"], row["deaths"]) for row in queue.jobs()} == {(0, 1)}


def test_a_host_thought_dead_ends_nothing_that_another_one_has_now(queue: FarmQueue, url: str) -> None:
    (number,) = queue.submit([job()], plan_name="p", priority=0)
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
    (number,) = queue.submit([job()], plan_name="p", priority=0)
    first = worker(queue, "one")
    queue.claim("one", first, ["A"])
    second = worker(queue, "one")
    assert not queue.beat("one", first).is_ours
    assert queue.beat("one", second).is_ours
    assert queue.reap(dead_after_s=LONG_S) == [number]
    assert queue.claim("one", second, ["A"]) is not None


def test_cancelling_ends_what_waits_and_tells_the_worker_of_what_runs(queue: FarmQueue) -> None:
    numbers = queue.submit([job("A"), job("B")], plan_name="p", priority=0)
    one = worker(queue)
    queue.claim("one", one, ["A"])
    assert queue.cancel("night") == dict(zip(numbers, ["doing", "todo"], strict=True))
    assert queue.beat("one", one).cancelled == {numbers[0]}
    assert queue.claim("one", one, ["B"]) is None
    assert queue.finish(one, numbers[0], "aborted", "stopped")
    assert [row["status"] for row in queue.jobs("night")] == ["cancelled", "cancelled"]


def test_a_submission_given_twice_is_queued_once(queue: FarmQueue) -> None:
    queue.submit([job("A"), job("B")], plan_name="p", priority=0)
    with pytest.raises(UsageError, match="in the queue already"):
        queue.submit([job("C")], plan_name="p", priority=0)
    assert [row["serial"] for row in queue.jobs()] == ["A", "B"]


def test_a_hosts_death_is_no_try_of_the_phone(queue: FarmQueue, url: str) -> None:
    (number,) = queue.submit([job()], plan_name="p", priority=0)
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


def test_a_host_that_is_stopped_uses_up_no_try(queue: FarmQueue) -> None:
    (number,) = queue.submit([job()], plan_name="p", priority=0)
    one = worker(queue)
    queue.claim("one", one, ["A"])
    assert queue.requeue(one, number, delay_s=0, note="stopped", is_try=False)
    assert [row["tries"] for row in queue.jobs()] == [0]


def test_a_job_that_waits_for_another_try_does_not_hold_up_its_phone(queue: FarmQueue) -> None:
    (urgent,) = queue.submit([job(submission="check")], plan_name="p", priority=10)
    (nightly,) = queue.submit([job(submission="nightly")], plan_name="p", priority=0)
    one = worker(queue)
    queue.claim("one", one, ["A"])
    queue.requeue(one, urgent, delay_s=300, note="busy")
    claimed = queue.claim("one", one, ["A"])
    assert claimed is not None
    assert claimed.job_id == nightly
    (waiting,) = queue.jobs("check")
    assert 200 < waiting["waits_s"] <= 300


def test_a_phone_that_two_hosts_have_is_given_out_once(queue: FarmQueue, connect: Callable[[], FarmQueue]) -> None:
    queue.submit([job(submission=f"s{number}") for number in range(1)], plan_name="p", priority=0)
    queue.submit([job(submission="other")], plan_name="p", priority=0)
    found: list[tuple[str, int]] = []
    start = threading.Barrier(2)

    def want(name: str) -> None:
        own = connect()
        number = worker(own, name)
        start.wait(30)
        for _ in range(10):
            claimed = own.claim(name, number, ["A"])
            if claimed is not None:
                found.append((name, claimed.job_id))

    threads = [threading.Thread(target=want, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    # Two jobs of one phone: whoever got the first has the phone.
    assert len(found) == 1


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"protocol": 2}, "written in version 2, this benchfarm reads version 1"),
        ({"protocol": True}, "written in version True"),
        ({"protocol": None}, "written in version None"),
        ({"plan": {"__reduce__": "os.system"}}, "plan is dict"),
        ({"serial": ""}, "can't be a serial number"),
        ({"serial": "host"}, "can't be a serial number"),
        ({"submission": "../../etc"}, "can't name a submission"),
    ],
)
def test_a_message_that_is_not_as_it_should_be_is_refused(changed: dict[str, object], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        read_message({**job().to_message(), **changed})
    assert read_message(job().to_message()) == job()


def test_a_job_that_names_another_phone_than_its_queue_is_refused(queue: FarmQueue) -> None:
    queue.submit([job("A")], plan_name="p", priority=0)
    queue.rows("UPDATE procrastinate_jobs SET args = jsonb_set(args, '{serial}', '\"B\"')")
    claimed = queue.claim("one", worker(queue), ["A", "B"])
    assert claimed is not None
    assert claimed.serial == "A"
    with pytest.raises(UsageError, match="names another phone"):
        claimed.read()


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
