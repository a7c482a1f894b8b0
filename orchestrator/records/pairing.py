"""An A/B comparison in pairs, as it is planned and kept."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.records.identity import CaseKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """How a campaign compares two cases in pairs; part of its terms, so that a resume plans the
    same pairs again.
    """

    #: (baseline, candidate) for each thing that is compared; both cases are of one device.
    sides: tuple[tuple[CaseKey, CaseKey], ...]
    #: What the two sides are called: as the user wrote them.
    baseline: str
    candidate: str
    #: What they differ in: ``build``, ``model``, ``flags``, ``delegate``, ``threads``, ``tool``.
    kind: str
    #: The relative difference that is to be found.
    detect: float
    level: float
    threshold: float
    #: Pairs that only warm the device and are never counted; they have the first numbers.
    warmup: int = 1
    #: Never more pairs than this are counted.
    most: int = 200
    #: Seconds of each device's own time, None is no limit.
    budget_s: float | None = None

    @property
    def is_same(self) -> bool:
        """Whether a side would be compared with itself."""
        return any(before == after for before, after in self.sides)

    @property
    def first_numbers(self) -> range:
        """The invocation numbers of warm-up and first pair."""
        return range(self.warmup + 1)
