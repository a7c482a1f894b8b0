"""Verdicts on a run: findings with evidence, the quality that follows from them, and whether
a model's outputs on a device are those of the reference.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from orchestrator.records import frozen
from orchestrator.records.case import RunId


class Severity(enum.StrEnum):
    """The weight of a finding."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Quality(enum.StrEnum):
    """The quality of a figure."""

    TRUSTED = "trusted"
    SUSPECT = "suspect"
    REJECTED = "rejected"

    @property
    def word(self) -> str:
        """The quality for people: a run with nothing wrong is clean; how closely its figure is
        known is apart.
        """
        return "clean" if self is Quality.TRUSTED else self.value

    @property
    def doubted(self) -> Quality:
        """The quality once something speaks against the number: at best suspect."""
        return Quality.SUSPECT if self is Quality.TRUSTED else self


@frozen
class Finding:
    """One thing that was noticed about a run, by a documented code."""

    code: str
    severity: Severity
    message: str
    #: The line, figure or pair of figures that shows it.
    evidence: str = ""


class Grade(enum.StrEnum):
    """The control over the device; figures of different grades are never mixed silently."""

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


@frozen
class QualityVerdict:
    """A run's quality and the findings it was judged by."""

    quality: Quality
    findings: tuple[Finding, ...] = ()
    #: None for a run that didn't come to an end of its own, and for those stored before grades were
    #: given.
    grade: Grade | None = None

    @property
    def codes(self) -> Sequence[str]:
        """The codes of what speaks against the number, each once."""
        codes = (item.code for item in self.findings if item.severity is not Severity.INFO)
        return list(dict.fromkeys(codes))

    def has(self, code: str) -> bool:
        """Whether a finding with this code is there."""
        return any(finding.code == code for finding in self.findings)


#: Confidence level of the interval that shows a change.
CHANGE_LEVEL: Final = 0.99
#: Relative differences below this are not called a change.
THRESHOLD: Final = 0.02


class ComparisonOutcome(enum.StrEnum):
    """The outcome of a comparison of two figures."""

    FASTER = "faster"
    SLOWER = "slower"
    #: The interval lies within plus or minus the threshold.
    SAME = "same"
    #: The interval is too wide to say.
    INCONCLUSIVE = "inconclusive"
    #: Something differs that must be the same, or a figure can't be used at all.
    INCOMPARABLE = "incomparable"


@frozen
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
    #: The method of the interval: ``paired-t``, ``welch``, ``state-by-state``.
    method: str = ""
    #: Whether the interval holds the noise between sessions, beside that within each.
    is_between_sessions: bool = False
    #: Invocations used of the baseline and of the candidate.
    counts: tuple[int, int] = (0, 0)
    #: Differences that prevent a comparison (INCOMPARABLE), or notes, as sentences.
    reasons: tuple[str, ...] = ()

    @property
    def is_decided(self) -> bool:
        """Whether a change is shown or ruled out, so that more invocations aren't needed."""
        return self.outcome in _DECIDED


@frozen
class ChangeRule:
    """When a difference is called a change."""

    #: Relative differences below this are not called a change.
    threshold: float = THRESHOLD
    #: Confidence level of the interval.
    level: float = CHANGE_LEVEL
    #: For pairs that end as soon as their verdict is known: their maximum number.
    most_pairs: int | None = None

    def verdict(
        self,
        counts: tuple[int, int],
        outcome: ComparisonOutcome = ComparisonOutcome.INCONCLUSIVE,
    ) -> ComparisonVerdict:
        """Return a verdict without a ratio, for these numbers of invocations of the two sides."""
        return ComparisonVerdict(
            outcome=outcome, threshold=self.threshold, level=self.level, counts=counts
        )


#: The default rule.
USUAL_CHANGE_RULE: Final = ChangeRule()
_DECIDED: Final = frozenset(
    {ComparisonOutcome.FASTER, ComparisonOutcome.SLOWER, ComparisonOutcome.SAME}
)


#: What a program writes its outputs to, and the attachment's name.
OUTPUTS_FILE: Final = "outputs.bin"
#: Attachments that stand beside a run's outputs: outputs for other inputs, and which tensors and
#: references there are.
CONTRAST_FILE: Final = "parity-contrast.bin"
BASIS_FILE: Final = "parity.json"


