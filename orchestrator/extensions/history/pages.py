"""The pages of a site of history pages as HTML, and the files that they share."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Final

from orchestrator.analysis.case_result import CaseStatus
from orchestrator.errors import NotFoundError, UsageError
from orchestrator.extensions.history.answers import CampaignAnswer, ChangeAnswer, NightFigure
from orchestrator.extensions.history.changepoint import SEGMENT_NIGHTS
from orchestrator.extensions.history.changes import CHANGES
from orchestrator.extensions.history.regressions import SILENT_NIGHTS, ChangeGroup, LatencyChange
from orchestrator.extensions.history.site import (
    Site,
    SiteSeries,
    first_night,
    gather,
)
from orchestrator.files import unwritable, write_file
from orchestrator.installation import data_folder
from orchestrator.plugins import Page, Workspace, every, report_data, state_counts
from orchestrator.records import frozen
from orchestrator.records.answers import FarmAnswer
from orchestrator.records.case import CampaignId, grouped
from orchestrator.records.plan import StoppingRule
from orchestrator.records.verdict import ParityVerdict, Quality
from orchestrator.report.drawing import Across, Ends, Line, Mark, Point, axis_of, lines, sparkline
from orchestrator.report.render import render_html
from orchestrator.tables.farm import (
    TONES,
    cancel_button,
    hosts_table,
    jobs_table,
    pause_button,
    phones_table,
)
from orchestrator.tables.html import Html, fold, mark, template
from orchestrator.tables.labels import STATE_CLASSES, STATUS_WORDS, moment_text, short_names
from orchestrator.tables.table import MS, NOTHING, PAGE, Column, Kind, Table, column_decimals
from orchestrator.units import US_PER_MS, first_few, format_change

#: Rows of the overview for browsers without scripts.
_PLAIN_ROWS: Final = 200
_MAX_GROUPS: Final = 12
_MAX_MEMBERS: Final = 20
#: Jobs that the farm's page lists, at most; with more than _MAX_OPEN, submissions are folded.
_MAX_JOBS: Final = 100
_MAX_OPEN: Final = 12
_MAX_ORIGINS: Final = 3
#: A line is broken where this many nights have no figure.
_GAP: Final = 8


@frozen
class WrittenSite:
    """The contents of a site's folder."""

    path: Path
    series: int
    nights: int
    reports: int
    #: Pages that were new or changed, were up to date, and were obsolete.
    written: int
    unchanged: int
    removed: int


@cache
def shared_files() -> Mapping[str, str]:
    """Return the style sheet and the script by their paths: those of the report and of these pages.
    Their names contain their hash.
    """
    folder = data_folder("reports") / "templates"
    files = {}
    for ending, names in (
        ("css", ("report.css", "site.css")),
        ("js", ("page.js", "tables.js", "farm.js")),
    ):
        content = "".join((folder / name).read_text("utf-8") for name in names)
        digest = hashlib.sha256(content.encode()).hexdigest()[:12]
        files[f"assets/benchfarm-{digest}.{ending}"] = content
    return files


@lru_cache(maxsize=1)
def overview_page(site: Site) -> str:
    """Return the overview: the changes, and all series, worst first.

    A lab's thousands of series take seconds: a server has it rendered once for a site.
    """
    table = _series_table(site)
    return _page(
        "site_overview.html.j2",
        site,
        here="overview",
        root="",
        silent=sum(row.silent_nights >= SILENT_NIGHTS for row in site.series),
        faulty=site.faulty_outputs[:_MAX_GROUPS],
        more_faulty=max(0, len(site.faulty_outputs) - _MAX_GROUPS),
        groups=[_group(item) for item in site.groups[:_MAX_GROUPS]],
        more_groups=max(0, len(site.groups) - _MAX_GROUPS),
        most_members=_MAX_MEMBERS,
        plain=replace(table, rows=table.listed[:_PLAIN_ROWS]),
        table=table,
        fold=fold(table),
        is_virtual=site.has_virtual,
        is_mixed=site.has_real,
    )


def _group(group: ChangeGroup) -> dict[str, object]:
    """Return a group of changes for the overview's template."""
    members = group.members
    notes = [item.expected for item in members]
    states = Counter(item.state for item in members)
    return {
        "sentence": group.sentence,
        "members": [
            (item.series.key, f"{item.series.label}: {format_change(item.ratio)}")
            for item in members
        ],
        "status": ", ".join(f"{count} {state}" for state, count in states.items()),
        # A group is expected when all its changes are.
        "expected": ", ".join(dict.fromkeys(notes)) if all(notes) else "",
        # A single series' label says so itself.
        "is_virtual": len(members) > 1 and any(item.series.is_virtual for item in members),
    }


