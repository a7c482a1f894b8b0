"""The library's interface: a Lab with its devices and its store. It returns cases and comparisons
as rows, as pandas frames, and for notebooks. ``docs/python.md`` has examples.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar, get_args

from orchestrator.analysis.comparison import ComparedCase
from orchestrator.analysis.comparison import Comparison as Compared
from orchestrator.app import comparing
from orchestrator.app.requests import CompareOptions
from orchestrator.app.status import event_text
from orchestrator.app.stored import find_campaigns, report_data, report_title, write_html
from orchestrator.app.workspace import Workspace
from orchestrator.errors import BenchfarmError, UsageError, choices
from orchestrator.records import frozen
from orchestrator.records.campaign import Campaign
from orchestrator.records.plan import Plan
from orchestrator.report.data import ReportData
from orchestrator.settings import Settings
from orchestrator.tables.comparisons import compared_table, summary_line, to_data, to_text
from orchestrator.tables.escapes import one_line
from orchestrator.tables.renderers import as_frame
from orchestrator.tables.results import bar_column, results_table
from orchestrator.tables.rows import ResultRow
from orchestrator.units import US_PER_MS, OneOrMore, as_list, counted

if TYPE_CHECKING:
    import pandas as pd

    from orchestrator.app.measuring import MeasuredCampaign
    from orchestrator.app.phones import DeviceList


#: Characters of the progress line.
_LINE_WIDTH: Final = 100


@frozen
class Progress:
    """An event of a measurement; its ``str()`` is one line for people."""

    text: str
    #: One of the records of ``orchestrator.engine.events``.
    event: object

    def __str__(self) -> str:
        return self.text


class ProgressLine:
    """Writes progress to standard error as one line that is overwritten."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._width = 0

    def __call__(self, progress: Progress) -> None:
        """Overwrite the line with new progress."""
        text = one_line(progress.text)[:_LINE_WIDTH]
        with self._lock:
            sys.stderr.write(f"\r{text.ljust(self._width)}")
            sys.stderr.flush()
            self._width = len(text)

    def end(self) -> None:
        """End the line, if there is one."""
        with self._lock:
            if self._width:
                sys.stderr.write("\n")
            self._width = 0


