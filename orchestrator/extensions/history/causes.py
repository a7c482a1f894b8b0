"""What changed where a series changed: contents, systems, updates, heat and clocks, and how much
each explains.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from orchestrator.analysis.outcome import figure_us, of_one_kind
from orchestrator.analysis.samples import derive_conditions
from orchestrator.analysis.state_findings import full_charges_mah, other_battery
from orchestrator.extensions.history.attribution import Cause, coincidence_share, covariate_share
from orchestrator.extensions.history.changepoint import Change
from orchestrator.extensions.history.series import NightTable, night_of
from orchestrator.records.case import BuildSha, CampaignId, Serial, SeriesKey
from orchestrator.records.history import Contents, DeviceSighting
from orchestrator.records.run import FigureKind, RunRecord

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

#: Changes whose runs are read for heat and clocks, the largest first; for the others, contents and
#: systems must do.
_READ_CHANGES: Final = 40
#: Nights of runs that are read before a change.
_READ_NIGHTS: Final = 30
#: What explains less isn't reported.
_LEAST_SHARE: Final = 0.05
#: What is read from a run's states -> unit.
_COVARIATES: Final = {
    "battery heat": "°C",
    "start heat": "°C",
    "battery": "%",
    "clock limit": "MHz",
    "effective clock": "MHz",
    "GPU clock": "MHz",
}
#: What an update changes (DeviceFacts.versions), the most telling first.
_NAMES: Final = ("GPU driver", "system image", "security patch", "Android")
#: The least share of the series with an update that move alike, and the least number, for it to
#: explain a change.
_SYSTEM_UPDATES_LEAST_SHARE: Final = 0.6
_LEAST_SERIES: Final = 2
#: (name, before, after).
Difference = tuple[str, str, str]


def sides_of(change: Change, table: NightTable) -> tuple[Contents, Contents]:
    """Return what a series measured on the last night before a change, and on its first night."""
    row = table.contents_at[change.series]
    before = row[: change.night][row[: change.night] >= 0][-1]
    after = row[change.night :][row[change.night :] >= 0][0]
    return table.contents[int(before)], table.contents[int(after)]


class Causes:
    """What happened beside changes: which series saw the very same difference, and how many of
    those moved alike.
    """

    def __init__(
        self,
        store: Store,
        table: NightTable,
        found: Sequence[Change],
        cuts: Sequence[Change],
        delegates: Mapping[SeriesKey, str],
    ) -> None:
        """``cuts`` are all changes that are known, of which ``found`` are asked for; ``delegates``
        are each series'.
        """
        self._store = store
        self._table = table
        self._found = found
        self._delegates = [delegates[key] for key in table.series]
        #: Of slower and of faster series, their changes.
        self._moved: dict[bool, dict[int, list[Change]]] = {
            True: defaultdict(list),
            False: defaultdict(list),
        }
        # Many changes share a night and a difference.
        self._moved_on, self._moved_with = cache(self._series_of_night), cache(self._series_with)
        for change in cuts:
            self._moved[change.ratio > 1][change.series].append(change)
        #: Which series saw a difference, and the places of their first nights with it; and each
        #: series' own.
        self._seen: dict[Difference, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        self._own: dict[int, list[tuple[int, Difference, bool]]] = defaultdict(list)
        builds = {str(sha256): build.name for sha256, build in store.builds().items()}
        # A lab that builds its program every night has a difference in each series every night.
        nights = {change.night + days for change in found for days in (-1, 0, 1)}
        series_of: dict[Serial, list[int]] = defaultdict(list)
        for series, sketch in enumerate(table.sketches):
            series_of[sketch.serial].append(series)
            for night, before, after in content_steps(table, series):
                for difference in (
                    content_differences(before, after, builds) if night in nights else ()
                ):
                    self._note(series, night, difference, is_content=True)
        for serial, seen in store.sightings().items():
            for earlier, later in pairwise(seen):
                night = bisect_left(table.nights, night_of(later.at, store.zone))
                differences = system_differences(earlier, later)
                for series in series_of[serial] if differences else ():
                    figures = np.isfinite(table.latency_us[series])
                    if figures[:night].any() and figures[night:].any():
                        for difference in differences:
                            self._note(series, night, difference, is_content=False)

    def _note(self, series: int, night: int, difference: Difference, *, is_content: bool) -> None:
        self._seen[difference][series].append(night)
        self._own[series].append((night, difference, is_content))

    def of_each(self) -> list[tuple[Cause, ...]]:
        """Return of each change that is asked for what changed beside it, what explains most first."""
        nights = _nights_of_campaigns(self._store, self._table)
        by_size = sorted(
            range(len(self._found)), key=lambda place: -abs(self._found[place].ratio - 1)
        )
        largest = set(by_size[:_READ_CHANGES])
        causes = []
        for place, change in enumerate(self._found):
            own = [*self._coincidences(change)]
            if place in largest:
                own += _covariates(self._store, self._table, change, nights)
            causes.append(tuple(sorted(own, key=lambda cause: -(cause.share or 0.0))))
        return causes

    def _beside(self, change: Change) -> dict[Difference, None]:
        """Return the differences that the series saw when it changed: in what it measured, of the
        very night.
        """
        return dict.fromkeys(
            item
            for night, item, is_content in self._own[change.series]
            if (night == change.night if is_content else _is_near(change, night))
        )

    def _series_of_night(self, night: int, is_slower: bool) -> set[int]:
        """Return the series that moved in a direction on a night."""
        return {
            series
            for series, changes in self._moved[is_slower].items()
            if any(_is_near(change, night) for change in changes)
        }

    def _series_with(self, difference: Difference, is_slower: bool) -> set[int]:
        """Return the series that moved in a direction on the nights on which they saw a difference."""
        moved = self._moved[is_slower]
        return {
            series
            for series, nights in self._seen[difference].items()
            if any(_is_near(change, night) for night in nights for change in moved.get(series, ()))
        }

    def _coincidences(self, change: Change) -> Iterator[Cause]:
        """Yield what is another thing since a change's nights, with its share."""
        is_slower = change.ratio > 1
        moved = self._moved_on(change.night, is_slower)
        for difference in self._beside(change):
            exposed, alike = self._seen[difference], self._moved_with(difference, is_slower)
            others, others_moved = (
                len(self._table.series) - len(exposed),
                len(moved - exposed.keys()),
            )
            share = coincidence_share(len(exposed), len(alike), others, others_moved)
            name, old, new = difference
            yield Cause(
                name=name, before=old, after=new, share=share, moved=(len(alike), len(exposed))
            )

    def explanation(self, change: Change) -> str:
        """Return how an update of the phone explains a change; empty where none does.

        It does for a series that measured the same contents before and after, when most series of
        the same delegate moved alike where they saw the very same update: on this phone, and on
        others on their own nights.
        """
        before, after = sides_of(change, self._table)
        updates = [
            item for item in self._beside(change) if item[0] in _NAMES and "unknown" not in item
        ]
        if before != after or not updates:
            return ""
        update = min(updates, key=lambda item: _NAMES.index(item[0]))
        delegates = self._delegates
        exposed = {
            series for series in self._seen[update] if delegates[series] == delegates[change.series]
        }
        alike = self._moved_with(update, change.ratio > 1) & exposed
        if len(alike) < max(_LEAST_SERIES, _SYSTEM_UPDATES_LEAST_SHARE * len(exposed)):
            return ""
        phones = len({self._table.sketches[series].serial for series in alike})
        on = f" on {phones} phones" if phones > 1 else ""
        name, old, new = update
        told = f"confirmed by {len(alike)} of {len(exposed)} series{on}"
        return f"explained by system update ({name} {old} -> {new}), {told}"


