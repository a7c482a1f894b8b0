"""The series that history pages show: their figures, changes, grade, outputs, and what happened beside them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.analysis.series import NightDetails, NightTable, night_of
from orchestrator.engine.history import ChangeGroup, FoundChange, FoundOutputs, Regressions, describe_series, fits
from orchestrator.records.campaign import Campaign
from orchestrator.records.device import DeviceFacts
from orchestrator.records.history import Annotation, Contents, DeviceSighting, RunMark
from orchestrator.records.identity import CampaignId, SeriesKey
from orchestrator.records.night import THREADS_UNUSED
from orchestrator.records.parity import ParityVerdict
from orchestrator.records.run import Outcome
from orchestrator.records.verdict import Grade, Quality
from orchestrator.records.workload import Case, Pass
from orchestrator.report.labels import page_name

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

#: A figure that is at least this many nights old is shown as missing.
SILENT_NIGHTS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteEvent:
    """Something that happened beside a series: a note of a person, an update of its phone, another program."""

    night: date
    #: ``note``, ``system``, ``build`` or ``model``.
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
    outputs: tuple[FoundOutputs, ...] = ()

    @property
    def page(self) -> str:
        """The file name of its page."""
        return f"{page_name(self.key)}.html"

    @property
    def phone(self) -> str:
        """The device as people know it."""
        return self.facts.title.removesuffix(" (virtual)") if self.facts is not None else str(self.case.serial)

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
        return max(self.changes, key=lambda change: change.night, default=None)

    def outputs_on(self, night: date) -> FoundOutputs | None:
        """Return what the outputs are worth on a night when they are wrong or drift; None else."""
        known = [item for item in self.outputs if item.change.night <= night]
        return known[-1] if known and known[-1].change.after is not ParityVerdict.SAME else None

    @property
    def faulty_outputs(self) -> FoundOutputs | None:
        """What the outputs are worth now when they are wrong or drift; None else."""
        return self.outputs_on(date.max)

    @property
    def silent_nights(self) -> int:
        """Nights of the farm since the newest figure."""
        return len(self.latency_us) - 1 - self.last_place

    @property
    def badness(self) -> float:
        """The order of the overview: the logarithm of the slow-down, by its newest change or against the window.

        The larger counts; outputs that are wrong and weren't expected to be are worse than any. After a change that is
        expected or refuted, the nights since then are the window.
        """
        faulty = self.faulty_outputs
        if faulty is not None and faulty.change.after is ParityVerdict.WRONG and not faulty.expected:
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

    @property
    def name(self) -> str:
        """What people call it."""
        return self.campaign.name or self.campaign.campaign_id

    @property
    def page(self) -> str:
        """The file name of its page."""
        return f"{page_name(self.campaign.campaign_id)}.html"

    @property
    def night(self) -> date:
        """The night in which it began."""
        return night_of(self.campaign.created_at)


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
    faulty_outputs: tuple[FoundOutputs, ...]
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
        return any(item.is_virtual for item in self.series) or any(item.is_virtual for item in self.campaigns)

    @property
    def has_real(self) -> bool:
        """Whether any figure is a real device's."""
        return any(not item.is_virtual for item in self.series)


def site_series(
    store: Store,
    table: NightTable,
    trusted: NDArray[np.bool_],
    found: Regressions | None,
    only: Collection[CampaignId],
) -> Iterator[SiteSeries]:
    """Yield every series of a table; ``only`` are the campaigns that count."""
    cases = store.series()
    devices = store.devices()
    words = describe_series(store)
    builds = {sha256: build.name for sha256, build in store.builds().items()}
    annotations = [item for item in store.annotations() if table.nights and item.night >= table.nights[0]]
    updates = {serial: _updates(seen, table) for serial, seen in store.sightings().items()}
    changes: dict[SeriesKey, list[FoundChange]] = defaultdict(list)
    for change in found.changes if found is not None else ():
        changes[change.series_key].append(change)
    last = [int(np.flatnonzero(np.isfinite(row))[-1]) for row in table.latency_us]
    mishaps = _mishaps(store, table, only)
    outputs: dict[SeriesKey, list[FoundOutputs]] = defaultdict(list)
    for item in sorted(found.outputs if found is not None else (), key=lambda item: item.change.night):
        outputs[item.change.series_key].append(item)
    other_figures = found.other_figures if found is not None else {}
    grades = _grades(store, table, last, only)
    for place, key in enumerate(table.series):
        sketch = table.sketches[place]
        events = [
            *_notes(annotations, key, words.get(key, {})),
            *updates.get(sketch.serial, ()),
            *_contents(table, place, builds),
            *mishaps.get(key, ()),
            *(SiteEvent(night=item.change.night, kind="outputs", text=_turn(item)) for item in outputs[key]),
        ]
        if key in other_figures:
            text = "the program's figures are of another kind (median, mean): earlier nights aren't compared"
            events.append(SiteEvent(night=other_figures[key], kind="figures", text=text))
        yield SiteSeries(
            key=key,
            case=cases[key],
            facts=devices.get(sketch.serial),
            is_virtual=sketch.is_virtual,
            grade=grades.get(key, ""),
            changes=tuple(sorted(changes[key], key=lambda item: item.night)),
            events=tuple(sorted(events, key=lambda event: event.night)),
            outputs=tuple(outputs[key]),
            latency_us=table.latency_us[place],
            last_place=last[place],
            is_trusted=bool(trusted[place, last[place]]),
        )


