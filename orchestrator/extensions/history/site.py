"""What history pages show: the series over the nights, what changed, and the campaigns."""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, tzinfo
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import numpy as np
from numpy.typing import NDArray

from orchestrator import __version__
from orchestrator.app.options import opt
from orchestrator.extensions.history.causes import (
    content_differences,
    content_steps,
    system_differences,
)
from orchestrator.extensions.history.changepoint import WINDOW_NIGHTS
from orchestrator.extensions.history.changes import night_meant
from orchestrator.extensions.history.regressions import (
    ChangeGroup,
    FoundChange,
    OutputsChange,
    Question,
    Regressions,
    describe_series,
    find_regressions,
    fits,
    plain_campaigns,
    read_nights,
)
from orchestrator.extensions.history.series import (
    NightDetails,
    NightTable,
    first_moment,
    night_details,
    night_of,
    night_table,
)
from orchestrator.installation import data_folder
from orchestrator.plugins import Workspace
from orchestrator.records.campaign import Campaign
from orchestrator.records.case import FIGURE_PASS, CampaignId, Case, SeriesKey
from orchestrator.records.device import DeviceFacts
from orchestrator.records.history import Contents, DeviceSighting, Points, RunMark
from orchestrator.records.parity import ParityVerdict
from orchestrator.records.run import THREADS_UNUSED, Outcome
from orchestrator.records.verdict import Grade, Quality
from orchestrator.tables.labels import page_name

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

TITLE: Final = "Benchmark history"
#: A figure that is at least this many nights old is shown as missing.
SILENT_NIGHTS: Final = 3

