"""The command ``table``: the fastest configuration of each model and phone, or all of them beside
each other, on request with published figures.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from typer import Option

from orchestrator.errors import UsageError, choices, nearest
from orchestrator.installation import data_folder
from orchestrator.plugins import CommandResult, Settings, Texts, command, room, tables_result
from orchestrator.records import frozen
from orchestrator.records.case import FIGURE_PASS, grouped, name_fits
from orchestrator.records.device import device_matches
from orchestrator.records.model import FIGURE, PHASES, TOKENS, worded
from orchestrator.tables.table import DATA, MS, Column, Kind, Table
from orchestrator.units import US_PER_MS, US_PER_S, counted, first_few, split

if TYPE_CHECKING:
    from orchestrator.plugins import Workspace
    from orchestrator.records.campaign import Campaign
    from orchestrator.records.case import CampaignId, Case, ModelSha, Serial
    from orchestrator.report.tables import MatrixLine
    from orchestrator.tables.rows import ResultRow

#: Named wherever the figures are shown.
_GUIDE: Final = "TensorFlow Lite performance guide"


@frozen
class PublishedFigure:
    """A figure of a public table."""

    model: str
    device: str
    #: The short name of a configuration: ``cpu, 4 threads``, ``gpu``.
    configuration: str
    #: The time of one token for a language model.
    latency_us: float
    #: The published digits, with their unit.
    text: str
    unit: str = "ms"
    #: The name of its table, with date and notes.
    source: str
    #: The file that `benchfarm model fetch` gets; empty where nothing is fetched.
    file_name: str = ""

    def matches(self, row: ResultRow, names: Iterable[str]) -> bool:
        """Whether a case of this lab has the same model (by one of ``names``), phone, delegate and
        number of threads.
        """
        delegate, _, threads = self.configuration.partition(", ")
        labels = {name.lower().removesuffix(".tflite") for name in names}
        return (
            not labels.isdisjoint({self.model.lower(), self.file_name})
            and device_matches(self.device, row.device.names)
            and row.case.delegate == delegate
            and (not threads or row.case.threads == int(threads.split()[0]))
        )


def load_published() -> tuple[PublishedFigure, ...]:
    """Return the figures of the public performance guide."""
    return tuple(
        PublishedFigure(
            model=row["model"],
            device=row["device"],
            # The file has ``cpu_4_threads``.
            configuration=row["configuration"].replace("_", ", ", 1).replace("_", " "),
            latency_us=float(row["latency_ms"]) * US_PER_MS,
            text=row["latency_ms"],
            source=_GUIDE,
            file_name=row["file_name"],
        )
        for row in _rows("tflite_published.csv")
        if row["latency_ms"]
    )


def load_language_models() -> tuple[PublishedFigure, ...]:
    """Return the published figures of language models: of each row its prefill and its decode."""
    return tuple(
        PublishedFigure(
            model=_model(row, phase),
            device=row["device"],
            configuration=row["backend"].lower(),
            latency_us=US_PER_S / float(row[f"{phase}_tok_s"]),
            text=row[f"{phase}_tok_s"],
            unit="tokens/s",
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
    tokens = {name: row["context_tokens" if name == "max_num_tokens" else name] for name in TOKENS}
    figure = worded({FIGURE: phase, **{name: value for name, value in tokens.items() if value}})
    name = f"{row['model']} {row['quantization']}".strip()
    return f"{name}, {figure.removesuffix(', per token')}"


_PUBLISHED: Final = {"published": load_published, "language-models": load_language_models}
_NO_FIGURE: Final = "There is no figure for these devices and models."
#: A model's content and the phone that it ran on.
_Place: TypeAlias = "tuple[ModelSha, Serial]"
#: Campaigns that are searched for figures of each phone and model.
_MOST_CAMPAIGNS: Final = 50
_OLDER: Final = (
    "Only the newest campaign of each model and phone is shown: --campaign names others."
)
#: Unfinished campaigns that are named.
_MOST_NAMED: Final = 3
_SEARCHED: Final = f"The newest {_MOST_CAMPAIGNS} campaigns were searched."


@frozen
class TableRequest:
    """The rows of a table: of which devices, models, sources and campaigns."""

    devices: Sequence[str]
    models: Sequence[str]
    sources: Sequence[str]
    campaigns: Sequence[str]
    #: Whether every configuration is printed, not only the fastest.
    every: bool

    def has(self, model: Iterable[str], device: Sequence[str]) -> bool:
        """Whether a model and a device, each by its names, are selected."""
        is_model = any(_model_matches(name, label) for label in model for name in self.models)
        is_device = any(device_matches(name, device) for name in self.devices)
        return (is_model or not self.models) and (is_device or not self.devices)


def _model_matches(pattern: str, model: str) -> bool:
    """Whether a model's name fits a pattern, with or without ``.tflite``."""
    spelled = {model.lower(), model.lower().removesuffix(".tflite")}
    return name_fits(pattern, spelled)


