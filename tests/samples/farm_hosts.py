"""Hosts of a farm as processes: homes, labs and adb servers of their own, one PostgreSQL server
that can be stopped."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import psycopg

from orchestrator.devices.adb_server import parse_address
from orchestrator.errors import StoreError
from orchestrator.extensions.farm.queue import FarmQueue
from orchestrator.store.opening import open_store
from tests.samples.postgresql import Cluster, private_cluster

if TYPE_CHECKING:
    from tests.samples.command import Cli

#: A dead host's jobs are taken by others after so long.
DEAD_AFTER_S = 4
PATIENCE_S = 120
OVER = ("done", "failed", "cancelled")


@dataclass
class Database:
    """The database of a farm, on a server of these tests' own."""

    server: Cluster

    @property
    def url(self) -> str:
        return self.server.url()

    def restart(self, mode: str) -> None:
        self.server.stop(mode)
        self.server.start()

    @contextmanager
    def held(self, *statements: str) -> Iterator[Callable[[], bool]]:
        """Hold locks until the context ends, or the server does; give whether somebody waits for
        one.
        """
        holder = psycopg.connect(self.url)
        try:
            for statement in statements:
                holder.execute(statement.encode())

            def waits() -> bool:
                with psycopg.connect(self.url) as looker:
                    found = looker.execute(
                        "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
                    ).fetchone()
                return found is not None

            yield waits
        finally:
            holder.close()


@contextmanager
def private_database() -> Iterator[Database]:
    """Start a server that is killed now and then; skips the test when PostgreSQL isn't installed."""
    with private_cluster(is_durable=True) as server:
        yield Database(server)


@dataclass
class Host:
    """One computer of the farm: a home, a lab behind an adb server of its own, a worker."""

    name: str
    cli: Cli
    url: str
    serial: str
    #: Of another computer's adb server.
    adb_server: str = ""
    workers: list[subprocess.Popen[str]] = field(default_factory=list)

    def environ(self, **more: str) -> dict[str, str]:
        return {
            "BENCHFARM_STORE": self.url,
            "BENCHFARM_ADB_SERVER": self.adb_server,
            **more,
        }

    def __call__(self, *words: object) -> Any:
        return self.cli.json(*words, **self.environ())

    def text(self, *words: object) -> str:
        """Return what a command says to people."""
        return str(self.cli(*words, **self.environ()).stdout)

    def work(self, **environ: str) -> subprocess.Popen[str]:
        log = (self.cli.home.parent / f"{self.name}.log").open("a")
        words = (
            "farm",
            "worker",
            "--name",
            self.name,
            "--dead-after",
            str(DEAD_AFTER_S),
            "--every",
            "0.3",
        )
        process = self.cli.process(words, self.environ(**environ), stdout=log, stderr=log)
        log.close()
        self.workers.append(process)
        return process

    @property
    def worker(self) -> subprocess.Popen[str]:
        """The worker that runs, started when there is none."""
        running = [worker for worker in self.workers if worker.poll() is None]
        return running[-1] if running else self.work()

    def kill(self) -> None:
        """Kill the worker as a power cut does."""
        for worker in self.workers:
            if worker.poll() is None:
                worker.kill()
                worker.wait(30)

    def rest(self) -> None:
        """Stop the worker as people do."""
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                worker.send_signal(signal.SIGINT)
        for worker in self.workers:
            worker.wait(60)

    def log(self) -> str:
        path = self.cli.home.parent / f"{self.name}.log"
        return path.read_text() if path.is_file() else ""

    @cached_property
    def _adb(self) -> tuple[str, str, str]:
        """The adb program, the address of the server of this host's phones, and its name for the
        phone."""
        status = self("adb", "status")
        server = str(
            next(item["address"] for item in status["servers"] if item["for"] == "virtual phones")
        )
        phones = {item["serial"]: item["address"] for item in self("virtual", "list")["phones"]}
        return str(status["binary"]), server, phones[self.serial]

    def virtual_server(self) -> str:
        """The address of the adb server of this host's phones."""
        return self._adb[1]

    def shell(self, command: str) -> str:
        """Ask this host's phone itself, by the plain adb command."""
        program, server, address = self._adb
        asked = subprocess.run(
            [program, "-L", parse_address(server).spec, "-s", address, "shell", command], capture_output=True,
            text=True, timeout=60, check=False, env={**os.environ, "HOME": str(self.cli.home)},
        )  # fmt: skip
        return asked.stdout.strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """What became of a submission's results and of its phones; all of them are to be 0."""

    lost: int = 0
    duplicated: int = 0
    attributed_wrongly: int = 0
    not_restored: int = 0
    not_finished: int = 0

    def __str__(self) -> str:
        return " ".join(f"{name}={getattr(self, name)}" for name in self.__slots__)


