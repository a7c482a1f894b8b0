"""What a plan file says of its time: the window of the day, and what goes first when the time is short."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from orchestrator.config.faults import Section
from orchestrator.config.fields import OneOrMany, Text
from orchestrator.records.night import ImportanceRule, parse_window
from orchestrator.records.workload import DelegateName, ToolName


def window_text(text: str) -> str:
    """Return a window's text when it means one; raises ValueError."""
    parse_window(text)
    return text


class ImportanceSection(Section):
    """How much some cases matter when the time doesn't reach for all."""

    value: Annotated[float, Field(ge=0, le=1_000_000)]
    models: OneOrMany[tuple[Text, ...]] = ()
    delegates: OneOrMany[tuple[DelegateName, ...]] = ()
    tools: OneOrMany[tuple[ToolName, ...]] = ()
    threads: OneOrMany[tuple[Annotated[int, Field(ge=1, le=128)], ...]] = ()
    serials: OneOrMany[tuple[Text, ...]] = ()

    def to_rule(self) -> ImportanceRule:
        """Return the rule that is meant."""
        return ImportanceRule(
            value=self.value,
            models=tuple(self.models),
            delegates=tuple(str(name) for name in self.delegates),
            tools=tuple(str(name) for name in self.tools),
            threads=tuple(self.threads),
            serials=tuple(self.serials),
        )
