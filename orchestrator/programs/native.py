"""The native ``benchmark_model`` program, on a phone or on this computer."""

from __future__ import annotations

import shlex

from orchestrator.ports import InvocationRequest
from orchestrator.program import Program
from orchestrator.programs.running import (
    CollectingTool,
    benchmark_flags,
    environment,
    format_flags,
    on_cores,
)
from orchestrator.records.case import ToolName
from orchestrator.records.device import DeviceKind


class NativeTool(CollectingTool):
    """Runs benchmark_model, or another program with its flags."""

    def __init__(self, name: ToolName = ToolName.NATIVE, **first: str) -> None:
        """``first`` are flags to put before the others."""
        self.name = name
        self._first = first

    def command(self, request: InvocationRequest, folder: str) -> str:
        """See CollectingTool.command."""
        flags = self._first | benchmark_flags(request, folder=folder)
        return command_line(request, format_flags(flags))


def command_line(request: InvocationRequest, arguments: list[str], **variables: str) -> str:
    """Return a program's command line with its environment, further ``variables`` and its cores,
    every word quoted.
    """
    words = on_cores(request, [request.program_path, *arguments])
    return f"{environment(request, **variables)} {shlex.join(words)}"


PROGRAM = Program(
    name=ToolName.NATIVE,
    tool=NativeTool,
    kinds=frozenset({DeviceKind.ANDROID, DeviceKind.HOST}),
    usual_on=DeviceKind.ANDROID,
    file_name="benchmark_model",
)
