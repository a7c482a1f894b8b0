"""Whether a model's outputs on a device are those of the reference: what is compared, and what came
of it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from orchestrator.records.case import RunId
from orchestrator.records.run import Attachment

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
    """What a comparison with the reference says of a configuration's outputs."""

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
    """What is known of the outputs that a figure belongs to."""

    #: The builtin kernels are what others are compared with.
    REFERENCE = "reference"
    CHECKED = "checked"
    #: Nobody compared them, or the comparison showed nothing.
    NOT_CHECKED = "not checked"
    DIFFER = "differ"


#: What a comparison makes of them.
_OUTPUTS: Final[Mapping[ParityVerdict | None, Outputs]] = {
    None: Outputs.NOT_CHECKED,
    ParityVerdict.SAME: Outputs.CHECKED,
    ParityVerdict.DRIFT: Outputs.DIFFER,
    ParityVerdict.WRONG: Outputs.DIFFER,
    ParityVerdict.DEGENERATE: Outputs.NOT_CHECKED,
    ParityVerdict.UNREADABLE: Outputs.NOT_CHECKED,
}


def outputs_of(parity: ParityVerdict | None, *, is_builtin: bool) -> Outputs:
    """Return what is known of outputs by their comparison; the builtin kernels' are the
    reference's kind.
    """
    known = _OUTPUTS[parity]
    return Outputs.REFERENCE if is_builtin and known is Outputs.NOT_CHECKED else known


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputCheck:
    """What a comparison of outputs with the reference said, as later campaigns keep it."""

    verdict: ParityVerdict
    #: Its figures as a sentence.
    reason: str
    #: Its largest difference, as a share of the largest magnitude or in steps; None where nothing
    #: could be compared.
    error: float | None
    run_id: RunId
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityInput:
    """An input as it is given to program and reference."""

    #: The tensor's name in the model, which the programs' flags name it by.
    name: str
    shape: tuple[int, ...]
    #: The file with its values on this computer, raw, in the machine's order.
    path: Path
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedInput:
    """An input that lies on a device."""

    name: str
    shape: tuple[int, ...]
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ParityBasis:
    """What the outputs of one model for one set of inputs are compared with."""

    inputs: tuple[ParityInput, ...]
    #: Reference outputs, tensor descriptions and outputs for other inputs, as they are kept with
    #: each run.
    attachments: tuple[Attachment, ...]


#: What a comparison's finding says of the outputs; a comparison without any of them and the next
#: two agreed.
OUTPUT_FINDINGS: Final[Mapping[str, ParityVerdict]] = {
    "wrong-outputs": ParityVerdict.WRONG,
    "outputs-drift": ParityVerdict.DRIFT,
}
#: Findings of comparisons that prove nothing.
NO_EVIDENCE: Final = frozenset({"parity-degenerate", "outputs-unreadable"})
