"""What the library returns: a campaign's cases and a comparison, as rows, as pandas frames, and for
notebooks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from orchestrator.analysis.comparison import ComparedCase
from orchestrator.analysis.comparison import Comparison as Compared
from orchestrator.app.reporting import report_title, write_html
from orchestrator.records.campaign import Campaign
from orchestrator.report.data import ReportData
from orchestrator.tables.column import Column, Form, Kind
from orchestrator.tables.rows import ResultRow
from orchestrator.tables.table import Table
from orchestrator.units import US_PER_MS, counted

if TYPE_CHECKING:
    import pandas as pd

    from orchestrator.app.measuring import MeasuredCampaign

#: Rows that a notebook shows; a frame has all.
_SHOWN = 200
#: The columns of a frame that people use, by what exports call them; the times are in milliseconds.
_TIMES = {"median_us": "ms", "interval_low_us": "ci_low", "interval_high_us": "ci_high"}
_USUAL = {name: name for name in ("model", "device", "serial", "delegate", "threads")}
_USUAL |= _TIMES | {"invocations_used": "runs", "quality": "quality", "outputs": "outputs"}
_USUAL |= {"campaign_id": "campaign"}


class Results(Sequence[ResultRow]):
    """The cases of one campaign, or of several, each with its figure and what that is worth.

    A sequence of :class:`orchestrator.tables.rows.ResultRow`, by model, device and configuration.
    """

    def __init__(
        self,
        data: ReportData,
        campaigns: Sequence[Campaign],
        *,
        measured: MeasuredCampaign | None = None,
    ) -> None:
        self.data = data
        self.campaigns = tuple(campaigns)
        #: At least so many invocations aren't measured yet; ``Lab.resume`` measures them.
        self.left = measured.result.left if measured else 0
        #: Devices that were lost, and those that were meant and could not be used -> why.
        self.lost = (
            {str(serial): why for serial, why in measured.result.lost.items()} if measured else {}
        )
        self.missing = dict(measured.missing) if measured else {}
        #: What was meant and isn't there, as the command line tells it.
        self.problems = measured.problems if measured else []
        #: The report that was written last, which a notebook links to.
        self._report: Path | None = None

    @property
    def campaign_id(self) -> str:
        """The id of the newest campaign among them."""
        return max(self.campaigns, key=lambda item: item.created_at).campaign_id

    @property
    def title(self) -> str:
        """The campaigns' names."""
        return report_title(self.campaigns)

    def frame(self, what: Literal["usual", "all", "runs"] = "usual") -> pd.DataFrame:
        """Return one row a case with its twelve usual columns or with all, or one row a run.

        The usual columns are model, device, serial, delegate, threads, ms, ci_low, ci_high (the
        95 % interval in ms), runs, quality, outputs and campaign. The names of all others are those
        of exports, with their units (docs/reference/exports.md). What isn't known is ``<NA>``;
        moments are UTC timestamps. With ``all`` each row says whether it is virtual and
        where it was imported from.
        """
        from orchestrator.report.exports import frame_of

        whole = frame_of(self.data, "invocations" if what == "runs" else "cases")
        if what != "usual":
            return whole
        usual = whole[list(_USUAL)].rename(columns=_USUAL)
        usual[list(_TIMES.values())] /= US_PER_MS
        return usual

    def report(self, path: str | Path) -> Path:
        """Write the HTML report, one file that needs nothing else.

        Raises UsageError, HostStorageError.
        """
        self._report = Path(path)
        write_html(self.data, self._report, title=self.title)
        return self._report

    def __len__(self) -> int:
        return len(self.data.results)

    def __iter__(self) -> Iterator[ResultRow]:
        return iter(self.data.results)

    def __getitem__(self, index: int | slice) -> ResultRow | tuple[ResultRow, ...]:  # type: ignore[override]
        return self.data.results[index]

    def __repr__(self) -> str:
        ids = ", ".join(item.campaign_id for item in self.campaigns)
        return f"<Results {self.title!r} ({ids}): {'1 case' if len(self) == 1 else f'{len(self)} cases'}>"

    def __str__(self) -> str:
        from orchestrator.report.tables import render_text_table

        return render_text_table(self.data).rstrip("\n")

    def _repr_html_(self) -> str:
        notes = list(self.data.headline.answers) if len(self) else []
        notes += [self.data.headline.trust] if len(self) else [self.data.headline.scope]
        notes += self.problems
        if self._report is None:
            notes += [
                "results.report('report.html') writes the whole report, one file, and links it"
            ]
        from orchestrator.tables.results import bar_of, results_table

        table = results_table(self.data.results)
        place = [column.name for column in table.columns].index("median_us") + 1
        columns = [*table.columns[:place], bar_of(self.data.results), *table.columns[place:]]
        return notebook_html(
            replace(table, columns=columns), self.title, notes, report=self._report
        )