def campaigns_page(site: Site) -> str:
    """Return the index of campaigns."""
    return _page(
        "site_campaigns.html.j2",
        site,
        here="campaigns",
        root="../",
        table=Table(
            name="campaigns",
            caption="Campaigns",
            columns=_CAMPAIGNS,
            rows=site.campaigns,
            nothing="There is none.",
            key=lambda item: item.page,
            link=("../", ""),
        ),
        is_virtual=any(item.is_virtual for item in site.campaigns),
        is_mixed=site.has_real,
    )


def farm_page(
    farm: FarmAnswer, changes: Sequence[ChangeAnswer], now: datetime, *, is_part: bool
) -> str:
    """Return the live page of the farm, or the part of it that its script polls."""
    jobs = grouped(farm.jobs[:_MAX_JOBS], lambda job: job.submission)
    states = Counter(item.state for item in farm.devices)
    return template("site_farm_now.html.j2" if is_part else "site_farm.html.j2").render(
        assets=_assets(),
        here="farm",
        root="",
        is_live=True,
        is_virtual=False,
        more=_more(),
        changes=changes,
        most_changes=_MAX_GROUPS,
        farm=farm,
        states=[(state, count, TONES.get(state) == "v-error") for state, count in states.items()],
        phones=phones_table(farm, now),
        submissions=[
            (
                name,
                state_counts(job.status for job in submission_jobs),
                jobs_table(submission_jobs, now),
                cancel_button(name),
            )
            for name, submission_jobs in jobs.items()
        ],
        more_jobs=len(farm.jobs[_MAX_JOBS:]),
        is_open=len(farm.jobs) <= _MAX_OPEN,
        hosts=hosts_table(farm),
        pause_all=pause_button(farm, "farm", "the whole farm") if farm.has_queue else "",
    )


def series_page(site: Site, row: SiteSeries) -> str:
    """Return the page of one series."""
    nights = site.night_figures(row)
    # The newest first, each once.
    origins = dict.fromkeys(
        site.by_id[item].origin
        for night in reversed(nights)
        for item in night.campaigns
        if item in site.by_id
    )
    return _page(
        "site_series.html.j2",
        site,
        here="series",
        root="../",
        row=row,
        nights=nights,
        chart=_chart(row, nights),
        changed=Table(name="changes", caption="Changes", columns=CHANGES, rows=row.changes[::-1]),
        table=_nights_table(site, row, nights),
        origins=first_few([*filter(None, origins)], _MAX_ORIGINS),
        quality=_quality(row, nights[-1]),
        is_virtual=row.is_virtual,
        is_mixed=False,
    )


