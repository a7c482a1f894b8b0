"""Contents of the history pages: series over the nights, their changes, and campaigns."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, tzinfo
from functools import cache, cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from orchestrator import __version__
from orchestrator.clock import night_of
from orchestrator.extensions.history.answers import (
    CampaignAnswer,
    ChangeAnswer,
    NightFigure,
    SeriesAnswer,
)
from orchestrator.extensions.history.causes import (
    content_differences,
    content_steps,
    system_differences,
)
from orchestrator.extensions.history.changepoint import WINDOW_NIGHTS
from orchestrator.extensions.history.regressions import (
    ChangeGroup,
    LatencyChange,
    OutputsChange,
    Question,
    Regressions,
    campaign_nights,
    find_regressions,
    fits,
    parse_night,
    read_nights,
)
from orchestrator.extensions.history.series import (
    NightDetails,
    NightTable,
    Series,
    night_details,
    night_table,
)
from orchestrator.installation import data_folder
from orchestrator.plugins import Workspace
from orchestrator.records import frozen
from orchestrator.records.answers import answer_of
from orchestrator.records.campaign import Campaign
from orchestrator.records.case import Build, CampaignId, SeriesKey, grouped
from orchestrator.records.history import DeviceSighting
from orchestrator.records.verdict import ParityVerdict
from orchestrator.tables.devices import origin_of
from orchestrator.tables.labels import page_name

if TYPE_CHECKING:
    from orchestrator.store.opening import Store


@frozen
class SiteEvent:
    """An event of a series: an annotation, an update of its phone, another program."""

    night: date
    #: ``note``, ``system``, ``build``, ``model``, ``file`` or ``outputs``.
    kind: str
    text: str


@dataclass(frozen=True, kw_only=True)
class SiteSeries(Series):
    """One series over the site's nights, with its changes and events."""

    changes: tuple[LatencyChange, ...]
    events: tuple[SiteEvent, ...]
    #: Row in the site's table.
    place: int
    #: Of each of the site's nights, NaN where there is none.
    latency_us: NDArray[np.float64]
    last_place: int
    is_trusted: bool
    #: Whether its newest figure shows where the operators ran.
    is_confirmed: bool
    #: Changes of the outputs' verdict, oldest first; also the last one before these nights, if they
    #: began with outputs that were wrong or drifted.
    outputs: tuple[OutputsChange, ...] = ()

    @property
    def last_us(self) -> float:
        """The newest figure."""
        return float(self.latency_us[self.last_place])

    @cached_property
    def against_window(self) -> float | None:
        """The newest figure against the median of the nights before it, as a relative difference;
        None when it is the only one.
        """
        before = self.latency_us[: self.last_place]
        figures = before[np.isfinite(before)]
        return self.last_us / float(np.median(figures)) - 1 if figures.size else None

    @property
    def newest(self) -> LatencyChange | None:
        """The newest change."""
        return self.changes[-1] if self.changes else None

    def outputs_on(self, night: date) -> OutputsChange | None:
        """Return the change since which a night's outputs are wrong or drift, or None."""
        earlier = [item for item in self.outputs if item.night <= night]
        return earlier[-1] if earlier and earlier[-1].after is not ParityVerdict.SAME else None

    @property
    def faulty_outputs(self) -> OutputsChange | None:
        """The change after which the outputs are wrong or drift now; None if they don't."""
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
        news = [math.log(item.ratio) for item in self.changes if item.is_news and item.counts]
        if newest is not None and not newest.counts:
            return max([math.log(self.last_us / newest.after_us), *news])
        if newest is not None:
            news.append(math.log(newest.ratio))
        return max([math.log1p(self.against_window or 0.0), *news])


