"""Searching the fastest configuration: tune."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.frame import AtMost, Builds, Json, OneOfEach, Profiles, Where, app, refuse, show, split
from orchestrator.errors import UsageError


@app.command("tune")
def _tune(
    context: typer.Context,
    models: Annotated[list[Path] | None, typer.Argument(help="Model files (.tflite).")] = None,
    device: Annotated[
        list[str] | None, typer.Option("--device", "-s", "--phone", help="Serial number, or host; may be given again.")
    ] = None,
    profile: Profiles = None,
    where: Where = None,
    one_of_each: OneOfEach = "",
    at_most: AtMost = None,
    delegate: Annotated[
        list[str] | None,
        typer.Option("--delegate", "-d", help="cpu, xnnpack, gpu ... (a,b); cpu,xnnpack,gpu,nnapi,hexagon else."),
    ] = None,
    threads: Annotated[
        list[str] | None, typer.Option("--threads", "-t", help="Thread counts (1,4); 1,2,4,8 when left out.")
    ] = None,
    flags: Annotated[
        list[str] | None,
        typer.Option("--flags", help="A set of flags to try beside none, name=value,name=value; may be given again."),
    ] = None,
    tool: Annotated[str, typer.Option("--tool", help="native, apk or litert-native.")] = "native",
    build: Builds = None,
    most: Annotated[int, typer.Option(min=2, max=64, help="Processes per configuration, at the most.")] = 8,
    alike: Annotated[str, typer.Option("--alike", help="Differences below this don't matter.")] = "2%",
    budget: Annotated[
        str, typer.Option("--budget", help="Share of the full product's time, at the most (from 8 configurations on).")
    ] = "33%",
    min_secs: Annotated[float, typer.Option(min=0, help="Seconds measured per process, at the least.")] = 1.0,
    parity: Annotated[bool, typer.Option("--parity/--no-parity", help="Compare the outputs of what is left.")] = True,
    seed: Annotated[int, typer.Option(help="Of the order of invocations.")] = 0,
    campaign: Annotated[
        str, typer.Option("--campaign", help="Run nothing; show how this search (id or its beginning) stands.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Search the fastest configuration of a model on each phone: delegates x threads x flags, in little phone time."""
    from orchestrator.cli import searching

    if bool(models) == bool(campaign):
        raise UsageError(
            "give either models or --campaign",
            hint="benchfarm tune m.tflite --phone SERIAL | benchfarm tune --campaign ID",
        )
    if campaign:
        refuse(
            context, {item.name or "" for item in context.command.params} - {"campaign", "as_json"}, "with --campaign"
        )
        show(lambda settings: searching.stored(settings, campaign), as_json=as_json)
        return
    request = searching.TuneRequest(
        models=tuple(models or ()),
        serials=tuple(device or ()),
        profiles=tuple(profile or ()),
        where=tuple(where or ()),
        one_of_each=one_of_each,
        at_most=at_most,
        delegates=split(delegate),
        threads=split(threads),
        flag_sets=tuple(flags) if flags is not None else None,
        tool=tool,
        builds=tuple(build or ()),
        most=most,
        alike=alike,
        budget=budget,
        min_secs=min_secs,
        parity=parity,
        seed=seed,
    )
    show(lambda settings: searching.tune(settings, request), as_json=as_json)
