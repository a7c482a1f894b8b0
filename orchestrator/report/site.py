"""What a site of history pages shows: series over nights, what changed in them, campaigns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.analysis.attribution import Cause
from orchestrator.analysis.nights import NightDetails
from orchestrator.analysis.series import NightTable, night_of
from orchestrator.records.device import DeviceFacts
from orchestrator.records.history import ConfirmationStatus
from orchestrator.records.identity import CampaignId, SeriesKey
from orchestrator.records.workload import Case
from orchestrator.report.labels import page_name

#: A figure so many nights old is told as such.
SILENT_NIGHTS: Final = 3

STATUS_WORDS: Final[Mapping[ConfirmationStatus, str]] = {
    ConfirmationStatus.UNCONFIRMED: "not confirmed yet",
    ConfirmationStatus.CONFIRMED: "confirmed",
    ConfirmationStatus.REFUTED: "refuted",
    ConfirmationStatus.CANNOT: "can't be confirmed",
    ConfirmationStatus.EXPLAINED: "explained by an update",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteChange:
    """A change of one series; ``engine.history`` finds and explains it."""

    night: date
    earliest: date
    latest: date
    #: Time after / time before, with its 95 % interval.
    ratio: float
    low: float
    high: float
    confidence: float
    before_us: float
    after_us: float
    status: ConfirmationStatus
    status_detail: str
    expected: str
    causes: tuple[Cause, ...]

    @property
    def state(self) -> str:
        """What became of it, in words."""
        return "expected" if self.expected else STATUS_WORDS[self.status]

    @property
    def counts(self) -> bool:
        """Whether it is still to be looked at: nobody expected it, and nothing refuted it."""
        return not self.expected and self.status is not ConfirmationStatus.REFUTED


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteEvent:
    """Something that happened beside a series: a note of a person, an update of its phone, another program."""

    night: date
    #: ``note``, ``system``, ``build`` or ``model``.
    kind: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteOutputs:
    """What a series' outputs are worth against the reference, from a night on."""

    night: date
    #: ``same``, ``drift`` or ``wrong``; empty when they weren't compared before.
    before: str
    verdict: str
    #: What somebody wrote who expected it; empty for an unexpected one.
    expected: str

    @property
    def is_wrong(self) -> bool:
        """Whether the configuration computes something else than its model."""
        return self.verdict == "wrong"

    @property
    def text(self) -> str:
        """What they turned from and to."""
        return f"outputs {self.before or 'not compared before'} → {self.verdict}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultyOutputs:
    """A series whose outputs are wrong or drift."""

    key: SeriesKey
    label: str
    outputs: SiteOutputs
    is_virtual: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteGroup:
    """Changes that happened together, in one sentence."""

    night: date
    sentence: str
    #: Series and their labels, those that changed most first.
    members: tuple[tuple[SeriesKey, str], ...]
    status: str
    is_virtual: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteCampaign:
    """A campaign as the index lists it."""

    campaign_id: CampaignId
    name: str
    created_at: datetime
    finished_at: datetime | None
    status: str
    host: str
    stored: int
    planned: int
    is_virtual: bool
    #: Whether the site has a page of it.
    has_page: bool
    #: Where it was imported from; empty for this lab's own.
    origin: str = ""

    @property
    def page(self) -> str:
        """The file name of its page."""
        return f"{page_name(self.campaign_id)}.html"

    @property
    def night(self) -> date:
        """The night in which it began."""
        return night_of(self.created_at)


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
    changes: tuple[SiteChange, ...]
    events: tuple[SiteEvent, ...]
    #: Of each of the site's nights, NaN where there is none.
    latency_us: NDArray[np.float64]
    last_place: int
    is_trusted: bool
    #: Where the outputs became worth something else, oldest first.
    outputs: tuple[SiteOutputs, ...] = ()

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
    def newest(self) -> SiteChange | None:
        """The newest change."""
        return max(self.changes, key=lambda change: change.night, default=None)

    def outputs_on(self, night: date) -> SiteOutputs | None:
        """Return what the outputs are worth on a night when they are wrong or drift; None else."""
        known = [item for item in self.outputs if item.night <= night]
        return known[-1] if known and known[-1].verdict != "same" else None

    @property
    def faulty_outputs(self) -> SiteOutputs | None:
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
        if faulty is not None and faulty.is_wrong and not faulty.expected:
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


@dataclass(frozen=True, kw_only=True)
class Site:
    """Everything that the pages show."""

    title: str
    since: date | None
    table: NightTable
    details: NightDetails
    #: Worst first.
    series: tuple[SiteSeries, ...]
    groups: tuple[SiteGroup, ...]
    #: Those that nobody expected and those that are wrong first.
    faulty_outputs: tuple[FaultyOutputs, ...]
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
        return {item.campaign_id: item for item in self.campaigns}

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
