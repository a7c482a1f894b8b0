"""The store itself: what is kept of old runs, and copies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.frame import Json, group, show

_store = group("store", "Copy the store, and say how long raw output is kept.")


@_store.command("prune")
def _prune(
    keep_raw: Annotated[str, typer.Option("--keep-raw", help="Age up to which raw output is kept (90d).")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be deleted.")] = False,
    compact: Annotated[bool, typer.Option("--compact", help="Make the store's file smaller afterwards.")] = False,
    as_json: Json = False,
) -> None:
    """Delete what programs printed in old campaigns; figures, verdicts and states stay for good."""
    from orchestrator.cli import retention

    show(
        lambda settings: retention.prune(settings, keep_raw=keep_raw, is_trial=dry_run, compact=compact),
        as_json=as_json,
    )


@_store.command("backup")
def _backup(
    out: Annotated[Path, typer.Argument(help="The copy's file; it must not be there yet.")],
    as_json: Json = False,
) -> None:
    """Copy a store that may be in use, whole and checked."""
    from orchestrator.cli import retention

    show(lambda settings: retention.backup(settings, out), as_json=as_json)
