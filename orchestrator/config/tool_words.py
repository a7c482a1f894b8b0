"""How files name a tool; what declares programs is only loaded where one is named."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from orchestrator.records.workload import ToolName


def tool_of(word: object) -> object:
    """Return the tool that a word means, of the declared programs too; raises ValueError."""
    if not isinstance(word, str) or word in list(ToolName):
        return word
    from orchestrator.config.declared_programs import tool_word

    return tool_word(word)


#: A tool as a file names it: one of benchfarm's own, a declared program or its file.
ToolWord = Annotated[ToolName, BeforeValidator(tool_of), WithJsonSchema({"type": "string"})]