def content_steps(table: NightTable, series: int) -> Iterator[tuple[int, Contents, Contents]]:
    """Yield the places of nights from which a series measured other contents, with those before and
    after.
    """
    row = table.contents_at[series]
    there = np.flatnonzero(row >= 0)
    for place in np.flatnonzero(np.diff(row[there])).tolist():
        before, after = (table.contents[int(row[night])] for night in there[place : place + 2])
        yield int(there[place + 1]), before, after


def content_differences(
    before: Contents, after: Contents, builds: Mapping[str, str]
) -> list[Difference]:
    """Return what of a night's contents is another thing; ``builds`` are the names of builds by
    their sha256.
    """
    found = []
    if before.model_sha256 != after.model_sha256:
        found.append(("model", before.model_sha256[:12], after.model_sha256[:12]))
    if before.build_sha256 != after.build_sha256:
        old, new = (
            f"{builds.get(sha, '')}@{sha[:12]}" for sha in (before.build_sha256, after.build_sha256)
        )
        found.append(("build", old, new))
    old_files, new_files = dict(before.files), dict(after.files)
    return found + [
        (f"file {name}", old_files.get(name, "none")[:12], new_files.get(name, "none")[:12])
        for name in sorted(old_files.keys() | new_files.keys())
        if old_files.get(name) != new_files.get(name)
    ]


def system_differences(before: DeviceSighting, after: DeviceSighting) -> list[Difference]:
    """Return what is another thing on a device than it was at an earlier sighting."""
    old, new = before.facts, after.facts
    return [
        (name, old.get(name, "unknown"), new.get(name, "unknown"))
        for name in {**old, **new}
        if old.get(name) != new.get(name)
    ]


def _nights_of_campaigns(store: Store, table: NightTable) -> dict[CampaignId, int]:
    """Return the place of each campaign's night; A/B campaigns run what is no series' night."""
    place_of_night = {night: place for place, night in enumerate(table.nights)}
    return {
        item.campaign_id: place
        for item in store.campaigns()
        if item.terms.pairing is None
        and (place := place_of_night.get(night_of(item.created_at, store.zone))) is not None
    }


