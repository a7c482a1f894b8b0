"""``benchfarm report``, ``advise``, ``export`` and ``import``: reports of stored campaigns, and
results for other programs and labs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

from orchestrator.app.exporting import EXPORTERS, FORMATS, ExportRequest
from orchestrator.app.plugin_kinds import Exporter
from orchestrator.app.requests import ImportRequest
from orchestrator.cli.commands import (
    Campaigns,
    HtmlOut,
    Legend,
    Out,
    command,
    format_option,
    workspace_of,
)
from orchestrator.cli.output import ENDINGS, CommandResult, format_of, joined, room
from orchestrator.errors import UsageError
from orchestrator.files import write_file
from orchestrator.installation import every
from orchestrator.records import frozen
from orchestrator.settings import Settings
from orchestrator.tables.table import Form
from orchestrator.units import counted

if TYPE_CHECKING:
    from orchestrator.app.importing import Imported
    from orchestrator.report.data import ReportData

_FORMATS: Final = (Form.HTML, Form.TEXT, Form.MARKDOWN, Form.CSV, Form.JSON)


@frozen
class Importer:
    """A kind of results that ``benchfarm import`` reads."""

    #: Its name for people, with the article: ``a bundle``.
    title: str
    #: Whether an existing file or folder is of this kind.
    takes: Callable[[Path], bool]
    #: Stores the contents of files of this kind. Raises UsageError kinds, with nothing stored.
    take_in: Callable[[Settings, ImportRequest], CommandResult]
    #: Whether all others are tried before it.
    is_last: bool = False


@command("report")
def report(
    settings: Settings,
    campaigns: Campaigns = None,
    out: Out = None,
    form: Annotated[str, format_option(_FORMATS, Form.HTML)] = "",
    *,
    legend: Legend = False,
) -> CommandResult:
    """Render a report of one or more campaigns.

    Example: benchfarm report newest --out report.html
    """
    from orchestrator.app.stored import write_report
    from orchestrator.report import exports, tables

    # HTML always goes to a file: the data folder's reports when none is named.
    form = format_of(form, out, _FORMATS, default=Form.HTML)
    if legend and form != "text":
        raise UsageError(
            f"--legend explains a table of text, and this is {form}", hint="add --format text"
        )
    chosen, data = _data(settings, campaigns, has_logs=form == "html")
    facts = {"campaigns": [item.campaign_id for item in chosen]}
    if form == "html":
        # A submission has one report, with the submission's name.
        name = campaigns[0] if campaigns and len(chosen) > 1 == len(campaigns) else ""
        name = "" if name in {"newest", "previous"} else name
        path = write_report(settings, data, chosen, out, name)
        return CommandResult(text=str(path), data={"path": path, **facts})
    looks = list[str]()
    match form:
        case "text":
            lines = tables.text_lines(data, room() if out is None else None, legend=legend)
            # Commands that measure say it where they say what else is lacking.
            if data.headline.no_time:
                lines += [("", ""), (data.headline.no_time, "doubt")]
            text, looks = joined([*lines, ("", "")])
        case "csv":
            text = exports.to_csv(data)
        case "json":
            text = exports.to_json(data)
        case _:
            text = exports.to_markdown(data)
    if out is not None:
        write_file(out, text)
        return CommandResult(text=str(out), data={"path": out, **facts})
    return CommandResult(
        text=text.rstrip("\n"),
        data={"format": form, "content": text},
        looks=looks,
    )


def _data(
    settings: Settings, campaigns: Sequence[str] | None, *, has_logs: bool = False
) -> tuple[list[Any], ReportData]:
    """Return the named campaigns, by default the newest, and the data of their report."""
    from orchestrator.app.stored import find_campaigns, report_data

    with workspace_of(settings) as workspace:
        chosen = find_campaigns(workspace.store, *(campaigns or [""]))
        return chosen, report_data(workspace, chosen, has_logs=has_logs)


@command("advise")
def advise(settings: Settings, campaigns: Campaigns = None) -> CommandResult:
    """Apply six rules of good practice to stored results.

    Example: benchfarm advise newest
    """
    from orchestrator.report.advice import collect_advice, format_text

    chosen, data = _data(settings, campaigns)
    advice = collect_advice(data)
    return CommandResult(
        text=format_text(advice),
        data={"campaigns": [item.campaign_id for item in chosen], "advice": advice},
    )


@command("export")
def export(
    settings: Settings, campaigns: Campaigns = None, *, request: ExportRequest
) -> CommandResult:
    """Write results as a bundle, CSV, Parquet, JSON and more.

    Example: benchfarm export newest --format csv
    """
    from orchestrator.app import exporting

    out = request.out
    endings = _endings(out.suffix.lower()) if out is not None else ENDINGS
    form = format_of(request.form, out, FORMATS, default="bundle", endings=endings)
    request = replace(request, campaigns=campaigns or (), form=form)
    path, done = exporting.export(settings, request)
    data = {"format": request.form, "files": [str(path)], **(done.data or {})}
    return CommandResult(text=f"{path}: {done.text}" if done.text else str(path), data=data)


def _endings(suffix: str) -> dict[str, tuple[str, ...]]:
    """Return ``ENDINGS`` with the exporters of each ending, the usual one first.

    Raises PluginError for a broken exporter where the requested ending may be its own.
    """
    endings = dict(ENDINGS)
    exporters = every("exporters", Exporter, skips_broken=not suffix or suffix in ENDINGS)
    for name, item in {**exporters, **EXPORTERS}.items():
        ending = item.path.suffix.lower()
        if ending and name not in endings.get(ending, ()):
            endings[ending] = (*endings.get(ending, ()), name)
    return endings


@command("import")
def import_results(
    settings: Settings, request: ImportRequest, out: HtmlOut = None
) -> CommandResult:
    """Import a bundle, or results of other labs and apps.

    Example: benchfarm import benchfarm-bundle.zip
    """
    files = request.files
    if missing := next((path for path in files if not path.exists()), None):
        raise UsageError(f"{missing}: there is no such file")
    importers = sorted(every("importers", Importer).values(), key=lambda item: item.is_last)
    first, *further = [
        next((item for item in importers if item.takes(path)), None) for path in files
    ]
    if first is None or any(item is not first for item in further):
        paths = " and ".join(map(str, files))
        kinds = ", ".join(item.title for item in importers)
        raise UsageError(
            f"{paths}: can't be imported", hint=f"name files of one of these kinds: {kinds}"
        )
    return first.take_in(settings, replace(request, out=out))


def import_result(imports: Sequence[Imported]) -> CommandResult:
    """Return the result of stored imports, with the table and the report of new runs."""
    from orchestrator.report.tables import render_text_table

    lines: list[str] = []
    for done in imports:
        duplicates = f", {done.result.known} were there already" if done.result.known else ""
        lines += ["", f"{counted(len(done.result.runs), 'run')} imported{duplicates}", *done.notes]
        if done.data is not None:
            lines += [render_text_table(done.data, room()).rstrip("\n"), f"report: {done.report}"]
    data = [
        {
            "campaign_id": done.result.campaign and done.result.campaign.campaign_id,
            "imported": len(done.result.runs),
            "known": done.result.known,
            "notes": list(done.notes),
            "report": done.report,
            "runs": done.result.runs,
            "without_result": done.without_result,
        }
        for done in imports
    ]
    return CommandResult(
        text="\n".join(lines[1:]),
        data=data[0] if len(data) == 1 else {"imports": data},
        exit_code=int(any(done.without_result or done.left_out for done in imports)),
    )
