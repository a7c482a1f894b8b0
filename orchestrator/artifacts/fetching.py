"""Fetching what a build file names: the program and its libraries from one place, as one release."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final

from orchestrator.artifacts.archive import Arrival, Release, ReleaseFile
from orchestrator.artifacts.download import Downloader, shown
from orchestrator.artifacts.library import BuildLibrary
from orchestrator.clock import Clock, SystemClock
from orchestrator.errors import NotThereError
from orchestrator.records.build_spec import BuildSpec

_VERSION: Final = re.compile(r"/v?(\d+(?:\.\d+)+[A-Za-z0-9.+-]*)/")


class FetchStatus(enum.StrEnum):
    """What fetching a build came to."""

    #: The first one that was seen.
    NEW = "new"
    #: The address still has what was fetched last.
    UNCHANGED = "unchanged"
    #: The address has another content than last time.
    CHANGED = "changed"
    #: There is nothing to download; a person builds it.
    RECIPE = "recipe"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileProgress:
    """How far a download is."""

    name: str
    received_bytes: int
    #: None when the server doesn't tell.
    total_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What fetching one build for one ABI came to."""

    name: str
    abi: str
    status: FetchStatus
    #: What the address has now; None for a recipe.
    release: Release | None = None
    #: What was fetched from there before, when that is something else.
    previous: Release | None = None
    #: What is used from now on.
    in_use: Release | None = None
    #: Optional libraries that the place doesn't have.
    absent: tuple[str, ...] = ()
    #: The commands to build it with.
    recipe: tuple[str, ...] = ()


class BuildFetcher:
    """Brings declared builds into the library."""

    def __init__(
        self, library: BuildLibrary, downloader: Downloader, *, clock: Clock | None = None
    ) -> None:
        self._library = library
        self._downloader = downloader
        self._clock = clock or SystemClock()

    def fetch(
        self,
        spec: BuildSpec,
        *,
        keep_pin: bool = False,
        on_progress: Callable[[FileProgress], None] | None = None,
    ) -> Fetched:
        """Fetch one build for one ABI.

        Args:
            spec: What is declared of it.
            keep_pin: Go on using what is in use; what is new is kept beside it.
            on_progress: Hears how far each file is.

        Raises:
            DownloadError: a file couldn't be fetched whole.
            ArtifactError: what came isn't what is declared, or doesn't belong together. Nothing is
                kept then.
            HostStorageError: no space left.
        """
        if spec.recipe:
            return Fetched(
                name=spec.name, abi=spec.abi, status=FetchStatus.RECIPE, recipe=spec.recipe
            )
        fetch = self._from_folder if spec.file else self._from_server
        before = [
            release
            for release in self._library.archive.releases(spec.name)
            if spec.abi in release.abis
        ]
        release, absent = fetch(spec, keep_pin, on_progress or (lambda _: None))
        # Only what came from the same address says whether that address has changed.
        before = [item for item in before if item.program.url == release.program.url]
        last = before[-1] if before else None
        changed = last is not None and last.release_id != release.release_id
        return Fetched(
            name=spec.name,
            abi=spec.abi,
            status=FetchStatus.NEW
            if last is None
            else FetchStatus.CHANGED
            if changed
            else FetchStatus.UNCHANGED,
            release=release,
            previous=last if changed else None,
            in_use=self._library.archive.pinned(spec.name, spec.abi),
            absent=absent,
        )

    def _from_folder(
        self, spec: BuildSpec, keep_pin: bool, _on_progress: Callable[[FileProgress], None]
    ) -> tuple[Release, tuple[str, ...]]:
        """Take a program and its libraries from a folder of this computer."""
        program, named = Path(spec.file), [item for item in spec.libraries if item.file]
        arrivals = [
            Arrival(path=Path(item.file), file=ReleaseFile(name=item.name, group=item.group))
            for item in named
            if Path(item.file).is_file()
        ]
        absent = tuple(item.name for item in named if not Path(item.file).is_file())
        arrival = Arrival(path=program, file=ReleaseFile(name=program.name))
        return self._library.register(
            spec.name, arrival, arrivals, tag="", abi=spec.abi, pin=not keep_pin
        ), absent

    def _from_server(
        self, spec: BuildSpec, keep_pin: bool, on_progress: Callable[[FileProgress], None]
    ) -> tuple[Release, tuple[str, ...]]:
        with ExitStack() as stack:

            def arrival(name: str, url: str, group: str = "") -> Arrival:
                def progress(received_bytes: int, total_bytes: int | None) -> None:
                    on_progress(
                        FileProgress(
                            name=name, received_bytes=received_bytes, total_bytes=total_bytes
                        )
                    )

                got = stack.enter_context(self._downloader.fetched(url, on_progress=progress))
                file = ReleaseFile(
                    name=name, url=shown(url), group=group, tag=self._tag(url, got.last_modified)
                )
                return Arrival(path=got.path, file=file)

            program = arrival(spec.program, spec.url)
            arrivals, absent = self._by_hand(spec), []
            held = {item.file.group for item in arrivals}
            for item in spec.libraries:
                if not item.url or item.group in held:
                    continue
                try:
                    arrivals.append(arrival(item.name, item.url, item.group))
                except NotThereError:
                    if not item.optional:
                        raise
                    absent.append(item.name)
            folder = _folder_of(program.file.url)
            beside = [
                replace(item, file=replace(item.file, tag=program.file.tag))
                if item.file.url and _folder_of(item.file.url) == folder
                else item
                for item in arrivals
            ]
            release = self._library.register(
                spec.name, program, beside, tag=program.file.tag, abi=spec.abi, pin=not keep_pin
            )
            return release, tuple(absent)

    def _by_hand(self, spec: BuildSpec) -> list[Arrival]:
        """Return the groups that a person completed for the release in use: a newer program keeps
        them.
        """
        in_use = self._library.archive.pinned(spec.name, spec.abi)
        libraries = in_use.libraries if in_use is not None else ()
        held = {file.group for file in libraries if file.group and not file.url}
        return [self._library.arrival(file) for file in libraries if file.group in held]

    def _tag(self, url: str, last_modified: str) -> str:
        """Return which release an address holds: its version, else its date."""
        found = _VERSION.search(url)
        if found:
            return found[1]
        try:
            date = parsedate_to_datetime(last_modified)
        except ValueError:
            date = self._clock.now()
        return f"{'latest ' if '/latest/' in url else ''}{date:%Y-%m-%d}"


def _folder_of(url: str) -> str:
    return url.rpartition("/")[0]
