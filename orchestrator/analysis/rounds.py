"""The invocations that a campaign still needs beyond the planned ones, and why each case stopped.

Pure.

All of it follows from the campaign and its stored runs, so that a killed campaign resumes with the
same plan.
"""

from __future__ import annotations

import enum
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from orchestrator.analysis.case_result import CaseResult
from orchestrator.analysis.intervals import (
    NO_AUTOCORRELATION,
    Autocorrelation,
    autocorrelation_of,
    degrees_of,
    error_factor,
    margin,
)
from orchestrator.analysis.measured import judge_cases
from orchestrator.analysis.quality import figure_us
from orchestrator.analysis.summary import LEVEL, Summary, logs_of, summarize
from orchestrator.records import frozen
from orchestrator.records.campaign import Campaign, Invocation
from orchestrator.records.case import FIGURE_PASS, Case, CaseKey, Serial, grouped
from orchestrator.records.plan import StoppingRule
from orchestrator.records.run import ABANDONED, OUT_OF_TIME, THREADS_UNUSED, Outcome, RunRecord

#: An interval that is narrow enough must be so again after as many more invocations.
CONFIRM_COUNT: Final = 3
#: An interval below this share of the goal needs no confirmation.
SURE_SHARE: Final = 0.25
#: How many more invocations of two clock states are made before their shares are checked again.
_STATES_STEP: Final = 8


@frozen
class Decision:
    """Whether a case has enough invocations."""

    is_enough: bool
    #: Invocations in all at the next check, never more than the rule's ``most``.
    next_count: int
    #: ``first``: too early to say; ``noisy``: the interval is too wide yet; ``reached``: it is
    #: narrow enough; ``confirming``: it is, and must be so once more; ``most``: it is too wide, and
    #: the rule gives no more.
    reason: str


def decide(
    latencies_us: Sequence[float], rule: StoppingRule, others: Autocorrelation = NO_AUTOCORRELATION
) -> Decision:
    """Return whether a case's invocations (one latency each, in microseconds) are enough under the
    rule.

    The figures are checked after the first ones, then at the count that the interval so far asks
    for, and so on: a check after every invocation would stop on lucky ones. For the same reason a
    narrow interval must still be narrow after CONFIRM_COUNT more, unless it is very narrow. The
    counts of the checks follow from the figures, in the order in which they were made, and from
    ``others``, the autocorrelation of the device's other cases.
    """
    count = len(latencies_us)
    next_count, reason = min(rule.first, rule.most), "first"
    while next_count <= count:
        summary = summarize(latencies_us[:next_count], others=others)
        half_width = math.inf if summary.spread is None else summary.spread
        is_narrow, was_narrow = half_width < rule.half_width, reason == "confirming"
        if is_narrow and (
            was_narrow or next_count >= rule.most or half_width < SURE_SHARE * rule.half_width
        ):
            return Decision(is_enough=True, next_count=count, reason="reached")
        if next_count >= rule.most:
            return Decision(is_enough=True, next_count=count, reason="most")
        next_count = (
            min(rule.most, next_count + CONFIRM_COUNT)
            if is_narrow
            else _next_count(latencies_us[:next_count], summary, rule)
        )
        reason = "confirming" if is_narrow else "noisy"
    return Decision(is_enough=False, next_count=next_count, reason=reason)


def _next_count(latencies_us: Sequence[float], summary: Summary, rule: StoppingRule) -> int:
    """Return the count at which the noise so far would give the interval of the rule."""
    count, std = summary.count + 1, summary.log_mean.std
    assert std is not None, "where more may be added, the first are two or more"
    if summary.states is not None:
        return min(rule.most, summary.count + _STATES_STEP)
    own_std = std / summary.log_mean.error_factor
    correlation = (autocorrelation_of(logs_of(latencies_us)) + summary.others).correlation()
    while count < rule.most:
        error = own_std * error_factor(count, correlation) / math.sqrt(count)
        if math.sinh(margin(error, degrees_of(count), LEVEL)) < rule.half_width:
            break
        count += 1
    return min(count, rule.most)


