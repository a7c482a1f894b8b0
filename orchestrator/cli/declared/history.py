"""Results over many nightly runs: history, serve."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.frame import Deed, Out, app, command, filled, group, later

if TYPE_CHECKING:
    from orchestrator.cli import history, serving
else:
    history, serving = later("history serving")

_SELECTION = (
    "A series key or its beginning, or words that must all match: delegate=gpu,GPU=*640*. The words are delegate, "
    "model, serial, phone, soc, GPU, tool and threads."
)

history_app = group("history", "Find changes over nightly runs, and write history pages.")


@dataclass(frozen=True, kw_only=True)
class ChangesOptions:
    """What 'history changes' reads."""

    since: Annotated[
        str, typer.Option("--since", help="30d, 4w or a date (default: changes of the last 14 nightly runs).")
    ] = ""
    series: Annotated[list[str] | None, typer.Option("--series", help=f"{_SELECTION} Repeat for several.")] = None
    preset: Annotated[str, typer.Option("--preset", help="sensitive, default or quiet.")] = "default"
    threshold: Annotated[str, typer.Option("--threshold", help="Smallest change to report, at least 2%.")] = "2%"
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Measure old against new on the same phone for each unconfirmed change.")
    ] = False
    form: Annotated[
        str, typer.Option("--format", "-f", help="text, markdown, csv or json (default: by --out, else text).")
    ] = ""
    fail_on: Annotated[
        str, typer.Option("--fail-on", help="Exit code 1 for slowdowns: unrefuted, confirmed, or never.")
    ] = "unrefuted"
    notify: Annotated[
        list[str] | None,
        typer.Option("--notify", help="With exit code 1, send the report: a webhook's URL, mailto:ADDRESS, or @FILE."),
    ] = None
    notify_form: Annotated[str, typer.Option("--notify-format", help="json or text.")] = "json"
    out: Out = None


@command(history_app, "changes")
def _changes(options: ChangesOptions) -> Deed:
    """Report changes in all series, with their size and cause.

    Example: benchfarm history changes --since 30d
    """
    from orchestrator.analysis.changepoint import LEAST_CHANGE
    from orchestrator.app.history import ChangesRequest
    from orchestrator.cli.files import share_of

    request = filled(
        ChangesRequest,
        options,
        selections=tuple(options.series or ()),
        threshold=share_of(options.threshold, "--threshold", least=LEAST_CHANGE, most=1.0),
    )
    return lambda settings: history.changes(
        settings,
        request,
        form=options.form,
        out=options.out,
        notify=options.notify or (),
        notify_form=options.notify_form,
    )


@command(history_app, "expect")
def _expect(
    selection: Annotated[str, typer.Argument(metavar="SERIES", help=_SELECTION)],
    night: Annotated[str, typer.Argument(metavar="DATE", help="First day of the new level, 2026-03-09.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Why the change is expected.")],
) -> Deed:
    """Record an expected change: a new driver, another model.

    Example: benchfarm history expect delegate=gpu 2026-03-09 "new GPU driver"

    'benchfarm history changes' lists expected changes after the others, and they don't fail it.
    """
    return lambda settings: history.annotate(settings, selection, night, text)


@command(history_app, "expected")
def _expected() -> Deed:
    """List the expected changes.

    Example: benchfarm history expected
    """
    return history.list_annotations


@command(history_app, "forget")
def _forget(
    annotation_id: Annotated[str, typer.Argument(metavar="ID", help="Id that 'benchfarm history expected' shows.")],
) -> Deed:
    """Remove an expected change.

    Example: benchfarm history forget 3
    """
    return lambda settings: history.delete_annotation(settings, annotation_id)


@command(history_app, "site")
def _site(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the pages: empty, or that of a site.")],
    since: Annotated[str, typer.Option("--since", help="90d, 12w or a date (default: the newest 90 runs).")] = "",
    title: Annotated[str, typer.Option("--title", help="Title of the overview.")] = "Benchmark history",
    reports: Annotated[
        int | None, typer.Option("--reports", help="Write a page for at most N campaigns (default: all).", min=0)
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Write existing reports again.")] = False,
) -> Deed:
    """Write history pages for any web server.

    Example: benchfarm history site --out pages
    """
    from orchestrator.app.site import SiteRequest

    request = SiteRequest(out=out, since=since, title=title, reports=reports, fresh=fresh)
    return lambda settings: serving.build(settings, request)


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """What 'serve' reads."""

    host: Annotated[
        str, typer.Option("--host", help="Address to listen on. Any other than this computer's own requires a token.")
    ] = "127.0.0.1"
    port: Annotated[int, typer.Option("--port", help="Port. 0 takes a free one.", min=0, max=65535)] = 8080
    token: Annotated[
        str, typer.Option("--token", help="Token for reading and for actions ($BENCHFARM_TOKEN). 'new' creates one.")
    ] = ""
    token_file: Annotated[Path | None, typer.Option("--token-file", help="File that holds the token.")] = None
    allow_host: Annotated[
        list[str] | None, typer.Option("--allow-host", help="Another name of this server. Repeat for several.")
    ] = None
    anyone_reads: Annotated[
        bool, typer.Option("--anyone-reads", help="Require the token for actions only, not for reading.")
    ] = False
    since: Annotated[str, typer.Option("--since", help="90d, 12w or a date (default: the newest 90 runs).")] = ""
    title: Annotated[str, typer.Option("--title", help="Title of the overview.")] = "Benchmark history"


@command(app, "serve")
def _serve(options: ServeOptions) -> Deed:
    """Serve the history pages and the live page of the farm.

    Example: benchfarm serve --port 8080

    /farm shows phones, queue and tonight's progress; with a token it also pauses, resumes, cancels, releases and
    submits. /api/v1 answers with the same as JSON, /metrics with numbers for Prometheus.
    """
    from orchestrator.app.access import Listening

    listening = filled(Listening, options, allowed_hosts=tuple(options.allow_host or ()))
    request = serving.ServeRequest(
        listening=listening, since=options.since, title=options.title, anyone_reads=options.anyone_reads
    )
    return lambda settings: serving.run(settings, request)
