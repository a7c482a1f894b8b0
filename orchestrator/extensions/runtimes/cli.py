"""The command ``build programs``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from typer import Argument

from orchestrator.errors import PlanError
from orchestrator.plugins import (
    Column,
    CommandResult,
    Kind,
    Settings,
    Table,
    command,
    tables_result,
    tell,
)
from orchestrator.tables.table import DATA, NESTED

if TYPE_CHECKING:
    from orchestrator.extensions.runtimes.declaration import ProgramSection


@command("build programs", has_table=True)
def declared_programs(
    settings: Settings,
    files: Annotated[
        list[Path] | None, Argument(help="Files to check (default: list those that are known).")
    ] = None,
) -> CommandResult:
    """List or check declared programs of other runtimes.

    Example: benchfarm build programs mine.yaml
    """
    from orchestrator.extensions.runtimes.declaration import declared, declared_names, load_declared

    sections, is_faulty = [load_declared(path) for path in files or ()], False
    for name in () if files else declared_names():
        try:
            sections.append(declared(name))
        except PlanError as error:
            # One faulty file hides none of the others.
            is_faulty = True
            tell(settings.log_format, "declared-program", str(error), level="error")
    table = Table(name="programs", caption="Declared programs", columns=_DECLARED, rows=sections)
    return tables_result(table, exit_code=PlanError.exit_code if is_faulty else 0)


_DECLARED: Final[Sequence[Column[ProgramSection]]] = (
    Column("name", "program", lambda row: row.name),
    Column("program", value=lambda row: row.program, forms=DATA),
    Column(
        "models",
        value=lambda row: row.models,
        shown=lambda section: " ".join(section.models) or "output only",
    ),
    Column("delegates", value=lambda section: [*section.delegates]),
    Column("title", "what it is", lambda row: row.title),
    Column("figures", value=lambda section: list(section.figures), kind=Kind.RECORD, forms=NESTED),
    Column(
        "parameters",
        value=lambda section: {
            name: {key: value for key, value in asdict(item).items() if value is not None}
            for name, item in section.parameters.items()
        },
        kind=Kind.RECORD,
        forms=NESTED,
    ),
)
