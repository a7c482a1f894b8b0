"""What to do about a failure, a fallback or an unfit device, by its code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orchestrator.analysis.case_result import CaseResult, CaseStatus
from orchestrator.records.failures import next_step_of
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
    CaseStatus.UNTIMED: "Add the pass timing if you want to know its latency.",
}
#: By the codes of analysis/findings.py.
_BY_FINDING: Final[Mapping[str, str]] = {
    "virtual-device": "Measure on a real phone before you conclude anything about phones.",
    "emulator": "Measure on a real phone: an emulator's figures are those of the computer that it runs on.",
    "reference-moved": "Let the phone cool, look for what else runs on it, reboot it; then measure again.",
    "not-completed": "See the invocation's reason and the end of the log.",
    "delegate-partial": "See the operators left to the CPU; converting them may take the model to the delegate whole.",
    "delegate-unknown": "Run with --verbose=true, or with a build that says what its delegates took.",
    "sampled-on-cpu": "Put the GPU's sampler library beside the program; the log names it.",
    "flags-ignored": "Take the flags out of the plan, or use a build that knows them.",
    "few-runs": "Raise num_runs or min_secs in the plan.",
    "unsteady": "Close what runs beside it, keep to the big cores, let the phone cool; then measure again.",
    "unsteady-trend": "Let the phone cool longer before each run, or take the sustained pass to see where it settles.",
    "unsteady-two-modes": "Pin the program to one cluster: it probably moved between fast and slow cores.",
    "outliers": "Close what runs beside it; the median is little changed, p95 and the maximum are not.",
    "clocks-capped": "Let the phone cool, and end its battery saver: something keeps the clocks below their limit.",
    "clocks-low": "Raise warm-up, or use a fixed performance mode: the governor held the clocks back.",
    "clock-jumped": "Keep the phone's clock from being set during a run; times taken over the jump are wrong.",
    "screen-off": "Keep the screen on for an app on it: with the screen off it isn't scheduled as it is in use.",
    "foreground-changed": "Keep other apps from coming to the front, then measure again.",
    "charging-changed": "Keep the phone plugged in, or unplugged, for the whole campaign.",
    "battery-draining": "Use a hub or charger that gives more current.",
    "mixed-grades": "Measure again, so that all invocations run under the same control of the phone.",
    "slow-start": "Nothing: it is left out. To measure first starts, use the pass cold.",
    "two-states": "Use a fixed performance mode, or raise warm-up: the phone ran at one of two clocks.",
    "coarse-resolution": "Use a newer build, which prints more digits, or a larger model.",
    "sources-disagree": "Read the raw output: a line of it is damaged or of another run; measure again.",
    "log-cut": "The figures stand. Look at free space on the phone and at the link if it comes again.",
    "unwatched": "The figure stands. Run benchfarm device check to see what the sampler lacks on the phone.",
    "files-refused": "The evidence says why. Install a debuggable build for the phone's main user; figures stand.",
    "output-cut": "Have the program print less (no --verbose, no tracing of each operator), then measure again.",
    "throttled": "Let the phone cool down, take it out of its case, or wait longer between cases.",
    "rebooted": "Look for the cause (heat, battery, driver crash in last_kmsg), then measure again.",
    "foreign-load": "End what else runs on this phone or computer ('top' shows it), then measure again.",
    "more-threads-than-big-cores": "Ask for no more threads than there are big cores.",
    "warm-cold-start": "Remove the named cache, or the flag that names another one; then measure again.",
    "start-unknown": "Reinstall the app for a start without its shaders; take these figures for warm starts.",
    "cache-not-used": "Look at the first load's output: a driver or delegate that keeps no cache has no warm start.",
    "battery-low": "Charge the phone above 15 %, then measure again.",
    "wrong-outputs": "Don't use this configuration: it computes something else. Try one without half precision.",
    "outputs-drift": "Judge by the task's own accuracy whether this loss of precision is acceptable.",
    "outputs-unreadable": "Read its log: the program wrote no outputs that could be compared.",
    "parity-degenerate": "Give real inputs (parity_inputs), or a trained model: these outputs show nothing.",
    "imported": "Ask whoever ran it how warm, loaded and charged the phone was.",
    "unusual-for-device": "Ask which cores and how many threads it had: its other models are faster.",
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
    if step := next_step_of(result.reason_code, result.reason):
        return step
    if result.truth in (DelegateTruth.FAILED, DelegateTruth.FELL_BACK) and result.summary is None:
        return _BY_TRUTH[result.truth]
    return _BY_STATUS.get(result.status, "")