@command("table", has_table=True)
def show_table(
    settings: Settings,
    *,
    devices: Annotated[
        Texts,
        Option("--serial", "-s", help="Profiles, names or serial numbers (a,b) (default: all)."),
    ] = None,
    models: Annotated[
        Texts,
        Option("--model", "-m", help="Name or pattern of a model. Repeat for several."),
    ] = None,
    sources: Annotated[
        Texts,
        Option("--source", help="store, published, language-models (a,b) (default: store)."),
    ] = None,
    campaigns: Annotated[
        Texts,
        Option(
            "--campaign",
            help="Use only this campaign (default: the newest of each model and phone). "
            "Repeat for several.",
        ),
    ] = None,
    every: Annotated[
        bool, Option("--all", help="Print every configuration, not only the fastest.")
    ] = False,
) -> CommandResult:
    """Print the fastest configuration of each model and phone.

    Example: benchfarm table --format markdown

    Suited to a pull request. --all shows all configurations side by side; --source adds published
    results.
    """
    from orchestrator.plugins import Workspace, find_campaigns

    request = TableRequest(
        devices=split(devices),
        models=models or (),
        sources=split(sources) or ["store"],
        campaigns=campaigns or (),
        every=every,
    )
    sources_known = ("store", *_PUBLISHED)
    for source in request.sources:
        if source not in sources_known:
            raise UsageError(f"there is no source {source!r}", hint=choices(source, sources_known))
    figures = [
        figure
        for source, load in _PUBLISHED.items()
        if source in request.sources
        for figure in load()
    ]
    with Workspace(settings, makes_store=False) as workspace:
        _check_devices(workspace, request, [figure.device for figure in figures])
        chosen: Sequence[Campaign] = ()
        newest: Mapping[_Place, Campaign] = {}
        if "store" in request.sources:
            chosen = find_campaigns(workspace.store, *request.campaigns)
            newest = {} if chosen else _newest(workspace)
        if not chosen and not newest and not figures:
            raise _nothing_stored(workspace)
        return tables_result(
            *_tables(workspace, request, chosen, newest, figures),
            width=room(),
        )


#: A published figure and the case of this lab that it is compared with.
_Pair: TypeAlias = "tuple[PublishedFigure, ResultRow]"
_BESIDE: Final[Sequence[Column[_Pair]]] = (
    Column("model", value=lambda both: both[0].model),
    Column("device", "phone", lambda both: both[1].device.title),
    Column("configuration", value=lambda both: both[0].configuration),
    Column("theirs_us", "theirs", lambda both: both[0].latency_us, **MS),
    Column("mine_us", "mine", lambda both: _mine_us(both[1]), **MS),
    Column(
        "ratio",
        "mine is",
        lambda both: _mine_us(both[1]) / both[0].latency_us,
        Kind.NUMBER,
        digits=2,
        shown=lambda both: f"{_mine_us(both[1]) / both[0].latency_us:.2f} of theirs",
    ),
    Column("is_virtual", value=lambda both: both[1].is_virtual, kind=Kind.FLAG, forms=DATA),
    Column("source", value=lambda both: both[0].source),
)


def _mine_us(row: ResultRow) -> float:
    """Return a clean case's figure in microseconds, 0 for one that has none."""
    return (row.median_us or 0.0) if row.is_judged else 0.0


