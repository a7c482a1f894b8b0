"""A host's worker on a real database, its phones and jobs played: what it tells the farm, and when
it is over."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from orchestrator.app.workspace import Workspace
from orchestrator.errors import PlanError, StoreError, UsageError
from orchestrator.extensions.farm.cli import worker as work
from orchestrator.extensions.farm.job import Ended, Jobs
from orchestrator.extensions.farm.job_table import CHANGES, Job
from orchestrator.extensions.farm.manifest import ContentStore
from orchestrator.extensions.farm.phones import Shared
from orchestrator.extensions.farm.queue import Announced, FarmQueue
from orchestrator.extensions.farm.submissions import cancel
from orchestrator.extensions.farm.worker import DEATHS_MAX, TRIES_MAX, HostWorker
from orchestrator.ports import SettingChange
from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.case import CampaignId, DelegateName, Serial
from orchestrator.settings import Settings
from orchestrator.store.opening import Store
from tests.conftest import poll_until
from tests.samples.records import settings_in
from tests.samples.sample_lab import BUILDS, MOBILENET, PIXEL_3, campaign_of, case, series
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
Run = Callable[[Job, threading.Event], Ended]


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


class Phones:
    """The phones of a host that is played."""

    def __init__(self, phones: Mapping[str, Announced]) -> None:
        self.phones = phones
        self.fault = ""

    def check(self, busy: Collection[str]) -> Mapping[str, Announced]:
        return self.phones


class PlayedJobs:
    """Jobs that are played: what does one, and the campaigns that were given up."""

    host = "one"

    def __init__(self, run: Run) -> None:
        self.run = run
        self.abandoned: list[str] = []

    def abandon(self, job: Job) -> None:
        self.abandoned.append(job.campaign_id)


def worker(
    queue: FarmQueue,
    run: Run,
    told: list[dict[str, object]] | None = None,
    *,
    phones: Phones | None = None,
    jobs: PlayedJobs | None = None,
    host: str = "one",
    dead_after_s: float = 60.0,
) -> HostWorker:
    def say(text: str, /, *, level: str = "info", **keys: object) -> None:
        if told is not None:
            told.append({"text": text, "level": level, **keys})

    jobs = jobs or PlayedJobs(run)
    jobs.host, jobs.say = host, say
    return HostWorker(
        queue,
        phones or Phones(PHONES),  # type: ignore[arg-type]
        jobs,  # type: ignore[arg-type]
        dead_after_s=dead_after_s,
        poll_s=0.05,
    )


@contextmanager
def working(made: HostWorker) -> Iterator[None]:
    thread = threading.Thread(target=lambda: made.run(until_empty=False), daemon=True)
    thread.start()
    try:
        yield
    finally:
        # One that went on would take the jobs of the tests that come.
        made.stop()
        thread.join(60)
        assert not thread.is_alive()


until = partial(poll_until, what="it comes about", timeout_s=60)


def stop_when_cancelled(begun: Job, cancelled: threading.Event) -> Ended:
    assert cancelled.wait(60)
    return Ended(status="waits", note="one stopped it")


def test_a_worker_ends_when_nothing_is_left_and_its_phones_are_away_then(
    queue: FarmQueue,
) -> None:
    submit(queue, "A", "B")
    seen: list[object] = []

    def run(begun: Job, cancelled: threading.Event) -> Ended:
        seen.extend(queue.phones())
        return DONE

    assert worker(queue, run).run(until_empty=True) == 1
    # A phone that can't be used gets no job.
    jobs = {row["serial"]: (row["status"], row["note"]) for row in queue.jobs()}
    assert jobs == {"A": ("done", "4 stored"), "B": ("waits", "")}
    assert {(row["serial"], row["unusable"]) for row in seen} == {("A", ""), ("B", "offline")}  # type: ignore[index]
    assert queue.hosts() == queue.phones() == []
    assert [row["serial"] for row in queue.away()] == ["A", "B"]


@pytest.mark.parametrize(
    ("ended", "tries", "least_s"),
    [
        (Ended(status="again", note="the phone is busy"), 6, 80),
        (Ended(status="waits", note="its program is in use", wait_s=900.0), 5, 600),
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
    assert (row["again_at"] - queue.now()).total_seconds() >= least_s


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
    begun, again = threading.Event(), Ended(status="waits", note="not yet", wait_s=0.0)

    def run(delivery: Job, cancelled: threading.Event) -> Ended:
        if begun.is_set():
            return DONE
        # What is begun and what waits: nothing of the queue has to be right.
        queue.rows("DELETE FROM procrastinate_jobs")
        begun.set()
        return again

    with working(worker(queue, run, dead_after_s=2.0)):
        until(lambda: queue.jobs()[0]["status"] == "done")
        # The last wake-up is taken, too, also one that came while the job ended.
        until(lambda: queue.rows("SELECT * FROM procrastinate_jobs") == [])


def test_a_job_that_was_cancelled_while_its_host_was_silent_is_stopped_and_abandoned(
    queue: FarmQueue, job: int
) -> None:
    jobs, told = PlayedJobs(stop_when_cancelled), list[dict[str, object]]()
    with working(worker(queue, jobs.run, told, jobs=jobs)):
        until(lambda: queue.jobs()[0]["status"] == "runs")
        queue.rows("UPDATE farm_jobs SET host = 'asleep'")
        assert set(queue.cancel("night").values()) == {"waits"}
        queue.rows("UPDATE farm_jobs SET host = 'one'")
        until(lambda: told[-1]["text"] == f"job {job}: cancelled: one stopped it")
    assert jobs.abandoned == ["night_A"]
    assert queue.jobs()[0]["status"] == "cancelled"


def test_a_job_that_was_cancelled_as_its_worker_was_stopped_is_not_begun_again(
    queue: FarmQueue, job: int
) -> None:
    begun: list[Job] = []

    def run(delivery: Job, cancelled: threading.Event) -> Ended:
        begun.append(delivery)
        assert set(queue.cancel("night").values()) == {"runs"}
        return Ended(status="waits", note="one stopped it")

    jobs = PlayedJobs(run)
    worker(queue, run, jobs=jobs).run(until_empty=True)
    assert (len(begun), jobs.abandoned) == (1, ["night_A"])
    assert queue.jobs()[0]["status"] == "cancelled"


@pytest.mark.parametrize("scope", ["farm", "host:one", "phone:A"])
def test_what_is_paused_begins_no_job_also_one_that_was_given_out_before(
    queue: FarmQueue, job: int, scope: str
) -> None:
    queue.pause(scope)
    assert queue.claim("A", "one") is None
    queue.resume(scope)
    assert queue.claim("A", "one") is not None


STATES = ("waits", "runs", "stops", "done", "failed", "cancelled")


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("change", CHANGES)
def test_a_job_changes_as_the_table_of_its_states_says_and_not_otherwise(
    queue: FarmQueue, job: int, change: str, state: str
) -> None:
    host_lives(queue, "one")
    begun = begin(queue, "A", host="one")
    stored = {"stops": "runs"}
    queue.rows(
        "UPDATE farm_jobs SET status = %s, cancel_asked = %s",
        stored.get(state, state),
        state in {"stops", "cancelled"},
    )
    match change:
        case "claim":
            queue.claim("A", "two")
        case "cancel":
            queue.cancel("night")
        case _:
            queue.end(begun, change, "")
    after = CHANGES[change].get(state, state)
    (row,) = queue.rows("SELECT status, cancel_asked FROM farm_jobs")
    assert row["status"] == stored.get(after, after)
    assert row["cancel_asked"] or after != "stops"


def test_a_phone_has_one_job_at_a_time_and_the_most_urgent_first(queue: FarmQueue) -> None:
    order: list[str] = []
    at_once = threading.Semaphore(1)
    for number in range(4):
        submit(queue, "A", name=f"n{number}", priority=number)

    def run(begun: Job, cancelled: threading.Event) -> Ended:
        assert at_once.acquire(blocking=False)
        order.append(begun.submission)
        at_once.release()
        return DONE

    assert worker(queue, run).run(until_empty=True) == 4
    assert order == ["n3", "n2", "n1", "n0"]


def test_a_phone_that_two_hosts_have_is_measured_by_one_until_its_connection_is_lost(
    queue: FarmQueue, opened_url: str, job: int
) -> None:
    said: dict[str, list[dict[str, object]]] = {"one": [], "two": []}
    may_end = threading.Event()

    def run(begun: Job, cancelled: threading.Event) -> Ended:
        while not cancelled.wait(0.02):
            if may_end.is_set():
                return DONE
        return Ended(status="waits", note="one stopped it")

    with working(worker(queue, run, said["one"])):
        until(lambda: queue.jobs()[0]["status"] == "runs")
        with (
            FarmQueue(opened_url) as other,
            working(worker(other, run, said["two"], host="two")),
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
            lost = "the connection that holds its phones is lost; running jobs are stopped"
            until(lambda: any(line["text"] == lost for line in said["one"]))
            may_end.set()
            until(lambda: queue.jobs()[0]["status"] == "done")
    begun = [
        line
        for lines in said.values()
        for line in lines
        if str(line["text"]).startswith(f"job {job}: begins")
    ]
    assert len(begun) >= 2
    assert queue.jobs()[0]["tries"] == 0


def test_a_job_whose_worker_is_stopped_waits_for_another_one_and_is_not_abandoned(
    queue: FarmQueue, job: int
) -> None:
    told: list[dict[str, object]] = []
    begun, restored = threading.Event(), threading.Event()

    def run(delivery: Job, cancelled: threading.Event) -> Ended:
        begun.set()
        assert cancelled.wait(60)
        # Stopped twice, it still waits for its phones.
        until(lambda: any(line["text"] == "restoring phones; please wait" for line in told))
        restored.set()
        return Ended(status="waits", note="one stopped it")

    def interrupt() -> None:
        assert begun.wait(60)
        for _ in range(2):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            until(lambda: bool(told))
            restored.wait(0.2)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt, daemon=True)
    thread.start()
    try:
        jobs = PlayedJobs(run)
        with pytest.raises(KeyboardInterrupt):
            worker(queue, run, told, jobs=jobs).run(until_empty=False)
    finally:
        signal.signal(signal.SIGINT, before)
    thread.join(60)
    assert restored.is_set()
    assert [(row["status"], row["note"], row["tries"]) for row in queue.jobs()] == [
        ("waits", "one stopped it", 0)
    ]
    assert jobs.abandoned == []
    assert queue.hosts() == []


class Listening(FarmQueue):
    """A queue that notes the statements of each poll of its worker."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.polls: list[list[str]] = []

    def rows(self, query: str, *values: object) -> list[dict[str, object]]:
        if "INSERT INTO farm_hosts" in query:
            self.polls.append([])
        if self.polls:
            self.polls[-1].append(query)
        return super().rows(query, *values)

    def whole_poll(self) -> list[str]:
        """Return the statements of a poll that begins from now on."""
        begun = len(self.polls)
        until(lambda: len(self.polls) >= begun + 2)
        return self.polls[begun]


