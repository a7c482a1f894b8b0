"""Benchmark programs and their flags."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.frame import Json, app, group, show, split

builds_app = group("builds", "The benchmark programs that benchfarm can put on a phone.")


@app.command("flags")
def _flags(
    flag_name: Annotated[str, typer.Argument(metavar="NAME", help="Explain this one; all are listed else.")] = "",
    tool: Annotated[
        str, typer.Option("--tool", help="Whose flags: native, apk, perf-options, litert-native or ios-app.")
    ] = "native",
    build: Annotated[str, typer.Option("--build", help="Name, sha256 or path of one program.")] = "",
    device: Annotated[
        str, typer.Option("--device", "-s", help="Ask the program that is used on this device ('host': here).")
    ] = "",
    as_json: Json = False,
) -> None:
    """Explain the flags of a benchmark program: type, default, which builds have them, what they do, traps."""
    from orchestrator.cli import flags

    show(lambda settings: flags.explain(settings, flag_name, build=build, tool=tool, serial=device), as_json=as_json)


@builds_app.command("list")
def _builds_list(
    everything: Annotated[bool, typer.Option("--all", help="Older releases that were kept, too.")] = False,
    as_json: Json = False,
) -> None:
    """List the known builds, which are on this computer, and which release of each is in use."""
    from orchestrator.cli import builds

    show(lambda settings: builds.list_builds(settings, everything=everything), as_json=as_json)


@builds_app.command("fetch")
def _builds_fetch(
    names: Annotated[list[str], typer.Argument(help="Declared builds, as 'benchfarm builds list' names them.")],
    abi: Annotated[
        list[str] | None, typer.Option("--abi", help="Only for these (a,b); for all that are declared else.")
    ] = None,
    keep_pin: Annotated[
        bool, typer.Option("--keep-pin", help="Keep what is new, and go on using what is in use.")
    ] = False,
    mirror: Annotated[
        str, typer.Option("--mirror", help="Download from PREFIX, or ORIGIN=PREFIX ($BENCHFARM_MIRROR).")
    ] = "",
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that one file may take.")] = 1800.0,
    stall: Annotated[float, typer.Option(min=0.1, help="Seconds that a server may be silent.")] = 30.0,
    as_json: Json = False,
) -> None:
    """Download programs and their libraries from where their build files say, and use them from now on."""
    from orchestrator.cli import builds

    request = builds.FetchRequest(
        names=tuple(names), abis=split(abi), keep_pin=keep_pin, mirror=mirror, timeout_s=timeout, stall_s=stall
    )
    show(lambda settings: builds.fetch(settings, request), as_json=as_json)


@builds_app.command("add")
def _builds_add(
    file: Annotated[Path, typer.Argument(help="A benchmark_model binary, an APK, or a library for one.")],
    build_name: Annotated[str, typer.Option("--name", help="Name to know it by.")] = "",
    library: Annotated[
        list[Path] | None, typer.Option("--with", help="Library to lie beside it; may be given again.")
    ] = None,
    release: Annotated[str, typer.Option("--release", help="Which release the files are of.")] = "",
    as_json: Json = False,
) -> None:
    """Take a program and its libraries into the cache, after a look inside, and use them from now on."""
    from orchestrator.cli import builds

    show(lambda settings: builds.add(settings, file, build_name, tuple(library or ()), release), as_json=as_json)


@builds_app.command("pin")
def _builds_pin(
    release: Annotated[str, typer.Argument(help="NAME@DIGITS, as 'benchfarm builds list --all' shows them.")],
    as_json: Json = False,
) -> None:
    """Use a release that was kept: go back to an older one, or on to a newer one."""
    from orchestrator.cli import builds

    show(lambda settings: builds.pin(settings, release), as_json=as_json)


@builds_app.command("which")
def _builds_which(
    tool: Annotated[str, typer.Argument(help="native, apk, litert-native ...")],
    abi: Annotated[str, typer.Option("--abi", help="Of the phone; linux-x86_64 for this computer.")] = "arm64-v8a",
    build: Annotated[str, typer.Option("--build", help="What a plan would name; the default build else.")] = "",
    as_json: Json = False,
) -> None:
    """Say which program would be used, where it comes from, what is in it and what lies beside it."""
    from orchestrator.cli import builds

    show(lambda settings: builds.which(settings, tool, abi, build), as_json=as_json)


@builds_app.command("verify")
def _builds_verify(as_json: Json = False) -> None:
    """Compare every cached program and library with its sha256."""
    from orchestrator.cli import builds

    show(builds.verify, as_json=as_json)
