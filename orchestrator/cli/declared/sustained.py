"""Sustained measurements: sustained."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.declared.reading import results_app
from orchestrator.cli.frame import Deed, command


@command(results_app, "sustained")
def _sustained(
    campaign: Annotated[
        str, typer.Argument(help="Campaign id or its beginning (default: the newest with a sustained measurement).")
    ] = "",
) -> Deed:
    """Show latency over time, and when throttling began.

    Example: benchfarm results sustained
    """
    from orchestrator.cli import sustained

    return lambda settings: sustained.show(settings, campaign)
