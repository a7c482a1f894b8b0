"""``benchfarm report``, ``advise`` and ``results sustained``: what stored campaigns say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from orchestrator.app.options import Campaigns, Out, Texts, arg, opt
from orchestrator.app.reporting import (
    load_accuracy,
    report_data,
    report_title,
    sustained_campaign,
    write_html,
)
from orchestrator.app.stored import named_campaigns
from orchestrator.bootstrap import Settings, Workspace
from orchestrator.cli.frame import Accuracy, command
from orchestrator.cli.result import CommandResult, format_of, table
from orchestrator.cli.terminal import columns
from orchestrator.files import write_file
from orchestrator.report.data import ReportData
from orchestrator.tables.passes import SustainedRow
from orchestrator.tables.rows import ResultRow
from orchestrator.units import format_change, format_duration, format_latency

#: A case with one of its attempts.
_Curve = tuple[ResultRow, SustainedRow]
REPORT_FORMATS = ("html", "text", "markdown", "csv", "json")


@command("report")
def report(
    settings: Settings,
    campaigns: Campaigns = (),
    out: Out = None,
    form: Annotated[
        str, opt("--format -f", "html, text, markdown, csv or json (default: by --out, else html).")
    ] = "",
    accuracy: Accuracy = None,
) -> CommandResult:
    """Render a report of one or more campaigns.

    Example: benchfarm report newest --out report.html
    """
    # HTML always goes to a file: the data folder's reports when none is named.
    form = format_of(form, out, REPORT_FORMATS, default="html")
    chosen, data = _data(settings, campaigns, accuracy)
    named = {"campaigns": [item.campaign_id for item in chosen]}
    if form == "html":
        # One report of a submission, called as it is.
        name = campaigns[0] if len(chosen) > 1 and len(campaigns) == 1 else ""
        name = chosen[0].campaign_id if name in {"", "newest", "previous"} else name
        path = out or settings.data_folder / "reports" / f"{name}.html"
        write_html(data, path, title=report_title(chosen), cache_folder=settings.cache_folder)
        return CommandResult(text=str(path), data={"path": path, **named})
    text = _report_text(data, form)
    if out is not None:
        write_file(out, text)
        return CommandResult(text=str(out), data={"path": out, **named})
    return CommandResult(text=text.rstrip("\n"), data={"format": form, "content": text})


def _data(
    settings: Settings, campaigns: Texts, accuracy: Path | None
) -> tuple[list[Any], ReportData]:
    """Return the named campaigns, or the newest one, and what a report shows of them."""
    known = load_accuracy(accuracy) if accuracy is not None else {}
    with Workspace(settings, makes_store=False) as workspace:
        chosen = named_campaigns(workspace.store, campaigns or ("",))
        return chosen, report_data(workspace, chosen, accuracy=known)


def _report_text(data: ReportData, form: str) -> str:
    from orchestrator.report import exports, tables

    renderers: Mapping[str, Callable[[ReportData], str]] = {
        "csv": exports.to_csv,
        "json": exports.to_json,
        "markdown": exports.to_markdown,
        "text": lambda data: tables.render_text_table(data, columns()),
    }
    return renderers[form](data)


@command("advise")
def advise(settings: Settings, campaigns: Campaigns = ()) -> CommandResult:
    """Apply six rules of good practice to stored results.

    Example: benchfarm advise newest
    """
    from orchestrator.report.advice import advice_of, format_text

    chosen, data = _data(settings, campaigns, None)
    advice = advice_of(data)
    return CommandResult(
        text=format_text(advice),
        data={"campaigns": [item.campaign_id for item in chosen], "advice": advice},
    )


@command("results sustained")
def sustained_curves(
    settings: Settings,
    campaign: Annotated[
        str, arg("Campaign id or its beginning (default: the newest with a sustained measurement).")
    ] = "",
) -> CommandResult:
    """Show latency over time, and when throttling began.

    Example: benchfarm results sustained
    """
    with Workspace(settings, makes_store=False) as workspace:
        measured = sustained_campaign(workspace, campaign)
        data = report_data(workspace, [measured])
    groups: dict[tuple[str, str], list[_Curve]] = {}
    for row in data.results:
        if row.sustained:
            # The latest whole attempt, or the latest one at all.
            shown = max(row.sustained, key=lambda attempt: (attempt.is_whole, attempt.attempt))
            groups.setdefault((row.case.model_name, row.case.configuration), []).append(
                (row, shown)
            )
    span = format_duration(measured.terms.sustained)
    parts = [f"campaign {measured.campaign_id} '{measured.name}', {span} each"]
    for (model, configuration), items in groups.items():
        parts.append(f"{model}, {configuration}\n{_ranking(items)}")
        parts += [
            f"{row.device.title} ({row.case.serial}), minute by minute\n{_minutes(item)}"
            for row, item in items
        ]
    if not groups:
        parts.append("nothing was measured yet")
    return CommandResult(
        text="\n\n".join(parts),
        data={
            "campaign_id": measured.campaign_id,
            "sustained_s": measured.terms.sustained,
            "curves": [
                {
                    "case_key": row.key,
                    "serial": row.case.serial,
                    "device": row.device.title,
                    "is_virtual": row.is_virtual,
                    "model": row.case.model_name,
                    "configuration": row.case.configuration,
                    "is_whole": item.is_whole,
                    "elapsed_s": item.elapsed_s,
                    "quality": item.quality,
                    "rank_burst": _rank(items, item, "burst_us"),
                    "rank_steady": _rank(items, item, "steady_us"),
                    "curve": item.curve,
                    "battery_heat_c": {str(minute): heat for minute, heat in item.heat_c.items()},
                    "process_s": item.process_s,
                }
                for items in groups.values()
                for row, item in items
            ],
        },
    )


def _rank(items: Sequence[_Curve], item: SustainedRow, figure: str) -> int:
    return 1 + sum(
        bool(getattr(other.curve, figure) < getattr(item.curve, figure)) for _, other in items
    )


def _ranking(items: Sequence[_Curve]) -> str:
    rows = []
    for row, item in sorted(items, key=lambda one: one[1].curve.steady_us):
        curve = item.curve
        onset = "none seen" if curve.onset_s is None else f"after {format_duration(curve.onset_s)}"
        note = "" if item.is_whole else f"cut after {format_duration(item.elapsed_s)}"
        rows.append(
            (
                str(_rank(items, item, "burst_us")),
                str(_rank(items, item, "steady_us")),
                row.device.title,
                format_latency(curve.burst_us),
                format_latency(curve.steady_us),
                format_change(curve.slowdown),
                onset,
                str(curve.count),
                note,
            )
        )
    heads = (
        "burst rank",
        "steady rank",
        "device",
        "burst",
        "steady",
        "change",
        "slower",
        "processes",
        "",
    )
    return table(heads, rows, right=(0, 1, 3, 4, 5, 7))


def _minutes(item: SustainedRow) -> str:
    rows = [
        (
            str(row.minute),
            format_latency(row.median_us),
            format_latency(row.min_us),
            format_latency(row.max_us),
            format_change(row.slowdown),
            str(row.count),
            f"{item.heat_c[row.minute]:.1f} C" if row.minute in item.heat_c else "",
        )
        for row in item.curve.minutes
    ]
    heads = ("minute", "median", "fastest", "slowest", "against burst", "processes", "battery")
    return table(heads, rows, right=(0, 1, 2, 3, 4, 5, 6))