def _covariates(
    store: Store, table: NightTable, change: Change, nights: Mapping[CampaignId, int]
) -> list[Cause]:
    """Return which of heat, battery and clocks shifted with a change, and how much of it that
    explains.
    """
    figures: dict[str, list[list[float]]] = {
        name: [[] for _ in table.nights] for name in _COVARIATES
    }
    capacities: list[list[float]] = [[] for _ in table.nights]
    start = max(0, change.night - change.nights_before, change.night - _READ_NIGHTS)
    campaigns = [name for name, place in nights.items() if place >= start]
    key = table.series[change.series]
    for run in store.runs(campaign_ids=campaigns, series_keys=[key]):
        if run.latency_us is None:
            continue
        place = nights[run.campaign_id]
        for name, value in _readings(run).items():
            figures[name][place].append(value)
        capacities[place] += full_charges_mah([run.state_before])
    causes = []
    for name, values in figures.items():
        covariate = np.array([np.median(item) if item else np.nan for item in values])
        found = covariate_share(table.latency_us[change.series], covariate, change.night, start)
        if found is not None and found[0] >= _LEAST_SHARE:
            share, before, after = found
            unit = _COVARIATES[name]
            causes.append(
                Cause(
                    name=name,
                    before=f"{before:.4g} {unit}",
                    after=f"{after:.4g} {unit}",
                    share=share,
                )
            )
    sides = capacities[start : change.night], capacities[change.night :]
    swapped = other_battery(
        *([float(np.median(night)) for night in side if night] for side in sides)
    )
    if swapped is not None:
        full = [f"{charge:.0f} mAh" for charge in swapped]
        # Whatever it does to the figures, no slope shows it: there are two batteries, not many.
        causes.append(Cause(name="another battery", before=full[0], after=full[1], share=None))
    return causes


def _readings(run: RunRecord) -> dict[str, float]:
    """Return the covariates of a run that are known."""
    state = run.state_before
    if state is None:
        return {}
    conditions = derive_conditions(state, run.state_after)
    # The fastest cluster's: the first of the others says little of a run that is kept to the big
    # cores.
    effective = [
        item.effective_mhz for item in conditions.clusters if item.effective_mhz is not None
    ]
    found: dict[str, float | None] = {
        "battery heat": state.battery_heat_c,
        "start heat": max(state.heat_c.values(), default=None),
        "battery": state.battery_percent,
        "clock limit": max(state.clock_limit_khz.values(), default=0) / 1000 or None,
        "effective clock": max(effective, default=None),
        "GPU clock": conditions.gpu_mhz,
    }
    return {name: float(value) for name, value in found.items() if value is not None}


def _is_near(change: Change, night: int) -> bool:
    """Whether a change may have begun on a night; one more on each side, as of many intervals some
    miss theirs.
    """
    return change.earliest - 1 <= night <= change.latest + 1


def nights_of_one_kind(
    store: Store, table: NightTable, found: Sequence[Change]
) -> tuple[NightTable, Mapping[SeriesKey, date]]:
    """Return the table without the nights whose figures are of another kind than their series'
    newest one.

    Beside it, of each series that lost nights so, the first one whose figures are of the newest
    kind. Which kind a program prints is looked up only of those that measured around a change, and
    of each in a few runs.
    """
    campaigns: dict[int, list[CampaignId]] = defaultdict(list)
    for campaign_id, place in _nights_of_campaigns(store, table).items():
        campaigns[place].append(campaign_id)
    known: dict[BuildSha, FigureKind | None] = {}

    def kinds_of(series: int, nights: Iterable[int]) -> dict[int, FigureKind]:
        """Return the kinds of those nights of which it is known."""
        kinds = {}
        for night in nights:
            place = int(table.contents_at[series, night])
            if place < 0:
                continue
            build = table.contents[place].build_sha256
            if build not in known:
                runs = store.runs(campaign_ids=campaigns[night], series_keys=[table.series[series]])
                own = [
                    run
                    for run in runs
                    if run.case.build_sha256 == build and figure_us(run) is not None
                ]
                known[build] = of_one_kind(own)[0] if own else None
            kind = known[build]
            if kind is not None:
                kinds[night] = kind
        return kinds

    def differ_around(change: Change) -> bool:
        """Whether the nights on which a change may have begun, and the last one before, have both
        kinds of figures.
        """
        there = np.flatnonzero(table.contents_at[change.series] >= 0)
        before = there[there < change.earliest][-1:].tolist()
        nights = [*before, *there[(there >= change.earliest) & (there <= change.latest)].tolist()]
        return len(set(kinds_of(change.series, nights).values())) > 1

    latency_us, contents_at = table.latency_us.copy(), table.contents_at.copy()
    begun: dict[SeriesKey, date] = {}
    for series in sorted({change.series for change in found if differ_around(change)}):
        of_night = kinds_of(series, range(len(table.nights)))
        newest = of_night[max(of_night)]
        other = [night for night, kind in of_night.items() if kind is not newest]
        latency_us[series, other], contents_at[series, other] = np.nan, -1
        begun[table.series[series]] = table.nights[
            min(night for night, kind in of_night.items() if kind is newest)
        ]
    return replace(table, latency_us=latency_us, contents_at=contents_at), begun
