"""What a report shows of stored campaigns, and its page."""

from __future__ import annotations

import csv
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.bootstrap import Settings, Workspace
from orchestrator.errors import PlanError, UsageError
from orchestrator.files import write_file
from orchestrator.records.campaign import Campaign
from orchestrator.records.run import RunRecord
from orchestrator.units import parse_percent

if TYPE_CHECKING:
    from orchestrator.report.data import ReportData

#: What takes long to load of what a report, and the end of a campaign, need.
_LOADED_AHEAD = (
    "orchestrator.report.assembly",
    "orchestrator.report.render",
    "orchestrator.report.tables",
)


def report_data(
    workspace: Workspace,
    campaigns: Sequence[Campaign],
    *,
    accuracy: Mapping[str, float] | None = None,
    runs: Iterable[RunRecord] | None = None,
    has_logs: bool = True,
) -> ReportData:
    """Gather what a report shows of some campaigns; ``runs`` are theirs, read once, where somebody
    else looks at them.

    None of them is held as it was read: tens of thousands would take a gigabyte.
    """
    from orchestrator.report.assembly import build_report_data
    from orchestrator.report.lean import lean_runs, newest_runs

    named = [item.campaign_id for item in campaigns]
    shown: Iterable[RunRecord] = lean_runs(
        workspace.store.runs(campaign_ids=named) if runs is None else runs
    )
    note = ""
    if len(set(named)) > 1:
        campaigns, shown, note = newest_runs(campaigns, list(shown))
    data = build_report_data(
        campaigns=campaigns,
        runs=shown,
        outputs=workspace.store.attachments_of if has_logs else None,
        devices=workspace.store.devices(),
        models=workspace.store.models(),
        builds=workspace.store.builds(),
        accuracy={**_manifest_accuracies(workspace.settings), **(accuracy or {})},
    )
    if note:
        return replace(data, headline=replace(data.headline, scope=f"{data.headline.scope} {note}"))
    return data


def _manifest_accuracies(settings: Settings) -> Mapping[str, float]:
    """Return the accuracies that the data folder's models.yaml knows, in percent by sha256.

    A manifest with faults is no reason to have no report after a night; 'benchfarm model list'
    tells the faults.
    """
    from orchestrator.config.model_manifest import MANIFEST_NAME, load_manifest

    try:
        entries = load_manifest(settings.data_folder / MANIFEST_NAME)
    except PlanError:
        return {}
    return {
        sha256: entry.accuracy.percent
        for sha256, entry in entries.items()
        if entry.accuracy is not None
    }


def load_ahead(invocations: int) -> None:
    """Begin to load what a report of so many invocations is made with, while something else is
    waited for.
    """

    def load() -> None:
        # An interval takes several invocations, and numpy.
        for name in ("numpy", *_LOADED_AHEAD) if invocations > 1 else _LOADED_AHEAD:
            # Whoever needs it is told what is wrong with it.
            with suppress(ImportError):
                import_module(name)

    threading.Thread(target=load, name="report").start()


def write_html(data: ReportData, path: Path, *, title: str) -> None:
    """Write the HTML report."""
    from orchestrator.report.render import render_html

    write_file(path, render_html(data, title=title))


def report_title(campaigns: Sequence[Campaign]) -> str:
    """Return a report's title: the names of its campaigns."""
    return " and ".join(dict.fromkeys(campaign.name for campaign in campaigns))


def load_accuracy(path: Path) -> Mapping[str, float]:
    """Return accuracies in percent by model, from a CSV file with the columns model and accuracy.

    Raises UsageError naming file and line when it can't be read.
    """
    found: dict[str, float] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = csv.reader(stream)
            if [name.strip() for name in next(rows, [])][:2] != ["model", "accuracy"]:
                raise UsageError(
                    f"{path}:1: the columns must be model,accuracy", hint="accuracy is in percent"
                )
            for row in filter(None, rows):
                found[row[0].strip()] = _percent(row, f"{path}:{rows.line_num}")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"the accuracies can't be read from {path}: {error}") from error
    return found


def _percent(row: list[str], where: str) -> float:
    try:
        percent = parse_percent(row[1] if len(row) > 1 else "")
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from error
    if not 0 <= percent <= 100:
        raise UsageError(
            f"{where}: there is no accuracy from 0 to 100 in this row",
            hint="write it in percent: 71.8",
        )
    return percent
