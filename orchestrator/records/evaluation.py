"""What an evaluation program found a model's answers to be worth, by delegate."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """What LiteRT's evaluation programs print of one run."""

    #: ``top-1``, ``mAP`` or, of inference_diff, ``difference``.
    metric: str
    #: Of the images that were right, or the mean average precision; None for ``difference``.
    percent: float | None = None
    #: Images, or of inference_diff pairs of inferences; None where it isn't printed.
    count: int | None = None
    #: Of inference_diff: for each output how far its values are on average from those of one thread on the CPU, and the
    #: standard deviation over the inputs, in the output's own unit.
    differences: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One evaluation of a model with one delegate on one device."""

    model_sha256: str
    model_name: str
    serial: str
    is_virtual: bool
    delegate: str
    threads: int
    #: Further flags that aren't about the task's data, sorted.
    flags: tuple[tuple[str, str], ...]
    program_sha256: str
    evaluated_at: datetime
    #: None when it failed, see ``reason``.
    found: Evaluated | None
    #: Why there is nothing, or what is doubtful about it; empty when all is well.
    reason: str
    #: Whether the delegate is shown to have taken operators.
    is_shown: bool
    command: str
    #: The end of what it printed.
    output: str

    @property
    def percent(self) -> float | None:
        """The accuracy, where it is the delegate's."""
        return self.found.percent if self.found is not None and self.is_shown else None

    @property
    def text(self) -> str:
        """What was found, for people."""
        if self.found is None:
            return ""
        if self.found.percent is not None:
            count = "" if self.found.count is None else f" of {self.found.count} images"
            return f"{self.found.percent:.4g} % {self.found.metric}{count}"
        told = ", ".join(
            f"output {place} {mean:.3g} ± {std:.2g}" for place, (mean, std) in enumerate(self.found.differences)
        )
        return f"mean difference from the CPU: {told}"
