"""What is judged about a run: findings with evidence, and the quality that follows from them."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final


class Severity(enum.StrEnum):
    """How much a finding takes from a number."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Quality(enum.StrEnum):
    """What a number is worth."""

    TRUSTED = "trusted"
    SUSPECT = "suspect"
    REJECTED = "rejected"

    @property
    def word(self) -> str:
        """The quality for people: a run with nothing wrong is clean; how closely its figure is
        known is apart.
        """
        return "clean" if self is Quality.TRUSTED else self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was noticed about a run, by a documented code."""

    code: str
    severity: Severity
    message: str
    #: The line, figure or pair of figures that shows it.
    evidence: str = ""


class Grade(enum.StrEnum):
    """How controlled the device was; figures of different grades are never mixed silently."""

    #: Clocks were pinned as root, and stayed where they were pinned.
    A = "A"
    #: A fixed performance mode of the system held, or clocks were seen at their maximum throughout.
    B = "B"
    #: Awake, cool, quiet, and the clocks were seen; nothing held them.
    C = "C"
    #: Some of it is not known, or a limit was touched.
    D = "D"
    #: Nothing is known of the device's state: imported, or not readable.
    E = "E"


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityVerdict:
    """A run's quality and the findings it was judged by."""

    quality: Quality
    findings: tuple[Finding, ...] = ()
    #: None for a run that didn't come to an end of its own, and for those stored before grades were
    #: given.
    grade: Grade | None = None

    def has(self, code: str) -> bool:
        """Whether a finding with this code is there."""
        return any(finding.code == code for finding in self.findings)


#: How sure the interval is that a claim rests on.
CLAIM_LEVEL: Final = 0.99
#: Relative differences below this are not called a change.
THRESHOLD: Final = 0.02


class ComparisonOutcome(enum.StrEnum):
    """What a comparison of two figures says."""

    FASTER = "faster"
    SLOWER = "slower"
    #: The interval lies within plus or minus the threshold.
    SAME = "same"
    #: The interval is too wide to say.
    INCONCLUSIVE = "inconclusive"
    #: Something differs that must be the same, or a figure can't be used at all.
    INCOMPARABLE = "incomparable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonVerdict:
    """A candidate against its baseline.

    Ratios are candidate time / baseline time: 1.03 takes 3 % longer.
    """

    outcome: ComparisonOutcome
    #: None when one side has no figure, or only one is a real phone's.
    ratio: float | None = None
    #: Ends of the confidence interval of ``ratio``; None where there are too few invocations for
    #: one.
    low: float | None = None
    high: float | None = None
    level: float = 0.95
    #: The relative difference below which two figures are called the same.
    threshold: float = THRESHOLD
    #: The smallest relative difference that this many invocations of this noise would have shown
    #: (power 0.8).
    detectable: float | None = None
    #: How the interval was reached: ``paired-t``, ``welch``, ``state-by-state``.
    method: str = ""
    #: Whether the interval holds what sessions differ by, beside the noise within each.
    is_between_sessions: bool = False
    #: Invocations used of the baseline and of the candidate.
    counts: tuple[int, int] = (0, 0)
    #: What differs that must not (INCOMPARABLE), or what to know beside it, as sentences.
    reasons: tuple[str, ...] = ()

    @property
    def is_decided(self) -> bool:
        """Whether more invocations would change nothing: a change is shown, or that there is none."""
        return self.outcome in _DECIDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """When a change is claimed."""

    #: Relative differences below this are not called a change.
    threshold: float = THRESHOLD
    #: How sure the interval is.
    level: float = CLAIM_LEVEL
    #: For pairs that end as soon as their verdict is known: how many there are at the most.
    most_pairs: int | None = None

    def verdict(
        self,
        counts: tuple[int, int],
        outcome: ComparisonOutcome = ComparisonOutcome.INCONCLUSIVE,
    ) -> ComparisonVerdict:
        """Return a verdict on so many invocations of either side before anything is known of them."""
        return ComparisonVerdict(
            outcome=outcome, threshold=self.threshold, level=self.level, counts=counts
        )


#: What a change is claimed by, unless somebody says otherwise.
USUAL_CLAIM: Final = Claim()
_DECIDED: Final = frozenset(
    {ComparisonOutcome.FASTER, ComparisonOutcome.SLOWER, ComparisonOutcome.SAME}
)
