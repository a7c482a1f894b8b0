"""A host's worker on a real queue, its phones and jobs played: what it tells the queue, and when it is over."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy import event
from sqlalchemy.pool import Pool

from orchestrator.app.farm_worker import WorkerRequest, run_job
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.farm import worker as work
from orchestrator.devices.journal import Change
from orchestrator.errors import PlanError, StoreError, UsageError
from orchestrator.queueing.contents import Contents
from orchestrator.queueing.queue import Announced, Claimed, FarmQueue
from orchestrator.queueing.worker import TRIES_MAX, Callbacks, Ended, Look, Worker
from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.identity import CampaignId, Serial
from orchestrator.store.opening import Store
from tests.conftest import poll_until
from tests.samples.submissions import empty, submit

if TYPE_CHECKING:
    from tests.samples.postgresql import Cluster

PHONES = {"A": Announced(facts="{}", labels='{"pools": ["nightly"]}'), "B": Announced(facts="{}", unusable="offline")}
#: As docs/guides/many-hosts.md has it.
STORE_CONNECTIONS, STORE_CONNECTIONS_KEPT = 5, 2
Run = Callable[[Claimed, threading.Event], Ended]


@pytest.fixture(scope="module")
def opened_url(postgresql: Cluster) -> str:
    return postgresql.url(postgresql.create())


@pytest.fixture(scope="module")
def opened(opened_url: str) -> Iterator[FarmQueue]:
    with FarmQueue(opened_url) as queue:
        yield queue


@pytest.fixture
def queue(opened: FarmQueue) -> FarmQueue:
    empty(opened.rows)
    return opened


@pytest.fixture
def job(queue: FarmQueue) -> int:
    (number,) = submit(queue, "A")
    return number


def worker(
    queue: FarmQueue,
    run: Run,
    said: list[str] | None = None,
    look: object = None,
    *,
    host_id: str = "",
    dead_after_s: float = 3600.0,
    abandoned: list[str] | None = None,
    told: list[dict[str, object]] | None = None,
) -> Worker:
    def phones(known: Mapping[str, Announced], busy: Collection[str]) -> Look:
        return Look(phones=PHONES)

    def give_up(claimed: Claimed) -> None:
        (abandoned if abandoned is not None else []).append(claimed.campaign_id)

    def tell(text: str, /, *, level: str = "info", **keys: object) -> None:
        if said is not None:
            said.append(text)
        if told is not None:
            told.append({"text": text, "level": level, **keys})

    callbacks = Callbacks(run=run, look=look or phones, give_up=give_up, say=tell)  # type: ignore[arg-type]
    return Worker(
        queue, callbacks, host="one", benchfarm_version="1", dead_after_s=dead_after_s, look_s=0.05, host_id=host_id
    )


@contextmanager
def working(queue: FarmQueue, made: Worker) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=lambda: made.run(until_empty=False), daemon=True)
    thread.start()
    try:
        yield thread
    except BaseException:
        # One that went on would take the jobs of the tests that come.
        queue.hold("farm", "drain")
        for row in queue.jobs():
            queue.cancel(row["submission"])
        queue.rows("DELETE FROM farm_hosts")
        raise
    finally:
        thread.join(60)
        assert not thread.is_alive()


until = partial(poll_until, what="it comes about", timeout_s=60)


def stop_when_cancelled(claimed: Claimed, cancelled: threading.Event) -> Ended:
    assert cancelled.wait(60)
    return Ended(status="aborted", note="stopped")


def test_a_worker_ends_when_nothing_is_left_and_its_phones_go_with_it(queue: FarmQueue, job: int) -> None:
    seen: list[object] = []

    def run(claimed: Claimed, cancelled: threading.Event) -> Ended:
        seen.extend(queue.phones())
        return Ended(status="succeeded", note="4 stored")

    assert worker(queue, run).run(until_empty=True) == 1
    assert [(row["status"], row["note"]) for row in queue.jobs()] == [("done", "4 stored")]
    assert {(row["serial"], row["unusable"]) for row in seen} == {("A", ""), ("B", "offline")}  # type: ignore[index]
    assert queue.hosts() == queue.phones() == []


@pytest.mark.parametrize(
    ("ended", "tries", "least_s"),
    [
        (Ended(status="again", note="the phone is busy"), 6, 80),
        (Ended(status="later", note="its window opens", wait_s=900.0), 5, 600),
    ],
)
def test_what_is_not_done_waits(queue: FarmQueue, job: int, ended: Ended, tries: int, least_s: float) -> None:
    # The first tries are made again so soon that the same run may make them.
    queue.rows("UPDATE farm_jobs SET tries = 5")
    assert worker(queue, lambda claimed, cancelled: ended).run(until_empty=True) == 0
    (row,) = queue.jobs()
    assert (row["status"], row["note"], row["tries"]) == ("waits", ended.note, tries)
    assert row["waits_s"] >= least_s


def test_a_phone_that_fails_again_and_again_costs_the_job(queue: FarmQueue, job: int) -> None:
    queue.rows("UPDATE farm_jobs SET tries = %s", TRIES_MAX)
    assert worker(queue, lambda claimed, cancelled: Ended(status="again", note="lost")).run(until_empty=True) == 1
    assert [(row["status"], row["note"]) for row in queue.jobs()] == [("failed", "lost")]


def test_a_cancelled_job_is_stopped_and_given_up_and_a_drained_worker_ends(queue: FarmQueue, job: int) -> None:
    abandoned: list[str] = []
    with working(queue, worker(queue, stop_when_cancelled, abandoned=abandoned)):
        until(lambda: queue.jobs()[0]["status"] == "runs")
        queue.hold("host:one", "drain")
        queue.cancel("night")
    assert [row["status"] for row in queue.jobs()] == ["cancelled"]
    assert abandoned == ["night-A"]


def test_a_job_whose_worker_is_stopped_waits_for_another_one_and_is_not_abandoned(queue: FarmQueue, job: int) -> None:
    abandoned: list[str] = []

    def run(claimed: Claimed, cancelled: threading.Event) -> Ended:
        # As Ctrl-C arrives: in the thread that works.
        signal.raise_signal(signal.SIGINT)
        return stop_when_cancelled(claimed, cancelled)

    with pytest.raises(KeyboardInterrupt):
        worker(queue, run, abandoned=abandoned).run(until_empty=False)
    assert [(row["status"], row["note"], row["tries"]) for row in queue.jobs()] == [("waits", "one was stopped", 0)]
    assert abandoned == []


def test_a_job_that_went_to_another_host_is_stopped_and_not_told_of(queue: FarmQueue, job: int) -> None:
    said: list[str] = []
    with working(queue, worker(queue, stop_when_cancelled, said)):
        until(lambda: queue.jobs()[0]["status"] == "runs")
        other = queue.register("two", benchfarm_version="1")
        queue.rows("UPDATE procrastinate_jobs SET worker_id = %s", other)
        until(lambda: any("isn't this host's any more" in line for line in said))
        queue.hold("farm", "drain")
    assert [row["status"] for row in queue.jobs()] == ["runs"]
    assert queue.finish(other, job, "succeeded", "elsewhere")


@pytest.mark.parametrize("is_newcomer", [True, False])
def test_of_two_live_workers_of_one_name_one_works_and_the_other_one_ends_with_the_reason(
    queue: FarmQueue, job: int, is_newcomer: bool
) -> None:
    """Else each would stop the other's jobs, in turn, until all of them are said to kill their hosts."""
    made = worker(queue, stop_when_cancelled, host_id="a")
    if is_newcomer:
        number = queue.register("one", benchfarm_version="1", host_id="b")
    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(lambda: made.run(until_empty=False))
        if not is_newcomer:
            # A copy of this computer, or somebody at it who didn't know.
            until(lambda: queue.jobs()[0]["status"] == "runs")
            number = queue.register("one", benchfarm_version="1", host_id="a")
        with pytest.raises(UsageError, match=r"another worker has been working as 'one' since 20.* UTC"):
            ended.result(60)
    assert queue.beat("one", number).is_ours
    # Unless the one that ended did that in its last look.
    queue.reap(dead_after_s=3600)
    assert [(row["status"], row["deaths"]) for row in queue.jobs()] == [("waits", int(not is_newcomer))]


