"""What measurements advise: advise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.frame import Campaigns, Json, Out, app, show


@app.command("advise")
def _advise(
    campaigns: Campaigns = None,
    fleet: Annotated[bool, typer.Option("--fleet", help="Only the one choice for all phones.")] = False,
    inferences: Annotated[
        int | None, typer.Option("--inferences", min=1, help="Inferences that an app makes with one start.")
    ] = None,
    form: Annotated[str, typer.Option("--format", "-f", help="text, json, markdown or html-section.")] = "text",
    allow_list: Annotated[
        Path | None, typer.Option("--allow-list", help="Write what an app may use to this file, as JSON.")
    ] = None,
    need_parity: Annotated[
        bool, typer.Option("--need-parity", help="Allow only what agreed with the reference (pass parity).")
    ] = False,
    accuracy: Annotated[
        Path | None, typer.Option("--accuracy", help="CSV with the columns model,accuracy, in percent.")
    ] = None,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Say what stored, trusted figures advise: configurations, threads, delegates, starts, and what isn't known."""
    from orchestrator.cli import advising

    request = advising.AdviseRequest(
        campaigns=tuple(campaigns or ()),
        fleet=fleet,
        inferences=inferences,
        form=form,
        allow_list=allow_list,
        need_parity=need_parity,
        accuracy=accuracy,
        out=out,
    )
    show(lambda settings: advising.advise(settings, request), as_json=as_json)