#: A case that failed this often in a row the same way stops, if that isn't chance.
FAILURES_MAX: Final = 2
#: It is chance while less than half of this many last invocations gave no result.
FAILURES_WINDOW: Final = 10

#: The key of the cases that one process measures; empty for a case that runs alone.
SessionOf = Callable[[Case], str]


class StopReason(enum.StrEnum):
    """Why a case got as many invocations as it has."""

    #: Planned invocations aren't stored yet.
    PLANNED = "planned"
    #: It needs more and will get them.
    OPEN = "open"
    #: The interval is narrow enough.
    REACHED = "reached"
    #: It has the maximum of the rule, and its interval is still too wide.
    MOST = "most"
    #: It would have got more if there had been time.
    BUDGET = "budget"
    #: The rest of its campaign was abandoned.
    ABANDONED = "abandoned"
    #: It has no figure of its own that more invocations could make more precise.
    FAILED = "failed"
    #: The plan says how many.
    FIXED = "fixed"
    #: Its delegate uses no threads, and another number of them has its figure.
    UNUSED = "threads-unused"


@frozen
class CaseProgress:
    """A case's progress under the stopping rule."""

    case: Case
    reason: StopReason
    #: Timing invocations that are stored, and those of them that the figure comes from.
    stored: int
    used: int
    #: Half the interval as a share of the figure, as reports show it; None with fewer than two
    #: figures.
    half_width: float | None
    #: The number that the next invocation would have.
    next_number: int

    @property
    def text(self) -> str:
        """The reason for people: ``enough: +-1.3 % after 8``."""
        width = "" if self.half_width is None else f"\u00b1{100 * self.half_width:.1f} %"
        after = f"{width} after {self.used}".strip()
        texts = {
            StopReason.PLANNED: "more to come",
            StopReason.OPEN: "more to come",
            StopReason.REACHED: f"enough: {after}",
            StopReason.MOST: f"still {after}, the maximum of the plan",
            StopReason.BUDGET: f"still {after}, the budget is spent",
            StopReason.ABANDONED: f"{after}, then its campaign was abandoned",
            StopReason.FAILED: "no more: it failed, or was left out",
            StopReason.UNUSED: "threads unused: measured with another number of them",
            StopReason.FIXED: f"{self.stored} as planned",
        }
        return texts[self.reason]


def is_hopeless(endings: Sequence[tuple[Outcome, str]]) -> bool:
    """Return whether a case's invocations (outcome and reason code, in the order they were made)
    leave no hope.

    The last two failed the same way, or the last one took all its time, and at least half of the
    last ten gave no result: one that fails now and then at random goes on.
    """
    tried = [item for item in endings if item[0].has_ended][-FAILURES_WINDOW:]
    failed = sum(outcome is not Outcome.COMPLETED for outcome, _ in tried)
    if not failed or 2 * failed < len(tried):
        return False
    last = tried[-FAILURES_MAX:]
    in_row = (
        len(last) == FAILURES_MAX and len(set(last)) == 1 and last[0][0] is not Outcome.COMPLETED
    )
    return in_row or tried[-1][0] is Outcome.TIMED_OUT


def progress_by_case(
    campaign: Campaign, measured: Mapping[CaseKey, CaseResult]
) -> dict[CaseKey, CaseProgress]:
    """Return the progress of every case with timing invocations in a campaign, of the cases that
    were gathered from its runs.
    """
    timed = (item for item in campaign.invocations if item.run_pass is FIGURE_PASS)
    planned = grouped(timed, lambda item: item.case.case_key)
    progress: dict[CaseKey, CaseProgress] = {}
    for key, item in measured.items():
        runs = [
            run for run in item.timing if run.campaign_id == campaign.campaign_id and run.is_final
        ]
        if runs or key in planned:
            runs.sort(key=lambda run: run.invocation)
            numbers = {invocation.number for invocation in planned.get(key, ())}
            progress[key] = _case_progress(item, runs, campaign.terms.stopping, numbers)
    return progress


