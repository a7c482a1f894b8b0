"""What changed where a series changed: contents, systems, updates, heat and clocks, and how much each explains."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from orchestrator.analysis.attribution import Cause, coincidence_share, covariate_share
from orchestrator.analysis.changepoint import Change
from orchestrator.analysis.outcome import figure_us, of_one_kind
from orchestrator.analysis.samples import derive_conditions
from orchestrator.analysis.series import NightTable, night_of
from orchestrator.analysis.state_findings import other_battery
from orchestrator.records.history import Contents, DeviceSighting
from orchestrator.records.identity import BuildSha, CampaignId, Serial, SeriesKey
from orchestrator.records.run import FigureKind, RunRecord

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

#: Changes whose runs are read for heat and clocks, the largest first; for the others, contents and systems must do.
_READ_CHANGES: Final = 40
#: Nights of runs that are read before a change.
_READ_NIGHTS: Final = 30
#: What explains less isn't reported.
_LEAST_SHARE: Final = 0.05
#: Below it, a per cent more or less is too much of the estimate.
_LEAST_PERCENT: Final = 25
#: What is read from a run's states -> unit.
_COVARIATES: Final = {
    "battery heat": "°C",
    "start heat": "°C",
    "battery": "%",
    "clock limit": "MHz",
    "effective clock": "MHz",
    "GPU clock": "MHz",
}
#: (name, before, after).
Difference = tuple[str, str, str]


def sides_of(change: Change, table: NightTable) -> tuple[Contents, Contents]:
    """Return what a series measured on the last night before a change, and on its first night."""
    row = table.contents_at[change.series]
    before = row[: change.night][row[: change.night] >= 0][-1]
    after = row[change.night :][row[change.night :] >= 0][0]
    return table.contents[int(before)], table.contents[int(after)]


def causes_of(store: Store, table: NightTable, found: Sequence[Change]) -> list[tuple[Cause, ...]]:
    """Return of each change what changed beside it, what explains most first."""
    if not found:
        return []
    exposures = _Exposures(store, table, found)
    nights = _nights_of_campaigns(store, table)
    largest = sorted(range(len(found)), key=lambda place: -abs(found[place].ratio - 1))
    read = set(largest[:_READ_CHANGES])
    found_causes = []
    for place, change in enumerate(found):
        causes = list(exposures.causes(change))
        if place in read:
            causes += _covariates(store, table, change, nights)
        found_causes.append(tuple(sorted(causes, key=lambda cause: -(cause.share or 0.0))))
    return found_causes


class _Exposures:
    """Which series saw the very same difference on a night, and how many of them moved alike."""

    def __init__(self, store: Store, table: NightTable, found: Sequence[Change]) -> None:
        self._table = table
        self._sightings = store.sightings()
        self._builds = {str(sha256): build.name for sha256, build in store.builds().items()}
        self._moved: dict[tuple[int, bool], set[int]] = {}
        for change in found:
            self._moved.setdefault((change.night, change.ratio > 1), set()).add(change.series)
        #: Night -> of each difference, the series that saw it.
        self._seen: dict[int, dict[Difference, set[int]]] = {}

    def causes(self, change: Change) -> Iterable[Cause]:
        """Yield what is another thing since a change's nights, with its share."""
        before, after = sides_of(change, self._table)
        differences = content_differences(before, after, self._builds) + _device_differences(
            self._sightings.get(self._table.sketches[change.series].serial, ()),
            self._last_before(change),
            self._table.nights[change.latest],
        )
        alike = self._moved[change.night, change.ratio > 1]
        seen = self._seen_on(change.night)
        for difference in differences:
            # The series itself may have seen it a night earlier or later, within its own interval.
            exposed = seen.get(difference, set()) | {change.series}
            moved = len(exposed & alike)
            share = coincidence_share(len(exposed), moved, len(self._table.series) - len(exposed), len(alike - exposed))
            name, old, new = difference
            yield Cause(name=name, before=old, after=new, share=share, moved=(moved, len(exposed)))

    def _seen_on(self, night: int) -> dict[Difference, set[int]]:
        if night not in self._seen:
            self._seen[night] = self._all_differences(night)
        return self._seen[night]

    def _all_differences(self, night: int) -> dict[Difference, set[int]]:
        at = self._table.contents_at
        there = at >= 0
        has_both = there[:, :night].any(axis=1) & there[:, night:].any(axis=1)
        last = night - 1 - np.argmax(there[:, :night][:, ::-1], axis=1)
        first = night + np.argmax(there[:, night:], axis=1)
        rows = np.arange(len(at))
        old, new = at[rows, last], at[rows, first]
        found: dict[Difference, set[int]] = {}
        for series in np.flatnonzero(has_both & (old != new)).tolist():
            before, after = (self._table.contents[int(side[series])] for side in (old, new))
            for difference in content_differences(before, after, self._builds):
                found.setdefault(difference, set()).add(series)
        nights = self._table.nights
        changed = {
            serial: _device_differences(seen, nights[max(night - 1, 0)], nights[night])
            for serial, seen in self._sightings.items()
        }
        changed = {serial: differences for serial, differences in changed.items() if differences}
        for series in np.flatnonzero(has_both).tolist():
            for difference in changed.get(self._table.sketches[series].serial, ()):
                found.setdefault(difference, set()).add(series)
        return found

    def _last_before(self, change: Change) -> date:
        """Return the last night that is before the change for sure."""
        row = self._table.latency_us[change.series]
        there = np.flatnonzero(np.isfinite(row[: change.earliest]))
        return self._table.nights[int(there[-1])] if there.size else self._table.nights[0]


