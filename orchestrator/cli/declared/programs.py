"""Benchmark programs and their flags."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.frame import Deed, app, command, group, later, split
from orchestrator.records.workload import USUAL_TOOL

if TYPE_CHECKING:
    from orchestrator.cli import builds, flags
else:
    builds, flags = later("builds flags")

build_app = group("build", "List, download and choose the benchmark programs.")


@command(app, "flags")
def _flags(
    flag_name: Annotated[
        str, typer.Argument(metavar="NAME", help="Flag, or declared program (default: list all).")
    ] = "",
    tool: Annotated[
        str, typer.Option("--tool", help="Program: native, apk, perf-options, litert-lm, llama-bench ...")
    ] = USUAL_TOOL,
    build: Annotated[str, typer.Option("--build", help="Name, sha256 or path of one program.")] = "",
    device: Annotated[
        str, typer.Option("--device", "-s", help="Ask the program that is used on this device (host: this computer).")
    ] = "",
) -> Deed:
    """Explain the flags of a benchmark program.

    Example: benchfarm flags use_xnnpack
    """
    return lambda settings: flags.explain(settings, flag_name, build=build, tool=tool, serial=device)


@command(build_app, "list")
def _builds_list(
    everything: Annotated[bool, typer.Option("--all", help="Include older releases that were kept.")] = False,
) -> Deed:
    """List the builds, and which release is in use.

    Example: benchfarm build list
    """
    return lambda settings: builds.list_builds(settings, everything=everything)


@command(build_app, "fetch")
def _builds_fetch(
    names: Annotated[list[str], typer.Argument(help="Builds, as 'benchfarm build list' names them.")],
    abi: Annotated[
        list[str] | None, typer.Option("--abi", help="Only for these ABIs (a,b) (default: all declared).")
    ] = None,
    keep_pin: Annotated[
        bool, typer.Option("--keep-pin", help="Keep the new release, but continue to use the current one.")
    ] = False,
    mirror: Annotated[
        str, typer.Option("--mirror", help="Download from PREFIX, or ORIGIN=PREFIX ($BENCHFARM_MIRROR).")
    ] = "",
    timeout: Annotated[float, typer.Option(min=1, help="Seconds per file, at most.")] = 1800.0,
    stall: Annotated[float, typer.Option(min=0.1, help="Seconds without data, at most.")] = 30.0,
) -> Deed:
    """Download programs and libraries, and use them.

    Example: benchfarm build fetch benchmark_model --abi arm64-v8a
    """
    from orchestrator.app.builds import FetchRequest

    request = FetchRequest(
        names=tuple(names), abis=split(abi), keep_pin=keep_pin, mirror=mirror, timeout_s=timeout, stall_s=stall
    )
    return lambda settings: builds.fetch(settings, request)


@command(build_app, "add")
def _builds_add(
    file: Annotated[Path, typer.Argument(help="A benchmark_model binary, an APK, or a library for one.")],
    build_name: Annotated[str, typer.Option("--name", help="Name of the build.")] = "",
    tool: Annotated[str, typer.Option("--tool", help="Which program it is (default: by its name).")] = "",
    library: Annotated[
        list[Path] | None, typer.Option("--with", help="Library to install beside it. Repeat for several.")
    ] = None,
    release: Annotated[str, typer.Option("--release", help="Release that the files belong to.")] = "",
) -> Deed:
    """Validate a program and add it to the cache.

    Example: benchfarm build add ./benchmark_model --name mine
    """
    return lambda settings: builds.add(settings, file, build_name, tuple(library or ()), release, tool)


@command(build_app, "make")
def _builds_make(
    name: Annotated[str, typer.Argument(help="Build, as 'benchfarm build list' names it.")],
    source: Annotated[Path, typer.Option("--source", help="Checkout of the program's source.")],
    abi: Annotated[str, typer.Option("--abi", help="ABI to build for.")] = "arm64-v8a",
    target: Annotated[str, typer.Option("--target", help="Bazel's target (default: the declared recipe).")] = "",
    timeout: Annotated[float, typer.Option(min=1, help="Seconds per command, at most.")] = 14_400.0,
) -> Deed:
    """Build a program from its source, and use it.

    Example: benchfarm build make mine --source litert --target //tflite/tools/benchmark:benchmark_model

    Needs bazel or bazelisk, and for Android its NDK. The program is kept with the source's commit as its release.
    """
    from orchestrator.app.builds import MakeRequest

    request = MakeRequest(name=name, abi=abi, source=source.absolute(), target=target, timeout_s=timeout)
    return lambda settings: builds.make(settings, request)


@command(build_app, "use")
def _builds_pin(
    release: Annotated[str, typer.Argument(help="NAME@DIGITS, as 'benchfarm build list --all' shows them.")],
) -> Deed:
    """Use a release that was kept: an older or a newer one.

    Example: benchfarm build use benchmark_model@4f1c
    """
    return lambda settings: builds.pin(settings, release)


@command(build_app, "which")
def _builds_which(
    tool: Annotated[str, typer.Argument(help="native, apk, litert-native ...")],
    abi: Annotated[
        str, typer.Option("--abi", help="ABI of the phone, or linux-x86_64 for this computer.")
    ] = "arm64-v8a",
    build: Annotated[
        str, typer.Option("--build", help="Build that a plan would name (default: the default build).")
    ] = "",
) -> Deed:
    """Show which program would be used, and where it is from.

    Example: benchfarm build which native --abi arm64-v8a
    """
    return lambda settings: builds.which(settings, tool, abi, build)


@command(build_app, "programs")
def _builds_programs(
    files: Annotated[
        list[Path] | None, typer.Argument(help="Files to check (default: list those that are known).")
    ] = None,
) -> Deed:
    """List or check declared programs of other runtimes.

    Example: benchfarm build programs mine.yaml
    """
    return lambda settings: builds.declared_programs(settings, tuple(files or ()))


@command(build_app, "verify")
def _builds_verify() -> Deed:
    """Check every cached program by its sha256.

    Example: benchfarm build verify
    """
    return builds.verify
