"""Phones down and configurations across: a model's matrix on a report's page, and 'table --all'."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.records.case import grouped
from orchestrator.records.model import worded
from orchestrator.tables.column import DATA, LINES, MS, PAGE, Column, Kind
from orchestrator.tables.labels import ShortNames, configuration_order, figure_text
from orchestrator.tables.results import figures_decimals, look_of, unusual
from orchestrator.tables.rows import DeviceRow, ResultRow, SkipRow
from orchestrator.tables.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A model on a device: figures by configuration, measured here or published by others."""

    model: str
    device: DeviceRow
    #: Who measured it; empty for this lab.
    source: str = ""
    #: In microseconds.
    figures: Mapping[str, float]
    #: What people read in the place of a figure, or where there is none.
    words: Mapping[str, str]
    rows: Mapping[str, ResultRow] = field(default_factory=dict)

    def share(self, label: str) -> float | None:
        """Return a figure as a share of the device's slowest."""
        figure = self.figures.get(label)
        return None if figure is None else figure / max(self.figures.values())

    @property
    def remarks(self) -> str:
        """What data says of figures that aren't clean, and of those that are missing."""
        found = (
            (label, row.why_not_clean if row.own is None else unusual(row, is_mixed=True))
            for label, row in self.rows.items()
            if not row.is_unused_thread_count
        )
        return "; ".join(f"{label}: {remark}" for label, remark in found if remark)


def labels_of(rows: Iterable[ResultRow], names: ShortNames) -> list[str]:
    """Return the short names of the configurations, in their order."""
    # Where a delegate uses no threads on any device, another column has the figures of all.
    cases = {row.configuration: row.case for row in rows if not row.is_unused_thread_count}
    ordered = sorted(cases, key=lambda label: configuration_order(cases[label], label))
    return list(map(names.of, ordered))


def lines_of(
    rows: Sequence[ResultRow], skipped: Iterable[SkipRow], names: ShortNames
) -> list[Line]:
    """Return a line for each model and device of some cases."""
    digits = figures_decimals(rows)
    configurations = dict.fromkeys(row.configuration for row in rows)
    skips = grouped(skipped, lambda skip: (skip.skipped.model_name, skip.device.serial))
    lines = []
    for own in grouped(rows, lambda row: row.place).values():
        cells = {names.of(row.configuration): row for row in own}
        # A column shows the same combination for another device.
        words = {
            names.of(label): f"skipped: {skip.skipped.reason_code}"
            for skip in skips.get((own[0].case.model_name, own[0].case.serial), [])
            for label in configurations
            if f"{label}, ".startswith(f"{skip.configuration}, ")
        }
        words |= {label: word for label, row in cells.items() if (word := _word(row, digits))}
        lines.append(
            Line(
                model=_model(own),
                device=own[0].device,
                source="; ".join(dict.fromkeys(row.origin for row in own if row.origin)),
                figures={
                    label: row.median_us
                    for label, row in cells.items()
                    if row.median_us is not None
                },
                words=words,
                rows=cells,
            )
        )
    return lines


def _model(rows: Sequence[ResultRow]) -> str:
    """Return a model's name, with the tokens that all rows of a language model have in common."""
    tokens = {worded(dict(row.case.flags)) if row.case.is_per_token else "" for row in rows}
    if len(tokens) > 1 or "" in tokens:
        return rows[0].model.label
    return f"{rows[0].case.model_name}, {tokens.pop()}".removesuffix(", per token")


def matrix_table(
    name: str, caption: str, lines: Sequence[Line], labels: Sequence[str], digits: int
) -> Table[Line]:
    """Return the table of some lines with a column for each configuration."""

    def column(label: str) -> Column[Line]:
        return Column(
            f"{label}, median_us",
            label,
            lambda line: line.figures.get(label),
            **MS,
            digits=digits,
            shown=lambda line: line.words.get(label),
            tone=lambda line: look_of(row) if (row := line.rows.get(label)) is not None else "",
            case=lambda line: row.key if (row := line.rows.get(label)) is not None else "",
            bar=lambda line: line.share(label),
        )

    return Table(
        name=name,
        caption=caption,
        columns=[
            # A page's rows have a badge.
            Column("device", "phone", lambda line: line.device.label, forms=PAGE),
            Column("device", "phone", lambda line: line.device.title, forms=LINES | DATA),
            Column("serial", "serial", lambda line: line.device.serial, forms=DATA),
            Column("is_virtual", "", lambda line: line.device.is_virtual, Kind.FLAG, forms=DATA),
            *map(column, labels),
            Column("remarks", "", lambda line: line.remarks, forms=DATA),
        ],
        rows=lines,
        is_virtual=lambda line: line.device.is_virtual,
    )


def _word(row: ResultRow, digits: int) -> str:
    """Return what people read of a case beside or instead of a figure in milliseconds."""
    if row.is_unused_thread_count:
        return "same: uses no threads"
    if row.own is None:
        return row.why_not_clean
    notes = unusual(row, is_mixed=True)
    if not notes and not row.case.is_per_token:
        return ""
    unit = " tokens/s" if row.case.is_per_token else ""
    return f"{figure_text(row.case, row.median_us, digits)}{unit}{f' ({notes})' if notes else ''}"
