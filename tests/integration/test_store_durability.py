"""What is stored stays stored: processes killed, disks full, locks held."""

from __future__ import annotations

import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest
from sqlalchemy import event
from sqlalchemy.pool import Pool

from orchestrator.errors import HostStorageError, StoreBusyError, StoreError
from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.case import CampaignId
from orchestrator.records.run import Attachment
from orchestrator.store.opening import copy_to, open_store
from tests.samples.command import Cli
from tests.samples.places import BENCHFARM, REPO

APPEND_UNTIL_A_STATEMENT = """
import os, pickle, signal, sys
from sqlalchemy import Connection, Engine, event
from orchestrator.store.opening import open_store

path, fatal = sys.argv[1:]
store = open_store(path)
run = pickle.load(sys.stdin.buffer)

@event.listens_for(Engine, "after_cursor_execute")
def after_statement(connection, cursor, statement, *_):
    if statement.startswith(fatal):
        os.kill(os.getpid(), signal.SIGKILL)

@event.listens_for(Engine, "commit")
def before_commit(connection):
    if fatal == "COMMIT":
        os.kill(os.getpid(), signal.SIGKILL)

store.append_run(run)
if fatal == "return":
    os.kill(os.getpid(), signal.SIGKILL)
"""


def child(code: str, *arguments: str, before: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*before, sys.executable, "-c", code, *arguments],
        env={**os.environ, "PYTHONPATH": str(REPO)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.fixture
def path(tmp_path: Path, samples) -> Path:
    """A closed store with a campaign and one run."""
    path = tmp_path / "runs.sqlite"
    store = open_store(path)
    samples.begin(store)
    store.append_run(samples.run(0))
    store.close()
    return path


def check_whole(path: Path) -> None:
    """Check with SQLite itself that a store is sound and no row refers to one that isn't there."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


@pytest.mark.parametrize("fatal", ["INSERT INTO attachments", "COMMIT", "return"])
def test_a_store_is_whole_when_its_process_is_killed_while_it_appends(
    path: Path, samples, fatal: str
) -> None:
    run = samples.run(1, case=samples.case(threads=7))

    process = child(APPEND_UNTIL_A_STATEMENT, str(path), fatal)
    _, said = process.communicate(pickle.dumps(run), timeout=120)

    assert process.returncode == -signal.SIGKILL, said.decode()
    check_whole(path)
    store = open_store(path)
    was_returned = fatal == "return"
    assert list(store.runs(with_attachments=True)) == [
        samples.run(0),
        *([run] if was_returned else []),
    ]
    assert store.append_run(run) is not was_returned
    assert list(store.runs(with_attachments=True)) == [samples.run(0), run]
    store.close()


@pytest.mark.parametrize("place", ["missing/copy.sqlite", "file/copy.sqlite"])
def test_a_copy_that_cannot_be_made_blames_the_place_of_the_copy(
    path: Path, tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError) as told:
        copy_to(path, tmp_path / place)
    assert str(told.value).startswith(f"{tmp_path / place}: the copy of {path} can't be written: ")


def test_a_store_of_a_url_is_one_file_whoever_asks(tmp_path: Path, samples) -> None:
    """A URL's escapes are read once, so that the copy is one of what was opened."""
    meant, other = tmp_path / "my store.sqlite", tmp_path / "my%20store.sqlite"
    for path, name in ((meant, "meant"), (other, "other")):
        with closing(open_store(path)) as store:
            samples.begin(store, samples.campaign(name))
    cli = Cli(home=tmp_path / "home")
    url = f"sqlite:///{tmp_path}/my%20store.sqlite"
    listed = cli.json("results list", BENCHFARM_STORE=url)
    copied = cli.json("store backup", tmp_path / "copy.sqlite", BENCHFARM_STORE=url)
    with closing(open_store(tmp_path / "copy.sqlite")) as store:
        assert [item.campaign_id for item in store.campaigns()] == [
            item["campaign_id"] for item in listed
        ]
    opened = Path(copied["store"])
    assert {meant.name: "meant", other.name: "other"}[opened.name] == listed[0]["campaign_id"]
    assert str(opened) in cli("doctor", BENCHFARM_STORE=url).said


def test_a_file_for_which_there_is_no_space_is_told_and_leaves_nothing(
    path: Path, tmp_path: Path, samples
) -> None:
    with closing(open_store(path)) as store:
        store.append_run(
            samples.run(1, attachments=(Attachment(name="stdout", data=os.urandom(9000)),))
        )
    commands = (
        "store backup full/copy.sqlite",
        "export newest -o full/a.zip",
        "export newest -o full/a.json",
    )
    script = ["mkdir full", "mount -t tmpfs -o size=4k tmpfs full || exit 9", "mkdir full/folder"]
    script += [f"{BENCHFARM} {command}; echo $?" for command in commands]
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", "\n".join([*script, "ls -A full"])], cwd=tmp_path,
        env={**os.environ, "BENCHFARM_HOME": str(tmp_path / "home"), "BENCHFARM_STORE": str(path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode == 9:
        pytest.skip("no small disk can be mounted here")
    assert done.stdout.split() == ["5", "5", "5", "folder"], done.stderr
    assert done.stderr.count("no space left") == 3
    check_whole(path)


@pytest.fixture
def limit_size() -> Iterator[Callable[[int], None]]:
    """Lets SQLite fail as on a full disk when a database would outgrow a number of pages."""
    listeners = []

    def limit(pages: int) -> None:
        def on_connect(connection: sqlite3.Connection, _record: object) -> None:
            connection.execute(f"PRAGMA max_page_count = {pages}")

        event.listen(Pool, "connect", on_connect)
        listeners.append(on_connect)

    yield limit
    for listener in listeners:
        event.remove(Pool, "connect", listener)


def test_a_run_for_which_there_is_no_space_leaves_no_part_of_itself(
    path: Path, samples, limit_size
) -> None:
    limit_size(path.stat().st_size // 8_192 + 4)
    store = open_store(path)
    large = samples.run(1, attachments=(Attachment(name="logcat", data=os.urandom(2_000_000)),))

    with pytest.raises(HostStorageError, match="kept"):
        store.append_run(large)

    assert list(store.runs(with_attachments=True)) == [samples.run(0)]
    assert store.append_run(samples.run(1))
    store.close()
    check_whole(path)


def lock_it(where: str) -> AbstractContextManager[object]:
    """Hold a store's write lock, as another process does."""
    if "://" not in where:
        other = sqlite3.connect(where, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        return closing(other)
    import psycopg

    server = psycopg.connect(where)
    server.execute("SELECT pg_advisory_xact_lock(x'62666172'::int)")
    return server


def test_all_that_wait_for_a_locked_store_wait_at_the_same_time(
    unused_database: str, samples
) -> None:
    store = open_store(unused_database, busy_timeout_s=1.0)
    samples.begin(store)
    together = threading.Barrier(16)

    def write(number: int) -> object:
        together.wait()
        if number % 4 == 0:
            return store.set_status(CampaignId("night-1"), CampaignStatus.RUNNING, None)
        return store.append_run(samples.run(number))

    begun_s = time.monotonic()
    with lock_it(unused_database), ThreadPoolExecutor(16) as pool:
        failures = [
            future.exception() for future in [pool.submit(write, number) for number in range(16)]
        ]

    assert [type(failure) for failure in failures] == [StoreBusyError] * 16
    assert all("kept the store locked for too long" in str(failure) for failure in failures)
    # One after the other they had waited for sixteen seconds.
    assert time.monotonic() - begun_s < 8
    assert list(store.runs()) == []
    assert store.append_run(samples.run(0))
    store.close()


def test_a_server_whose_lock_is_held_for_too_long_is_told(
    postgresql, postgresql_template: str, samples
) -> None:
    import psycopg

    name = postgresql.create(postgresql_template)
    store = open_store(postgresql.url(name), busy_timeout_s=1.0)
    with psycopg.connect(postgresql.url(name)) as other:
        other.execute("LOCK TABLE campaigns")

        with pytest.raises(StoreError, match="locked"):
            samples.begin(store)

    samples.begin(store)
    store.close()


def test_a_store_on_a_server_survives_the_end_of_its_connections(
    postgresql, postgresql_template: str, samples, wait_until: Callable[..., None]
) -> None:
    import psycopg

    name = postgresql.create(postgresql_template)
    store = open_store(postgresql.url(name))
    samples.begin(store)
    with psycopg.connect(postgresql.url("postgres"), autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
        )
        left = "SELECT FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'"
        wait_until(lambda: not admin.execute(left, [name]).fetchall(), "they have ended", 60.0)

    assert store.append_run(samples.run(0))
    assert list(store.runs(with_attachments=True)) == [samples.run(0)]
    store.close()


_OPENED_ELSEWHERE = (
    "import sys; from orchestrator.store.opening import open_store; open_store(sys.argv[1]).close()"
)
_COUNTED_ELSEWHERE = (
    "import sqlite3, sys\n"
    "print(sqlite3.connect(sys.argv[1]).execute('SELECT count(*) FROM runs').fetchone()[0])"
)


def test_a_store_that_a_process_opens_twice_loses_nothing_once_another_process_closes_it(
    tmp_path: Path, samples
) -> None:
    path = tmp_path / "store.sqlite"
    elsewhere = [sys.executable, "-c", _OPENED_ELSEWHERE, str(path)]
    counting = [sys.executable, "-c", _COUNTED_ELSEWHERE, str(path)]
    with closing(open_store(path)) as first:
        samples.begin(first)
        open_store(path).close()
        # The last one to close a store deletes its log: this one isn't the last.
        subprocess.run(elsewhere, check=True, capture_output=True)
        first.append_run(samples.run(0))
        done = subprocess.run(counting, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "1"


@pytest.mark.parametrize("happens", ["deleted", "replaced"])
def test_a_store_whose_file_is_taken_away_takes_no_further_run(
    path: Path, tmp_path: Path, samples, happens: str
) -> None:
    copy_to(path, tmp_path / "copy.sqlite")
    with closing(open_store(path)) as store:
        path.unlink() if happens == "deleted" else (tmp_path / "copy.sqlite").replace(path)
        with pytest.raises(StoreError, match="was deleted or replaced while it was open"):
            store.append_run(samples.run(1))
