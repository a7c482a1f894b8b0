"""The first slow one of a row of builds, by comparing each that is looked at with the one that is
known to be good.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from orchestrator.records.verdict import ComparisonOutcome, ComparisonVerdict
from orchestrator.units import format_change

#: A step that explains less than this share of the whole change isn't all there is.
_WHOLE_SHARE: Final = 0.6


class Judgement(enum.StrEnum):
    """What a build is, beside the good one."""

    GOOD = "good"
    BAD = "bad"
    #: Measured, and the figures don't say.
    UNCLEAR = "unclear"
    #: It couldn't be measured.
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What comparing a build with the good one (or with another) gave."""

    #: The gravest of the cases' verdicts; None when nothing was measured.
    verdict: ComparisonVerdict | None
    #: Why nothing was measured.
    reason: str = ""
    #: Where it is stored.
    campaign_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One build of the row that was looked at; ``index`` counts from the good build, 0."""

    index: int
    judgement: Judgement
    compared: Compared


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectResult:
    """What a search found."""

    #: In the order in which they were measured.
    probes: tuple[Probe, ...]
    #: None when the ends don't differ, or when builds that couldn't be judged lie before it.
    first_bad: int | None = None
    last_good: int | None = None
    #: Without a first bad one: it is among these.
    suspects: tuple[int, ...] = ()
    #: The last good one against the first one known to be bad.
    step: Compared | None = None
    #: What to know beside it, as sentences.
    remarks: tuple[str, ...] = ()


#: Compares two builds of the row, baseline and candidate, by their indices.
Compare = Callable[[int, int], Compared]


def bisect(
    count: int, compare: Compare, *, on_probe: Callable[[Probe], None] = lambda probe: None
) -> BisectResult:
    """Return the first bad one of ``count`` builds, the first of which is good and the last bad.

    Builds that can't be measured or judged are gone around, as long as others are left between; the
    result then names those among which the first bad one is. Raises ValueError for fewer than two
    builds.
    """
    if count < 2:
        raise ValueError("a good and a bad build are needed")
    probes: list[Probe] = []

    def look(index: int, whole: float | None) -> Judgement:
        compared = compare(0, index)
        probes.append(
            Probe(index=index, judgement=judgement_of(compared.verdict, whole), compared=compared)
        )
        on_probe(probes[-1])
        return probes[-1].judgement

    if look(count - 1, None) is not Judgement.BAD:
        return BisectResult(probes=tuple(probes), remarks=(_ends_alike(probes[0].compared),))
    whole = _log_ratio(probes[0].compared.verdict)
    low, high = 0, count - 1
    passed: set[int] = set()
    while between := [index for index in range(low + 1, high) if index not in passed]:
        middle = min(between, key=lambda index: (abs(2 * index - low - high), index))
        match look(middle, whole):
            case Judgement.BAD:
                high = middle
            case Judgement.GOOD:
                low = middle
            case _:
                passed.add(middle)
    of_high = next(probe for probe in probes if probe.index == high)
    step = of_high.compared if low == 0 else compare(low, high)
    suspects = (*(index for index in sorted(passed) if low < index < high), high)
    return BisectResult(
        probes=tuple(probes),
        first_bad=high if len(suspects) == 1 else None,
        last_good=low,
        suspects=suspects if len(suspects) > 1 else (),
        step=step,
        remarks=_remarks(step, whole),
    )


def judgement_of(verdict: ComparisonVerdict | None, whole: float | None) -> Judgement:
    """Return what a verdict against the good build means.

    ``whole`` is the logarithm of the whole change. Where a verdict is inconclusive, a build is
    still good when its interval lies below half of the change.
    """
    if verdict is None or verdict.outcome is ComparisonOutcome.INCOMPARABLE:
        return Judgement.SKIPPED
    if verdict.outcome is ComparisonOutcome.SLOWER:
        return Judgement.BAD
    if verdict.outcome in {ComparisonOutcome.SAME, ComparisonOutcome.FASTER}:
        return Judgement.GOOD
    if whole is not None and verdict.high is not None and math.log(verdict.high) < whole / 2:
        return Judgement.GOOD
    return Judgement.UNCLEAR


def _ratio(verdict: ComparisonVerdict | None) -> float | None:
    is_compared = verdict and verdict.outcome is not ComparisonOutcome.INCOMPARABLE
    return verdict.ratio if verdict and is_compared else None


def _log_ratio(verdict: ComparisonVerdict | None) -> float:
    return math.log(_ratio(verdict) or 1.0)


def _ends_alike(compared: Compared) -> str:
    verdict = compared.verdict
    if verdict is None or (ratio := _ratio(verdict)) is None:
        why = compared.reason or " ".join(verdict.reasons if verdict is not None else ())
        return f"The bad build could not be compared with the good one: {why}"
    return (
        f"The bad build isn't slower than the good one: {verdict.outcome}, {format_change(ratio)}."
    )


def _remarks(step: Compared, whole: float) -> tuple[str, ...]:
    """Return what the step that was found doesn't explain of the whole change."""
    verdict = step.verdict
    if verdict is None or verdict.outcome is not ComparisonOutcome.SLOWER:
        what = verdict.outcome.value if verdict is not None else "not measured"
        text = (
            f"The last good and the first bad build, against each other, are {what}: the change came in small steps, "
            "or a verdict was wrong; measure again with a smaller --detect."
        )
        return (text,)
    if _log_ratio(verdict) < _WHOLE_SHARE * whole:
        return (
            "This step is only a part of the whole change; bisect on from the first bad build.",
        )
    return ()
