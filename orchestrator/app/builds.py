"""Builds of benchmark programs: kept, downloaded, added from a file, found, and built from their source."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orchestrator.artifacts.elf import ProgramFacts
from orchestrator.artifacts.program import check_shows_benchmark, inspect_program, shows_benchmark
from orchestrator.bootstrap import Farm
from orchestrator.child_environment import child_environment
from orchestrator.config.declared_programs import tool_named
from orchestrator.errors import ArtifactError, UsageError
from orchestrator.records.build_spec import BuildSpec
from orchestrator.records.workload import Build

if TYPE_CHECKING:
    from orchestrator.artifacts.fetching import Fetched
    from orchestrator.artifacts.releases import Release

#: How the sources of TensorFlow and LiteRT call Android's ABIs.
_CONFIGS: Final = {
    "arm64-v8a": ["--config=android_arm64"],
    "armeabi-v7a": ["--config=android_arm"],
    "x86_64": ["--config=android_x86_64"],
    "x86": ["--config=android_x86"],
}
#: What stands in for a tool that isn't there, and does the same.
_INSTEAD: Final = {"bazel": ("bazelisk",)}
#: What only a shell understands.
_OF_A_SHELL: Final = re.compile(r"[|&;<>`$]")
_TARGET: Final = re.compile(r"//(?P<folder>[\w./+-]*):(?P<name>[\w./+-]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedRelease:
    """A release that is kept, and the ABIs for which it is in use."""

    name: str
    release: Release
    used_for: list[str]


def releases_of(farm: Farm) -> list[ListedRelease]:
    """Return every release that is kept, by name, the oldest first; raises ArtifactError."""
    history = farm.library.history

    def used_for(name: str, release: Release) -> list[str]:
        pins = ((abi, history.pinned(name, abi)) for abi in release.abis)
        return [abi for abi, pin in pins if pin is not None and pin.release_id == release.release_id]

    return [
        ListedRelease(name=name, release=release, used_for=used_for(name, release))
        for name in history.names()
        for release in history.releases(name)
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
    return build, inspect_program(build.path), next(declared, None), farm.library.release_of(build, abi)


def shows_as_benchmark(build: Build) -> bool:
    """Whether nothing speaks against a build being a benchmark program; an APK is known by its package."""
    if build.is_virtual or build.tool.is_app or build.tool.is_declared or build.path is None:
        return True
    return shows_benchmark(build.path)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeRequest:
    """What is to be built."""

    name: str
    abi: str
    #: The checkout in which the commands run.
    source: Path
    #: A target of bazel's; empty: the build's declared recipe.
    target: str = ""
    timeout_s: float = 14_400.0


def make_build(farm: Farm, request: MakeRequest) -> tuple[Build, tuple[str, ...]]:
    """Run a build's commands in its source and keep what comes of it; return the build and the commands.

    The tool's own output goes to standard error as it comes. Raises UsageError for what can't be run as it is
    written, ArtifactError where a tool is missing, fails, or leaves no program behind.
    """
    spec = next((item for item in farm.library.specs if (item.name, item.abi) == (request.name, request.abi)), None)
    commands = _commands(request, spec)
    if not request.source.is_dir():
        raise UsageError(f"--source {request.source} is no folder", hint="name the checkout of the program's source")
    environ = child_environment(farm.settings.environ)
    words = [_found(shlex.split(command), environ.get("PATH"), request.name) for command in commands]
    for command, line in zip(words, commands, strict=True):
        try:
            # A list of words, none of which a shell reads.
            done = subprocess.run(
                command, cwd=request.source, env=environ, stdin=subprocess.DEVNULL, stdout=sys.stderr,
                timeout=request.timeout_s, check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ArtifactError(f"{line!r} didn't come to its end: {error}") from error
        if done.returncode:
            raise ArtifactError(f"{line!r} ended with exit code {done.returncode}", hint="its output is above")
    made = _made(request, spec, commands)
    # What bazel leaves behind may be a link into its cache, and can't be written to.
    return farm.library.add(made.resolve(), name=request.name, release=_commit(request.source, environ)), commands


def _commands(request: MakeRequest, spec: BuildSpec | None) -> tuple[str, ...]:
    if request.target:
        if not _TARGET.fullmatch(request.target):
            raise UsageError(
                f"--target {request.target!r} is no target", hint="for example //tflite/tools/benchmark:benchmark_model"
            )
        return (shlex.join(["bazel", "build", "-c", "opt", *_CONFIGS.get(request.abi, []), request.target]),)
    if spec is None or not spec.recipe:
        what = "declares no recipe" if spec is not None else "isn't declared"
        raise UsageError(
            f"{request.name} for {request.abi} {what}",
            hint="give --target //FOLDER:NAME, or a recipe in a build file (docs/reference/build-files.md)",
        )
    for command in spec.recipe:
        if odd := _OF_A_SHELL.search(command):
            raise UsageError(
                f"the recipe of {request.name} needs a shell for {odd[0]!r}: {command}",
                hint=f"run it by hand, then: benchfarm build add FILE --name {request.name}",
            )
    return spec.recipe


def _found(words: list[str], path: str | None, name: str) -> list[str]:
    """Return a command with its tool's place; raises ArtifactError where there is none."""
    for tool in (words[0], *_INSTEAD.get(words[0], ())):
        if (place := shutil.which(tool, path=path)) is not None:
            return [place, *words[1:]]
    install = " (bazelisk brings the version that the source wants)" if words[0] in _INSTEAD else ""
    raise ArtifactError(
        f"{words[0]} isn't on PATH{install}, so nothing was built",
        hint=f"install it, or run {shlex.join(words)} where it is, then: benchfarm build add FILE --name {name}",
    )


def _made(request: MakeRequest, spec: BuildSpec | None, commands: tuple[str, ...]) -> Path:
    """Return the program that the commands left behind; raises ArtifactError."""
    targets = [found for command in commands for found in _TARGET.finditer(command)]
    names = [spec.program] if spec is not None else []
    places = [request.source / name for name in names]
    for found in targets:
        folder = request.source / "bazel-bin" / found["folder"]
        places += [folder / name for name in (*names, found["name"])]
    for place in places:
        if place.is_file():
            return place
    listed = ", ".join(str(place.relative_to(request.source)) for place in places) or "nothing was to be made"
    raise ArtifactError(
        f"the commands ended well and left no program behind (looked for {listed})",
        hint=f"find it, then: benchfarm build add FILE --name {request.name}",
    )


def _commit(source: Path, environ: dict[str, str]) -> str:
    """Return the source's commit, by which the release is called; empty where that isn't known."""
    git = shutil.which("git", path=environ.get("PATH"))
    if git is None:
        return ""
    done = subprocess.run(
        [git, "-C", str(source), "rev-parse", "--short=12", "HEAD"],
        env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout.strip() if done.returncode == 0 else ""