Since = Annotated[str, opt("--since", "90d, 12w or a date (default: the newest 90 runs).")]
Title = Annotated[str, opt("--title", "Title of the overview.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteRequest:
    """Which pages are written, and where."""

    out: Annotated[Path, opt("--out -o", "Folder of the pages: empty, or that of a site.")]
    since: Since = ""
    title: Title = TITLE
    reports: Annotated[
        int | None, opt("--limit", "Write a page for at most N campaigns (default: all).", min=0)
    ] = None
    fresh: Annotated[bool, opt("--force", "Write existing reports again.")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteEvent:
    """Something that happened beside a series: a note of a person, an update of its phone, another
    program.
    """

    night: date
    #: ``note``, ``system``, ``build``, ``model``, ``file``, ``outputs``, ``figures`` or ``no
    #: figure``.
    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteNight:
    """One night of one series."""

    night: date
    median_us: float
    low_us: float
    high_us: float
    invocations: int
    is_trusted: bool
    campaigns: tuple[CampaignId, ...]


@dataclass(frozen=True, kw_only=True)
class SiteSeries:
    """One series over the site's nights."""

    key: SeriesKey
    case: Case
    facts: DeviceFacts | None
    is_virtual: bool
    #: Of the runs that the newest figure is of, the worst; empty when none was given.
    grade: str
    changes: tuple[FoundChange, ...]
    events: tuple[SiteEvent, ...]
    #: Of each of the site's nights, NaN where there is none.
    latency_us: NDArray[np.float64]
    last_place: int
    is_trusted: bool
    #: Where the outputs became worth something else, oldest first.
    outputs: tuple[OutputsChange, ...] = ()

    @property
    def page(self) -> str:
        """The file name of its page."""
        return f"{page_name(self.key)}.html"

    @property
    def phone(self) -> str:
        """The device as people know it."""
        return (
            self.facts.title.removesuffix(" (virtual)")
            if self.facts is not None
            else str(self.case.serial)
        )

    @property
    def model(self) -> str:
        """The model's name without its ending."""
        return self.case.model_name.removesuffix(".tflite")

    @property
    def last_us(self) -> float:
        """The newest figure."""
        return float(self.latency_us[self.last_place])

    @cached_property
    def window_us(self) -> float | None:
        """The median of all nights before the newest figure; None when it is the only one."""
        before = self.latency_us[: self.last_place]
        there = before[np.isfinite(before)]
        return float(np.median(there)) if there.size else None

    @property
    def against_window(self) -> float | None:
        """The newest figure against the median of the nights before it, as a relative difference."""
        return None if self.window_us is None else self.last_us / self.window_us - 1

    @property
    def newest(self) -> FoundChange | None:
        """The newest change."""
        return self.changes[-1] if self.changes else None

    def outputs_on(self, night: date) -> OutputsChange | None:
        """Return what the outputs are worth on a night when they are wrong or drift; None else."""
        known = [item for item in self.outputs if item.night <= night]
        return known[-1] if known and known[-1].after is not ParityVerdict.SAME else None

    @property
    def faulty_outputs(self) -> OutputsChange | None:
        """What the outputs are worth now when they are wrong or drift; None else."""
        return self.outputs_on(date.max)

    @property
    def silent_nights(self) -> int:
        """Nights of the farm since the newest figure."""
        return len(self.latency_us) - 1 - self.last_place

    @property
    def badness(self) -> float:
        """The order of the overview: the logarithm of the slow-down, by its newest change or
        against the window.

        The larger counts; outputs that are wrong and weren't expected to be are worse than any.
        After a change that is expected or refuted, the nights since then are the window.
        """
        faulty = self.faulty_outputs
        if faulty is not None and faulty.after is ParityVerdict.WRONG and not faulty.expected:
            return math.inf
        newest = self.newest
        if newest is not None and not newest.counts:
            return math.log(self.last_us / newest.after_us)
        worst = math.log1p(self.against_window or 0.0)
        return worst if newest is None else max(worst, math.log(newest.ratio))

    @property
    def label(self) -> str:
        """One line that names it."""
        return f"{self.model} on {self.phone} ({self.case.serial}), {self.case.configuration}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteCampaign:
    """A campaign as the index lists it."""

    campaign: Campaign
    stored: int
    planned: int
    is_virtual: bool
    #: Whether the site has a page of it.
    has_page: bool
    #: The night in which it began.
    night: date

    @property
    def name(self) -> str:
        """What people call it."""
        return self.campaign.name or self.campaign.campaign_id

    @property
    def page(self) -> str:
        """The file name of its page."""
        return f"{page_name(self.campaign.campaign_id)}.html"


@dataclass(frozen=True, kw_only=True)
class Site:
    """Everything that the pages show."""

    title: str
    since: date | None
    table: NightTable
    details: NightDetails
    #: Worst first.
    series: tuple[SiteSeries, ...]
    groups: tuple[ChangeGroup, ...]
    #: Those that nobody expected and those that are wrong first.
    faulty_outputs: tuple[OutputsChange, ...]
    #: Newest first.
    campaigns: tuple[SiteCampaign, ...]
    #: Whether a server shows it, with the live page of the farm beside it.
    is_live: bool = False

    @property
    def nights(self) -> Sequence[date]:
        """Every night on which anything was measured, in order."""
        return self.table.nights

    @cached_property
    def by_name(self) -> Mapping[str, SiteSeries]:
        """The series by the file name of their page."""
        return {item.page: item for item in self.series}

    @cached_property
    def by_id(self) -> Mapping[CampaignId, SiteCampaign]:
        """The campaigns by their ids."""
        return {item.campaign.campaign_id: item for item in self.campaigns}

    @cached_property
    def _places(self) -> Mapping[SeriesKey, int]:
        return {key: place for place, key in enumerate(self.table.series)}

    @cached_property
    def _campaign_bounds(self) -> NDArray[np.int64]:
        return np.searchsorted(self.details.campaigns[0], np.arange(len(self.table.series) + 1))

    def nights_of(self, series: SiteSeries) -> list[SiteNight]:
        """Return the nights of a series that have a figure, oldest first."""
        place = self._places[series.key]
        details = self.details
        campaigns: dict[int, list[CampaignId]] = {}
        begin, end = self._campaign_bounds[place : place + 2].tolist()
        _, nights, ids = details.campaigns
        for number in range(begin, end):
            campaigns.setdefault(int(nights[number]), []).append(ids[number])
        columns = zip(
            self.nights,
            self.table.latency_us[place].tolist(),
            details.low_us[place].tolist(),
            details.high_us[place].tolist(),
            details.invocations[place].tolist(),
            details.is_trusted[place].tolist(),
            strict=True,
        )
        return [
            SiteNight(
                night=night,
                median_us=median,
                low_us=low,
                high_us=high,
                invocations=count,
                is_trusted=is_trusted,
                campaigns=tuple(campaigns.get(number, ())),
            )
            for number, (night, median, low, high, count, is_trusted) in enumerate(columns)
            if math.isfinite(median)
        ]

    @property
    def has_virtual(self) -> bool:
        """Whether any figure is a virtual phone's."""
        return any(item.is_virtual for item in self.series) or any(
            item.is_virtual for item in self.campaigns
        )

    @property
    def has_real(self) -> bool:
        """Whether any figure is a real device's."""
        return any(not item.is_virtual for item in self.series)


def gather(
    store: Store, *, since: date | None, title: str = TITLE, reports: int | None = None
) -> tuple[Site, Mapping[CampaignId, str]]:
    """Return what the pages show, and of each campaign a mark that changes when its report does.

    The marks are of the moment before the rest is read: later ones differ when something changes
    meanwhile.
    """
    campaigns, plain = store.campaigns(), plain_campaigns(store)
    nights = sorted({night_of(item.created_at, store.zone) for item in plain})
    first = since or (nights[-WINDOW_NIGHTS] if len(nights) > WINDOW_NIGHTS else date.min)
    chosen = [item for item in campaigns if night_of(item.created_at, store.zone) >= first]
    marks = report_marks(store, chosen)
    only = {item.campaign_id for item in plain} & {item.campaign_id for item in chosen}
    whole, points = read_nights(store, since=first)
    table = night_table(points, only=only, zone=store.zone)
    details = night_details(points, table)
    found = find_regressions(store, Question(since=first), table=whole)
    series = sorted(
        _series(store, table, details.is_trusted, found, only),
        key=lambda row: (-row.badness, row.key),
    )
    faulty = [item.faulty_outputs for item in series if item.faulty_outputs is not None]
    pages = len(chosen) if reports is None else reports
    progress, virtual = store.progress(), _virtual_campaigns(store, chosen, points)
    site = Site(
        title=title,
        since=since,
        table=table,
        details=details,
        series=tuple(series),
        groups=found.groups,
        # The unexpected and the wrong ones first.
        faulty_outputs=tuple(
            sorted(
                faulty,
                key=lambda item: (
                    bool(item.expected),
                    item.after is not ParityVerdict.WRONG,
                    item.label,
                ),
            )
        ),
        campaigns=tuple(
            SiteCampaign(
                campaign=item,
                stored=progress.get(item.campaign_id, (0, 0))[0],
                planned=progress.get(item.campaign_id, (0, 0))[1],
                is_virtual=item.campaign_id in virtual,
                has_page=number < pages,
                night=night_of(item.created_at, store.zone),
            )
            for number, item in enumerate(chosen)
        ),
    )
    return site, marks


def _series(
    store: Store,
    table: NightTable,
    trusted: NDArray[np.bool_],
    found: Regressions,
    only: Collection[CampaignId],
) -> Iterator[SiteSeries]:
    """Yield every series of a table; ``only`` are the campaigns that count."""
    cases, devices, words = store.series(), store.devices(), describe_series(store)
    builds = {str(sha256): build.name for sha256, build in store.builds().items()}
    annotations = [
        item for item in store.annotations() if table.nights and item.night >= table.nights[0]
    ]
    updates = {
        serial: _updates(seen, table, store.zone) for serial, seen in store.sightings().items()
    }
    changes: dict[SeriesKey, list[FoundChange]] = defaultdict(list)
    for change in sorted(found.changes, key=lambda item: item.night):
        changes[change.series_key].append(change)
    outputs: dict[SeriesKey, list[OutputsChange]] = defaultdict(list)
    for turn in sorted(found.outputs, key=lambda item: item.night):
        outputs[turn.series_key].append(turn)
    last_of = [int(np.flatnonzero(np.isfinite(row))[-1]) for row in table.latency_us]
    mishaps, grades = _mishaps(store, table, only), _grades(store, table, last_of, only)
    for place, key in enumerate(table.series):
        sketch, row = table.sketches[place], table.latency_us[place]
        last = last_of[place]
        events = [
            *(
                SiteEvent(night=item.night, kind="note", text=item.text)
                for item in annotations
                if fits(item.selection, key, words.get(key, {}))
            ),
            *updates.get(sketch.serial, ()),
            *_contents(table, place, builds),
            *mishaps.get(key, ()),
            *(
                SiteEvent(night=item.night, kind="outputs", text=f"outputs {item.turn}")
                for item in outputs[key]
            ),
        ]
        yield SiteSeries(
            key=key,
            case=cases[key],
            facts=devices.get(sketch.serial),
            is_virtual=sketch.is_virtual,
            grade=grades.get(key, ""),
            changes=tuple(changes[key]),
            events=tuple(sorted(events, key=lambda event: event.night)),
            outputs=tuple(outputs[key]),
            latency_us=row,
            last_place=last,
            is_trusted=bool(trusted[place, last]),
        )


def _updates(
    seen: Sequence[DeviceSighting], table: NightTable, zone: tzinfo | None
) -> list[SiteEvent]:
    """Return what became another thing on a device within the nights."""
    events = []
    for before, after in pairwise(seen):
        night = night_of(after.at, zone)
        changed = [f"{name} {old} -> {new}" for name, old, new in system_differences(before, after)]
        if changed and table.nights and night >= table.nights[0]:
            events.append(SiteEvent(night=night, kind="system", text="; ".join(changed)))
    return events


def _contents(table: NightTable, place: int, builds: Mapping[str, str]) -> Iterator[SiteEvent]:
    """Yield the nights from which a series had another program, model or library."""
    for night, before, after in content_steps(table, place):
        for name, old, new in content_differences(before, after, builds):
            yield SiteEvent(
                night=table.nights[night],
                kind=name.partition(" ")[0],
                text=f"{name} {old} -> {new}",
            )


def _mishaps(
    store: Store, table: NightTable, only: Collection[CampaignId]
) -> dict[SeriesKey, list[SiteEvent]]:
    """Return of each series the nights that it has no figure of, with what became of their runs."""
    if not table.nights:
        return {}
    place_of_night = {night: place for place, night in enumerate(table.nights)}
    row_of = {key: row for row, key in enumerate(table.series)}
    codes: dict[tuple[SeriesKey, date], Counter[str]] = defaultdict(Counter)
    for mark in store.marks(since=first_moment(table.nights[0], store.zone)):
        night, row = night_of(mark.created_at, store.zone), row_of.get(mark.series_key)
        place = place_of_night.get(night)
        is_figure = (
            mark.run_pass is FIGURE_PASS
            and mark.reason_code != THREADS_UNUSED
            and mark.campaign_id in only
        )
        if (
            is_figure
            and row is not None
            and place is not None
            and not np.isfinite(table.latency_us[row][place])
        ):
            codes[mark.series_key, night][_what_became(mark)] += 1
    events: dict[SeriesKey, list[SiteEvent]] = defaultdict(list)
    for (key, night), counts in codes.items():
        text = ", ".join(
            code if count == 1 else f"{code} ({count} times)"
            for code, count in counts.most_common()
        )
        events[key].append(SiteEvent(night=night, kind="no figure", text=text))
    return events


def _what_became(mark: RunMark) -> str:
    """Return the code that says why a run has no figure."""
    if mark.outcome is Outcome.COMPLETED:
        return f"rejected: {', '.join(mark.findings) or mark.reason_code or 'its findings say why'}"
    return ": ".join(dict.fromkeys(word for word in (mark.outcome.value, mark.reason_code) if word))


def _grades(
    store: Store, table: NightTable, last: Sequence[int], only: Collection[CampaignId]
) -> dict[SeriesKey, Grade]:
    """Return of each series the worst grade of the runs that its newest figure is of; of the newest
    nights only.
    """
    first = max(0, len(table.nights) - SILENT_NIGHTS)
    recent = {
        key: (row, place)
        for row, (key, place) in enumerate(zip(table.series, last, strict=True))
        if place >= first
    }
    wanted = {table.nights[place] for _, place in recent.values()}
    zone = store.zone
    own = [item for item in store.campaigns() if item.campaign_id in only]
    nights = {item.campaign_id: night_of(item.created_at, zone) for item in own}
    asked = [campaign for campaign, night in nights.items() if night in wanted]
    grades: dict[tuple[SeriesKey, Quality], list[Grade | None]] = defaultdict(list)
    for run in store.runs(campaign_ids=asked) if asked else ():
        key = run.case.series_key
        row, place = recent.get(key, (-1, -1))
        if place < 0 or table.nights[place] != nights[run.campaign_id]:
            continue
        if (
            run.latency_us is not None
            and _contents_of(run.case) == table.contents[int(table.contents_at[row][place])]
        ):
            grades[key, run.verdict.quality].append(run.verdict.grade)
    # As the figure: of the trusted ones where there are any.
    counted = {
        key: grades.get((key, Quality.TRUSTED)) or grades.get((key, Quality.SUSPECT), [])
        for key in recent
    }
    return {
        key: max(known)
        for key, of_key in counted.items()
        if (known := [item for item in of_key if item])
    }


def _contents_of(case: Case) -> Contents:
    return Contents(
        model_sha256=case.model_sha256,
        build_sha256=case.build_sha256,
        files=tuple(sorted(case.files)),
    )


def report_marks(store: Store, campaigns: Sequence[Campaign]) -> Mapping[CampaignId, str]:
    """Return of each campaign what its report depends on, as a hash: how far it is, and what was
    read from its runs.
    """
    progress = store.progress()
    readings = store.readings([item.campaign_id for item in campaigns])
    marks = {}
    for item in campaigns:
        told = (
            __version__,
            _templates_key(),
            item.name,
            item.status.value,
            item.finished_at,
            item.terms.origin,
            progress.get(item.campaign_id),
            readings.get(item.campaign_id, ""),
        )
        marks[item.campaign_id] = hashlib.sha256(
            repr(told).encode(errors="surrogatepass")
        ).hexdigest()
    return marks


def _virtual_campaigns(
    store: Store, campaigns: Sequence[Campaign], points: Points
) -> Collection[CampaignId]:
    """Return the campaigns with virtual phones; those without any figure are asked for their cases."""
    devices = store.devices()
    is_virtual = [item.is_virtual for item in points.series]
    places = {
        at
        for at, series in zip(points.campaign_at, points.series_at, strict=True)
        if is_virtual[series]
    }
    virtual = {points.campaigns[place].campaign_id for place in places}
    known = {item.campaign_id for item in points.campaigns}
    for item in campaigns:
        whole = None if item.campaign_id in known else store.campaign(item.campaign_id)
        serials = {one.case.serial for one in whole.invocations} if whole is not None else set()
        if any(devices[serial].is_virtual for serial in serials if serial in devices):
            virtual.add(item.campaign_id)
    return virtual


def first_night(since: str, workspace: Workspace) -> date | None:
    """Return the night that ``--since`` means, None for the newest ninety; raises UsageError."""
    return night_meant(since, workspace, "--since") if since else None


@cache
def _templates_key() -> str:
    """Return a hash of all templates: with another one, pages look another way."""
    files = sorted((data_folder("reports") / "templates").iterdir())
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
