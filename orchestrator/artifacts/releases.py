"""What was fetched and added, and when: sets of files that came together, and which of them is in use.

The public addresses have a new content every night and publish no checksum. So each content that was ever seen stays
here with its date, the newest isn't taken for the one in use, and going back is choosing another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from orchestrator.documents import adapter_of, dump_document
from orchestrator.errors import ArtifactError
from orchestrator.files import make_private, write_whole

_LOCK_WAIT_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFile:
    """One file of a release."""

    name: str
    sha256: str
    size_bytes: int
    #: Where it came from and what its server told it by; empty for a file that was added by hand.
    url: str = ""
    etag: str = ""
    last_modified: str = ""
    #: Names what a library was made with when that isn't the program: ``hexagon``.
    group: str = ""
    #: Which release of that group; empty when unknown.
    tag: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """A program and the libraries that belong to it, as they came together."""

    name: str = ""
    abis: tuple[str, ...]
    #: Which release it is, as the address or the user says: ``2.1.0``, ``latest 2026-11-21``; empty when unknown.
    tag: str
    seen_at: datetime
    #: The program first.
    files: tuple[ReleaseFile, ...]

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
        """What its contents are known by, as 12 hexadecimal digits; the program's own without libraries."""
        if not self.libraries:
            return self.program.sha256[:12]
        contents = "\n".join([self.program.sha256, *sorted(f"{file.name} {file.sha256}" for file in self.libraries)])
        return hashlib.sha256(contents.encode()).hexdigest()[:12]


class ReleaseHistory:
    """The releases of all builds, one JSON file for each name; safe for several processes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> Sequence[str]:
        """Return the names that something is known of."""
        return sorted(path.stem for path in self._folder.glob("*.json")) if self._folder.is_dir() else []

    def releases(self, name: str) -> Sequence[Release]:
        """Return the releases of a build, the one seen last at the end; raises ArtifactError for a damaged file."""
        return self._read(name)[0]

    def pinned(self, name: str, abi: str) -> Release | None:
        """Return the release that is in use for an ABI, None when none was chosen."""
        releases, pins = self._read(name)
        return next((item for item in reversed(releases) if item.release_id == pins.get(abi)), None)

    def record(self, release: Release, *, pin: bool) -> Release:
        """Keep a release; put it in use for its ABIs if ``pin``, or where none is.

        One with the same contents that is known keeps its date and where it came from, and becomes the last one.
        """
        with self._changing(release.name) as (releases, pins):
            same = next((item for item in releases if _same(item, release)), None)
            if same is not None:
                releases.remove(same)
                files = release.files if release.program.url else same.files
                release = replace(release, seen_at=same.seen_at, tag=release.tag or same.tag, files=files)
            releases.append(release)
            for abi in release.abis:
                if pin or abi not in pins:
                    pins[abi] = release.release_id
        return release

    def pin(self, release: Release) -> None:
        """Put a known release in use for its ABIs."""
        with self._changing(release.name) as (_, pins):
            for abi in release.abis:
                pins[abi] = release.release_id

    def tags_of(self, sha256: str) -> frozenset[str]:
        """Return the releases, as tags, that a content is known to belong to."""
        return frozenset(
            tag
            for name in self.names()
            for release in self.releases(name)
            for file in release.files
            if file.sha256 == sha256 and (tag := file.tag if file.group else release.tag)
        )

    @contextmanager
    def _changing(self, name: str) -> Iterator[tuple[list[Release], dict[str, str]]]:
        from filelock import FileLock, Timeout

        make_private(self._folder)
        try:
            with FileLock(self._folder / f".{name}.lock", timeout=_LOCK_WAIT_S):
                releases, pins = self._read(name)
                yield releases, pins
                known = _Known(pinned=pins, releases=tuple(releases))
                write_whole(self._folder / f"{name}.json", dump_document(known) + "\n")
        except Timeout as error:
            raise ArtifactError(f"another benchfarm has been changing {name!r} for {_LOCK_WAIT_S:g} s") from error

    def _read(self, name: str) -> tuple[list[Release], dict[str, str]]:
        path = self._folder / f"{name}.json"
        try:
            known = adapter_of(_Known).validate_json(path.read_bytes(), strict=True)
            if not all(release.files for release in known.releases):
                raise ValueError("a release without files")
            return [replace(release, name=name) for release in known.releases], dict(known.pinned)
        except FileNotFoundError:
            return [], {}
        except (OSError, ValueError) as error:
            raise ArtifactError(
                f"{path} can't be read: {error}",
                hint="remove it; the programs stay, only their history is lost: then fetch or add them again",
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A build's file: its releases, and the ids of those in use by ABI."""

    pinned: dict[str, str]
    releases: tuple[Release, ...]


def _same(one: Release, other: Release) -> bool:
    return one.release_id == other.release_id and one.abis == other.abis
