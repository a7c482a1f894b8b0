"""A guide table as text, Markdown, CSV and LaTeX (HTML is drawn by render.py)."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import Final

from orchestrator.report.columns import picked
from orchestrator.report.escapes import csv_text, display_width, markdown_table, markdown_text, visible
from orchestrator.report.guide_table import Cell, GuideTable
from orchestrator.units import US_PER_MS

_EMPTY: Final = "There is no figure for these devices and configurations.\n"
_LATEX_SPECIAL: Final = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{char: f"\\{char}" for char in "&%$#_"},
}


def format_text(table: GuideTable) -> str:
    """Return the table for a terminal; notes stand below by their numbers."""
    if not table.lines:
        return _EMPTY
    rows = [[visible(text) for text in row] for row in _rows(table)]
    widths = [max(map(display_width, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        gaps = [" " * (width - display_width(text)) for text, width in zip(row, widths, strict=True)]
        padded = [
            gap + text if place in table.figures else text + gap
            for place, (text, gap) in enumerate(zip(row, gaps, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join([*lines, "", *_legend(table, visible)]) + "\n"


def format_markdown(table: GuideTable) -> str:
    """Return the table as a Markdown table."""
    if not table.lines:
        return _EMPTY
    # The marks are ours: digits in parentheses, which Markdown leaves as they are.
    heads, *rows = ([markdown_text(text) for text in row] for row in _rows(table))
    lines = markdown_table(heads, rows, right=table.figures)
    return "\n".join([*lines, "", *_legend(table, markdown_text, between="  \n")]) + "\n"


def format_csv(table: GuideTable) -> str:
    """Return a line for each figure (RFC 4180, but lines end in LF): latency in ms, a language model's of a token."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [
            "model",
            "device",
            "is_virtual",
            "configuration",
            "latency_ms",
            "source",
            "campaign_id",
            "notes",
            "tokens_per_s",
        ]
    )
    for line in table.lines:
        for column, cell in zip(table.columns, line.cells, strict=True):
            figure = "" if cell.latency_us is None else f"{cell.latency_us / US_PER_MS:.6g}"
            facts = [line.model, line.device, str(line.is_virtual).lower(), column.label]
            facts += [figure, line.source, cell.campaign_id, "; ".join(cell.notes)]
            words = map(csv_text, facts)
            writer.writerow([*words, "" if cell.speed is None else f"{cell.speed:.6g}"])
    return out.getvalue()


def format_latex(table: GuideTable) -> str:
    """Return a ``tabular`` that needs no package."""
    if not table.lines:
        return f"% {_EMPTY}"
    heads, *rows = (" & ".join(map(_latex, row)) + r" \\" for row in _rows(table))
    sides = "".join("r" if place in table.figures else "l" for place in range(len(_rows(table)[0])))
    body = [rf"\begin{{tabular}}{{{sides}}}", r"\hline", heads, r"\hline", *rows]
    return "\n".join([*body, r"\hline", r"\end{tabular}", "", *_legend(table, _latex, between="\n\n")]) + "\n"


def to_document(table: GuideTable) -> dict[str, object]:
    """Return the table as plain JSON values; latencies in microseconds."""
    return {
        "columns": [picked(column, "label delegate threads") for column in table.columns],
        "rows": [
            picked(line, "model device is_virtual source")
            | {"cells": [picked(cell, "text latency_us tokens_per_s=speed notes campaign_id") for cell in line.cells]}
            for line in table.lines
        ],
    }


def _rows(table: GuideTable) -> list[list[str]]:
    """Return the heads and a row for each line, each with its source where there are several."""
    has_sources = len(table.sources) > 1
    rows = [["Model", "Device", *(column.label for column in table.columns), *(["Source"] if has_sources else [])]]
    for line in table.lines:
        cells = [_numbered(table, cell) for cell in line.cells]
        rows.append([line.model, line.device, *cells, *([line.source] if has_sources else [])])
    return rows


def _numbered(table: GuideTable, cell: Cell) -> str:
    numbers = ",".join(str(table.notes.index(note) + 1) for note in table.notes_of(cell))
    return f"{cell.text} ({numbers})" if numbers else cell.text


def _legend(table: GuideTable, safe: Callable[[str], str], *, between: str = "\n") -> Sequence[str]:
    lines = [f"({number}) {note}" for number, note in enumerate(table.notes, start=1)]
    lines.append(f"Source: {table.told_sources}.")
    if any(line.is_virtual for line in table.lines):
        lines.append("Virtual: from benchfarm's own virtual phone, no measurement.")
    return [between.join(safe(line) for line in lines)]


def _latex(text: str) -> str:
    return "".join(_LATEX_SPECIAL.get(char, char) for char in visible(text))
