"""Build files: where benchmark programs come from and what they must hold
(``docs/reference/models-and-builds.md``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.config.yaml_file import load_each, read_named
from orchestrator.errors import PlanError, UsageError, nearest
from orchestrator.plugins import plugins, program_sources
from orchestrator.records.build_spec import BuildSpec
from orchestrator.records.case import ToolName


def load_builds(folders: Sequence[Path]) -> tuple[BuildSpec, ...]:
    """Read all build files (``*.yaml``) of some folders, by name; of two with one name the first
    folder's is taken.

    Raises:
        PlanError: with one line for each fault of all files.
    """
    problems: list[str] = []
    found = load_each(folders, load_build, problems)
    if problems:
        raise PlanError("the build files have faults:", faults=problems)
    return tuple(spec for path in sorted(found, key=lambda path: path.stem) for spec in found[path])


def load_build(path: Path) -> tuple[BuildSpec, ...]:
    """Read one build file: a BuildSpec for each of its ABIs.

    Raises PlanError with one line for each fault.
    """
    file = read_named(path, BuildSpec, context={"program": tool_of})
    return tuple(replace(file, abi=abi) for abi in file.abis)


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
