"""A command: how many runs each phone has."""

from collections import Counter
from typing import Annotated

from typer import Option

from orchestrator.plugins import (
    Column,
    CommandResult,
    Kind,
    Settings,
    Table,
    Workspace,
    command,
    tables_result,
)

COLUMNS = (
    Column("serial", "phone", lambda row: row[0]),
    Column("runs", value=lambda row: row[1], kind=Kind.COUNT),
)


@command("acme", has_table=True)
def count_runs(
    settings: Settings,
    serial: Annotated[str, Option("--serial", "-s", help="Only this phone.")] = "",
) -> CommandResult:
    """Count the runs of each phone.

    Example: benchfarm acme -s 0A1B2C3D
    """
    with Workspace(settings, makes_store=False) as workspace:
        counts = Counter(run.case.serial for run in workspace.store.runs())
    rows = sorted(row for row in counts.items() if serial in {"", row[0]})
    return tables_result(
        Table(name="phones", caption="Runs of each phone", columns=COLUMNS, rows=rows)
    )
