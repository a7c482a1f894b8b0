"""Out of the store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.frame import Campaigns, Json, app, show


@app.command("export")
def _export(
    campaigns: Campaigns = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="File, or folder for asv and proto (default: benchfarm-... in this folder, by format)."
        ),
    ] = None,
    form: Annotated[
        str, typer.Option("--format", "-f", help="bundle, csv, parquet, json, bencher, asv or proto.")
    ] = "bundle",
    runs: Annotated[
        list[str] | None, typer.Option("--run", help="Only this run, by id or its beginning; may be given again.")
    ] = None,
    rows: Annotated[str, typer.Option("--rows", help="Of csv and parquet: cases or invocations.")] = "cases",
    commit: Annotated[str, typer.Option("--commit", help="Of asv: the commit that was measured.")] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
    as_json: Json = False,
) -> None:
    """Write campaigns as a bundle that another lab can import and read again, or for other programs."""
    from orchestrator.cli import bundling

    request = bundling.ExportRequest(
        campaigns=tuple(campaigns or ()),
        runs=tuple(runs or ()),
        form=form,
        rows=rows,
        commit=commit,
        out=out,
        force=force,
    )
    show(lambda settings: bundling.export(settings, request), as_json=as_json)
