"""Operator profiles: tables in the log, the same as CSV, and the proto.

Three tables make a block: run order, top ten, summary by node type. Programs of different years
disagree on columns (``[start]`` until 2021) and on padding, so columns are known by the header row.
Times come back in microseconds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from orchestrator.frozen import frozen
from orchestrator.reading.lines import parse_number, parse_stats
from orchestrator.records.run import LatencySummary, OperatorTime, OperatorTypeTime, ProfileBlock
from orchestrator.units import US_PER_MS

INIT_TITLE: Final = "Profiling Info for Benchmark Initialization:"
RUN_TITLE: Final = "Operator-wise Profiling Info for Regular Benchmark Runs:"
#: The line above each of the three tables.
TABLE_TITLE: Final = re.compile(r"=+ (Run Order|Top by Computation Time|Summary by node type) =+")
_BLOCK: Final = re.compile(
    r"(?:Primary graph|Subgraph) \((?:index: \d+, )?name: (?P<name>.*)\) profile:$"
)
_TIMINGS: Final = re.compile(
    r"(?:Subgraph \(.*\) |Delegate internal: )?Timings \(microseconds\): (?P<stats>.*)$"
)
_NODES: Final = re.compile(r"Number of nodes executed: (\d{1,9})$", re.ASCII)
_COLUMN_NAMES: Final = {"avg_ms": "avg ms"}
_GAP: Final = re.compile(r"\s{2,}|\t")


@frozen
class OperatorProfile:
    """All tables of one run."""

    operators: tuple[OperatorTime, ...] = ()
    types: tuple[OperatorTypeTime, ...] = ()
    blocks: tuple[ProfileBlock, ...] = ()


_MOST_BLOCKS: Final = 10_000
#: More rows than any model has; the rest of a table isn't kept.
_MOST_ROWS: Final = 100_000


@dataclass(slots=True)
class TableReader:
    """Reads operator tables line by line; skips lines before the first header row, and rows with
    other columns.
    """

    operators: list[OperatorTime] = field(default_factory=list)
    types: list[OperatorTypeTime] = field(default_factory=list)
    blocks: list[ProfileBlock] = field(default_factory=list)
    phase: str = "run"
    block: str = ""
    table: str = ""
    columns: tuple[str, ...] = ()
    separator: str = "\t"
    nodes_executed: int | None = None
    has_start_column: bool = False
    #: Rows that were left out because there are too many.
    left_out: int = 0
    _run_orders: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether nothing of a profile was read."""
        return not (
            self.operators or self.types or self.blocks or self.table or self.nodes_executed
        )

    def feed(self, raw: str) -> None:
        """Read one line."""
        text = raw.strip()
        if text.endswith(":") and self._title(text):
            return
        match = TABLE_TITLE.fullmatch(text) if text.startswith("=") else None
        if match:
            self.table, self.columns = match[1], ()
            return
        if text.startswith("Number of nodes") and (match := _NODES.match(text)):
            self.nodes_executed = int(match[1])
            return
        if "Timings (" in text and (match := _TIMINGS.match(text)):
            self.end_block(parse_stats(match["stats"]))
            return
        if self.table and text:
            self._row(raw, text)

    def _title(self, text: str) -> bool:
        if text.endswith((INIT_TITLE, RUN_TITLE)):
            self.phase, self.block = "init" if text.endswith(INIT_TITLE) else "run", ""
        elif match := _BLOCK.search(text):
            self.block = match["name"]
        elif text.startswith("Delegate internal"):
            self.block = "delegate"
        else:
            return False
        self.table = ""
        return True

    def end_block(self, timings: LatencySummary | None) -> None:
        """Close the block that is open, with its totals where they were printed."""
        if len(self.blocks) < _MOST_BLOCKS:
            block = ProfileBlock(
                phase=self.phase,
                block=self.block,
                nodes_executed=self.nodes_executed,
                timings=timings,
                has_start_column=self.has_start_column,
            )
            self.blocks.append(block)
            self.table, self.columns, self.nodes_executed, self.has_start_column = (
                "",
                (),
                None,
                False,
            )

    def finish(self) -> OperatorProfile:
        """Return the profile; a table that was cut off before its totals keeps its rows."""
        if self.table or self.nodes_executed is not None:
            self.end_block(None)
        return OperatorProfile(
            operators=tuple(self.operators), types=tuple(self.types), blocks=tuple(self.blocks)
        )

    def _row(self, raw: str, text: str) -> None:
        if not self.columns:
            self._header(raw, text)
            return
        rows: list[OperatorTime] | list[OperatorTypeTime]
        if self.table == "Run Order":
            rows = self.operators
        elif self.table == "Summary by node type":
            rows = self.types
        else:
            return
        if len(rows) >= _MOST_ROWS:
            self.left_out += 1
            return
        cells = self._cells(raw, text)
        if cells is None:
            return
        mean, times_called, memory_kb = map(
            _figure, map(cells.get, ("avg ms", "times called", "mem kb"))
        )
        if mean is None or times_called is None:
            return
        if self.table == "Run Order" and cells.get("name"):
            self._operator(cells, mean, times_called, memory_kb)
        elif self.table != "Run Order" and (nodes := _figure(cells.get("count"))) is not None:
            row = OperatorTypeTime(
                node_type=cells["node type"],
                nodes=round(nodes),
                mean_us=_us(mean),
                times_called=times_called,
                memory_kb=memory_kb,
                phase=self.phase,
                block=self.block,
            )
            self.types.append(row)

    def _header(self, raw: str, text: str) -> None:
        if text.lower().startswith("node type, "):
            self.separator = ", "
            names = text.split(", ")
        elif text.lower().startswith("[node type]"):
            self.separator = "\t" if "\t" in text else " "
            names = [name.strip(" []") for name in _GAP.split(text)]
        else:
            return
        self.columns = tuple(_COLUMN_NAMES.get(name.lower(), name.lower()) for name in names)
        self.has_start_column = self.has_start_column or "start" in self.columns

    def _cells(self, raw: str, text: str) -> dict[str, str] | None:
        width = len(self.columns)
        if self.separator == "\t":
            # The name comes last and may hold a TAB itself.
            cells = [cell.strip() for cell in raw.lstrip("\t").split("\t", width - 1)]
        elif self.separator == ", ":
            # Node types hold commas, names don't: split from the right.
            cells = text.rsplit(", ", width - 1)
        else:
            cells = _GAP.split(text, width - 1)
        return dict(zip(self.columns, cells, strict=True)) if len(cells) == width else None

    def _operator(
        self, cells: dict[str, str], mean: float, times_called: float, memory_kb: float | None
    ) -> None:
        run_order = self._run_orders.get((self.phase, self.block), 0)
        self._run_orders[self.phase, self.block] = run_order + 1
        first = _figure(cells.get("first"))
        self.operators.append(
            OperatorTime(
                node_type=cells["node type"],
                name=cells["name"].replace("\t", ",") if self.separator == ", " else cells["name"],
                first_us=None if first is None else _us(first),
                # The table's average is per call.
                mean_us=_us(mean * times_called),
                times_called=times_called,
                memory_kb=memory_kb,
                phase=self.phase,
                block=self.block,
                run_order=run_order,
            )
        )


def _figure(cell: str | None) -> float | None:
    return parse_number(cell.removesuffix("%")) if cell else None


def _us(milliseconds: float) -> float:
    return float(f"{milliseconds * US_PER_MS:.12g}")
