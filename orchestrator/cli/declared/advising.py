"""What measurements advise: advise."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.frame import Campaigns, Deed, Out, app, command


@dataclass(frozen=True, kw_only=True)
class AdviseOptions:
    """What 'advise' reads."""

    campaigns: Campaigns = None
    fleet: Annotated[bool, typer.Option("--fleet", help="Show only the one choice for all phones.")] = False
    inferences: Annotated[
        int | None, typer.Option("--inferences", min=1, help="Inferences that an app runs per start.")
    ] = None
    need_parity: Annotated[
        bool, typer.Option("--need-parity", help="Allow only configurations that agreed with the reference (parity).")
    ] = False
    accuracy: Annotated[
        Path | None, typer.Option("--accuracy", help="CSV with the columns model,accuracy, in percent.")
    ] = None
    form: Annotated[
        str, typer.Option("--format", "-f", help="text, json, markdown or html-section (default: by --out, else text).")
    ] = ""
    allow_list: Annotated[
        Path | None,
        typer.Option("--allow-list", help="Write the configurations that an app may use to this JSON file."),
    ] = None
    out: Out = None


@command(app, "advise")
def _advise(options: AdviseOptions) -> Deed:
    """Recommend configurations from stored results.

    Example: benchfarm advise --inferences 100
    """
    from orchestrator.cli import advising

    request = advising.AdviseRequest(
        campaigns=tuple(options.campaigns or ()),
        fleet=options.fleet,
        inferences=options.inferences,
        form=options.form,
        allow_list=options.allow_list,
        need_parity=options.need_parity,
        accuracy=options.accuracy,
        out=options.out,
    )
    return lambda settings: advising.advise(settings, request)