def test_a_worker_that_measures_polls_by_no_more_statements_than_an_idle_one(
    queue: FarmQueue, opened_url: str
) -> None:
    with Listening(opened_url) as own, working(worker(own, stop_when_cancelled)):
        until(lambda: bool(queue.phones()))
        idle = own.whole_poll()
        submit(queue, "A")
        until(lambda: queue.jobs()[0]["status"] == "runs")
        assert own.whole_poll() == idle


def test_of_two_workers_of_one_name_one_works_and_the_other_one_ends_with_the_reason(
    queue: FarmQueue, opened_url: str
) -> None:
    with working(worker(queue, stop_when_cancelled)):
        until(lambda: bool(queue.hosts()))
        with FarmQueue(opened_url) as other:
            late = worker(other, stop_when_cancelled, dead_after_s=0.2)
            with pytest.raises(UsageError, match="another worker works as 'one'"):
                late.run(until_empty=False)
        assert len(queue.hosts()) == 1


def test_what_goes_wrong_with_a_job_is_told_as_that_with_its_phone_and_campaign(
    queue: FarmQueue, job: int
) -> None:
    told: list[dict[str, object]] = []
    ends = [
        Ended(status="again", note="the phone is busy"),
        Ended(status="failed", note="no such model"),
    ]

    def run(begun: Job, cancelled: threading.Event) -> Ended:
        return ends.pop(0)

    for _ in range(2):
        worker(queue, run, told).run(until_empty=True)
        queue.rows("UPDATE farm_jobs SET again_at = now() - interval '1 hour'")
    of_job = [line for line in told if "job" in line]
    about = {"job": job, "serial": "A", "campaign_id": "night_A"}
    assert [line["level"] for line in of_job] == ["info", "warning", "info", "error"]
    assert all(about.items() <= line.items() for line in of_job)


