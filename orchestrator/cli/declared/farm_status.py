"""What the farm does now."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.frame import Json, app, show


@app.command("status")
def _status(
    keep_on: Annotated[bool, typer.Option("--watch", help="Show it again until no campaign runs.")] = False,
    every_s: Annotated[float, typer.Option("--every", min=0.2, help="Seconds between two looks.")] = 2.0,
    as_json: Json = False,
) -> None:
    """Tell what each phone of an unfinished campaign does, what is left, and which phones are in quarantine."""
    from orchestrator.cli import status

    show(
        lambda settings: (
            status.watch(settings, every_s=every_s) if keep_on and not as_json else status.status(settings)
        ),
        as_json=as_json,
    )
