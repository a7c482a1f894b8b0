"""The queue of a farm of many hosts at 50 hosts and 1,000 phones, on a private PostgreSQL server.

Each host is a pool of connections with a thread, and does at its database what a worker does: it registers, announces
its phones, beats, claims and ends jobs. No phone is attached: only the queue is measured. Told are the server's and
this process's processor time for a host's look when nothing happens, how long a submission to all phones takes, how
many jobs a second are claimed and ended while all hosts ask at once, and what status and metrics cost with years of
ended jobs behind them. Beside the claims stand as many by Procrastinate's own function, on the same server.

    python benchmarks/farm_scale.py [--hosts 50] [--phones 20] [--ended 200000]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
from private_postgresql import private_server

from orchestrator.queueing.queue import Announced, FarmQueue
from orchestrator.queueing.submissions import Submission, queue_of


def hash_of(number: int, length: int) -> str:
    """Return so many digits that look random, the same ones each time."""
    return hashlib.sha256(b"%d" % number).hexdigest()[:length]


#: As long as a real phone's facts are as a document, about, and as hard to compress.
FACTS = json.dumps({f"ro.vendor.{hash_of(number, 12)}": hash_of(number, 24) for number in range(160)})


@contextmanager
def spent(what: str, count: int) -> Iterator[None]:
    """Print the wall time and the processor time of this process and of the servers for what is done meanwhile."""
    before, own, start = servers_s(), time.process_time(), time.perf_counter()
    yield
    wall, own, servers = time.perf_counter() - start, time.process_time() - own, servers_s() - before
    print(
        f"{what:44s} {wall:7.2f} s wall; each of {count}: {1e3 * wall / count:7.2f} ms wall,"
        f" {1e3 * own / count:6.2f} ms here, {1e3 * servers / count:6.2f} ms at the server",
        flush=True,
    )


def servers_s() -> float:
    """Return the processor time of all PostgreSQL processes, ended ones included where their parent has taken it."""
    ticks = 0
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                text = (folder / "stat").read_text()
            except OSError:
                continue
            if "(postgres)" in text:
                fields = text.rpartition(")")[2].split()
                ticks += sum(map(int, fields[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def together(works: list[Callable[[], None]]) -> None:
    """Do all works at once, a thread each."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def drain(queue: FarmQueue, host: str, worker_id: int, serials: list[str], done: list[int]) -> None:
    """Claim and end jobs until none is left for these phones."""
    while (claimed := queue.claim(host, worker_id, serials)) is not None:
        queue.finish(worker_id, claimed.job_id, "succeeded", "")
        done.append(claimed.job_id)


def drain_by_procrastinate(
    connection: psycopg.Connection[Any], worker_id: int, serials: list[str], done: list[int]
) -> None:
    """Do the same with Procrastinate's own functions, and no look at whose job it is."""
    queues = [queue_of(serial) for serial in serials]
    while True:
        row = connection.execute(
            "SELECT id FROM procrastinate_fetch_job_v2(%s::varchar[], %s)", (queues, worker_id)
        ).fetchone()
        if row is None or row[0] is None:
            return
        connection.execute("SELECT procrastinate_finish_job_v1(%s, 'succeeded', false)", (row[0],))
        done.append(row[0])


