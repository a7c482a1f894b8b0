"""``benchfarm build``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.builds import (
    FetchRequest,
    MakeRequest,
    add_build,
    fetch_builds,
    find_build,
    known_builds,
    make_build,
    shows_as_benchmark,
)
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.download_progress import downloads_on_stderr
from orchestrator.cli.result import CommandResult, table
from orchestrator.errors import ArtifactError
from orchestrator.records.build_spec import BuildSpec
from orchestrator.records.workload import Build
from orchestrator.report.escapes import one_line
from orchestrator.units import format_bytes

if TYPE_CHECKING:
    from orchestrator.artifacts.fetching import Fetched
    from orchestrator.artifacts.program import ProgramFacts
    from orchestrator.artifacts.releases import Release

_PROGRAM_PROBLEM = ArtifactError.exit_code
#: In place of "in use", for what no device is given unless a plan names it.
_FAKE = "only for virtual phones, by name"


def list_builds(settings: Settings, *, everything: bool = False) -> CommandResult:
    """List the declared builds, which release of each is in use, and with ``everything`` the older ones too."""
    with Farm(settings) as farm:
        known = known_builds(farm)
    builds, specs = known.kept, known.declared
    tools = {build.name: build.tool.value for build in builds} | {spec.name: spec.tool.value for spec in specs}
    fakes = {build.sha256 for build in builds if build.is_virtual}
    rows = []
    shown: set[str] = set()
    for name, releases in known.releases.items():
        for release in reversed(releases):
            used_for = known.used_for(name, release)
            shown.add(release.program.sha256)
            if used_for or everything:
                is_fake = release.program.sha256 in fakes
                state = (_FAKE if is_fake else "in use") if used_for else "kept"
                rows.append((name, tools.get(name, ""), ", ".join(release.abis), *_cells(release), state))
    rows += [
        (build.name, build.tool.value, build.abi, build.sha256[:12], "", "", "", "kept")
        for build in builds
        if build.sha256 not in shown
    ]
    here = set(known.pins) | {(b.name, abi) for b in builds for abi in b.abi.split(",")}
    rows += [
        (spec.name, spec.tool.value, spec.abi, "", "", "", "", "not here")
        for spec in specs
        if (spec.name, spec.abi) not in here
    ]
    headers = ("build", "tool", "ABI", "release", "which", "first seen", "files", "state")
    text = table(headers, sorted(rows, key=lambda row: (row[0], row[2])))
    hint = "benchfarm build fetch NAME gets one that isn't here; benchfarm build add FILE takes one of your own"
    listed = [
        {
            "release": release,
            "release_id": release.release_id,
            "is_virtual": release.program.sha256 in fakes,
            "in_use_for": known.used_for(name, release),
        }
        for name, releases in known.releases.items()
        for release in releases
    ]
    return CommandResult(text=f"{text}\n{hint}", data={"cached": builds, "declared": specs, "releases": listed})


def fetch(settings: Settings, request: FetchRequest) -> CommandResult:
    """Download declared builds; the exit code is 4 when one that was asked for isn't here afterwards."""
    with Farm(settings) as farm, downloads_on_stderr(settings.log_format) as downloads:
        done = fetch_builds(farm, request, downloads.on_progress)
    lines = [line for result in done.fetched for line in _told(result)]
    for spec, problem in done.problems:
        lines.append(one_line(f"{spec.name} for {spec.abi}: FAILED: {problem}"))
        lines += [f"  {problem.hint}"] if problem.hint else []
    data = {
        "fetched": done.fetched,
        "problems": [
            {"name": spec.name, "abi": spec.abi, "code": error.code, "message": str(error), "hint": error.hint}
            for spec, error in done.problems
        ],
    }
    return CommandResult(text="\n".join(lines), data=data, exit_code=_PROGRAM_PROBLEM if done.is_missing else 0)


def add(
    settings: Settings, file: Path, name: str, libraries: Sequence[Path] = (), release: str = "", tool: str = ""
) -> CommandResult:
    """Validate a program and its libraries and add them to the cache; raises ArtifactError for any other file."""
    with Farm(settings) as farm:
        build = add_build(farm, file, name, libraries, release=release, tool=tool)
    is_shown = shows_as_benchmark(build)
    lines = _build_lines(build) + _doubted(build, is_shown=is_shown)
    return CommandResult(text="\n".join(lines), data=dataclasses.asdict(build) | {"shows_benchmark": is_shown})


def make(settings: Settings, request: MakeRequest) -> CommandResult:
    """Build a program from its source and keep it; raises UsageError and ArtifactError."""
    with Farm(settings) as farm:
        build, commands = make_build(farm, request)
    return CommandResult(
        text="\n".join(_build_lines(build)), data=dataclasses.asdict(build) | {"commands": list(commands)}
    )


def pin(settings: Settings, wanted: str) -> CommandResult:
    """Put a kept release in use, ``NAME@DIGITS``; raises ArtifactError when there is none."""
    with Farm(settings) as farm:
        release = farm.library.find_release(wanted)
        farm.library.history.pin(release)
    text = f"{release.name} for {', '.join(release.abis)}: {_titled(release)} is in use now"
    return CommandResult(text=one_line(text), data={"in_use": release, "release_id": release.release_id})


