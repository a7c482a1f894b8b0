"""Comparison tables."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.frame import Json, Out, app, show, split

Names = list[str] | None


@app.command("table")
def _table(
    devices: Annotated[
        Names, typer.Option("--devices", help="Profiles, names or serial numbers (a,b); all when left out.")
    ] = None,
    config: Annotated[
        Names, typer.Option("--config", help="'CPU, 4 threads', GPU, NNAPI ...; may be given again.")
    ] = None,
    model: Annotated[Names, typer.Option("--model", "-m", help="Model's name or pattern; may be given again.")] = None,
    source: Annotated[Names, typer.Option("--source", help="published, store (a,b); both when left out.")] = None,
    campaign: Annotated[
        Names, typer.Option("--campaign", help="Only figures of this campaign; may be given again.")
    ] = None,
    form: Annotated[str, typer.Option("--format", "-f", help="text, markdown, html, csv, latex or json.")] = "text",
    title: Annotated[str, typer.Option("--title", help="Of the HTML page.")] = "Latency by device and delegate",
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Print a table of models, devices and configurations, as public performance guides show them."""
    from orchestrator.cli import tabling

    request = tabling.TableRequest(
        devices=split(devices),
        models=tuple(model or ()),
        configurations=tuple(config or ()),
        sources=split(source),
        campaigns=tuple(campaign or ()),
    )
    show(lambda settings: tabling.render(settings, request, form=form, out=out, title=title), as_json=as_json)
