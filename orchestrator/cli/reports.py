"""``benchfarm report`` and ``results sustained``: stored campaigns as a report, and latency over time."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path

from orchestrator.app.reporting import load_accuracy, report_data, report_title, write_html
from orchestrator.app.stored import named_campaigns
from orchestrator.app.sustained import CaseCurve, sustained_campaign
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.files import format_of
from orchestrator.cli.result import CommandResult, table
from orchestrator.cli.terminal import columns
from orchestrator.files import write_file
from orchestrator.records.campaign import Campaign
from orchestrator.report.data import ReportData
from orchestrator.units import format_change, format_duration, format_latency

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


def sustained_curves(settings: Settings, prefix: str) -> CommandResult:
    """Show the sustained curves of a campaign; raises UsageError when there are none."""
    with Farm(settings, makes_store=False) as farm:
        return _result(*sustained_campaign(farm, prefix))


def _result(campaign: Campaign, found: Sequence[CaseCurve]) -> CommandResult:
    groups: dict[tuple[str, str], list[CaseCurve]] = {}
    for item in found:
        groups.setdefault((item.case.model_name, item.case.configuration), []).append(item)
    parts = [f"campaign {campaign.campaign_id} '{campaign.name}', {format_duration(campaign.terms.sustained_s)} each"]
    for (model, configuration), items in groups.items():
        parts.append(f"{model}, {configuration}\n{_ranking(items)}")
        parts += [f"{item.device} ({item.case.serial}), minute by minute\n{_minutes(item)}" for item in items]
    if not found:
        parts.append("nothing was measured yet")
    return CommandResult(
        text="\n\n".join(parts),
        data={
            "campaign_id": campaign.campaign_id,
            "sustained_s": campaign.terms.sustained_s,
            "curves": [row for items in groups.values() for row in _rows(items)],
        },
    )


def _rank(items: Sequence[CaseCurve], item: CaseCurve, *, steady: bool) -> int:
    def figure(one: CaseCurve) -> float:
        return one.curve.steady_us if steady else one.curve.burst_us

    return 1 + sum(figure(other) < figure(item) for other in items)


def _ranking(items: Sequence[CaseCurve]) -> str:
    rows = []
    for item in sorted(items, key=lambda one: one.curve.steady_us):
        curve = item.curve
        onset = "none seen" if curve.onset_s is None else f"after {format_duration(curve.onset_s)}"
        note = "" if item.is_whole else f"cut after {format_duration(item.attempt.elapsed_s)}"
        rows.append(
            (
                str(_rank(items, item, steady=False)), str(_rank(items, item, steady=True)), item.device,
                format_latency(curve.burst_us), format_latency(curve.steady_us), format_change(curve.slowdown), onset,
                str(curve.count), note,
            )
        )  # fmt: skip
    heads = ("burst rank", "steady rank", "device", "burst", "steady", "change", "slower", "processes", "")
    return table(heads, rows, right=(0, 1, 3, 4, 5, 7))


def _minutes(item: CaseCurve) -> str:
    rows = [
        (
            str(row.minute), format_latency(row.median_us), format_latency(row.min_us), format_latency(row.max_us),
            format_change(row.slowdown), str(row.count),
            f"{item.heat_c[row.minute]:.1f} C" if row.minute in item.heat_c else "",
        )
        for row in item.curve.minutes
    ]  # fmt: skip
    heads = ("minute", "median", "fastest", "slowest", "against burst", "processes", "battery")
    return table(heads, rows, right=(0, 1, 2, 3, 4, 5, 6))


def _rows(items: Sequence[CaseCurve]) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for item in items:
        runs = item.attempt.runs
        rows.append(
            {
                "case_key": item.case.case_key,
                "serial": item.case.serial,
                "device": item.device,
                "is_virtual": any(run.is_virtual for run in runs),
                "model": item.case.model_name,
                "configuration": item.case.configuration,
                "is_whole": item.is_whole,
                "elapsed_s": item.attempt.elapsed_s,
                "quality": item.quality,
                "rank_burst": _rank(items, item, steady=False),
                "rank_steady": _rank(items, item, steady=True),
                "curve": item.curve,
                "battery_heat_c": {str(minute): heat for minute, heat in item.heat_c.items()},
                "process_s": statistics.median(run.duration_s for run in runs),
            }
        )
    return rows
