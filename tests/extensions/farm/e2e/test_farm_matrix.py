"""What may happen to a farm of many hosts, at every phase of a job: nothing lost, doubled, mixed up
or left changed.

``make fault-matrix`` runs it after that of one host and prints a table. Without FAULT_MATRIX=all it
is skipped: what can be seen in the database is tried by the test_farm_*.py beside it, the most
usual of the rest by test_farm_hosts.py.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import procrastinate
import psycopg
import pytest

from orchestrator.store.opening import open_store
from tests.conftest import c_compiler
from tests.samples.farm_hosts import (
    Counts,
    Database,
    FarmOfHosts,
    Host,
    changes,
    stored,
)

pytestmark = [
    pytest.mark.skipif(
        os.environ.get("FAULT_MATRIX") != "all",
        reason="FAULT_MATRIX=all gives every fault at every phase",
    ),
]
PHASES = ("claimed", "running", "storing", "finishing")
#: What became of each submission.
TABLE: dict[str, Counts] = {}
#: Cases x invocations of a cell's plan.
RESULTS = 6
#: Shifts the clock that hosts see by as many seconds as a file says.
CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
static long shift(void) {
    long seconds = 0;
    FILE *file = fopen(getenv("CLOCK_SHIFT"), "r");
    if (file) { if (fscanf(file, "%ld", &seconds) != 1) seconds = 0; fclose(file); }
    return seconds;
}
int clock_gettime(clockid_t id, struct timespec *at) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int ended = real(id, at);
    if (id == CLOCK_REALTIME) at->tv_sec += shift();
    return ended;
}
time_t time(time_t *out) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    if (out) *out = at.tv_sec;
    return at.tv_sec;
}
int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    struct timespec at;
    clock_gettime(CLOCK_REALTIME, &at);
    out->tv_sec = at.tv_sec;
    out->tv_usec = at.tv_nsec / 1000;
    return 0;
}
"""


@pytest.fixture(scope="module")
def both(two_hosts: FarmOfHosts) -> Iterator[FarmOfHosts]:
    yield two_hosts
    print(f"\n{'fault at phase':<56} {' '.join(Counts.__slots__)}")
    for name, counts in TABLE.items():
        print(
            f"{name:<56} {' '.join(str(getattr(counts, key)).rjust(len(key)) for key in Counts.__slots__)}"
        )
    print(f"{len(TABLE)} submissions, {RESULTS} results each")


@pytest.fixture
def farm(both: FarmOfHosts) -> Iterator[FarmOfHosts]:
    """The farm with no worker; afterwards each host has its own phones again."""
    yield both
    for host in both.hosts:
        host.rest()
        host.adb_server = ""


class Cell:
    """One fault at one phase: a job on the first host's phone, and what became of it."""

    def __init__(self, farm: FarmOfHosts, name: str, folder: Path, model: Path) -> None:
        self.farm, self.name = farm, name
        self._before = {host.serial: changes(host) for host in farm.hosts}
        self.plan = folder / "plan.yaml"
        copied = folder / f"{name}.tflite"
        # Another content: it has to be brought and pushed.
        copied.write_bytes(model.read_bytes() + name.encode())
        self.plan.write_text(
            f"models: ['{copied}']\nmatrix: {{delegates: [xnnpack], threads: [1, 2]}}\n"
            f"devices: {{serials: ['{farm.one.serial}']}}\nsettings: {{min_secs: 20, warmup_min_secs: 0.1}}\n"
            f"invocations: {RESULTS // 2}\ntimeout: 20\nreference_check: false\n"
        )

    def submit(self, name: str = "") -> None:
        self.farm.one("farm", "submit", self.plan, "--name", name or self.name)

    @property
    def job(self) -> dict[str, Any]:
        (job,) = self.farm.jobs(self.name)
        return job

    @contextmanager
    def at(self, phase: str) -> Iterator[None]:
        """Wait until the job is in a phase, and keep it there where it would be over at once."""
        farm, campaign = self.farm, self.job["campaign_id"]
        if phase == "claimed":
            farm.until_status(self.name, "runs")
            yield
        elif phase == "running":
            farm.until_stored(campaign, 2)
            yield
        elif phase == "restoring":
            # All is stored, and the phone isn't restored yet: a matter of tenths of a second.
            farm.until(lambda: len(stored(farm.one.url, campaign)) == RESULTS, every_s=0.005)
            yield
        elif phase == "storing":
            farm.until_stored(campaign, 1)
            with farm.database.held("LOCK TABLE runs IN SHARE MODE") as waits:
                farm.until(waits)
                yield
        else:
            farm.until_stored(campaign, 1)
            row = f"SELECT 1 FROM benchfarm_queue.farm_jobs WHERE job_id = {self.job['job_id']} FOR UPDATE"
            with farm.database.held(row) as waits:
                farm.until(waits)
                yield

    def check(self, *names: str) -> None:
        """Wait for the end, and count."""
        for name in names or (self.name,):
            self.farm.until_ended(name)
        for name in names or (self.name,):
            counts = self.farm.counts(name, RESULTS, self._before)
            TABLE[name] = counts
            told = [
                *(host.log() for host in self.farm.hosts),
                str(self.farm.jobs(name)),
                str(self._before),
            ]
            assert counts == Counts(), "\n".join([*told, *map(changes, self.farm.hosts)])