def _comparison_table(
    figures: Sequence[PublishedFigure],
    rows: Sequence[ResultRow],
    names: Mapping[str, Collection[str]],
) -> Table[_Pair]:
    """Return the published figures that this lab has a clean one of, not an imported one; of several
    the fastest of a real phone.
    """
    mine = [row for row in rows if _mine_us(row) and not row.origin]
    both = [
        (figure, min(matching, key=lambda row: (row.is_virtual, _mine_us(row))))
        for figure in figures
        if (matching := [row for row in mine if figure.matches(row, names[row.model.subject])])
    ]
    return Table(
        name="beside",
        caption="Latency: the means that others published, and the figures measured here",
        columns=_BESIDE,
        rows=both,
        nothing="Nothing that others published has a clean figure of this lab beside it.",
        is_virtual=lambda item: item[1].is_virtual,
    )


def _tables(
    workspace: Workspace,
    request: TableRequest,
    chosen: Sequence[Campaign],
    newest: Mapping[_Place, Campaign],
    figures: Sequence[PublishedFigure],
) -> Iterator[Table[Any]]:
    """Yield the table, of the chosen campaigns or of each model's and phone's newest one, and the
    comparison with published figures where both are shown.
    """
    from orchestrator.analysis.case_result import CaseStatus
    from orchestrator.plugins import report_data
    from orchestrator.report.tables import labels_of, lines_of, matrix_table
    from orchestrator.report.winners import fastest_notes, fastest_table
    from orchestrator.tables.labels import short_names
    from orchestrator.tables.results import figures_decimals

    by_id = {campaign.campaign_id: campaign for campaign in (*chosen, *newest.values())}

    def is_newest(case: Case, campaign_id: CampaignId) -> bool:
        campaign = newest.get(_place_of(case))
        return campaign is None or campaign.campaign_id == campaign_id

    data = report_data(workspace, list(by_id.values()), has_logs=False, is_shown=is_newest)
    store = workspace.store
    notes = [_OLDER] if newest and len(by_id) < store.campaign_count() else []
    if newest and len(store.campaigns(limit=_MOST_CAMPAIGNS + 1)) > _MOST_CAMPAIGNS:
        notes.append(_SEARCHED)
    called = {
        subject: {name for row in rows for name in (row.model.label, row.case.model_name)}
        for subject, rows in grouped(data.results, lambda row: row.model.subject).items()
    }
    of_figures = [figure.model for figure in figures]
    _check_models(workspace, request, [*chain.from_iterable(called.values()), *of_figures])

    def is_selected(row: ResultRow) -> bool:
        return request.has(called[row.model.subject], row.device.names)

    unfinished = {
        item.campaign_id
        for row in data.results
        for item in row.campaigns
        if is_selected(row) and not item.status.is_over
    }
    if unfinished:
        ids = ", ".join(first_few(sorted(unfinished, reverse=True), _MOST_NAMED))
        notes.append(f"Not finished, figures may change: {ids}.")
    if not request.every and not figures:
        fastest = fastest_table([item for item in data.contests if is_selected(item.shown)])
        is_all = not (request.models or request.devices)
        yield replace(
            fastest,
            nothing=fastest.nothing if is_all else _NO_FIGURE,
            notes=(*fastest.notes, *notes),
            groups=int(room() is not None),
        )
        return
    rows = [
        row for row in data.results if row.status is not CaseStatus.UNTIMED and is_selected(row)
    ]
    published = [figure for figure in figures if request.has([figure.model], (figure.device,))]
    names = short_names((row.configuration, row.case) for row in rows)
    labels = [*labels_of(rows, names), *(figure.configuration for figure in published)]
    matrix = matrix_table(
        "matrix",
        "Latency by model and phone",
        [*lines_of(rows, (), names), *_published_lines(published)],
        list(dict.fromkeys(labels)),
        figures_decimals(rows),
    )
    around: Sequence[Column[MatrixLine]] = (
        Column("model", value=lambda row: row.model),
        Column("source", value=lambda row: row.source, is_optional=True),
    )
    yield replace(
        matrix,
        columns=(around[0], *matrix.columns, around[1]),
        # On a terminal, where columns may be split into several bands, the phone identifies a row.
        groups=int(room() is not None),
        nothing=_NO_FIGURE,
        notes=(*fastest_notes(rows, names), *notes),
    )
    if figures and "store" in request.sources:
        yield _comparison_table(published, rows, called)


