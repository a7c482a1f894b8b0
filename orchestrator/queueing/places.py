"""Where the bytes of contents lie: in the queue's database, or in a folder that fsspec reaches (a share, S3, ...)."""

from __future__ import annotations

import functools
import hashlib
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

import psycopg

from orchestrator.errors import StoreError, UsageError
from orchestrator.queueing.database import QueueDatabase

_PART_BYTES: Final = 4 << 20
#: What is still being written is named so.
_DRAFT: Final = ".part"
#: Below the root; whatever else lies there is other people's.
_OWN_DRAFT: Final = re.compile(r"(?P<two>[0-9a-f]{2})/(?P=two)[0-9a-f]{62}\.[0-9a-f]{8}" + re.escape(_DRAFT))


class Place(Protocol):
    """A room for contents. Everything raises StoreError."""

    #: What people call it; empty for the database.
    name: str

    def holds(self, sha256: str, size_bytes: int) -> bool:
        """Whether a content of this size is there."""

    def write(self, sha256: str, path: Path) -> str:
        """Take a file in as this content, all of it or nothing; return the sha256 of what was read."""

    def parts(self, sha256: str) -> Iterator[bytes]:
        """Give a content in parts, none when it isn't there."""

    def remove(self, sha256: str) -> None:
        """Take a content away, if it is there."""

    def remove_drafts(self, *, older_than_s: float, is_trial: bool) -> list[int]:
        """Take away what somebody left who died while it was written; return the sizes in bytes."""


class DatabasePlace:
    """Rows of the queue's database, 4 MB each."""

    name = ""

    def __init__(self, database: QueueDatabase) -> None:
        self._database = database

    def holds(self, sha256: str, size_bytes: int) -> bool:
        """See Place."""
        row = self._database.rows(
            "SELECT coalesce(sum(length(data)), 0) AS size_bytes FROM farm_file_parts WHERE sha256 = %s", sha256
        )[0]
        return int(row["size_bytes"]) == size_bytes and size_bytes > 0

    def write(self, sha256: str, path: Path) -> str:
        """See Place. The content must be known to the queue before."""
        digest = hashlib.sha256()
        with self._database.connection() as connection, connection.transaction(), path.open("rb") as file:
            # Several may bring it at once; the second waits here for the first.
            connection.execute("SELECT 1 FROM farm_files WHERE sha256 = %s FOR UPDATE", (sha256,))
            connection.execute("DELETE FROM farm_file_parts WHERE sha256 = %s", (sha256,))
            for number, part in enumerate(iter(functools.partial(file.read, _PART_BYTES), b"")):
                digest.update(part)
                connection.execute("INSERT INTO farm_file_parts VALUES (%s, %s, %s)", (sha256, number, part))
            if digest.hexdigest() != sha256:
                raise psycopg.Rollback
        return digest.hexdigest()

    def parts(self, sha256: str) -> Iterator[bytes]:
        """See Place."""
        number = 0
        while rows := self._database.rows(
            "SELECT data FROM farm_file_parts WHERE sha256 = %s AND part_no = %s", sha256, number
        ):
            yield bytes(rows[0]["data"])
            number += 1

    def remove(self, sha256: str) -> None:
        """See Place."""
        self._database.rows("DELETE FROM farm_file_parts WHERE sha256 = %s", sha256)

    def remove_drafts(self, *, older_than_s: float, is_trial: bool) -> list[int]:
        """See Place. A transaction leaves none."""
        return []


class FolderPlace:
    """A folder by its URL, a file for each content: whatever fsspec has a driver for."""

    def __init__(self, url: str) -> None:
        """Raises UsageError for a URL that no installed driver reads."""
        import fsspec

        self.name = url
        try:
            self._files, root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise UsageError(
                f"BENCHFARM_ARTIFACTS={url}: {error}", hint="for example file:///srv/benchfarm or s3://bucket/benchfarm"
            ) from error
        self._root = str(root).rstrip("/")
        protocol = self._files.protocol
        #: Where paths begin with a bucket there are no folders, and making one would make a bucket of a wrong name.
        self._has_folders = self._root.startswith("/") or "file" in (
            (protocol,) if isinstance(protocol, str) else protocol
        )

    def _path(self, sha256: str) -> str:
        return f"{self._root}/{sha256[:2]}/{sha256}"

    def _see_root(self) -> None:
        """Raise FileNotFoundError for a share that isn't mounted: it has no files, and none are made in its place."""
        if self._has_folders:
            self._files.info(self._root)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise StoreError(
                f"{self.name}: {str(error) or 'there is no such place'}",
                hint="make the bucket or folder, or put BENCHFARM_ARTIFACTS right",
            ) from error
        except PermissionError as error:
            raise StoreError(
                f"{self.name}: {str(error) or 'no permission'}",
                hint="give this host credentials that may read, write, list and delete there",
            ) from error
        except Exception as error:
            # Each driver has its own errors, and this program may know none of them.
            raise StoreError(
                f"{self.name}: {str(error) or type(error).__name__}",
                hint="see that this host reaches the place, then ask again",
            ) from error

    def holds(self, sha256: str, size_bytes: int) -> bool:
        """See Place."""
        with self._told():
            # Drivers remember listings; another host may have brought it since.
            self._files.invalidate_cache()
            try:
                return bool(self._files.size(self._path(sha256)) == size_bytes)
            except FileNotFoundError:
                return False

    def write(self, sha256: str, path: Path) -> str:
        """See Place."""
        digest, kept = hashlib.sha256(), self._path(sha256)
        draft = f"{kept}.{secrets.token_hex(4)}{_DRAFT}"
        with self._told():
            if self._has_folders:
                self._see_root()
                self._files.makedirs(kept.rpartition("/")[0], exist_ok=True)
            try:
                with path.open("rb") as file, self._files.open(draft, "wb") as out:
                    for part in iter(functools.partial(file.read, _PART_BYTES), b""):
                        digest.update(part)
                        out.write(part)
                if digest.hexdigest() == sha256:
                    self._files.mv(draft, kept)
            finally:
                if self._files.exists(draft):
                    self._files.rm_file(draft)
        return digest.hexdigest()

    def parts(self, sha256: str) -> Iterator[bytes]:
        """See Place."""
        with self._told():
            self._files.invalidate_cache()
            try:
                # Opened, not asked whether it exists: drivers deny that too when they can't reach the place.
                file = self._files.open(self._path(sha256), "rb")
            except FileNotFoundError:
                self._see_root()
                return
        try:
            while True:
                with self._told():
                    part = file.read(_PART_BYTES)
                if not part:
                    return
                yield bytes(part)
        finally:
            file.close()

    def remove(self, sha256: str) -> None:
        """See Place."""
        with self._told():
            try:
                self._files.rm_file(self._path(sha256))
            except FileNotFoundError:
                self._see_root()

    def remove_drafts(self, *, older_than_s: float, is_trial: bool) -> list[int]:
        """See Place."""
        sizes: list[int] = []
        with self._told():
            self._files.invalidate_cache()
            for path in self._files.find(self._root, maxdepth=2):
                if (
                    not _OWN_DRAFT.fullmatch(path.removeprefix(f"{self._root}/"))
                    or (datetime.now(UTC) - self._changed_at(path)).total_seconds() < older_than_s
                ):
                    continue
                sizes.append(int(self._files.size(path) or 0))
                if not is_trial:
                    self._files.rm_file(path)
        return sizes

    def _changed_at(self, path: str) -> datetime:
        changed_at: datetime = self._files.modified(path)
        return changed_at if changed_at.tzinfo is not None else changed_at.replace(tzinfo=UTC)