@pytest.fixture
def cell(farm: FarmOfHosts, tmp_path: Path, model: Path, request: pytest.FixtureRequest) -> Cell:
    words = request.node.name.removeprefix("test_").replace("[", "-").removesuffix("]").split("-")
    # A test that is tried once more is another submission.
    return Cell(farm, f"{'-'.join(words)[:60]}-{secrets.token_hex(2)}", tmp_path, model)


def reaches_the_others_phone(farm: FarmOfHosts) -> Host:
    farm.two.adb_server = farm.one.virtual_server()
    return farm.two


@pytest.mark.parametrize("by_another", [False, True])
@pytest.mark.parametrize("phase", [*PHASES, "restoring"])
def test_killed_and_resumed(cell: Cell, phase: str, by_another: bool) -> None:
    cell.farm.until_announced(cell.farm.one)
    cell.submit()
    with cell.at(phase):
        cell.farm.one.kill()
    _ = (reaches_the_others_phone(cell.farm) if by_another else cell.farm.one).worker
    cell.check()
    assert cell.job["tries"] <= 10


@pytest.mark.parametrize("phase", PHASES)
def test_database_restarted(cell: Cell, phase: str) -> None:
    cell.farm.until_announced(cell.farm.one)
    cell.submit()
    with cell.at(phase):
        cell.farm.database.restart("immediate")
    cell.check()
    if phase == "finishing":
        job = cell.job["job_id"]
        assert f"job {job}: its end can't be stored: " in cell.farm.one.log()


@pytest.mark.parametrize("phase", ["claimed", "running"])
def test_asleep_and_back(cell: Cell, phase: str) -> None:
    """A host sleeps, another one takes its job, then it wakes up and believes that the job is its
    own."""
    one, two = cell.farm.one, reaches_the_others_phone(cell.farm)
    cell.farm.until_announced(one)
    cell.submit()
    with cell.at(phase):
        one.worker.send_signal(signal.SIGSTOP)
    _ = two.worker
    cell.farm.until(lambda: cell.job["deaths"] == 1)
    one.worker.send_signal(signal.SIGCONT)
    cell.check()


@pytest.mark.parametrize("phase", ["running", "done"])
def test_delivered_twice(cell: Cell, phase: str) -> None:
    cell.farm.until_announced(cell.farm.one)
    cell.submit()
    if phase == "done":
        cell.farm.until_ended(cell.name)
    else:
        cell.farm.until_stored(cell.job["campaign_id"], 2)
    again = procrastinate.App(connector=procrastinate.SyncPsycopgConnector()).open(
        cell.farm.queue._pool
    )
    serial = cell.farm.one.serial
    again.configure_task("benchfarm.wake", queue=f"wake-{serial}").defer(serial=serial)
    again.close()
    cell.check()


def test_two_hosts_want_one_phone(cell: Cell) -> None:
    one, two = cell.farm.one, reaches_the_others_phone(cell.farm)
    _ = one.worker, two.worker

    def knowing() -> set[str]:
        rows = cell.farm.queue.phones()
        return {row["host"] for row in rows if row["serial"] == one.serial and row["facts"]}

    cell.farm.until(lambda: knowing() == {"one", "two"})
    names = [cell.name, f"{cell.name}-more"]
    for name in names:
        cell.submit(name)
    cell.check(*names)