def _published_lines(figures: Iterable[PublishedFigure]) -> list[MatrixLine]:
    from orchestrator.report.tables import MatrixCell, MatrixLine
    from orchestrator.tables.rows import DeviceRow

    lines = grouped(figures, lambda figure: (figure.model, figure.device, figure.source))
    return [
        MatrixLine(
            model=model,
            device=DeviceRow(serial="", label=device, is_virtual=False, facts=None),
            source=source,
            cells={
                figure.configuration: MatrixCell(
                    latency_us=figure.latency_us,
                    figure=float(figure.text),
                    text=figure.text,
                    unit=figure.unit,
                )
                for figure in members
            },
        )
        for (model, device, source), members in lines.items()
    ]


def _check_devices(workspace: Workspace, request: TableRequest, published: Iterable[str]) -> None:
    """Raise UsageError for an unknown device: a typo would show as an empty table."""
    stored = chain.from_iterable(item.names for item in workspace.store.devices().values())
    shown = dict.fromkeys(filter(None, (*stored, *published)))
    # One of a known profile may be measured some day.
    profiles = [name for item in workspace.profiles.values() for name in (item.name, item.title)]
    for requested in request.devices:
        if not device_matches(requested, (*shown, *profiles)):
            hint = nearest(requested, shown) or "'benchfarm devices' lists those that there are"
            raise UsageError(f"there is no device {requested!r}", hint=hint)


def _check_models(workspace: Workspace, request: TableRequest, names: Iterable[str]) -> None:
    """Raise UsageError for a model that is neither in the store nor among ``names``."""
    stored = (model.name for model in workspace.store.models().values())
    all_names = dict.fromkeys([*stored, *names])
    for requested in request.models:
        if not any(_model_matches(requested, model) for model in all_names):
            hint = (
                nearest(requested, all_names)
                or "'benchfarm table' without it shows those that there are"
            )
            raise UsageError(f"there is no model {requested!r}", hint=hint)


def _nothing_stored(workspace: Workspace) -> UsageError:
    """Return the error for a store without a campaign that ``table`` can show."""
    if listed := workspace.store.campaigns(limit=_MOST_CAMPAIGNS):
        return UsageError(
            f"{counted(len(listed), 'campaign')} searched: there are only A/B comparisons and"
            " campaigns without the pass timing",
            hint=f"'benchfarm table --campaign {listed[0].campaign_id}' shows the newest",
        )
    hint = (
        "'benchfarm bench MODEL' measures; '--source published' shows figures that others published"
    )
    return UsageError("the store has no results yet", hint=hint)


def _newest(workspace: Workspace) -> dict[_Place, Campaign]:
    """Return the newest campaign that measured each model on each phone, without A/B comparisons.

    What a campaign only planned hides no figure of an earlier one, and makes none of its other runs
    be read.
    """
    store = workspace.store
    newest: dict[_Place, Campaign] = {}
    for entry in store.campaigns(limit=_MOST_CAMPAIGNS):
        campaign = store.campaign(entry.campaign_id)
        if campaign is None or campaign.terms.pairing is not None:
            continue
        cases = {
            item.case.case_key: _place_of(item.case)
            for item in campaign.invocations
            if item.run_pass is FIGURE_PASS and _place_of(item.case) not in newest
        }
        places = set(cases.values())
        runs = store.runs(
            campaign_ids=[entry.campaign_id], case_keys=list(cases), run_passes=[FIGURE_PASS]
        )
        for run in runs if places else ():
            if run.is_begun:
                newest[_place_of(run.case)] = campaign
                places.discard(_place_of(run.case))
            if not places:
                break
    return newest


def _place_of(case: Case) -> _Place:
    return case.model_sha256, case.serial
