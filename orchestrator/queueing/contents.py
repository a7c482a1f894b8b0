"""The contents that jobs need, known by their sha256: kept once, verified on arrival and each time they are used."""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg

from orchestrator.errors import HostStorageError, StoreError, UsageError
from orchestrator.files import make_private
from orchestrator.queueing.database import QueueDatabase, told
from orchestrator.queueing.places import DatabasePlace, FolderPlace, Place

#: What was kept or used so lately stays whoever needs it: a submission may be on its way.
GRACE_S: Final = 24 * 3600.0
#: What this host didn't use for so long is fetched again when it is needed.
CACHED_S: Final = 14 * 24 * 3600.0
#: So many files are taken away in a transaction: the database ends one that does nothing for a minute, and a place far
#: away takes its time.
_FILES_AT_ONCE: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """What a cleaning took away, or would."""

    jobs: int
    files: int
    size_bytes: int


class Contents:
    """Contents of the farm as a host sees them: what this host has, its place if it has one, the database."""

    def __init__(self, database: QueueDatabase, folder: Path, *, place: str = "") -> None:
        """Say where this host's copies lie, and the URL of the place where contents go; empty: the database."""
        self._queue = database
        self._database = DatabasePlace(database)
        self._folder = folder
        self._place: Place = FolderPlace(place) if place else self._database
        #: By sha256: who comes second finds what the first one brought.
        self._fetching: dict[str, threading.Lock] = {}

    @property
    def place(self) -> str:
        """The place where contents go, empty for the database."""
        return self._place.name

    @told
    def keep(self, path: Path, sha256: str) -> bool:
        """Keep a file under its content's hash; False when it is there already.

        Raises:
            UsageError: it changed, or can't be read.
            StoreError: the place can't be reached.
        """
        try:
            size_bytes = path.stat().st_size
        except OSError as error:
            raise UsageError(f"{path} can't be read: {error.strerror}") from error
        # Before it is written, so that a cleaning knows of it; new each time, so that it leaves it alone.
        self._queue.rows(
            "WITH file AS (INSERT INTO farm_files (sha256, size_bytes) VALUES (%s, %s)"
            " ON CONFLICT (sha256) DO UPDATE SET used_at = now() RETURNING sha256)"
            " INSERT INTO farm_file_places SELECT sha256, %s FROM file ON CONFLICT DO NOTHING",
            sha256,
            size_bytes,
            self._place.name,
        )
        if self._place.holds(sha256, size_bytes):
            return False
        if self._place.write(sha256, path) != sha256:
            raise UsageError(f"{path} was changed while it was read", hint="submit again")
        return True

    @told
    def fetch(self, sha256: str, name: str, *, put_in: str = "") -> Path:
        """Return this host's copy of a content, made when there is none; verified each time.

        Args:
            sha256: The content.
            name: The file's bare name here.
            put_in: Where it was put, as far as is known; for the message when it isn't found.

        Raises:
            StoreError: it is nowhere, or damaged wherever it is.
            HostStorageError: it can't be written.
        """
        with self._alone(sha256):
            return self._fetched(sha256, name, put_in)

    def _fetched(self, sha256: str, name: str, put_in: str) -> Path:
        path = self._folder / sha256 / name
        try:
            if path.is_file() and _sha256(path) == sha256:
                os.utime(path)
                return path
            make_private(path.parent)
            unreachable: StoreError | None = None
            for place in dict.fromkeys((self._place, self._database)):
                try:
                    if self._arrived(place, sha256, path):
                        return path
                except StoreError as error:
                    # It may lie in the database.
                    unreachable = unreachable or error
        except OSError as error:
            raise HostStorageError(f"{error.filename or path}: {error.strerror}") from error
        if unreachable is not None:
            raise unreachable
        there = " and ".join(dict.fromkeys((self._place.name or "the farm's database", "the farm's database")))
        elsewhere = f"; it was put into {put_in}" if put_in not in {"", self._place.name} else ""
        raise StoreError(
            f"{name} (sha256 {sha256[:16]}) is missing or damaged in {there}{elsewhere}",
            hint="set BENCHFARM_ARTIFACTS here as for 'farm submit'" if elsewhere else "submit the plan again",
        )

    def _arrived(self, place: Place, sha256: str, path: Path) -> bool:
        """Copy a content from a place; False when it isn't there. What is damaged there is taken away."""
        draft = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.part")
        digest, any_came = hashlib.sha256(), False
        try:
            with draft.open("wb") as file:
                for part in place.parts(sha256):
                    any_came = True
                    digest.update(part)
                    file.write(part)
            if digest.hexdigest() == sha256:
                draft.replace(path)
                return True
        finally:
            draft.unlink(missing_ok=True)
        if any_came:
            # Whoever has the file brings it again by submitting it; with the damaged one there nobody would.
            place.remove(sha256)
        return False

    @told
    def clean(self, *, older_than_s: float, is_trial: bool = False) -> Cleaned:
        """Forget jobs that ended so long ago, and the contents that no job needs any more; a trial changes nothing.

        A job of a submission that is open stays: by it, its phone keeps its place there.

        What a submission that was killed left half written goes too. Contents in a place that isn't this host's stay,
        and those that were brought within the last day, however young the jobs may be: a submission may be on its way.
        """
        with self._queue.connection() as connection, connection.transaction(force_rollback=is_trial):
            jobs = _forget_jobs(connection, older_than_s)
            # A trial asks here, where the jobs are gone; else what is taken away stays so, whatever fails after it.
            files = self._take_files(connection, None) if is_trial else []
        while not is_trial:
            with self._queue.connection() as connection, connection.transaction():
                taken = self._take_files(connection, _FILES_AT_ONCE)
                if self._place is not self._database:
                    # While the rows are locked: whoever wants to keep one of them waits, and then brings it again.
                    for sha256, _ in taken:
                        self._place.remove(sha256)
            files += taken
            if len(taken) < _FILES_AT_ONCE:
                break
        drafts = self._place.remove_drafts(older_than_s=GRACE_S, is_trial=is_trial)
        sizes = [*(size for _, size in files), *drafts]
        return Cleaned(jobs=jobs, files=len(sizes), size_bytes=sum(sizes))

    def _take_files(self, connection: psycopg.Connection[Any], most: int | None) -> list[tuple[str, int]]:
        """Forget contents that nothing needs any more, None: all of them; return them with their sizes."""
        return connection.execute(
            "WITH spare AS MATERIALIZED (SELECT f.sha256 FROM farm_files f"
            " WHERE used_at < now() - make_interval(secs => %s)"
            " AND NOT EXISTS (SELECT 1 FROM farm_job_files u WHERE u.sha256 = f.sha256)"
            " AND NOT EXISTS (SELECT 1 FROM farm_schedule_files u WHERE u.sha256 = f.sha256)"
            " AND NOT EXISTS (SELECT 1 FROM farm_submission_files u WHERE u.sha256 = f.sha256)"
            " AND NOT EXISTS (SELECT 1 FROM farm_file_places p WHERE p.sha256 = f.sha256 AND p.place <> ALL(%s))"
            " ORDER BY f.sha256 LIMIT %s FOR UPDATE OF f)"
            " DELETE FROM farm_files f USING spare WHERE f.sha256 = spare.sha256 RETURNING f.sha256, f.size_bytes",
            (GRACE_S, ["", self._place.name], most),
        ).fetchall()

    def clean_copies(self, *, older_than_s: float = CACHED_S, is_trial: bool = False) -> Cleaned:
        """Take this host's copies away that weren't used for so long; raises HostStorageError."""
        files, size_bytes = 0, 0
        try:
            for path in self._copies():
                # A job may be about to use it.
                with self._alone(path.parent.name):
                    found = path.stat()
                    if time.time() - found.st_mtime > older_than_s:
                        files, size_bytes = files + 1, size_bytes + found.st_size
                        if not is_trial:
                            path.unlink(missing_ok=True)
                            if not any(path.parent.iterdir()):
                                path.parent.rmdir()
        except OSError as error:
            raise HostStorageError(f"{error.filename}: {error.strerror}") from error
        return Cleaned(jobs=0, files=files, size_bytes=size_bytes)

    def _alone(self, sha256: str) -> threading.Lock:
        return self._fetching.setdefault(sha256, threading.Lock())

    def _copies(self) -> Sequence[Path]:
        return sorted(path for path in self._folder.glob("*/*") if path.is_file()) if self._folder.is_dir() else []


