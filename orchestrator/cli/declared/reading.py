"""What is stored and what can be read: report, campaigns, runs, log, parse, import."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.frame import (
    CampaignArgument,
    Campaigns,
    HtmlOut,
    Json,
    Out,
    Shown,
    app,
    command,
    command_of,
    group,
    show,
)
from orchestrator.errors import UsageError

results_app = group("results", "List, show, hide, remove and close what is stored.")
Named = Annotated[list[str], typer.Argument(metavar="CAMPAIGN...", help="Campaigns, by id or its beginning.")]


@command(app, "report")
def _report(
    campaigns: Campaigns = None,
    out: Out = None,
    form: Annotated[
        str, typer.Option("--format", "-f", help="html, text, markdown, csv or json (default: by --out, else html).")
    ] = "",
    published: Annotated[bool, typer.Option("--published", help="Include public reference figures.")] = False,
    pictures: Annotated[
        Path | None, typer.Option("--pictures", help="Also write each chart to this folder, as SVG and PNG.")
    ] = None,
    accuracy: Annotated[
        Path | None, typer.Option("--accuracy", help="CSV of model,accuracy (in percent), for the trade-off charts.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Render a report of one or more campaigns.

    Example: benchfarm report newest --out report.html
    """
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


@command(results_app, "list")
def _campaigns(
    hidden: Annotated[bool, typer.Option("--hidden", help="List hidden campaigns too.")] = False,
    as_json: Json = False,
) -> None:
    """List stored campaigns, newest first.

    Example: benchfarm results list
    """
    from orchestrator.cli import stored

    show(lambda settings: stored.campaigns(settings, with_hidden=hidden), as_json=as_json)


@command(results_app, "remove")
def _remove(
    campaigns: Named,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove without asking.")] = False,
    as_json: Json = False,
) -> None:
    """Delete campaigns with all their runs and logs.

    Example: benchfarm results remove CAMPAIGN --yes

    This can't be undone. A campaign that is being measured is refused.
    """
    from orchestrator.cli import removing

    show(lambda settings: removing.remove(settings, campaigns, is_sure=yes), as_json=as_json)


@command(results_app, "hide")
def _hide(campaigns: Named, as_json: Json = False) -> None:
    """Leave campaigns out of lists, tables and the history.

    Example: benchfarm results hide CAMPAIGN

    A command that names a hidden campaign still shows it.
    """
    from orchestrator.cli import removing

    show(lambda settings: removing.hide(settings, campaigns, is_hidden=True), as_json=as_json)


@command(results_app, "unhide")
def _unhide(campaigns: Named, as_json: Json = False) -> None:
    """Show hidden campaigns again.

    Example: benchfarm results unhide CAMPAIGN
    """
    from orchestrator.cli import removing

    show(lambda settings: removing.hide(settings, campaigns, is_hidden=False), as_json=as_json)


@command(results_app, "runs")
def _runs(campaign: CampaignArgument = "", as_json: Json = False) -> None:
    """List the runs of a campaign.

    Example: benchfarm results runs newest
    """
    from orchestrator.cli import stored

    show(lambda settings: stored.runs(settings, campaign), as_json=as_json)


@command(results_app, "log")
def _log(
    run_id: Annotated[str, typer.Argument(help="Run id or its beginning, from 'benchfarm results runs'.")],
    attachment: Annotated[
        str, typer.Option("--attachment", "-a", help="Name of one attachment (default: all text).")
    ] = "",
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Show the output of a run, as it was stored.

    Example: benchfarm results log RUN
    """
    from orchestrator.cli import stored

    show(lambda settings: stored.log(settings, run_id, attachment, out), as_json=as_json)


@command(results_app, "reparse")
def _reparse(campaigns: Campaigns = None, as_json: Json = False) -> None:
    """Parse stored output again, and update the verdicts.

    Example: benchfarm results reparse

    Default: all campaigns.
    """
    from orchestrator.cli import stored

    show(lambda settings: stored.reparse(settings, tuple(campaigns or ())), as_json=as_json)


@command(app, "parse")
def _parse(
    files: Annotated[list[str], typer.Argument(help="Files with benchmark output. '-' is standard input.")],
    as_json: Json = False,
) -> None:
    """Show what benchfarm reads from benchmark output.

    Example: benchfarm parse log.txt
    """
    from orchestrator.cli import parsing

    show(lambda _: parsing.parse_files(tuple(files)), as_json=as_json)


@dataclass(frozen=True, kw_only=True)
class ImportOptions(Shown):
    """What 'import' reads."""

    files: Annotated[list[Path], typer.Argument(help="A bundle, or Firebase JSON or CSV, report.json or report.csv.")]
    device: Annotated[str, typer.Option("--device", "-s", help="Serial number or name of the measured phone.")] = ""
    model: Annotated[list[Path] | None, typer.Option("--model", "-m", help="Measured model. Repeat for several.")] = (
        None
    )
    profile: Annotated[str, typer.Option("--profile", help="Profile of a phone that isn't known.")] = ""
    program: Annotated[str, typer.Option("--app", help="File of the app (with a slash), or its version.")] = ""
    campaign_name: Annotated[str, typer.Option("--name", help="Name of the campaign.")] = "import"
    out: HtmlOut = None
    trust: Annotated[
        list[str] | None,
        typer.Option(
            "--trust", help="Accept only a bundle signed with this public key (or its file). Repeat for several."
        ),
    ] = None


@command_of(app, "import", ImportOptions)
def _import(options: ImportOptions) -> None:
    """Import a bundle, or results of other benchmark apps.

    Example: benchfarm import lab.bundle.json
    """
    from orchestrator.app.bundling import is_bundle
    from orchestrator.app.importing import ImportRequest
    from orchestrator.cli import exchanging

    if missing := next((path for path in options.files if not path.is_file()), None):
        raise UsageError(f"{missing}: there is no such file")
    if any(is_bundle(path) for path in options.files):
        if len(options.files) > 1 or options.device or options.model:
            raise UsageError("a bundle is imported alone and says itself what is in it")
        trust = tuple(options.trust or ())
        show(lambda settings: exchanging.take_in(settings, options.files[0], trust), as_json=options.as_json)
        return
    if options.trust:
        raise UsageError("--trust is about bundles; these results hold no signature")
    if not options.device or not options.model:
        raise UsageError("these results don't say what they are of", hint="give --device and --model")
    request = ImportRequest(
        files=tuple(options.files),
        device=options.device,
        profile=options.profile,
        models=tuple(options.model),
        app=options.program,
        name=options.campaign_name,
    )
    show(lambda settings: exchanging.import_files(settings, request, options.out), as_json=options.as_json)
