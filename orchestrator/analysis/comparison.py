"""Comparison of two sides, case by case: matching, differences that prevent a comparison, verdicts,
and the overall ratio. Pure.

Two figures are compared when everything but the compared thing agrees. Cases are matched in steps
from "all alike" to "the same model by name, delegate, threads and tool", so that a case whose
settings or phone changed is reported as incomparable with its differences, instead of being left out
silently.
"""

from __future__ import annotations

import enum
import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from itertools import accumulate
from operator import or_
from typing import Final

from orchestrator.analysis.case_result import CaseResult, CaseStatus, comparable
from orchestrator.analysis.effect import (
    CHANGES,
    PAIRED_MIN,
    compare_pairs,
    compare_samples,
    factor_of,
    pairs_of,
)
from orchestrator.analysis.intervals import margin
from orchestrator.analysis.summary import SessionNoise
from orchestrator.records import frozen
from orchestrator.records.case import Case, SeriesKey
from orchestrator.records.plan import SETTINGS
from orchestrator.records.run import NOT_BEGUN, THREADS_UNUSED, FigureKind, Outcome
from orchestrator.records.verdict import (
    USUAL_CHANGE_RULE,
    ChangeRule,
    ComparisonOutcome,
    ComparisonVerdict,
    Grade,
    ParityVerdict,
    Quality,
)
from orchestrator.units import counted, format_percent


class Axis(enum.StrEnum):
    """The compared difference of the two sides."""

    CAMPAIGN = "campaign"
    BUILD = "build"
    MODEL = "model"
    DEVICE = "device"
    DELEGATE = "delegate"
    #: Some of delegate, threads, tool, mode and flags.
    CONFIG = "config"


class Fact(enum.StrEnum):
    """A fact that must agree before two figures are compared."""

    #: A virtual phone's figure is no measurement.
    VIRTUAL = "virtual"
    #: There is no figure, or it is one of another configuration.
    FIGURE = "figure"
    #: The figure was rejected.
    QUALITY = "quality"
    MODEL = "model"
    BUILD = "build"
    DEVICE = "device"
    #: The operating system's fingerprint.
    SYSTEM = "system"
    #: Which delegate was asked for.
    DELEGATE = "delegate"
    #: Where the operators really ran.
    TRUTH = "truth"
    THREADS = "threads"
    TOOL = "tool"
    #: How the program runs: shell, top-app, foreground.
    MODE = "mode"
    FLAGS = "flags"
    #: Runs, seconds, warm-up, cores.
    SETTINGS = "settings"
    GRADE = "grade"


#: What an axis is about, so that it may differ.
_FREE: Final[Mapping[Axis, frozenset[Fact]]] = {
    Axis.CAMPAIGN: frozenset({Fact.BUILD}),
    Axis.BUILD: frozenset({Fact.BUILD}),
    Axis.MODEL: frozenset({Fact.MODEL}),
    Axis.DEVICE: frozenset({Fact.DEVICE, Fact.SYSTEM, Fact.BUILD}),
    Axis.DELEGATE: frozenset({Fact.DELEGATE, Fact.TRUTH}),
    Axis.CONFIG: frozenset(),
}
#: Differences that no option allows.
ABSOLUTE: Final = frozenset({Fact.VIRTUAL, Fact.FIGURE, Fact.QUALITY})
#: Warnings that may be all that two sessions differ by.
_NO_VERDICT: Final = frozenset({"foreign-load", "coarse-resolution"})
#: Statuses of a case that doesn't work; one that a phone or a person stopped isn't among them.
_BROKEN: Final = frozenset({CaseStatus.FELL_BACK, CaseStatus.FAILED, CaseStatus.TIMED_OUT})


