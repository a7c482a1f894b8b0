"""Queues of another version of benchfarm, or of another program, are refused and stay as they are."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import procrastinate
import psycopg
import pytest

from orchestrator.errors import StoreError
from orchestrator.extensions.farm.queue import FarmQueue
from orchestrator.extensions.farm.schema import HostLocks, connection_settings
from orchestrator.extensions.farm.worker import PhoneWorkers
from tests.conftest import poll_until

if TYPE_CHECKING:
    from tests.samples.postgresql import Cluster


@pytest.fixture
def url(postgresql: Cluster) -> str:
    return postgresql.url(postgresql.create())


@pytest.mark.parametrize(
    ("change", "hint"),
    [
        ("UPDATE farm_protocol SET version = version + 1", "install it here too"),
        ("DELETE FROM farm_protocol", "install it here too"),
        (
            "UPDATE farm_protocol SET version = version - 1",
            "drop the schema benchfarm_queue and submit again",
        ),
    ],
)
def test_a_queue_of_another_version_is_refused_with_a_reason(
    url: str, change: str, hint: str
) -> None:
    with FarmQueue(url) as queue:
        queue.pause("farm")
        queue.rows(change)
    with pytest.raises(StoreError, match="this benchfarm knows version 5") as told, FarmQueue(url):
        pass
    assert hint in told.value.hint
    with FarmQueue(url, is_guest=True) as queue:
        assert queue.pauses() == ["farm"]


def test_a_host_of_the_version_before_disturbs_no_wake_up_nor_is_disturbed(url: str) -> None:
    connector = procrastinate.SyncPsycopgConnector(conninfo=url, kwargs=connection_settings(url))
    before = procrastinate.App(connector=connector)
    awake = threading.Event()
    with FarmQueue(url) as queue, before.open():
        before.configure_task(
            "benchfarm.phone", queue="phone-A", schedule_in={"seconds": 600}
        ).defer(serial="A", job=1)
        workers = PhoneWorkers(url, lambda serial: awake.set(), poll_s=0.05)
        workers.open()
        workers.serve(["A"], due=["A"])
        # The version before expects a job's number of all that is in its queues.
        rows = queue.rows("SELECT args FROM procrastinate_jobs WHERE queue_name = 'phone-A'")
        assert [row["args"] for row in rows] == [{"serial": "A", "job": 1}]
        assert awake.wait(60)
        workers.stop("A")
        poll_until(lambda: not workers.alive(), what="the worker ends", timeout_s=60)
        workers.close()


def test_tables_of_the_same_name_that_are_no_queue_are_refused_in_one_error(url: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(
            "CREATE SCHEMA benchfarm_queue CREATE TABLE benchfarm_queue.farm_protocol (text text)"
        )
    with pytest.raises(StoreError, match="the farm's queue"), FarmQueue(url):
        pass


def test_a_server_that_is_gone_without_a_word_is_abandoned_after_a_minute(url: str) -> None:
    with FarmQueue(f"{url}&keepalives_idle=7") as queue, queue.connection() as connection:
        limits = connection.info.get_parameters()
    # What the URL says counts.
    assert (limits["tcp_user_timeout"], limits["keepalives_idle"]) == ("60000", "7")
    locks = HostLocks(url, dead_after_s=20)
    assert locks.take("host")
    locks.close()
