"""What changed over the nights: regressions, annotate."""

from __future__ import annotations

from typing import Annotated

import typer

from orchestrator.cli.frame import Json, Out, app, group, show

_SELECTION = (
    "A series key or its beginning, or words that all must fit: delegate=gpu,GPU=*640*; the words are delegate, model, "
    "serial, phone, soc, GPU, tool and threads."
)

annotate_app = group("annotate", "Changes that are expected: a new driver, another model.")


@app.command("regressions")
def _regressions(
    since: Annotated[
        str, typer.Option("--since", help="30d, 4w or a date; what is news of the last 14 nights when left out.")
    ] = "",
    series: Annotated[list[str] | None, typer.Option("--series", help=f"{_SELECTION} May be given again.")] = None,
    preset: Annotated[str, typer.Option("--preset", help="sensitive, default or quiet.")] = "default",
    threshold: Annotated[str, typer.Option("--threshold", help="Smallest change, from 2% up.")] = "2%",
    form: Annotated[str, typer.Option("--format", "-f", help="text, markdown, csv or json.")] = "text",
    confirm: Annotated[
        bool, typer.Option("--confirm", help="Run old against new on the same phone for each unconfirmed change.")
    ] = False,
    fail_on: Annotated[
        str, typer.Option("--fail-on", help="Exit code 1 for slowdowns that are unrefuted, confirmed, or never.")
    ] = "unrefuted",
    out: Out = None,
    as_json: Json = False,
) -> None:
    """Tell what changed over the nights in all series, since when, by how much, and what changed with it."""
    from orchestrator.cli import history

    request = history.RegressionsRequest(
        since=since,
        selections=tuple(series or ()),
        preset=preset,
        threshold=threshold,
        form=form,
        confirm=confirm,
        fail_on=fail_on,
        out=out,
    )
    show(lambda settings: history.regressions(settings, request), as_json=as_json)


@annotate_app.command("add")
def _annotate(
    selection: Annotated[str, typer.Argument(metavar="SERIES", help=_SELECTION)],
    night: Annotated[str, typer.Argument(metavar="DATE", help="The first night of the new level, 2026-03-09.")],
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Why it is expected.")],
    as_json: Json = False,
) -> None:
    """Say that a change is expected; 'benchfarm regressions' then shows it as such, after the others."""
    from orchestrator.cli import history

    show(lambda settings: history.annotate(settings, selection, night, text), as_json=as_json)


@annotate_app.command("list")
def _annotations(as_json: Json = False) -> None:
    """List the changes that are expected."""
    from orchestrator.cli import history

    show(history.list_annotations, as_json=as_json)


@annotate_app.command("delete")
def _delete(
    annotation_id: Annotated[str, typer.Argument(metavar="ANNOTATION", help="Its id, as the list shows it.")],
    as_json: Json = False,
) -> None:
    """Forget an annotation."""
    from orchestrator.cli import history

    show(lambda settings: history.delete_annotation(settings, annotation_id), as_json=as_json)