@frozen
class Rule:
    """How sides are compared."""

    axis: Axis = Axis.CAMPAIGN
    #: When a difference is called a change, each as a share; None for the default.
    threshold: float | None = None
    level: float | None = None
    #: Differences that the user allows; they are noted beside the figure.
    allowed: frozenset[Fact] = frozenset()
    #: For the axis CONFIG: what its selectors name.
    varied: frozenset[Fact] = field(default_factory=frozenset)
    #: What sessions of the series differ by; the default for one that isn't there.
    sessions: Mapping[SeriesKey, SessionNoise] = field(default_factory=dict)

    @property
    def change_rule(self) -> ChangeRule:
        """When a difference is called a change: as set, else the default."""
        return ChangeRule(
            threshold=USUAL_CHANGE_RULE.threshold if self.threshold is None else self.threshold,
            level=USUAL_CHANGE_RULE.level if self.level is None else self.level,
        )

    @property
    def free(self) -> frozenset[Fact]:
        """Facts that may differ because they are what is compared."""
        free = _FREE[self.axis] | self.varied
        if Fact.DELEGATE in free or Fact.MODEL in free:
            # How much of it a delegate takes is a property of a model.
            free |= {Fact.TRUTH}
        return free | {Fact.BUILD, Fact.MODE} if Fact.TOOL in free else free


def match(
    baseline: Sequence[CaseResult], candidate: Sequence[CaseResult], rule: Rule
) -> tuple[list[tuple[CaseResult, CaseResult]], list[CaseResult], list[CaseResult]]:
    """Return the pairs that belong together and the unpaired cases of each side; no case is in two
    pairs.
    """
    pairs: list[tuple[CaseResult, CaseResult]] = []
    left_baseline, left_candidate = list(baseline), list(candidate)
    for step, dropped in enumerate(_matching_steps(rule)):
        keys = [_cases_by_key(side, dropped, rule) for side in (left_baseline, left_candidate)]
        for key, baseline_cases in keys[0].items():
            candidate_cases = keys[1].get(key, [])
            if step >= _CLOSE_STEPS and (len(baseline_cases) > 1 or len(candidate_cases) > 1):
                # Several candidates for a loose match: none is paired.
                continue
            # The newest with the newest.
            pairs += list(zip(reversed(baseline_cases), reversed(candidate_cases), strict=False))
        taken = {id(item) for pair in pairs for item in pair}
        left_baseline = [item for item in left_baseline if id(item) not in taken]
        left_candidate = [item for item in left_candidate if id(item) not in taken]
    return pairs, left_baseline, left_candidate


#: Steps in which several cases may be alike; in the further ones only a single one of each side is
#: paired.
_CLOSE_STEPS: Final = 3
_Parts = frozenset[str]


def _matching_steps(rule: Rule) -> list[_Parts]:
    """Return, for each step of matching, the parts of a case that it ignores."""
    more = ["campaign", "build model-content", "settings mode", "flags"]
    if rule.axis in {Axis.CAMPAIGN, Axis.BUILD}:
        more.append("device")
    if rule.axis is Axis.DEVICE:
        # No program runs on both an iPhone and an Android phone.
        more.append("tool")
    free = _Parts(fact.value for fact in rule.free)
    return list(accumulate((_Parts(parts.split()) for parts in more), or_, initial=free))


def _cases_by_key(
    side: Sequence[CaseResult], dropped: _Parts, rule: Rule
) -> dict[tuple[object, ...], list[CaseResult]]:
    groups: dict[tuple[object, ...], list[CaseResult]] = defaultdict(list)
    for item in side:
        case = item.case
        parts: dict[str, object] = {
            "campaign": item.campaign_id if rule.axis is not Axis.CAMPAIGN else "",
            "build": case.build_sha256,
            "model-content": case.model_sha256 if Fact.MODEL not in rule.free else "",
            "model": case.model_name,
            "device": case.serial,
            "delegate": case.delegate,
            "threads": case.threads,
            "tool": case.tool,
            "mode": case.process_mode,
            "flags": case.flags,
            "settings": tuple(getattr(case, name) for name in SETTINGS),
        }
        groups[tuple(value for name, value in parts.items() if name not in dropped)].append(item)
    return groups