def _forget_jobs(connection: psycopg.Connection[Any], older_than_s: float) -> int:
    """Forget the jobs that ended so long ago, and the submissions of which none is left; return how many jobs."""
    ended = connection.execute(
        "SELECT f.job_id, f.submission FROM farm_jobs f WHERE (SELECT max(e.at) FROM procrastinate_events e"
        " WHERE e.job_id = f.job_id) < now() - make_interval(secs => %s)"
        " AND NOT EXISTS (SELECT 1 FROM farm_jobs o JOIN procrastinate_jobs j ON j.id = o.job_id"
        " WHERE o.submission = f.submission AND j.status IN ('todo', 'doing'))",
        (older_than_s,),
    ).fetchall()
    numbers = [row[0] for row in ended]
    # In the order of QueueDatabase.brief. A submission whose every job has ended is never open again.
    connection.execute(
        "SELECT 1 FROM farm_submissions WHERE submission = ANY(%s) ORDER BY submission FOR UPDATE",
        (sorted({row[1] for row in ended}),),
    )
    connection.execute("SELECT 1 FROM procrastinate_jobs WHERE id = ANY(%s) ORDER BY id FOR UPDATE", (numbers,))
    jobs = connection.execute("DELETE FROM farm_jobs WHERE job_id = ANY(%s) RETURNING job_id", (numbers,)).fetchall()
    connection.execute("DELETE FROM procrastinate_jobs WHERE id = ANY(%s)", ([row[0] for row in jobs],))
    connection.execute(
        "DELETE FROM farm_submissions s WHERE NOT EXISTS (SELECT 1 FROM farm_jobs f WHERE f.submission = s.submission)"
    )
    return len(jobs)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
