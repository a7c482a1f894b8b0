"""A host's worker on a real database, its phones and jobs played: what it tells the farm, and when
it is over."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy import event
from sqlalchemy.pool import Pool

from orchestrator.bootstrap import Settings, Workspace
from orchestrator.devices.journal import Change
from orchestrator.errors import PlanError, StoreError, UsageError
from orchestrator.extensions.farm.cli import worker as work
from orchestrator.extensions.farm.host import WorkerRequest
from orchestrator.extensions.farm.job import run_job
from orchestrator.extensions.farm.looking import Look
from orchestrator.extensions.farm.payload import Contents
from orchestrator.extensions.farm.queue import DEATHS_MAX, Announced, Delivery, Ended, FarmQueue
from orchestrator.extensions.farm.worker import TRIES_MAX, Callbacks, HostWorker
from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.case import CampaignId, Serial
from orchestrator.store.opening import Store
from tests.conftest import poll_until
from tests.samples.submissions import begin, empty, host_lives, submit

if TYPE_CHECKING:
    from tests.samples.postgresql import Cluster

PHONES = {
    "A": Announced(facts="{}", labels='{"pools": ["nightly"]}'),
    "B": Announced(facts="{}", unusable="offline"),
}
#: As docs/reference/farm.md has it.
STORE_CONNECTIONS, STORE_CONNECTIONS_KEPT = 5, 2
DONE = Ended(status="done", note="4 stored")
Run = Callable[[Delivery, threading.Event], Ended]


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
    host: str = "one",
    dead_after_s: float = 60.0,
    abandoned: list[str] | None = None,
    told: list[dict[str, object]] | None = None,
) -> HostWorker:
    def phones(known: Mapping[str, Announced], busy: Collection[str]) -> Look:
        return Look(phones=PHONES)

    def give_up(begun: Delivery) -> None:
        (abandoned if abandoned is not None else []).append(begun.campaign_id)

    def tell(text: str, /, *, level: str = "info", **keys: object) -> None:
        if said is not None:
            said.append(text)
        if told is not None:
            told.append({"text": text, "level": level, **keys})

    callbacks = Callbacks(
        run=run,
        look=look or phones,  # type: ignore[arg-type]
        give_up=give_up,
        announced=lambda phones: [],
        say=tell,
    )
    return HostWorker(queue, callbacks, host=host, dead_after_s=dead_after_s, look_s=0.05)


@contextmanager
def working(queue: FarmQueue, made: HostWorker) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=lambda: made.run(until_empty=False), daemon=True)
    thread.start()
    try:
        yield thread
    except BaseException:
        # One that went on would take the jobs of the tests that come.
        queue.hold("farm", "drain")
        for row in queue.jobs():
            queue.cancel(row["submission"])
        raise
    finally:
        thread.join(60)
        assert not thread.is_alive()


until = partial(poll_until, what="it comes about", timeout_s=60)


def stop_when_cancelled(begun: Delivery, cancelled: threading.Event) -> Ended:
    assert cancelled.wait(60)
    return Ended(status="aborted", note="stopped")


def test_a_worker_ends_when_nothing_is_left_and_its_phones_are_away_then(
    queue: FarmQueue, job: int
) -> None:
    seen: list[object] = []

    def run(begun: Delivery, cancelled: threading.Event) -> Ended:
        seen.extend(queue.phones())
        return DONE

    assert worker(queue, run).run(until_empty=True) == 1
    assert [(row["status"], row["note"]) for row in queue.jobs()] == [("done", "4 stored")]
    assert {(row["serial"], row["unusable"]) for row in seen} == {("A", ""), ("B", "offline")}  # type: ignore[index]
    assert queue.hosts() == queue.phones() == []
    assert [row["serial"] for row in queue.away()] == ["A", "B"]


@pytest.mark.parametrize(
    ("ended", "tries", "least_s"),
    [
        (Ended(status="again", note="the phone is busy"), 6, 80),
        (Ended(status="later", note="its program is in use", wait_s=900.0), 5, 600),
    ],
)
def test_what_is_not_done_waits(
    queue: FarmQueue, job: int, ended: Ended, tries: int, least_s: float
) -> None:
    # The first tries are made again so soon that the same run may make them.
    queue.rows("UPDATE farm_jobs SET tries = 5")
    assert worker(queue, lambda begun, cancelled: ended).run(until_empty=True) == 0
    (row,) = queue.jobs()
    assert (row["status"], row["note"], row["tries"]) == ("waits", ended.note, tries)
    assert row["waits_s"] >= least_s


@pytest.mark.parametrize("counted", ["tries", "deaths"])
def test_a_phone_that_fails_again_and_again_costs_the_job_and_so_do_hosts_that_die_at_it(
    queue: FarmQueue, job: int, counted: str
) -> None:
    queue.rows(
        f"UPDATE farm_jobs SET {counted} = %s", {"tries": TRIES_MAX, "deaths": DEATHS_MAX}[counted]
    )
    assert (
        worker(queue, lambda begun, cancelled: Ended(status="again", note="lost")).run(
            until_empty=True
        )
        == 1
    )
    note = {"tries": "lost", "deaths": f"its host died {DEATHS_MAX} times"}[counted]
    assert [(row["status"], row["note"]) for row in queue.jobs()] == [("failed", note)]


def test_a_job_of_a_host_that_died_is_begun_again_and_that_is_no_try_of_the_phone(
    queue: FarmQueue, job: int
) -> None:
    host_lives(queue, "gone")
    lost = begin(queue, "A", host="gone")
    assert worker(queue, lambda begun, cancelled: DONE).run(until_empty=True) == 1
    assert [(row["status"], row["host"], row["tries"], row["deaths"]) for row in queue.jobs()] == [
        ("done", "one", 0, 1)
    ]
    # It wasn't dead, only asleep: it changes nothing any more.
    assert queue.end(lost, "failed", "too late") is None
    assert queue.jobs()[0]["status"] == "done"


def test_a_job_that_the_queue_has_lost_is_put_into_it_again(queue: FarmQueue, job: int) -> None:
    begun, again = threading.Event(), Ended(status="later", note="not yet", wait_s=0.0)

    def run(delivery: Delivery, cancelled: threading.Event) -> Ended:
        if begun.is_set():
            return DONE
        # What is begun and what waits: nothing of the queue has to be right.
        queue.rows("DELETE FROM procrastinate_jobs")
        begun.set()
        return again

    with working(queue, worker(queue, run, dead_after_s=2.0)):
        until(lambda: queue.jobs()[0]["status"] == "done")
        queue.hold("farm", "drain")
    assert queue.rows("SELECT * FROM procrastinate_jobs") == []


def test_a_cancelled_job_is_stopped_and_given_up_and_a_drained_worker_ends(
    queue: FarmQueue, job: int
) -> None:
    abandoned: list[str] = []
    with working(queue, worker(queue, stop_when_cancelled, abandoned=abandoned)):
        until(lambda: queue.jobs()[0]["status"] == "runs")
        queue.hold("host:one", "drain")
        queue.cancel("night")
    assert [row["status"] for row in queue.jobs()] == ["cancelled"]
    assert abandoned == ["night_A"]


@pytest.mark.parametrize("scope", ["farm", "host:one", "phone:A"])
def test_what_is_paused_begins_no_job_also_one_that_was_given_out_before(
    queue: FarmQueue, job: int, scope: str
) -> None:
    queue.hold(scope, "pause")
    assert queue.begin(job, "one") is None
    assert queue.release(scope)
    assert queue.begin(job, "one") is not None


def test_a_phone_has_one_job_at_a_time_and_the_most_urgent_first(queue: FarmQueue) -> None:
    order: list[str] = []
    at_once = threading.Semaphore(1)
    for number in range(4):
        submit(queue, "A", name=f"n{number}", priority=number)

    def run(begun: Delivery, cancelled: threading.Event) -> Ended:
        assert at_once.acquire(blocking=False)
        order.append(begun.submission)
        at_once.release()
        return DONE

    assert worker(queue, run).run(until_empty=True) == 4
    assert order == ["n3", "n2", "n1", "n0"]


def test_a_phone_that_two_hosts_have_is_measured_by_one_until_its_connection_is_lost(
    queue: FarmQueue, opened_url: str, job: int
) -> None:
    said: dict[str, list[str]] = {"one": [], "two": []}
    may_end = threading.Event()

    def run(begun: Delivery, cancelled: threading.Event) -> Ended:
        while not cancelled.wait(0.02):
            if may_end.is_set():
                return DONE
        return Ended(status="aborted", note="stopped")

    with working(queue, worker(queue, run, said["one"])):
        until(lambda: queue.jobs()[0]["status"] == "runs")
        with (
            FarmQueue(opened_url) as other,
            working(queue, worker(other, run, said["two"], host="two")),
        ):
            until(
                lambda: (
                    {row["host"] for row in queue.phones() if row["serial"] == "A"}
                    == {"one", "two"}
                )
            )
            assert [row["host"] for row in queue.jobs()] == ["one"]
            # As a network that breaks, or a server that is restarted, ends it.
            queue.rows(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted"
                " AND pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' GROUP BY pid HAVING count(*) = 2)"
            )
            until(lambda: any("is lost; what runs is stopped" in line for line in said["one"]))
            may_end.set()
            until(lambda: queue.jobs()[0]["status"] == "done")
            queue.hold("farm", "drain")
    assert (
        sum(line.startswith(f"job {job}: begins") for lines in said.values() for line in lines) >= 2
    )
    assert queue.jobs()[0]["tries"] == 0


def test_a_job_whose_worker_is_stopped_waits_for_another_one_and_is_not_abandoned(
    queue: FarmQueue, job: int
) -> None:
    abandoned: list[str] = []
    said: list[str] = []
    begun, restored = threading.Event(), threading.Event()

    def run(delivery: Delivery, cancelled: threading.Event) -> Ended:
        begun.set()
        assert cancelled.wait(60)
        # Stopped twice, it still waits for its phones.
        until(lambda: "restoring phones; please wait" in said)
        restored.set()
        return Ended(status="aborted", note="stopped")

    def interrupt() -> None:
        assert begun.wait(60)
        for _ in range(2):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            until(lambda: bool(said))
            restored.wait(0.2)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            worker(queue, run, said, abandoned=abandoned).run(until_empty=False)
    finally:
        signal.signal(signal.SIGINT, before)
    thread.join(60)
    assert restored.is_set()
    assert [(row["status"], row["note"], row["tries"]) for row in queue.jobs()] == [
        ("waits", "one was stopped", 0)
    ]
    assert abandoned == []
    assert queue.hosts() == []


def test_of_two_workers_of_one_name_one_works_and_the_other_one_ends_with_the_reason(
    queue: FarmQueue, opened_url: str
) -> None:
    with working(queue, worker(queue, stop_when_cancelled)):
        until(lambda: bool(queue.hosts()))
        with FarmQueue(opened_url) as other:
            late = worker(other, stop_when_cancelled, dead_after_s=0.2)
            with pytest.raises(UsageError, match=r"another worker works as 'one' since 20.* UTC"):
                late.run(until_empty=False)
        assert len(queue.hosts()) == 1
        queue.hold("farm", "drain")


def test_a_worker_that_would_be_taken_for_dead_between_two_looks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="heard every 2 s is soon taken for dead when 4 s of silence do that"
    ) as told:
        work(
            Settings.from_environment({}, home=tmp_path),
            WorkerRequest(name="one", dead_after_s=4.0, look_s=2.0, until_empty=True),
        )
    assert told.value.hint == "--every 1 at most, or a longer --dead-after"


def test_what_goes_wrong_with_a_job_is_told_as_that_with_its_phone_and_campaign(
    queue: FarmQueue, job: int
) -> None:
    told: list[dict[str, object]] = []
    ends = [
        Ended(status="again", note="the phone is busy"),
        Ended(status="failed", note="no such model"),
    ]

    def run(begun: Delivery, cancelled: threading.Event) -> Ended:
        return ends.pop(0)

    for _ in range(2):
        worker(queue, run, told=told).run(until_empty=True)
        queue.rows("UPDATE farm_jobs SET again_at = now() - interval '1 hour'")
        queue.rows("UPDATE procrastinate_jobs SET scheduled_at = now() - interval '1 hour'")
    of_job = [line for line in told if "job" in line]
    about = {"job": job, "serial": "A", "campaign_id": "night_A"}
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
            name="one",
            until_empty=True,
            metrics_host=host or "192.0.2.1",
            metrics_port=taken.getsockname()[1],
        )
        with pytest.raises(UsageError) as told:
            work(settings, options)
    assert wanted in told.value.hint
    assert not_wanted not in told.value.hint


def test_a_worker_whose_devices_file_has_a_fault_is_refused(
    opened_url: str, tmp_path: Path
) -> None:
    (tmp_path / "devices.yaml").write_text("devices:\n  A: {pools: [nightly], tag: [rooted]}\n")
    settings = Settings.from_environment({}, home=tmp_path, store=opened_url)
    with pytest.raises(PlanError, match=r"devices\.yaml:2:\d+: devices\.A\.tag: unknown key"):
        work(settings, WorkerRequest(name="one", until_empty=True))


def test_what_is_wrong_with_a_host_is_told_once_and_to_all_until_it_is_mended(
    queue: FarmQueue, job: int
) -> None:
    away, fault = (
        "its phones can't be looked at: no adb server answers",
        "devices.yaml:2: unknown key",
    )
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
    made = worker(
        queue,
        stop_when_cancelled,
        look=lambda known, busy: Look(phones=None, ails="no adb server answers"),
    )
    assert made.run(until_empty=True) == 0
    assert [row["status"] for row in queue.jobs()] == ["waits"]


def test_what_is_known_of_phones_outlives_a_look_that_failed_and_busy_ones_are_named(
    queue: FarmQueue, job: int
) -> None:
    looks: list[tuple[Mapping[str, Announced], Collection[str]]] = []
    begun = threading.Event()
    # Seen, not looked at, the working one gone, back, and back still.
    plays = [PHONES, None, {"B": PHONES["B"]}, PHONES, PHONES]

    def look(known: Mapping[str, Announced], busy: Collection[str]) -> Look:
        if looks:
            assert begun.wait(60)
        looks.append((known, busy))
        return Look(phones=plays[min(len(looks), len(plays)) - 1])

    def run(delivery: Delivery, cancelled: threading.Event) -> Ended:
        begun.set()
        return stop_when_cancelled(delivery, cancelled)

    with working(queue, worker(queue, run, look=look)):
        until(lambda: len(looks) > len(plays))
        queue.hold("host:one", "drain")
        queue.cancel("night")
    assert looks[0] == ({}, [])
    # The failed look is forgotten, and one that was away while it worked is known as that until its
    # job is over.
    assert [known["A"].unusable for known, _ in looks[1:6]] == [
        "",
        "",
        *["its host can't look at its phones now"] * 3,
    ]
    assert [list(busy) for _, busy in looks[2:6]] == [["A"]] * 4


def test_a_job_that_is_over_says_when_its_phone_is_not_restored(
    queue: FarmQueue, job: int, tmp_path: Path
) -> None:
    settings = Settings.from_environment({}, home=tmp_path)
    changed, other = Serial("A"), Serial("B")
    with Workspace(settings) as workspace:
        workspace.conditioner.journal.add(
            changed, Change(what="brightness", undo="settings put system brightness 90")
        )
        contents = Contents(queue, tmp_path)

        def note(serial: Serial) -> str:
            delivery = Delivery(
                job_id=job, serial=serial, submission="night", campaign_id=CampaignId("night_A"), document="{}",
                facts="", tries=0, deaths=0, delivery=1,
            )  # fmt: skip
            ended = run_job(
                lambda: Workspace(settings), contents, delivery, "one", threading.Event()
            )
            assert ended.status == "failed"
            return ended.note

        said = "its phone isn't restored: benchfarm device restore A"
        assert said in note(changed)
        assert "isn't restored" not in note(other)
        with workspace.lease.acquire(changed):
            # Whoever uses it restores it.
            assert "isn't restored" not in note(changed)
        folder = workspace.conditioner.journal.folder
        folder.rename(tmp_path / "journals")
        folder.write_text("a file where a folder should be")
        assert "what is to be undone on phones can't be read from" in note(other)


def test_a_job_that_asks_for_what_this_benchfarm_does_not_know_waits_for_one_that_does(
    queue: FarmQueue, tmp_path: Path
) -> None:
    settings = Settings.from_environment({}, home=tmp_path)
    known = '"name": "p", "models": [{"name": "m", "path": "m.tflite", "sha256": "%s"}]' % (
        "a" * 64
    )
    plans = {"A": f'{{{known}, "zoom": 3}}', "B": f'{{{known}, "invocations": "many"}}'}
    for serial, plan in plans.items():
        submit(queue, serial, name=serial, document=f'{{"plan": {plan}, "payloads": {{"": {{}}}}}}')

    def run(begun: Delivery, cancelled: threading.Event) -> Ended:
        return run_job(
            lambda: Workspace(settings), Contents(queue, tmp_path), begun, "one", cancelled
        )

    queue.rows(
        "UPDATE farm_jobs SET facts = %s", '{"serial": "A", "kind": "android", "is_virtual": true}'
    )
    both = {serial: Announced(facts="{}") for serial in plans}
    assert worker(queue, run, look=lambda known, busy: Look(phones=both)).run(until_empty=True) == 1
    jobs = {row["serial"]: (row["status"], row["tries"], row["note"]) for row in queue.jobs()}
    assert jobs["A"][:2] == ("waits", 0)
    assert (
        "asks for plan.zoom, which this benchfarm doesn't know (install the submitter's benchfarm"
        in jobs["A"][2]
    )
    assert jobs["B"][0] == "failed"


@pytest.fixture
def store_connections() -> Iterator[list[int]]:
    """Collects how many connections all stores of this process have, at each that is opened or
    closed."""
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
        with Workspace(settings, store=store) as workspace:
            together.wait()
            asking.append(number)
            if number % 3:
                assert list(workspace.store.campaigns()) == []
            else:
                with pytest.raises(StoreError, match="no such campaign"):
                    workspace.store.set_status(CampaignId("none"), CampaignStatus.RUNNING, None)

    with (
        Workspace(settings) as host,
        psycopg.connect(url, autocommit=True) as watcher,
        ThreadPoolExecutor(phones) as pool,
    ):
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