def title_of(item: CaseResult, rule: Rule) -> str:
    """Return a case's name without what is compared: ``mobilenet on Pixel 4 (virtual) A1: xnnpack,
    4 threads``.
    """
    case = item.case
    where = {
        Fact.MODEL: case.model_name,
        Fact.DEVICE: " ".join(dict.fromkeys((item.device_title, str(case.serial)))),
    }
    words = {
        Fact.DELEGATE: item.named(case.delegate.value),
        Fact.THREADS: case.threads_text,
        Fact.TOOL: case.tool.value,
        Fact.MODE: case.mode.value if case.mode is not None else "",
        Fact.FLAGS: ", ".join(f"{name}={value}" for name, value in case.flags),
    }

    def joined(parts: Mapping[Fact, str], between: str) -> str:
        return between.join(part for fact, part in parts.items() if part and fact not in rule.free)

    return ": ".join(filter(None, (joined(where, " on "), joined(words, ", "))))


class FailOn(enum.StrEnum):
    """When a comparison is a failure, for machines that ask."""

    #: A case is slower or broken, or nothing at all could be compared.
    SLOWER = "slower"
    #: The same, and when a case is inconclusive, incomparable, or only in the baseline.
    INCONCLUSIVE = "inconclusive"
    NEVER = "never"


#: Outcomes that neither show a case slower nor rule it out.
DOUBTFUL: Final = frozenset({ComparisonOutcome.INCONCLUSIVE, ComparisonOutcome.INCOMPARABLE})


@frozen
class Difference:
    """A fact that must agree and doesn't."""

    fact: Fact
    text: str


@frozen
class ComparedCase:
    """One case of both sides, with its verdict."""

    #: Names the case without what is compared.
    title: str
    baseline: CaseResult
    candidate: CaseResult
    verdict: ComparisonVerdict
    #: What keeps them apart; empty unless the verdict is INCOMPARABLE.
    differences: tuple[Difference, ...] = ()
    #: Of pairs: the runs that were made and gave no result, as sentences.
    failed: tuple[str, ...] = ()

    @property
    def is_virtual(self) -> bool:
        """Whether one of the figures is a virtual phone's."""
        return self.baseline.is_virtual or self.candidate.is_virtual

    @property
    def is_broken(self) -> bool:
        """Whether the candidate fails, hangs or falls back, if only in most of its runs, or computes
        wrong outputs, where the baseline has a figure.
        """
        candidate = self.candidate
        is_of_no_use = candidate.status in _BROKEN or candidate.parity is ParityVerdict.WRONG
        mostly_fails = _mostly_fails(candidate) and not _mostly_fails(self.baseline)
        return (is_of_no_use or mostly_fails) and not _figure_faults("baseline", self.baseline)

    def fails(self, fail_on: FailOn) -> bool:
        """Return whether it is a failure."""
        if self.is_broken or self.failed or self.verdict.outcome is ComparisonOutcome.SLOWER:
            return fail_on is not FailOn.NEVER
        return fail_on is FailOn.INCONCLUSIVE and self.verdict.outcome in DOUBTFUL


@frozen
class Overall:
    """The geometric mean of the ratios of all comparable cases."""

    ratio: float
    #: None when a case has no interval.
    low: float | None
    high: float | None
    level: float
    count: int


