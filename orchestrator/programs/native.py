"""The native ``benchmark_model`` program, on a phone or on this computer."""

from __future__ import annotations

import shlex

from orchestrator.ports import InvocationRequest
from orchestrator.programs import Program
from orchestrator.programs.running import CollectingTool, benchmark_flags, environment, format_flags
from orchestrator.records.case import ToolName
from orchestrator.records.device import DeviceFacts, DeviceKind


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


def on_cores(request: InvocationRequest, words: list[str]) -> list[str]:
    """Return the words of a command restricted to the cores of its case."""
    mask = affinity_mask(request.case.affinity, request.facts)
    return ["taskset", mask, *words] if mask else words


def affinity_mask(affinity: str, facts: DeviceFacts) -> str:
    """Return the mask for the phone's taskset in hexadecimal, empty for no restriction.

    ``big`` is every core except those of the slowest cluster, as probed; empty where all cores are
    equal or their clocks are unknown. On a computer only a mask of the plan counts.
    """
    if affinity == "all":
        return ""
    if affinity != "big":
        return affinity.removeprefix("0x")
    all_cpus = {cpu for cluster in facts.clusters for cpu in cluster.cpus}
    if facts.kind is not DeviceKind.ANDROID or set(facts.big_cores) == all_cpus:
        return ""
    return f"{sum(1 << cpu for cpu in facts.big_cores):x}"


PROGRAM = Program(
    name=ToolName.NATIVE,
    tool=NativeTool,
    kinds=frozenset({DeviceKind.ANDROID, DeviceKind.HOST}),
    usual_on=DeviceKind.ANDROID,
    file_name="benchmark_model",
)
