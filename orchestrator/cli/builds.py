"""``benchfarm build`` and ``flags``: benchmark programs, where they come from, and their flags."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Final

from typer import Argument, Option

from orchestrator.app.requests import AddRequest
from orchestrator.cli.campaigns import downloads_on_stderr
from orchestrator.cli.commands import Texts, command, workspace_of
from orchestrator.cli.output import CommandResult, tables_result
from orchestrator.errors import ArtifactError
from orchestrator.records import frozen
from orchestrator.records.case import USUAL_TOOL, Build
from orchestrator.settings import Settings
from orchestrator.tables.escapes import one_line
from orchestrator.tables.table import DATA, Column, Kind, Table
from orchestrator.units import format_bytes, split

if TYPE_CHECKING:
    from orchestrator.artifacts.archive import Release
    from orchestrator.artifacts.fetch import Fetched
    from orchestrator.records.build_spec import FlagSpec

#: The state of a build that is used only when a plan names it, instead of "in use".
_FAKE: Final = "only for virtual phones, by name"
_WIDTH: Final = 100
#: A line below a build that took the place of another one.
_SWITCH: Final = "  the other one is kept: 'benchfarm build use {}' switches back to it"
#: Which builds have a flag, other than "with the delegate ...".
_BUILDS: Final[Mapping[str, str]] = {
    "all": "all",
    "android": "for Android",
    "ios": "for iOS",
    "host": "for this computer",
}


@command("build list", has_table=True)
def list_builds(
    settings: Settings,
    *,
    everything: Annotated[
        bool, Option("--all", help="Include kept releases that aren't in use.")
    ] = False,
) -> CommandResult:
    """List the builds in use, and those that can be fetched.

    Example: benchfarm build list
    """
    with workspace_of(settings) as workspace:
        archive = workspace.library.archive
        rows = [
            _ListedBuild(
                name=release.name,
                tool=release.tool.value,
                abis=release.abis,
                release=release,
                used_for=tuple(
                    abi for abi in release.abis if archive.in_use(release.name, abi) == release
                ),
            )
            for release in reversed(archive.all())
        ]
    here = {
        (row.name, abi)
        for row in rows
        for abi in (*row.abis, *(row.release.built_for if row.release else ()))
    }
    rows = [row for row in rows if row.used_for or everything]
    rows += [
        _ListedBuild(name=spec.name, tool=spec.tool.value, abis=(spec.abi,))
        for spec in workspace.library.specs
        if (spec.name, spec.abi) not in here
    ]
    ordered = sorted(rows, key=lambda row: (row.name, row.abis))
    return tables_result(
        Table(name="builds", caption="Builds of benchmark programs", columns=_LISTED, rows=ordered),
        "'benchfarm build fetch NAME' downloads a build; 'benchfarm build add FILE' adds your own",
    )


@frozen
class _ListedBuild:
    """A release that is kept, or a declared build that isn't on this computer."""

    name: str
    tool: str
    abis: tuple[str, ...]
    release: Release | None = None
    used_for: tuple[str, ...] = ()

    @property
    def state(self) -> str:
        """Whether it is used."""
        if self.release is None:
            return "not here"
        return "kept" if not self.used_for else _FAKE if self.release.is_virtual else "in use"


RELEASE: Final[Sequence[Column[Release]]] = (
    Column("name", value=lambda row: row.name, forms=DATA),
    Column("release_id", "release", lambda row: row.release_id),
    Column("tag", "which", lambda row: row.tag),
    Column(
        "seen_at",
        "first seen",
        lambda row: row.seen_at,
        kind=Kind.MOMENT,
        shown=lambda release: f"{release.seen_at:%Y-%m-%d}",
    ),
    Column("sha256", value=lambda release: release.program.sha256, forms=DATA),
    Column("is_virtual", value=lambda row: row.is_virtual, kind=Kind.FLAG, forms=DATA),
)
_LISTED: Sequence[Column[_ListedBuild]] = (
    Column("name", "build", lambda row: row.name),
    Column("tool", value=lambda row: row.tool),
    Column("abis", "ABI", lambda row: row.abis),
    *(column.of(lambda row: row.release) for column in RELEASE[1:]),
    Column("in_use_for", value=lambda row: row.used_for, forms=DATA),
    Column("state", value=lambda row: row.state),
)


@command("build fetch")
def fetch(
    settings: Settings,
    names: Annotated[list[str], Argument(help="Builds, as 'benchfarm build list' names them.")],
    *,
    abi: Annotated[
        Texts, Option("--abi", help="Only for these ABIs (a,b) (default: all declared).")
    ] = None,
) -> CommandResult:
    """Download programs and libraries, and use them.

    Example: benchfarm build fetch benchmark_model --abi arm64-v8a
    """
    from orchestrator.app.builds import fetch_builds

    on_progress = downloads_on_stderr(settings.log_format)
    with workspace_of(settings) as workspace:
        fetched, problems = fetch_builds(workspace, names, split(abi), on_progress)
    lines = [line for result in fetched for line in _fetched_lines(result)]
    for spec, problem in problems:
        lines.append(one_line(f"{spec.name} for {spec.abi}: FAILED: {problem}"))
        lines += [f"  {problem.hint}"] if problem.hint else []
    data = {
        "fetched": fetched,
        "problems": [
            {"name": spec.name, "abi": spec.abi, **error.facts} for spec, error in problems
        ],
    }
    is_missing = bool(problems) or any(result.recipe for result in fetched)
    return CommandResult(
        text="\n".join(lines), data=data, exit_code=ArtifactError.exit_code if is_missing else 0
    )


