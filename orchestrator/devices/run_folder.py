"""The name of a run's folder."""

from __future__ import annotations

import re

from orchestrator.errors import UsageError
from orchestrator.records.identity import RunId


def folder_name(run_id: RunId) -> str:
    """Return the name of a run's folder; raises UsageError for an id that could lead out of the folder above."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}", run_id):
        raise UsageError(f"{run_id!r} can't be a run's id: letters, digits, '_', '-' and '.' only")
    return str(run_id)