def _chart(row: SiteSeries, nights: Sequence[NightFigure]) -> Html:
    """Return a series' nights as a line of points with intervals by date, and its changes and
    events as marks.
    """
    points, ends = [], []
    for night in nights:
        interval, figure = _interval(night), night.median_us / US_PER_MS
        ends += [figure, *(interval or ())]
        words = " ({:.4g} to {:.4g})".format(*interval) if interval else ""
        text = f"{night.night}: {figure:.4g} ms{words}, {_quality(row, night)}"
        style = "" if night.is_clean else "suspect"
        points.append(
            Point(x=night.night.toordinal(), y=figure, interval=interval, told=text, look=style)
        )
    first, last = nights[0].night, nights[-1].night
    marks = [
        Mark(x=event.night.toordinal(), told=f"{event.night}: {event.text}", look="event")
        for event in row.events
        if first <= event.night <= last
    ]
    for change in row.changes:
        ratio = format_change(change.ratio)
        text = f"{ratio} on {change.night}, {change.state}"
        style = "change" if change.counts else "change expected"
        marks.append(Mark(x=change.night.toordinal(), told=text, label=ratio, look=style))
    labelled = dict.fromkeys((first, nights[len(nights) // 2].night, last))
    return lines(
        [Line(points=points, look="virtual" if row.is_virtual else "nights")],
        f"Latency in ms of {len(nights)} nights, {first} to {last}; the table below has all",
        Across(words=[(night.toordinal(), f"{night}") for night in labelled], break_at=_GAP),
        marks=marks,
        # At least 4 % from end to end, so that noise stays small.
        vertical=axis_of([0.98 * min(ends), 1.02 * max(ends)]),
    )


def all_pages(workspace: Workspace, site: Site) -> Mapping[str, Callable[[], str]]:
    """Return a function per page that renders it, by the page's path; the index pages come last.

    Raises PluginError.
    """
    return {
        **{path: partial(str, content) for path, content in shared_files().items()},
        **{
            item.page: partial(campaign_html, workspace, CampaignId(item.campaign_id))
            for item in site.campaigns
        },
        **{
            f"pages/{name}.html": partial(page.render, workspace)
            for name, page in every("pages", Page).items()
        },
        **{f"series/{row.page}": partial(series_page, site, row) for row in site.series},
        "campaigns/index.html": partial(campaigns_page, site),
        "index.html": partial(overview_page, site),
    }


def _page(name: str, site: Site, **values: object) -> str:
    return template(name).render(
        site=site,
        assets=_assets(),
        is_live=site.is_live,
        silent_nights=SILENT_NIGHTS,
        nights_needed=2 * SEGMENT_NIGHTS,
        more=_more(),
        **values,
    )


def _more() -> list[tuple[str, str]]:
    """Return the paths and titles of the pages that plugins add."""
    return [(f"pages/{name}.html", page.title) for name, page in every("pages", Page).items()]


def _assets() -> dict[str, str]:
    return {path.rpartition(".")[2]: path for path in shared_files()}


def _interval(night: NightFigure) -> Ends | None:
    """Return the interval of a night's figure in milliseconds."""
    if night.low_us is None or night.high_us is None:
        return None
    return night.low_us / US_PER_MS, night.high_us / US_PER_MS


def _quality(row: SiteSeries, night: NightFigure) -> str:
    """Return the quality of a night's figure as a text; faulty outputs go first."""
    faulty = row.outputs_on(night.night)
    if faulty is not None:
        return f"outputs {faulty.after.value}"
    if not row.is_confirmed:
        return STATUS_WORDS[CaseStatus.UNCONFIRMED]
    quality = Quality.TRUSTED if night.is_clean else Quality.SUSPECT
    if night.low_us is None or night.high_us is None:
        return f"{quality.word}, one process"
    is_precise = night.high_us - night.low_us <= 2 * StoppingRule().half_width * night.median_us
    return quality.word if is_precise else f"{quality.word}, not precise"


def _nights_table(site: Site, row: SiteSeries, nights: Sequence[NightFigure]) -> Table[NightFigure]:
    """Return the nights of a series, newest first."""
    digits = column_decimals([night.median_us / US_PER_MS for night in nights])

    def interval(night: NightFigure) -> str:
        ends = _interval(night)
        return " - ".join(f"{end:.{digits}f}" for end in ends) if ends else NOTHING

    def reports(night: NightFigure) -> str:
        return mark("reports", [site.by_id[i] for i in night.campaigns if i in site.by_id])

    median = Column[NightFigure]("median", value=lambda night: night.median_us, **MS)
    columns = (
        Column[NightFigure]("night", value=lambda row: row.night),
        replace(median, digits=digits),
        Column[NightFigure]("interval", "95 % interval ms", interval, tone=lambda _: "n"),
        Column[NightFigure]("runs", "invocations", lambda night: night.invocations, Kind.COUNT),
        Column[NightFigure]("quality", value=lambda night: _quality(row, night)),
        Column[NightFigure]("report", value=reports, kind=Kind.MARKUP, forms=PAGE),
    )
    return Table(
        name="nights",
        caption="Table of nights",
        columns=columns,
        rows=nights[::-1],
    )


def _spark(site: Site, row: SiteSeries) -> Html:
    places = {night: place for place, night in enumerate(site.nights)}
    changes = [
        (places[change.night], "change" if change.counts else "change expected")
        for change in row.changes
        if change.night in places
    ]
    return sparkline(row.latency_us.tolist(), changes, _GAP)


_CAMPAIGNS: Final[Sequence[Column[CampaignAnswer]]] = (
    Column("campaign", value=lambda item: item.name, opens=True),
    Column("started", value=lambda item: moment_text(item.created_at)),
    Column("finished", value=lambda item: moment_text(item.finished_at)),
    Column("status", value=lambda row: row.status),
    Column("runs", value=lambda item: f"{item.stored} of {item.planned}", tone=lambda _: "n"),
    Column("host", value=lambda item: item.host or NOTHING),
    Column("campaign_id", "identity", lambda row: row.campaign_id),
    Column("origin", value=lambda row: row.origin, is_optional=True),
)


def _series_table(site: Site) -> Table[SiteSeries]:
    names = short_names((row.case.configuration, row.case) for row in site.series)
    sparklines = {row.page: _spark(site, row) for row in site.series}

    def outputs(row: SiteSeries) -> str:
        item = row.faulty_outputs
        return (
            "" if item is None else "v-error" if item.after is ParityVerdict.WRONG else "v-warning"
        )

    changed = [
        Column[LatencyChange](
            "change",
            "newest change",
            lambda item: item.ratio - 1,
            Kind.NUMBER,
            "%",
            100,
            digits=1,
            is_signed=True,
            is_optional=True,
        ),
        Column[LatencyChange]("changed_on", "on", lambda item: item.night),
        Column[LatencyChange](
            "state",
            value=lambda row: row.state,
            is_choice=True,
            tone=lambda item: STATE_CLASSES.get(item.state, "v-warning"),
        ),
    ]
    columns: Sequence[Column[SiteSeries]] = (
        Column("model", value=lambda row: row.model, opens=True),
        Column("last_us", "last figure", lambda row: row.last_us, **MS),
        Column(
            "against_window",
            "vs window",
            lambda row: row.against_window,
            kind=Kind.NUMBER,
            unit="%",
            scale=100,
            digits=1,
            is_signed=True,
        ),
        Column(
            "nights",
            value=lambda row: sparklines[row.page],
            kind=Kind.PICTURE,
            box="nights",
            forms=PAGE,
        ),
        Column(
            "device",
            value=lambda row: f"{row.facts.kind_title} ({row.case.serial})",
            is_choice=True,
        ),
        Column("configuration", value=lambda row: names.of(row.case.configuration), is_choice=True),
        *(column.of(lambda row: row.newest) for column in changed),
        Column(
            "outputs",
            value=lambda row: row.faulty_outputs and row.faulty_outputs.after,
            tone=outputs,
            is_choice=True,
            is_optional=True,
        ),
        Column("last_night", value=lambda row: site.nights[row.last_place], is_choice=True),
    )
    return Table(
        name="series",
        caption="All series, worst first",
        columns=columns,
        rows=site.series,
        key=lambda row: row.page.removesuffix(".html"),
        is_judged=lambda row: row.is_trusted and row.is_confirmed and row.faulty_outputs is None,
        link=("series/", ".html"),
        apart=("configuration", "device"),
        order="worst first",
    )


#: The file that lists a site's files, with the change token of each report.
MANIFEST: Final = ".benchfarm-site.json"
_SITE_PATH: Final = re.compile(
    r"index\.html|(?:assets|series|campaigns|pages)/[a-z0-9-]{1,120}\.(?:html|css|js)"
)


def build(workspace: Workspace, out: Path, *, since: str = "") -> WrittenSite:
    """Write or renew the pages in an empty folder or that of a site. Only changed files are
    written; only files of the site are removed.

    Raises UsageError, HostStorageError.
    """
    site = gather(workspace.store, since=first_night(since, workspace))
    makers = all_pages(workspace, site)
    files = dict.fromkeys(makers, "") | {
        item.page: site.marks[CampaignId(item.campaign_id)] for item in site.campaigns
    }
    previous = _previous_files(out)
    # After an interrupted build the next one still recognises its files.
    _save(out, {**dict.fromkeys(files, ""), **previous})
    written = 0
    for path, make in makers.items():
        target = out / path
        if files[path] and previous.get(path) == files[path] and target.is_file():
            continue
        if target.is_symlink():
            # A page takes its place: what it leads to isn't ours.
            _remove(target)
        content = make().encode()
        if not target.is_file() or _content(target) != content:
            write_file(target, content, makes_folder=True)
            written += 1
    obsolete = previous.keys() - files.keys()
    for path in obsolete:
        _remove(out / path)
    _save(out, files)
    return WrittenSite(
        path=out / "index.html",
        series=len(site.series),
        nights=len(site.nights),
        reports=len(site.campaigns),
        written=written,
        unchanged=len(files) - written,
        removed=len(obsolete),
    )


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise unwritable(path, error) from error


def _previous_files(out: Path) -> dict[str, str]:
    """Return the files of the previous build, with their change tokens; raises UsageError for a
    folder that isn't a site's.
    """
    hint = "choose an empty folder with --out"
    try:
        manifest = json.loads((out / MANIFEST).read_text("utf-8"))
        files = {
            str(path): str(mark) for path, mark in manifest.items() if _SITE_PATH.fullmatch(path)
        }
    except FileNotFoundError:
        if out.is_dir() and any(out.iterdir()):
            raise UsageError(f"{out} isn't a folder of 'history site'", hint=hint) from None
        return {}
    except OSError as error:
        raise UsageError(f"{out}: {error.strerror}", hint=hint) from error
    except (ValueError, AttributeError):
        raise UsageError(f"{out / MANIFEST} can't be read", hint=hint) from None
    for name in ("assets", "series", "campaigns", "pages"):
        if (out / name).is_symlink():
            raise UsageError(f"{out / name} is a link", hint=hint)
    return files


def _save(out: Path, files: Mapping[str, str]) -> None:
    write_file(out / MANIFEST, json.dumps(files, indent=0), makes_folder=True)


def campaign_html(workspace: Workspace, campaign_id: CampaignId) -> str:
    """Return a campaign's report as a page of the site."""
    campaign = workspace.store.campaign(campaign_id)
    if campaign is None:
        raise NotFoundError(f"campaign {campaign_id} was removed")
    data = report_data(workspace, [campaign])
    return render_html(data, title=campaign.name or campaign.campaign_id, is_of_site=True)
