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


@dataclass(slots=True)
class SummaryReader:
    """Takes the summaries' rows out of a text."""

    rows: list[SummaryRow] = field(default_factory=list)
    #: Whether a summary is open, in which rows may have any name.
    is_open: bool = False
    _has_percentiles: bool = False

    def take(self, line: Line, *, has_percentiles: bool) -> bool:
        """Take a line that is a summary's title or row; ``has_percentiles`` as for parse_stats.

        Outside a summary only names that the program is known to use are taken for a row's.
        """
        text = line.whole
        if text.strip("= ") == _SUMMARY_TITLE:
            self.is_open = True
            return True
        match = _SUMMARY_ROW.match(text) if "count=" in text or "failed!" in text else None
        if (
            match is None
            or not (self.is_open or _OPTION.match(match["name"]))
            or match["name"].endswith("Timings (microseconds)")
        ):
            return False
        stats = None
        if match["stats"]:
            stats = parse_stats(
                match["stats"],
                has_percentiles=has_percentiles or self._has_percentiles,
                is_cut=bool(line.cut_word),
            )
            if stats is None:
                return False
            self._has_percentiles = self._has_percentiles or stats.p95_us is not None
        self.rows.append(SummaryRow(name=match["name"], stats=stats))
        return True
