"""Several hosts of a farm: processes of their own, homes and adb servers of their own, one PostgreSQL server."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.store.opening import open_store

if TYPE_CHECKING:
    from tests.e2e.conftest import Cli

pytestmark = pytest.mark.xdist_group("farm_hosts")
#: A dead host's jobs are taken by others after so long.
DEAD_AFTER_S = 4
PATIENCE_S = 150


@dataclass
class Database:
    """A PostgreSQL server of this test's own, that can be started again."""

    programs: Path
    folder: Path
    user: str | None

    @property
    def url(self) -> str:
        return f"postgresql://benchfarm@/postgres?host={self.folder}"

    def run(self, program: str, *arguments: str) -> None:
        ended = subprocess.run(
            [str(self.programs / program), *arguments],
            user=self.user, group=self.user, extra_groups=None if self.user is None else [], cwd=self.folder,
            env={"PATH": os.defpath, "LC_ALL": "C", "TZ": "UTC"}, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stdout

    def start(self) -> None:
        settings = f"-c listen_addresses= -c unix_socket_directories={self.folder} -c shared_buffers=16MB"
        arguments = ("-D", str(self.folder / "data"), "-l", str(self.folder / "log"), "-w", "-t", "60", "-o", settings)
        self.run("pg_ctl", *arguments, "start")

    def stop(self, mode: str = "immediate") -> None:
        self.run("pg_ctl", "-D", str(self.folder / "data"), "-m", mode, "-w", "stop")


@pytest.fixture(scope="module")
def database() -> Iterator[Database]:
    found = shutil.which("pg_ctl")
    folders = [Path(found).resolve().parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    programs = next((folder for folder in folders if (folder / "initdb").exists()), None)
    if programs is None:
        reason = "PostgreSQL's initdb isn't installed; on Debian: apt-get install postgresql"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    users = {entry.pw_name for entry in pwd.getpwall()}
    user = ("postgres" if "postgres" in users else "nobody") if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="benchfarm-pg-"))
    if user is not None:
        shutil.chown(folder, user)
    made = Database(programs=programs, folder=folder, user=user)
    try:
        made.run("initdb", "-D", str(folder / "data"), "-U", "benchfarm", "-A", "trust", "-E", "UTF8", "--no-sync")
        made.start()
        try:
            yield made
        finally:
            made.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class Host:
    """One computer of the farm: a home, a lab behind an adb server of its own, a worker."""

    name: str
    cli: Cli
    url: str
    #: host:port of another computer's adb server.
    adb_server: str = ""
    workers: list[subprocess.Popen[str]] = field(default_factory=list)

    def environ(self) -> dict[str, str]:
        return {"BENCHFARM_STORE": self.url, "BENCHFARM_ADB_SERVER": self.adb_server}

    def __call__(self, *words: object) -> Any:
        return self.cli(*words, "--json", **self.environ()).ok().json

    def work(self) -> subprocess.Popen[str]:
        log = (self.cli.home.parent / f"{self.name}.log").open("a")
        words = ("farm", "worker", "--name", self.name, "--dead-after", str(DEAD_AFTER_S), "--every", "0.3")
        from tests.e2e.conftest import BENCHFARM

        process = subprocess.Popen(
            [str(BENCHFARM), *words], env=self.cli.environ(**self.environ()), stdout=log, stderr=log, text=True
        )
        self.workers.append(process)
        return process

    def log(self) -> str:
        return (self.cli.home.parent / f"{self.name}.log").read_text()


