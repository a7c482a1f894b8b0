"""A guide table as text, Markdown, CSV and LaTeX (HTML is drawn by render.py)."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import Final

from orchestrator.report.escapes import csv_text, display_width, markdown_text, visible
from orchestrator.report.guide_table import Cell, GuideTable
from orchestrator.units import US_PER_MS, tokens_per_s

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
    rows = [_heads(table), *([visible(text) for text in row] for row in _rows(table, _numbered))]
    widths = [max(display_width(row[place]) for row in rows) for place in range(len(rows[0]))]
    figures = range(2, 2 + len(table.columns))
    lines = []
    for row in rows:
        padded = [
            " " * (width - display_width(text)) + text
            if place in figures
            else text + " " * (width - display_width(text))
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join([*lines, "", *_legend(table, visible)]) + "\n"


def format_markdown(table: GuideTable) -> str:
    """Return the table as a Markdown table."""
    if not table.lines:
        return _EMPTY
    heads = _heads(table)
    rule = ["---:" if 2 <= place < 2 + len(table.columns) else "---" for place in range(len(heads))]
    # The marks are ours: digits in parentheses, which Markdown leaves as they are.
    rows = [[markdown_text(text) for text in row] for row in [heads, *_rows(table, _numbered)]]
    rows.insert(1, rule)
    lines = [f"| {' | '.join(row)} |" for row in rows]
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
            writer.writerow(
                [
                    *map(csv_text, [*facts, figure, line.source, cell.campaign_id, "; ".join(cell.notes)]),
                    "" if (speed := _speed(cell)) is None else f"{speed:.6g}",
                ]
            )
    return out.getvalue()


def format_latex(table: GuideTable) -> str:
    """Return a ``tabular`` that needs no package."""
    if not table.lines:
        return f"% {_EMPTY}"
    heads = _heads(table)
    sides = "".join("r" if 2 <= place < 2 + len(table.columns) else "l" for place in range(len(heads)))
    rows = [" & ".join(map(_latex, row)) + r" \\" for row in _rows(table, _numbered)]
    body = [rf"\begin{{tabular}}{{{sides}}}", r"\hline", " & ".join(map(_latex, heads)) + r" \\", r"\hline", *rows]
    return "\n".join([*body, r"\hline", r"\end{tabular}", "", *_legend(table, _latex, between="\n\n")]) + "\n"


def to_document(table: GuideTable) -> dict[str, object]:
    """Return the table as plain JSON values; latencies in microseconds."""
    return {
        "columns": [
            {"label": column.label, "delegate": column.delegate.value, "threads": column.threads}
            for column in table.columns
        ],
        "rows": [
            {
                "model": line.model,
                "device": line.device,
                "is_virtual": line.is_virtual,
                "source": line.source,
                "cells": [
                    {
                        "text": cell.text,
                        "latency_us": cell.latency_us,
                        "tokens_per_s": _speed(cell),
                        "notes": list(cell.notes),
                        "campaign_id": cell.campaign_id,
                    }
                    for cell in line.cells
                ],
            }
            for line in table.lines
        ],
    }


def _speed(cell: Cell) -> float | None:
    return tokens_per_s(cell.latency_us) if cell.is_per_token else None


def _heads(table: GuideTable) -> list[str]:
    sources = ["Source"] if len(table.sources) > 1 else []
    return ["Model", "Device", *(column.label for column in table.columns), *sources]


def _rows(table: GuideTable, cell_text: Callable[[GuideTable, Cell], str]) -> list[list[str]]:
    return [
        [
            line.model,
            line.device,
            *(cell_text(table, cell) for cell in line.cells),
            *([line.source] if len(table.sources) > 1 else []),
        ]
        for line in table.lines
    ]


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