def content_differences(before: Contents, after: Contents, builds: Mapping[str, str]) -> list[Difference]:
    """Return what of a night's contents is another thing; ``builds`` are the names of builds by their sha256."""
    found = []
    if before.model_sha256 != after.model_sha256:
        found.append(("model", before.model_sha256[:12], after.model_sha256[:12]))
    if before.build_sha256 != after.build_sha256:
        old, new = (f"{builds.get(sha, '')}@{sha[:12]}" for sha in (before.build_sha256, after.build_sha256))
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


def _device_differences(seen: Sequence[DeviceSighting], before: date, after: date) -> list[Difference]:
    earlier = [item for item in seen if night_of(item.at) <= before]
    later = [item for item in seen if night_of(item.at) <= after]
    return system_differences(earlier[-1], later[-1]) if earlier and later else []


def _nights_of_campaigns(store: Store, table: NightTable) -> dict[CampaignId, int]:
    """Return the place of each campaign's night; A/B campaigns run what is no series' night."""
    place_of_night = {night: place for place, night in enumerate(table.nights)}
    return {
        item.campaign_id: place
        for item in store.campaigns()
        if item.terms.pairing is None and (place := place_of_night.get(night_of(item.created_at))) is not None
    }


def _covariates(store: Store, table: NightTable, change: Change, nights: Mapping[CampaignId, int]) -> list[Cause]:
    """Return which of heat, battery and clocks shifted with a change, and how much of it that explains."""
    figures: dict[str, list[list[float]]] = {name: [[] for _ in table.nights] for name in _COVARIATES}
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
        capacities[place] += _full_charge_mah(run)
    causes = []
    for name, values in figures.items():
        covariate = np.array([np.median(item) if item else np.nan for item in values])
        found = covariate_share(table.latency_us[change.series], covariate, change.night, start)
        if found is not None and found[0] >= _LEAST_SHARE:
            share, before, after = found
            unit = _COVARIATES[name]
            causes.append(Cause(name=name, before=f"{before:.4g} {unit}", after=f"{after:.4g} {unit}", share=share))
    sides = capacities[start : change.night], capacities[change.night :]
    swapped = other_battery(*([float(np.median(night)) for night in side if night] for side in sides))
    if swapped is not None:
        full = [f"{charge:.0f} mAh" for charge in swapped]
        # Whatever it does to the figures, no slope shows it: there are two batteries, not many.
        causes.append(Cause(name="another battery", before=full[0], after=full[1], share=None))
    return causes


def _full_charge_mah(run: RunRecord) -> list[float]:
    """Return what a battery would hold when it is full, by what is in it and its per cent; nothing when it is low."""
    state = run.state_before
    if state is None or state.battery_charge_uah is None or (state.battery_percent or 0) < _LEAST_PERCENT:
        return []
    return [state.battery_charge_uah / 1000 / (state.battery_percent or 1) * 100]


def _readings(run: RunRecord) -> dict[str, float]:
    """Return the covariates of a run that are known."""
    state = run.state_before
    if state is None:
        return {}
    conditions = derive_conditions(state, run.state_after)
    # The fastest cluster's: the first of the others says little of a run that is kept to the big cores.
    effective = [item.effective_mhz for item in conditions.clusters if item.effective_mhz is not None]
    found: dict[str, float | None] = {
        "battery heat": state.battery_heat_c,
        "start heat": max(state.heat_c.values(), default=None),
        "battery": state.battery_percent,
        "clock limit": max(state.clock_limit_khz.values(), default=0) / 1000 or None,
        "effective clock": max(effective, default=None),
        "GPU clock": conditions.gpu_mhz,
    }
    return {name: float(value) for name, value in found.items() if value is not None}


