"""Opening a store: what is found there or missed, what is said when it can't be used, how an old
one is migrated."""

from __future__ import annotations

import os
import random
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from orchestrator.app.workspace import Workspace
from orchestrator.errors import (
    HostStorageError,
    StoreCorruptError,
    StoreEncodingError,
    StoreError,
    StoreMissingError,
    UsageError,
)
from orchestrator.store.database import LIMITS, store_errors
from orchestrator.store.opening import open_store
from tests.samples.command import Cli
from tests.samples.places import REPO
from tests.samples.records import settings_in


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file of a folder with its bytes."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize(
    "name", ["it's 100 %.db", "a?mode=ro#x", "größe €.sqlite", "two\nlines", "-rf", "a&b=c;d"]
)
def test_any_name_of_a_file_is_taken_as_it_is(tmp_path: Path, samples, name: str) -> None:
    folder = tmp_path / "farm" / "2026"
    store = open_store(folder / name)
    samples.begin(store)
    store.close()

    assert [path.name for path in folder.iterdir()] == [name]
    reopened = open_store(
        f"sqlite:///{folder}/{name}" if "?" not in name and "%" not in name else str(folder / name)
    )
    assert [campaign.campaign_id for campaign in reopened.campaigns()] == ["night-1"]
    reopened.close()


