"""The columns of a finding of a case."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from orchestrator.tables.column import Column, Kind
from orchestrator.tables.rows import FindingRow

FINDINGS: Final[Sequence[Column[FindingRow]]] = (
    Column("code", "finding", lambda item: item.finding.code),
    Column("severity", "severity", lambda item: item.finding.severity),
    Column("message", "what was seen", lambda item: item.finding.message),
    Column("evidence", "evidence", lambda item: item.finding.evidence),
    Column("invocations", "runs", lambda item: item.count, Kind.COUNT),
    Column("next_step", "what to do", lambda item: item.next_step),
)
