"""The command ``build programs``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

from orchestrator.app.options import Paths, arg
from orchestrator.cli.output import tell
from orchestrator.errors import PlanError
from orchestrator.plugins import Column, CommandResult, Kind, Settings, Table, command, shown
from orchestrator.tables.table import DATA, NESTED

if TYPE_CHECKING:
    from orchestrator.extensions.runtimes.declaration import ProgramSection


@command("build programs", has_table=True)
def declared_programs(
    settings: Settings,
    files: Annotated[Paths, arg("Files to check (default: list those that are known).")] = (),
) -> CommandResult:
    """List or check declared programs of other runtimes.

    Example: benchfarm build programs mine.yaml
    """
    from orchestrator.extensions.runtimes.declaration import declared, declared_names, load_declared

    found, is_faulty = [load_declared(path) for path in files], False
    for name in () if files else declared_names():
        try:
            found.append(declared(name))
        except PlanError as error:
            # One faulty file hides none of the others.
            is_faulty = True
            tell(settings.log_format, "declared-program", str(error), level="error")
    table = Table(name="programs", caption="Declared programs", columns=_DECLARED, rows=found)
    return shown(table, exit_code=PlanError.exit_code if is_faulty else 0)


_DECLARED: Final[Sequence[Column[ProgramSection]]] = (
    Column("name", "program", lambda own: own.name),
    Column("program", "", lambda own: own.program, forms=DATA),
    Column(
        "models",
        "models",
        lambda own: own.models,
        shown=lambda own: " ".join(own.models) or "output only",
    ),
    Column("delegates", "delegates", lambda own: [*own.delegates]),
    Column("title", "what it is", lambda own: own.title),
    Column("figures", "", lambda own: list(own.figures), Kind.RECORD, forms=NESTED),
    Column(
        "parameters",
        "",
        lambda own: {
            name: item.model_dump(exclude_none=True) for name, item in own.parameters.items()
        },
        Kind.RECORD,
        forms=NESTED,
    ),
)
