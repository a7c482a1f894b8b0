"""Runs of files, which plugins read (``benchfarm.importers``), stored and judged as benchfarm's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.preparing import new_campaign
from orchestrator.app.requests import ImportRequest
from orchestrator.app.stored import report_data, write_report
from orchestrator.engine.reread import ImportBatch, ImportResult, import_runs
from orchestrator.records import frozen
from orchestrator.records.campaign import Origin

if TYPE_CHECKING:
    from orchestrator.app.workspace import Workspace
    from orchestrator.report.data import ReportData


@frozen
class Imported:
    """The outcome of an import."""

    result: ImportResult
    #: Notes for people.
    notes: Sequence[str] = ()
    #: The cases of new runs, and the path of their report; None without new runs.
    data: ReportData | None = None
    report: Path | None = None
    #: How many of the source's jobs were left out.
    left_out: int = 0

    @property
    def without_result(self) -> int:
        """How many of the new runs have no result."""
        return sum(run.is_without_result for run in self.result.runs)


def store_import(
    workspace: Workspace,
    batch: ImportBatch,
    *,
    request: ImportRequest,
    origin: Origin | None = None,
    notes: Sequence[str] = (),
) -> Imported:
    """Store a batch as a campaign, and write the report of what is new, by default among the
    campaigns' own reports.
    """
    campaign = new_campaign(workspace, request.name)
    campaign = replace(campaign, terms=replace(campaign.terms, origin=origin))
    result = import_runs(workspace.store, workspace.tools, campaign, batch, clock=workspace.clock)
    done = Imported(result=result, notes=notes, left_out=len(batch.faults))
    if result.campaign is None:
        return done
    data = report_data(workspace, [result.campaign])
    path = write_report(workspace.settings, data, [result.campaign], request.out)
    return replace(done, data=data, report=path)
