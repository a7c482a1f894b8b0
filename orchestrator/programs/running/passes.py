"""A benchmark program in the passes that need more of a phone than a run: ``trace``, ``energy`` and ``contention``."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from orchestrator.ports import Device, InvocationRequest, SessionTool, Tool
from orchestrator.programs.running.contention import run_loaded, with_load
from orchestrator.programs.running.energy import EnergyMeter, Metering, with_energy
from orchestrator.programs.running.trace_recording import Hold, TraceRecording
from orchestrator.records.run import RawOutput, ToolReport
from orchestrator.records.workload import Case, Pass, ToolName

#: A process of a program that measures several cases measures one in these.
_ALONE = frozenset({Pass.TRACE, Pass.ENERGY, Pass.CONTENTION})


class PassTool:
    """A benchmark program in every pass; in all but those three it is the program itself."""

    def __init__(self, tool: Tool, hold: Hold, metering: Metering) -> None:
        self.name: ToolName = tool.name
        self._tool = tool
        self._recording = TraceRecording(hold)
        self._meter = EnergyMeter(hold, metering)

    def run(self, device: Device, request: InvocationRequest, *, cancelled: threading.Event | None = None) -> RawOutput:
        """See Tool.run; raises UsageError for a pass that the device can't do."""
        match request.run_pass:
            case Pass.TRACE:
                return self._recording.run(self._tool, device, request, cancelled=cancelled)
            case Pass.ENERGY:
                return self._meter.run(self._tool, device, request, cancelled=cancelled)
            case Pass.CONTENTION:
                return run_loaded(self._tool, device, request, cancelled=cancelled)
        return self._tool.run(device, request, cancelled=cancelled)

    def parse(self, raw: RawOutput, case: Case) -> ToolReport:
        """See Tool.parse."""
        return with_load(with_energy(self._tool, self._tool.parse(raw, case), raw, case), raw)


class PassSessionTool(PassTool):
    """The same for a program that measures several cases in one process."""

    def __init__(self, tool: SessionTool, hold: Hold, metering: Metering) -> None:
        super().__init__(tool, hold, metering)
        self._sessions = tool

    def session(self, case: Case, run_pass: Pass) -> str:
        """See SessionTool.session."""
        return "" if run_pass in _ALONE else self._sessions.session(case, run_pass)

    def found_cases(self, raw: RawOutput, case: Case) -> Sequence[Case]:
        """See SessionTool.found_cases."""
        return self._sessions.found_cases(raw, case)


def in_all_passes(tool: Tool, hold: Hold, metering: Metering) -> PassTool:
    """Return a program that can be run in every pass."""
    kind = PassSessionTool if isinstance(tool, SessionTool) else PassTool
    return kind(tool, hold, metering)  # type: ignore[arg-type]
