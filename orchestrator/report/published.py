"""The public reference table that comes with benchfarm as data."""

from __future__ import annotations

import csv
from pathlib import Path

from orchestrator.errors import BenchfarmError
from orchestrator.report.data import PublishedFigure
from orchestrator.resources import data_folder
from orchestrator.units import US_PER_MS

#: Named wherever the figures are shown.
SOURCE = "TensorFlow Lite performance guide"
_COLUMNS = ["model", "device", "configuration", "latency_ms"]


def load_published(path: Path | None = None) -> tuple[PublishedFigure, ...]:
    """Return the public table's cells in the file's order; by default those of the shipped file.

    The file is CSV with the columns model, device, configuration, latency_ms; an empty latency is a cell without a
    figure. Raises BenchfarmError naming file and line when a row can't be read.
    """
    path = path or data_folder("reports") / "published" / "tflite_published.csv"
    figures = []
    with path.open(encoding="utf-8", newline="") as stream:
        rows = csv.reader(stream)
        if next(rows, None) != _COLUMNS:
            raise BenchfarmError(f"{path}:1: the columns must be {', '.join(_COLUMNS)}")
        for row in rows:
            try:
                model, device, configuration, latency_ms = row
                latency_us = float(latency_ms) * US_PER_MS if latency_ms else None
            except ValueError as error:
                raise BenchfarmError(f"{path}:{rows.line_num}: this row can't be read: {error}") from error
            figures.append(
                PublishedFigure(
                    model=model,
                    device=device,
                    configuration=configuration,
                    latency_us=latency_us,
                    printed_ms=latency_ms,
                )
            )
    return tuple(figures)
