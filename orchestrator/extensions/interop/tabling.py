"""The command ``table``: the comparison table of the public performance guide, from published and
from own figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

from orchestrator.analysis.memory import UNSEEN, Memory
from orchestrator.app.options import Listed, Out, Texts, opt
from orchestrator.app.stored import named_campaigns
from orchestrator.cli.result import format_of, to_json
from orchestrator.errors import UsageError, nearest
from orchestrator.extensions.interop import guide_table
from orchestrator.extensions.interop.guide_table import BEST_WORTH, GuideTable, MeasuredCase
from orchestrator.extensions.interop.published import load_language_models, load_published
from orchestrator.files import write_file
from orchestrator.plugins import CommandResult, Settings, Workspace, command
from orchestrator.records.device import device_matches
from orchestrator.tables.column import Form
from orchestrator.tables.table import render

if TYPE_CHECKING:
    from orchestrator.records.campaign import Campaign
    from orchestrator.records.case import ModelSha, SeriesKey
    from orchestrator.records.run import RunRecord

SOURCES = ("store", "published", "language-models")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRequest:
    """What the table is to show: own figures, and those that others published where they are asked
    for.
    """

    devices: Annotated[
        Listed, opt("--serial -s", "Profiles, names or serial numbers (a,b) (default: all).")
    ] = ()
    configurations: Annotated[
        Texts, opt("--config", "'CPU, 4 threads', GPU, NNAPI ... Repeat for several.")
    ] = ()
    models: Annotated[
        Texts, opt("--model -m", "Name or pattern of a model. Repeat for several.")
    ] = ()
    sources: Annotated[Listed, opt("--source", "store, published, language-models (a,b).")] = (
        "store",
    )
    campaigns: Annotated[
        Texts, opt("--campaign", "Use only this campaign. Repeat for several.")
    ] = ()


def build(workspace: Workspace, request: TableRequest) -> GuideTable:
    """Gather what the table shows.

    Raises UsageError for a source, device or configuration that isn't known.
    """
    for source in request.sources:
        if source not in SOURCES:
            raise UsageError(
                f"there is no source {source!r}", hint=f"choose one of {', '.join(SOURCES)}"
            )
    figures = load_published() if "published" in request.sources else ()
    measured = _measured(workspace, request) if "store" in request.sources else []
    if "language-models" in request.sources:
        figures += load_language_models()

    _check_devices(workspace, request, [figure.device for figure in figures])
    if request.sources == ("store",) and not workspace.store.campaigns():
        hint = "'benchfarm bench MODEL' measures; '--source published' shows figures that others published"
        raise UsageError("the store has no results yet", hint=hint)

    def is_wanted(model: str, names: Sequence[str]) -> bool:
        return _is_one_of(model, request.models) and (
            not request.devices or any(device_matches(wanted, names) for wanted in request.devices)
        )

    shown = [figure for figure in figures if is_wanted(figure.model, (figure.device,))]
    columns = tuple(
        map(guide_table.parse_configuration, request.configurations)
    ) or guide_table.usual_columns(shown, measured)
    lines = [
        *guide_table.measured_lines(measured, columns),
        *guide_table.published_lines(figures, columns, is_wanted=is_wanted),
    ]
    return guide_table.GuideTable(
        columns=columns,
        lines=tuple(
            line for line in lines if any(cell.latency_us is not None for cell in line.cells)
        ),
    )


def _check_devices(workspace: Workspace, request: TableRequest, published: Iterable[str]) -> None:
    """Raise UsageError for a device that nothing is known of: a typo would show as an empty table,
    or not at all.
    """
    if not request.devices:
        return
    known = dict.fromkeys(
        name for profile in workspace.profiles.values() for name in (profile.name, profile.title)
    )
    known |= dict.fromkeys(
        name for facts in workspace.store.devices().values() for name in facts.names if name
    )
    known |= dict.fromkeys(published)
    for wanted in request.devices:
        if not device_matches(wanted, tuple(known)):
            hint = (
                nearest(wanted, known)
                or "'benchfarm devices' and 'benchfarm table' list those that there are"
            )
            raise UsageError(f"there is no device {wanted!r}", hint=hint)


def _measured(workspace: Workspace, request: TableRequest) -> list[MeasuredCase]:
    """Return the wanted cases of the campaigns that are named, else of the newest down to one that
    is known well.

    That is of a series and a model's content. A comparison side by side (A/B) replays old builds:
    only who names it sees it.
    """
    from orchestrator.analysis.case_result import OutputChecks, judge_case, remembered

    chosen = named_campaigns(workspace.store, request.campaigns) or [
        campaign for campaign in workspace.store.campaigns() if campaign.terms.pairing is None
    ]
    facts = workspace.store.devices()
    wanted = [
        serial
        for serial, of_device in facts.items()
        if not request.devices
        or any(device_matches(name, of_device.names) for name in request.devices)
    ]
    left = _open_places(workspace, wanted, request.models)
    found: list[MeasuredCase] = []
    for campaign in chosen:
        if not left:
            break

        def key_of(run: RunRecord) -> str:
            return run.case.case_key

        runs = [
            run
            for run in workspace.store.runs(
                campaign_ids=(campaign.campaign_id,), series_keys=sorted({key for key, _ in left})
            )
            if (run.case.series_key, run.case.model_sha256) in left
            and not campaign.is_warm_up(run.run_pass, run.invocation)
        ]
        done: set[tuple[SeriesKey, ModelSha]] = set()
        groups = {
            key: list(of_case) for key, of_case in groupby(sorted(runs, key=key_of), key=key_of)
        }
        others: dict[str, Memory] = {}
        for serial in {group[0].case.serial for group in groups.values()}:
            others |= remembered(
                {key: own for key, own in groups.items() if own[0].case.serial == serial},
                [campaign],
            )
        checks = OutputChecks([campaign.terms.output_checks])
        for run in runs:
            checks.learn(run)
        for key, group in groups.items():
            found.append(
                MeasuredCase(
                    case=group[0].case,
                    result=judge_case(
                        group, others=others.get(key, UNSEEN), check=checks.of(group[0].case)
                    ),
                    facts=facts[group[0].case.serial],
                    campaign=campaign,
                )
            )
            # Nothing that is older can be known better.
            is_best = found[-1].latency_us is not None and found[-1].worth == BEST_WORTH
            if is_best and not request.campaigns:
                done.add((group[0].case.series_key, group[0].case.model_sha256))
        left -= done
    return found


def _open_places(
    workspace: Workspace, wanted: Sequence[str], models: Sequence[str]
) -> set[tuple[SeriesKey, ModelSha]]:
    """Return what has been measured on the wanted devices: series, and of each the contents of its
    model.
    """
    series = {
        key: case
        for key, case in workspace.store.series().items()
        if case.serial in wanted and _is_one_of(case.model_name, models)
    }
    if not series:
        return set()
    points = workspace.store.points(series_keys=sorted(series))
    measured = {
        (points.series[at].series_key, points.contents[contents].model_sha256)
        for at, contents in set(zip(points.series_at, points.contents_at, strict=True))
    }
    return {*measured, *((key, case.model_sha256) for key, case in series.items())}


def _is_one_of(model: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(model.lower(), pattern.lower()) for pattern in patterns)


@dataclass(frozen=True, kw_only=True)
class TableOutput:
    """How 'table' is written."""

    form: Annotated[
        str,
        opt(
            "--format -f",
            "text, markdown, html, csv, latex or json (default: by --out, else text).",
        ),
    ] = ""
    title: Annotated[str, opt("--title", "Title of the HTML page.")] = (
        "Latency by device and delegate"
    )
    out: Out = None


@command("table")
def show_table(
    settings: Settings,
    request: TableRequest,
    output: TableOutput,
    *,
    every: Annotated[bool, opt("--all", "Every configuration, not the fastest alone.")] = False,
) -> CommandResult:
    """Print the fastest configuration of each model and phone.

    Example: benchfarm table --format markdown

    For a pull request. --config, --source and --all show configurations beside each other.
    """
    form = format_of(
        output.form,
        output.out,
        ("text", "markdown", "html", "csv", "latex", "json"),
        default="text",
    )
    with Workspace(settings, makes_store=False) as workspace:
        is_plain = not every and not request.configurations and request.sources == ("store",)
        if is_plain and form != "latex":
            return _fastest(workspace, request, output, form)
        built = build(workspace, request)
    from orchestrator.report.render import render_template

    document = guide_table.to_document(built)
    text = {
        "text": lambda: guide_table.format_text(built),
        "markdown": lambda: guide_table.format_markdown(built),
        "csv": lambda: guide_table.format_csv(built),
        "latex": lambda: guide_table.format_latex(built),
        "html": lambda: render_template("guide_table.html.j2", title=output.title, table=built),
        "json": lambda: to_json(document),
    }[form]()
    return _written(output, text, document)


def _written(output: TableOutput, text: str, document: Mapping[str, object]) -> CommandResult:
    if output.out is not None:
        write_file(output.out, text)
        return CommandResult(text=str(output.out), data={"path": output.out, **document})
    return CommandResult(text=text.rstrip("\n"), data=document)


def _fastest(
    workspace: Workspace, request: TableRequest, output: TableOutput, form: str
) -> CommandResult:
    """Return the fastest configurations of the campaigns that are named, else of the newest ones."""
    from orchestrator.app.reporting import report_data
    from orchestrator.report.winners import fastest_notes, fastest_table

    _check_devices(workspace, request, ())
    chosen = named_campaigns(workspace.store, request.campaigns) or _newest(workspace)
    if not chosen:
        hint = "'benchfarm bench MODEL' measures; '--source published' shows figures that others published"
        raise UsageError("the store has no results yet", hint=hint)
    contests = [
        item
        for item in report_data(workspace, chosen).contests
        if _is_one_of(item.shown.case.model_name, request.models)
        and (not request.devices or any(map(item.shown.device.is_called, request.devices)))
    ]
    table, notes = fastest_table(contests), fastest_notes(contests)
    rows = [table.record(row) for row in table.listed]
    parts = [str(render(table, Form(form))).rstrip("\n")]
    if form in {Form.TEXT, Form.MARKDOWN} and rows:
        parts += ["", *notes]
    text = "\n".join(parts) + "\n"
    data = {"rows": rows, "notes": notes}
    if form == Form.JSON:
        text = to_json(data) + "\n"
    return _written(output, text, data)


#: Campaigns that are looked through for what was measured of each phone and model.
_MOST_CAMPAIGNS = 50


def _newest(workspace: Workspace) -> list[Campaign]:
    """Return the newest campaigns with a case of each model and phone, none that only pairs."""
    store, seen = workspace.store, set[tuple[str, str]]()
    found = []
    for listed in store.campaigns()[:_MOST_CAMPAIGNS]:
        campaign = store.campaign(listed.campaign_id)
        if campaign is None or campaign.terms.pairing is not None:
            continue
        places = {(item.case.model_sha256, item.case.serial) for item in campaign.invocations}
        if places - seen:
            found.append(campaign)
            seen |= places
    return found
