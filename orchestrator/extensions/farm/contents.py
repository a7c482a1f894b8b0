"""The files that a farm's jobs need, by content: kept in the database, copied to hosts, verified."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from orchestrator.errors import HostStorageError, StoreError, UsageError
from orchestrator.extensions.farm.schema import Database
from orchestrator.files import draft_of, make_private, sha256_of

#: What was kept or used within this time stays: a submission that needs it may be on its way.
GRACE_S: Final = 24 * 3600.0
#: Copies that this host didn't use for this time are deleted, and fetched again when they are
#: needed.
CACHED_S: Final = 14 * 24 * 3600.0
_PART_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Cleaned:
    """What a cleaning deleted, or would delete."""

    jobs: int
    files: int
    size_bytes: int


class Contents:
    """Contents of the farm as a host sees them: its own copies, and the database."""

    def __init__(self, database: Database, cache_folder: Path) -> None:
        self._queue = database
        #: Of this host's copies.
        self._folder = cache_folder / "farm-files"
        #: By sha256: the second thread that wants a content finds what the first one fetched.
        self._fetching: dict[str, threading.Lock] = {}

    def keep(self, path: Path, sha256: str) -> bool:
        """Keep a file under its content's hash; return False when it is there already.

        Raises UsageError for a file that changed or can't be read, StoreError.
        """
        digest = hashlib.sha256()
        try:
            with (
                path.open("rb") as file,
                self._queue.connection() as connection,
                connection.transaction(),
            ):
                size_bytes = os.fstat(file.fileno()).st_size
                # It locks the row: whoever brings the same file waits here, and a cleaning leaves
                # it alone.
                connection.execute(
                    "INSERT INTO farm_files (sha256, size_bytes) VALUES (%s, %s)"
                    " ON CONFLICT (sha256) DO UPDATE SET used_at = now()",
                    (sha256, size_bytes),
                )
                kept = connection.execute(
                    "SELECT coalesce(sum(length(data)), 0) FROM farm_file_parts WHERE sha256 = %s",
                    (sha256,),
                ).fetchone()
                if kept == (size_bytes,) and size_bytes:
                    return False
                connection.execute("DELETE FROM farm_file_parts WHERE sha256 = %s", (sha256,))
                for number, part in enumerate(iter(functools.partial(file.read, _PART_BYTES), b"")):
                    digest.update(part)
                    connection.execute(
                        "INSERT INTO farm_file_parts VALUES (%s, %s, %s)", (sha256, number, part)
                    )
                if digest.hexdigest() != sha256:
                    raise UsageError(f"{path} was changed while it was read", hint="submit again")
        except OSError as error:
            raise UsageError(f"{path} can't be read: {error.strerror}") from error
        return True

    def fetch(self, sha256: str, name: str) -> Path:
        """Return this host's copy of a content, named ``name``; it is made when there is none, and
        verified each time.

        Raises StoreError for one that is missing or damaged, HostStorageError when it can't be
        written.
        """
        path = self._folder / sha256 / name
        with self._alone(sha256):
            try:
                if path.is_file() and sha256_of(path) == sha256:
                    os.utime(path)
                    return path
                make_private(path.parent)
                if self._copy(sha256, path):
                    return path
            except OSError as error:
                raise HostStorageError(f"{error.filename or path}: {error.strerror}") from error
        raise StoreError(
            f"{name} (sha256 {sha256[:16]}) is missing or damaged in the farm's database",
            hint="submit the plan again",
        )

    def _copy(self, sha256: str, path: Path) -> bool:
        """Copy a content from the database; return False when it isn't there, or is damaged.

        A damaged one is deleted: whoever has the file brings it again by submitting it.
        """
        draft = draft_of(path)
        digest, number = hashlib.sha256(), 0
        try:
            with draft.open("wb") as file:
                while rows := self._queue.rows(
                    "SELECT data FROM farm_file_parts WHERE sha256 = %s AND part_no = %s",
                    sha256,
                    number,
                ):
                    digest.update(rows[0]["data"])
                    file.write(rows[0]["data"])
                    number += 1
            if digest.hexdigest() == sha256:
                draft.replace(path)
                return True
        finally:
            draft.unlink(missing_ok=True)
        self._queue.rows("DELETE FROM farm_file_parts WHERE sha256 = %s", sha256)
        return False

    def clean(self, *, older_than_s: float, is_trial: bool = False) -> Cleaned:
        """Delete submissions that ended before this age, and the contents that none needs; a trial
        changes nothing.

        Contents that were brought within the last day stay, too.
        """
        with (
            self._queue.connection() as connection,
            connection.transaction(force_rollback=is_trial),
        ):
            ended = connection.execute(
                "WITH ended AS (SELECT submission, count(*) AS jobs FROM farm_jobs GROUP BY submission"
                " HAVING NOT bool_or(status IN ('waits', 'runs'))"
                " AND max(changed_at) < now() - make_interval(secs => %s))"
                " DELETE FROM farm_submissions s USING ended WHERE s.submission = ended.submission RETURNING jobs",
                (older_than_s,),
            ).fetchall()
            files = connection.execute(
                "WITH spare AS MATERIALIZED (SELECT f.sha256 FROM farm_files f"
                " WHERE used_at < now() - make_interval(secs => %s)"
                " AND f.sha256 NOT IN (SELECT unnest(files) FROM farm_submissions) ORDER BY f.sha256 FOR UPDATE OF f)"
                " DELETE FROM farm_files f USING spare WHERE f.sha256 = spare.sha256 RETURNING f.size_bytes",
                (GRACE_S,),
            ).fetchall()
        jobs = sum(count for (count,) in ended)
        return Cleaned(jobs=jobs, files=len(files), size_bytes=sum(size for (size,) in files))

    def clean_copies(self) -> None:
        """Delete this host's copies that weren't used for long; raises HostStorageError."""
        try:
            for path in list(self._folder.glob("*/*")):
                # Another worker of this cache may delete it at the same time.
                with contextlib.suppress(FileNotFoundError):
                    if time.time() - path.stat().st_mtime > CACHED_S:
                        path.unlink()
                        if not any(path.parent.iterdir()):
                            path.parent.rmdir()
        except OSError as error:
            raise HostStorageError(f"{error.filename}: {error.strerror}") from error

    def _alone(self, sha256: str) -> threading.Lock:
        return self._fetching.setdefault(sha256, threading.Lock())