def measure(url: str, *, hosts: int, phones: int, ended: int) -> None:
    """Measure on an empty database."""
    names = [f"host-{number:02d}" for number in range(hosts)]
    serials = {name: [f"{name}-{number:02d}" for number in range(phones)] for name in names}
    every = [serial for own in serials.values() for serial in own]

    def submission(name: str) -> Submission:
        return Submission(
            submission=name, document="{}", plan_name="night", files=[], priority=0, joins=False, replaces_lost=False,
            opens_at=datetime.now(UTC),
        )  # fmt: skip

    with ExitStack() as stack:
        queues = {name: stack.enter_context(FarmQueue(url)) for name in names}
        numbers = {name: queue.register(name, benchfarm_version="1") for name, queue in queues.items()}
        known = {name: {serial: Announced(facts=FACTS) for serial in own} for name, own in serials.items()}
        with spent("the first look of every host", hosts):
            together([partial(queues[name].announce, name, known[name]) for name in names])
        fill(url, every, ended)

        def look(name: str) -> None:
            queue = queues[name]
            queue.beat(name, numbers[name])
            queue.reap(dead_after_s=3600)
            queue.announce(name, known[name])
            queue.claim(name, numbers[name], serials[name])

        with spent("a look when nothing happens", 10 * hosts):
            for _ in range(10):
                together([partial(look, name) for name in names])
        first = queues[names[0]]
        held = first.rows("SELECT count(*) AS held FROM pg_stat_activity WHERE datname = current_database()")[0]["held"]
        print(f"connections that {hosts} hosts hold now: {held}", flush=True)
        # Open to the end: the processor time of a connection's process is gone with it.
        others = {
            name: stack.enter_context(psycopg.connect(url, options="-c search_path=benchfarm_queue", autocommit=True))
            for name in names
        }

        def benchfarm(name: str, done: list[int]) -> None:
            drain(queues[name], name, numbers[name], serials[name], done)

        def procrastinate(name: str, done: list[int]) -> None:
            drain_by_procrastinate(others[name], numbers[name], serials[name], done)

        for way, work in (("benchfarm", benchfarm), ("Procrastinate", procrastinate)):
            with spent(f"a submission to {len(every)} phones", len(every)):
                first.submit(submission(f"for-{way}"), dict.fromkeys(every, FACTS))
            done: list[int] = []
            with spent(f"claimed and ended by {way}", len(every)):
                together([partial(work, name, done) for name in names])
            assert len(done) == len(set(done)) == len(every), f"{len(done)} of {len(every)}"
        with spent(f"farm status with {ended} ended jobs", 5):
            for _ in range(5):
                first.jobs(), first.phones(), first.hosts()
        with spent(f"metrics with {ended} ended jobs", 5):
            for _ in range(5):
                first.job_counts(), first.lag_s(), first.phones(), first.seen(), first.hosts()


def fill(url: str, serials: list[str], count: int) -> None:
    """Put ended jobs into the queue, as years of nights leave them where nobody cleans."""
    with psycopg.connect(url, options="-c search_path=benchfarm_queue") as connection:
        connection.execute(
            "INSERT INTO procrastinate_jobs (queue_name, task_name, priority, lock, status, args, attempts)"
            " SELECT 'phone:' || s.serial, 'benchfarm.phone', 0, 'phone:' || s.serial, 'succeeded', '{}', 1"
            " FROM (SELECT (%s::text[])[1 + n %% %s] AS serial FROM generate_series(1, %s) n) s",
            (serials, len(serials), count),
        )
        connection.execute(
            "INSERT INTO farm_jobs (job_id, submission, serial, campaign_id)"
            " SELECT id, 'old-' || id, replace(lock, 'phone:', ''), 'c' || id FROM procrastinate_jobs"
        )
        connection.execute(
            "INSERT INTO farm_submissions (submission, protocol, document, plan_name, files, priority, joins,"
            " replaces_lost, opens_at) SELECT 'old-' || id, 1, '{}', 'night', '{}', 0, false, false, now()"
            " FROM procrastinate_jobs"
        )
        connection.execute(
            "INSERT INTO procrastinate_events (job_id, type) SELECT id, 'succeeded' FROM procrastinate_jobs"
        )
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ANALYZE")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=50)
    parser.add_argument("--phones", type=int, default=20, help="of each host")
    parser.add_argument("--ended", type=int, default=200_000, help="jobs that lie there from before")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, private_server(Path(folder)) as url:
        measure(url, hosts=options.hosts, phones=options.phones, ended=options.ended)


if __name__ == "__main__":
    main()
