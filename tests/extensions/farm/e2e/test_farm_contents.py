"""The contents that a farm's jobs need: kept once, verified wherever they come from, cleaned when
no job needs them."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.errors import HostStorageError, StoreError, UsageError
from orchestrator.extensions.farm.manifest import ContentStore
from orchestrator.extensions.farm.queue import FarmQueue
from tests.samples.submissions import at_once, begin, host_lives, submit

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
    for table in ("farm_submissions", "farm_files"):
        queue.rows(f"DELETE FROM {table}")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "model.tflite"
    path.write_bytes(CONTENT)
    return path


@pytest.fixture
def host(queue: FarmQueue, tmp_path: Path) -> Callable[[str], ContentStore]:
    """Return a host of the farm by its name."""
    return lambda name: ContentStore(queue, tmp_path / name)


def old(queue: FarmQueue) -> None:
    queue.rows("UPDATE farm_files SET used_at = now() - interval '60 days'")
    queue.rows("UPDATE farm_jobs SET changed_at = now() - interval '60 days'")


def test_a_file_is_kept_once_and_comes_to_other_hosts_by_content(
    host: Callable[[str], ContentStore], source: Path, tmp_path: Path
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
    host: Callable[[str], ContentStore], queue: FarmQueue, source: Path, tmp_path: Path
) -> None:
    host("one").keep(source, SHA256)
    # Its size unchanged.
    queue.rows("UPDATE farm_file_parts SET data = overlay(data placing 'x'::bytea from 1 for 1)")
    with pytest.raises(StoreError, match="missing or damaged"):
        host("two").fetch(SHA256, "model.tflite")
    assert not [path for path in (tmp_path / "two").rglob("*") if path.is_file()]
    assert host("one").keep(source, SHA256)
    assert host("two").fetch(SHA256, "model.tflite").read_bytes() == CONTENT


def test_a_file_that_changed_meanwhile_is_not_kept(
    host: Callable[[str], ContentStore], tmp_path: Path
) -> None:
    source = tmp_path / "m.tflite"
    source.write_bytes(b"new")
    sha256 = hashlib.sha256(b"old").hexdigest()
    with pytest.raises(UsageError, match="was changed"):
        host("one").keep(source, sha256)
    with pytest.raises(StoreError, match="missing"):
        host("two").fetch(sha256, "m.tflite")


class Counting(FarmQueue):
    """Counts how often it is asked for a part of a content."""

    asked = 0

    def rows(self, query: str, *values: object) -> list[dict[str, Any]]:
        self.asked += "farm_file_parts" in query
        return super().rows(query, *values)


def test_a_content_that_many_jobs_of_a_host_want_at_once_is_brought_once(
    queue: FarmQueue, opened_url: str, source: Path, tmp_path: Path
) -> None:
    ContentStore(queue, tmp_path / "one").keep(source, SHA256)
    with Counting(opened_url) as counting:
        contents = ContentStore(counting, tmp_path / "two")
        fetched = at_once([lambda: contents.fetch(SHA256, "m.tflite")] * 8)
        assert set(fetched) == {tmp_path / "two" / "farm-files" / SHA256 / "m.tflite"}
        # Two parts, and one that isn't there any more.
        assert counting.asked == 3


def test_a_full_disk_costs_the_copy_only(
    host: Callable[[str], ContentStore], source: Path, tmp_path: Path
) -> None:
    host("one").keep(source, SHA256)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
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
    host: Callable[[str], ContentStore], queue: FarmQueue, source: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"other")
    spare = hashlib.sha256(b"other").hexdigest()
    contents = host("one")
    contents.keep(source, SHA256)
    contents.keep(other, spare)
    submit(queue, "A", "B", files=[SHA256])
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
    host_lives(queue, "one", version="1")
    begun = [begin(queue, serial, host="one") for serial in ("A", "B")]
    queue.end(begun[0], "done", "")
    old(queue)
    # The submission isn't over: A's job keeps its place in it.
    assert contents.clean(older_than_s=3600).jobs == 0
    queue.end(begun[1], "done", "")
    # Its last job has only just ended.
    assert contents.clean(older_than_s=3600).jobs == 0
    assert host("three").fetch(SHA256, "m.tflite").read_bytes() == CONTENT
    old(queue)
    cleaned = contents.clean(older_than_s=3600)
    assert (cleaned.jobs, cleaned.files) == (2, 1)


def test_a_job_whose_file_was_cleaned_away_is_not_queued(
    host: Callable[[str], ContentStore], queue: FarmQueue, source: Path
) -> None:
    host("one").keep(source, SHA256)
    old(queue)
    assert host("one").clean(older_than_s=0).files == 1
    with pytest.raises(UsageError, match="cleaned away"):
        submit(queue, "A", files=[SHA256])
    assert queue.jobs() == []


def test_a_hosts_own_copies_go_when_they_were_not_used_for_long(
    host: Callable[[str], ContentStore], source: Path
) -> None:
    host("one").keep(source, SHA256)
    path = host("two").fetch(SHA256, "m.tflite")
    os.utime(path, (1, 1))
    # Used again, which makes it young.
    host("two").fetch(SHA256, "m.tflite")
    host("two").clean_copies()
    assert path.is_file()
    os.utime(path, (1, 1))
    host("two").clean_copies()
    assert not path.exists()
