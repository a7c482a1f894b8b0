"""The summary of ``benchmark_model_performance_options``, which tries several ways to run a model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from orchestrator.reading.lines import parse_stats
from orchestrator.records.run import LatencySummary

_TITLE: Final = "Summary of All Runs w/ Different Performance Options"
_ROW: Final = re.compile(r"\s*(?P<name>[\w/(].{0,120}?): (?:(?P<stats>count=.*)|\s*failed!\s*)$")
_KNOWN: Final = re.compile(
    r"(?:cpu w/ -?\d+ threads(?: \([\w-]+\))?|gpu-(?:default|fp16)|nnapi\(.*\)|dsp w/ hexagon|coreml)$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRow:
    """One row: its name and its statistics, None when the option failed."""

    name: str
    stats: LatencySummary | None

    @property
    def requested(self) -> str:
        """The delegate that the option asks for, "" when the name is new."""
        for start, delegate in (
            ("gpu", "gpu"),
            ("nnapi", "nnapi"),
            ("dsp", "hexagon"),
            ("coreml", "coreml"),
        ):
            if self.name.startswith(start):
                return delegate
        if self.name.startswith("cpu"):
            return "xnnpack" if "xnnpack" in self.name else "cpu"
        return ""

    @property
    def accelerator(self) -> str:
        """The NNAPI accelerator that the option names, "" for none."""
        match = re.match(r"nnapi\((?!w/o)(.*)\)$", self.name)
        return match[1] if match else ""


def starts_summary(text: str) -> bool:
    """Whether a line is the summary's title."""
    return _TITLE in text and text.strip("= ") == _TITLE


def parse_row(
    text: str, *, in_summary: bool, has_percentiles: bool = False, is_cut: bool = False
) -> SummaryRow | None:
    """Read a row; outside a summary only names that the program is known to use are taken for one.

    ``has_percentiles`` and ``is_cut`` as for :func:`parse_stats`.
    """
    match = _ROW.match(text)
    if (
        not match
        or not (in_summary or _KNOWN.match(match["name"]))
        or match["name"].endswith("Timings (microseconds)")
    ):
        return None
    stats = (
        parse_stats(match["stats"], has_percentiles=has_percentiles, is_cut=is_cut)
        if match["stats"]
        else None
    )
    return None if match["stats"] and stats is None else SummaryRow(name=match["name"], stats=stats)