@dataclass
class FarmOfHosts:
    one: Host
    two: Host
    serials: tuple[str, str]

    def jobs(self, submission: str) -> list[dict[str, Any]]:
        done = self.one.cli("farm", "status", submission, "--json", **self.one.environ())
        jobs: list[dict[str, Any]] = done.json["jobs"]
        return jobs

    def until(self, what: Callable[[], bool]) -> None:
        """Wait for something; both hosts' logs are shown when it doesn't come."""
        deadline = time.monotonic() + PATIENCE_S
        while not what():
            assert time.monotonic() < deadline, "\n".join(
                host.log() for host in (self.one, self.two) if host.workers
            ) + json.dumps(self.one("farm", "status"), indent=1)
            time.sleep(0.3)

    def until_announced(self, host: Host, serial: str) -> None:
        def is_there() -> bool:
            phones = self.one("farm", "status")["phones"]
            return any(phone["host"] == host.name and phone["serial"] == serial for phone in phones)

        self.until(is_there)

    def until_ended(self, submission: str) -> list[dict[str, Any]]:
        self.until(lambda: all(job["status"] in {"done", "failed", "cancelled"} for job in self.jobs(submission)))
        return self.jobs(submission)

    def until_stored(self, campaign_id: str, least: int) -> None:
        self.until(lambda: len(stored(self.one.url, campaign_id)) >= least)


def stored(url: str, campaign_id: str) -> Counter[tuple[str, str, int]]:
    """Return how often each invocation of a campaign is stored."""
    with contextlib.closing(open_store(url)) as store:
        return Counter(
            (run.case.serial + run.case.case_key, str(run.run_pass), run.invocation)
            for run in store.runs(campaign_ids=[campaign_id])  # type: ignore[list-item]
        )


def check_exactly_once(url: str, job: dict[str, Any], invocations: int) -> None:
    counted = stored(url, job["campaign_id"])
    assert len(counted) == invocations, "results were lost"
    assert set(counted.values()) == {1}, "results were stored twice"
    with contextlib.closing(open_store(url)) as store:
        assert {run.case.serial for run in store.runs(campaign_ids=[job["campaign_id"]])} == {job["serial"]}
        campaign = store.campaign(job["campaign_id"])
        assert campaign is not None
        assert campaign.status == "finished"


@pytest.fixture(scope="module")
def labs(tmp_path_factory: pytest.TempPathFactory, make_cli: Callable[[Path], Cli]) -> Iterator[list[tuple[Cli, str]]]:
    clis = [make_cli(tmp_path_factory.mktemp(name) / "home") for name in ("one", "two")]
    try:
        ups = [
            cli("lab", "up", profile, "--speed", 40, "--json").ok().json
            for cli, profile in zip(clis, ("pixel-3", "pixel-4"), strict=True)
        ]
        yield [(cli, up["phones"][0]["serial"]) for cli, up in zip(clis, ups, strict=True)]
    finally:
        for cli in clis:
            cli("lab", "down")


@pytest.fixture
def farm(labs: list[tuple[Cli, str]], database: Database) -> Iterator[FarmOfHosts]:
    """Two hosts with a phone each; no worker runs yet."""
    hosts = [Host(name=name, cli=cli, url=database.url) for name, (cli, _) in zip(("one", "two"), labs, strict=True)]
    try:
        yield FarmOfHosts(one=hosts[0], two=hosts[1], serials=(labs[0][1], labs[1][1]))
    finally:
        for worker in [worker for host in hosts for worker in host.workers]:
            if worker.poll() is None:
                worker.send_signal(signal.SIGINT)
            worker.wait(60)


def test_hosts_share_a_plan_and_every_result_is_stored_once(farm: FarmOfHosts, plan_file: Callable[..., Path]) -> None:
    farm.one.work()
    farm.two.work()
    for host, serial in zip((farm.one, farm.two), farm.serials, strict=True):
        farm.until_announced(host, serial)
    sent = farm.one("farm", "submit", plan_file(farm.serials, invocations=2), "--name", "shared")
    assert [job["serial"] for job in sent["jobs"]] == sorted(farm.serials)
    jobs = farm.until_ended("shared")
    assert [job["status"] for job in jobs] == ["done", "done"], farm.one.log() + farm.two.log()
    assert {job["serial"]: job["host"] for job in jobs} == dict(zip(farm.serials, ("one", "two"), strict=True))
    for job in jobs:
        check_exactly_once(farm.one.url, job, 8)
    again = farm.one.cli("farm", "submit", plan_file(farm.serials), "--name", "shared", **farm.one.environ())
    assert again.exit_code == 2
    assert "in the queue already" in again.stderr