@frozen
class Comparison:
    """The comparison of two sides, case by case."""

    axis: str
    baseline: str
    candidate: str
    rows: tuple[ComparedCase, ...]
    #: Cases that only one side has.
    only_baseline: tuple[str, ...] = ()
    only_candidate: tuple[str, ...] = ()
    change_rule: ChangeRule = USUAL_CHANGE_RULE
    #: What to know of the whole, as sentences.
    notes: tuple[str, ...] = ()
    #: Of pairs: whether some are left to measure.
    is_incomplete: bool = False

    @property
    def counts(self) -> dict[ComparisonOutcome, int]:
        """The number of cases with each verdict; every verdict is a key."""
        return {
            outcome: sum(row.verdict.outcome is outcome for row in self.rows)
            for outcome in ComparisonOutcome
        }

    @property
    def overall(self) -> Overall | None:
        """The mean over the comparable cases, None when there is none."""
        return overall_of(
            [row for row in self.rows if row.verdict.outcome is not ComparisonOutcome.INCOMPARABLE]
        )

    @property
    def is_virtual(self) -> bool:
        """Whether figures of virtual phones are among them."""
        return any(row.is_virtual for row in self.rows)

    def lack(self, fail_on: FailOn) -> str:
        """Return the code of why it fails whatever its cases are; empty where it doesn't. Cases that
        weren't measured or compared aren't shown to be good.
        """
        if fail_on is FailOn.NEVER:
            return ""
        if self.overall is None:
            return "nothing-compared"
        if self.is_incomplete:
            return "incomplete"
        is_partial = fail_on is FailOn.INCONCLUSIVE and bool(self.only_baseline)
        return "not-compared" if is_partial else ""

    def fails(self, fail_on: FailOn) -> bool:
        """Return whether it is a failure."""
        return bool(self.lack(fail_on)) or any(row.fails(fail_on) for row in self.rows)


def compare_sides(
    baseline: Sequence[CaseResult],
    candidate: Sequence[CaseResult],
    rule: Rule,
    *,
    names: tuple[str, str] = ("", ""),
) -> Comparison:
    """Return every case of both sides, compared, and the titles of cases of one side only."""
    pairs, only_baseline, only_candidate = match(baseline, candidate, rule)
    # Cases that both sides skipped because threads are unused have a figure at another number.
    rows = [
        compare_measured(before, after, rule)
        for before, after in pairs
        if {before.reason_code, after.reason_code} != {THREADS_UNUSED}
    ]
    rows.sort(key=lambda row: row.title)
    return Comparison(
        axis=rule.axis.value,
        baseline=names[0],
        candidate=names[1],
        rows=tuple(rows),
        only_baseline=tuple(sorted(title_of(item, Rule()) for item in only_baseline)),
        only_candidate=tuple(sorted(title_of(item, Rule()) for item in only_candidate)),
        change_rule=rule.change_rule,
    )


def compare_measured(before: CaseResult, after: CaseResult, rule: Rule) -> ComparedCase:
    """Return the verdict on two measured cases: the figures' own, or INCOMPARABLE with what
    differs.

    INCOMPARABLE has the ratio and its interval too, where both sides have figures of real runs.
    """
    before, after, means = same_kind(before, after)
    differences = differences_of(before, after, rule.free)
    blocking = tuple(
        item for item in differences if item.fact in ABSOLUTE or item.fact not in rule.allowed
    )
    notes = (
        [f"Allowed: {item.text}" for item in differences if item not in blocking]
        + means
        + _notes(before, after, rule)
    )
    is_figure = not any(item.fact in ABSOLUTE for item in blocking)
    counts = len(before.used), len(after.used)
    verdict = _verdict(before, after, rule) if is_figure else rule.change_rule.verdict(counts)
    outcome, doubts = verdict.outcome, [] if blocking else _doubts(before, after)
    if blocking:
        # The ratio is still reported, without calling it a change.
        outcome = ComparisonOutcome.INCOMPARABLE
    elif doubts and outcome in CHANGES:
        outcome = ComparisonOutcome.INCONCLUSIVE
    texts = (item.text for item in blocking)
    return ComparedCase(
        title=title_of(before, rule),
        baseline=before,
        candidate=after,
        verdict=replace(
            verdict, outcome=outcome, reasons=(*texts, *verdict.reasons, *doubts, *notes)
        ),
        differences=blocking,
    )


def _doubts(before: CaseResult, after: CaseResult) -> list[str]:
    """Return the reasons why a difference of two sessions isn't called a change, as sentences."""
    if _same_place(before, after):
        return []
    return [
        f"No change is claimed: the {name} has {code}, which may be all of the difference."
        for name, item in _sides(before, after)
        for code in sorted(_NO_VERDICT & item.codes)
    ]


