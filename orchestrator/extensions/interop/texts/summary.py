"""The summary of ``benchmark_model_performance_options``, which tries several ways to run a model."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from orchestrator.frozen import frozen
from orchestrator.reading.lines import Line, parse_stats
from orchestrator.records.run import LatencySummary

_SUMMARY_TITLE: Final = "Summary of All Runs w/ Different Performance Options"
_SUMMARY_ROW: Final = re.compile(
    r"\s*(?P<name>[\w/(].{0,120}?): (?:(?P<stats>count=.*)|\s*failed!\s*)$"
)
_OPTION: Final = re.compile(
    r"(?:cpu w/ -?\d+ threads(?: \([\w-]+\))?|gpu-(?:default|fp16)|nnapi\(.*\)|dsp w/ hexagon|coreml)$"
)


@frozen
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
    return _SUMMARY_TITLE in text and text.strip("= ") == _SUMMARY_TITLE


def parse_row(
    text: str, *, in_summary: bool, has_percentiles: bool = False, is_cut: bool = False
) -> SummaryRow | None:
    """Read a row; outside a summary only names that the program is known to use are taken for one.

    ``has_percentiles`` and ``is_cut`` as for :func:`parse_stats`.
    """
    match = _SUMMARY_ROW.match(text)
    if (
        not match
        or not (in_summary or _OPTION.match(match["name"]))
        or match["name"].endswith("Timings (microseconds)")
    ):
        return None
    stats = (
        parse_stats(match["stats"], has_percentiles=has_percentiles, is_cut=is_cut)
        if match["stats"]
        else None
    )
    return None if match["stats"] and stats is None else SummaryRow(name=match["name"], stats=stats)


@dataclass(slots=True)
class SummaryReader:
    """Takes the summaries' rows out of a text."""

    rows: list[SummaryRow] = field(default_factory=list)
    #: Whether a summary is open, in which rows may have any name.
    is_open: bool = False
    _has_percentiles: bool = False

    def take(self, line: Line, *, has_percentiles: bool) -> bool:
        """Take a line that is a summary's title or row; ``has_percentiles`` as for parse_stats."""
        text = line.whole
        if starts_summary(text):
            self.is_open = True
            return True
        if "count=" not in text and "failed!" not in text:
            return False
        row = parse_row(
            text,
            in_summary=self.is_open,
            has_percentiles=has_percentiles or self._has_percentiles,
            is_cut=bool(line.cut_word),
        )
        if row is None:
            return False
        if row.stats is not None and row.stats.p95_us is not None:
            self._has_percentiles = True
        self.rows.append(row)
        return True
