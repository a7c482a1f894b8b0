"""What ``--build`` means, the same on every command that starts a program."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.errors import UsageError
from orchestrator.records.workload import ToolName


def builds_of(texts: Sequence[str], tools: Sequence[str]) -> dict[str, str]:
    """Return tool -> name, sha256 or path of its program, from ``TOOL=NAME`` and, where one tool is used, ``NAME``.

    ``tools`` are those that were asked for; none of them means ``native``. Raises UsageError.
    """
    used = list(dict.fromkeys(tools)) or [ToolName.NATIVE.value]
    found: dict[str, str] = {}
    for text in texts:
        tool, equals, build = text.partition("=")
        # A path may hold the sign as well; a tool's name holds no slash.
        if not equals or "/" in tool:
            tool, build = used[0], text
            if len(used) > 1:
                raise UsageError(
                    f"--build {text!r} doesn't say which of {', '.join(used)} it is for",
                    hint=f"write TOOL=NAME: --build {used[0]}={text}",
                )
        if tool not in list(ToolName):
            raise UsageError(f"--build {text!r}: {tool!r} isn't a tool", hint=f"there are {', '.join(ToolName)}")
        if not build:
            raise UsageError(f"--build {text!r} names no program", hint="for example --build native=./benchmark_model")
        if found.setdefault(tool, build) != build:
            raise UsageError(f"--build names two programs for {tool}: {found[tool]} and {build}", hint="keep one")
    if unused := [tool for tool in found if tools and tool not in used]:
        raise UsageError(
            f"--build is for {', '.join(unused)}, and --tool says {', '.join(used)}", hint="let both name the same tool"
        )
    return found
