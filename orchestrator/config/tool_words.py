"""How files and commands name a tool; what declares programs is only asked where one may be named."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, WithJsonSchema

from orchestrator.errors import UsageError, nearest
from orchestrator.plugins import plugins, program_sources
from orchestrator.records.case import ToolName


def known_tools() -> list[str]:
    """Return what a tool may be called."""
    declared = (name for source in program_sources() for name in source.names())
    return [*dict.fromkeys([*ToolName, *plugins("programs"), *declared])]


def tool_of(word: object) -> object:
    """Return the tool that a word means: one of benchfarm's own, a plugin's, a declared program by
    name or by its file.

    Raises ValueError for one that isn't known.
    """
    if not isinstance(word, str) or word in list(ToolName):
        return word
    if word in plugins("programs"):
        return ToolName(word)
    for source in program_sources():
        if (tool := source.named(word)) is not None:
            return tool
    known = known_tools()
    hint = nearest(word, known)
    raise ValueError(f"{word!r} isn't one of {', '.join(known)}" + (f"; {hint}" if hint else ""))


def tool_named(word: str) -> ToolName:
    """Return the tool that a command names; raises UsageError for one that isn't known."""
    try:
        found = tool_of(word)
        return found if isinstance(found, ToolName) else ToolName(word)
    except ValueError as error:
        raise UsageError(str(error)) from None


#: A tool as a file names it: one of benchfarm's own, a declared program or its file.
ToolWord = Annotated[ToolName, BeforeValidator(tool_of), WithJsonSchema({"type": "string"})]
