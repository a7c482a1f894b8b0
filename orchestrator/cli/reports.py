"""``benchfarm report``."""

from __future__ import annotations

import csv
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.files import format_of, write_file
from orchestrator.cli.result import CommandResult
from orchestrator.cli.shares import percent_of
from orchestrator.cli.stored import named_campaigns
from orchestrator.errors import PlanError, UsageError
from orchestrator.records.campaign import Campaign
from orchestrator.records.run import RunRecord
from orchestrator.report.data import ReportData

#: What takes long to load of what a report, and the end of a campaign, need.
_LOADED_AHEAD = (
    "numpy",
    "orchestrator.report.assembly",
    "orchestrator.report.render",
    "orchestrator.report.shared",
    "orchestrator.report.tables",
)
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
        path = out or settings.data_folder / "reports" / f"{chosen[0].campaign_id}.html"
        write_html(data, path, title=report_title(chosen), cache_folder=settings.cache_folder)
        return CommandResult(text=f"{path}{note}", data={"path": path, **named, **more})
    text = _rendered(data, form)
    if out is not None:
        write_file(out, text)
        return CommandResult(text=f"{out}{note}", data={"path": out, **named, **more})
    return CommandResult(text=text.rstrip("\n") + note, data={"format": form, "content": text, **more})


def load_accuracy(path: Path) -> Mapping[str, float]:
    """Return accuracies in percent by model, from a CSV file with the columns model and accuracy.

    Raises UsageError naming file and line when it can't be read.
    """
    found: dict[str, float] = {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            rows = csv.reader(stream)
            if [name.strip() for name in next(rows, [])][:2] != ["model", "accuracy"]:
                raise UsageError(f"{path}:1: the columns must be model,accuracy", hint="accuracy is in percent")
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


def report_data(
    farm: Farm,
    campaigns: list[Campaign],
    *,
    published: bool = False,
    accuracy: Mapping[str, float] | None = None,
    runs: Iterable[RunRecord] | None = None,
) -> ReportData:
    """Gather what a report shows of some campaigns; ``runs`` are theirs, read once, where somebody else looks at them.

    None of them is held as it was read: tens of thousands would take a gigabyte.
    """
    from orchestrator.report.assembly import build_report_data
    from orchestrator.report.lean import lean_runs
    from orchestrator.report.newest import newest_runs
    from orchestrator.tools.failure_codes import FAILURE_CODES

    named = [item.campaign_id for item in campaigns]
    shown: Iterable[RunRecord] = lean_runs(farm.store.runs(campaign_ids=named) if runs is None else runs)
    if len(set(named)) > 1:
        shown = list(shown)
    newest = newest_runs(campaigns, shown if isinstance(shown, list) else ())
    data = build_report_data(
        campaigns=newest.terms_of(campaigns),
        runs=newest.of(shown),
        outputs=farm.store.attachments_of,
        devices=farm.store.devices(),
        models=farm.store.models(),
        builds=farm.store.builds(),
        published=published,
        accuracy={**_manifest_accuracies(farm.settings), **(accuracy or {})},
        failure_steps={code: failure.next_step for code, failure in FAILURE_CODES.items()},
    )
    return newest.told(data)


def _manifest_accuracies(settings: Settings) -> Mapping[str, float]:
    """Return the accuracies that the data folder's models.yaml knows, in percent by sha256.

    A manifest with faults is no reason to have no report after a night; 'benchfarm model list' tells the faults.
    """
    from orchestrator.config.model_manifest import MANIFEST_NAME, load_manifest

    try:
        entries = load_manifest(settings.data_folder / MANIFEST_NAME)
    except PlanError:
        return {}
    return {sha256: entry.accuracy.percent for sha256, entry in entries.items() if entry.accuracy is not None}


def load_ahead() -> None:
    """Begin to load what a report is made with, while something else is waited for."""

    def load() -> None:
        for name in _LOADED_AHEAD:
            # Whoever needs it is told what is wrong with it.
            with suppress(ImportError):
                import_module(name)

    threading.Thread(target=load, name="report").start()


def write_html(data: ReportData, path: Path, *, title: str, cache_folder: Path | None = None) -> None:
    """Write the HTML report; what it takes long to make of it is kept in ``cache_folder``."""
    from orchestrator.report.render import render_html

    write_file(path, render_html(data, title=title, cache_folder=cache_folder))


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