@pytest.mark.parametrize("phase", ["claimed", "running"])
def test_disk_full(cell: Cell, phase: str) -> None:
    """No file may grow over some bytes: copies of files, journals and leases can't be written."""
    one = cell.farm.one
    cell.farm.until_announced(one)
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)

    def limit(size_bytes: int) -> None:
        resource.prlimit(
            one.worker.pid, resource.RLIMIT_FSIZE, (size_bytes, resource.RLIM_INFINITY)
        )

    if phase == "claimed":
        limit(100_000)
        cell.submit()
    else:
        cell.submit()
        cell.farm.until_stored(cell.job["campaign_id"], 1)
        limit(1)
    try:
        if phase == "claimed":
            cell.farm.until(lambda: cell.job["tries"] >= 1)
            assert "File too large" in cell.job["note"]
        else:
            cell.farm.until(lambda: cell.job["tries"] >= 1 or cell.job["status"] == "done")
    finally:
        resource.prlimit(one.worker.pid, resource.RLIMIT_FSIZE, unlimited)
    cell.check()


@contextmanager
def on_a_small_disk(database: Database) -> Iterator[Path]:
    """Move the database's tables to a disk of 24 MB; skips the test where none can be mounted."""
    disk = Path(tempfile.mkdtemp(prefix="benchfarm-disk-"))
    try:
        if subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", disk], capture_output=True
        ).returncode:
            pytest.skip("no small disk can be mounted here")
        try:
            tables = disk / "tables"
            tables.mkdir()
            if database.server.user is not None:
                shutil.chown(disk, database.server.user)
                shutil.chown(tables, database.server.user)
            # All of them are there then.
            open_store(database.url).close()
            with psycopg.connect(database.url, autocommit=True) as connection:
                connection.execute(f"CREATE TABLESPACE small LOCATION '{tables}'".encode())
                connection.execute(b"ALTER TABLE ALL IN TABLESPACE pg_default SET TABLESPACE small")
            try:
                yield disk
            finally:
                (disk / "filler").unlink(missing_ok=True)
                with psycopg.connect(database.url, autocommit=True) as connection:
                    connection.execute(
                        b"ALTER TABLE ALL IN TABLESPACE small SET TABLESPACE pg_default"
                    )
                    connection.execute(b"DROP TABLESPACE small")
        finally:
            subprocess.run(["umount", disk], check=True)
    finally:
        disk.rmdir()


@pytest.mark.parametrize("phase", ["claimed", "running"])
def test_disk_of_the_database_full(cell: Cell, phase: str) -> None:
    one = cell.farm.one
    told = len(one.log())
    with on_a_small_disk(cell.farm.database) as disk:
        cell.farm.until_announced(one)
        cell.submit()
        with (
            cell.at(phase),
            contextlib.suppress(OSError),
            (disk / "filler").open("wb", buffering=0) as filler,
        ):
            while True:
                filler.write(bytes(4096))
        # What is left to be stored may fit into pages that are there.
        full = re.compile("No space left on device|disk is full")
        cell.farm.until(
            lambda: full.search(one.log(), told) is not None or cell.job["status"] == "done"
        )
        (disk / "filler").unlink()
        cell.check()
        assert cell.job["tries"] == 0
        one.rest()


@pytest.mark.parametrize("jump_s", [-86400, 86400])
def test_clock_jump(cell: Cell, jump_s: int, tmp_path: Path) -> None:
    source, library, shift = tmp_path / "clock.c", tmp_path / "clock.so", tmp_path / "shift"
    source.write_text(CLOCK)
    subprocess.run(
        [c_compiler(), "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True
    )
    shift.write_text("0")
    cell.farm.one.work(LD_PRELOAD=str(library), CLOCK_SHIFT=str(shift))
    cell.farm.until_announced(cell.farm.one)
    cell.submit()
    with cell.at("running"):
        shift.write_text(str(jump_s))
    cell.check()
    assert cell.job["deaths"] == 0
    with contextlib.closing(open_store(cell.farm.one.url)) as store:
        begun = [run.started_at for run in store.runs(campaign_ids=[cell.job["campaign_id"]])]
    assert (max(begun) - min(begun)).total_seconds() > 80_000, "the host saw no jump"


@pytest.mark.parametrize("phase", ["uploading", "queueing"])
def test_submitter_killed(cell: Cell, phase: str) -> None:
    one = cell.farm.one
    cell.farm.until_announced(one)
    one("farm", "pause")
    table = "farm_file_parts" if phase == "uploading" else "farm_submissions"
    with cell.farm.database.held(f"LOCK TABLE benchfarm_queue.{table} IN SHARE MODE") as waits:
        words = ("farm", "submit", cell.plan, "--name", cell.name)
        submitter = one.cli.process(words, one.environ(), stderr=subprocess.DEVNULL)
        cell.farm.until(waits)
        submitter.kill()
        submitter.wait(30)
    assert cell.farm.jobs(cell.name) == []
    cell.submit()
    one("farm", "pause", "--undo")
    cell.check()