@pytest.mark.parametrize("host_id", ["a", "b"], ids=["started again at once", "silent for long"])
def test_a_name_is_its_computers_and_free_once_its_worker_was_silent_for_long(
    queue: FarmQueue, job: int, host_id: str
) -> None:
    queue.register("one", benchfarm_version="1", host_id=host_id)
    if host_id == "b":
        queue.rows("UPDATE farm_hosts SET seen_at = now() - interval '2 hours'")
    made = worker(queue, lambda claimed, cancelled: Ended(status="succeeded", note=""), host_id="a")
    assert made.run(until_empty=True) == 1


def test_a_host_that_has_just_come_takes_no_silent_hosts_job_but_one_that_nobody_has(
    queue: FarmQueue, job: int
) -> None:
    """When a database is back, others are as late as this one was."""
    (number,) = submit(queue, "C", name="other")
    claimed = queue.claim("silent", queue.register("silent", benchfarm_version="1"), ["C"])
    assert claimed is not None
    queue.rows("UPDATE procrastinate_workers SET last_heartbeat = now() - interval '2 hours'")

    def run(claimed: Claimed, cancelled: threading.Event) -> Ended:
        return Ended(status="succeeded", note="4 stored")

    assert worker(queue, run).run(until_empty=True) == 1
    assert [(row["status"], row["deaths"]) for row in queue.jobs("other")] == [("runs", 0)]
    # It has listened long enough.
    with working(queue, worker(queue, run, dead_after_s=1.0)):
        until(lambda: [(row["status"], row["deaths"]) for row in queue.jobs("other")] == [("waits", 1)])
        assert queue.claim("silent", queue.register("silent", benchfarm_version="1"), ["C"]) is not None
        queue.hold("farm", "drain")
    queue.release("farm")
    queue.register("silent", benchfarm_version="1")
    assert worker(queue, run).run(until_empty=True) == 0
    assert [(row["job_id"], row["status"]) for row in queue.jobs("other")] == [(number, "waits")]