@dataclass(frozen=True, kw_only=True, eq=False)
class Site:
    """The contents of all pages."""

    table: NightTable
    details: NightDetails
    #: Worst first.
    series: tuple[SiteSeries, ...]
    groups: tuple[ChangeGroup, ...]
    #: The changes that 'history changes' reports, also those that began before these nights.
    news: tuple[LatencyChange, ...]
    #: Unexpected ones first, then wrong ones before drifted ones.
    faulty_outputs: tuple[OutputsChange, ...]
    #: Newest first.
    campaigns: tuple[CampaignAnswer, ...]
    #: A change token per campaign's report. They are read first: a change during the rest of the
    #: reading makes later ones differ.
    marks: Mapping[CampaignId, str]
    #: Whether a server shows it, with the live page of the farm beside it.
    is_live: bool = False

    @property
    def nights(self) -> Sequence[date]:
        """Every night on which a campaign was begun, in order."""
        return self.table.nights

    @cached_property
    def by_id(self) -> Mapping[str, CampaignAnswer]:
        """The campaigns by their ids."""
        return {item.campaign_id: item for item in self.campaigns}

    @cached_property
    def _shown(self) -> Collection[SeriesKey]:
        return frozenset(self.table.series)

    def night_figures(self, series: SiteSeries) -> list[NightFigure]:
        """Return the nights of a series that have a figure, oldest first."""
        place, details = series.place, self.details
        of_series, of_night, ids = details.campaigns
        begin, end = np.searchsorted(of_series, [place, place + 1]).tolist()
        campaigns: dict[int, list[str]] = defaultdict(list)
        for night, campaign_id in zip(of_night[begin:end].tolist(), ids[begin:end], strict=True):
            campaigns[night].append(campaign_id)
        return [
            NightFigure(
                night=self.nights[night],
                median_us=float(self.table.latency_us[place, night]),
                low_us=_finite(details.low_us[place, night]),
                high_us=_finite(details.high_us[place, night]),
                invocations=int(details.invocations[place, night]),
                is_clean=bool(details.is_trusted[place, night])
                and series.is_confirmed
                and series.outputs_on(self.nights[night]) is None,
                campaigns=tuple(campaigns[night]),
            )
            for night in np.flatnonzero(np.isfinite(self.table.latency_us[place])).tolist()
        ]

    def series_answer(self, row: SiteSeries) -> SeriesAnswer:
        """Return a series as the API has it."""
        return answer_of(
            SeriesAnswer,
            row,
            series_key=row.key,
            device=row.facts.kind_title,
            serial=row.case.serial,
            configuration=row.case.configuration,
            last_night=self.nights[row.last_place],
            newest_change=row.newest and self.change_answer(row.newest),
            page=f"series/{row.page}",
        )

    def change_answer(self, change: LatencyChange) -> ChangeAnswer:
        """Return a change as the API has it; a series without figures in these nights has no page."""
        series = change.series
        return answer_of(
            ChangeAnswer,
            change,
            series_key=series.key,
            label=series.label,
            page=f"series/{series.page}" if series.key in self._shown else "",
            is_recent=change.is_news,
            is_virtual=series.is_virtual,
        )

    @cached_property
    def change_answers(self) -> Sequence[ChangeAnswer]:
        """All changes, the newest first and of a night the largest first."""
        answers = [self.change_answer(change) for row in self.series for change in row.changes]
        return sorted(
            answers, key=lambda item: (item.night, abs(math.log(item.ratio))), reverse=True
        )

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


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def gather(store: Store, *, since: date | None) -> Site:
    """Return the contents of the pages."""
    campaigns = store.campaigns()
    night_by_campaign = campaign_nights(store, campaigns)
    nights = sorted({*night_by_campaign.values()})
    first = since or (nights[-WINDOW_NIGHTS] if len(nights) > WINDOW_NIGHTS else date.min)
    shown_campaigns = [item for item in campaigns if night_of(item.created_at, store.zone) >= first]
    marks = report_marks(store, shown_campaigns)
    read = read_nights(store, night_by_campaign, first)
    points = read.points
    shown = {item: night for item, night in night_by_campaign.items() if night >= first}
    table = night_table(points, shown)
    details = night_details(points, table)
    regressions = find_regressions(store, Question(since=first), read)
    recent = regressions
    # News may have begun on any of the newest ninety nights.
    if nights and first > nights[-WINDOW_NIGHTS:][0]:
        recent = find_regressions(store, Question(), read)
    series = sorted(
        _series(store, table, details.is_trusted, regressions),
        key=lambda row: (-row.badness, row.key),
    )
    faulty = [item.faulty_outputs for item in series if item.faulty_outputs is not None]
    progress = store.progress()
    return Site(
        table=table,
        details=details,
        series=tuple(series),
        groups=regressions.groups,
        news=tuple(change for change in recent.changes if change.is_news),
        # The unexpected and the wrong ones first.
        faulty_outputs=tuple(
            sorted(
                faulty,
                key=lambda item: (
                    bool(item.expected),
                    item.after is not ParityVerdict.WRONG,
                    item.series.label,
                ),
            )
        ),
        campaigns=tuple(
            answer_of(
                CampaignAnswer,
                item,
                name=item.name or item.campaign_id,
                stored=stored,
                planned=max(stored, planned),
                page=f"campaigns/{page_name(item.campaign_id)}.html",
                origin=origin_of(item),
                is_virtual=is_virtual,
            )
            for item in shown_campaigns
            for stored, planned, _, is_virtual in (progress[item.campaign_id],)
        ),
        marks=marks,
    )


