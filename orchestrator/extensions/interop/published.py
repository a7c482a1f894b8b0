"""Figures that others published: the TFLite guide's table, and language models'; never mixed with
measurements.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import BenchfarmError
from orchestrator.installation import data_folder
from orchestrator.records.case import DelegateName
from orchestrator.records.model import FIGURE, PHASES, worded
from orchestrator.units import US_PER_MS, US_PER_S

#: Named wherever the figures are shown.
SOURCE = "TensorFlow Lite performance guide"
_COLUMNS = ["model", "device", "configuration", "latency_ms"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFigure:
    """A figure of a public table: somebody else's measurement."""

    model: str
    device: str
    delegate: DelegateName
    threads: int | None = None
    #: None where the table has no figure; of a language model the time of one token.
    latency_us: float | None
    #: The figure with the digits that were published and its unit; empty where there is none.
    text: str
    source: str = SOURCE
    #: What to know of it.
    notes: tuple[str, ...] = ()
    is_per_token: bool = False


def load_published(path: Path | None = None) -> tuple[PublishedFigure, ...]:
    """Return the public table's cells in the file's order; by default those of the shipped file.

    The file is CSV with the columns model, device, configuration, latency_ms; an empty latency is a
    cell without a figure. Raises BenchfarmError naming file and line when a row can't be read.
    """
    path = path or data_folder("reports") / "published" / "tflite_published.csv"
    return tuple(_read(path, _of_guide, _COLUMNS))


def load_language_models(path: Path | None = None) -> tuple[PublishedFigure, ...]:
    """Return what others published of language models in the file's order: of each row its prefill
    and its decode.

    The file is CSV (reports/published/README.md has its columns). Raises BenchfarmError naming file
    and line.
    """
    path = path or data_folder("reports") / "published" / "litert_lm_published.csv"
    return tuple(_read(path, _of_tokens))


def _read(
    path: Path,
    figures_of: Callable[[Mapping[str, str]], Iterable[PublishedFigure]],
    columns: list[str] | None = None,
) -> Iterator[PublishedFigure]:
    with path.open(encoding="utf-8", newline="") as stream:
        rows = csv.DictReader(stream)
        if columns is not None and rows.fieldnames != columns:
            raise BenchfarmError(f"{path}:1: the columns must be {', '.join(columns)}")
        for row in rows:
            try:
                if None in row:
                    raise ValueError("it has too many columns")
                yield from figures_of(row)
            except (KeyError, TypeError, ValueError, ZeroDivisionError, AttributeError) as error:
                raise BenchfarmError(
                    f"{path}:{rows.line_num}: this row can't be read: {error!r}"
                ) from error


def _of_guide(row: Mapping[str, str]) -> Iterator[PublishedFigure]:
    # ``cpu_4_threads``, ``gpu``
    name, _, threads = row["configuration"].partition("_")
    printed = row["latency_ms"].strip()
    yield PublishedFigure(
        model=row["model"],
        device=row["device"],
        delegate=DelegateName(name),
        threads=int(threads.removesuffix("_threads")) if threads else None,
        latency_us=float(printed) * US_PER_MS if printed else None,
        text=f"{printed} ms" if printed else "",
    )


def _of_tokens(row: Mapping[str, str]) -> Iterator[PublishedFigure]:
    tokens = {"prefill_tokens": row["prefill_tokens"], "decode_tokens": row["decode_tokens"]}
    tokens["max_num_tokens"] = row["context_tokens"]
    memory = f"{row['memory_mb']} MB {row['memory_kind']}" if row["memory_mb"] else ""
    for phase in PHASES:
        printed = row[f"{phase}_tok_s"]
        if not printed:
            continue
        what = worded({FIGURE: phase, **{name: value for name, value in tokens.items() if value}})
        first = (
            f"time to the first token {row['ttft_s']} s"
            if row["ttft_s"] and phase == PHASES[0]
            else ""
        )
        yield PublishedFigure(
            model=f"{' '.join(filter(None, (row['model'], row['quantization'])))}, {what.removesuffix(', per token')}",
            device=row["device"],
            delegate=DelegateName(row["backend"].lower()),
            latency_us=US_PER_S / float(printed),
            text=f"{printed} tokens/s",
            source=row["source"],
            notes=tuple(note for note in (row["date"], first, memory, row["note"]) if note),
            is_per_token=True,
        )
