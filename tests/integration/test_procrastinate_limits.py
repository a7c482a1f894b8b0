"""What Procrastinate's own worker doesn't do that a phone farm needs (docs/decisions/0052).

A test that fails here after an update is good news: our part of that may go.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import procrastinate
import psycopg
import pytest
from procrastinate.jobs import Status
from procrastinate.periodic import PeriodicDeferrer, PeriodicRegistry
from procrastinate.retry import RetryStrategy

if TYPE_CHECKING:
    from tests.samples.postgresql import Cluster

PHONE = "phone:A"


@pytest.fixture
def url(postgresql: Cluster) -> str:
    return postgresql.url(postgresql.create())


def jobs_of(url: str) -> list[tuple[Any, ...]]:
    """Return status, worker and attempts of the jobs."""
    with psycopg.connect(url) as connection:
        return connection.execute("SELECT status, worker_id, attempts FROM procrastinate_jobs ORDER BY id").fetchall()


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[procrastinate.App]:
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=url))
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        yield app


async def work(app: procrastinate.App, *queues: str) -> None:
    """Do what can be done now."""
    await app.run_worker_async(queues=list(queues), wait=False, listen_notify=False, install_signal_handlers=False)


@pytest.mark.parametrize("waits", ["for another try", "for its window"])
def test_a_job_that_waits_holds_up_all_others_of_its_phone(url: str, waits: str) -> None:
    ran: list[str] = []

    async def main() -> None:
        async with opened(url) as app:

            @app.task(name="measure", retry=RetryStrategy(wait=3600))
            def measure(plan: str) -> None:
                ran.append(plan)
                if plan == "first":
                    raise RuntimeError("the phone is away")

            first = measure.configure(queue=PHONE, lock=PHONE, schedule_in={"hours": 5} if "window" in waits else None)
            await first.defer_async(plan="first")
            await measure.configure(queue=PHONE, lock=PHONE).defer_async(plan="second")
            await work(app, PHONE)

    asyncio.run(main())
    assert "second" not in ran


def test_without_a_lock_two_hosts_measure_on_one_phone(url: str) -> None:
    both = threading.Barrier(2)

    async def main() -> None:
        async with opened(url) as app:

            @app.task(name="measure")
            def measure() -> None:
                both.wait(30)

            for _ in range(2):
                await measure.configure(queue=PHONE).defer_async()
            await asyncio.gather(work(app, PHONE), work(app, PHONE))

    asyncio.run(main())
    assert [status for status, *_ in jobs_of(url)] == ["succeeded", "succeeded"]


@pytest.mark.parametrize("event", ["the first host wakes up", "two hosts look for stalled jobs"])
def test_who_lost_a_job_changes_it_while_another_host_does_it(url: str, event: str) -> None:
    async def main() -> list[tuple[Any, ...]]:
        async with opened(url) as app:
            app.task(name="measure")(print)
            await app.configure_task("measure", queue=PHONE, lock=PHONE).defer_async()
            manager = app.job_manager
            asleep, other = await manager.register_worker(), await manager.register_worker()
            held = await manager.fetch_job(queues=[PHONE], worker_id=asleep)
            assert held is not None
            with psycopg.connect(url) as connection:
                connection.execute("UPDATE procrastinate_workers SET last_heartbeat = now() - interval '10 min'")
            stalled = [list(await manager.get_stalled_jobs()) for _ in range(2)]
            await manager.retry_job(stalled[0][0], retry_at=datetime.now(UTC))
            assert await manager.fetch_job(queues=[PHONE], worker_id=other)
            if "wakes" in event:
                await manager.finish_job(held, status=Status.SUCCEEDED, delete_job=False)
            else:
                await manager.retry_job(stalled[1][0], retry_at=datetime.now(UTC))
            return jobs_of(url)

    ((status, _, attempts),) = asyncio.run(main())
    assert status == ("succeeded" if "wakes" in event else "todo")
    # The death of a host is a try of the phone.
    assert attempts >= 1


def test_periodic_tasks_make_up_for_days_and_know_no_later_schedule() -> None:
    registry = PeriodicRegistry()
    app = procrastinate.App(connector=procrastinate.PsycopgConnector())
    registry.register_task(app.task(name="night")(print), cron="0 1 * * *", periodic_id="a", configure_kwargs={})
    times = PeriodicDeferrer(registry)
    assert len(list(times.get_previous_tasks(datetime(2026, 7, 1, 1, 5, tzinfo=UTC).timestamp()))) == 1
    # A host that slept until noon of another day begins three nights at once.
    assert len(list(times.get_previous_tasks(datetime(2026, 7, 4, 12, tzinfo=UTC).timestamp()))) == 3
    # One that is started eleven minutes late begins none, and says so nowhere.
    assert not list(PeriodicDeferrer(registry).get_previous_tasks(datetime(2026, 7, 1, 1, 11, tzinfo=UTC).timestamp()))
    # It ends where there is no schedule when it begins; ours come and go while workers run.
    assert asyncio.run(asyncio.wait_for(PeriodicDeferrer(PeriodicRegistry()).worker(), 30)) is None
