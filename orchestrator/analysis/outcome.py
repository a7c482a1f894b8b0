"""How an invocation ended: from exit code, deadline and what was read. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from orchestrator.records.run import SETUP_CODES, DelegateTruth, Outcome, ToolReport

#: The figures of such a run are those of another configuration than the one asked for.
NOT_WHAT_WAS_ASKED: Final = {
    DelegateTruth.NONE: "the delegate took no operator; the figures are the CPU's",
    DelegateTruth.FELL_BACK: "the delegate could not be made and the program went on without it",
    DelegateTruth.FLAG_IGNORED: "the program doesn't know the delegate's flag and went on without it",
    DelegateTruth.WRONG_BACKEND: "the delegate ran on another backend than the one asked for",
    DelegateTruth.FAILED: "the delegate failed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """An outcome with its documented code and a sentence; both empty when completed."""

    outcome: Outcome
    reason_code: str = ""
    reason: str = ""


def ending_of(report: ToolReport, *, exit_code: int | None, timed_out: bool) -> Ending:
    """Return how the invocation ended.

    A run whose delegate fell back is FAILED, so that its figures never stand under the delegate's name.
    """
    if timed_out:
        return Ending(
            outcome=Outcome.TIMED_OUT,
            reason_code="timed-out",
            reason=report.failure_reason or "the program was still running when its time was over",
        )
    if report.outcome != "ok":
        return Ending(
            outcome=Outcome.FAILED,
            reason_code=report.failure_code or "tool-failed",
            reason=report.failure_reason or f"the program ended with {_exit_text(exit_code)} and no result",
        )
    if exit_code not in {0, None}:
        return Ending(
            outcome=Outcome.FAILED,
            reason_code=report.failure_code or "tool-failed",
            reason=report.failure_reason or f"the program printed a result but ended with {_exit_text(exit_code)}",
        )
    if report.delegate.truth in NOT_WHAT_WAS_ASKED:
        why_code = report.failure_code if report.failure_code.startswith(SETUP_CODES) else ""
        why = report.failure_reason if why_code else next(iter(report.delegate.lines), "")
        evidence = f": {why}" if why else ""
        return Ending(
            outcome=Outcome.FAILED,
            reason_code=why_code or f"delegate-{report.delegate.truth}",
            reason=f"{report.delegate.requested}: {NOT_WHAT_WAS_ASKED[report.delegate.truth]}{evidence}",
        )
    return Ending(outcome=Outcome.COMPLETED)


def _exit_text(exit_code: int | None) -> str:
    if exit_code is None:
        return "no exit code"
    if exit_code > 128:
        return f"signal {exit_code - 128}"
    return f"exit code {exit_code}"