def test_a_worker_whose_devices_file_has_a_fault_is_refused(
    opened_url: str, tmp_path: Path
) -> None:
    (tmp_path / "devices.yaml").write_text("devices:\n  A: {pools: [nightly], tag: [rooted]}\n")
    settings = settings_in(tmp_path, store=opened_url)
    with pytest.raises(PlanError, match=r"devices\.yaml:2:\d+: devices\.A\.tag: unknown key"):
        work(settings, "one", until_empty=True)


def test_what_is_left_of_a_cancelled_job_is_abandoned_when_it_is_cancelled_again(
    queue: FarmQueue, opened_url: str, job: int, tmp_path: Path
) -> None:
    settings = settings_in(tmp_path, store=opened_url)
    begun = replace(
        campaign_of(series(case(PIXEL_3, MOBILENET, DelegateName.XNNPACK, 1), 6_000)),
        campaign_id=CampaignId("night_A"),
        status=CampaignStatus.INTERRUPTED,
    )
    # The first call was cut off between the queue and the store.
    queue.cancel("night")
    with Workspace(settings) as workspace:
        workspace.store.begin_campaign(
            begun, devices=[PIXEL_3], models=[MOBILENET], builds=[*BUILDS.values()]
        )
        for closed in (1, 0):
            assert cancel(workspace, "night", []).data["closed"] == closed
        stored = workspace.store.campaign(begun.campaign_id)
    assert stored is not None
    assert stored.status is CampaignStatus.CLOSED