@command("build add")
def add(settings: Settings, request: AddRequest) -> CommandResult:
    """Validate a program and add it to the cache.

    Example: benchfarm build add ./benchmark_model --name mine
    """
    from orchestrator.app.builds import add_build

    with workspace_of(settings) as workspace:
        build, replaced = add_build(workspace, request)
    lines = _build_lines(build)
    if replaced is not None:
        lines += [
            f"  {build.name} was {_titled(replaced)}",
            one_line(_SWITCH.format(replaced.address)),
        ]
    return CommandResult(text="\n".join(lines), data=build)


@command("build use")
def pin(
    settings: Settings,
    address: Annotated[
        str,
        Argument(
            help="NAME@DIGITS, as 'benchfarm build list --all' shows them.", metavar="RELEASE"
        ),
    ],
) -> CommandResult:
    """Switch to another kept release, older or newer.

    Example: benchfarm build use benchmark_model@4f1c
    """
    with workspace_of(settings) as workspace:
        release = workspace.library.find_release(address)
        workspace.library.archive.use(release)
    text = f"{release.name} for {', '.join(release.abis)}: {_titled(release)} is in use now"
    return CommandResult(
        text=one_line(text), data={"in_use": release, "release_id": release.release_id}
    )


def _fetched_lines(result: Fetched) -> list[str]:
    head = f"{result.name} for {result.abi}: "
    if result.recipe:
        return [
            f"{head}isn't published; build it with",
            *(f"  {command}" for command in result.recipe),
            f"  benchfarm build add FILE --name {result.name}",
        ]
    assert result.release is not None
    release = _titled(result.release)
    if result.previous is not None:
        lines = [
            f"{head}CHANGED: {release} is in use, was {_titled(result.previous)}",
            _SWITCH.format(result.previous.address),
        ]
    else:
        lines = [
            f"{head}{release} is here and in use"
            if result.is_new
            else f"{head}unchanged, {release}"
        ]
    if result.absent:
        lines.append(f"  optional and not available: {', '.join(result.absent)}")
    return [one_line(line) for line in lines]


def _build_lines(build: Build) -> list[str]:
    size = format_bytes(build.path.stat().st_size) if build.path else ""
    lines = [
        f"{build.name}: {build.tool}, {build.abi}, {size}, sha256 {build.sha256}",
        f"  file: {build.path}",
    ]
    lines += [f"  beside it: {item.name}, sha256 {item.sha256}" for item in build.companions]
    return [one_line(line) for line in lines]


def _titled(release: Release) -> str:
    tag = f" ({release.tag})" if release.tag else ""
    return f"{release.release_id}{tag}, first seen {release.seen_at:%Y-%m-%d}"


@command("flags", has_table=True)
def flags(
    settings: Settings,
    name: Annotated[
        str, Argument(help="Flag, or declared program (default: list all).", metavar="NAME")
    ] = "",
    tool: Annotated[
        str, Option("--tool", help="Program: native, apk, perf-options, litert-lm, llama-bench ...")
    ] = USUAL_TOOL,
    build: Annotated[str, Option("--build", help="Name, sha256 or path of one program.")] = "",
    device: Annotated[
        str,
        Option(
            "--serial",
            "-s",
            help="Ask the program that is used on this device (host: this computer).",
        ),
    ] = "",
) -> CommandResult:
    """Explain the flags of a benchmark program.

    Example: benchfarm flags use_xnnpack
    """
    from orchestrator.app.builds import flags_of

    with workspace_of(settings, needs_store=False) as workspace:
        program_flags, flag = flags_of(workspace, name, build=build, tool=tool, serial=device)
    facts = {
        "tool": program_flags.tool.value,
        "build": program_flags.build.name if program_flags.build else None,
        "build_sha256": program_flags.build.sha256 if program_flags.build else None,
        "learned": program_flags.schema.is_learned,
    }
    specs = (
        [flag] if flag else sorted(program_flags.schema.flags.values(), key=lambda spec: spec.name)
    )
    table = Table(name="flags", caption=program_flags.title, columns=_FLAGS, rows=specs)
    done = tables_result(f"{one_line(program_flags.title)}\n", table, facts=facts)
    return done if flag is None else replace(done, text=_flag_text(flag, program_flags.title))


_FLAGS: Sequence[Column[FlagSpec]] = (
    Column("name", "flag", lambda row: row.name),
    Column("type", value=lambda spec: spec.kind),
    Column("default", value=lambda row: row.default, shown=lambda spec: spec.default or "empty"),
    Column(
        "builds",
        value=lambda spec: spec.build,
        shown=lambda spec: _BUILDS.get(spec.build, f"with the delegate {spec.build}"),
    ),
    Column("choices", "one of", lambda row: row.choices, forms=DATA),
    Column(
        "needs",
        value=lambda row: row.needs,
        forms=DATA,
        shown=lambda spec: f"--{spec.needs}, without which it does nothing" if spec.needs else None,
    ),
    Column(
        "meaning",
        "what it does",
        lambda row: row.meaning,
        shown=lambda spec: spec.meaning or spec.help,
    ),
    Column("trap", value=lambda row: row.trap, forms=DATA),
    Column(
        "set_by",
        "in plans",
        lambda row: row.set_by,
        forms=DATA,
        shown=lambda spec: spec.set_by and f"can't be set as a flag: {spec.set_by}",
    ),
    Column("help", "its help", lambda row: row.help, forms=DATA),
)


def _flag_text(spec: FlagSpec, title: str) -> str:
    lines = [f"--{spec.name}={spec.default}", one_line(title), ""]
    for column in _FLAGS[1:]:
        words = one_line(column.cells([spec])[0])
        if words and (column.name != "help" or spec.meaning):
            text = f"{column.head:<14}{words}"
            lines += textwrap.wrap(text, _WIDTH, subsequent_indent=" " * 14)
    return "\n".join(lines)
