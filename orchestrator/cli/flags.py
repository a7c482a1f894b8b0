"""``benchfarm flags``: what each flag of a benchmark program is, what it does, and what surprises about it."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Final

from orchestrator.app.flags import FlagSource, explained_flags
from orchestrator.bootstrap import Settings
from orchestrator.cli.result import CommandResult, table
from orchestrator.records.build_spec import FlagSpec
from orchestrator.report.escapes import one_line

_WIDTH: Final = 100
#: How builds are called that have a flag, where "builds with the delegate ..." isn't it.
_BUILDS: Final[Mapping[str, str]] = {"all": "all builds", "android": "Android builds", "ios": "builds for iOS"}


def explain(settings: Settings, name: str, *, build: str, tool: str, serial: str) -> CommandResult:
    """List the flags of a program, or explain one; raises as the use case."""
    found = explained_flags(settings, name, build=build, tool=tool, serial=serial)
    source = found.source
    data = {
        "tool": found.tool.value,
        "build": source.build.name if source.build else None,
        "build_sha256": source.build.sha256 if source.build else None,
        "learned": source.schema.is_learned,
        "flags": found.rows,
    }
    text = _one(found.shown[0], found.rows[0], source) if found.is_one else _list(found.shown, source)
    return CommandResult(text=text, data=data)


def _list(specs: Sequence[FlagSpec], source: FlagSource) -> str:
    rows = [(spec.name, spec.kind, spec.default, spec.build, spec.meaning or spec.help) for spec in specs]
    return f"{one_line(source.title)}\n\n" + table(("flag", "type", "default", "builds", "what it does"), rows)


def _one(spec: FlagSpec, row: Mapping[str, object], source: FlagSource) -> str:
    facts = [
        ("type", spec.kind + (f": one of {', '.join(spec.choices)}" if spec.choices else "")),
        ("default", spec.default or "empty"),
        ("had by", _BUILDS.get(spec.build, f"builds with the delegate {spec.build}")),
        ("needs", f"--{spec.needs}, without which it does nothing" if spec.needs else ""),
        ("in plans", f"can't be set as a flag: {row['set_by']}" if row["set_by"] else ""),
        ("trap", str(row["trap"])),
        ("its help", spec.help),
    ]
    lines = [f"--{spec.name}={spec.default}", one_line(source.title), ""]
    if spec.meaning:
        lines += [*textwrap.wrap(spec.meaning[0].upper() + spec.meaning[1:] + ".", _WIDTH), ""]
    for key, value in facts:
        if value:
            lines += textwrap.wrap(f"{key:<10}{one_line(value)}", _WIDTH, subsequent_indent=" " * 10)
    return "\n".join(lines)
