"""``benchfarm export`` and ``import``: results for other programs and labs, and from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.app import exporting
from orchestrator.app.exporting import ExportRequest
from orchestrator.app.importing import Imported, ImportRequest
from orchestrator.bootstrap import Settings
from orchestrator.cli.frame import command
from orchestrator.cli.result import ENDINGS, CommandResult, format_of
from orchestrator.errors import UsageError
from orchestrator.plugins import Exporter, Importer, every, plugins
from orchestrator.units import counted


@command("export")
def export(settings: Settings, request: ExportRequest) -> CommandResult:
    """Write results as a bundle, CSV, Parquet, JSON and more.

    Example: benchfarm export newest --format csv
    """
    endings = ENDINGS
    if request.out is not None and request.out.suffix and request.out.suffix.lower() not in ENDINGS:
        known = every("exporters", Exporter)
        endings = ENDINGS | {
            item.path.suffix: (name,) for name, item in known.items() if not item.is_folder
        }
    form = format_of(
        request.form, request.out, plugins("exporters"), default="bundle", endings=endings
    )
    files, done = exporting.export(settings, replace(request, form=form))
    text = str(files[0]) if len(files) == 1 else f"{form}: {len(files)} files"
    data = {"format": form, "files": [str(path) for path in files], **done.data}
    return CommandResult(text=f"{text}: {done.text}" if done.text else text, data=data)


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
