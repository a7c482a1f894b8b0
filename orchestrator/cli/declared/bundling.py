"""Exports of stored results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.frame import Campaigns, Deed, app, command


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """What 'export' reads."""

    campaigns: Campaigns = None
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="File, or folder for asv and proto (default: benchfarm-... in this folder, by format)."
        ),
    ] = None
    form: Annotated[
        str,
        typer.Option(
            "--format", "-f", help="bundle, csv, parquet, json, bencher, asv or proto (default: by --out, else bundle)."
        ),
    ] = ""
    runs: Annotated[
        list[str] | None,
        typer.Option("--run", help="Export only this run, by id or its beginning. Repeat for several."),
    ] = None
    rows: Annotated[str, typer.Option("--rows", help="Rows of csv and parquet: cases or invocations.")] = "cases"
    commit: Annotated[str, typer.Option("--commit", help="For asv: the measured commit.")] = ""
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False
    sign: Annotated[bool, typer.Option("--sign", help="Sign a bundle with the key of this computer.")] = False
    key: Annotated[
        Path | None, typer.Option("--key", help="With --sign: use this Ed25519 key, as ssh-keygen writes it.")
    ] = None


@command(app, "export")
def _export(options: ExportOptions) -> Deed:
    """Write results as a bundle, CSV, Parquet, JSON and more.

    Example: benchfarm export newest --format csv
    """
    from orchestrator.app.bundling import ExportRequest
    from orchestrator.cli import exchanging

    request = ExportRequest(
        campaigns=tuple(options.campaigns or ()),
        runs=tuple(options.runs or ()),
        form=options.form,
        rows=options.rows,
        commit=options.commit,
        out=options.out,
        force=options.force,
        sign=options.sign,
        key=options.key,
    )
    return lambda settings: exchanging.export(settings, request)
