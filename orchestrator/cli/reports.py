"""``benchfarm report``."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from orchestrator.app.reporting import evaluated, report_data, report_title, write_html
from orchestrator.app.stored import named_campaigns
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.files import format_of, percent_of
from orchestrator.cli.result import CommandResult
from orchestrator.cli.terminal import columns
from orchestrator.errors import UsageError
from orchestrator.files import write_file
from orchestrator.report.data import ReportData

FORMATS = ("html", "text", "markdown", "csv", "json")


def render(
    settings: Settings,
    prefixes: tuple[str, ...],
    *,
    form: str,
    out: Path | None,
    published: bool,
    pictures: Path | None = None,
    accuracy: Path | None = None,
) -> CommandResult:
    """Render a report of the named campaigns, or of the newest.

    HTML always goes to a file (the data folder's ``reports`` when none is named), the other forms to standard output
    unless a file is named, whose ending says the form where ``form`` is empty. With ``pictures``, each chart is written
    to that folder too.
    """
    form = format_of(form, out, FORMATS, default="html")
    known = load_accuracy(accuracy) if accuracy is not None else {}
    with Farm(settings, makes_store=False) as farm:
        chosen = named_campaigns(farm.store, prefixes or ("",))
        data = report_data(farm, chosen, published=published, accuracy=known)
    named = {"campaigns": [item.campaign_id for item in chosen]}
    drawn = _write_pictures(data, pictures) if pictures is not None else ()
    more = {"pictures": list(drawn)} if pictures is not None else {}
    note = f"\n{len(drawn)} pictures in {pictures}" if pictures is not None else ""
    if form == "html":
        # One report of a submission, called as it is.
        name = prefixes[0] if len(chosen) > 1 and len(prefixes) == 1 else ""
        name = chosen[0].campaign_id if name in {"", "newest", "previous"} else name
        path = out or settings.data_folder / "reports" / f"{name}.html"
        write_html(data, path, title=report_title(chosen), cache_folder=settings.cache_folder)
        return CommandResult(text=f"{path}{note}", data={"path": path, **named, **more})
    text = _rendered(data, form)
    if out is not None:
        write_file(out, text)
        return CommandResult(text=f"{out}{note}", data={"path": out, **named, **more})
    return CommandResult(text=text.rstrip("\n") + note, data={"format": form, "content": text, **more})


def load_accuracy(path: Path) -> Mapping[str, float]:
    """Return accuracies in percent by model, from a CSV file with the columns model and accuracy.

    Or from what LiteRT's evaluation programs printed, in a file that is called as its model, or a folder of such.
    Raises UsageError naming file and line when it can't be read.
    """
    found: dict[str, float] = {}
    try:
        if path.is_dir():
            return {name: share for file in sorted(path.iterdir()) for name, share in load_accuracy(file).items()}
        if (printed := evaluated(path)) is not None:
            return {path.stem: printed}
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = csv.reader(stream)
            if [name.strip() for name in next(rows, [])][:2] != ["model", "accuracy"]:
                raise UsageError(
                    f"{path}:1: the columns must be model,accuracy",
                    hint="accuracy is in percent; or give what run_eval printed, in a file called as its model",
                )
            for row in filter(None, rows):
                found[row[0].strip()] = _percent(row, f"{path}:{rows.line_num}")
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"the accuracies can't be read from {path}: {error}") from error
    return found


def _percent(row: list[str], where: str) -> float:
    percent = percent_of(row[1] if len(row) > 1 else "", where)
    if not 0 <= percent <= 100:
        raise UsageError(f"{where}: there is no accuracy from 0 to 100 in this row", hint="write it in percent: 71.8")
    return percent


def _write_pictures(data: ReportData, folder: Path) -> tuple[Path, ...]:
    from orchestrator.report.pictures import write_pictures

    return write_pictures(data, folder)


def _rendered(data: ReportData, form: str) -> str:
    from orchestrator.report import exports, tables

    if form == "csv":
        return exports.to_csv(data)
    if form == "json":
        return exports.to_json(data)
    if form == "markdown":
        return exports.to_markdown(data)
    return tables.render_text_table(data, columns())