def test_a_worker_that_would_be_taken_for_dead_between_two_looks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="heard every 2 s is soon taken for dead when 4 s of silence do that") as told:
        work(
            Settings.from_environment({}, home=tmp_path),
            WorkerRequest(name="one", dead_after_s=4.0, look_s=2.0, until_empty=True),
        )
    assert told.value.hint == "--every 1 at most, or a longer --dead-after"


def test_what_goes_wrong_with_a_job_is_told_as_that_with_its_phone_and_campaign(queue: FarmQueue, job: int) -> None:
    told: list[dict[str, object]] = []
    ends = [Ended(status="again", note="the phone is busy"), Ended(status="failed", note="no such model")]

    def run(claimed: Claimed, cancelled: threading.Event) -> Ended:
        return ends.pop(0)

    for _ in range(2):
        worker(queue, run, told=told).run(until_empty=True)
        queue.rows("UPDATE procrastinate_jobs SET scheduled_at = now() - interval '1 hour' WHERE status = 'todo'")
    of_job = [line for line in told if "job" in line]
    about = {"job": job, "serial": "A", "campaign_id": "night-A"}
    assert [line["level"] for line in of_job] == ["info", "warning", "info", "error"]
    assert all(about.items() <= line.items() for line in of_job)


@pytest.mark.parametrize(
    ("host", "wanted", "not_wanted"),
    [("127.0.0.1", "choose another port", "--port"), ("", "openssl", "--token new")],
)
def test_what_a_worker_cannot_serve_is_refused_by_its_own_options(
    opened_url: str, tmp_path: Path, host: str, wanted: str, not_wanted: str
) -> None:
    settings = Settings.from_environment({}, home=tmp_path, store=opened_url)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = WorkerRequest(
            name="one", until_empty=True, metrics_host=host or "192.0.2.1", metrics_port=taken.getsockname()[1]
        )
        with pytest.raises(UsageError) as told:
            work(settings, options)
    assert wanted in told.value.hint
    assert not_wanted not in told.value.hint


def test_a_worker_whose_devices_file_has_a_fault_is_refused(opened_url: str, tmp_path: Path) -> None:
    (tmp_path / "devices.yaml").write_text("devices:\n  A: {pools: [nightly], tag: [rooted]}\n")
    settings = Settings.from_environment({}, home=tmp_path, store=opened_url)
    with pytest.raises(PlanError, match=r"devices\.yaml:2:\d+: devices\.A\.tag: unknown key"):
        work(settings, WorkerRequest(name="one", until_empty=True))


def test_what_is_wrong_with_a_host_is_told_once_and_to_all_until_it_is_mended(queue: FarmQueue, job: int) -> None:
    away, fault = "its phones can't be looked at: no adb server answers", "devices.yaml:2: unknown key"
    said: list[str] = []
    looks = [
        Look(phones=None, ails=away),
        Look(phones=None, ails=away),
        Look(phones=PHONES, ails=fault),
        Look(phones=PHONES),
    ]
    due, told = threading.Semaphore(0), list[str]()

    def look(known: Mapping[str, Announced], busy: Collection[str]) -> Look:
        assert due.acquire(timeout=60)
        return looks.pop(0) if len(looks) > 1 else looks[0]

    def note() -> str:
        return "".join(row["note"] for row in queue.hosts())

    with working(queue, worker(queue, stop_when_cancelled, said, look=look)):
        for looked, expected in ((1, away), (2, fault), (100, "")):
            for _ in range(looked):
                due.release()
            until(lambda wanted=expected: bool(queue.hosts()) and note() == wanted)
            told.append(note())
        queue.hold("host:one", "drain")
        queue.cancel("night")
    assert told == [away, fault, ""]
    assert [line for line in said if line in {away, fault}] == [away, fault]


