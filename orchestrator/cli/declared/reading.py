"""What is stored and what can be read: report, table, results, export, parse, import, store."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.frame import (
    CampaignArgument,
    Campaigns,
    Deed,
    HtmlOut,
    Out,
    app,
    command,
    filled,
    group,
    later,
    split,
)
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.cli import parsing, reports, retention, stored, tabling
else:
    parsing, reports, retention, stored, tabling = later("parsing reports retention stored tabling")

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
        Path | None,
        typer.Option("--accuracy", help="CSV of model,accuracy in percent, or what run_eval printed in MODEL.txt."),
    ] = None,
) -> Deed:
    """Render a report of one or more campaigns.

    Example: benchfarm report newest --out report.html
    """
    return lambda settings: reports.render(
        settings,
        tuple(campaigns or ()),
        form=form,
        out=out,
        published=published,
        pictures=pictures,
        accuracy=accuracy,
    )


Limit = Annotated[
    int | None, typer.Option("--limit", min=0, help="At most N, 0 for all (default: what fits a screen).")
]


@command(results_app, "list")
def _campaigns(
    hidden: Annotated[bool, typer.Option("--hidden", help="List hidden campaigns too.")] = False,
    name: Annotated[str, typer.Option("--name", help="Only campaigns with this in their name.")] = "",
    status: Annotated[str, typer.Option("--status", help="Only running, finished, interrupted ... ones.")] = "",
    limit: Limit = None,
) -> Deed:
    """List stored campaigns, newest first.

    Example: benchfarm results list --name nightly --limit 5
    """
    return lambda settings: stored.campaigns(settings, with_hidden=hidden, name=name, status=status, limit=limit)


@command(results_app, "remove")
def _remove(
    campaigns: Named,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Remove without asking.")] = False,
) -> Deed:
    """Delete campaigns with all their runs and logs.

    Example: benchfarm results remove CAMPAIGN --yes

    This can't be undone. A campaign that is being measured is refused.
    """
    return lambda settings: retention.remove(settings, campaigns, is_sure=yes)


@command(results_app, "hide")
def _hide(campaigns: Named) -> Deed:
    """Leave campaigns out of lists, tables and the history.

    Example: benchfarm results hide CAMPAIGN

    A command that names a hidden campaign still shows it.
    """
    return lambda settings: retention.hide(settings, campaigns, is_hidden=True)


@command(results_app, "unhide")
def _unhide(campaigns: Named) -> Deed:
    """Show hidden campaigns again.

    Example: benchfarm results unhide CAMPAIGN
    """
    return lambda settings: retention.hide(settings, campaigns, is_hidden=False)


@command(results_app, "runs")
def _runs(
    campaign: CampaignArgument = "",
    device: Annotated[str, typer.Option("--device", "-s", help="Only runs of this phone.")] = "",
    delegate: Annotated[str, typer.Option("--delegate", "-d", help="Only runs of this delegate.")] = "",
    outcome: Annotated[str, typer.Option("--outcome", help="Only completed, failed, timed-out ... ones.")] = "",
    limit: Limit = None,
) -> Deed:
    """List the runs of a campaign.

    Example: benchfarm results runs newest --outcome failed
    """
    return lambda settings: stored.runs(
        settings, campaign, serial=device, delegate=delegate, outcome=outcome, limit=limit
    )


@command(results_app, "log")
def _log(
    run_id: Annotated[str, typer.Argument(help="Run id or its beginning, from 'benchfarm results runs'.")],
    attachment: Annotated[
        str, typer.Option("--attachment", "-a", help="Name of one attachment (default: all text).")
    ] = "",
    out: Out = None,
) -> Deed:
    """Show the output of a run, as it was stored.

    Example: benchfarm results log RUN
    """
    return lambda settings: stored.log(settings, run_id, attachment, out)


@command(results_app, "issue")
def _issue(
    run_id: Annotated[str, typer.Argument(help="Run id or its beginning, from 'benchfarm results runs'.")],
    out: Out = None,
) -> Deed:
    """Write a run as a text for a program's issue tracker.

    Example: benchfarm results issue RUN --out issue.md

    Device, program, command, evidence and output; serial numbers, paths, addresses and names are left out.
    """
    return lambda settings: stored.issue(settings, run_id, out)


@command(results_app, "reparse")
def _reparse(campaigns: Campaigns = None) -> Deed:
    """Parse stored output again, and update the verdicts.

    Example: benchfarm results reparse

    Default: all campaigns.
    """
    return lambda settings: stored.reparse(settings, tuple(campaigns or ()))


@command(app, "parse")
def _parse(
    files: Annotated[list[str], typer.Argument(help="Files with benchmark output. '-' is standard input.")],
) -> Deed:
    """Show what benchfarm reads from benchmark output.

    Example: benchfarm parse log.txt
    """
    return lambda _: parsing.parse_files(tuple(files))


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """What 'import' reads."""

    files: Annotated[
        list[Path],
        typer.Argument(
            help="A bundle, a session's folder, leaderboard JSONL, or Firebase JSON or CSV, report.json or report.csv."
        ),
    ]
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


@command(app, "import")
def _import(options: ImportOptions) -> Deed:
    """Import a bundle, or results of other labs and apps.

    Example: benchfarm import lab.bundle.json
    """
    from orchestrator.app.bundling import is_bundle
    from orchestrator.app.importing import ImportRequest
    from orchestrator.app.sessions import SessionRequest, is_session

    if missing := next((path for path in options.files if not path.exists()), None):
        raise UsageError(f"{missing}: there is no such file")
    if all(map(is_session, options.files)):
        if options.device or options.profile or options.program or options.trust:
            raise UsageError("a session says itself what it ran on and with", hint="give --model and --name only")
        wanted = SessionRequest(
            paths=tuple(options.files), models=tuple(options.model or ()), name=options.campaign_name
        )
        return lambda settings: stored.import_sessions(settings, wanted, options.out)
    if folder := next((path for path in options.files if not path.is_file()), None):
        raise UsageError(f"{folder}: is a folder", hint="import a session's folder on its own")
    if any(is_bundle(path) for path in options.files):
        if len(options.files) > 1 or options.device or options.model:
            raise UsageError("a bundle is imported alone and says itself what is in it")
        trust = tuple(options.trust or ())
        return lambda settings: stored.take_in(settings, options.files[0], trust)
    if options.trust:
        raise UsageError("--trust is about bundles; these results hold no signature")
    if not options.device or not options.model:
        raise UsageError("these results don't say what they are of", hint="give --device and --model")
    request = filled(
        ImportRequest, options, models=tuple(options.model), app=options.program, name=options.campaign_name
    )
    return lambda settings: stored.import_files(settings, request, options.out)


Names = list[str] | None


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """What 'table' reads."""

    devices: Annotated[
        Names, typer.Option("--devices", help="Profiles, names or serial numbers (a,b) (default: all).")
    ] = None
    config: Annotated[Names, typer.Option("--config", help="'CPU, 4 threads', GPU, NNAPI ... Repeat for several.")] = (
        None
    )
    model: Annotated[Names, typer.Option("--model", "-m", help="Name or pattern of a model. Repeat for several.")] = (
        None
    )
    source: Annotated[
        Names, typer.Option("--source", help="published, store, language-models (a,b) (default: all).")
    ] = None
    campaign: Annotated[Names, typer.Option("--campaign", help="Use only this campaign. Repeat for several.")] = None
    form: Annotated[
        str,
        typer.Option("--format", "-f", help="text, markdown, html, csv, latex or json (default: by --out, else text)."),
    ] = ""
    title: Annotated[str, typer.Option("--title", help="Title of the HTML page.")] = "Latency by device and delegate"
    out: Out = None


@command(app, "table")
def _table(options: TableOptions) -> Deed:
    """Print a table of models, devices and configurations.

    Example: benchfarm table --devices pixel-3,pixel-4
    """
    from orchestrator.app.tabling import TableRequest

    request = TableRequest(
        devices=split(options.devices),
        models=tuple(options.model or ()),
        configurations=tuple(options.config or ()),
        sources=split(options.source),
        campaigns=tuple(options.campaign or ()),
    )
    return lambda settings: tabling.render(settings, request, form=options.form, out=options.out, title=options.title)


@command(results_app, "sustained")
def _sustained(
    campaign: Annotated[
        str, typer.Argument(help="Campaign id or its beginning (default: the newest with a sustained measurement).")
    ] = "",
) -> Deed:
    """Show latency over time, and when throttling began.

    Example: benchfarm results sustained
    """
    return lambda settings: reports.sustained_curves(settings, campaign)


_store = group("store", "Back up the store, delete old raw output, and show its key.")


@command(_store, "prune")
def _prune(
    keep_raw: Annotated[str, typer.Option("--keep-raw", help="Keep raw output up to this age (90d).")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what would be deleted.")] = False,
    compact: Annotated[bool, typer.Option("--compact", help="Shrink the store's file afterwards.")] = False,
) -> Deed:
    """Delete the raw output of old campaigns. Figures and verdicts stay.

    Example: benchfarm store prune --keep-raw 90d --dry-run
    """
    return lambda settings: retention.prune(settings, keep_raw=keep_raw, is_trial=dry_run, compact=compact)


@command(_store, "backup")
def _backup(out: Annotated[Path, typer.Argument(help="File of the copy. It must not exist.")]) -> Deed:
    """Copy a store, also one in use, and verify the copy.

    Example: benchfarm store backup copy.db
    """
    return lambda settings: retention.backup(settings, out)


@command(_store, "key")
def _key(
    key: Annotated[Path | None, typer.Option("--key", help="File of another key than this computer's.")] = None,
) -> Deed:
    """Print the public key that signs bundles. Makes the key at first use.

    Example: benchfarm store key
    """
    return lambda settings: stored.show_key(settings, key)


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
            "--format",
            "-f",
            help="bundle, csv, parquet, json, bencher, asv, proto or leaderboard (default: by --out, else bundle).",
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

    request = filled(ExportRequest, options)
    return lambda settings: stored.export(settings, request)
