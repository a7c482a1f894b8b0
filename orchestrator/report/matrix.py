"""All configurations of each model: a table of devices by configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.analysis.case_result import CaseStatus
from orchestrator.records.case import grouped
from orchestrator.report.data import ReportData
from orchestrator.tables.column import NOTHING, Column, Kind
from orchestrator.tables.labels import ShortNames, configuration_order, figure_text
from orchestrator.tables.results import figures_decimals
from orchestrator.tables.rows import BestMark, DeviceRow, ResultRow
from orchestrator.tables.table import Table
from orchestrator.units import US_PER_MS


@dataclass(frozen=True, slots=True)
class Line:
    """A device with its cases by configuration, and why others were skipped there."""

    device: DeviceRow
    rows: Mapping[str, ResultRow]
    skipped: Mapping[str, str]

    def share(self, label: str) -> float | None:
        """Return a figure as a share of the device's slowest: one slow phone says nothing of
        others.
        """
        row = self.rows.get(label)
        most = max((item.median_us or 0.0 for item in self.rows.values()), default=0.0)
        return None if row is None or row.median_us is None else row.median_us / most


def matrix_tables(data: ReportData, names: ShortNames) -> list[Table[Line]]:
    """Return a table for each model that has a case, in the order of the data."""
    skips = grouped(data.skipped, lambda skip: (skip.skipped.model_name, skip.device.serial))
    models = grouped(data.results, lambda row: row.model.subject).values()
    tables = []
    for number, rows in enumerate(models):
        # Where a delegate uses no threads on any device, another column has the figures of all.
        cases = {row.configuration: row.case for row in rows if not row.is_unused_thread_count}
        labels = sorted(cases, key=lambda label: configuration_order(cases[label], label))
        lines = []
        for serial, own in grouped(rows, lambda row: row.device.serial).items():
            # A column shows the same combination for another device.
            skipped = {
                label: skip.skipped.reason_code
                for skip in skips.get((own[0].case.model_name, serial), [])
                for label in labels
                if f"{label}, ".startswith(f"{skip.configuration}, ")
            }
            lines.append(Line(own[0].device, {row.configuration: row for row in own}, skipped))
        tables.append(_table(f"matrix-{number}", rows, labels, lines, names))
    return tables


def _table(
    name: str,
    rows: Sequence[ResultRow],
    labels: Sequence[str],
    lines: Sequence[Line],
    names: ShortNames,
) -> Table[Line]:
    digits = figures_decimals(rows)

    def column(label: str) -> Column[Line]:
        return Column(
            label,
            names.of(label),
            lambda line: (row := line.rows.get(label)) and row.median_us,
            Kind.NUMBER,
            "",
            1 / US_PER_MS,
            digits,
            shown=lambda line: _word(line, label),
            tone=lambda line: _tone(line.rows.get(label)),
            case=lambda line: row.key if (row := line.rows.get(label)) is not None else "",
            bar=lambda line: line.share(label),
        )

    return Table(
        name=name,
        caption=f"{rows[0].model.label}: median in ms of each configuration",
        columns=[
            Column("device", "phone", lambda line: line.device.label),
            *map(column, labels),
        ],
        rows=lines,
        is_virtual=lambda line: line.device.is_virtual,
    )


def _word(line: Line, label: str) -> str | None:
    """Return what stands in the place of a figure; None for a figure in milliseconds."""
    row = line.rows.get(label)
    if row is None:
        return f"skipped: {line.skipped[label]}" if label in line.skipped else NOTHING
    if row.is_unused_thread_count:
        return "same: uses no threads"
    if row.own is None:
        return row.unclean_reason
    return f"{figure_text(row.case, row.median_us, 0)} tokens/s" if row.case.is_per_token else None


def _tone(row: ResultRow | None) -> str:
    if row is None or row.is_unused_thread_count:
        return ""
    if row.own is None:
        return "bad" if row.result.status is not CaseStatus.SKIPPED else ""
    return "winner" if row.best is not BestMark.NONE else "" if row.result.is_judged else "doubt"