def notebook_html(
    table: Table[Any],
    title: str,
    notes: Sequence[str] = (),
    *,
    report: Path | None = None,
) -> str:
    """Return a table for a notebook: its first rows, winners bold, bars beside figures, and how many
    more there are.

    ``report`` is linked to.
    """
    from orchestrator.tables.html import template

    shown = replace(table, rows=table.listed[:_SHOWN])
    columns = shown.of(Form.MARKDOWN)
    cells = zip(*(_notebook_cells(column, shown.listed) for column in columns), strict=True)
    looks = map(shown.look, shown.listed)
    return template("notebook.html.j2").render(
        title=title,
        headers=[column.title for column in columns],
        rows=[
            (own, look in {"winner", "unproven"}) for own, look in zip(cells, looks, strict=True)
        ],
        notes=notes,
        report=report and (report.as_uri() if report.is_absolute() else quote(report.as_posix())),
        more=len(table.listed) - len(shown.listed),
    )


def _notebook_cells(column: Column[Any], rows: Sequence[Any]) -> Sequence[object]:
    """Return a column's texts; of bars how long they are in percent."""
    if column.kind is not Kind.BAR:
        return column.cells(rows)
    return [round(100 * (column.value(row) or 0.0)) for row in rows]


class Comparison(Sequence[ComparedCase]):
    """Two sides case by case: a sequence of ComparedCase, and the verdict on the whole."""

    def __init__(self, compared: Compared) -> None:
        self.compared = compared

    @property
    def counts(self) -> dict[str, int]:
        """How many cases have each verdict: ``slower``, ``faster``, ``same``, ``inconclusive``,
        ``incomparable``.
        """
        return {outcome.value: count for outcome, count in self.compared.counts.items()}

    def frame(self) -> pd.DataFrame:
        """Return one row a case, broken ones first; ``ratio`` is candidate time / baseline time."""
        from orchestrator.tables import frame
        from orchestrator.tables.comparisons import compared_table

        return frame.render(compared_table(self.compared))

    def to_json(self) -> dict[str, object]:
        """Return all of it as plain values and records: latencies in microseconds."""
        from orchestrator.report.comparisons import to_data

        return to_data(self.compared)

    def __len__(self) -> int:
        return len(self.compared.rows)

    def __iter__(self) -> Iterator[ComparedCase]:
        return iter(self.compared.rows)

    def __getitem__(self, index: int | slice) -> ComparedCase | tuple[ComparedCase, ...]:  # type: ignore[override]
        return self.compared.rows[index]

    def __repr__(self) -> str:
        return f"<Comparison of {self.compared.baseline!r} and {self.compared.candidate!r}: {counted(len(self), 'case')}>"

    def __str__(self) -> str:
        from orchestrator.report.comparisons import to_text

        return to_text(self.compared)

    def _repr_html_(self) -> str:
        from orchestrator.report.comparisons import summary_line
        from orchestrator.tables.comparisons import compared_table

        table = compared_table(self.compared)
        notes = [
            f"{row.title}: {reason}" for row in table.listed for reason in row.verdict.reasons
        ][:_SHOWN]
        return notebook_html(table, summary_line(self.compared), notes)
