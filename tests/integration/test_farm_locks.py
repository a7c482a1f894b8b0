"""Processes of a farm that get in each other's way on a real PostgreSQL server: one that stands still stops nobody."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from orchestrator.errors import StoreError
from orchestrator.queueing.contents import Contents
from orchestrator.queueing.database import QueueHeldError
from orchestrator.queueing.newcomers import Newcomers
from orchestrator.queueing.queue import Announced, FarmQueue
from orchestrator.queueing.submissions import Submission
from tests.samples.submissions import submit as submit_to

NIGHT = "night"
#: Seconds; whoever takes longer hangs.
HANGS = 120


@pytest.fixture
def queue(connect: Callable[[], FarmQueue]) -> FarmQueue:
    return connect()


@pytest.fixture
def meanwhile() -> Iterator[Callable[..., Future[Any]]]:
    """Calls in a thread of its own."""
    with ThreadPoolExecutor(8) as pool:
        yield pool.submit


submit = partial(submit_to, replaces_lost=True)


def announce(queue: FarmQueue, host: str, *serials: str) -> None:
    queue.announce(host, {serial: Announced(facts=serial) for serial in serials})


def everyone(submission: Submission, kept: Mapping[str, str], phones: Sequence[Mapping[str, Any]]) -> Mapping[str, str]:
    return {row["serial"]: row["serial"] for row in phones}


class Halted:
    """A choice that stands still at its first question, as a host does that is suspended, until it is let go."""

    def __init__(self) -> None:
        self.reached, self._go_on = threading.Event(), threading.Event()

    def __call__(self, *asked: Any) -> Mapping[str, str]:
        self.reached.set()
        self._go_on.wait(2 * HANGS)
        return everyone(*asked)

    @contextmanager
    def during(self, looking: Callable[[], Future[Any]]) -> Iterator[Future[Any]]:
        look = looking()
        try:
            assert self.reached.wait(HANGS)
            yield look
        finally:
            self._go_on.set()


def test_a_host_that_freezes_while_it_chooses_stops_nobody_and_adds_nothing_to_what_is_over_then(
    queue: FarmQueue, connect: Callable[[], FarmQueue], meanwhile: Callable[..., Future[Any]]
) -> None:
    worker = queue.register("one", benchfarm_version="1")
    submit(queue, "A", "B", "C")
    announce(queue, "one", "A", "B", "C", "D")
    claims = [queue.claim("one", worker, [serial]) for serial in ("A", "B")]
    halted = Halted()
    frozen = Newcomers(connect(), halted)
    with halted.during(lambda: meanwhile(frozen.look)) as look:
        ended = meanwhile(queue.finish, worker, claims[0].job_id if claims[0] else 0, "succeeded", "")
        assert ended.result(HANGS)
        others = Newcomers(connect(), lambda *_: {})
        assert meanwhile(others.look).result(HANGS) == []
        assert meanwhile(others.give_up, worker, claims[1].job_id if claims[1] else 0, "gone").result(HANGS)[0]
        assert meanwhile(queue.beat, "one", worker).result(HANGS).is_ours
        assert meanwhile(queue.claim, "one", worker, ["C"]).result(HANGS) is not None
        assert len(meanwhile(queue.cancel, NIGHT).result(HANGS)) == 2
    assert look.result(HANGS) == []
    assert [row["serial"] for row in queue.jobs(NIGHT)] == ["A", "B", "C"]


def test_a_host_that_freezes_with_a_submission_locked_loses_it(
    queue: FarmQueue, connect: Callable[[], FarmQueue], meanwhile: Callable[..., Future[Any]]
) -> None:
    def freeze() -> None:
        with connect().brief() as connection:
            connection.execute("SELECT 1 FROM farm_submissions FOR UPDATE")
            assert list(meanwhile(queue.cancel, NIGHT).result(HANGS).values()) == ["todo"]

    submit(queue, "A")
    with pytest.raises(QueueHeldError):
        freeze()
    assert [row["status"] for row in queue.jobs(NIGHT)] == ["cancelled"]


def test_a_phone_is_abandoned_at_a_later_look_when_its_submission_is_held_for_long(
    queue: FarmQueue, url: str, meanwhile: Callable[..., Future[Any]]
) -> None:
    worker = queue.register("one", benchfarm_version="1")
    submit(queue, "A")
    claimed = queue.claim("one", worker, ["A"])
    assert claimed is not None
    announce(queue, "one", "A", "B")
    newcomers = Newcomers(queue, everyone)
    with psycopg.connect(url, options="-c search_path=benchfarm_queue") as person:
        person.execute("SELECT 1 FROM farm_submissions FOR UPDATE")
        with pytest.raises(StoreError, match="another process holds"):
            meanwhile(newcomers.give_up, worker, claimed.job_id, "gone").result(HANGS)
        assert newcomers.look() == []
        assert [row["status"] for row in queue.jobs(NIGHT)] == ["runs"]
    assert newcomers.give_up(worker, claimed.job_id, "gone") == (True, "night: B takes the place of A: job 2")


def test_a_phone_that_is_back_may_have_its_job_while_others_are_chosen(
    queue: FarmQueue, connect: Callable[[], FarmQueue], meanwhile: Callable[..., Future[Any]]
) -> None:
    worker = queue.register("one", benchfarm_version="1")
    submit(queue, "A", "L")
    announce(queue, "one")
    assert Newcomers(queue, everyone).look() == []
    queue.rows("UPDATE farm_protocol SET watched_since = now() - interval '1 hour'")
    announce(queue, "one", "A", "S")
    halted = Halted()
    with halted.during(lambda: meanwhile(Newcomers(connect(), halted).look)) as look:
        claimed = meanwhile(queue.claim, "one", worker, ["A"])
        with suppress(TimeoutError):
            claimed.result(5)
    assert claimed.result(HANGS) is not None
    assert look.result(HANGS) == ["night: S takes the place of L: job 3"]


def tried_again(ask: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """Ask a queue as its processes do, which ask again: who is held up for seconds loses what it has begun.

    That two wait for each other is no reason to ask again.
    """
    for _ in range(20):
        try:
            return ask(*given, **named)
        except StoreError as error:
            refused = error
            if isinstance(error.__cause__, psycopg.errors.DeadlockDetected):
                break
    raise refused


def test_no_two_of_all_that_a_farm_does_at_once_wait_for_each_other(
    queue: FarmQueue, connect: Callable[[], FarmQueue], meanwhile: Callable[..., Future[Any]], tmp_path: Path
) -> None:
    phones = [f"P{number:02}" for number in range(12)]
    for number in range(3):
        submit(queue, *phones, name=f"n{number}")
    over = threading.Event()

    def work(host: str) -> None:
        queue = connect()
        newcomers = Newcomers(queue, lambda *_: {})
        for turn in range(12):
            worker = tried_again(queue.register, host, benchfarm_version="1")
            tried_again(announce, queue, host, *(phones if turn % 2 else ()))
            tried_again(newcomers.look)
            held = [tried_again(queue.claim, host, worker, phones) for _ in range(4)]
            for place, claimed in enumerate(claimed for claimed in held if claimed is not None):
                if place == 0:
                    tried_again(newcomers.give_up, worker, claimed.job_id, "gone")
                elif place == 1:
                    tried_again(queue.requeue, worker, claimed.job_id, delay_s=0, note="")
            tried_again(newcomers.look)

    def steer(queue: FarmQueue) -> None:
        contents = Contents(queue, tmp_path)
        while not over.is_set():
            tried_again(queue.reap, dead_after_s=0)
            for number in range(3):
                tried_again(queue.cancel, f"n{number}", [phones[-1]])
            tried_again(contents.clean, older_than_s=0)
        for number in range(3):
            tried_again(queue.cancel, f"n{number}")

    workers = [meanwhile(work, f"h{number}") for number in range(4)]
    steering = meanwhile(steer, connect())
    try:
        for each in workers:
            each.result(4 * HANGS)
    finally:
        over.set()
    steering.result(HANGS)