def test_phones_that_cannot_be_looked_at_are_not_announced(queue: FarmQueue, job: int) -> None:
    made = worker(queue, stop_when_cancelled, look=lambda known, busy: Look(phones=None, ails="no adb server answers"))
    assert made.run(until_empty=True) == 0
    assert [row["status"] for row in queue.jobs()] == ["waits"]


class LosingOneAnswer(FarmQueue):
    """A queue whose database goes away between a claim and its answer, once."""

    is_lost = False

    def claim(self, host: str, worker_id: int, serials: Sequence[str]) -> Claimed | None:
        claimed = super().claim(host, worker_id, serials)
        if claimed is not None and not self.is_lost:
            self.is_lost = True
            raise StoreError("the connection was lost")
        return claimed


def test_a_claim_whose_answer_is_lost_does_not_keep_its_phone(
    queue: FarmQueue, job: int, opened_again: LosingOneAnswer
) -> None:
    said: list[str] = []
    made = worker(opened_again, lambda claimed, cancelled: Ended(status="succeeded", note="4 stored"), said)
    with working(queue, made):
        until(lambda: queue.jobs()[0]["status"] == "done")
        queue.hold("farm", "drain")
    assert opened_again.is_lost
    assert queue.jobs()[0]["tries"] == 0
    assert f"job {job}: the claim's answer was lost; it waits again" in said


@pytest.fixture
def opened_again(queue: FarmQueue, opened_url: str) -> Iterator[LosingOneAnswer]:
    with LosingOneAnswer(opened_url) as again:
        yield again


