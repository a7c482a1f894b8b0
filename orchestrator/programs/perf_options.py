"""``benchmark_model_performance_options``: benchmark_model with a list of ways to run a model.

Its list is left out: in one process the ways share memory and heat, and the program stops at the
first that fails. Each case has a process of its own, with benchmark_model's flags.
"""

from __future__ import annotations

from orchestrator.program import Program
from orchestrator.programs.native import NativeTool
from orchestrator.records.case import ToolName
from orchestrator.records.device import DeviceKind

PROGRAM = Program(
    name=ToolName.PERF_OPTIONS,
    tool=lambda: NativeTool(ToolName.PERF_OPTIONS, perf_options_list="none"),
    kinds=frozenset({DeviceKind.ANDROID}),
    file_name="benchmark_model_performance_options",
)
