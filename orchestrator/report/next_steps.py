"""What to do about a failure, a fallback or an unfit device, by its code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from orchestrator.analysis.case_result import CaseResult, CaseStatus
from orchestrator.errors import BenchfarmError
from orchestrator.records.run import DelegateTruth

_BY_TRUTH: Final[Mapping[DelegateTruth, str]] = {
    DelegateTruth.FELL_BACK: "Check that the build holds this delegate and that the phone has its driver; the log "
    "names the reason. Add --require_full_delegation=true to make such a run fail instead.",
    DelegateTruth.NONE: "The delegate takes none of this model's operators: look at the operators left to the CPU, "
    "and convert the model with types and operators that the delegate supports.",
    DelegateTruth.FLAG_IGNORED: "This build doesn't know the delegate's flag: use a build that holds the delegate.",
    DelegateTruth.WRONG_BACKEND: "Name the accelerator or backend in the plan's flags, or ask for what ran.",
    DelegateTruth.FAILED: "The delegate can't run this model on this device: the log names operator or driver.",
    DelegateTruth.UNKNOWN: "Nothing printed shows where the operators ran: run with --verbose=true or a newer build.",
}
_BY_STATUS: Final[Mapping[CaseStatus, str]] = {
    CaseStatus.REJECTED: "Mend what the findings name, then measure this case again.",
    CaseStatus.FAILED: "Read the end of its log, then run this case alone.",
    CaseStatus.TIMED_OUT: "Raise the plan's timeout if the model is that slow; if not, program or driver hangs.",
    CaseStatus.ABORTED: "It was interrupted: resume the campaign.",
    CaseStatus.UNFIT: "Bring the device to the state that the plan asks for (cool, charged, unlocked), then resume.",
    CaseStatus.NOT_RUN: "It is planned and not done: resume the campaign.",
}
#: By the codes of analysis/quality.py.
_BY_FINDING: Final[Mapping[str, str]] = {
    "virtual-device": "Measure on a real phone before you conclude anything about phones.",
    "emulator": "Measure on a real phone: an emulator's figures are those of the computer that it runs on.",
    "not-completed": "See the invocation's reason and the end of the log.",
    "delegate-partial": "See the operators left to the CPU; converting them may take the model to the delegate whole.",
    "delegate-unknown": "Run with --verbose=true, or with a build that says what its delegates took.",
    "flags-ignored": "Take the flags out of the plan, or use a build that knows them.",
    "few-runs": "Raise num_runs or min_secs in the plan.",
    "unsteady": "Close what runs beside it, keep to the big cores, let the phone cool; then measure again.",
    "coarse-resolution": "Use a newer build, which prints more digits, or a larger model.",
    "sources-disagree": "Keep the log and the result file, and report it: one of the two is read wrongly.",
    "throttled": "Let the phone cool down, take it out of its case, or wait longer between cases.",
    "rebooted": "Look for the cause (heat, battery, driver crash in last_kmsg), then measure again.",
    "foreign-load": "End what else is running on this computer, then measure again.",
    "more-threads-than-big-cores": "Ask for no more threads than there are big cores.",
    "battery-low": "Charge the phone above 15 %, then measure again.",
}


def finding_step(code: str) -> str:
    """Return what to do about a finding, empty when its code isn't known here."""
    return _BY_FINDING.get(code, "")


def next_step(result: CaseResult) -> str:
    """Return what to do about a case, empty when its figure is its own and good."""
    if result.status in (CaseStatus.FELL_BACK, CaseStatus.UNCONFIRMED):
        return _BY_TRUTH.get(result.truth or DelegateTruth.UNKNOWN, "")
    if result.status is CaseStatus.REJECTED and finding_step(result.reason_code):
        return finding_step(result.reason_code)
    if result.reason_code in _error_advice():
        return _error_advice()[result.reason_code]
    if result.truth in (DelegateTruth.FAILED, DelegateTruth.FELL_BACK) and result.summary is None:
        return _BY_TRUTH[result.truth]
    return _BY_STATUS.get(result.status, "")


@cache
def _error_advice() -> Mapping[str, str]:
    """Return error code -> the error's own message for the operator, which says what to do next."""
    return {kind().code: (kind.__doc__ or "").strip().splitlines()[0] for kind in _kinds(BenchfarmError)}


def _kinds(parent: type[BenchfarmError]) -> Iterator[type[BenchfarmError]]:
    for kind in parent.__subclasses__():
        yield kind
        yield from _kinds(kind)
