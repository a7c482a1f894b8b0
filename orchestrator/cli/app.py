"""The whole command line: every subject's commands, in the order in which ``--help`` lists them."""

from __future__ import annotations

from orchestrator.cli.declared import (  # noqa: F401 - importing them declares their commands
    advising,
    bundling,
    comparing,
    completion,
    device,
    doctor,
    explaining,
    farm,
    farm_status,
    history,
    iphones,
    measuring,
    models,
    phones,
    programs,
    reading,
    retention,
    schedule,
    searching,
    sustained,
    tabling,
    tracing,
)
from orchestrator.cli.declared.old_names import keep_old_names
from orchestrator.cli.frame import app, run

__all__ = ["app", "run"]

keep_old_names()
