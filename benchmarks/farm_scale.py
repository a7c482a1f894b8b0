"""A farm of many hosts at 50 hosts and 1,000 phones, on a private PostgreSQL server.

Each host does at its database what a worker does: it announces its phones, says that it lives,
looks for jobs, and has Procrastinate's workers, one for each phone, claim and end them. No phone is
attached: only the farm is measured. Told are the server's and this process's processor time for a
host's look when nothing happens, how long a submission to all phones takes, how many jobs a second
are begun and ended while all hosts work at once, what idle workers cost, and what status and
metrics cost with years of ended jobs behind them.

    python benchmarks/farm_scale.py [--hosts 50] [--phones 20] [--ended 200000] [--idle 30]
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
from functools import partial
from pathlib import Path

import psycopg
from private_postgresql import private_server

from orchestrator.extensions.farm.job_table import Submission
from orchestrator.extensions.farm.queue import Announced, FarmQueue
from orchestrator.extensions.farm.worker import PhoneWorkers


def hash_of(number: int, length: int) -> str:
    """Return so many digits that look random, the same ones each time."""
    return hashlib.sha256(b"%d" % number).hexdigest()[:length]


#: As long as a real phone's facts are as a document, about, and as hard to compress.
FACTS = json.dumps(
    {f"ro.vendor.{hash_of(number, 12)}": hash_of(number, 24) for number in range(160)}
)


@contextmanager
def spent(what: str, count: int) -> Iterator[None]:
    """Print the wall time and the processor time of this process and of the servers for what is
    done meanwhile."""
    before, own, start = servers_s(), time.process_time(), time.perf_counter()
    yield
    wall, own, servers = (
        time.perf_counter() - start,
        time.process_time() - own,
        servers_s() - before,
    )
    print(
        f"{what:44s} {wall:7.2f} s wall; each of {count}: {1e3 * wall / count:7.2f} ms wall,"
        f" {1e3 * own / count:6.2f} ms here, {1e3 * servers / count:6.2f} ms at the server",
        flush=True,
    )


def servers_s() -> float:
    """Return the processor time of all PostgreSQL processes, ended ones included where their parent
    has taken it."""
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


def measure(url: str, *, hosts: int, phones: int, ended: int, idle_s: float) -> None:
    """Measure on an empty database."""
    names = [f"host-{number:02d}" for number in range(hosts)]
    serials = {name: [f"{name}-{number:02d}" for number in range(phones)] for name in names}
    every = [serial for own in serials.values() for serial in own]

    with ExitStack() as stack:
        queues = {name: stack.enter_context(FarmQueue(url, connections=2)) for name in names}
        known = {
            name: {serial: Announced(facts=FACTS) for serial in own}
            for name, own in serials.items()
        }

        def beat(name: str) -> None:
            queues[name].heartbeat(name, benchfarm_version="1", note="")

        together([partial(beat, name) for name in names])
        with spent("the first look of every host", hosts):
            together([partial(queues[name].announce, name, known[name]) for name in names])
        fill(url, every, ended)

        def look(name: str) -> None:
            beat(name)
            queues[name].announce(name, known[name])
            queues[name].may_begin(name)
            queues[name].due_and_stopped(serials[name], ())

        with spent("a look when nothing happens", 10 * hosts):
            for _ in range(10):
                together([partial(look, name) for name in names])
        first = queues[names[0]]
        with spent(f"a submission to {len(every)} phones", len(every)):
            submission = Submission(
                submission="all", document="{}", plan_name="night", files=[], priority=0
            )
            first.submit(submission, dict.fromkeys(every, FACTS))
        done: list[int] = []

        def do(host: str, serial: str) -> None:
            while (job := queues[host].claim(serial, host)) is not None:
                if queues[host].end(job, "done", "") is not None:
                    done.append(job.job_id)

        workers = {name: PhoneWorkers(url, partial(do, name), poll_s=2.0) for name in names}

        def work(name: str) -> None:
            workers[name].open()
            due, _ = queues[name].due_and_stopped(serials[name], ())
            workers[name].serve(serials[name], due=due)

        with spent("put into the queue, begun and ended", len(every)):
            together([partial(work, name) for name in names])
            while len(done) < len(every):
                time.sleep(0.05)
        assert len(done) == len(set(done)) == len(every), f"{len(done)} of {len(every)}"
        with spent(f"{len(every)} idle workers, a second", round(idle_s)):
            time.sleep(idle_s)
        held = first.rows(
            "SELECT count(*) AS held FROM pg_stat_activity WHERE datname = current_database()"
        )[0]["held"]
        print(f"connections that {hosts} hosts hold now, without their stores': {held}", flush=True)
        with spent(f"farm status with {ended} ended jobs", 5):
            for _ in range(5):
                first.jobs(), first.phones(), first.hosts()
        for name in names:
            for serial in serials[name]:
                workers[name].stop(serial)
        while any(item.alive() for item in workers.values()):
            time.sleep(0.05)
        together([item.close for item in workers.values()])


def fill(url: str, serials: list[str], count: int) -> None:
    """Put ended jobs into the farm, as years of nights leave them where nobody cleans."""
    with psycopg.connect(url, options="-c search_path=benchfarm_queue") as connection:
        connection.execute(
            "INSERT INTO farm_submissions (submission, document, plan_name, files, priority)"
            " SELECT 'old-' || n, '{}', 'night', '{}', 0 FROM generate_series(0, %s) n",
            (count // len(serials),),
        )
        connection.execute(
            "INSERT INTO farm_jobs (submission, serial, campaign_id, status, facts)"
            " SELECT 'old-' || n / %s, (%s::text[])[1 + n %% %s], 'c' || n, 'done', '{}'"
            " FROM generate_series(0, %s) n",
            (len(serials), serials, len(serials), count - 1),
        )
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ANALYZE")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hosts", type=int, default=50)
    parser.add_argument("--phones", type=int, default=20, help="of each host")
    parser.add_argument(
        "--ended", type=int, default=200_000, help="jobs that lie there from before"
    )
    parser.add_argument("--idle", type=float, default=30.0, help="seconds in which nothing happens")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, private_server(Path(folder)) as url:
        measure(
            url,
            hosts=options.hosts,
            phones=options.phones,
            ended=options.ended,
            idle_s=options.idle,
        )


if __name__ == "__main__":
    main()
