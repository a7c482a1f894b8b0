"""What somebody gives us that declared programs printed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from orchestrator.programs.grammar.lines import Buffer, Line
from orchestrator.records.run import ToolReport

#: A text of such a program shows it early.
_SAMPLE_BYTES: Final = 4 << 20


def declared_reports(buffer: Buffer, lines: Callable[[Buffer], Iterable[Line]], requested: str) -> list[ToolReport]:
    """Return the reports of every declared program of which a text has a mark; raises PlanError for a faulty file."""
    from orchestrator.config.declared_programs import every_declared
    from orchestrator.programs.grammar.declared import DeclaredReader, reports_of

    sample = buffer[:_SAMPLE_BYTES].lower()
    asked = [each for each in every_declared() if any(mark.lower().encode() in sample for mark in each.marks)]
    readers = [(each, DeclaredReader(each)) for each in asked]
    if readers:
        for line in lines(buffer):
            for _, reader in readers:
                reader.feed(line.raw, is_cut=line.is_cut)
    found: list[list[ToolReport]] = []
    for section, reader in readers:
        reader.end()
        found.append(reports_of(reader, section, requested=requested))
    # A text with results of one program may mention another.
    telling = [reports for reports in found if any(each.inference is not None for each in reports)]
    return [each for reports in telling or found[:1] for each in reports]