def _series(
    store: Store, table: NightTable, trusted: NDArray[np.bool_], regressions: Regressions
) -> Iterator[SiteSeries]:
    """Yield every series of a table."""
    builds = store.builds()
    annotations = [
        item for item in store.annotations() if table.nights and item.night >= table.nights[0]
    ]
    updates = {
        serial: _updates(sightings, table, store.zone)
        for serial, sightings in store.sightings().items()
    }
    changes = grouped(
        sorted(regressions.changes, key=lambda item: item.night), lambda item: item.series.key
    )
    turns = sorted([*regressions.faulty_before, *regressions.outputs], key=lambda item: item.night)
    outputs = grouped(turns, lambda item: item.series.key)
    unconfirmed = store.unconfirmed_series()
    for place, key in enumerate(table.series):
        series, row = regressions.series_by_key[key], table.latency_us[place]
        words = series.words
        last = int(np.flatnonzero(np.isfinite(row))[-1])
        events = [
            *(
                SiteEvent(night=item.night, kind="note", text=item.text)
                for item in annotations
                if fits(item.selection, key, words)
            ),
            *updates.get(series.case.serial, ()),
            *_contents(table, place, builds),
            *(
                SiteEvent(night=item.night, kind="outputs", text=f"outputs {item.turn}")
                for item in outputs[key]
            ),
        ]
        yield SiteSeries(
            **vars(series),
            changes=tuple(changes[key]),
            events=tuple(sorted(events, key=lambda event: event.night)),
            outputs=tuple(outputs[key]),
            place=place,
            latency_us=row,
            last_place=last,
            is_trusted=bool(trusted[place, last]),
            is_confirmed=key not in unconfirmed,
        )


def _updates(
    sightings: Sequence[DeviceSighting], table: NightTable, zone: tzinfo | None
) -> list[SiteEvent]:
    """Return the updates of a device's system within the nights."""
    events = []
    for before, after in pairwise(sightings):
        night = night_of(after.at, zone)
        changed = [f"{name} {old} -> {new}" for name, old, new in system_differences(before, after)]
        if changed and table.nights and night >= table.nights[0]:
            events.append(SiteEvent(night=night, kind="system", text="; ".join(changed)))
    return events


def _contents(table: NightTable, place: int, builds: Mapping[str, Build]) -> Iterator[SiteEvent]:
    """Yield the nights from which a series had another program, model or library."""
    for night, before, after in content_steps(table, place):
        for name, old, new in content_differences(before, after, builds):
            yield SiteEvent(
                night=table.nights[night],
                kind=name.partition(" ")[0],
                text=f"{name} {old} -> {new}",
            )


def report_marks(store: Store, campaigns: Sequence[Campaign]) -> Mapping[CampaignId, str]:
    """Return a change token per campaign: a hash of all that its report depends on, such as its
    progress and the readings of its runs.
    """
    progress = store.progress()
    readings = store.readings([item.campaign_id for item in campaigns])
    marks = {}
    for item in campaigns:
        parts = (
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
            repr(parts).encode(errors="surrogatepass")
        ).hexdigest()
    return marks


def first_night(since: str, workspace: Workspace) -> date | None:
    """Return the night that ``--since`` means, None for the newest ninety; raises UsageError."""
    return parse_night(since, workspace, "--since") if since else None


@cache
def _templates_key() -> str:
    """Return a hash of all templates: pages change with it."""
    files = sorted((data_folder("reports") / "templates").iterdir())
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
