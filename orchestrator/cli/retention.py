"""``benchfarm store``: what was deleted of old raw output, and where a copy of the store is."""

from __future__ import annotations

from pathlib import Path

from orchestrator.app import retention
from orchestrator.bootstrap import Settings
from orchestrator.cli.result import CommandResult
from orchestrator.units import format_bytes


def prune(settings: Settings, *, keep_raw: str, is_trial: bool, compact: bool) -> CommandResult:
    """Delete the raw output of campaigns begun before; figures, verdicts and states stay. Raises UsageError."""
    path, done = settings.store_file, retention.prune(settings, keep_raw=keep_raw, is_trial=is_trial, compact=compact)
    pruned = done.pruned
    what = "would be deleted" if is_trial else "deleted"
    counted = f"{pruned.runs} runs in {pruned.campaigns} campaigns"
    freed = f"{format_bytes(pruned.freed_bytes)} of the database"
    lines = [f"raw output of {counted} {what}, {freed}; their figures, verdicts and states stay"]
    if compact and not is_trial:
        lines.append(f"{path}: {format_bytes(done.bytes_before)} before, {format_bytes(done.bytes_after)} now")
    elif pruned.runs and not is_trial and path is not None:
        lines.append("later runs use that space; --compact gives it back to the disk")
    data = {
        "trial": is_trial,
        "campaigns": pruned.campaigns,
        "runs": pruned.runs,
        "freed_bytes": pruned.freed_bytes,
        "file_bytes_before": done.bytes_before,
        "file_bytes_after": done.bytes_after,
    }
    return CommandResult(text="\n".join(lines), data=data)


def backup(settings: Settings, out: Path) -> CommandResult:
    """Copy a store that may be in use, whole and checked; raises as the use case."""
    done = retention.backup(settings, out)
    size = format_bytes(done.size_bytes)
    return CommandResult(
        text=f"{out}: {size}, {done.campaigns} campaigns or more; restore it by putting it at {done.store}",
        data={"path": out, "size_bytes": done.size_bytes, "store": done.store},
    )