#: What an update changes (DeviceFacts.versions), the most telling first.
_NAMES: Final = ("GPU driver", "system image", "security patch", "Android")
#: The least share of the series with an update that move alike, for it to explain a change.
_SYSTEM_UPDATES_LEAST_SHARE: Final = 0.6
_LEAST_SERIES: Final = 2


def explained(
    table: NightTable,
    found: Sequence[Change],
    cuts: Iterable[Change],
    sightings: Mapping[Serial, Sequence[DeviceSighting]],
    delegates: Mapping[SeriesKey, str],
) -> list[str]:
    """Return of each change how an update of its phone explains it, empty where none does.

    An update explains a change of a series that measured the same contents before and after, when most series of the
    same delegate moved alike where they saw the very same update: on this phone, and on others on their own nights.

    Args:
        table: The nights.
        found: The changes in question.
        cuts: All that are known, whichever are asked for.
        sightings: What each phone was, and from when on.
        delegates: Of each series.
    """
    updates = list(_updates(table, sightings))
    moved: dict[tuple[int, bool], list[Change]] = {}
    for change in cuts:
        moved.setdefault((change.series, change.ratio > 1), []).append(change)
    series_of: dict[Serial, list[int]] = {}
    for place, sketch in enumerate(table.sketches):
        series_of.setdefault(sketch.serial, []).append(place)

    def explanation(change: Change) -> str:
        before, after = sides_of(change, table)
        serial = table.sketches[change.series].serial
        own = [item for where, night, item in updates if where == serial and _is_near(change, night)]
        if before != after or not own:
            return ""
        update = min(own, key=lambda item: _NAMES.index(item[0]))
        delegate = delegates[table.series[change.series]]
        places = [
            (where, place, night)
            for where, night, item in updates
            if item == update
            for place in series_of.get(where, ())
            if delegates[table.series[place]] == delegate and _has_both_sides(table, place, night)
        ]
        alike = [
            (where, place)
            for where, place, night in places
            if any(_is_near(other, night) for other in moved.get((place, change.ratio > 1), ()))
        ]
        if len(alike) < _LEAST_SERIES or len(alike) < _SYSTEM_UPDATES_LEAST_SHARE * len(places):
            return ""
        phones = len({where for where, _ in alike})
        on = f" on {phones} phones" if phones > 1 else ""
        name, old, new = update
        return (
            f"explained by system update ({name} {old} -> {new}), confirmed by {len(alike)} of {len(places)} series{on}"
        )

    return [explanation(change) for change in found]


def _updates(
    table: NightTable, sightings: Mapping[Serial, Sequence[DeviceSighting]]
) -> Iterator[tuple[Serial, int, Difference]]:
    """Yield what changed of each phone, with the place of the first night since."""
    for serial, seen in sightings.items():
        for old, new in pairwise(seen):
            night = next((place for place, night in enumerate(table.nights) if night >= night_of(new.at)), None)
            if night is None:
                continue
            for difference in system_differences(old, new):
                if difference[0] in _NAMES and "unknown" not in difference:
                    yield serial, night, difference


def _is_near(change: Change, night: int) -> bool:
    """Whether a change may have begun on a night; one more on each side, as of many intervals some miss theirs."""
    return change.earliest - 1 <= night <= change.latest + 1


def _has_both_sides(table: NightTable, series: int, night: int) -> bool:
    figures = np.isfinite(table.latency_us[series])
    return bool(figures[:night].any() and figures[night:].any())


def nights_of_one_kind(
    store: Store, table: NightTable, found: Sequence[Change]
) -> tuple[NightTable, Mapping[SeriesKey, date]]:
    """Return the table without the nights whose figures are of another kind than their series' newest one.

    Beside it, of each series that lost nights so, the first one whose figures are of the newest kind. Which kind a
    program prints is looked up only of those that measured around a change, and of each in a few runs.
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
                own = [run for run in runs if run.case.build_sha256 == build and figure_us(run) is not None]
                known[build] = of_one_kind(own)[0] if own else None
            kind = known[build]
            if kind is not None:
                kinds[night] = kind
        return kinds

    def differ_around(change: Change) -> bool:
        """Whether the nights on which a change may have begun, and the last one before, have both kinds of figures."""
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
        begun[table.series[series]] = table.nights[min(night for night, kind in of_night.items() if kind is newest)]
    return replace(table, latency_us=latency_us, contents_at=contents_at), begun
