"""A command: how many runs each phone has."""

from collections import Counter

from orchestrator.plugins import (
    Column,
    CommandResult,
    Kind,
    Settings,
    Table,
    Workspace,
    command,
    shown,
)

COLUMNS = (
    Column("serial", "phone", lambda row: row[0]),
    Column("runs", "runs", lambda row: row[1], Kind.COUNT),
)


@command("acme", has_table=True)
def count_runs(settings: Settings) -> CommandResult:
    """Count the runs of each phone.

    Example: benchfarm acme
    """
    with Workspace(settings, makes_store=False) as workspace:
        counts = Counter(run.case.serial for run in workspace.store.runs())
    rows = sorted(counts.items())
    return shown(Table(name="phones", caption="Runs of each phone", columns=COLUMNS, rows=rows))
