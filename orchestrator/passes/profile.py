"""The pass ``profile``: the time of each operator."""

from __future__ import annotations

from orchestrator.delegates.specification import FlagFamily
from orchestrator.passes.specification import (
    PROFILE_FILE,
    PassSpec,
    Repetition,
    as_printed,
    no_findings,
    plainly,
)
from orchestrator.records.case import Pass

PASS = PassSpec(
    name=Pass.PROFILE,
    about="The time of each operator",
    guide="",
    repetition=Repetition.COUNTED,
    flags={
        FlagFamily.BENCHMARK_MODEL: {
            "enable_op_profiling": "true",
            "op_profiling_output_mode": "proto",
        },
        # With the GPU it also lowers the GPU's priority; a latency never comes from this pass.
        FlagFamily.LITERT: {"use_profiler": "true"},
    },
    files={FlagFamily.BENCHMARK_MODEL: {"op_profiling_output_file": PROFILE_FILE}},
    runner=plainly,
    read=as_printed,
    findings=no_findings,
    figures=(),
    # They are shown beside each other.
    keeps_all_campaigns=True,
)
