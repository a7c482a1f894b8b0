"""Builds of benchmark programs: kept, downloaded, added from a file, and found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.artifacts.elf import ProgramFacts
from orchestrator.artifacts.program import check_shows_benchmark, inspect_program
from orchestrator.bootstrap import Farm
from orchestrator.config.declared_programs import tool_named
from orchestrator.errors import ArtifactError, UsageError
from orchestrator.records.build_spec import BuildSpec
from orchestrator.records.workload import Build

if TYPE_CHECKING:
    from orchestrator.artifacts.archive import Release
    from orchestrator.artifacts.fetching import Fetched


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRelease:
    """A release that is kept, and the ABIs for which it is in use."""

    release: Release
    used_for: list[str]


def releases_of(farm: Farm) -> list[ListedRelease]:
    """Return every release that is kept, by name, the oldest first; raises ArtifactError."""
    archive = farm.library.archive

    def is_used(release: Release, abi: str) -> bool:
        pin = archive.pinned(release.name, abi)
        return pin is not None and pin.release_id == release.release_id

    return [
        ListedRelease(release=release, used_for=[abi for abi in release.abis if is_used(release, abi)])
        for release in archive.all()
    ]


def fetch_builds(
    farm: Farm, names: Sequence[str], abis: Sequence[str], fetch: Callable[[BuildSpec], Fetched]
) -> tuple[list[Fetched], list[tuple[BuildSpec, ArtifactError]]]:
    """Download declared builds, for all their ABIs where none is named; return what came, and what didn't and why.

    Raises:
        UsageError: an unknown name or ABI.
        DownloadError, ArtifactError: with a single target; with several each has its problem.
    """
    specs = _chosen(farm.library.specs, names, abis)
    fetched: list[Fetched] = []
    problems: list[tuple[BuildSpec, ArtifactError]] = []
    for spec in specs:
        try:
            fetched.append(fetch(spec))
        except ArtifactError as error:
            if len(specs) == 1:
                raise
            problems.append((spec, error))
    return fetched, problems


def add_build(farm: Farm, file: Path, name: str, libraries: Sequence[Path], *, release: str, tool: str) -> Build:
    """Validate a program and its libraries and add them to the cache; raises ArtifactError for any other file."""
    wanted = tool_named(tool) if tool else None
    if wanted is None or not wanted.is_declared:
        check_shows_benchmark(file)
    return farm.library.add(file, name=name, libraries=libraries, release=release, tool=wanted)


def find_build(
    farm: Farm, tool: str, abi: str, name: str
) -> tuple[Build, ProgramFacts, BuildSpec | None, Release | None]:
    """Return the program that a tool would be used from, its facts, how it is declared, and its release.

    Raises UsageError, ArtifactError where there is none.
    """
    build = farm.library.resolve(tool_named(tool), abi, name_or_path=name)
    assert build.path is not None, "what is resolved has a file"
    declared = (item for item in farm.library.specs if item.name == build.name and item.abi in build.abi.split(","))
    return build, inspect_program(build.path), next(declared, None), farm.library.release_of(build)


def _chosen(specs: Sequence[BuildSpec], names: Sequence[str], abis: Sequence[str]) -> list[BuildSpec]:
    chosen = []
    for name in names:
        of_name = [spec for spec in specs if spec.name == name]
        if not of_name:
            raise UsageError(
                f"no build {name!r} is declared", hint=f"there are {', '.join(sorted({spec.name for spec in specs}))}"
            )
        for abi in abis or [spec.abi for spec in of_name]:
            fitting = [spec for spec in of_name if spec.abi == abi]
            if not fitting:
                raise UsageError(
                    f"{name} isn't declared for {abi!r}", hint=f"it is for {', '.join(s.abi for s in of_name)}"
                )
            chosen += fitting
    return list(dict.fromkeys(chosen))
