"""The public reference tables that come with benchfarm as data."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import BenchfarmError
from orchestrator.records.tokens import FIGURE, PHASES, worded
from orchestrator.resources import data_folder
from orchestrator.units import US_PER_MS, US_PER_S

#: Named wherever the figures are shown.
SOURCE = "TensorFlow Lite performance guide"
_COLUMNS = ["model", "device", "configuration", "latency_ms"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFigure:
    """A figure of a public table: somebody else's measurement, never mixed with ours."""

    model: str
    device: str
    #: As in the table's file: ``cpu_4_threads``, ``gpu``, ``nnapi`` ...
    configuration: str
    #: None where the table has no figure.
    latency_us: float | None
    #: The figure with the digits that were published, in milliseconds or, of a language model, in tokens per second;
    #: empty where there is none.
    printed_ms: str = ""
    #: Of a language model: where it was published; ``latency_us`` is of one token then. Empty for the guide's.
    source: str = ""
    #: What to know of it.
    notes: tuple[str, ...] = ()


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


def load_language_models(path: Path | None = None) -> tuple[PublishedFigure, ...]:
    """Return what others published of language models in the file's order: of each row its prefill and its decode.

    The file is CSV (reports/published/README.md has its columns). Raises BenchfarmError naming file and line.
    """
    path = path or data_folder("reports") / "published" / "litert_lm_published.csv"
    figures: list[PublishedFigure] = []
    with path.open(encoding="utf-8", newline="") as stream:
        rows = csv.DictReader(stream)
        for row in rows:
            try:
                figures += [_of_tokens(row, phase) for phase in PHASES if row[f"{phase}_tok_s"]]
            except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
                raise BenchfarmError(f"{path}:{rows.line_num}: this row can't be read: {error!r}") from error
    return tuple(figures)


def _of_tokens(row: Mapping[str, str], phase: str) -> PublishedFigure:
    printed = row[f"{phase}_tok_s"]
    tokens = {"prefill_tokens": row["prefill_tokens"], "decode_tokens": row["decode_tokens"]}
    tokens["max_num_tokens"] = row["context_tokens"]
    what = worded({FIGURE: phase, **{name: value for name, value in tokens.items() if value}})
    memory = f"{row['memory_mb']} MB {row['memory_kind']}" if row["memory_mb"] else ""
    first = f"time to the first token {row['ttft_s']} s" if row["ttft_s"] and phase == PHASES[0] else ""
    return PublishedFigure(
        model=f"{' '.join(filter(None, (row['model'], row['quantization'])))}, {what.removesuffix(', per token')}",
        device=row["device"],
        configuration=row["backend"].lower(),
        latency_us=US_PER_S / float(printed),
        printed_ms=printed,
        source=row["source"],
        notes=tuple(note for note in (row["date"], first, memory, row["note"]) if note),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReferenceLine:
    """One model on one device in the public table."""

    model: str
    device: str
    #: Configuration -> figure; a configuration that the table doesn't have for this device is missing.
    cells: Mapping[str, PublishedFigure]


def reference_lines(figures: Sequence[PublishedFigure]) -> tuple[tuple[str, ...], tuple[ReferenceLine, ...]]:
    """Return the public table's configurations, the CPU's first, and its lines in the order of the file."""
    configurations = sorted({figure.configuration for figure in figures}, key=lambda name: (name[:3] != "cpu", name))
    cells: dict[tuple[str, str], dict[str, PublishedFigure]] = {}
    for figure in figures:
        cells.setdefault((figure.model, figure.device), {})[figure.configuration] = figure
    lines = (ReferenceLine(model=model, device=device, cells=row) for (model, device), row in cells.items())
    return tuple(configurations), tuple(lines)
