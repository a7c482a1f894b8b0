"""``benchfarm advise``."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from orchestrator.app.reporting import load_accuracy, report_data
from orchestrator.app.stored import named_campaigns
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.files import format_of
from orchestrator.cli.result import CommandResult, to_json
from orchestrator.files import write_file
from orchestrator.records.advice import AdviceReport

FORMATS: Final = ("text", "json", "markdown", "html-section")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdviseRequest:
    """The options of ``benchfarm advise``, as they were typed."""

    campaigns: tuple[str, ...]
    fleet: bool
    inferences: int | None
    form: str
    allow_list: Path | None
    need_parity: bool
    accuracy: Path | None
    out: Path | None


def advise(settings: Settings, request: AdviseRequest) -> CommandResult:
    """Say what the named campaigns advise, or the newest one; raises UsageError for a wrong option."""
    form = format_of(request.form, request.out, FORMATS, default="text")
    from orchestrator.report.advice import advice_of, allow_list

    known = load_accuracy(request.accuracy) if request.accuracy is not None else {}
    with Farm(settings, makes_store=False) as farm:
        chosen = named_campaigns(farm.store, request.campaigns or ("",))
        data = report_data(farm, chosen, accuracy=known)
    advice = advice_of(data, inferences=request.inferences)
    if request.fleet:
        advice = replace(advice, lines=tuple(item for item in advice.lines if item.rule == "fleet"))
    notes = []
    if request.allow_list is not None:
        listed = allow_list(data, need_parity=request.need_parity)
        write_file(request.allow_list, listed + "\n")
        notes.append(_about_list(request.allow_list, listed))
    text = _rendered(advice, form)
    if request.out is not None:
        write_file(request.out, text + "\n")
        text = str(request.out)
    return CommandResult(
        text="\n".join([text, *notes]),
        data={
            "campaigns": [item.campaign_id for item in chosen],
            "advice": advice,
            "allow_list": request.allow_list,
        },
    )


def _about_list(path: Path, listed: str) -> str:
    """Return what a written list is good for."""
    document = json.loads(listed)
    count = len(document["models"])
    text = f"allow-list: {path}, {count} {'model' if count == 1 else 'models'}"
    if not count:
        text += ": no configuration may be used yet"
    unseen = sum(entry["parity"] is None for model in document["models"].values() for entry in model["devices"])
    if unseen:
        text += f"; the outputs of {unseen} of its configurations were not compared (--need-parity leaves them out)"
    entries = [entry["is_virtual"] for model in document["models"].values() for entry in model["devices"]]
    if not any(entries):
        return text
    if all(entries):
        return f"{text}; made from virtual phones, no app should use it"
    return f"{text}; {sum(entries)} of its entries are of virtual phones (is_virtual), no app should use those"


def _rendered(advice: AdviceReport, form: str) -> str:
    from orchestrator.report.advice import format_markdown, format_text

    if form == "json":
        return to_json(advice)
    if form == "markdown":
        return format_markdown(advice)
    if form == "html-section":
        from orchestrator.report.render import render_template

        return render_template("advice.html.j2", advice=advice).strip()
    return format_text(advice)
