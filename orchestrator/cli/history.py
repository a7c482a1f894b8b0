"""``benchfarm history changes`` and ``benchfarm history expect``."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from orchestrator.app import history
from orchestrator.app.history import ChangesRequest
from orchestrator.app.notifying import FORMS, Message, receiver_of, send
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.download_progress import farm_telling
from orchestrator.cli.files import format_of
from orchestrator.cli.progress import tell
from orchestrator.cli.result import CommandResult, table, to_json
from orchestrator.engine.history import FoundChange, FoundOutputs, Regressions
from orchestrator.errors import UsageError
from orchestrator.files import write_file
from orchestrator.records.history import ConfirmationStatus
from orchestrator.report.escapes import one_line
from orchestrator.units import format_change

_FORMS: Final = ("text", "markdown", "csv", "json")
#: Forms that may say more than the figures do.
_FOR_PEOPLE: Final = ("text", "markdown")
_CSV_COLUMNS: Final = (
    "group", "series_key", "serial", "phone", "model", "configuration", "night", "earliest", "latest", "ratio", "low",
    "high", "confidence", "before_us", "after_us", "status", "expected", "causes", "outputs",
)  # fmt: skip
#: How people are told what became of a change.
_STATUS: Final[Mapping[ConfirmationStatus, str]] = {
    ConfirmationStatus.UNCONFIRMED: "not confirmed yet",
    ConfirmationStatus.CONFIRMED: "confirmed side by side",
    ConfirmationStatus.REFUTED: "refuted side by side",
    ConfirmationStatus.CANNOT: "can't be confirmed",
    ConfirmationStatus.EXPLAINED: "confirmed by other series",
}


def changes(
    settings: Settings,
    request: ChangesRequest,
    *,
    form: str = "",
    out: Path | None = None,
    notify: Sequence[str] = (),
    notify_form: str = "json",
) -> CommandResult:
    """Find what changed, in a form that is known by the ending of ``out`` where none is named. Raises UsageError.

    ``notify``: who is told when the exit code is 1: see ``receiver_of``.
    """
    form = format_of(form, out, _FORMS, default="text")
    if notify_form not in FORMS:
        raise UsageError(f"--notify-format {notify_form!r} isn't known", hint=" or ".join(FORMS))
    receivers = [receiver_of(text, "--notify", mail_server=settings.smtp) for text in notify]
    with farm_telling(settings, makes_store=False) as farm:
        done = history.find_changes(farm, request)
    text = _RENDERERS[form](done.found)
    if out is not None:
        write_file(out, text.encode())
        text = str(out)
    if done.nothing and (out is not None or form in _FOR_PEOPLE):
        is_markdown = out is None and form == "markdown"
        text = f"{text}\n\n{_escaped(done.nothing) if is_markdown else one_line(done.nothing)}"
    data = {**_data(done.found), "fails": done.fails}
    undelivered = []
    if receivers and done.fails:
        content, told = json.loads(to_json(data)), done.nothing or _as_text(done.found)
        message = Message(content=content, text=told, form=notify_form)
        undelivered = [send(receiver, message) for receiver in receivers]
    for reason in filter(None, undelivered):
        tell(settings.log_format, "notify", reason, level="error")
    return CommandResult(
        text=text, data={**data, "undelivered": list(filter(None, undelivered))}, exit_code=int(done.fails)
    )


def annotate(settings: Settings, selection: str, night: str, text: str) -> CommandResult:
    """Keep that a change is expected; raises UsageError."""
    # In a store of another name nobody would find it.
    with Farm(settings, makes_store=settings.is_default_store) as farm:
        kept, fitting = history.expect(farm, selection, night, text)
    return CommandResult(
        text=f"annotation {kept.annotation_id}: {fitting} series fit it now", data={**asdict(kept), "series": fitting}
    )


def list_annotations(settings: Settings) -> CommandResult:
    """List what is expected."""
    with Farm(settings, makes_store=False) as farm:
        found = list(farm.store.annotations())
    rows = [(item.annotation_id, f"{item.night}", one_line(item.selection), one_line(item.text)) for item in found]
    text = table(("annotation", "night", "series", "text"), rows) if rows else "nothing is annotated"
    return CommandResult(text=text, data=[asdict(item) for item in found])


def delete_annotation(settings: Settings, annotation_id: str) -> CommandResult:
    """Forget an annotation; raises UsageError when there is none."""
    with Farm(settings, makes_store=False) as farm:
        if not farm.store.delete_annotation(annotation_id):
            raise UsageError(
                f"there is no annotation {annotation_id!r}", hint="'benchfarm history expected' lists them"
            )
    return CommandResult(text=f"annotation {annotation_id} is gone", data={"annotation_id": annotation_id})


def _causes(change: FoundChange) -> str:
    told = []
    for cause in change.causes:
        share = "" if cause.share is None else f", explains {cause.share * 100:.0f} %"
        moved = "" if cause.moved is None else f", {cause.moved[0]} of {cause.moved[1]} series with it moved"
        told.append(f"{cause.name} {cause.before} -> {cause.after}{share}{moved}")
    return one_line("; ".join(told) or "nothing that is known changed")


def _line(change: FoundChange) -> str:
    virtual = " [virtual]" if change.is_virtual else ""
    expected = f"; expected: {change.expected}" if change.expected else ""
    detail = f" ({change.status_detail})" if change.status_detail else ""
    return one_line(
        f"{change.series_key[:12]}  {change.case.model_name} on {change.phone} ({change.case.serial}), "
        f"{change.case.configuration}: {change.before_us / 1000:.3f} -> {change.after_us / 1000:.3f} ms, "
        f"{format_change(change.ratio)} [{format_change(change.low)}, {format_change(change.high)}], "
        f"{change.night} ({change.earliest} to {change.latest}), confidence {change.confidence * 100:.1f} %, "
        f"{_STATUS[change.status]}{detail}{expected}{virtual}"
    )


def _heading(found: Regressions) -> str:
    asked = f"since {found.since}" if found.since else "new in the last 14 nights"
    worse = sum(item.change.is_worse for item in found.outputs)
    outputs = f"; the outputs of {worse} turned wrong or drifted" if worse else ""
    other = len(found.other_figures)
    kinds = f"; {other} series changed between means and medians, nights before that aren't compared" if other else ""
    return f"{len(found.changes)} changes {asked}, in {found.series} series over {found.nights} nights{outputs}{kinds}"


def _outputs_text(item: FoundOutputs) -> str:
    return f"{item.change.before or 'not compared before'} -> {item.change.after}"


def _outputs_line(item: FoundOutputs) -> str:
    virtual = " [virtual]" if item.is_virtual else ""
    before = f", last compared {item.change.last_before}" if item.change.last_before else ""
    expected = f"; expected: {item.expected}" if item.expected else ""
    return one_line(
        f"{item.change.series_key[:12]}  {item.case.model_name} on {item.phone} ({item.case.serial}), "
        f"{item.case.configuration}: outputs {_outputs_text(item)} since {item.change.night}{before}{expected}{virtual}"
    )


def _as_text(found: Regressions) -> str:
    from orchestrator.report.comparisons import wrapped

    lines = [_heading(found)]
    for group in found.groups:
        lines += ["", one_line(group.sentence)]
        for change in group.members:
            lines += [f"  {_line(change)}", f"    {_causes(change)}"]
    if found.outputs:
        lines += ["", "outputs against the reference", *(f"  {_outputs_line(item)}" for item in found.outputs)]
    return "\n".join(
        part for line in lines for part in wrapped(line, following=" " * (len(line) - len(line.lstrip()) + 4))
    )


def _as_markdown(found: Regressions) -> str:
    lines = [f"## {_heading(found)}"]
    for group in found.groups:
        lines += ["", f"### {_escaped(group.sentence)}", ""]
        lines += ["| series | change | since | status | what changed with it |", "|---|---|---|---|---|"]
        for change in group.members:
            name = f"{change.case.model_name}, {change.phone}, {change.case.configuration}"
            status = _STATUS[change.status] + (f"; expected: {change.expected}" if change.expected else "")
            cells = (name, format_change(change.ratio), f"{change.night}", status, _causes(change))
            lines.append(f"| {' | '.join(_escaped(cell) for cell in cells)} |")
    if found.outputs:
        lines += ["", "### Outputs against the reference", "", "| series | outputs | since | expected |"]
        lines.append("|---|---|---|---|")
    for item in found.outputs:
        name = f"{item.case.model_name}, {item.phone}, {item.case.configuration}"
        told = (name, _outputs_text(item), f"{item.change.night}", item.expected)
        lines.append(f"| {' | '.join(_escaped(cell) for cell in told)} |")
    return "\n".join(lines)


def _escaped(text: str) -> str:
    """Return text that is only text in a cell of a Markdown table."""
    from orchestrator.report.escapes import markdown_text

    return markdown_text(one_line(text))


def _as_csv(found: Regressions) -> str:
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(_CSV_COLUMNS)
    for number, group in enumerate(found.groups, 1):
        for item in group.members:
            row = (
                number, item.series_key, item.case.serial, item.phone, item.case.model_name, item.case.configuration,
                item.night, item.earliest, item.latest, f"{item.ratio:.5f}", f"{item.low:.5f}", f"{item.high:.5f}",
                f"{item.confidence:.5f}", item.before_us, item.after_us, item.status.value, item.expected,
                _causes(item), "",
            )  # fmt: skip
            writer.writerow([_cell(value) for value in row])
    for other in found.outputs:
        known: dict[str, object] = {
            "series_key": other.change.series_key,
            "serial": other.case.serial,
            "phone": other.phone,
            "model": other.case.model_name,
            "configuration": other.case.configuration,
            "night": other.change.night,
            "earliest": other.change.last_before or other.change.night,
            "latest": other.change.night,
            "expected": other.expected,
            "outputs": _outputs_text(other),
        }
        writer.writerow([_cell(known.get(name, "")) for name in _CSV_COLUMNS])
    return written.getvalue().rstrip("\n")


def _cell(value: object) -> object:
    from orchestrator.report.escapes import csv_text

    return csv_text(value) if isinstance(value, str) else value


def _as_json(found: Regressions) -> str:
    return to_json(_data(found))


def _data(found: Regressions) -> dict[str, object]:
    return {
        "since": found.since,
        "nights": found.nights,
        "series": found.series,
        "groups": [
            {
                "sentence": group.sentence,
                "series": group.series,
                "changes": [{**asdict(change), "configuration": change.case.configuration} for change in group.members],
            }
            for group in found.groups
        ],
        "outputs": [
            {
                **asdict(item.change),
                "is_worse": item.change.is_worse,
                "case": asdict(item.case),
                "configuration": item.case.configuration,
                "phone": item.phone,
                "is_virtual": item.is_virtual,
                "expected": item.expected,
            }
            for item in found.outputs
        ],
        "other_figures": found.other_figures,
    }


_RENDERERS: Final[Mapping[str, Callable[[Regressions], str]]] = {
    "text": _as_text,
    "markdown": _as_markdown,
    "csv": _as_csv,
    "json": _as_json,
}
