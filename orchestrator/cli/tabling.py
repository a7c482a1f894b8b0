"""``benchfarm table``: its formats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.tabling import TableRequest, build
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.files import format_of
from orchestrator.cli.result import CommandResult
from orchestrator.files import write_file

if TYPE_CHECKING:
    from orchestrator.report.guide_table import GuideTable

FORMATS = ("text", "markdown", "html", "csv", "latex", "json")


def render(settings: Settings, request: TableRequest, *, form: str, out: Path | None, title: str) -> CommandResult:
    """Render the table; HTML, too, goes to standard output unless a file is named."""
    form = format_of(form, out, FORMATS, default="text")
    with Farm(settings, makes_store=False) as farm:
        table = build(farm, request)
    from orchestrator.report.guide_formats import to_document

    text = _formatted(table, form, title)
    if out is not None:
        write_file(out, text)
        return CommandResult(text=str(out), data={"path": out, **to_document(table)})
    return CommandResult(text=text.rstrip("\n"), data=to_document(table))


def _formatted(table: GuideTable, form: str, title: str) -> str:
    from orchestrator.report import guide_formats

    if form == "html":
        from orchestrator.report.render import render_guide_html

        return render_guide_html(table, title=title)
    if form == "json":
        from orchestrator.cli.result import to_json

        return to_json(guide_formats.to_document(table))
    formats = {
        "text": guide_formats.format_text,
        "markdown": guide_formats.format_markdown,
        "csv": guide_formats.format_csv,
        "latex": guide_formats.format_latex,
    }
    return formats[form](table)
