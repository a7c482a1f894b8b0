"""Benchmark programs: kept, downloaded, added from a file, found, and built from their source; and
their flags, as documented or as a program says itself.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from orchestrator.app.options import Paths, arg, opt
from orchestrator.artifacts.elf import ProgramFacts
from orchestrator.artifacts.program import check_shows_benchmark, inspect_program
from orchestrator.bootstrap import Settings, Workspace
from orchestrator.config.builds import known_tools, tool_named
from orchestrator.engine.flag_check import ask_for_flags, learn_flags
from orchestrator.errors import ArtifactError, OutputParseError, UsageError
from orchestrator.plugins import plugins
from orchestrator.processes import child_environment
from orchestrator.programs import program, programs
from orchestrator.records.build_spec import BuildSpec, FlagSchema, FlagSpec
from orchestrator.records.case import Build, Skip, ToolName
from orchestrator.records.device import DeviceKind
from orchestrator.records.plan import DeviceSelection, Matrix, Plan

if TYPE_CHECKING:
    from orchestrator.artifacts.archive import Release
    from orchestrator.artifacts.fetch import Fetched


#: How the sources of TensorFlow and LiteRT call Android's ABIs.
_CONFIGS: Final = {"arm64-v8a": "arm64", "armeabi-v7a": "arm", "x86_64": "x86_64", "x86": "x86"}
#: What only a shell understands.
_OF_A_SHELL: Final = re.compile(r"[|&;<>`$]")
_TARGET: Final = re.compile(r"//([\w./+-]*):([\w./+-]+)")


def releases_of(workspace: Workspace) -> list[tuple[Release, list[str]]]:
    """Return every release that is kept, by name, the oldest first, and the ABIs for which it is in
    use.

    Raises ArtifactError.
    """
    archive = workspace.library.archive

    def is_used(release: Release, abi: str) -> bool:
        pin = archive.pinned(release.name, abi)
        return pin is not None and pin.release_id == release.release_id

    return [
        (release, [abi for abi in release.abis if is_used(release, abi)])
        for release in archive.all()
    ]


def fetch_builds(
    workspace: Workspace,
    names: Sequence[str],
    abis: Sequence[str],
    fetch: Callable[[BuildSpec], Fetched],
) -> tuple[list[Fetched], list[tuple[BuildSpec, ArtifactError]]]:
    """Download declared builds, for all their ABIs where none is named; return what came, and what
    didn't and why.

    Raises:
        UsageError: an unknown name or ABI.
        DownloadError, ArtifactError: with a single target; with several each has its problem.
    """
    specs = _chosen(workspace.library.specs, names, abis)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AddRequest:
    """A program that is to be kept."""

    file: Annotated[Path, arg("A benchmark_model binary, an APK, or a library for one.")]
    name: Annotated[str, opt("--name", "Name of the build.")] = ""
    tool: Annotated[str, opt("--tool", "Which program it is (default: by its name).")] = ""
    libraries: Annotated[
        Paths, opt("--with", "Library to install beside it. Repeat for several.")
    ] = ()
    release: Annotated[str, opt("--release", "Release that the files belong to.")] = ""


def add_build(workspace: Workspace, request: AddRequest) -> Build:
    """Validate a program and its libraries and add them to the cache.

    Raises ArtifactError for any other file.
    """
    wanted = tool_named(request.tool) if request.tool else None
    if wanted is None or not wanted.is_declared:
        check_shows_benchmark(request.file)
    return workspace.library.add(
        request.file,
        name=request.name,
        libraries=request.libraries,
        release=request.release,
        tool=wanted,
    )


def find_build(
    workspace: Workspace, tool: str, abi: str, name: str
) -> tuple[Build, ProgramFacts, BuildSpec | None, Release | None]:
    """Return the program that a tool would be used from, its facts, how it is declared, and its
    release.

    Raises UsageError, ArtifactError where there is none.
    """
    build = workspace.library.resolve(tool_named(tool), abi, name_or_path=name)
    assert build.path is not None, "what is resolved has a file"
    declared = (
        item
        for item in workspace.library.specs
        if item.name == build.name and item.abi in build.abi.split(",")
    )
    return (
        build,
        inspect_program(build.path),
        next(declared, None),
        workspace.library.release_of(build),
    )


def _chosen(
    specs: Sequence[BuildSpec], names: Sequence[str], abis: Sequence[str]
) -> list[BuildSpec]:
    chosen = []
    for name in names:
        of_name = [spec for spec in specs if spec.name == name]
        if not of_name:
            raise UsageError(
                f"no build {name!r} is declared",
                hint=f"there are {', '.join(sorted({spec.name for spec in specs}))}",
            )
        for abi in abis or [spec.abi for spec in of_name]:
            fitting = [spec for spec in of_name if spec.abi == abi]
            if not fitting:
                raise UsageError(
                    f"{name} isn't declared for {abi!r}",
                    hint=f"it is for {', '.join(s.abi for s in of_name)}",
                )
            chosen += fitting
    return list(dict.fromkeys(chosen))


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeRequest:
    """A program that is to be built from its source."""

    name: str
    abi: str
    #: The checkout.
    source: Path
    #: Bazel's target; empty for the declared recipe.
    target: str


def make_build(workspace: Workspace, request: MakeRequest) -> tuple[Build, list[str]]:
    """Run a build's recipe, or bazel for a target, in a checkout, and keep the program; return it
    and the commands.

    The tools' own output goes to standard error. Raises UsageError for what can't be run as it is
    written, ArtifactError where a tool is missing, fails, or leaves no program behind.
    """
    name, abi, source, target = request.name, request.abi, request.source, request.target
    by_hand = f"benchfarm build add FILE --name {name}"
    spec = next(
        (item for item in workspace.library.specs if (item.name, item.abi) == (name, abi)), None
    )
    commands = list(spec.recipe) if spec is not None else []
    if target:
        if not _TARGET.fullmatch(target):
            raise UsageError(
                f"--target {target!r} is no target",
                hint="for example //tflite/tools:benchmark_model",
            )
        config = [f"--config=android_{_CONFIGS[abi]}"] if abi in _CONFIGS else []
        commands = [shlex.join(["bazel", "build", "-c", "opt", *config, target])]
    if not commands:
        raise UsageError(f"{name} for {abi} declares no recipe", hint="give --target //FOLDER:NAME")
    if odd := next(filter(_OF_A_SHELL.search, commands), None):
        raise UsageError(
            f"the recipe of {name} needs a shell: {odd}", hint=f"run it by hand, then: {by_hand}"
        )
    if not source.is_dir():
        raise UsageError(
            f"--checkout {source} is no folder", hint="name the checkout of the program's source"
        )
    environ = child_environment(workspace.settings.environ)
    found: list[list[str]] = []
    for command in commands:
        first, *words = shlex.split(command)
        names = (first, "bazelisk") if first == "bazel" else (first,)
        tool = next(
            filter(None, (shutil.which(each, path=environ.get("PATH")) for each in names)), None
        )
        if tool is None:
            hint = f"install it, or run {command!r} where it is, then: {by_hand}"
            raise ArtifactError(
                f"{' or '.join(names)} isn't on PATH, so nothing was built", hint=hint
            )
        found.append([tool, *words])
    for words, line in zip(found, commands, strict=True):
        try:
            # A list of words, none of which a shell reads.
            done = subprocess.run(
                words,
                cwd=source,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,
                check=False,
            )
        except OSError as error:
            raise ArtifactError(f"{line!r} can't be started: {error.strerror}") from error
        if done.returncode:
            raise ArtifactError(
                f"{line!r} ended with exit code {done.returncode}", hint="its output is above"
            )
    programs = [spec.program] if spec is not None else []
    places = [source / program for program in programs]
    for folder, made_by in (target for command in commands for target in _TARGET.findall(command)):
        # Bazel may give a target's file an ending of its own, as that of an APK.
        places += [source / "bazel-bin" / folder / program for program in (*programs, made_by)]
    made = next((place for place in places if place.is_file()), None)
    if made is None:
        raise ArtifactError(
            f"the commands left no program behind in {source}", hint=f"find it, then: {by_hand}"
        )
    # What bazel leaves behind may be a link into its cache.
    return workspace.library.add(made.resolve(), name=name), commands


_PHONE_ABIS: Final = ("arm64-v8a", "armeabi-v7a", "x86_64", "x86")


@dataclass(frozen=True, slots=True, kw_only=True)
class Flags:
    """Flags of a program."""

    tool: ToolName
    #: The build that was asked; None for what is documented.
    build: Build | None
    #: Where they are from, in words.
    title: str
    schema: FlagSchema


def flags_of(
    settings: Settings, name: str, *, build: str, tool: str, serial: str
) -> tuple[Flags, FlagSpec | None]:
    """Return the flags of a program, and the one of them that is named.

    Raises UsageError for a tool or a flag that there is none of, ArtifactError for a build,
    DeviceError kinds for a device that was named.
    """
    with Workspace(settings) as workspace:
        declared = set(known_tools()) - {*ToolName, *plugins("programs")}
        if name in declared:
            name, tool = "", name
        found = _source(workspace, _tool(tool, declared), build, serial)
    bare = name.removeprefix("--").partition("=")[0]
    if bare and bare not in found.schema.flags:
        nearest = found.schema.nearest(bare)
        hint = f"did you mean {nearest}?" if nearest else "'benchfarm flags' lists them"
        raise UsageError(f"{found.title}: there is no flag {bare!r}", hint=hint)
    return found, found.schema.flags[bare] if bare else None


def _tool(name: str, declared: Iterable[str]) -> ToolName:
    with_flags = [own.name for own in programs() if own.has_flags]
    wanted = tool_named(name)
    if wanted in with_flags or wanted.is_declared:
        return wanted
    hint = f"tools with flags are {', '.join([*with_flags, *sorted(declared)])}"
    raise UsageError(f"{name!r} takes none of a plan's flags", hint=hint)


def _source(workspace: Workspace, tool: ToolName, named: str, serial: str) -> Flags:
    """Return the flags of the named build, of the device's build, or of all builds as documented."""
    from orchestrator.programs.flags import documented_flags

    if tool.is_declared:
        own = program(tool)
        return Flags(
            tool=tool, schema=own.own_schema or FlagSchema(flags={}), build=None, title=own.title
        )
    book = workspace.flag_book
    build = (
        _on_device(workspace, tool, named, serial)
        if serial
        else _named(workspace, tool, named)
        if named
        else None
    )
    if build is None:
        schema = program(tool).own_schema or documented_flags(program(tool).family)
        return Flags(
            tool=tool, schema=schema, build=None, title=f"{tool}, all builds, as documented"
        )
    schema = book.schema(build)
    how = (
        "as it says itself"
        if schema.is_learned
        else "as documented for all builds: it wasn't asked yet"
    )
    return Flags(
        tool=tool, schema=schema, build=build, title=f"{build.name} ({build.sha256[:12]}), {how}"
    )


