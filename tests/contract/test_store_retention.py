"""Old raw output goes, figures never: the same on every store. Copies of stores are whole."""

from __future__ import annotations

import random
import shutil
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orchestrator.records.campaign import CampaignStatus
from orchestrator.records.case import CampaignId, ToolName
from orchestrator.records.history import PRUNED_FILE, Pruned, is_pruned
from orchestrator.records.run import Attachment
from orchestrator.store.opening import Store, compact, copy_to, open_store
from tests.samples.stores import START

if TYPE_CHECKING:
    from tests.samples.postgresql import Cluster

SHARED = Attachment(name="trace", data=bytes(range(256)) * 1000)
#: What packing doesn't make smaller.
OWN = Attachment(name="bugreport", data=random.Random(1).randbytes(600_000))


def fill(store: Store, samples) -> None:
    """An old night, a new one, and an old import; one large attachment is in both nights."""
    for name, days in (("old", 0), ("new", 100), ("import", 0)):
        samples.night(store, name, days)
        for number in range(3):
            attachments = (
                *samples.run(number).attachments[:3],
                SHARED,
                *((OWN,) if name == "old" else ()),
            )
            tool = ToolName.TEXT if name == "import" else ToolName.NATIVE
            samples.keep(store, name, number, attachments=attachments, case=samples.case(tool=tool))
        ended = START + timedelta(days=days, hours=1)
        store.set_status(CampaignId(name), CampaignStatus.FINISHED, ended)


#: Between the old night and the new one.
BEFORE = START + timedelta(days=50)


def test_a_trial_says_what_would_become_free_also_of_what_campaigns_share(
    reopen: Callable[[], Store], samples
) -> None:
    store = reopen()
    for name in ("one", "other"):
        samples.night(store, name, status=CampaignStatus.FINISHED)
        samples.keep(store, name, attachments=(*samples.run(0).attachments[:3], OWN))
    everything = START + timedelta(days=500)
    trial = store.prune_raw(everything, policy="all", is_trial=True)
    # The notes that take their place have some bytes.
    assert trial.freed_bytes > len(OWN.data) - 1000
    assert store.prune_raw(everything, policy="all") == trial