def which(settings: Settings, tool: str, abi: str, name: str) -> CommandResult:
    """Say which program a tool would be used from, and where it comes from.

    Raises:
        UsageError: an unknown tool.
        ArtifactError: there is none; the message says how to get it.
    """
    with Farm(settings) as farm:
        found = find_build(farm, tool, abi, name)
    build, release, facts = found.build, found.release, found.facts
    is_shown = shows_as_benchmark(build)
    lines = [*_build_lines(build), *_doubted(build, is_shown=is_shown), *_told_by_file(facts, found.spec)]
    if release is not None:
        lines.append(f"  release: {_titled(release)}")
        lines += [f"  from: {file.url}" for file in release.files if file.url]
    return CommandResult(
        text="\n".join(map(one_line, lines)),
        data={
            "build": build,
            "release": release,
            "release_id": release.release_id if release else None,
            "package": facts.package,
            "activities": facts.activities,
            "min_sdk": facts.min_sdk,
            "needed": facts.needed,
            "debuggable": facts.debuggable,
            "signers": facts.signers,
            "shows_benchmark": is_shown,
        },
    )


def declared_programs(settings: Settings, files: Sequence[Path]) -> CommandResult:
    """List the declared programs, or those of some files; raises PlanError with each fault's line and key."""
    from orchestrator.config.declared_programs import every_declared, load_declared

    del settings
    found = [load_declared(path) for path in files] if files else every_declared()
    rows = [
        (each.name, " ".join(each.models) or "output only", ", ".join(each.delegates) or "-", each.title)
        for each in found
    ]
    data = {
        each.name: {
            "title": each.title,
            "program": each.program,
            "models": list(each.models),
            "delegates": [str(name) for name in each.delegates],
            "figures": list(each.figures),
            "parameters": {name: own.model_dump(exclude_none=True) for name, own in each.parameters.items()},
        }
        for each in found
    }
    return CommandResult(text=table(("program", "models", "delegates", "what it is"), rows), data=data)


def verify(settings: Settings) -> CommandResult:
    """Hash every cached program and library again."""
    with Farm(settings) as farm:
        checked = [(build.name, str(build.sha256), intact) for build, intact in farm.library.verify()]
        checked += farm.library.verify_libraries()
    rows = [(name, sha256[:12], "as it was" if intact else "DAMAGED") for name, sha256, intact in checked]
    damaged = [name for name, _, intact in checked if not intact]
    text = table(("file", "sha256", "content"), rows) if rows else "no program is in the cache"
    return CommandResult(
        text=text,
        data={"checked": len(checked), "damaged": damaged},
        exit_code=_PROGRAM_PROBLEM if damaged else 0,
    )


def _told(result: Fetched) -> list[str]:
    head = f"{result.name} for {result.abi}: "
    if result.recipe:
        return [
            f"{head}isn't published; build it with",
            *(f"  {command}" for command in result.recipe),
            f"  benchfarm build add FILE --name {result.name}",
        ]
    assert result.release is not None
    release = _titled(result.release)
    match result.status.value:
        case "new":
            lines = [f"{head}{release} is here and in use"]
        case "unchanged":
            lines = [f"{head}unchanged, {release}"]
        case _:
            assert result.previous is not None
            lines = [f"{head}CHANGED: {release}, was {_titled(result.previous)}"]
    if not _is(result.in_use, result.release) and result.in_use is not None:
        lines.append(
            f"  in use stays {_titled(result.in_use)}; benchfarm build use {_address(result.release)} changes that"
        )
    elif result.previous is not None:
        lines.append(f"  the other one is kept: benchfarm build use {_address(result.previous)} goes back")
    if result.absent:
        lines.append(f"  not there, and not needed always: {', '.join(result.absent)}")
    return [one_line(line) for line in lines]


def _doubted(build: Build, *, is_shown: bool) -> list[str]:
    """Return what is to be said of a file that may be another program than a benchmark."""
    if is_shown:
        return []
    looked_for = "nothing in the file is of a benchmark program (no num_threads, no warmup_runs)"
    instead = f"benchfarm build add FILE --name {build.name} puts another in this one's place"
    return [f"  LOOK: {looked_for}; {instead}"]


def _build_lines(build: Build) -> list[str]:
    size = format_bytes(build.path.stat().st_size) if build.path else ""
    lines = [f"{build.name}: {build.tool}, {build.abi}, {size}, sha256 {build.sha256}", f"  file: {build.path}"]
    lines += [f"  beside it: {item.name}, sha256 {item.sha256}" for item in build.companions]
    return [one_line(line) for line in lines]


def _told_by_file(facts: ProgramFacts, spec: BuildSpec | None) -> list[str]:
    """Return what the file itself says, a line for each thing that it says."""
    min_sdk = max(facts.min_sdk or 0, (spec.min_sdk if spec else None) or 0)
    told = [
        ("version", facts.version),
        ("package", facts.package),
        ("activities", ", ".join(facts.activities)),
        ("lowest API level", str(min_sdk or "")),
        ("needs", ", ".join(facts.needed)),
    ]
    if facts.is_apk:
        told += [
            ("debuggable", "yes" if facts.debuggable else "no"),
            ("signed by", ", ".join(facts.signers) or "nobody: a phone refuses it"),
        ]
    return [f"  {title}: {text}" for title, text in told if text]


def _cells(release: Release) -> tuple[str, str, str, str]:
    return release.release_id, release.tag, f"{release.seen_at:%Y-%m-%d}", str(len(release.files))


def _titled(release: Release) -> str:
    tag = f" ({release.tag})" if release.tag else ""
    return f"{release.release_id}{tag}, first seen {release.seen_at:%Y-%m-%d}"


def _address(release: Release) -> str:
    return f"{release.name}@{release.release_id}"


def _is(one: Release | None, other: Release) -> bool:
    return one is not None and one.release_id == other.release_id