class Lab:
    """The phones of this computer, this computer itself, and the store of their results.

    A context manager: it closes the store at its end. Nothing but progress is written, and no
    signal handler is set; phones are restored before a call returns or raises, also after Ctrl-C
    (KeyboardInterrupt), which is raised as InterruptedByUserError; what was measured until then
    :meth:`load` returns, as the error's own ``data()`` reads a workspace that is closed by then.
    """

    def __init__(
        self,
        *,
        home: str | Path | None = None,
        store: str | Path | None = None,
        adb: str | Path | None = None,
        adb_server: str | None = None,
        progress: Callable[[Progress], object] | bool | None = None,
    ) -> None:
        """Use these, else what the environment says (``BENCHFARM_HOME`` ...), else the user's own
        folders.

        Args:
            home: Folder for store, cache and state.
            store: Database file or URL; ``:memory:`` for one that ends with the lab.
            adb: The adb program to use.
            adb_server: ``host:port`` of the adb server to use.
            progress: Called with each Progress, from any thread; must return quickly.
                True writes progress as one line, False nothing. Default: the line on a terminal
                and in a notebook.
        """
        settings = Settings.from_environment(
            home=Path(home) if home is not None else None,
            store=str(store) if store is not None else None,
        )
        self.settings = replace(
            settings,
            adb=str(adb) if adb is not None else settings.adb,
            adb_server=adb_server if adb_server is not None else settings.adb_server,
        )
        if progress is None:
            progress = sys.stderr.isatty() or "ipykernel" in sys.modules
        self._line = ProgressLine() if progress is True else None
        self._progress = progress if callable(progress) else self._line
        #: Keeps the store open from the first campaign on.
        self._keeper: Workspace | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the store; the lab may be used again."""
        if self._keeper is not None:
            self._keeper.close_store()
            self._keeper = None

    def on_event(self, event: object) -> None:
        """Pass an event on to ``progress``."""
        if self._progress is None:
            return
        if text := event_text(event):
            self._progress(Progress(text=text, event=event))

    def __repr__(self) -> str:
        return f"Lab(store={self.settings.store_title!r})"

    def _repr_html_(self) -> str:
        from orchestrator.app.phones import DeviceList

        notes = [f"store: {self.settings.store_title}"]
        try:
            return self.devices().to_html(notes)
        except BenchfarmError as error:
            return DeviceList().to_html([str(error), *notes])

    def devices(self) -> DeviceList:
        """Return a list of the attached phones, with the reason of those that can't be used.

        Raises AdbUnavailableError, PlanError.
        """
        from orchestrator.app.phones import list_devices

        with self._workspace(makes_store=False) as workspace:
            return list_devices(workspace)

    def bench(self, model: OneOrMore[str | Path], /, **options: Any) -> Results:  # noqa: ANN401 - each key has its own type
        """Measure models on devices, store the runs, and return the cases.

        Args:
            model: ``.tflite`` file, or several.
            options: Keys of a plan, by the names in ``orchestrator.records.plan``. Common ones:
                ``delegates="cpu,gpu"`` (default: those of phone and program), ``threads=[1, 4]``,
                ``devices="SERIAL"`` (``"host"`` is this computer; default: every usable phone),
                ``invocations=10`` (default: as many as the noise needs).

        Raises:
            PlanError: options with faults, all of them listed.
            UsageError kinds, NoDeviceError, ArtifactError: nothing can be measured; nothing was
                started.
            InterruptedByUserError: Ctrl-C; what was measured is stored, :meth:`resume` measures the
                rest.
            StoreError, HostStorageError: a run couldn't be kept.
        """
        from orchestrator.app import measuring
        from orchestrator.app.attached import Needs

        plan = measuring.bench_plan({**options, "models": model}, in_python=True)
        with self._workspace() as workspace:
            return self._results(measuring.run_plan(workspace, plan, Needs.EACH))

    def run(self, plan: str | Path | Plan) -> Results:
        """Run a plan, or the plan file of this path.

        Raises PlanError with all its faults, else as :meth:`bench`.
        """
        from orchestrator.app import measuring
        from orchestrator.config.plan import load_plan

        if not isinstance(plan, Plan):
            plan = load_plan(Path(plan), home=self.settings.data_folder)
        with self._workspace() as workspace:
            return self._results(measuring.run_plan(workspace, plan))

    def resume(self, campaign: str = "") -> Results | Comparison | None:
        """Measure the remaining runs of an interrupted campaign: that of this id, by default the
        newest open one.

        Returns a Comparison for an A/B comparison, and None when nothing is open. Raises UsageError
        for a campaign that isn't open or that another process runs, else as :meth:`bench`.
        """
        from orchestrator.app import resuming

        with self._workspace(makes_store=False) as workspace:
            done = resuming.resume(workspace, campaign)
            if done is None or done.campaign.terms.pairing is None:
                return None if done is None else self._results(done)
            return Comparison(comparing.pair_comparison(workspace, done.checked().campaign))

    def compare(
        self,
        a: str | Results | None = None,
        b: str | Results | None = None,
        *,
        by: str | None = None,
        campaigns: OneOrMore[str] = (),
        threshold: float | None = None,
        level: float | None = None,
        allow: OneOrMore[str] = (),
    ) -> Comparison:
        """Compare what is stored, case by case.

        Args:
            a: The baseline: a campaign's id or the beginning of one, ``newest``, ``previous`` (the
                default), or Results. With ``by`` a build, model, device, delegate or configuration
                (``"threads=1"``). An A/B comparison alone is shown as it was measured.
            b: The candidate; the newest campaign by default.
            by: ``build``, ``model``, ``device``, ``delegate`` or ``config``: compare within
                campaigns.
            campaigns: With ``by``: the campaigns to search. Default: the newest one that has both
                sides.
            threshold: Smaller differences don't count, as a share (default: 0.02, or that of an A/B
                comparison).
            level: Confidence level of the intervals, as a share (default: 0.99).
            allow: Facts that may differ, for example ``system``.

        Raises UsageError for an unknown side, axis or fact.
        """
        if a is None and b is not None:
            a = "previous"
        sides = [
            side if isinstance(side, str) else side.campaign_id
            for side in (a, b)
            if side is not None
        ]
        options = CompareOptions(
            by=by or "campaign",
            campaign=as_list(campaigns),
            threshold=threshold,
            level=level,
            allow=as_list(allow),
        )
        with self._workspace(makes_store=False) as workspace:
            return Comparison(comparing.compare(workspace, sides, options))

    def load(self, campaign: OneOrMore[str] = "newest") -> Results:
        """Return stored campaigns: by id, the beginning of one, name, ``newest``, ``previous``;
        several as one.

        Raises UsageError for a campaign that isn't stored, StoreMissingError for a missing store.
        """
        with self._workspace(makes_store=False) as workspace:
            chosen = find_campaigns(workspace.store, *as_list(campaign))
            return Results(report_data(workspace, chosen), chosen)

    def _workspace(self, *, makes_store: bool = True) -> Workspace:
        if makes_store and self._keeper is None:
            self._keeper = Workspace(self.settings)
        store = self._keeper.store if self._keeper is not None else None
        return Workspace(self.settings, store=store, makes_store=makes_store, observer=self)

    def _results(self, measured: MeasuredCampaign) -> Results:
        """Return the results of a campaign.

        Raises what ended a device's part and isn't the device's.
        """
        if self._line is not None:
            self._line.end()
        return Results(measured.checked().data, measured.campaigns, measured=measured)


def bench(model: OneOrMore[str | Path], /, **options: Any) -> Results:  # noqa: ANN401 - each key has its own type
    """Measure models with the default Lab: see :meth:`Lab.bench`."""
    with Lab() as lab:
        return lab.bench(model, **options)


def run(plan: str | Path | Plan) -> Results:
    """Run a plan with the default Lab: see :meth:`Lab.run`."""
    with Lab() as lab:
        return lab.run(plan)


def compare(
    a: str | Results | None = None, b: str | Results | None = None, *, by: str | None = None
) -> Comparison:
    """Compare what the default Lab has stored: see :meth:`Lab.compare`."""
    with Lab() as lab:
        return lab.compare(a, b, by=by)


def load(campaign: OneOrMore[str] = "newest") -> Results:
    """Return stored results with the default Lab: see :meth:`Lab.load`."""
    with Lab() as lab:
        return lab.load(campaign)


#: The columns of a frame that people use, by their names in exports; the times are in milliseconds.
_TIMES = {"median_us": "ms", "interval_low_us": "ci_low", "interval_high_us": "ci_high"}
_USUAL = {name: name for name in ("model", "device", "serial", "delegate", "threads")}
_USUAL |= _TIMES | {"invocations_used": "runs", "quality": "quality", "outputs": "outputs"}
_USUAL |= {"campaign_id": "campaign"}


_RowT = TypeVar("_RowT")
_Frame = Literal["usual", "all", "runs"]


class _Rows(Sequence[_RowT]):
    """Rows that are read like a tuple."""

    _rows: Sequence[_RowT]

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int | slice) -> _RowT | Sequence[_RowT]:  # type: ignore[override]
        return self._rows[index]


class Results(_Rows[ResultRow]):
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
        self._rows = data.results
        self.campaigns = tuple(campaigns)
        #: The least number of invocations that aren't measured yet; ``Lab.resume`` measures them.
        self.left = measured.result.left if measured else 0
        #: Devices that were lost, and those that were meant and could not be used -> why.
        self.lost = (
            {str(serial): why for serial, why in measured.result.lost.items()} if measured else {}
        )
        self.missing = dict(measured.missing) if measured else {}
        #: The requested results that are missing, as the command line names them.
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

    def frame(self, what: _Frame = "usual") -> pd.DataFrame:
        """Return one row a case with its twelve usual columns or with all, or one row a run.

        The usual columns are model, device, serial, delegate, threads, ms, ci_low, ci_high (the
        95 % interval in ms), runs, quality, outputs and campaign. The names of all others are those
        of exports, with their units (docs/reference/exports.md). What isn't known is ``<NA>``;
        moments are UTC timestamps. With ``all`` each row says whether it is virtual and
        where it was imported from. Raises UsageError for any other word.
        """
        from orchestrator.report.exports import frame_of

        if what not in get_args(_Frame):
            raise UsageError(f"there is no frame {what!r}", hint=choices(what, get_args(_Frame)))
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

    def __repr__(self) -> str:
        ids = ", ".join(item.campaign_id for item in self.campaigns)
        return f"<Results {self.title!r} ({ids}): {counted(len(self), 'case')}>"

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
        from orchestrator.tables.html import notebook_html

        table = results_table(self.data.results)
        place = [column.name for column in table.columns].index("median_us") + 1
        columns = [*table.columns[:place], bar_column(self.data.results), *table.columns[place:]]
        with_bars = replace(table, columns=columns)
        return notebook_html(with_bars, self.title, notes, report=self._report)


class Comparison(_Rows[ComparedCase]):
    """Two sides case by case: a sequence of ComparedCase, and the verdict on the whole."""

    def __init__(self, compared: Compared) -> None:
        self.compared = compared
        self._rows = compared.rows

    @property
    def counts(self) -> dict[str, int]:
        """How many cases have each verdict: ``slower``, ``faster``, ``same``, ``inconclusive``,
        ``incomparable``.
        """
        return {outcome.value: count for outcome, count in self.compared.counts.items()}

    def frame(self) -> pd.DataFrame:
        """Return one row a case, broken ones first; ``ratio`` is candidate time / baseline time."""
        return as_frame(compared_table(self.compared))

    def to_json(self) -> dict[str, object]:
        """Return all of it as plain values and records: latencies in microseconds."""
        return to_data(self.compared)

    def __repr__(self) -> str:
        return f"<Comparison of {self.compared.baseline!r} and {self.compared.candidate!r}: {counted(len(self), 'case')}>"

    def __str__(self) -> str:
        return to_text(self.compared)

    def _repr_html_(self) -> str:
        from orchestrator.tables.html import NOTEBOOK_ROWS, notebook_html

        table = compared_table(self.compared)
        notes = [
            f"{row.title}: {reason}" for row in table.listed for reason in row.verdict.reasons
        ][:NOTEBOOK_ROWS]
        return notebook_html(table, summary_line(self.compared), notes)
