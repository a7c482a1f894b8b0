"""History pages: as files, and from the live store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.frame import Json, app, show


@app.command("site")
def _site(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the pages; an empty one, or that of a site.")],
    since: Annotated[str, typer.Option("--since", help="90d, 12w or a date; the newest 90 nights when left out.")] = "",
    title: Annotated[str, typer.Option("--title", help="What the overview is called.")] = "Benchmark history",
    reports: Annotated[
        int | None, typer.Option("--reports", help="Newest campaigns that get a page; all when left out.", min=0)
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Make reports again that are there already.")] = False,
    as_json: Json = False,
) -> None:
    """Write history pages that any web server can host: an overview, a page per series, a page per campaign."""
    from orchestrator.cli import site

    request = site.SiteRequest(out=out, since=since, title=title, reports=reports, fresh=fresh)
    show(lambda settings: site.build(settings, request), as_json=as_json)


@app.command("serve")
def _serve(
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on; any but this computer's own needs --token.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", help="Port; 0 takes any that is free.", min=0, max=65535)] = 8080,
    token: Annotated[
        str,
        typer.Option("--token", help="What others must know to read the pages ($BENCHFARM_TOKEN); 'new' makes one up."),
    ] = "",
    token_file: Annotated[Path | None, typer.Option("--token-file", help="File that holds the token.")] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option("--allow-host", help="A further name of this server; may be given again.")
    ] = None,
    since: Annotated[str, typer.Option("--since", help="90d, 12w or a date; the newest 90 nights when left out.")] = "",
    title: Annotated[str, typer.Option("--title", help="What the overview is called.")] = "Benchmark history",
    as_json: Json = False,
) -> None:
    """Show the same pages from the store as it is now, in a browser on this computer; nothing can be changed there."""
    from orchestrator.cli import access, serving

    listening = access.Listening(
        host=host, port=port, token=token, token_file=token_file, allowed_hosts=tuple(allow_host or ())
    )
    request = serving.ServeRequest(listening=listening, since=since, title=title)
    show(lambda settings: serving.run(settings, request), as_json=as_json)
