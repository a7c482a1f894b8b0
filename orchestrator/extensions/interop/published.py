"""Figures that others published: the TFLite guide's table, and language models'; never mixed with
measurements.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from orchestrator.installation import data_folder
from orchestrator.records.model import FIGURE, PHASES, worded
from orchestrator.units import US_PER_MS, US_PER_S

#: Named wherever the figures are shown.
_GUIDE: Final = "TensorFlow Lite performance guide"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedFigure:
    """A figure of a public table: somebody else's measurement."""

    model: str
    device: str
    #: As own configurations are called in short: ``cpu, 4 threads``, ``gpu``.
    configuration: str
    #: Of a language model the time of one token.
    latency_us: float
    #: The digits that were published: milliseconds, or with the unit of a speed.
    text: str
    #: Where it stands, when it was published and what to know about it.
    source: str


def load_published() -> tuple[PublishedFigure, ...]:
    """Return the figures of the public performance guide."""
    return tuple(
        PublishedFigure(
            model=row["model"],
            device=row["device"],
            # As ``cpu_4_threads`` stands in the file.
            configuration=row["configuration"].replace("_", ", ", 1).replace("_", " "),
            latency_us=float(row["latency_ms"]) * US_PER_MS,
            text=row["latency_ms"],
            source=_GUIDE,
        )
        for row in _rows("tflite_published.csv")
        if row["latency_ms"]
    )


def load_language_models() -> tuple[PublishedFigure, ...]:
    """Return what others published of language models: of each row its prefill and its decode."""
    return tuple(
        PublishedFigure(
            model=_model(row, phase),
            device=row["device"],
            configuration=row["backend"].lower(),
            latency_us=US_PER_S / float(row[f"{phase}_tok_s"]),
            text=f"{row[f'{phase}_tok_s']} tokens/s",
            source=", ".join(filter(None, (row["source"], row["date"], row["note"]))),
        )
        for row in _rows("litert_lm_published.csv")
        for phase in PHASES
        if row[f"{phase}_tok_s"]
    )


def _rows(name: str) -> Iterator[dict[str, str]]:
    path = data_folder("reports") / "published" / name
    with path.open(encoding="utf-8", newline="") as stream:
        yield from csv.DictReader(stream)


def _model(row: dict[str, str], phase: str) -> str:
    tokens = {
        "prefill_tokens": row["prefill_tokens"],
        "decode_tokens": row["decode_tokens"],
        "max_num_tokens": row["context_tokens"],
    }
    what = worded({FIGURE: phase, **{name: value for name, value in tokens.items() if value}})
    name = f"{row['model']} {row['quantization']}".strip()
    return f"{name}, {what.removesuffix(', per token')}"