def test_a_trial_never_takes_the_lock_that_runs_are_stored_with(
    store: Store, samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(store, samples)
    with monkeypatch.context() as patch:
        patch.delattr("orchestrator.store.database.Database.writing")
        trial = store.prune_raw(BEFORE, policy="a test", is_trial=True)
    assert store.prune_raw(BEFORE, policy="a test") == trial


def test_old_raw_output_goes_and_everything_read_from_it_stays(
    reopen: Callable[[], Store], samples
) -> None:
    store = reopen()
    fill(store, samples)
    known = list(store.runs())
    points = store.points()
    whole = {run.run_id: store.attachments(run.run_id) for run in known}
    kept = {
        run_id: attachments for run_id, attachments in whole.items() if not run_id.startswith("old")
    }
    assert store.prune_raw(BEFORE, policy="a trial", is_trial=True).runs == 3
    assert {run.run_id: store.attachments(run.run_id) for run in store.runs()} == whole
    pruned = store.prune_raw(BEFORE, policy="a test")
    assert (pruned.campaigns, pruned.runs) == (2, 3)
    assert pruned.freed_bytes > 0
    store = reopen()
    assert list(store.runs()) == known
    assert store.points() == points
    for run in known:
        attachments = store.attachments(run.run_id)
        if run.run_id.startswith("old"):
            assert attachments == (Attachment(name=PRUNED_FILE, data=b"deleted: a test\n"),)
        else:
            assert attachments == kept[run.run_id]
    again = store.prune_raw(BEFORE, policy="again")
    assert (again.campaigns, again.runs, again.freed_bytes) == (0, 0, 0)


def test_a_campaign_that_runs_keeps_its_raw_output_until_it_must_have_been_killed(
    store: Store, samples
) -> None:
    run = samples.keep(store, samples.night(store, "night-1"), attachments=(OWN,))
    assert store.prune_raw(run.started_at + timedelta(hours=23), policy="p").runs == 0
    assert not is_pruned(store.attachments(run.run_id))
    assert store.prune_raw(run.started_at + timedelta(hours=25), policy="p").runs == 1


def test_what_a_campaign_got_after_it_was_pruned_is_pruned_in_its_turn(
    store: Store, samples
) -> None:
    fill(store, samples)
    store.prune_raw(BEFORE, policy="p")
    old = CampaignId("old")
    store.set_status(old, CampaignStatus.RUNNING, None)
    late = samples.keep(store, old, 7, attachments=(OWN,))
    store.set_status(old, CampaignStatus.FINISHED, BEFORE)
    again = store.prune_raw(BEFORE, policy="p")
    assert (again.campaigns, again.runs) == (1, 1)
    assert is_pruned(store.attachments(late.run_id))


def test_two_that_prune_at_once_do_not_stand_in_each_others_way(
    reopen: Callable[[], Store], samples
) -> None:
    stores = [reopen() for _ in range(2)]
    fill(stores[0], samples)
    for number in range(12):
        samples.night(stores[0], f"more-{number}", status=CampaignStatus.FINISHED)
    together = threading.Barrier(2)

    def prune(store: Store) -> Pruned:
        together.wait(60)
        return store.prune_raw(BEFORE, policy="p")

    with ThreadPoolExecutor() as pool:
        pruned = list(pool.map(prune, stores))
    assert sum(item.runs for item in pruned) == 3


def test_the_note_of_a_deletion_never_takes_more_room_than_what_it_stands_for(
    reopen: Callable[[], Store], samples
) -> None:
    store = reopen()
    name = samples.night(store, "old", status=CampaignStatus.FINISHED)
    small = (Attachment(name="o", data=b"x"),)
    runs = [samples.keep(store, name, number, attachments=small) for number in range(3)]
    policy = "by a rule that takes some words to tell"
    assert store.prune_raw(BEFORE, policy=policy).freed_bytes >= 0
    assert store.attachments(runs[1].run_id) == small


def test_a_compacted_file_is_smaller_and_whole(tmp_path: Path, samples) -> None:
    path = tmp_path / "runs.sqlite"
    store = open_store(path)
    fill(store, samples)
    known = list(store.runs())
    store.prune_raw(BEFORE, policy="p")
    # The last one that closes it brings the log into the file.
    store.close()
    size_bytes = path.stat().st_size
    compact(path)
    assert path.stat().st_size <= size_bytes - len(OWN.data) // 2
    store = open_store(path)
    assert list(store.runs()) == known
    store.close()


def test_a_copy_made_while_others_write_is_a_whole_store(tmp_path: Path, samples) -> None:
    path = tmp_path / "runs.sqlite"
    store = open_store(path)
    samples.begin(store)
    store.append_run(samples.run(0))
    stopped, started = threading.Event(), threading.Event()

    def write() -> None:
        number = 1
        while not stopped.is_set():
            store.append_run(samples.run(number))
            number += 1
            started.set()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert started.wait(60)
        copy_to(path, tmp_path / "copy.sqlite")
    finally:
        stopped.set()
        thread.join(60)
    found = open_store(tmp_path / "copy.sqlite")
    runs = list(found.runs(with_attachments=True))
    originals = {run.run_id: run for run in store.runs(with_attachments=True)}
    assert len(runs) >= 2
    assert all(originals[run.run_id] == run for run in runs)
    found.close()
    store.close()
    # Restored by putting it where the store was.
    for name in ("runs.sqlite-wal", "runs.sqlite-shm"):
        (tmp_path / name).unlink(missing_ok=True)
    shutil.copy(tmp_path / "copy.sqlite", path)
    restored = open_store(path)
    assert list(restored.runs(with_attachments=True)) == runs
    restored.close()


def test_a_damaged_store_is_not_copied_as_if_it_were_whole(tmp_path: Path, samples) -> None:
    from orchestrator.errors import StoreError

    path = tmp_path / "runs.sqlite"
    store = open_store(path)
    fill(store, samples)
    store.close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        page = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'runs'"
        ).fetchone()[0]
        size = connection.execute("PRAGMA page_size").fetchone()[0]
    connection.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\x07" * 64)
    with pytest.raises(StoreError):
        copy_to(path, tmp_path / "copy.sqlite")
    assert sorted(item.name for item in tmp_path.iterdir() if "copy" in item.name) == []


def test_a_dump_of_postgresql_brings_store_and_queue_back(postgresql: Cluster, samples) -> None:
    from orchestrator.extensions.farm.queue import FarmQueue
    from tests.samples.submissions import begin, host_lives, submit

    name = postgresql.create()
    store = open_store(postgresql.url(name))
    fill(store, samples)
    known = list(store.runs(with_attachments=True))
    with FarmQueue(postgresql.url(name)) as queue:
        submit(queue, "A", "B", priority=3)
        host_lives(queue, "one", version="1")
        begin(queue, "A", host="one")
        dump = postgresql.folder / f"{name}.dump"
        postgresql.run("pg_dump", "--format=custom", f"--file={dump}", name)
    store.close()
    restored = postgresql.create()
    postgresql.run("pg_restore", "--exit-on-error", f"--dbname={restored}", str(dump))
    found = open_store(postgresql.url(restored))
    assert list(found.runs(with_attachments=True)) == known
    samples.keep(found, "new", 9)
    found.close()
    with FarmQueue(postgresql.url(restored)) as queue:
        assert [job["status"] for job in queue.jobs("night")] == ["runs", "waits"]
        # Nobody does any more what ran at that moment: it is begun again.
        assert begin(queue, "A", host="one").deaths == 1
