"""``benchfarm report``, ``advise``, ``export`` and ``import``: what stored
campaigns say, and results for other programs and labs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from orchestrator.app import exporting
from orchestrator.app.exporting import ExportRequest
from orchestrator.app.importing import Imported, ImportRequest
from orchestrator.app.options import Campaigns, Out, Texts, opt
from orchestrator.app.reporting import (
    report_data,
    report_title,
    write_html,
)
from orchestrator.app.stored import named_campaigns
from orchestrator.bootstrap import Settings, Workspace
from orchestrator.cli.frame import Legend, command
from orchestrator.cli.result import ENDINGS, CommandResult, format_of
from orchestrator.cli.terminal import columns
from orchestrator.errors import UsageError
from orchestrator.files import write_file
from orchestrator.plugins import Exporter, Importer, every, plugins
from orchestrator.report.data import ReportData
from orchestrator.units import counted

REPORT_FORMATS = ("html", "text", "markdown", "csv", "json")


@command("report")
def report(
    settings: Settings,
    campaigns: Campaigns = (),
    out: Out = None,
    form: Annotated[
        str, opt("--format -f", "html, text, markdown, csv or json (default: by --out, else html).")
    ] = "",
    *,
    legend: Legend = False,
) -> CommandResult:
    """Render a report of one or more campaigns.

    Example: benchfarm report newest --out report.html
    """
    from orchestrator.report import tables

    # HTML always goes to a file: the data folder's reports when none is named.
    form = format_of(form, out, REPORT_FORMATS, default="html")
    chosen, data = _data(settings, campaigns)
    named = {"campaigns": [item.campaign_id for item in chosen]}
    if form == "html":
        # One report of a submission, called as it is.
        name = campaigns[0] if len(chosen) > 1 and len(campaigns) == 1 else ""
        name = chosen[0].campaign_id if name in {"", "newest", "previous"} else name
        path = out or settings.data_folder / "reports" / f"{name}.html"
        write_html(data, path, title=report_title(chosen))
        return CommandResult(text=str(path), data={"path": path, **named})
    lines = tables.text_lines(data, columns(), legend=legend) if form == "text" else []
    text = "\n".join(line for line, _ in lines) + "\n" if lines else _report_text(data, form)
    if out is not None:
        write_file(out, text)
        return CommandResult(text=str(out), data={"path": out, **named})
    return CommandResult(
        text=text.rstrip("\n"),
        data={"format": form, "content": text},
        looks=[look for _, look in lines],
    )


def _data(settings: Settings, campaigns: Texts) -> tuple[list[Any], ReportData]:
    """Return the named campaigns, or the newest one, and what a report shows of them."""
    with Workspace(settings, makes_store=False) as workspace:
        chosen = named_campaigns(workspace.store, campaigns or ("",))
        return chosen, report_data(workspace, chosen)


def _report_text(data: ReportData, form: str) -> str:
    from orchestrator.report import exports

    renderers: Mapping[str, Callable[[ReportData], str]] = {
        "csv": exports.to_csv,
        "json": exports.to_json,
        "markdown": exports.to_markdown,
    }
    return renderers[form](data)


@command("advise")
def advise(settings: Settings, campaigns: Campaigns = ()) -> CommandResult:
    """Apply six rules of good practice to stored results.

    Example: benchfarm advise newest
    """
    from orchestrator.report.advice import advice_of, format_text

    chosen, data = _data(settings, campaigns)
    advice = advice_of(data)
    return CommandResult(
        text=format_text(advice),
        data={"campaigns": [item.campaign_id for item in chosen], "advice": advice},
    )


@command("export")
def export(settings: Settings, request: ExportRequest) -> CommandResult:
    """Write results as a bundle, CSV, Parquet, JSON and more.

    Example: benchfarm export newest --format csv
    """
    endings = ENDINGS
    if request.out is not None and request.out.suffix and request.out.suffix.lower() not in ENDINGS:
        known = every("exporters", Exporter)
        endings = ENDINGS | {item.path.suffix: (name,) for name, item in known.items()}
    form = format_of(
        request.form, request.out, plugins("exporters"), default="bundle", endings=endings
    )
    path, done = exporting.export(settings, replace(request, form=form))
    data = {"format": form, "files": [str(path)], **done.data}
    return CommandResult(text=f"{path}: {done.text}" if done.text else str(path), data=data)


@command("import")
def import_results(settings: Settings, request: ImportRequest) -> CommandResult:
    """Import a bundle, or results of other labs and apps.

    Example: benchfarm import benchfarm-bundle.zip
    """
    format_of("", request.out, ("html",), default="html")
    if missing := next((path for path in request.files if not path.exists()), None):
        raise UsageError(f"{missing}: there is no such file")
    importers = sorted(every("importers", Importer).values(), key=lambda item: item.is_last)
    first, *others = [
        next((item for item in importers if item.takes(path)), None) for path in request.files
    ]
    if first is None or any(item is not first for item in others):
        files = " and ".join(map(str, request.files))
        kinds = ", ".join(item.title for item in importers)
        raise UsageError(
            f"{files}: can't be imported", hint=f"name files of one of these kinds: {kinds}"
        )
    return first.take_in(settings, request)


def import_result(imports: Sequence[Imported]) -> CommandResult:
    """Return what an importer stored, with the table and the report of what is new."""
    done = [_told(item) for item in imports]
    if len(done) == 1:
        return done[0]
    return CommandResult(
        text="\n\n".join(one.text for one in done),
        data={"imports": [one.data for one in done]},
        exit_code=max(one.exit_code for one in done),
    )


def _told(done: Imported) -> CommandResult:
    """Return what an import did, with the table and the report of what is new."""
    from orchestrator.report.tables import render_text_table

    result = done.result
    lines = [render_text_table(done.shown).rstrip("\n"), ""] if done.shown is not None else []
    known = f", {result.known} were there already" if result.known else ""
    lines += [f"{counted(len(result.runs), 'run')} imported{known}", *done.notes]
    data: dict[str, object] = {"campaign_id": None, "imported": len(result.runs)}
    data |= {"known": result.known, "notes": list(done.notes)}
    if result.campaign is not None:
        lines.append(f"report: {done.report}")
        data |= {
            "campaign_id": result.campaign.campaign_id,
            "report": done.report,
            "runs": result.runs,
        }
        data |= {"without_result": done.without_result}
    return CommandResult(
        text="\n".join(lines), data=data, exit_code=int(bool(done.without_result or done.left_out))
    )
