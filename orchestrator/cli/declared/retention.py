"""The store itself: what is kept of old runs, and copies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.cli.frame import Deed, command, group

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
    from orchestrator.cli import retention

    return lambda settings: retention.prune(settings, keep_raw=keep_raw, is_trial=dry_run, compact=compact)


@command(_store, "backup")
def _backup(out: Annotated[Path, typer.Argument(help="File of the copy. It must not exist.")]) -> Deed:
    """Copy a store, also one in use, and verify the copy.

    Example: benchfarm store backup copy.db
    """
    from orchestrator.cli import retention

    return lambda settings: retention.backup(settings, out)


@command(_store, "key")
def _key(
    key: Annotated[Path | None, typer.Option("--key", help="File of another key than this computer's.")] = None,
) -> Deed:
    """Print the public key that signs bundles. Makes the key at first use.

    Example: benchfarm store key
    """
    from orchestrator.cli import exchanging

    return lambda settings: exchanging.show_key(settings, key)
