"""What is judged about a run: findings with evidence, and the quality that follows from them."""

from __future__ import annotations

import enum
from dataclasses import dataclass


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was noticed about a run, by a documented code."""

    code: str
    severity: Severity
    message: str
    #: The line, figure or pair of figures that shows it.
    evidence: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityVerdict:
    """A run's quality and the findings it was judged by."""

    quality: Quality
    findings: tuple[Finding, ...] = ()

    def has(self, code: str) -> bool:
        """Whether a finding with this code is there."""
        return any(finding.code == code for finding in self.findings)