def test_a_store_in_memory_is_new_each_time_and_leaves_nothing(
    samples, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with closing(open_store(":memory:")) as store, closing(open_store(":memory:")) as other:
        assert store.name == ":memory:"
        samples.begin(store)
        assert store.append_run(samples.run())
        assert ([run.run_id for run in store.runs()], list(other.campaigns())) == (
            [samples.run().run_id],
            [],
        )
    assert list(tmp_path.iterdir()) == []


def test_a_store_in_memory_that_finds_no_room_for_a_file_says_so(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(HostStorageError, match="a temporary file can't be written"):
        open_store(":memory:")


@pytest.mark.parametrize(
    "where",
    [
        "",
        "sqlite://",
        "sqlite:///runs.sqlite?mode=ro",
        "mysql://user@host/db",
        "://",
        "pg://x",
        "a\x00b",
        "~no-such-user/x",
    ],
)
def test_what_names_no_store_is_a_usage_error(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(UsageError):
        open_store(where)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hush@127.0.0.1:1/db",
        "postgresql://u@127.0.0.1:1/db?password=hush",
        "postgresql://u:hush@h:x/db",
    ],
)
def test_a_password_is_never_repeated(url: str) -> None:
    with pytest.raises((StoreError, UsageError)) as refused:
        open_store(url)

    raised: BaseException | None = refused.value
    while raised is not None:
        assert "hush" not in str(raised)
        raised = raised.__cause__


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_that_cannot_hold_every_character_is_refused_by_one_clear_error(
    postgresql, tmp_path: Path, encoding: str
) -> None:
    name = f"test_{encoding.lower()}"
    postgresql.run("createdb", "-T", "template0", "-E", encoding, "--locale", "C", name)

    for words in (("results", "list"), ("farm", "status")):
        ended = Cli(home=tmp_path / "home")("--store", postgresql.url(name), *words).ended_with(5)
        assert f"the encoding {encoding}" in ended.said
        assert name in ended.said
        assert "createdb --encoding UTF8" in ended.said
        assert "Traceback" not in ended.said
    with pytest.raises(StoreEncodingError):
        open_store(postgresql.url(name))


def test_what_is_no_file_and_no_server_is_told(tmp_path: Path, postgresql) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("x")
    for where, told in (
        (tmp_path, "no regular file"),
        (tmp_path / "file" / "runs.sqlite", "folder can't be made"),
        (tmp_path / "pipe", "no regular file"),
        (tmp_path / ("x" * 300), "unable to open database file"),
        ("postgresql://user@127.0.0.1:1/db", r"127\.0\.0\.1:1/db: .*can't be reached"),
        (postgresql.url("no_such_database"), "no_such_database"),
    ):
        with pytest.raises(StoreError, match=told):
            open_store(where)


@pytest.mark.parametrize(
    "content",
    [
        b"serial,latency\n1,2\n" * 1000,
        b"SQLite format 3\x00",
        b"SQLite format 3\x00" + b"\xff" * 5000,
    ],
    ids=["csv", "magic only", "magic and garbage"],
)
def test_a_file_that_is_no_store_is_left_untouched(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "runs.sqlite"
    path.write_bytes(content)

    with pytest.raises(StoreCorruptError, match=r"runs\.sqlite.*untouched"):
        open_store(path)

    assert contents(tmp_path) == {"runs.sqlite": content}


def test_a_server_that_takes_a_connection_and_never_answers_is_told() -> None:
    assert LIMITS["connect_timeout"] <= 30
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://user@127.0.0.1:{silent.getsockname()[1]}/db?connect_timeout=2"
        with pytest.raises(StoreError, match="can't be reached"):
            open_store(url)


def test_a_database_of_another_program_is_left_untouched(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE runs (a)")
    before = contents(tmp_path)

    with pytest.raises(StoreCorruptError, match="another program"):
        open_store(path)

    assert contents(tmp_path) == before


@pytest.fixture
def filled(tmp_path: Path, samples) -> Path:
    """A closed store with three runs, alone in its folder."""
    path = tmp_path / "farm" / "runs.sqlite"
    store = open_store(path)
    samples.begin(store)
    for number in range(3):
        store.append_run(samples.run(number))
    store.close()
    return path


def test_a_store_that_was_cut_off_is_left_untouched(filled: Path) -> None:
    whole = filled.read_bytes()
    filled.write_bytes(whole[: len(whole) // 2])
    before = contents(filled.parent)

    with pytest.raises(StoreCorruptError, match="damaged"):
        open_store(filled)

    assert contents(filled.parent) == before


def test_damage_in_the_middle_is_told_when_it_is_read(filled: Path) -> None:
    with filled.open("r+b") as file:
        file.seek(4096)
        file.write(random.Random(1).randbytes(filled.stat().st_size - 4096))
    before = filled.read_bytes()

    with pytest.raises(StoreCorruptError, match=r"runs\.sqlite: .*damaged"):
        open_store(filled)

    assert filled.read_bytes() == before


def test_a_length_that_can_not_be_is_damage_too() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        # What SQLite says of a damaged file now and then.
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100)
        with (
            pytest.raises(StoreCorruptError, match=r"runs\.sqlite: .*damaged.*too big"),
            store_errors("runs.sqlite"),
        ):
            connection.execute("SELECT zeroblob(101)")


def test_raw_output_that_changed_on_the_disk_is_never_handed_out(filled: Path, samples) -> None:
    with closing(sqlite3.connect(filled)) as connection, connection:
        connection.execute("UPDATE blobs SET data = zeroblob(length(data))")
    store = open_store(filled)

    with pytest.raises(StoreCorruptError, match="raw output"):
        store.attachments(samples.run(0).run_id)
    with pytest.raises(StoreCorruptError, match="raw output"):
        list(store.runs(with_attachments=True))
    assert len(list(store.runs())) == 3
    store.close()


def test_a_run_that_changed_on_the_disk_is_never_handed_out(filled: Path, samples) -> None:
    with closing(sqlite3.connect(filled)) as connection, connection:
        connection.execute("UPDATE runs SET output = zeroblob(length(output))")
    store = open_store(filled)
    with pytest.raises(StoreCorruptError, match="run night-1-timing-0"):
        store.attachments(samples.run(0).run_id)
    assert len(list(store.runs())) == 3
    with closing(sqlite3.connect(filled)) as connection, connection:
        connection.execute("UPDATE runs SET document = zeroblob(length(document))")
    with pytest.raises(StoreCorruptError, match="run night-1-timing-0"):
        list(store.runs())
    store.close()


def test_raw_output_that_is_missing_is_told_and_only_when_it_is_wanted(
    filled: Path, samples
) -> None:
    with closing(sqlite3.connect(filled)) as connection, connection:
        connection.execute("DELETE FROM blobs")
    store = open_store(filled)

    assert [run.attachments for run in store.runs()] == [(), (), ()]
    with pytest.raises(StoreCorruptError, match="missing"):
        store.attachments(samples.run(0).run_id)
    store.close()


OPEN_IN_A_CHILD = """
import os, sys
from orchestrator.errors import BenchfarmError
from orchestrator.store.opening import open_store

if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
try:
    open_store(sys.argv[1])
except BenchfarmError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""


def open_without_privileges(path: Path) -> str:
    """Open a store as a user that permissions count for, and return what it was refused with."""
    ended = subprocess.run(
        [sys.executable, "-c", OPEN_IN_A_CHILD, str(path)],
        env={**os.environ, "PYTHONPATH": str(REPO)},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode != 0, "the store was opened"
    return ended.stderr


@pytest.fixture
def reachable(filled: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same store in a folder that every user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="benchfarm-readonly-", dir="/tmp"))
    folder.chmod(0o755)
    shutil.copy(filled, folder)
    yield folder / filled.name
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("file_mode", "folder_mode", "name"),
    [
        (0o444, 0o777, "runs.sqlite"),
        (0o666, 0o555, "runs.sqlite"),
        (0o666, 0o555, "new/runs.sqlite"),
    ],
    ids=["file", "folder", "new folder"],
)
def test_what_may_not_be_written_is_read_only(
    reachable: Path, file_mode: int, folder_mode: int, name: str
) -> None:
    reachable.chmod(file_mode)
    reachable.parent.chmod(folder_mode)
    before = contents(reachable.parent)

    assert "StoreError: " in open_without_privileges(reachable.parent / name)

    assert contents(reachable.parent) == before


def test_a_server_that_only_allows_reading_is_read_only(
    postgresql, postgresql_template: str, samples
) -> None:
    name = postgresql.create(postgresql_template)
    postgresql.run(
        "psql",
        "-q",
        "-d",
        "postgres",
        "-c",
        f"ALTER DATABASE {name} SET default_transaction_read_only = on",
    )
    store = open_store(postgresql.url(name))

    assert store.campaigns() == []
    with pytest.raises(StoreError, match=f"{name}.*read-only"):
        samples.begin(store)
    store.close()


def test_a_new_store_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    known = os.umask(0o022)
    try:
        store = open_store(path)
    finally:
        os.umask(known)
    modes = {
        item.name: stat.S_IMODE(item.stat().st_mode) & 0o077
        for item in tmp_path.glob("store.sqlite*")
    }
    store.close()
    assert set(modes.values()) == {0}


def test_a_file_that_is_not_there_is_missed_and_its_folder_is_not_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "runs.sqlite"

    for where in (path, str(path), f"sqlite:///{path}"):
        with pytest.raises(StoreMissingError, match=r"runs\.sqlite: there is no store"):
            open_store(where, makes_new=False)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_is_no_store_yet(tmp_path: Path) -> None:
    path = tmp_path / "runs.sqlite"
    path.touch()

    with pytest.raises(StoreMissingError):
        open_store(path, makes_new=False)
    assert path.read_bytes() == b""
    open_store(path).close()
    open_store(path, makes_new=False).close()


def test_a_database_without_our_tables_is_no_store_yet(
    postgresql, postgresql_template: str
) -> None:
    url = postgresql.url(postgresql.create())

    with pytest.raises(StoreMissingError, match="no store in this database"):
        open_store(url, makes_new=False)
    with psycopg.connect(url) as connection:
        assert connection.execute(
            "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
        ).fetchone() == (0,)
    open_store(postgresql.url(postgresql.create(postgresql_template)), makes_new=False).close()


def test_the_default_store_is_empty_until_something_is_stored(tmp_path: Path, samples) -> None:
    settings = settings_in(tmp_path / "home")

    with Workspace(settings, makes_store=False) as workspace:
        assert workspace.store.campaigns() == []
        assert workspace.store.name == str(tmp_path / "home" / "store.sqlite")
    assert not (tmp_path / "home").exists()
    with Workspace(settings) as workspace:
        samples.begin(workspace.store)
    with Workspace(settings, makes_store=False) as workspace:
        assert len(workspace.store.campaigns()) == 1
        assert workspace.store.name == str(tmp_path / "home" / "store.sqlite")


def test_a_store_that_is_opened_is_not_changed(filled: Path) -> None:
    before = filled.read_bytes()

    open_store(filled).close()

    assert [path.name for path in filled.parent.iterdir()] == [filled.name]
    assert filled.read_bytes() == before


def test_a_store_of_a_newer_benchfarm_is_left_untouched(filled: Path) -> None:
    with closing(sqlite3.connect(filled)) as connection, connection:
        connection.execute("UPDATE benchfarm_settings SET value = '9999' WHERE name = 'version'")
    before = filled.read_bytes()

    with pytest.raises(StoreError, match=r"newer benchfarm.*9999") as refused:
        open_store(filled)

    assert "upgrade" in refused.value.hint
    assert filled.read_bytes() == before


OPEN_IN_MANY = """
import os, sys
import psycopg, sqlalchemy
from orchestrator.store.opening import open_store

for _ in range(4):
    if os.fork() == 0:
        store = open_store(sys.argv[1])
        assert list(store.runs()) == []
        store.close()
        os._exit(0)
sys.exit(any([os.wait()[1] for _ in range(4)]))
"""


def test_processes_that_make_one_store_at_once_all_get_it(unused_database: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OPEN_IN_MANY, unused_database],
        env={**os.environ, "PYTHONPATH": str(REPO)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_database_of_a_newer_benchfarm_is_refused(url: str) -> None:
    open_store(url).close()
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE benchfarm_settings SET value = '9999' WHERE name = 'version'")
    with pytest.raises(StoreError, match=r"newer benchfarm.*9999"):
        open_store(url)
