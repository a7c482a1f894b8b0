"""The contents that a farm's jobs need: kept once, verified wherever they come from, cleaned when no job needs them."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import fsspec
import psycopg
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from orchestrator.app.farm_payload import clean_inputs, unpack
from orchestrator.bootstrap import Farm, Settings
from orchestrator.errors import HostStorageError, StoreError, UsageError
from orchestrator.queueing.contents import CACHED_S, Contents
from orchestrator.queueing.queue import FarmQueue
from orchestrator.queueing.submissions import PhoneJob
from orchestrator.records.identity import Serial
from orchestrator.records.payload import Content, Payload
from orchestrator.records.plan import Plan

if TYPE_CHECKING:
    from tests.samples.postgresql import Cluster

#: More than one part of the database's.
CONTENT = bytes(range(256)) * 20_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture(scope="module")
def opened_url(postgresql: Cluster) -> str:
    return postgresql.url(postgresql.create())


@pytest.fixture(scope="module")
def queue(opened_url: str) -> Iterator[FarmQueue]:
    with FarmQueue(opened_url) as queue:
        yield queue


@pytest.fixture(autouse=True)
def empty(queue: FarmQueue) -> None:
    for table in ("farm_jobs", "procrastinate_jobs", "farm_files"):
        queue.rows(f"DELETE FROM {table}")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "model.tflite"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture(params=["database", "folder"])
def host(request: pytest.FixtureRequest, queue: FarmQueue, tmp_path: Path) -> Callable[[str], Contents]:
    """Return a host of the farm by its name; all of them have the same place."""
    shared = tmp_path / "shared"
    shared.mkdir()
    place = "" if request.param == "database" else shared.as_uri()
    return lambda name: Contents(queue, tmp_path / name, place=place)


def damage(queue: FarmQueue, tmp_path: Path) -> None:
    """Change a kept content where it lies, its size unchanged."""
    queue.rows("UPDATE farm_file_parts SET data = overlay(data placing 'x'::bytea from 1 for 1)")
    for path in (tmp_path / "shared").glob("*/*"):
        path.write_bytes(b"x" + path.read_bytes()[1:])


def old(queue: FarmQueue) -> None:
    queue.rows("UPDATE farm_files SET used_at = now() - interval '60 days'")
    queue.rows("UPDATE procrastinate_events SET at = now() - interval '60 days'")


def test_a_file_is_kept_once_and_comes_to_other_hosts_by_content(
    host: Callable[[str], Contents], source: Path, tmp_path: Path
) -> None:
    assert host("one").keep(source, SHA256)
    assert not host("two").keep(source, SHA256)
    source.unlink()
    fetched = host("three").fetch(SHA256, "model.tflite")
    assert (fetched.name, fetched.read_bytes()) == ("model.tflite", CONTENT)
    fetched.write_bytes(b"damaged here")
    assert host("three").fetch(SHA256, "model.tflite").read_bytes() == CONTENT
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith(".part")]


def test_what_was_damaged_is_never_used_and_can_be_brought_again(
    host: Callable[[str], Contents], queue: FarmQueue, source: Path, tmp_path: Path
) -> None:
    host("one").keep(source, SHA256)
    damage(queue, tmp_path)
    with pytest.raises(StoreError, match="missing or damaged"):
        host("two").fetch(SHA256, "model.tflite")
    assert not [path for path in (tmp_path / "two").rglob("*") if path.is_file()]
    assert host("one").keep(source, SHA256)
    assert host("two").fetch(SHA256, "model.tflite").read_bytes() == CONTENT


def test_a_file_that_changed_meanwhile_is_not_kept(host: Callable[[str], Contents], tmp_path: Path) -> None:
    source = tmp_path / "m.tflite"
    source.write_bytes(b"new")
    sha256 = hashlib.sha256(b"old").hexdigest()
    with pytest.raises(UsageError, match="was changed"):
        host("one").keep(source, sha256)
    with pytest.raises(StoreError, match="missing"):
        host("two").fetch(sha256, "m.tflite")


def test_a_host_without_the_submitters_place_is_told_of_it(queue: FarmQueue, source: Path, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    place = (tmp_path / "shared").as_uri()
    Contents(queue, tmp_path / "one", place=place).keep(source, SHA256)
    with pytest.raises(StoreError, match="it was put into file://") as told:
        Contents(queue, tmp_path / "two").fetch(SHA256, "m.tflite", put_in=place)
    assert "BENCHFARM_ARTIFACTS" in told.value.hint
    # What went to the database reaches hosts that have a place, too.
    Contents(queue, tmp_path / "three").keep(source, SHA256)
    other = Contents(queue, tmp_path / "four", place=(tmp_path / "empty").as_uri())
    assert other.fetch(SHA256, "m.tflite").read_bytes() == CONTENT


@pytest.mark.parametrize(("url", "told"), [("nowhere://x", "nowhere"), ("s3://bucket/x", "s3fs")])
def test_a_place_that_no_driver_reads_is_refused(queue: FarmQueue, tmp_path: Path, url: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        Contents(queue, tmp_path, place=url)


def test_a_place_that_cannot_be_written_is_told_and_no_file_counts_as_kept(
    queue: FarmQueue, source: Path, tmp_path: Path
) -> None:
    (tmp_path / "blocked").write_text("a file where the folder should be")
    contents = Contents(queue, tmp_path / "one", place=(tmp_path / "blocked" / "x").as_uri())
    with pytest.raises(StoreError, match="blocked"):
        contents.keep(source, SHA256)
    with pytest.raises(StoreError):
        contents.fetch(SHA256, "m.tflite")


class Counting(FarmQueue):
    """Counts how often it is asked for a part of a content."""

    asked = 0

    def rows(self, query: str, *values: object) -> list[dict[str, Any]]:
        self.asked += "farm_file_parts" in query
        return super().rows(query, *values)


def test_a_content_that_many_jobs_of_a_host_want_at_once_is_brought_once(
    queue: FarmQueue, opened_url: str, source: Path, tmp_path: Path
) -> None:
    Contents(queue, tmp_path / "one").keep(source, SHA256)
    jobs = 8
    with Counting(opened_url) as counting, ThreadPoolExecutor(jobs) as pool:
        contents, together = Contents(counting, tmp_path / "two"), threading.Barrier(jobs)

        def fetch() -> Path:
            together.wait(30)
            return contents.fetch(SHA256, "m.tflite")

        fetched = [pool.submit(fetch) for _ in range(jobs)]
        assert {item.result(60) for item in fetched} == {tmp_path / "two" / SHA256 / "m.tflite"}
        # Two parts, and one that isn't there any more.
        assert counting.asked == 3


def test_jobs_of_a_host_make_the_folder_of_their_inputs_at_once_and_leave_what_is_right_alone(
    queue: FarmQueue, source: Path, tmp_path: Path
) -> None:
    contents = Contents(queue, tmp_path / "copies")
    contents.keep(source, SHA256)
    contents.fetch(SHA256, "m.0.bin")
    payload = Payload(parity_inputs=(Content(name="m.0.bin", sha256=SHA256),))
    jobs = 8
    together = threading.Barrier(jobs)

    def unpacked() -> Path:
        with Farm(Settings.from_environment({}, home=tmp_path / "home")) as farm:
            together.wait(30)
            folder = unpack(farm, contents, Plan(name="p", models=()), payload, tmp_path / "inputs").plan.parity_inputs
        assert folder is not None
        assert (folder / "m.0.bin").read_bytes() == CONTENT
        return folder / "m.0.bin"

    with ThreadPoolExecutor(jobs) as pool:
        (made,) = {item.result(60) for item in [pool.submit(unpacked) for _ in range(jobs)]}
    assert [path.name for path in made.parent.iterdir()] == ["m.0.bin"]
    before = made.stat().st_ino
    together = threading.Barrier(1)
    assert unpacked().stat().st_ino == before
    made.write_bytes(b"damaged")
    unpacked()
    clean_inputs(tmp_path / "inputs")
    assert made.is_file()
    unused_since = time.time() - CACHED_S - 60
    os.utime(made.parent, (unused_since, unused_since))
    clean_inputs(tmp_path / "inputs")
    assert not made.parent.exists()


def test_a_full_disk_costs_the_copy_only(host: Callable[[str], Contents], source: Path, tmp_path: Path) -> None:
    import resource

    host("one").keep(source, SHA256)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    import signal

    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(CONTENT) // 2, limits[1]))
    try:
        with pytest.raises(HostStorageError, match="File too large"):
            host("two").fetch(SHA256, "m.tflite")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert not [path for path in (tmp_path / "two").rglob("*") if path.is_file()]
    assert host("two").fetch(SHA256, "m.tflite").read_bytes() == CONTENT


def test_cleaning_takes_what_no_job_needs_and_nothing_else(
    host: Callable[[str], Contents], queue: FarmQueue, source: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"other")
    spare = hashlib.sha256(b"other").hexdigest()
    contents = host("one")
    contents.keep(source, SHA256)
    contents.keep(other, spare)
    jobs = [PhoneJob(submission="night", serial=Serial(serial), plan="{}") for serial in ("A", "B")]
    (first, _) = queue.submit(jobs, plan_name="p", priority=0, files={"A": [SHA256], "B": [SHA256]})
    # Lately used: somebody may be about to submit it.
    queue.rows("UPDATE farm_files SET used_at = now() - interval '2 hours'")
    assert contents.clean(older_than_s=3600).files == 0
    old(queue)
    assert contents.clean(older_than_s=3600, is_trial=True).files == 1
    assert host("two").fetch(spare, "other").read_bytes() == b"other"
    cleaned = contents.clean(older_than_s=3600)
    assert (cleaned.jobs, cleaned.files, cleaned.size_bytes) == (0, 1, 5)
    with pytest.raises(StoreError):
        host("three").fetch(spare, "other")
    worker = queue.register("one", benchfarm_version="1")
    for serial in ("A", "B"):
        claimed = queue.claim("one", worker, [serial])
        assert claimed is not None
        if claimed.job_id == first:
            queue.finish(worker, first, "succeeded", "")
    old(queue)
    # The submission isn't over: A's job keeps its place in it.
    assert contents.clean(older_than_s=3600).jobs == 0
    queue.finish(worker, claimed.job_id, "succeeded", "")
    assert (contents.clean(older_than_s=3600).jobs, contents.clean(older_than_s=3600).files) == (1, 0)
    assert [row["serial"] for row in queue.jobs()] == ["B"]
    assert host("three").fetch(SHA256, "m.tflite").read_bytes() == CONTENT


def test_what_was_taken_away_before_a_place_failed_stays_taken_away(queue: FarmQueue, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    contents = Contents(queue, tmp_path / "one", place=shared.as_uri())
    for number in range(130):
        (tmp_path / "small").write_bytes(b"%d" % number)
        contents.keep(tmp_path / "small", hashlib.sha256(b"%d" % number).hexdigest())
    old(queue)
    # What can't be taken away is the last of them.
    last = sorted(path for path in shared.glob("*/*") if path.is_file())[-1]
    last.unlink()
    last.mkdir()
    with pytest.raises(StoreError, match=last.name):
        contents.clean(older_than_s=0)
    left = {row["sha256"] for row in queue.rows("SELECT sha256 FROM farm_files")}
    assert last.name in left
    assert len(left) < 130
    last.rmdir()
    assert contents.clean(older_than_s=0).files == len(left)
    assert not [path for path in shared.rglob("*") if path.is_file()]


def test_a_job_whose_file_was_cleaned_away_is_not_queued(
    host: Callable[[str], Contents], queue: FarmQueue, source: Path
) -> None:
    host("one").keep(source, SHA256)
    old(queue)
    assert host("one").clean(older_than_s=0).files == 1
    job = PhoneJob(submission="late", serial=Serial("A"), plan="{}")
    with pytest.raises(UsageError, match="cleaned away"):
        queue.submit([job], plan_name="p", priority=0, files={"A": [SHA256]})
    assert queue.jobs() == []


def test_a_hosts_own_copies_go_when_they_were_not_used_for_long(host: Callable[[str], Contents], source: Path) -> None:
    host("one").keep(source, SHA256)
    path = host("two").fetch(SHA256, "m.tflite")
    os.utime(path, (1, 1))
    # Used again, which makes it young.
    host("two").fetch(SHA256, "m.tflite")
    assert host("two").clean_copies().files == 0
    os.utime(path, (1, 1))
    assert host("two").clean_copies(is_trial=True).files == 1
    assert host("two").clean_copies().files == 1
    assert not path.parent.exists()


def test_a_content_that_is_wanted_by_many_at_once_is_kept_whole(host: Callable[[str], Contents], source: Path) -> None:
    import threading

    failed: list[BaseException] = []

    def keep(name: str) -> None:
        try:
            host(name).keep(source, SHA256)
            assert host(name).fetch(SHA256, "m.tflite").read_bytes() == CONTENT
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=keep, args=(f"h{number}",)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failed == []


def test_no_connection_stays_open_after_a_damaged_file(queue: FarmQueue) -> None:
    with queue.connection() as connection:
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_what_a_killed_submission_left_half_written_goes_when_it_is_old(queue: FarmQueue, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    farm = Contents(queue, tmp_path / "one", place=shared.as_uri())
    (shared / SHA256[:2]).mkdir(parents=True)
    drafts = [shared / SHA256[:2] / f"{SHA256}.{name}.part" for name in ("0a1b2c3d", "4e5f6a7b")]
    for draft in drafts:
        draft.write_bytes(b"half")
    os.utime(drafts[0], (time.time() - 2 * 86400,) * 2)
    assert farm.clean(older_than_s=0, is_trial=True).files == 1
    assert drafts[0].exists()
    cleaned = farm.clean(older_than_s=0)
    assert (cleaned.files, cleaned.size_bytes) == (1, 4)
    assert [draft.exists() for draft in drafts] == [False, True]


def test_files_of_others_at_the_same_place_are_never_taken_away(queue: FarmQueue, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    theirs = [
        shared / "users/ann/film.mkv.part",
        shared / f"{SHA256}.0a1b2c3d.part",
        shared / f"other/{SHA256[:2]}/{SHA256}.0a1b2c3d.part",
        shared / f"00/{SHA256}.0a1b2c3d.part",
        shared / f"{SHA256[:2]}/{SHA256}.part",
        shared / f"{SHA256[:2]}/notes.0a1b2c3d.part",
    ]
    for path in theirs:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"theirs")
        os.utime(path, (1, 1))
    assert Contents(queue, tmp_path / "one", place=shared.as_uri()).clean(older_than_s=0).files == 0
    assert all(path.exists() for path in theirs)


class Buckets(MemoryFileSystem):  # type: ignore[misc]
    """Files by a bucket's name and a key, as S3, GCS and Azure have them: only what makes folders makes buckets."""

    protocol = "buckets"
    root_marker = ""
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return path.removeprefix("buckets://").strip("/")

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        self.pseudo_dirs.append(path.partition("/")[0])

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if path.partition("/")[0] not in self.pseudo_dirs:
            raise FileNotFoundError("The specified bucket does not exist")
        return super()._open(path, mode, **options)


