"""``benchfarm report``."""

from __future__ import annotations

from pathlib import Path

from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.files import write_file
from orchestrator.cli.result import CommandResult
from orchestrator.cli.stored import find_campaign
from orchestrator.errors import UsageError
from orchestrator.records.campaign import Campaign
from orchestrator.report.data import ReportData

FORMATS = ("html", "text", "markdown", "csv", "json")


def render(
    settings: Settings, prefixes: tuple[str, ...], *, form: str, out: Path | None, published: bool
) -> CommandResult:
    """Render a report of the named campaigns, or of the newest.

    HTML always goes to a file (the data folder's ``reports`` when none is named), the other forms to standard output
    unless a file is named.
    """
    if form not in FORMATS:
        raise UsageError(f"there is no report format {form!r}", hint=f"choose one of {', '.join(FORMATS)}")
    with Farm(settings) as farm:
        chosen = [find_campaign(farm.store, prefix) for prefix in prefixes or ("",)]
        data = report_data(farm, chosen, published=published)
    if form == "html":
        path = out or settings.data_folder / "reports" / f"{chosen[0].campaign_id}.html"
        write_html(data, path, title=report_title(chosen))
        return CommandResult(text=str(path), data={"path": path, "campaigns": [item.campaign_id for item in chosen]})
    text = _rendered(data, form)
    if out is not None:
        write_file(out, text)
        return CommandResult(text=str(out), data={"path": out, "campaigns": [item.campaign_id for item in chosen]})
    return CommandResult(text=text.rstrip("\n"), data={"format": form, "content": text})


def report_data(farm: Farm, campaigns: list[Campaign], *, published: bool = False) -> ReportData:
    """Gather what a report shows of some campaigns."""
    from orchestrator.report.assembly import build_report_data
    from orchestrator.tools.failure_codes import FAILURE_CODES

    return build_report_data(
        campaigns=campaigns,
        runs=farm.store.runs(campaign_ids=[item.campaign_id for item in campaigns], with_attachments=True),
        devices=farm.store.devices(),
        models=farm.store.models(),
        builds=farm.store.builds(),
        published=published,
        failure_steps={code: failure.next_step for code, failure in FAILURE_CODES.items()},
    )


def write_html(data: ReportData, path: Path, *, title: str) -> None:
    """Write the HTML report."""
    from orchestrator.report.render import render_html

    write_file(path, render_html(data, title=title))


def report_title(campaigns: list[Campaign]) -> str:
    """Return a report's title: the names of its campaigns."""
    return " and ".join(dict.fromkeys(campaign.name for campaign in campaigns))


def _rendered(data: ReportData, form: str) -> str:
    from orchestrator.report import exports, tables

    if form == "csv":
        return exports.to_csv(data)
    if form == "json":
        return exports.to_json(data)
    if form == "markdown":
        return exports.to_markdown(data)
    return tables.render_text_table(data)
