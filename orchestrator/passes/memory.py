"""The pass ``memory``: the process's peak memory; watching it costs time, hence its own pass."""

from __future__ import annotations

from orchestrator.delegates import FlagFamily
from orchestrator.passes.specification import PassSpec
from orchestrator.records.case import Pass

_PEAK = {"report_peak_memory_footprint": "true"}

PASS = PassSpec(
    name=Pass.MEMORY,
    about="The peak of the process's memory",
    flags={
        FlagFamily.BENCHMARK_MODEL: _PEAK,
        FlagFamily.LITERT: _PEAK,
        FlagFamily.LITERT_LM: _PEAK,
    },
    measures_memory=True,
)