#: The facts that choose a configuration, with their values for a case.
CONFIG: Final[Mapping[Fact, Callable[[Case], str]]] = {
    Fact.DELEGATE: lambda case: case.delegate.value,
    Fact.THREADS: lambda case: str(case.threads),
    Fact.TOOL: lambda case: case.tool.value,
    Fact.MODE: lambda case: case.process_mode.value,
}


def _in_case(fact: Fact) -> Callable[[CaseResult], str]:
    return lambda item: CONFIG[fact](item.case)


#: A fact's noun and its value for a case, the most serious first; an empty value is unknown and never
#: differs.
_FACTS: Final[Mapping[Fact, tuple[str, Callable[[CaseResult], object]]]] = {
    Fact.DEVICE: ("device", lambda item: item.case.serial),
    Fact.SYSTEM: ("device's operating system", lambda item: item.system),
    Fact.BUILD: ("program", lambda item: item.build),
    Fact.DELEGATE: ("delegate", _in_case(Fact.DELEGATE)),
    Fact.TRUTH: ("place where the operators ran", lambda item: item.actual),
    Fact.THREADS: ("number of threads", _in_case(Fact.THREADS)),
    Fact.TOOL: ("tool", _in_case(Fact.TOOL)),
    Fact.MODE: ("process mode", _in_case(Fact.MODE)),
    Fact.FLAGS: (
        "set of flags",
        lambda item: " ".join(f"{name}={value}" for name, value in item.case.flags) or "none",
    ),
}
#: A fact isn't reported where the fact that it is part of differs.
_PART_OF: Final = {Fact.SYSTEM: Fact.DEVICE, Fact.MODE: Fact.TOOL}


def differences_of(
    before: CaseResult, after: CaseResult, free: frozenset[Fact]
) -> list[Difference]:
    """Return every fact that must agree and doesn't, the most serious first."""
    before_case, after_case = before.case, after.case
    differences: list[Difference] = []

    def check(fact: Fact, noun: str, first: object, second: object) -> None:
        if fact not in free and first != second:
            differences.append(
                Difference(fact=fact, text=f"The {noun} differs: {first} and {second}.")
            )

    if before.is_virtual != after.is_virtual:
        text = "One figure is a virtual phone's and no measurement, the other is a real device's."
        differences.append(Difference(fact=Fact.VIRTUAL, text=text))
    for name, item in _sides(before, after):
        differences += _figure_faults(name, item)
    if not differences and before.figure is not after.figure:
        text = f"One figure is a {before.figure}, the other a {after.figure}; neither has both."
        differences.append(Difference(fact=Fact.FIGURE, text=text))
    noun, names = "model", (before_case.model_name, after_case.model_name)
    if names[0] == names[1]:
        noun = f"content of the model {before_case.model_name}"
        names = before_case.model_sha256[:12], after_case.model_sha256[:12]
    check(Fact.MODEL, noun, *names)
    for fact, (noun, value_of) in _FACTS.items():
        parent_value_of = _FACTS[_PART_OF[fact]][1] if fact in _PART_OF else None
        if (
            value_of(before)
            and value_of(after)
            and (not parent_value_of or parent_value_of(before) == parent_value_of(after))
        ):
            check(fact, noun, value_of(before), value_of(after))
    for name in SETTINGS:
        check(
            Fact.SETTINGS, f"setting {name}", getattr(before_case, name), getattr(after_case, name)
        )
    if are_grades_apart(before, after):
        check(Fact.GRADE, "grade of control", before.grade, after.grade)
    return differences


def are_grades_apart(before: CaseResult, after: CaseResult) -> bool:
    """Whether the sides were controlled so differently that their figures can't be compared.

    Neighbouring grades are noted beside the figure: one invocation of several that was a little
    less controlled makes the difference, by chance. So are those of two sides in turns on one
    device, which met the same conditions. Of grade E nothing is known, so nothing is next to it.
    """
    if (
        before.grade is None
        or after.grade is None
        or before.grade is after.grade
        or _same_place(before, after)
    ):
        return False
    grades = list(Grade)
    steps = abs(grades.index(before.grade) - grades.index(after.grade))
    return steps > 1 or Grade.E in {before.grade, after.grade}