@dataclass
class FarmOfHosts:
    """Two hosts, their phones, and the database between them."""

    one: Host
    two: Host
    database: Database
    queue: FarmQueue

    @property
    def hosts(self) -> tuple[Host, Host]:
        return self.one, self.two

    def jobs(self, submission: str) -> list[dict[str, Any]]:
        return self.queue.jobs(submission)

    def until(self, what: Callable[[], bool], *, every_s: float = 0.1) -> None:
        """Wait for something, looking less often as time goes, at least each fifth time; both hosts'
        logs are shown when it doesn't come.
        """
        begun_s = time.monotonic()
        while True:
            with contextlib.suppress(StoreError, psycopg.Error):
                if what():
                    return
            waited_s = time.monotonic() - begun_s
            assert waited_s < PATIENCE_S, "\n".join(
                [*(host.log() for host in self.hosts), *(json.dumps(job) for job in self.jobs(""))]
            )
            time.sleep(max(every_s, min(5 * every_s, waited_s / 20)))

    def tidy(self) -> None:
        """Leave no job or hold, and every host with its own phones."""
        if any(job["status"] not in OVER for job in self.jobs("")):
            for host in self.hosts:
                host.rest()
        for job in self.jobs(""):
            if job["status"] not in OVER:
                self.queue.cancel(job["submission"])
        for scope in self.queue.pauses():
            self.queue.resume(scope)
        for host in self.hosts:
            if host.adb_server:
                host.rest()
                host.adb_server = ""

    def until_announced(self, *hosts: Host) -> None:
        for host in hosts:
            _ = host.worker
        wanted = {(host.name, host.serial) for host in hosts}
        self.until(
            lambda: (
                wanted
                <= {(row["host"], row["serial"]) for row in self.queue.phones() if row["facts"]}
            )
        )

    def until_ended(self, submission: str) -> list[dict[str, Any]]:
        self.until(lambda: all(job["status"] in OVER for job in self.jobs(submission)))
        return self.jobs(submission)

    def until_status(self, submission: str, status: str) -> None:
        self.until(
            lambda: any(job["status"] == status for job in self.jobs(submission)), every_s=0.01
        )

    def until_stored(self, campaign_id: str, least: int) -> None:
        self.until(lambda: len(stored(self.one.url, campaign_id)) >= least, every_s=0.02)

    def counts(self, submission: str, invocations: int, before: dict[str, str]) -> Counts:
        """Count what went wrong with a submission, of which each job has so many invocations."""
        jobs = self.jobs(submission)
        results = {job["serial"]: stored(self.one.url, job["campaign_id"]) for job in jobs}
        with contextlib.closing(open_store(self.one.url)) as store:
            campaigns = [store.campaign(job["campaign_id"]) for job in jobs]
        return Counts(
            lost=sum(max(0, invocations - len(found)) for found in results.values()),
            duplicated=sum(sum(found.values()) - len(found) for found in results.values()),
            attributed_wrongly=sum(
                key[0] != serial for serial, found in results.items() for key in found
            ),
            not_restored=sum(
                changes(host) != before[host.serial]
                for host in self.hosts
                if host.serial in results
            ),
            not_finished=sum(
                campaign is None or campaign.status != "finished" or job["status"] != "done"
                for campaign, job in zip(campaigns, jobs, strict=True)
            ),
        )

    def expect_no_loss(self, submission: str, invocations: int, before: dict[str, str]) -> None:
        """Expect that nothing went wrong with a submission, of which each job has so many
        invocations."""
        found = self.counts(submission, invocations, before)
        now = {host.serial: changes(host) for host in self.hosts}
        assert found == Counts(), "\n".join(
            (str(found), f"before: {before}", f"now: {now}", *(host.log() for host in self.hosts))
        )


def changes(host: Host) -> str:
    """Return what preparation changes on a phone, and what it would leave behind."""
    return host.shell(
        "settings get global stay_on_while_plugged_in; settings get global window_animation_scale;"
        " ls /data/local/tmp/benchfarm/undo 2>/dev/null; ls /data/local/tmp/benchfarm/runs 2>/dev/null"
    )


def stored(url: str, campaign_id: str) -> Counter[tuple[str, str, str, int]]:
    """Return how often each invocation of a campaign is stored: serial, case, pass, number; not the
    reference's.
    """
    with contextlib.closing(open_store(url)) as store:
        return Counter(
            (str(run.case.serial), str(run.case.case_key), str(run.run_pass), run.invocation)
            for run in store.runs(campaign_ids=[campaign_id])  # type: ignore[list-item]
            if run.run_pass != "reference"
        )


@contextmanager
def running_farm(
    database: Database, homes: Sequence[tuple[str, Cli]], *, speed: int = 40
) -> Iterator[FarmOfHosts]:
    """Start a lab for each of two hosts; no worker runs yet."""
    try:
        hosts = []
        for (name, cli), profile in zip(homes, ("pixel-3", "pixel-4"), strict=True):
            up = cli.json("virtual up", profile, "--speed", speed)
            hosts.append(
                Host(name=name, cli=cli, url=database.url, serial=up["phones"][0]["serial"])
            )
        with FarmQueue(database.url) as queue:
            farm = FarmOfHosts(one=hosts[0], two=hosts[1], database=database, queue=queue)
            try:
                yield farm
            finally:
                for host in hosts:
                    host.rest()
    finally:
        for _, cli in homes:
            cli("virtual down")
