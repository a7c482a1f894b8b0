"""Several cases measured by one process: which invocations it covers, and what each of them is told of its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.ports import SessionTool, Tool
from orchestrator.records.campaign import Invocation
from orchestrator.records.run import RawOutput, ToolReport


def covered(tool: Tool, raw: RawOutput, invocation: Invocation, queue: Sequence[Invocation]) -> list[Invocation]:
    """Return what a process measured beside the invocation that it was started for.

    Those of the queue's invocations that belong to the same round and session, and the cases that nobody could plan.
    """
    if not isinstance(tool, SessionTool):
        return []
    session = tool.session(invocation.case, invocation.run_pass)
    if not session:
        return []
    planned = [
        other
        for other in queue
        if other.case.tool is invocation.case.tool
        and other.case.case_key != invocation.case.case_key
        and other.number == invocation.number
        and tool.session(other.case, other.run_pass) == session
    ]
    known = {other.case.case_key for other in queue}
    found = [
        replace(invocation, case=case) for case in tool.found_cases(raw, invocation.case) if case.case_key not in known
    ]
    return [*planned, *found]


def own_end(tool: Tool, raw: RawOutput, report: ToolReport) -> RawOutput:
    """Return the raw output with what the process's end means for one case: nothing, once the case had its result."""
    if not isinstance(tool, SessionTool) or report.outcome != "ok":
        return raw
    return replace(raw, exit_code=raw.exit_code if raw.exit_code == 0 else None, timed_out=False)
