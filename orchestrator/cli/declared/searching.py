"""Searching for the fastest configuration: tune."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.frame import Deed, OnPhones, app, command, refuse, split
from orchestrator.errors import UsageError
from orchestrator.records.workload import USUAL_TOOL


@dataclass(frozen=True, kw_only=True)
class TuneOptions(OnPhones):
    """What 'tune' reads."""

    context: typer.Context
    models: Annotated[list[Path] | None, typer.Argument(help="Model files (.tflite).")] = None
    device: Annotated[
        list[str] | None, typer.Option("--device", "-s", "--phone", help="Serial number, or host. Repeat for several.")
    ] = None
    delegate: Annotated[
        list[str] | None,
        typer.Option("--delegate", "-d", help="Delegates to try (default: cpu,xnnpack,gpu,nnapi,hexagon)."),
    ] = None
    threads: Annotated[
        list[str] | None, typer.Option("--threads", "-t", help="Thread counts to try (default: 1,2,4,8).")
    ] = None
    flags: Annotated[
        list[str] | None,
        typer.Option("--flags", help="A set of flags to try beside none, name=value,name=value. Repeat for several."),
    ] = None
    tool: Annotated[str, typer.Option("--tool", help="native, apk or litert-native.")] = USUAL_TOOL
    most: Annotated[int, typer.Option(min=2, max=64, help="Processes per configuration, at most.")] = 8
    alike: Annotated[str, typer.Option("--alike", help="Ignore differences below this.")] = "2%"
    budget: Annotated[
        str,
        typer.Option(
            "--budget", help="Share of the time of measuring every configuration, at most (from 8 configurations on)."
        ),
    ] = "33%"
    min_secs: Annotated[float, typer.Option(min=0, help="Seconds per process, at least.")] = 1.0
    parity: Annotated[bool, typer.Option("--parity/--no-parity", help="Compare the outputs of the finalists.")] = True
    seed: Annotated[int, typer.Option(help="Seed for the order of invocations.")] = 0
    campaign: Annotated[
        str, typer.Option("--campaign", help="Measure nothing. Show this search (id or its beginning).")
    ] = ""


@command(app, "tune")
def _tune(options: TuneOptions) -> Deed:
    """Find a model's fastest configuration on each phone.

    Example: benchfarm tune model.tflite --device SERIAL

    Tries delegates x threads x flags, and drops early what is clearly slower.
    """
    from orchestrator.cli import searching

    if bool(options.models) == bool(options.campaign):
        raise UsageError(
            "give either models or --campaign",
            hint="benchfarm tune m.tflite --phone SERIAL | benchfarm tune --campaign ID",
        )
    if options.campaign:
        others = {item.name or "" for item in options.context.command.params} - {"campaign", "as_json"}
        refuse(options.context, others, "with --campaign")
        return lambda settings: searching.stored(settings, options.campaign)
    request = searching.TuneRequest(
        models=tuple(options.models or ()),
        serials=tuple(options.device or ()),
        profiles=tuple(options.profile or ()),
        where=tuple(options.where or ()),
        one_of_each=options.one_of_each,
        at_most=options.at_most,
        delegates=split(options.delegate),
        threads=split(options.threads),
        flag_sets=tuple(options.flags) if options.flags is not None else None,
        tool=options.tool,
        builds=tuple(options.build or ()),
        most=options.most,
        alike=options.alike,
        budget=options.budget,
        min_secs=options.min_secs,
        parity=options.parity,
        seed=options.seed,
    )
    return lambda settings: searching.tune(settings, request)
