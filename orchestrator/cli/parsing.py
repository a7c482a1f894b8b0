"""``benchfarm parse``."""

from __future__ import annotations

import sys
from pathlib import Path

from orchestrator.cli.result import CommandResult, one_line
from orchestrator.errors import OutputParseError, UsageError


def parse_files(files: tuple[str, ...]) -> CommandResult:
    """Read benchmark output; raises UsageError for an unreadable file, OutputParseError for one without any.

    A single file with a single run gives one JSON object, everything else a list.
    """
    from orchestrator.tools.output import describe, parse_text, to_public

    lines: list[str] = []
    found: list[dict[str, object]] = []
    for file in files:
        try:
            reports = parse_text(_read(file))
        except OutputParseError as error:
            raise OutputParseError(f"{'standard input' if file == '-' else file}: {error}", hint=error.hint) from error
        for number, report in enumerate(reports, start=1):
            title = f"{file}, run {number} of {len(reports)}" if len(reports) > 1 else file
            lines += [title, *(f"  {one_line(line)}" for line in describe(report)), ""]
            found.append({"file": file, **to_public(report)} if len(files) > 1 else to_public(report))
    return CommandResult(text="\n".join(lines).rstrip(), data=found[0] if len(found) == 1 else found)


def _read(file: str) -> bytes:
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from error
