"""What was fetched and added, and when: files that came together, each under its sha256, and which
of them are in use.

The public addresses have a new content every night and publish no checksum. So each content that
was ever seen stays here with its date, the newest isn't taken for the one in use, and going back is
choosing another.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from orchestrator.documents import adapter_of, dump_document
from orchestrator.errors import ArtifactError, HostStorageError
from orchestrator.files import sha256_of as sum_of
from orchestrator.files import write_whole
from orchestrator.locks import Locks
from orchestrator.records.case import Build, BuildSha, ToolName

_LOCK_WAIT_S: Final = 120.0
#: How the folders begin in which copies are made.
_DRAFT: Final = ".adding-"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFile:
    """One file of a release."""

    name: str
    #: Empty until it was computed.
    sha256: str = ""
    size_bytes: int = 0
    #: Where it came from; empty for a file that was added by hand.
    url: str = ""
    #: Names what a library was made with when that isn't the program: ``hexagon``.
    group: str = ""
    #: Which release of that group; empty when unknown.
    tag: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A file that is to be kept or used, and what is known of it."""

    path: Path
    file: ReleaseFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A program and the libraries that belong to it, as they came together."""

    #: The build's name.
    name: str
    #: For which it was fetched; else those that it is built for, empty text for one that runs
    #: everywhere.
    abis: tuple[str, ...]
    #: Which release it is, as the address or the user says: ``2.1.0``, ``latest 2026-11-21``; empty
    #: when unknown.
    tag: str
    seen_at: datetime
    #: The program first.
    files: tuple[ReleaseFile, ...]
    tool: ToolName
    #: What the program says about itself.
    built_for: tuple[str, ...]
    version: str
    package: str
    is_virtual: bool

    @property
    def program(self) -> ReleaseFile:
        """The program among its files."""
        return self.files[0]

    @property
    def libraries(self) -> tuple[ReleaseFile, ...]:
        """The files beside the program."""
        return self.files[1:]

    @property
    def release_id(self) -> str:
        """What its contents are known by, as 12 hexadecimal digits; the program's own without
        libraries.
        """
        if not self.libraries:
            return self.program.sha256[:12]
        contents = "\n".join(
            [self.program.sha256, *sorted(f"{file.name} {file.sha256}" for file in self.libraries)]
        )
        return hashlib.sha256(contents.encode()).hexdigest()[:12]

    def build(self, path: Path | None) -> Build:
        """Return its program, which lies at ``path``, without the libraries."""
        return Build(
            name=self.name,
            tool=self.tool,
            sha256=BuildSha(self.program.sha256),
            abi=",".join(self.built_for),
            version=self.version,
            package=self.package,
            is_virtual=self.is_virtual,
            path=path,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A build's file: its releases, the one seen last at the end, and the ids of those in use by
    ABI.
    """

    pinned: dict[str, str]
    releases: tuple[Release, ...]


