"""``benchmark_model_performance_options``: benchmark_model with a list of ways to run a model.

Its list is left out: in one process the ways share memory and heat, and the program stops at the
first that fails. Each case has a process of its own, with benchmark_model's flags.
"""

from __future__ import annotations

from orchestrator.ports import InvocationRequest
from orchestrator.programs.native import command_line
from orchestrator.programs.running import CollectingTool, benchmark_flags, format_flags
from orchestrator.programs.specification import Program
from orchestrator.records.case import ToolName
from orchestrator.records.device import DeviceKind


class PerformanceOptionsTool(CollectingTool):
    """Runs the program with the flags as they are."""

    name = ToolName.PERF_OPTIONS

    def command(self, request: InvocationRequest, folder: str) -> str:
        """See CollectingTool.command."""
        flags = [("perf_options_list", "none"), *benchmark_flags(request, folder=folder)]
        return command_line(request, format_flags(flags))


PROGRAM = Program(
    name=ToolName.PERF_OPTIONS,
    tool=PerformanceOptionsTool,
    kinds=frozenset({DeviceKind.ANDROID}),
    file_name="benchmark_model_performance_options",
)
