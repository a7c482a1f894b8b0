"""LiteRT's own ``benchmark_model`` (also called ``benchmark_litert_model``) on a phone: CPU, GPU
and NPU.

It shares the first half of benchmark_model's flags and the ``count=`` lines; its summary goes to
standard error. An NPU is driven through a vendor's dispatch library, and compiled for by a vendor's
compiler plugin, both in folders that flags name. The program takes every flag that begins with a
vendor's name out of the command line before it checks the rest, so that a misspelt one is never
reported: they are checked here against the documented tables.
"""

from __future__ import annotations

from typing import Final

from orchestrator.delegates import DELEGATES, FlagFamily
from orchestrator.passes import pass_of
from orchestrator.ports import InvocationRequest
from orchestrator.program import Program
from orchestrator.programs.flags import require_right
from orchestrator.programs.native import command_line
from orchestrator.programs.running import (
    CollectingTool,
    format_flags,
    library_folders,
    placed_value,
    plan_flags,
    program_flags,
)
from orchestrator.records.case import ToolName
from orchestrator.records.device import DeviceKind

#: ``use_cpu`` is on by default; without it the CPU still runs the operators that an accelerator
#: leaves, unless the plan sets ``require_full_delegation``.
_ACCELERATOR_FLAGS: Final = frozenset({"use_cpu", "use_gpu", "use_npu", "use_profiler"})
_DISPATCH: Final = "libLiteRtDispatch_"
_COMPILER: Final = "libLiteRtCompilerPlugin_"


class LitertNativeTool(CollectingTool):
    """Runs the program; the runtime info, else the log, shows where the operators ran."""

    name = ToolName.LITERT_NATIVE
    family = FlagFamily.LITERT

    def command(self, request: InvocationRequest, folder: str) -> str:
        """See CollectingTool.command."""
        return command_line(request, format_flags(litert_flags(request, folder=folder)))


def litert_flags(request: InvocationRequest, *, folder: str) -> dict[str, str]:
    """Return the flags of one invocation.

    Raises:
        UsageError: the program has no such delegate or flag, or a vendor's flag is misspelt or has
            a wrong value.
    """
    withheld_flags = pass_of(request.run_pass).withheld_flags
    flags = {**program_flags(request, FlagFamily.LITERT, folder), **_npu_folders(request)}
    for name, value in plan_flags(request.case, _ACCELERATOR_FLAGS).items():
        if name not in withheld_flags:
            flags[name] = placed_value(value, request)
    require_right(flags, FlagFamily.LITERT)
    return flags


def _npu_folders(request: InvocationRequest) -> dict[str, str]:
    """Return the flags for the folders of the vendor's libraries that were placed."""
    if not DELEGATES[request.case.delegate].is_on_dsp:
        return {}
    folders = library_folders(request)
    flags = {"dispatch_library_path": _DISPATCH, "compiler_plugin_library_path": _COMPILER}
    return {
        flag: folders[0]
        for flag, start in flags.items()
        if any(name.startswith(start) for name in request.file_paths)
    }


PROGRAM = Program(
    name=ToolName.LITERT_NATIVE,
    tool=LitertNativeTool,
    kinds=frozenset({DeviceKind.ANDROID}),
    also_tried_on=DeviceKind.ANDROID,
    family=FlagFamily.LITERT,
    file_name="benchmark_litert_model",
    shares_file_name=True,
)
