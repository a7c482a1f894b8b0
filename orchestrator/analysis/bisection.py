"""The first bad one in a row of builds, found by comparing builds with the good one."""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterable
from typing import Final

from orchestrator.records import frozen
from orchestrator.records.verdict import ComparisonOutcome, ComparisonVerdict

#: A step that explains less than this share of the whole change leaves further steps to find.
_WHOLE_SHARE: Final = 0.6


class Judgement(enum.StrEnum):
    """The judgement of a build against the good one."""

    GOOD = "good"
    BAD = "bad"
    #: Measured, and undecided.
    UNCLEAR = "unclear"
    #: It couldn't be measured.
    SKIPPED = "skipped"


@frozen
class Compared:
    """The comparison of a build with the good one, or with another one."""

    #: The worst of the cases' verdicts; None when nothing was measured.
    verdict: ComparisonVerdict | None
    #: Why nothing was measured.
    reason: str = ""
    #: Where it is stored.
    campaign_id: str = ""


@frozen
class Probe:
    """One tested build; ``index`` counts from the good build, 0."""

    index: int
    judgement: Judgement
    compared: Compared


@frozen
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
    #: Remarks, as sentences.
    remarks: tuple[str, ...] = ()


#: Compares two builds, baseline and candidate, by their indices.
Compare = Callable[[int, int], Compared]


def search(
    count: int, compare: Compare, *, on_probe: Callable[[Probe], None] = lambda probe: None
) -> BisectResult:
    """Return the first bad one of ``count`` builds, the first of which is good and the last bad.

    Builds that can't be measured or judged are skipped, as long as others are left between. The
    result then names the suspects, one of which is the first bad build. ``count`` is at least 2.
    """
    probes: list[Probe] = []

    def test_build(index: int, whole: float | None) -> Judgement:
        compared = compare(0, index)
        probes.append(
            Probe(index=index, judgement=judgement_of(compared.verdict, whole), compared=compared)
        )
        on_probe(probes[-1])
        return probes[-1].judgement

    if test_build(count - 1, None) is not Judgement.BAD:
        return BisectResult(probes=tuple(probes))
    whole = _log_ratio(probes[0].compared.verdict)
    low, high = 0, count - 1
    passed: set[int] = set()
    while between := [index for index in range(low + 1, high) if index not in passed]:
        candidate = min(between, key=lambda index: (abs(2 * index - low - high), index))
        match test_build(candidate, whole):
            case Judgement.BAD:
                high = candidate
            case Judgement.GOOD:
                low = candidate
            case _:
                passed.add(candidate)
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
    """Return the judgement that a verdict against the good build means.

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


def _log_ratio(verdict: ComparisonVerdict | None) -> float:
    return math.log((verdict and verdict.ratio) or 1.0)


def _remarks(step: Compared, whole: float) -> tuple[str, ...]:
    """Return a remark where the step that was found doesn't explain the whole change, else none."""
    if judgement_of(step.verdict, None) is Judgement.BAD and (
        _log_ratio(step.verdict) >= _WHOLE_SHARE * whole
    ):
        return ()
    text = (
        "The last good and the first bad build, against each other, don't show the whole change: "
        "it came in several steps; bisect again from the first bad build, or with a smaller --detect."
    )
    return (text,)


#: The worst first: one slow case makes a build bad.
_GRAVITY: Final = (
    ComparisonOutcome.SLOWER,
    ComparisonOutcome.INCONCLUSIVE,
    ComparisonOutcome.INCOMPARABLE,
    ComparisonOutcome.SAME,
    ComparisonOutcome.FASTER,
)


def worst_verdict(verdicts: Iterable[ComparisonVerdict]) -> ComparisonVerdict | None:
    """Return the worst of the cases' verdicts; of equal ones, the one that may be the slowest; None
    for none.
    """
    return min(
        verdicts,
        key=lambda item: (_GRAVITY.index(item.outcome), -(item.high or item.ratio or 0.0)),
        default=None,
    )