def host_jobs(queue: FarmQueue, settings: Settings) -> Jobs:
    return Jobs(
        shared=Shared(settings=settings),
        contents=ContentStore(queue, settings.cache_folder),
        host="one",
        observer=lambda: None,  # type: ignore[arg-type,return-value]
        say=print,
    )


def test_a_job_that_ended_says_when_its_phone_is_not_restored(
    queue: FarmQueue, job: int, tmp_path: Path
) -> None:
    settings = settings_in(tmp_path)
    changed, other = Serial("A"), Serial("B")
    with Workspace(settings) as workspace:
        workspace.conditioner.journal.add(
            changed, SettingChange(what="brightness", undo="settings put system brightness 90")
        )
        jobs = host_jobs(queue, settings)

        def note(serial: Serial) -> str:
            delivery = Job(
                job_id=job, serial=serial, submission="night", campaign_id=CampaignId("night_A"), document="{}",
                facts="", tries=0, deaths=0, delivery=1,
            )  # fmt: skip
            ended = jobs.run(delivery, threading.Event())
            assert ended.status == "waits"
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
        assert "the undo journal can't be read from" in note(other)


def test_a_job_that_asks_for_what_this_benchfarm_does_not_know_waits_for_one_that_does(
    queue: FarmQueue, tmp_path: Path
) -> None:
    submit(queue, "A", document='{"plan": {"zoom": 3}}')
    jobs = host_jobs(queue, settings_in(tmp_path))
    assert worker(queue, jobs.run).run(until_empty=True) == 0
    (row,) = queue.jobs()
    assert (row["status"], row["tries"]) == ("waits", 0)
    assert row["again_at"] > queue.now()
    assert "is the submitter's benchfarm newer?" in row["note"]


def test_a_hosts_jobs_hold_few_connections_to_the_store(
    postgresql: Cluster, tmp_path: Path
) -> None:
    """However many threads read and write at once; a job that ends leaves the store to the others."""
    url = postgresql.url(postgresql.create())
    settings = settings_in(tmp_path, store=url)
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

    with psycopg.connect(url, autocommit=True) as watcher:

        def connections() -> list[str | None]:
            """Return what each of the others waits for."""
            query = "SELECT wait_event_type FROM pg_stat_activity"
            others = "datname = current_database() AND pid <> pg_backend_pid()"
            return [row[0] for row in watcher.execute(f"{query} WHERE {others}".encode())]

        with Workspace(settings) as host, ThreadPoolExecutor(phones) as pool:
            host.store.campaigns()
            with psycopg.connect(url) as other:
                # Whoever has a connection keeps it until all have asked for one.
                other.execute("LOCK TABLE campaigns")
                jobs = [pool.submit(job, host.store, number) for number in range(phones)]
                until(
                    lambda: (
                        len(asking) == phones and connections().count("Lock") == STORE_CONNECTIONS
                    )
                )
                # One of them holds the lock.
                assert len(connections()) == STORE_CONNECTIONS + 1
            for ended in jobs:
                ended.result()
            until(lambda: len(connections()) == STORE_CONNECTIONS_KEPT)
            assert list(host.store.campaigns()) == []
        # Its end leaves none open.
        until(lambda: not connections())