def test_a_worker_that_is_stopped_twice_still_waits_for_its_phones(
    queue: FarmQueue, job: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    begun, restored = threading.Event(), threading.Event()

    def run(claimed: Claimed, cancelled: threading.Event) -> Ended:
        begun.set()
        assert cancelled.wait(60)
        until(lambda: "restoring phones; please wait" in said)
        restored.set()
        return Ended(status="aborted", note="stopped")

    made = worker(queue, run, said)
    beat, stops = queue.beat, [KeyboardInterrupt, KeyboardInterrupt]

    def interrupted(host: str, worker_id: int, *, ails: str = "") -> object:
        # As a signal would, in the thread that works: once while it works, once while it stops.
        if begun.is_set() and stops:
            raise stops.pop()
        return beat(host, worker_id, ails=ails)

    monkeypatch.setattr(queue, "beat", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.run(until_empty=False)
    assert restored.is_set()
    assert not stops
    assert [(row["status"], row["note"]) for row in queue.jobs()] == [("waits", "one was stopped")]
    assert queue.hosts() == []


def test_what_is_known_of_phones_outlives_a_look_that_failed_and_busy_ones_are_named(
    queue: FarmQueue, job: int
) -> None:
    looks: list[tuple[Mapping[str, Announced], Collection[str]]] = []
    begun = threading.Event()
    # Seen, not looked at, the working one gone, back, and back still.
    plays = [PHONES, None, {"B": PHONES["B"]}, PHONES, PHONES]

    def look(known: Mapping[str, Announced], busy: Collection[str]) -> Look:
        if looks:
            # The queue says that it runs before the worker itself knows.
            assert begun.wait(60)
        looks.append((known, busy))
        return Look(phones=plays[min(len(looks), len(plays)) - 1])

    def run(claimed: Claimed, cancelled: threading.Event) -> Ended:
        begun.set()
        return stop_when_cancelled(claimed, cancelled)

    with working(queue, worker(queue, run, look=look)):
        until(lambda: len(looks) > len(plays))
        queue.hold("host:one", "drain")
        queue.cancel("night")
    assert looks[0] == ({}, [])
    # The failed look is forgotten, and one that was away while it worked is known as that until its job is over.
    assert [known["A"].unusable for known, _ in looks[1:6]] == ["", "", *["its host can't look at its phones now"] * 3]
    assert [list(busy) for _, busy in looks[2:6]] == [["A"]] * 4


def test_a_job_that_is_over_says_when_its_phone_is_not_restored(queue: FarmQueue, job: int, tmp_path: Path) -> None:
    settings = Settings.from_environment({}, home=tmp_path)
    changed, other = Serial("A"), Serial("B")
    with Farm(settings) as farm:
        farm.conditioner.journal.add(changed, Change(what="brightness", undo="settings put system brightness 90"))
        contents = Contents(queue, tmp_path)

        def note(serial: Serial) -> str:
            claimed = Claimed(job_id=job, serial=serial, submission="night", document="{}", facts="")
            ended = run_job(lambda: Farm(settings), contents, claimed, "one", threading.Event())
            assert ended.status == "failed"
            return ended.note

        said = "its phone isn't restored: benchfarm device restore A"
        assert said in note(changed)
        assert "isn't restored" not in note(other)
        with farm.lease.acquire(changed):
            # Whoever uses it restores it.
            assert "isn't restored" not in note(changed)


def test_a_job_that_asks_for_what_this_benchfarm_does_not_know_waits_for_one_that_does(
    queue: FarmQueue, tmp_path: Path
) -> None:
    settings = Settings.from_environment({}, home=tmp_path)
    known = '"name": "p", "models": [{"name": "m", "path": "m.tflite", "sha256": "%s"}]' % ("a" * 64)
    plans = {"A": f'{{{known}, "zoom": 3}}', "B": f'{{{known}, "invocations": "many"}}'}
    for serial, plan in plans.items():
        submit(queue, serial, name=serial, document=f'{{"plan": {plan}, "payloads": {{"": {{}}}}}}')

    def run(claimed: Claimed, cancelled: threading.Event) -> Ended:
        return run_job(lambda: Farm(settings), Contents(queue, tmp_path), claimed, "one", cancelled)

    both = {serial: Announced(facts="{}") for serial in plans}
    assert worker(queue, run, look=lambda known, busy: Look(phones=both)).run(until_empty=True) == 1
    jobs = {row["serial"]: (row["status"], row["tries"], row["note"]) for row in queue.jobs()}
    assert jobs["A"][:2] == ("waits", 0)
    assert "asks for plan.zoom, which this benchfarm doesn't know (install the submitter's benchfarm" in jobs["A"][2]
    assert jobs["B"][0] == "failed"


@pytest.fixture
def store_connections() -> Iterator[list[int]]:
    """Collects how many connections all stores of this process have, at each that is opened or closed."""
    counts, lock = [0], threading.Lock()

    def note(change: int) -> None:
        with lock:
            counts.append(counts[-1] + change)

    def on_connect(*_: object) -> None:
        note(1)

    def on_close(*_: object) -> None:
        note(-1)

    listeners = {"connect": on_connect, "close": on_close}
    for name, listener in listeners.items():
        event.listen(Pool, name, listener)
    yield counts
    for name, listener in listeners.items():
        event.remove(Pool, name, listener)


def test_a_hosts_jobs_hold_few_connections_to_the_store(
    postgresql: Cluster, tmp_path: Path, store_connections: list[int]
) -> None:
    """However many threads read and write at once; a job that ends leaves the store to the others."""
    url = postgresql.url(postgresql.create())
    settings = Settings.from_environment({}, home=tmp_path, store=url)
    phones = 24
    together, asking = threading.Barrier(phones), list[int]()

    def job(store: Store, number: int) -> None:
        with Farm(settings, store=store) as farm:
            together.wait()
            asking.append(number)
            if number % 3:
                assert list(farm.store.campaigns()) == []
            else:
                with pytest.raises(StoreError, match="no such campaign"):
                    farm.store.set_status(CampaignId("none"), CampaignStatus.RUNNING, None)

    with Farm(settings) as host, psycopg.connect(url, autocommit=True) as watcher, ThreadPoolExecutor(phones) as pool:
        host.store.campaigns()

        def held_up() -> int:
            ours = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            return len(watcher.execute(ours).fetchall())

        with psycopg.connect(url) as other:
            # Whoever has a connection keeps it until all have asked for one.
            other.execute("LOCK TABLE campaigns")
            jobs = [pool.submit(job, host.store, number) for number in range(phones)]
            until(lambda: len(asking) == phones and held_up() == STORE_CONNECTIONS)
        for ended in jobs:
            ended.result()

        assert max(store_connections) == STORE_CONNECTIONS
        assert store_connections[-1] == STORE_CONNECTIONS_KEPT
        assert list(host.store.campaigns()) == []
    assert store_connections[-1] == 0