class Kernels(enum.StrEnum):
    """Implementations of the operators that the runtime of this computer has; each gives a
    reference.
    """

    #: The builtin kernels as they are optimised for this computer, without a delegate.
    BUILTIN = "builtin"
    #: The runtime's own XNNPACK delegate.
    XNNPACK = "xnnpack"
    #: The plain reference kernels.
    PLAIN = "plain"


def reference_file(kernels: Kernels) -> str:
    """Return the name of the attachment with the outputs of these kernels."""
    return f"parity-{kernels}.bin"


class ParityVerdict(enum.StrEnum):
    """The verdict on a configuration's outputs from the comparison with the reference."""

    #: Within the threshold of their type.
    SAME = "same"
    #: Beyond the threshold, and still the same answer: suspect.
    DRIFT = "drift"
    #: Not the model's outputs.
    WRONG = "wrong"
    #: The model's outputs hardly depend on its inputs: nothing could be seen.
    DEGENERATE = "degenerate"
    #: There was nothing to compare.
    UNREADABLE = "unreadable"

    @property
    def badness(self) -> int:
        """How bad outputs are that could be compared; 0 for the same."""
        return (ParityVerdict.SAME, ParityVerdict.DRIFT, ParityVerdict.WRONG).index(self)


class Outputs(enum.StrEnum):
    """The state of the outputs that belong to a figure."""

    #: The builtin kernels are what others are compared with.
    REFERENCE = "reference"
    CHECKED = "checked"
    #: Nobody compared them, or the comparison showed nothing.
    NOT_CHECKED = "not checked"
    DIFFER = "differ"


#: The state of outputs by the verdict of their comparison.
_OUTPUTS: Final[Mapping[ParityVerdict | None, Outputs]] = {
    None: Outputs.NOT_CHECKED,
    ParityVerdict.SAME: Outputs.CHECKED,
    ParityVerdict.DRIFT: Outputs.DIFFER,
    ParityVerdict.WRONG: Outputs.DIFFER,
    ParityVerdict.DEGENERATE: Outputs.NOT_CHECKED,
    ParityVerdict.UNREADABLE: Outputs.NOT_CHECKED,
}


def outputs_of(parity: ParityVerdict | None, *, is_builtin: bool) -> Outputs:
    """Return the state of outputs from their comparison; the builtin kernels' are the reference."""
    outputs = _OUTPUTS[parity]
    return Outputs.REFERENCE if is_builtin and outputs is Outputs.NOT_CHECKED else outputs


@frozen
class OutputCheck:
    """A comparison of outputs with the reference, as stored with later campaigns."""

    verdict: ParityVerdict
    #: Its figures as a sentence.
    reason: str
    #: Its largest difference, as a share of the largest magnitude or in steps; None where nothing
    #: could be compared.
    error: float | None
    run_id: RunId
    at: datetime


@frozen
class ParityInput:
    """An input as it is given to program and reference."""

    #: The tensor's name in the model, which the programs' flags name it by.
    name: str
    shape: tuple[int, ...]
    #: The file with its values on this computer, raw, in the machine's order.
    path: Path
    sha256: str


@frozen
class PlacedInput:
    """An input that lies on a device."""

    name: str
    shape: tuple[int, ...]
    path: str


#: The finding of a comparison's verdict; one that agreed has none.
OUTPUT_CODES: Final[Mapping[ParityVerdict | None, str]] = {
    ParityVerdict.WRONG: "wrong-outputs",
    ParityVerdict.DRIFT: "outputs-drift",
    ParityVerdict.DEGENERATE: "parity-degenerate",
    ParityVerdict.UNREADABLE: "outputs-unreadable",
}
#: The findings of outputs that differ -> their verdicts.
OUTPUT_FINDINGS: Final[Mapping[str, ParityVerdict]] = {
    OUTPUT_CODES[verdict]: verdict for verdict in (ParityVerdict.WRONG, ParityVerdict.DRIFT)
}
#: Findings of comparisons that prove nothing.
NO_EVIDENCE: Final = frozenset(OUTPUT_CODES.values()) - OUTPUT_FINDINGS.keys()
