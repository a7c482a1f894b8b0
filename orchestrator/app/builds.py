"""Benchmark programs: downloaded, added from a file, and found; and their flags, as documented or
as a program says itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from orchestrator.app.attached import open_devices
from orchestrator.app.requests import AddRequest
from orchestrator.app.workspace import Workspace
from orchestrator.artifacts.executables import check_shows_benchmark
from orchestrator.artifacts.fetch import fetch_build
from orchestrator.config.declarations import all_tool_names, tool_by_name
from orchestrator.engine.flag_check import ask_for_flags, learn_flags
from orchestrator.errors import ArtifactError, OutputParseError, UsageError, nearest
from orchestrator.installation import plugins
from orchestrator.programs import program, programs
from orchestrator.programs.flags import schema_of
from orchestrator.records import frozen
from orchestrator.records.build_spec import BuildSpec, FlagSchema, FlagSpec
from orchestrator.records.case import Build, Skip, ToolName
from orchestrator.records.device import DeviceKind
from orchestrator.records.plan import DeviceSelection, Matrix, Plan

if TYPE_CHECKING:
    from orchestrator.artifacts.archive import Release
    from orchestrator.artifacts.fetch import Fetched, Progress


def fetch_builds(
    workspace: Workspace,
    names: Sequence[str],
    abis: Sequence[str],
    on_progress: Progress,
) -> tuple[list[Fetched], list[tuple[BuildSpec, ArtifactError]]]:
    """Download declared builds, for all their ABIs by default; return the downloads, and the
    failures with their errors.

    Raises:
        UsageError: an unknown name or ABI.
        DownloadError, ArtifactError: with a single target; with several each has its problem.
    """
    library, downloader = workspace.library, workspace.downloader()
    specs = _chosen(library.specs, names, abis)
    fetched: list[Fetched] = []
    problems: list[tuple[BuildSpec, ArtifactError]] = []
    for spec in specs:
        try:
            fetched.append(fetch_build(library, downloader, spec, on_progress=on_progress))
        except ArtifactError as error:
            if len(specs) == 1:
                raise
            problems.append((spec, error))
    return fetched, problems


def add_build(workspace: Workspace, request: AddRequest) -> tuple[Build, Release | None]:
    """Validate a program and its libraries and add them to the cache; return the build, and the
    release of its name that was in use before, when that is another one.

    Raises ArtifactError for any other file.
    """
    tool = tool_by_name(request.tool) if request.tool else None
    if tool is None or not tool.is_declared:
        check_shows_benchmark(request.file)
    library = workspace.library
    earlier = library.archive.all()
    build = library.add(
        request.file,
        name=request.name,
        libraries=request.libraries,
        release=request.release,
        tool=tool,
    )
    new = library.archive.releases(build.name)[-1]
    # Of one name the release in use is the last.
    replaced = [item for item in earlier if item.name == new.name and {*item.abis} & {*new.abis}]
    is_other = bool(replaced) and replaced[-1].release_id != new.release_id
    return build, replaced[-1] if is_other else None


def _chosen(
    specs: Sequence[BuildSpec], names: Sequence[str], abis: Sequence[str]
) -> list[BuildSpec]:
    targets = [(name, abi) for name in names for abi in abis or [""]]
    chosen: dict[BuildSpec, None] = {}
    for name, abi in targets:
        fitting = [spec for spec in specs if spec.name == name and abi in {spec.abi, ""}]
        if not fitting:
            raise UsageError(
                f"no build {name!r} is declared{f' for {abi!r}' if abi else ''}",
                hint="'benchfarm build list' lists builds and their ABIs",
            )
        chosen |= dict.fromkeys(fitting)
    return list(chosen)


_PHONE_ABIS: Final = ("arm64-v8a", "armeabi-v7a", "x86_64", "x86")


@frozen
class Flags:
    """Flags of a program."""

    tool: ToolName
    #: The build that was asked; None for documented flags.
    build: Build | None
    #: Their source, as text.
    title: str
    schema: FlagSchema


def flags_of(
    workspace: Workspace, name: str, *, build: str, tool: str, serial: str
) -> tuple[Flags, FlagSpec | None]:
    """Return the flags of a program, and the one of them that is named.

    Raises UsageError for an unknown tool or flag, ArtifactError for a build, DeviceError kinds for
    a named device.
    """
    declared = set(all_tool_names()) - {*ToolName, *plugins("programs")}
    if name in declared:
        name, tool = "", name
    flags = _source(workspace, _tool(tool, declared), build, serial)
    bare = name.removeprefix("--").partition("=")[0]
    if bare and bare not in flags.schema.flags:
        hint = nearest(bare, flags.schema.flags) or "'benchfarm flags' lists them"
        raise UsageError(f"{flags.title}: there is no flag {bare!r}", hint=hint)
    return flags, flags.schema.flags[bare] if bare else None


def _tool(name: str, declared: Iterable[str]) -> ToolName:
    with_flags = [item.name for item in programs() if item.has_flags]
    tool = tool_by_name(name)
    if tool in with_flags or tool.is_declared:
        return tool
    hint = f"tools with flags are {', '.join([*with_flags, *sorted(declared)])}"
    raise UsageError(f"{name!r} takes none of a plan's flags", hint=hint)


def _source(workspace: Workspace, tool: ToolName, build_name: str, serial: str) -> Flags:
    """Return the flags of the named build, of the device's build, or of all builds as documented."""
    if tool.is_declared or not (serial or build_name):
        title = program(tool).title if tool.is_declared else f"{tool}, all builds, as documented"
        return Flags(tool=tool, schema=schema_of(tool), build=None, title=title)
    if serial:
        build = _on_device(workspace, tool, build_name, serial)
    else:
        build = _build_by_name(workspace, tool, build_name)
    schema = workspace.flag_book.schema(build)
    how = (
        "as it says itself"
        if schema.is_learned
        else "as documented for all builds: it wasn't asked yet"
    )
    return Flags(
        tool=tool, schema=schema, build=build, title=f"{build.name} ({build.sha256[:12]}), {how}"
    )


def _build_by_name(workspace: Workspace, tool: ToolName, build_name: str) -> Build:
    """Return a build for any ABI; one for this computer is asked for its flags here."""
    host = workspace.host()
    facts = host.facts()
    targets = [(abi, facts.kind) for abi in facts.abis] + [
        (abi, DeviceKind.ANDROID) for abi in _PHONE_ABIS
    ]
    build, kind = workspace.library.resolve_first(tool, targets, name_or_path=build_name)
    if kind is facts.kind:
        learn_flags(
            workspace.flag_book, workspace.lease, [(host, facts)], {(facts.serial, tool): build}
        )
    return build


def _on_device(workspace: Workspace, tool: ToolName, build_name: str, serial: str) -> Build:
    """Return the build that would be used on a device, after it was asked for its flags there."""
    selection = DeviceSelection(serials=(serial,))
    plan = Plan(
        name="flags",
        models=(),
        matrix=Matrix(tools=(tool,)),
        builds={tool: build_name} if build_name else {},
    )
    ((device, facts),) = open_devices(workspace, selection).devices
    build = workspace.builds.of(plan, [facts])[facts.serial, tool]
    if isinstance(build, Skip):
        raise ArtifactError(build.reason)
    if not workspace.flag_book.names(build) and workspace.flag_book.help_command(build, build.name):
        with workspace.lease.acquire(device.serial):
            if not ask_for_flags(workspace.flag_book, device, build):
                raise OutputParseError(
                    f"{serial}: {build.name} lists no flags when it is asked for --help"
                )
    return build
