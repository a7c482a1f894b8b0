"""A benchmark program in the passes that need more of a phone than a run: ``trace``, ``energy`` and ``contention``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from orchestrator.ports import Device, InvocationRequest, SessionTool, Tool
from orchestrator.programs.running.contention import run_loaded, with_load
from orchestrator.programs.running.energy import EnergyMeter, Meters, PortPower, with_energy
from orchestrator.programs.running.recording import Hold, TraceRecording
from orchestrator.records.run import RawOutput, ToolReport
from orchestrator.records.workload import Case, Pass, ToolName


class PassTool:
    """A benchmark program in every pass; in all but those three it is the program itself."""

    def __init__(self, tool: Tool, hold: Hold, meters: Meters, power: PortPower) -> None:
        self.name: ToolName = tool.name
        self._tool = tool
        self._runs: Mapping[Pass, Callable[..., RawOutput]] = {
            Pass.TRACE: TraceRecording(hold).run,
            Pass.ENERGY: EnergyMeter(hold, meters, power).run,
            Pass.CONTENTION: run_loaded,
        }

    def run(self, device: Device, request: InvocationRequest, *, cancelled: threading.Event | None = None) -> RawOutput:
        """See Tool.run; raises UsageError for a pass that the device can't do."""
        if (run := self._runs.get(request.run_pass)) is not None:
            return run(self._tool, device, request, cancelled=cancelled)
        return self._tool.run(device, request, cancelled=cancelled)

    def parse(self, raw: RawOutput, case: Case) -> ToolReport:
        """See Tool.parse."""
        return with_load(with_energy(self._tool, self._tool.parse(raw, case), raw, case), raw)


class PassSessionTool(PassTool):
    """The same for a program that measures several cases in one process."""

    def session(self, case: Case, run_pass: Pass) -> str:
        """See SessionTool.session; it measures one in those three passes."""
        assert isinstance(self._tool, SessionTool)
        return "" if run_pass in self._runs else self._tool.session(case, run_pass)

    def found_cases(self, raw: RawOutput, case: Case) -> Sequence[Case]:
        """See SessionTool.found_cases."""
        assert isinstance(self._tool, SessionTool)
        return self._tool.found_cases(raw, case)


def in_all_passes(tool: Tool, hold: Hold, meters: Meters, power: PortPower) -> PassTool:
    """Return a program that can be run in every pass."""
    kind = PassSessionTool if isinstance(tool, SessionTool) else PassTool
    return kind(tool, hold, meters, power)
