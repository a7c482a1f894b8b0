"""Sustained measurements: sustained."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.frame import Json, app, show


@app.command("sustained")
def _sustained(
    campaign: Annotated[
        str, typer.Argument(help="Campaign, by the beginning of its id; the newest with such a measurement else.")
    ] = "",
    as_json: Json = False,
) -> None:
    """Show latency against time: burst and steady level, onset, a row for each minute, phones ranked by both."""
    from orchestrator.cli import sustained

    show(lambda settings: sustained.show(settings, campaign), as_json=as_json)
