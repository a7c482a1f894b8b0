"""Comparison tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from orchestrator.cli.frame import Deed, Out, app, command, split

Names = list[str] | None


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """What 'table' reads."""

    devices: Annotated[
        Names, typer.Option("--devices", help="Profiles, names or serial numbers (a,b) (default: all).")
    ] = None
    config: Annotated[Names, typer.Option("--config", help="'CPU, 4 threads', GPU, NNAPI ... Repeat for several.")] = (
        None
    )
    model: Annotated[Names, typer.Option("--model", "-m", help="Name or pattern of a model. Repeat for several.")] = (
        None
    )
    source: Annotated[
        Names, typer.Option("--source", help="published, store, language-models (a,b) (default: all).")
    ] = None
    campaign: Annotated[Names, typer.Option("--campaign", help="Use only this campaign. Repeat for several.")] = None
    form: Annotated[
        str,
        typer.Option("--format", "-f", help="text, markdown, html, csv, latex or json (default: by --out, else text)."),
    ] = ""
    title: Annotated[str, typer.Option("--title", help="Title of the HTML page.")] = "Latency by device and delegate"
    out: Out = None


@command(app, "table")
def _table(options: TableOptions) -> Deed:
    """Print a table of models, devices and configurations.

    Example: benchfarm table --devices pixel-3,pixel-4
    """
    from orchestrator.app.tabling import TableRequest
    from orchestrator.cli import tabling

    request = TableRequest(
        devices=split(options.devices),
        models=tuple(options.model or ()),
        configurations=tuple(options.config or ()),
        sources=split(options.source),
        campaigns=tuple(options.campaign or ()),
    )
    return lambda settings: tabling.render(settings, request, form=options.form, out=options.out, title=options.title)
