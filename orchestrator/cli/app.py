"""The whole command line: every subject's commands, in the order in which ``--help`` lists them."""

from __future__ import annotations

from orchestrator.cli.declared import (  # noqa: F401 - importing them declares their commands
    comparing,
    farm,
    history,
    measuring,
    models,
    other,
    phones,
    programs,
    reading,
)
from orchestrator.cli.declared.old_names import keep_old_names
from orchestrator.cli.frame import app, run

__all__ = ["app", "run"]

keep_old_names()