def test_a_bucket_of_a_wrong_name_is_told_and_never_made(queue: FarmQueue, source: Path, tmp_path: Path) -> None:
    fsspec.register_implementation("buckets", Buckets, clobber=True)
    with pytest.raises(StoreError, match="The specified bucket does not exist") as caught:
        Contents(queue, tmp_path / "one", place="buckets://misspelt/benchfarm").keep(source, SHA256)
    assert "BENCHFARM_ARTIFACTS" in caught.value.hint
    assert Buckets.pseudo_dirs == [""]


class Unreachable(Buckets):
    """A place that no network reaches; whether something is there, fsspec then denies."""

    protocol = "unreachable"

    def info(self, path: str, **options: Any) -> Any:
        raise ConnectionError("Could not connect to the endpoint URL")

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        raise ConnectionError("Could not connect to the endpoint URL")

    def rm_file(self, path: str) -> None:
        raise ConnectionError("Could not connect to the endpoint URL")


def test_a_place_that_is_not_reached_is_told_so_and_not_that_the_file_is_missing(
    queue: FarmQueue, source: Path, tmp_path: Path
) -> None:
    fsspec.register_implementation("unreachable", Unreachable, clobber=True)
    away = Contents(queue, tmp_path / "one", place="unreachable://bucket/benchfarm")
    with pytest.raises(StoreError, match="Could not connect") as caught:
        away.fetch(SHA256, "m.tflite")
    assert "submit" not in caught.value.hint
    # What lies in the database comes all the same.
    Contents(queue, tmp_path / "two").keep(source, SHA256)
    assert away.fetch(SHA256, "m.tflite").read_bytes() == CONTENT
    old(queue)
    with pytest.raises(StoreError, match="Could not connect"):
        away.clean(older_than_s=0)
    assert queue.rows("SELECT 1 FROM farm_files")


def test_a_share_that_is_not_mounted_is_never_made_on_the_own_disk(
    queue: FarmQueue, source: Path, tmp_path: Path
) -> None:
    share = tmp_path / "mount" / "share"
    contents = Contents(queue, tmp_path / "one", place=share.as_uri())
    with pytest.raises(StoreError, match="No such file") as caught:
        contents.keep(source, SHA256)
    assert "BENCHFARM_ARTIFACTS" in caught.value.hint
    assert not share.parent.exists()
    # The folder is all that it takes.
    share.mkdir(parents=True)
    assert contents.keep(source, SHA256)
    old(queue)
    share.rename(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="No such file"):
        contents.clean(older_than_s=0)
    assert queue.rows("SELECT 1 FROM farm_files")


def test_a_share_that_is_not_mounted_is_told_so(queue: FarmQueue, source: Path, tmp_path: Path) -> None:
    share = tmp_path / "share"
    share.mkdir()
    Contents(queue, tmp_path / "one", place=share.as_uri()).keep(source, SHA256)
    share.rename(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="No such file") as caught:
        Contents(queue, tmp_path / "two", place=share.as_uri()).fetch(SHA256, "m.tflite")
    assert "BENCHFARM_ARTIFACTS" in caught.value.hint