def same_kind(before: CaseResult, after: CaseResult) -> tuple[CaseResult, CaseResult, list[str]]:
    """Return both sides with figures of one kind, and notes about that.

    Sides without a common kind stay as they are: :func:`differences_of` reports it.
    """
    sides = dict(_sides(before, after))
    both = comparable(sides)
    without = [name for name, item in sides.items() if item.figure is FigureKind.MEAN]
    if not without or len(both) < len(sides):
        return before, after, []
    note = f"Means are compared: the {' and the '.join(without)} printed no medians."
    return both["baseline"], both["candidate"], [note]


def _sides(before: CaseResult, after: CaseResult) -> tuple[tuple[str, CaseResult], ...]:
    return ("baseline", before), ("candidate", after)


def _same_place(before: CaseResult, after: CaseResult) -> bool:
    return before.campaign_id == after.campaign_id and before.case.serial == after.case.serial


def _figure_faults(name: str, item: CaseResult) -> list[Difference]:
    reason = item.reason.rstrip(".")
    if item.status is CaseStatus.REJECTED or item.quality is Quality.REJECTED:
        cause = f"{item.reason_code}: {reason}" if item.reason_code else "its findings say why"
        return [Difference(fact=Fact.QUALITY, text=f"The {name} was rejected ({cause}).")]
    if item.own_summary is None:
        cause = f": {item.reason_code}: {reason}" if item.reason_code else ""
        wrong = "; its outputs are wrong" if item.parity is ParityVerdict.WRONG else ""
        text = f"The {name} has no figure of its own ({item.status}{cause}{wrong})."
        return [Difference(fact=Fact.FIGURE, text=text)]
    return []


def _mostly_fails(item: CaseResult) -> bool:
    """Whether more than half of the runs that came to an end of their own gave no result."""
    ended = [run.outcome for run in item.timing if run.outcome.has_ended]
    return 2 * sum(outcome is not Outcome.COMPLETED for outcome in ended) > len(ended)


def _notes(before: CaseResult, after: CaseResult, rule: Rule) -> list[str]:
    """Return notes on a comparison's figures, as sentences."""
    notes = []
    for name, item in _sides(before, after):
        if item.origin:
            notes.append(f"The {name} is {item.origin}.")
        if item.quality is Quality.SUSPECT:
            causes = "; ".join([*sorted(item.codes), *(note.rstrip(".") for note in item.notes)])
            notes.append(f"The {name} is suspect ({causes}).")
        if imprecision := item.lacking:
            precision = item.precision
            width = "no interval" if precision is None else f"\u00b1{format_percent(precision)}"
            notes.append(f"The {name} is {imprecision}: {width}.")
        if item.status is CaseStatus.UNCONFIRMED:
            notes.append(f"Nothing shows where the {name}'s operators ran.")
    if Fact.BUILD in rule.free and rule.axis is not Axis.BUILD and before.build != after.build:
        notes.append(f"The programs differ: {before.build} and {after.build}.")
    if Fact.MODEL in rule.free and before.actual and after.actual and before.actual != after.actual:
        notes.append(f"The operators ran in different places: {before.actual} and {after.actual}.")
    if before.case.files != after.case.files:
        notes.append("The libraries beside the programs differ.")
    are_measured = before.used and after.used
    if are_measured and before.grade is not after.grade and not are_grades_apart(before, after):
        grades = [
            grade.value if grade is not None else "unknown" for grade in (before.grade, after.grade)
        ]
        notes.append(f"The lowest grades of control differ: {grades[0]} and {grades[1]}.")
    unknown = [name for name, item in _sides(before, after) if not item.system]
    if unknown and rule.axis is not Axis.DEVICE and before.campaign_id != after.campaign_id:
        names = " and the ".join(unknown)
        notes.append(f"The device's operating system is unknown for the {names}, so it may differ.")
    if rule.axis is Axis.DEVICE and before.system != after.system:
        notes.append(
            f"The systems differ: {before.system or 'unknown'} and {after.system or 'unknown'}."
        )
    return notes