def _turn(found: FoundOutputs) -> str:
    """Return what outputs turned from and to."""
    change = found.change
    return (
        f"outputs {change.before.value if change.before is not None else 'not compared before'} → {change.after.value}"
    )


def _notes(annotations: Sequence[Annotation], key: SeriesKey, words: Mapping[str, str]) -> Iterator[SiteEvent]:
    for item in annotations:
        if fits(item.selection, key, words):
            yield SiteEvent(night=item.night, kind="note", text=item.text)


def _updates(seen: Sequence[DeviceSighting], table: NightTable) -> list[SiteEvent]:
    """Return what became another thing on a device within the nights."""
    events = []
    for before, after in pairwise(seen):
        night = night_of(after.at)
        if not table.nights or night < table.nights[0]:
            continue
        changed = [
            f"{name} {before.facts.get(name, 'unknown')} → {after.facts.get(name, 'unknown')}"
            for name in {**before.facts, **after.facts}
            if before.facts.get(name) != after.facts.get(name)
        ]
        if changed:
            events.append(SiteEvent(night=night, kind="system", text="; ".join(changed)))
    return events


def _contents(table: NightTable, place: int, builds: Mapping[str, str]) -> Iterator[SiteEvent]:
    """Yield the nights from which a series had another program or model."""
    row = table.contents_at[place]
    there = np.flatnonzero(row >= 0)
    for before, after in pairwise(there[np.r_[True, row[there][1:] != row[there][:-1]]].tolist()):
        old, new = table.contents[int(row[before])], table.contents[int(row[after])]
        night = table.nights[after]
        if old.build_sha256 != new.build_sha256:
            names = [f"{builds.get(item, '')} {item[:12]}".strip() for item in (old.build_sha256, new.build_sha256)]
            yield SiteEvent(night=night, kind="build", text=" → ".join(names))
        if old.model_sha256 != new.model_sha256:
            yield SiteEvent(night=night, kind="model", text=f"{old.model_sha256[:12]} → {new.model_sha256[:12]}")
        if old.files != new.files:
            names = sorted({name for name, _ in {*old.files} ^ {*new.files}})
            yield SiteEvent(night=night, kind="files", text=", ".join(names))


def _mishaps(store: Store, table: NightTable, only: Collection[CampaignId]) -> dict[SeriesKey, list[SiteEvent]]:
    """Return of each series the nights that it has no figure of, with what became of their runs."""
    if not table.nights:
        return {}
    place_of_night = {night: place for place, night in enumerate(table.nights)}
    row_of = {key: row for row, key in enumerate(table.series)}
    codes: dict[tuple[SeriesKey, date], Counter[str]] = defaultdict(Counter)
    for mark in store.marks(since=datetime.combine(table.nights[0], time()).astimezone()):
        night, row = night_of(mark.created_at), row_of.get(mark.series_key)
        place = place_of_night.get(night)
        if mark.reason_code == THREADS_UNUSED:
            continue
        if mark.run_pass is not Pass.TIMING or mark.campaign_id not in only or row is None or place is None:
            continue
        if not np.isfinite(table.latency_us[row][place]):
            codes[mark.series_key, night][_what_became(mark)] += 1
    events: dict[SeriesKey, list[SiteEvent]] = defaultdict(list)
    for (key, night), counts in codes.items():
        text = ", ".join(code if count == 1 else f"{code} ({count} times)" for code, count in counts.most_common())
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
    """Return of each series the worst grade of the runs that its newest figure is of; of the newest nights only."""
    first = max(0, len(table.nights) - SILENT_NIGHTS)
    recent = {
        key: (row, place) for row, (key, place) in enumerate(zip(table.series, last, strict=True)) if place >= first
    }
    wanted = {table.nights[place] for _, place in recent.values()}
    nights = {item.campaign_id: night_of(item.created_at) for item in store.campaigns() if item.campaign_id in only}
    asked = [campaign for campaign, night in nights.items() if night in wanted]
    grades: dict[tuple[SeriesKey, Quality], list[Grade | None]] = defaultdict(list)
    for run in store.runs(campaign_ids=asked) if asked else ():
        key = run.case.series_key
        row, place = recent.get(key, (-1, -1))
        if place < 0 or table.nights[place] != nights[run.campaign_id]:
            continue
        if run.latency_us is not None and _contents_of(run.case) == table.contents[int(table.contents_at[row][place])]:
            grades[key, run.verdict.quality].append(run.verdict.grade)
    # As the figure: of the trusted ones where there are any.
    counted = {key: grades.get((key, Quality.TRUSTED)) or grades.get((key, Quality.SUSPECT), []) for key in recent}
    return {key: max(known) for key, of_key in counted.items() if (known := [item for item in of_key if item])}


def _contents_of(case: Case) -> Contents:
    return Contents(model_sha256=case.model_sha256, build_sha256=case.build_sha256, files=tuple(sorted(case.files)))