def test_a_killed_hosts_job_is_ended_by_another_host_that_reaches_the_phone(
    farm: FarmOfHosts, plan_file: Callable[..., Path]
) -> None:
    serial = farm.serials[0]
    worker = farm.one.work()
    farm.until_announced(farm.one, serial)
    farm.one("farm", "submit", plan_file((serial,), invocations=6, extra="timeout: 20\n"), "--name", "killed")
    (job,) = farm.jobs("killed")
    farm.until_stored(job["campaign_id"], 2)
    worker.kill()
    worker.wait(30)
    status = farm.one("adb", "status")
    farm.two.adb_server = next(item["address"] for item in status["servers"] if item["for"] == "virtual lab")
    farm.two.work()
    (ended,) = farm.until_ended("killed")
    assert (ended["status"], ended["host"]) == ("done", "two"), ended
    check_exactly_once(farm.one.url, ended, 24)


def test_a_killed_worker_started_again_goes_on_where_it_was(farm: FarmOfHosts, plan_file: Callable[..., Path]) -> None:
    serial = farm.serials[0]
    worker = farm.one.work()
    farm.until_announced(farm.one, serial)
    farm.one("farm", "submit", plan_file((serial,), invocations=4), "--name", "restarted")
    (job,) = farm.jobs("restarted")
    farm.until_stored(job["campaign_id"], 2)
    worker.kill()
    worker.wait(30)
    farm.one.work()
    (ended,) = farm.until_ended("restarted")
    assert ended["status"] == "done", ended
    check_exactly_once(farm.one.url, ended, 16)


def test_a_database_that_is_started_again_costs_no_result(
    farm: FarmOfHosts, plan_file: Callable[..., Path], database: Database
) -> None:
    serial = farm.serials[1]
    farm.two.work()
    farm.until_announced(farm.two, serial)
    farm.two("farm", "submit", plan_file((serial,), invocations=4), "--name", "database")
    (job,) = farm.jobs("database")
    farm.until_stored(job["campaign_id"], 2)
    database.stop("fast")
    database.start()
    (ended,) = farm.until_ended("database")
    assert ended["status"] == "done", ended
    check_exactly_once(farm.two.url, ended, 16)


def test_cancel_stops_what_runs_and_puts_the_phone_back(farm: FarmOfHosts, plan_file: Callable[..., Path]) -> None:
    serial = farm.serials[1]
    farm.two.work()
    farm.until_announced(farm.two, serial)
    farm.two("farm", "submit", plan_file((serial,), invocations=30), "--name", "unwanted")
    (job,) = farm.jobs("unwanted")
    farm.until_stored(job["campaign_id"], 1)
    farm.two("farm", "cancel", "unwanted")
    (ended,) = farm.until_ended("unwanted")
    assert ended["status"] == "cancelled", ended
    assert not list((farm.two.cli.home / "state" / "journals").glob("*.json*"))


def test_pause_keeps_jobs_waiting_and_drain_ends_the_worker(farm: FarmOfHosts, plan_file: Callable[..., Path]) -> None:
    serial = farm.serials[1]
    worker = farm.two.work()
    farm.until_announced(farm.two, serial)
    farm.two("farm", "pause", f"phone:{serial}")
    farm.two("farm", "submit", plan_file((serial,), invocations=1), "--name", "held", "--priority", "5")
    farm.two("farm", "drain", "host:two")
    assert worker.wait(60) == 0
    (job,) = farm.jobs("held")
    assert job["status"] == "waits"
    farm.two("farm", "go-on", f"phone:{serial}", "host:two")
    farm.two.work()
    (ended,) = farm.until_ended("held")
    assert ended["status"] == "done", ended
