"""What is stored and what can be read: report, campaigns, runs, log, parse, import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.frame import CampaignArgument, Campaigns, Json, Out, app, show
from orchestrator.errors import UsageError


@app.command("report")
def _report(
    campaigns: Campaigns = None,
    out: Out = None,
    form: Annotated[str, typer.Option("--format", "-f", help="html, text, markdown, csv or json.")] = "html",
    published: Annotated[bool, typer.Option("--published", help="Show the public reference figures beside.")] = False,
    pictures: Annotated[
        Path | None, typer.Option("--pictures", help="Write each chart to this folder too, as SVG and PNG.")
    ] = None,
    accuracy: Annotated[
        Path | None, typer.Option("--accuracy", help="CSV of model,accuracy (in percent), for the trade-off charts.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Render a report of one campaign or several."""
    from orchestrator.cli import reports

    show(
        lambda settings: reports.render(
            settings,
            tuple(campaigns or ()),
            form=form,
            out=out,
            published=published,
            pictures=pictures,
            accuracy=accuracy,
        ),
        as_json=as_json,
    )


@app.command("campaigns")
def _campaigns(as_json: Json = False) -> None:
    """List what is stored, newest first."""
    from orchestrator.cli import stored

    show(stored.campaigns, as_json=as_json)


@app.command("runs")
def _runs(campaign: CampaignArgument = "", as_json: Json = False) -> None:
    """List the runs of a campaign."""
    from orchestrator.cli import stored

    show(lambda settings: stored.runs(settings, campaign), as_json=as_json)


@app.command("log")
def _log(
    run_id: Annotated[str, typer.Argument(help="Run id or its beginning, as 'benchfarm runs' shows it.")],
    attachment: Annotated[str, typer.Option("--attachment", "-a", help="Only this one; all that are text else.")] = "",
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Show what a run printed, byte for byte as it was kept."""
    from orchestrator.cli import stored

    show(lambda settings: stored.log(settings, run_id, attachment, out), as_json=as_json)


@app.command("reparse")
def _reparse(campaigns: Campaigns = None, as_json: Json = False) -> None:
    """Read stored raw output again and update what was derived from it; all campaigns when none is named."""
    from orchestrator.cli import stored

    show(lambda settings: stored.reparse(settings, tuple(campaigns or ())), as_json=as_json)


@app.command("parse")
def _parse(
    files: Annotated[list[str], typer.Argument(help="Files with benchmark output; '-' is standard input.")],
    as_json: Json = False,
) -> None:
    """Show what benchfarm gets out of any benchmark output: native runs, logcat, several runs in one text."""
    from orchestrator.cli import parsing

    show(lambda _: parsing.parse_files(tuple(files)), as_json=as_json)


@app.command("import")
def _import(
    files: Annotated[list[Path], typer.Argument(help="A bundle; or Firebase JSON or CSV, report.json or report.csv.")],
    device: Annotated[str, typer.Option("--device", "-s", help="Serial number or name of the phone it ran on.")] = "",
    model: Annotated[
        list[Path] | None, typer.Option("--model", "-m", help="Model that was measured; may be given again.")
    ] = None,
    profile: Annotated[str, typer.Option("--profile", help="Profile of a phone that isn't known yet.")] = "",
    program: Annotated[str, typer.Option("--app", help="The app's file (with a slash), or what version it is.")] = "",
    campaign_name: Annotated[str, typer.Option("--name", help="Name of the campaign.")] = "import",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Where to write the HTML report.")] = None,
    as_json: Json = False,
) -> None:
    """Take in another lab's bundle, or results of the Firebase and Delegate Performance Benchmark apps."""
    from orchestrator.cli import bundling, importing

    if missing := next((path for path in files if not path.is_file()), None):
        raise UsageError(f"{missing}: there is no such file")
    if any(bundling.is_bundle(path) for path in files):
        if len(files) > 1 or device or model:
            raise UsageError("a bundle is imported alone and says itself what is in it")
        show(lambda settings: bundling.take_in(settings, files[0]), as_json=as_json)
        return
    if not device or not model:
        raise UsageError("these results don't say what they are of", hint="give --device and --model")
    request = importing.ImportRequest(
        files=tuple(files), device=device, profile=profile, models=tuple(model), app=program, name=campaign_name
    )
    show(lambda settings: importing.import_files(settings, request, out), as_json=as_json)
