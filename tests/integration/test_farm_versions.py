"""Two versions of benchfarm on one queue: the older one's jobs are done, and it is never given what it can't read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from procrastinate.schema import SchemaManager

from orchestrator.config.farm_documents import read_plan
from orchestrator.errors import StoreError
from orchestrator.queueing.contents import Contents
from orchestrator.queueing.messages import PhoneJob
from orchestrator.queueing.newcomers import Added, Newcomers
from orchestrator.queueing.queue import Announced, FarmQueue
from orchestrator.queueing.schedule import Schedules
from orchestrator.queueing.submissions import Submission
from orchestrator.records.identity import Serial
from tests.samples.places import DATA

if TYPE_CHECKING:
    from tests.samples.postgresql import Cluster

#: As each version left it: the job of phone A waits, its worker "old" holds that of phone B.
RECORDED = DATA / "farm"
MODEL = b"a model's bytes" * 10


@pytest.fixture
def url(postgresql: Cluster) -> str:
    return recorded(postgresql, "queue_v1.sql")


def recorded(postgresql: Cluster, name: str) -> str:
    url = postgresql.url(postgresql.create())
    with psycopg.connect(url, options="-c search_path=benchfarm_queue") as connection:
        connection.execute("CREATE SCHEMA benchfarm_queue")
        connection.execute(SchemaManager.get_schema())
        connection.execute((RECORDED / name).read_text("utf-8").encode())
    return url


@pytest.fixture
def queue(url: str) -> Iterator[FarmQueue]:
    with FarmQueue(url) as queue:
        yield queue


def as_before(url: str, statement: str) -> list[tuple[object, ...]]:
    """Do what a worker of a version before does that runs on; its statements are as it had them."""
    with psycopg.connect(url, options="-c search_path=benchfarm_queue") as connection:
        return connection.execute(statement.encode()).fetchall()


def test_a_job_of_the_version_before_is_done(queue: FarmQueue, tmp_path: Path) -> None:
    worker = queue.register("new", benchfarm_version="2")
    claimed = queue.claim("new", worker, ["A", "B"])
    assert claimed is not None
    job = claimed.read()
    assert (job.submission, job.serial, job.parcel, job.campaign_id) == ("before", "A", "", "before-A")
    (model,) = read_plan(job.plan).models
    assert Contents(queue, tmp_path).fetch(str(model.sha256), "m.tflite").read_bytes() == MODEL
    # The other one is the old worker's as long as that lives.
    assert queue.claim("new", worker, ["A", "B"]) is None
    assert queue.finish(worker, claimed.job_id, "succeeded", "")
    assert queue.reap(dead_after_s=1) == [2]
    other = queue.claim("new", worker, ["A", "B"])
    assert other is not None
    assert (other.read().serial, other.tries) == ("B", 1)


def test_a_worker_of_the_version_before_ends_its_own_jobs_and_sees_no_newer_ones(queue: FarmQueue, url: str) -> None:
    queue.submit([PhoneJob(submission="new", serial=Serial("B"), plan="{}", parcel="{}")], plan_name="p", priority=9)
    assert as_before(
        url,
        "WITH beat AS (UPDATE procrastinate_workers SET last_heartbeat = now() WHERE id = 1 RETURNING id)"
        " UPDATE farm_hosts SET seen_at = now() FROM beat WHERE name = 'old' AND worker_id = beat.id RETURNING name",
    ) == [("old",)]
    as_before(
        url,
        "INSERT INTO farm_phones (serial, host, facts, unusable) VALUES ('C', 'old', '{}', '')"
        " ON CONFLICT (serial, host) DO UPDATE SET facts = excluded.facts RETURNING serial",
    )
    assert as_before(url, "SELECT procrastinate_finish_job_v1(2, 'succeeded', false)")
    (row,) = as_before(url, "SELECT id FROM procrastinate_fetch_job_v2(ARRAY['phone:B'], 1)")
    assert row == (None,)
    assert [(job["submission"], job["serial"], job["status"]) for job in queue.jobs()] == [
        ("before", "A", "waits"),
        ("before", "B", "done"),
        ("new", "B", "waits"),
    ]


def test_a_phone_has_one_job_at_a_time_whatever_the_jobs_versions(queue: FarmQueue) -> None:
    queue.submit([PhoneJob(submission="new", serial=Serial("B"), plan="{}", parcel="{}")], plan_name="p", priority=9)
    worker = queue.register("new", benchfarm_version="2")
    assert queue.claim("new", worker, ["B"]) is None


def test_hosts_and_files_of_the_version_before_are_known_for_what_they_are(queue: FarmQueue) -> None:
    queue.register("new", benchfarm_version="2")
    assert {row["name"]: row["protocol"] for row in queue.hosts()} == {"new": 2, "old": 1}
    assert {row["serial"]: (row["protocol"], row["labels"]) for row in queue.phones()} == {"A": (1, ""), "B": (1, "")}
    assert queue.holds() == {"host:other": "pause"}
    queue.rows("UPDATE farm_files SET used_at = now() - interval '60 days'")
    # Both jobs need it, although version 1 didn't say so.
    assert Contents(queue, Path()).clean(older_than_s=0).files == 0


def test_the_version_before_is_refused_when_it_comes_anew(queue: FarmQueue, url: str) -> None:
    """It asks for exactly its own version, and says so."""
    assert as_before(url, "SELECT version FROM farm_protocol") != [(1,)]


def test_tables_of_a_newer_benchfarm_are_refused_with_a_reason(queue: FarmQueue, url: str) -> None:
    queue.rows("UPDATE farm_protocol SET version = version + 1")
    with pytest.raises(StoreError, match="this benchfarm knows versions up to") as told, FarmQueue(url):
        pass
    assert "install it here too" in told.value.hint


@pytest.fixture
def url_2(postgresql: Cluster) -> str:
    return recorded(postgresql, "queue_v2.sql")


def test_jobs_and_schedules_of_tables_of_version_2_are_done_and_no_phone_is_added_to_them(
    url_2: str, tmp_path: Path
) -> None:
    def nobody(*asked: object) -> list[Added]:
        raise AssertionError("nothing is kept by which a phone could be added")

    with FarmQueue(url_2) as queue:
        worker = queue.register("new", benchfarm_version="3")
        queue.announce("new", {"C": Announced(facts="{}")})
        newcomers = Newcomers(queue, nobody)
        assert newcomers.look() == []
        claimed = queue.claim("new", worker, ["A", "B"])
        assert claimed is not None
        assert (claimed.read().serial, claimed.read().parcel != "") == ("A", True)
        assert newcomers.give_up(worker, claimed.job_id, "it isn't attached") == (True, "")
        assert [(job["serial"], job["status"], job["tries"]) for job in queue.jobs("before")] == [
            ("A", "failed", 1),
            ("B", "runs", 0),
        ]
        assert [row["name"] for row in Schedules(queue).listed()] == ["nights"]
        queue.rows("UPDATE farm_files SET used_at = now() - interval '60 days'")
        assert Contents(queue, tmp_path).clean(older_than_s=0).files == 0


def test_a_submission_of_tables_of_version_3_goes_on_and_its_worker_too(postgresql: Cluster) -> None:
    url_3 = recorded(postgresql, "queue_v3.sql")

    def joins(submission: Submission, *asked: object) -> list[Added]:
        job = PhoneJob(submission=submission.name, serial=Serial("C"), plan=submission.plan, parcel="{}")
        return [Added(job=job, facts="{}", files=submission.files)]

    with FarmQueue(url_3) as queue:
        # What its worker says again and again: it lives, it has phones, and it takes its name back.
        assert as_before(
            url_3,
            "WITH beat AS (UPDATE procrastinate_workers SET last_heartbeat = now() WHERE id = 1 RETURNING id)"
            " UPDATE farm_hosts SET seen_at = now() FROM beat WHERE name = 'old' AND worker_id = beat.id"
            " RETURNING beat.id",
        ) == [(1,)]
        as_before(
            url_3,
            "INSERT INTO farm_phones (serial, host, facts, unusable, labels) VALUES ('C', 'old', '{}', '', '')"
            " ON CONFLICT (serial, host) DO UPDATE SET facts = excluded.facts, unusable = excluded.unusable,"
            " labels = excluded.labels, seen_at = now() RETURNING serial",
        )
        assert Newcomers(queue, joins).look() == ["before: C came and is measured too: job 3"]
        as_before(
            url_3,
            "INSERT INTO farm_hosts (name, worker_id, benchfarm_version, protocol) VALUES ('old', 1, '0.1.0', 2)"
            " ON CONFLICT (name) DO UPDATE SET worker_id = excluded.worker_id, started_at = now(), seen_at = now(),"
            " benchfarm_version = excluded.benchfarm_version, protocol = excluded.protocol, note = '' RETURNING name",
        )
        worker = queue.register("new", benchfarm_version="4", host_id="n")
        claimed = queue.claim("new", worker, ["A", "B"])
        assert claimed is not None
        assert claimed.read().serial == "A"
        # A phone that it has no more is known to be away.
        as_before(url_3, "DELETE FROM farm_phones WHERE host = 'old' AND serial = 'C' RETURNING serial")
        assert [(row["serial"], row["host"]) for row in queue.away()] == [("C", "old")]


def test_a_worker_that_knows_tables_of_version_2_goes_on_and_does_jobs_of_newer_submissions(url_2: str) -> None:
    """Its messages are the same ones; it takes in no phone, and what it submits for a schedule takes in none."""
    later = Submission(
        name="new", plan="{}", plan_name="p", parcels="{}", labels="{}", priority=9, joins=True, replaces_lost=True,
        opens_at=datetime.now(UTC), facts={"A": "{}"},
    )  # fmt: skip
    with FarmQueue(url_2) as queue:
        job = PhoneJob(submission="new", serial=Serial("A"), plan="{}", parcel="{}")
        (number,) = queue.submit([job], plan_name="p", priority=9, kept=later)
        assert as_before(
            url_2,
            "WITH next AS (SELECT j.id FROM procrastinate_jobs j WHERE j.status = 'todo'"
            " AND j.queue_name = ANY(ARRAY['v2:phone:A', 'phone:A']::varchar[])"
            " AND (j.scheduled_at IS NULL OR j.scheduled_at <= now())"
            " AND NOT EXISTS (SELECT 1 FROM procrastinate_jobs o WHERE o.lock = j.lock AND o.status = 'doing')"
            " ORDER BY j.priority DESC, j.id LIMIT 1 FOR UPDATE OF j SKIP LOCKED),"
            " taken AS (UPDATE procrastinate_jobs j SET status = 'doing', worker_id = 1 FROM next"
            " WHERE j.id = next.id RETURNING j.id, j.args, j.queue_name)"
            " UPDATE farm_jobs f SET host = 'old', note = '' FROM taken WHERE f.job_id = taken.id"
            " RETURNING taken.id, f.tries",
        ) == [(number, 0)]
        # The statement with which it queues what a schedule wants.
        as_before(
            url_2,
            "INSERT INTO farm_jobs (job_id, submission, serial, plan_name, campaign_id)"
            " VALUES (77, 'nights-1', 'A', 'nightly', 'nights-1-A') RETURNING job_id",
        )
        as_before(url_2, f"SELECT procrastinate_finish_job_v1({number}, 'succeeded', false)")
        assert [row["status"] for row in queue.jobs("new")] == ["done"]