def next_round(
    campaign: Campaign,
    runs: Sequence[RunRecord],
    serial: Serial,
    session_of: SessionOf = lambda _: "",
) -> list[Invocation]:
    """Return a device's next invocations beyond the planned ones; empty when no case needs more.

    Each open case once, in an order by the campaign's seed. ``runs`` are the device's, of this
    campaign.
    """
    progress = {
        key: item
        for key, item in progress_by_case(campaign, judge_cases(runs, [campaign])).items()
        if item.case.serial == serial
    }
    units: dict[str, list[CaseProgress]] = {}
    for key, item in progress.items():
        units.setdefault(session_of(item.case) or key, []).append(item)
    open_units = {
        name: unit
        for name, unit in units.items()
        if any(item.reason is StopReason.OPEN for item in unit)
    }
    if not open_units or any(
        item.reason is StopReason.PLANNED for unit in open_units.values() for item in unit
    ):
        return []
    numbers = {name: max(item.next_number for item in unit) for name, unit in open_units.items()}
    number = min(numbers.values())
    # Finished units are shuffled too: the rest of a round keeps its order after a kill.
    order = sorted(units)
    random.Random(f"{campaign.seed}:{serial}:{number}").shuffle(order)  # noqa: S311 - spreads drift, hides nothing
    return [
        item
        for name in order
        if name in open_units and numbers[name] == number
        for item in _unit_invocations(open_units[name], number)
    ]


def _case_progress(
    result: CaseResult, runs: Sequence[RunRecord], rule: StoppingRule | None, planned: set[int]
) -> CaseProgress:
    """Return a case's progress; ``runs`` are its timing runs by number, ``planned`` the numbers of
    the plan.
    """
    figure = result.summary if result.is_own_latency else None
    by_id = {run.run_id: run for run in runs}
    used = [by_id[name] for name in result.used if figure is not None and name in by_id]
    figures = [us for run in used if (us := figure_us(run, result.figure)) is not None]
    others = figure.others if figure is not None else NO_AUTOCORRELATION
    decision = decide(figures, rule or StoppingRule(), others)
    reason = _reason(runs, rule, planned)
    if reason is StopReason.OPEN and figure is None:
        reason = StopReason.FAILED
    elif reason is StopReason.OPEN and decision.is_enough:
        reason = StopReason(decision.reason)
    elif reason is StopReason.OPEN and rule is not None and len(runs) >= rule.most:
        reason = StopReason.MOST
    return CaseProgress(
        case=result.case,
        reason=reason,
        stored=len(runs),
        used=len(figures),
        half_width=figure.spread if figure is not None else None,
        next_number=max((run.invocation for run in runs), default=-1) + 1,
    )


def _reason(runs: Sequence[RunRecord], rule: StoppingRule | None, planned: set[int]) -> StopReason:
    """Return the reason that stops a case whatever its figures are; OPEN for none."""
    if not planned <= {run.invocation for run in runs}:
        return StopReason.PLANNED
    if any(run.reason_code == THREADS_UNUSED for run in runs):
        return StopReason.UNUSED
    if rule is None:
        return StopReason.FIXED
    if runs[-1].reason_code == OUT_OF_TIME:
        return StopReason.BUDGET
    if runs[-1].reason_code == ABANDONED:
        return StopReason.ABANDONED
    if runs[-1].outcome is Outcome.SKIPPED or is_hopeless(
        [(run.outcome, run.reason_code) for run in runs]
    ):
        return StopReason.FAILED
    return StopReason.OPEN


def _unit_invocations(unit: Sequence[CaseProgress], number: int) -> list[Invocation]:
    """Return the invocations of the cases of one process: first those that need more."""
    members = [item for item in unit if item.reason is not StopReason.FAILED]
    members.sort(key=lambda item: (item.reason is not StopReason.OPEN, item.case.case_key))
    return [Invocation(case=item.case, run_pass=FIGURE_PASS, number=number) for item in members]
