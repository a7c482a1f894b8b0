"""Deleting old raw output by a stated policy, and copying the store safely."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from orchestrator.bootstrap import Settings, Workspace
from orchestrator.errors import UsageError
from orchestrator.quantities import parse_age
from orchestrator.records.history import Pruned


def prune(
    settings: Settings, *, keep_raw: str, is_trial: bool, compact: bool
) -> tuple[Pruned, int, int]:
    """Delete the raw output of campaigns begun before; figures, verdicts and states stay.

    Raises UsageError.

    Returns what was deleted, and the bytes of the store's file before and after (0 for a store in a
    server).
    """
    try:
        keep_s = parse_age(keep_raw)
    except ValueError as error:
        raise UsageError(
            f"--keep-raw: {error}", hint="a number with its unit, for example 90d"
        ) from error
    path = settings.store_file
    if compact and path is None:
        raise UsageError(
            "--compact is for a store in a file", hint="PostgreSQL uses the space again by itself"
        )
    with Workspace(settings, makes_store=False) as workspace:
        now = workspace.clock.now()
        policy = f"on {now:%Y-%m-%d}, by 'benchfarm store prune --keep-raw {keep_raw.strip()}'"
        pruned = workspace.store.prune_raw(
            now - timedelta(seconds=keep_s), policy=policy, is_trial=is_trial
        )
    before = after = _size(path)
    if compact and path is not None and path.is_file() and not is_trial:
        from orchestrator.store.sqlite_file import compact as shrink

        shrink(path)
        after = _size(path)
    return pruned, before, after


def backup(settings: Settings, out: Path) -> tuple[Path, int, int]:
    """Copy a store that may be in use, whole and checked.

    Return the store's file, the copy's bytes and campaigns.

    Raises:
        UsageError: the store isn't a file, or there is none, or the copy's name is taken or its
            folder isn't there.
        StoreError, HostStorageError: it can't be copied; no part of a copy is left.
    """
    path = settings.store_file
    if path is None:
        raise UsageError(
            "this store is in a PostgreSQL database",
            hint="pg_dump --format=custom --file=FILE DATABASE; docs/guides/operations.md says more",
        )
    if out.exists():
        raise UsageError(f"{out} is there already", hint="name another file")
    if not out.absolute().parent.is_dir():
        raise UsageError(
            f"{out}: the copy's folder isn't there", hint="make it, or mount what lies there"
        )
    from orchestrator.store.sqlite_file import copy_to

    with Workspace(settings, makes_store=False) as workspace:
        campaigns = len(workspace.store.campaigns(with_hidden=True))
    if not path.is_file():
        raise UsageError(f"nothing is stored yet in {path}", hint="there is nothing to copy")
    copy_to(path, out)
    return path, _size(out), campaigns


def _size(path: Path | None) -> int:
    """Return the bytes of a store's file and its log, 0 for none."""
    files = () if path is None else (path, path.with_name(f"{path.name}-wal"))
    return sum(file.stat().st_size for file in files if file.exists())
