"""A program: this computer's sleep."""

import json
import platform
import shlex
import sys
from pathlib import Path

from orchestrator.plugins import Program, run_and_collect
from orchestrator.records.case import Build, BuildSha, DelegateName, ToolName, content_key
from orchestrator.records.device import DeviceKind
from orchestrator.records.run import DelegateEvidence, DelegateTruth, LatencySummary, ToolReport

NAME = ToolName("acme.sleep")
CODE = """
import json, time
def once():
    begin = time.perf_counter()
    time.sleep(0.001)
    return (time.perf_counter() - begin) * 1e6
print(json.dumps([once() for _ in range(50)]))
"""


class Sleep:
    """Starts the program and reads what it printed."""

    name = NAME

    def run(self, device, request):
        """Return all that one process left behind; raises DeviceError kinds."""
        command = f"{shlex.quote(request.program_path)} -c {shlex.quote(CODE)}"
        return run_and_collect(device, request, command, files=())

    def parse(self, raw, case):
        """Return what the process printed."""
        try:
            times_us = json.loads(raw.data("stdout"))
            mean_us = sum(times_us) / len(times_us)
        except (ValueError, TypeError, ZeroDivisionError) as error:
            return ToolReport(
                outcome="failed", failure_code="tool-failed", failure_reason=str(error)
            )
        return ToolReport(
            outcome="ok",
            inference_mean_us=mean_us,
            inference=LatencySummary(
                count=len(times_us), mean_us=mean_us, min_us=min(times_us), max_us=max(times_us)
            ),
            delegate=DelegateEvidence(requested="cpu", actual="cpu", truth=DelegateTruth.FULL),
        )


def installed(named):
    """Return the program of this computer: its Python."""
    return Build(
        name="sleep",
        tool=NAME,
        sha256=BuildSha(content_key({"python": sys.version, "code": CODE})),
        abi=platform.machine(),
        version=platform.python_version(),
        path=Path(sys.executable),
    )


SLEEP = Program(
    name=NAME,
    tool=Sleep,
    kinds=frozenset({DeviceKind.HOST}),
    own_delegates=frozenset({DelegateName.CPU}),
    has_flags=False,
    installed=installed,
)
