"""What the farm does now."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.frame import Deed, Json, app, command


@command(app, "status")
def _status(
    keep_on: Annotated[bool, typer.Option("--watch", help="Repeat until no campaign runs.")] = False,
    every_s: Annotated[float, typer.Option("--every", min=0.2, help="Seconds between two updates.")] = 2.0,
    as_json: Json = False,
) -> Deed:
    """Show what each phone does now, and what is left.

    Example: benchfarm status --watch
    """
    from orchestrator.cli import status

    return lambda settings: (
        status.watch(settings, every_s=every_s) if keep_on and not as_json else status.status(settings)
    )