def _named(workspace: Workspace, tool: ToolName, named: str) -> Build:
    """Return a build for any ABI; one for this computer is asked for its flags here."""
    problem: ArtifactError | None = None
    host = workspace.host()
    facts = host.facts()
    places = [(abi, facts.kind) for abi in facts.abis] + [
        (abi, DeviceKind.ANDROID) for abi in _PHONE_ABIS
    ]
    for abi, kind in places:
        try:
            build = workspace.library.resolve(tool, abi, name_or_path=named, kind=kind)
        except ArtifactError as error:
            problem = problem or error
            continue
        if kind is facts.kind:
            learn_flags(
                workspace.flag_book, workspace.lease, [(host, facts)], {(facts.serial, tool): build}
            )
        return build
    assert problem is not None
    raise problem


def _on_device(workspace: Workspace, tool: ToolName, named: str, serial: str) -> Build:
    """Return the build that would be used on a device, after it was asked for its flags there."""
    is_host = serial == "host"
    selection = DeviceSelection(serials=() if is_host else (serial,), host=is_host)
    plan = Plan(
        name="flags", models=(), matrix=Matrix(tools=(tool,)), builds={tool: named} if named else {}
    )
    ((device, facts),) = workspace.open_devices(selection).devices
    build = workspace.builds.of(plan, [facts])[facts.serial, tool]
    if isinstance(build, Skip):
        raise ArtifactError(build.reason)
    if not workspace.flag_book.names(build) and workspace.flag_book.help_command(build, build.name):
        with workspace.lease.acquire(device.serial):
            if not ask_for_flags(workspace.flag_book, device, build):
                raise OutputParseError(
                    f"{serial}: {build.name} lists no flags when it is asked for --help",
                    hint="does it run on this device at all? 'benchfarm bench' says more",
                )
    return build


def trap_of(spec: FlagSpec) -> str:
    """Return what people get wrong about a flag; empty for most."""
    from orchestrator.programs.flag_tables import TRAPS

    return TRAPS.get(spec.name, "")
