"""The archive of fetched and added releases: their files by sha256, with their dates.

The public addresses have a new content every night and publish no checksum. So each content stays
here with its date, and an older one can be chosen again.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final

from orchestrator.documents import adapter_of, dump_document
from orchestrator.errors import ArtifactError, HostStorageError
from orchestrator.files import is_disk_full, safe_name, sha256_of, write_whole
from orchestrator.processes import Locks
from orchestrator.records import frozen
from orchestrator.records.case import Build, BuildSha, ToolName

_LOCK_WAIT_S: Final = 120.0


@frozen
class ReleaseFile:
    """One file of a release."""

    name: str
    sha256: str
    #: Where it came from; empty for a file that was added by hand.
    url: str = ""


@frozen
class Release:
    """A program with the libraries that were fetched or added together with it."""

    #: The build's name.
    name: str
    #: For which it was fetched; else those that it is built for, empty text for one that runs
    #: everywhere.
    abis: tuple[str, ...]
    #: Which release it is, from the address or the user: ``2.1.0``, ``latest 2026-11-21``; empty
    #: when unknown.
    tag: str
    seen_at: datetime
    #: The program first.
    files: tuple[ReleaseFile, ...]
    tool: ToolName
    #: The program's facts.
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
        """12 hexadecimal digits that identify its contents; the program's own without libraries."""
        if not self.libraries:
            return self.program.sha256[:12]
        contents = "\n".join(
            [self.program.sha256, *sorted(f"{file.name} {file.sha256}" for file in self.libraries)]
        )
        return hashlib.sha256(contents.encode()).hexdigest()[:12]

    @property
    def address(self) -> str:
        """The name that people use for it: ``NAME@DIGITS``."""
        return f"{self.name}@{self.release_id}"

    def build(self, path: Path) -> Build:
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


@frozen
class _BuildReleases:
    """A build's file: its releases; the last one for an ABI is in use."""

    releases: tuple[Release, ...]


class Archive:
    """A folder of kept files and releases; safe for several processes.

    Each content has a folder named by its sha256, which appears by one rename, so that it is whole
    or not there. Each build's name has a file ``releases/NAME.json``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._releases = folder / "releases"

    def path(self, sha256: str) -> Path | None:
        """Return the path of a content, None when it isn't there; it isn't hashed again."""
        return next((self._folder / sha256).glob("*"), None)

    def keep(self, source: Path, *, sha256: str, name: str) -> None:
        """Copy a file into the archive; an undamaged copy that is there already stays.

        ``name``: the copy's name, made safe for paths on phones. Raises ArtifactError when the file
        can't be copied or its content has changed, HostStorageError.
        """
        with self._locked("archive", failure=f"{str(source)!r} can't be copied to {self._folder}"):
            existing = self.path(sha256)
            if existing is not None and sha256_of(existing) == sha256:
                return
            for leftover in self._folder.glob(".adding-*"):  # by a process that was killed
                shutil.rmtree(leftover, ignore_errors=True)
            with tempfile.TemporaryDirectory(prefix=".adding-", dir=self._folder) as draft:
                entry = Path(draft) / "entry"
                entry.mkdir()
                copy = entry / safe_name(name)
                shutil.copyfile(source, copy)
                if sha256_of(copy) != sha256:
                    raise ArtifactError(f"{str(source)!r} changed while it was copied")
                copy.chmod(0o755)
                home = self._folder / sha256
                shutil.rmtree(home, ignore_errors=True)  # what damage left there
                entry.rename(home)

    def releases(self, name: str) -> Sequence[Release]:
        """Return the releases of a build; of those for one ABI the last is in use.

        Raises ArtifactError for a damaged file.
        """
        path = self._releases / f"{name}.json"
        try:
            releases = (
                adapter_of(_BuildReleases).validate_json(path.read_bytes(), strict=True).releases
            )
            if not all(release.files for release in releases):
                raise ValueError("a release without files")
            return releases
        except FileNotFoundError:
            return ()
        except (OSError, ValueError) as error:
            raise ArtifactError(
                f"{path} can't be read: {error}",
                hint="remove it, then fetch or add the build's programs again",
            ) from error

    def all(self) -> list[Release]:
        """Return the releases of all builds, by name, the one in use last within one name."""
        names = sorted(path.stem for path in self._releases.glob("*.json"))
        return [release for name in names for release in self.releases(name)]

    def tags_of(self, sha256: str) -> set[str]:
        """Return the tags of the releases that a content came with; a file that the user added to a
        fetched program has none.
        """
        return {
            release.tag
            for release in self.all()
            for file in release.files
            if file.sha256 == sha256 and release.tag and (file.url or not release.program.url)
        }

    def in_use(self, name: str, abi: str) -> Release | None:
        """Return the release that is in use for an ABI, None for none."""
        return next((item for item in reversed(self.releases(name)) if abi in item.abis), None)

    def use(self, release: Release) -> Release:
        """Keep a release, and put it in use for its ABIs.

        A release with the same contents that is here already keeps its date and origin.
        """
        with self._locked(release.name, failure=f"{release.name!r} can't be recorded"):
            releases = list(self.releases(release.name))
            for earlier in releases:
                if (earlier.release_id, earlier.abis) == (release.release_id, release.abis):
                    releases.remove(earlier)
                    files = release.files if release.program.url else earlier.files
                    tag = release.tag or earlier.tag
                    release = replace(release, seen_at=earlier.seen_at, tag=tag, files=files)
                    break
            stored = _BuildReleases(releases=(*releases, release))
            path = self._releases / f"{release.name}.json"
            write_whole(path, dump_document(stored) + "\n", is_private=False)
        return release

    @contextmanager
    def _locked(self, name: str, *, failure: str) -> Iterator[None]:
        """Hold the folder's lock while the context lasts; ``failure`` begins the error's message.

        Raises ArtifactError, HostStorageError for what the file system refuses.
        """
        busy = ArtifactError(f"another benchfarm has been changing it for {_LOCK_WAIT_S:g} s")
        try:
            with Locks(self._folder).held(name, wait_s=_LOCK_WAIT_S, busy=busy):
                yield
        except (OSError, HostStorageError) as error:
            # The reason why a lock can't be taken is the error's cause.
            cause = error if isinstance(error, OSError) else error.__cause__
            if not isinstance(cause, OSError):
                raise
            if is_disk_full(cause):
                raise HostStorageError(f"no space left in {self._folder}") from error
            raise ArtifactError(f"{failure}: {cause.strerror}") from error
