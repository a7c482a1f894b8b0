"""The pass ``memory``: the peak of the process, which watching it costs time."""

from __future__ import annotations

from orchestrator.delegates.specification import FlagFamily
from orchestrator.passes.specification import PassSpec, Repetition, as_printed, no_findings, plainly
from orchestrator.records.case import Pass

_PEAK = {"report_peak_memory_footprint": "true"}

PASS = PassSpec(
    name=Pass.MEMORY,
    about="The peak of the process's memory",
    guide="",
    repetition=Repetition.COUNTED,
    flags={
        FlagFamily.BENCHMARK_MODEL: _PEAK,
        FlagFamily.LITERT: _PEAK,
        FlagFamily.LITERT_LM: _PEAK,
    },
    files={},
    runner=plainly,
    measures_memory=True,
    read=as_printed,
    findings=no_findings,
    figures=(),
)
