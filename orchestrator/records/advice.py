"""What measurements advise: sentences with the runs that show them and the source of the rule behind them."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.records.identity import RunId


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """One line of advice."""

    #: The rule's documented name: ``best``, ``fleet``, ``threads`` ...
    rule: str
    #: What it is about: a model, on a device or on all of them.
    model: str
    device: str
    text: str
    #: The runs that its figures come from.
    evidence: tuple[RunId, ...]
    #: Where the rule comes from: a page of these docs, or of the runtime's.
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviceReport:
    """All that some campaigns advise."""

    lines: tuple[Advice, ...]
    #: Cases that may be used, and all that have runs.
    judged: int
    cases: int
    is_virtual: bool
