"""Two versions of benchfarm on one queue: the older one's jobs are done, and it is never given what it can't read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest
from procrastinate.schema import SchemaManager

from orchestrator.config.farm_documents import read_plan
from orchestrator.errors import StoreError
from orchestrator.queueing.contents import Contents
from orchestrator.queueing.messages import PhoneJob
from orchestrator.queueing.queue import FarmQueue
from orchestrator.records.identity import Serial

if TYPE_CHECKING:
    from tests.contract.conftest import Cluster

pytestmark = pytest.mark.xdist_group("postgresql")
#: As version 1 left it: the job of phone A waits, its worker "old" holds that of phone B.
RECORDED = Path(__file__).parents[1] / "data" / "farm" / "queue_v1.sql"
MODEL = b"a model's bytes" * 10


@pytest.fixture
def url(postgresql: Cluster) -> str:
    url = postgresql.url(postgresql.create())
    with psycopg.connect(url, options="-c search_path=benchfarm_queue") as connection:
        connection.execute("CREATE SCHEMA benchfarm_queue")
        connection.execute(SchemaManager.get_schema())
        connection.execute(RECORDED.read_text("utf-8").encode())
    return url


@pytest.fixture
def queue(url: str) -> Iterator[FarmQueue]:
    with FarmQueue(url) as queue:
        yield queue


def as_version_1(url: str, statement: str) -> list[tuple[object, ...]]:
    """Do what a worker of version 1 does that runs on; its statements are as it had them."""
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
    assert as_version_1(
        url,
        "WITH beat AS (UPDATE procrastinate_workers SET last_heartbeat = now() WHERE id = 1 RETURNING id)"
        " UPDATE farm_hosts SET seen_at = now() FROM beat WHERE name = 'old' AND worker_id = beat.id RETURNING name",
    ) == [("old",)]
    as_version_1(
        url,
        "INSERT INTO farm_phones (serial, host, facts, unusable) VALUES ('C', 'old', '{}', '')"
        " ON CONFLICT (serial, host) DO UPDATE SET facts = excluded.facts RETURNING serial",
    )
    assert as_version_1(url, "SELECT procrastinate_finish_job_v1(2, 'succeeded', false)")
    (row,) = as_version_1(url, "SELECT id FROM procrastinate_fetch_job_v2(ARRAY['phone:B'], 1)")
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
    assert as_version_1(url, "SELECT version FROM farm_protocol") != [(1,)]


def test_tables_of_a_newer_benchfarm_are_refused_with_a_reason(queue: FarmQueue, url: str) -> None:
    queue.rows("UPDATE farm_protocol SET version = version + 1")
    with pytest.raises(StoreError, match="this benchfarm knows versions up to") as told, FarmQueue(url):
        pass
    assert "install it here too" in told.value.hint