class Archive:
    """A folder of kept files and releases; safe for several processes.

    Each content has a folder named by its sha256, which appears by one rename, so that it is whole
    or not there. Each build's name has a file ``releases/NAME.json``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._releases = folder / "releases"

    # Contents
    # ---------------------------------------------------------------------------------------------------------

    def path(self, sha256: str) -> Path | None:
        """Return where a content lies, None when it isn't there; it isn't hashed again."""
        return next((self._folder / sha256).glob("*"), None) if sha256 else None

    def is_whole(self, file: ReleaseFile) -> bool:
        """Whether a file of a release lies there with the content that it had."""
        path = self.path(file.sha256)
        return path is not None and sha256_of(path) == file.sha256

    def keep(self, source: Path, *, sha256: str, name: str) -> Path:
        """Take a copy of a file and return where it lies; what is there whole already stays.

        ``name``: what the copy is called; made harmless, as it ends up in paths on phones. Raises
        ArtifactError when the file can't be copied or isn't that content any more,
        HostStorageError.
        """
        name = re.sub(r"[^A-Za-z0-9._-]", "_", name).lstrip(".-")[:100] or "program"
        home = self._folder / sha256
        with self._locked(
            self._folder, "archive", what=f"{str(source)!r} can't be copied to {self._folder}"
        ):
            there = self.path(sha256)
            if there is not None and sha256_of(there) == sha256:
                return there
            for left in self._folder.glob(f"{_DRAFT}*"):
                # Left by a killed process: this one holds the lock.
                shutil.rmtree(left, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix=_DRAFT, dir=self._folder) as draft:
                entry = Path(draft) / "entry"
                entry.mkdir()
                with (entry / name).open("xb") as copy, source.open("rb") as original:
                    shutil.copyfileobj(original, copy, 1 << 20)
                    copy.flush()
                    os.fsync(copy.fileno())
                if sha256_of(entry / name) != sha256:
                    raise ArtifactError(
                        f"{str(source)!r} changed while it was copied", hint="try again"
                    )
                (entry / name).chmod(0o755)
                shutil.rmtree(home, ignore_errors=True)  # what damage left there
                entry.rename(home)
            return home / name

    # Releases
    # ---------------------------------------------------------------------------------------------------------

    def names(self) -> Sequence[str]:
        """Return the names that something is known of."""
        return sorted(path.stem for path in self._releases.glob("*.json"))

    def releases(self, name: str) -> Sequence[Release]:
        """Return the releases of a build, the one seen last at the end.

        Raises ArtifactError for a damaged file.
        """
        return self._read(name)[0]

    def all(self) -> list[Release]:
        """Return the releases of all builds, by name, the oldest first within one name."""
        return [release for name in self.names() for release in self.releases(name)]

    def pinned(self, name: str, abi: str) -> Release | None:
        """Return the release that is in use for an ABI, None when none was chosen."""
        releases, pins = self._read(name)
        return next((item for item in reversed(releases) if item.release_id == pins.get(abi)), None)

    def record(self, release: Release, *, pin: bool) -> Release:
        """Keep a release; put it in use for its ABIs if ``pin``, or where none is.

        One with the same contents that is known keeps its date and where it came from, and becomes
        the last one.
        """
        with self._changing(release.name) as (releases, pins):
            known = (
                item
                for item in releases
                if (item.release_id, item.abis) == (release.release_id, release.abis)
            )
            if (same := next(known, None)) is not None:
                releases.remove(same)
                files = release.files if release.program.url else same.files
                release = replace(
                    release, seen_at=same.seen_at, tag=release.tag or same.tag, files=files
                )
            releases.append(release)
            pins.update({abi: release.release_id for abi in release.abis if pin or abi not in pins})
        return release

    def pin(self, release: Release) -> None:
        """Put a known release in use for its ABIs."""
        with self._changing(release.name) as (_, pins):
            pins.update(dict.fromkeys(release.abis, release.release_id))

    def tags_of(self, sha256: str) -> frozenset[str]:
        """Return the releases, as tags, that a content is known to belong to."""
        found = (
            (release, file)
            for release in self.all()
            for file in release.files
            if file.sha256 == sha256
        )
        return frozenset(
            tag for release, file in found if (tag := file.tag if file.group else release.tag)
        )

    @contextmanager
    def _changing(self, name: str) -> Iterator[tuple[list[Release], dict[str, str]]]:
        with self._locked(self._releases, name, what=f"what is known of {name!r} can't be written"):
            releases, pins = self._read(name)
            yield releases, pins
            known = _Known(pinned=pins, releases=tuple(releases))
            path = self._releases / f"{name}.json"
            write_whole(path, dump_document(known) + "\n", is_private=False)

    def _read(self, name: str) -> tuple[list[Release], dict[str, str]]:
        path = self._releases / f"{name}.json"
        try:
            known = adapter_of(_Known).validate_json(path.read_bytes(), strict=True)
            if not all(release.files for release in known.releases):
                raise ValueError("a release without files")
            return list(known.releases), dict(known.pinned)
        except FileNotFoundError:
            return [], {}
        except (OSError, ValueError) as error:
            raise ArtifactError(
                f"{path} can't be read: {error}",
                hint="remove it, then fetch or add the build's programs again",
            ) from error

    @contextmanager
    def _locked(self, folder: Path, name: str, *, what: str) -> Iterator[None]:
        """Change the folder alone.

        Raises ArtifactError, HostStorageError for what the file system refuses.
        """
        busy = ArtifactError(f"another benchfarm has been changing {folder} for {_LOCK_WAIT_S:g} s")
        try:
            with Locks(folder).held(name, wait_s=_LOCK_WAIT_S, busy=busy):
                yield
        except (OSError, HostStorageError) as error:
            # A lock that can't be had says why.
            cause = error if isinstance(error, OSError) else error.__cause__
            if not isinstance(cause, OSError):
                raise
            if cause.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise HostStorageError(f"no space left in {folder}") from error
            raise ArtifactError(f"{what}: {cause.strerror}") from error


def sha256_of(path: Path | None) -> str:
    """Return the hash of a file's content, empty when it can't be read."""
    try:
        return "" if path is None else sum_of(path)
    except OSError:
        return ""