def _verdict(before: CaseResult, after: CaseResult, rule: Rule) -> ComparisonVerdict:
    baseline, candidate = before.summary, after.summary
    assert baseline is not None, "what is compared has a figure"
    assert candidate is not None, "what is compared has a figure"
    if not _same_place(before, after):
        sessions = _sessions(before, after, rule)
        return compare_samples(baseline, candidate, rule.change_rule, sessions=sessions)
    pairs = pairs_of(baseline, candidate)
    if len(pairs) < (PAIRED_MIN if before.change_rule is None else 2):
        return compare_samples(baseline, candidate, rule.change_rule)
    # Pairs that ended early are judged by the rule that ended them, whatever is compared.
    change_rule = before.change_rule or rule.change_rule
    verdict = compare_pairs(
        pairs.baseline_us, pairs.candidate_us, change_rule, resolution_us=pairs.resolution_us
    )
    notes = _unpaired_notes(before, after, len(pairs))
    if change_rule.threshold != rule.change_rule.threshold:
        threshold = format_percent(change_rule.threshold)
        notes.append(f"Its A/B comparison claims a change of at least {threshold}.")
    return replace(verdict, reasons=(*verdict.reasons, *notes))


def _sessions(before: CaseResult, after: CaseResult, rule: Rule) -> SessionNoise:
    """Return the session noise of the series with more steps."""
    noises = [rule.sessions.get(item.case.series_key, SessionNoise()) for item in (before, after)]
    return max(noises, key=lambda noise: noise.steps)


def _unpaired_notes(before: CaseResult, after: CaseResult, paired: int) -> list[str]:
    """Return notes about unpaired runs: the other run can't be used or came late, or its side
    stopped earlier.
    """
    sides = [
        {run.invocation for run in item.timing if run.reason_code not in NOT_BEGUN}
        for item in (before, after)
    ]
    common, unpaired = len(sides[0] & sides[1]), len(sides[0] ^ sides[1])
    notes = []
    if common > paired:
        notes = [
            f"{common - paired} of {common} pairs left out: one run can't be used or came late."
        ]
    if unpaired:
        notes.append(
            f"{counted(unpaired, 'invocation')} without a partner: not run on the other side."
        )
    return notes


def overall_of(rows: Sequence[ComparedCase]) -> Overall | None:
    """Return the geometric mean of the ratios with its interval; None when no case has a ratio.

    The interval is that of the measured noise of these cases. Errors of pairs are independent.
    Between sessions, all cases of one device share the session's deviation: their errors are added.
    """
    compared = [row for row in rows if row.verdict.ratio is not None]
    if not compared:
        return None
    mean = math.fsum(math.log(row.verdict.ratio or 1.0) for row in compared) / len(compared)
    level = min(row.verdict.level for row in compared)
    parts: dict[str, list[float]] = defaultdict(list)
    for index, row in enumerate(compared):
        verdict = row.verdict
        if verdict.low is None or verdict.high is None:
            return Overall(
                ratio=factor_of(mean), low=None, high=None, level=level, count=len(compared)
            )
        width = math.log(verdict.high) - math.log(verdict.low)
        error = width / 2 / margin(1.0, math.inf, verdict.level)
        shared = not verdict.method.startswith("paired")
        parts[f"device {row.candidate.case.serial}" if shared else f"case {index}"].append(error)
    errors = math.sqrt(sum(sum(group) ** 2 for group in parts.values()))
    half_width = margin(errors, math.inf, level) / len(compared)
    low, high = factor_of(mean - half_width), factor_of(mean + half_width)
    return Overall(ratio=factor_of(mean), low=low, high=high, level=level, count=len(compared))
