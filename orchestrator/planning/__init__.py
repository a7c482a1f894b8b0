"""From a plan and the devices that are there to what is measured: choice, cases, skips, order, shares. Pure."""

from __future__ import annotations

from orchestrator.planning.expansion import (
    Expansion,
    HostFiles,
    cold_rounds,
    expand,
    least_duration_s,
    order_invocations,
    reference_case,
    without,
)
from orchestrator.planning.skips import (
    NO_BUILD,
    USUAL_THREADS,
    NoBuild,
    core_count,
    is_not_there,
    mode_skip,
    skip_reason,
    threads_for,
    tools_for,
)
from orchestrator.records.workload import Skip

__all__ = [
    "NO_BUILD",
    "USUAL_THREADS",
    "Expansion",
    "HostFiles",
    "NoBuild",
    "Skip",
    "cold_rounds",
    "core_count",
    "expand",
    "is_not_there",
    "least_duration_s",
    "mode_skip",
    "order_invocations",
    "reference_case",
    "skip_reason",
    "threads_for",
    "tools_for",
    "without",
]
