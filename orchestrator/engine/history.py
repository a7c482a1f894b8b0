"""What changed over the nights, in all series of a store: found, attributed, grouped, and held against annotations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fnmatch import fnmatchcase
from typing import Final

import numpy as np

from orchestrator.analysis.attribution import Cause, coincidence_share, covariate_share, group_changes
from orchestrator.analysis.changepoint import LEAST_CHANGE, RECENT_NIGHTS, WINDOW_NIGHTS, Change, Preset, changes
from orchestrator.analysis.series import NightTable, night_of, night_table
from orchestrator.ports import Store
from orchestrator.records.device import DeviceFacts, DeviceState
from orchestrator.records.history import Annotation, CaseSketch, Confirmation, ConfirmationStatus, DeviceSighting
from orchestrator.records.identity import Serial, SeriesKey
from orchestrator.records.run import RunRecord
from orchestrator.records.workload import Case, DelegateName

#: Nights before the first that is asked for, so that its change has something to be a change from.
_LEAD_NIGHTS: Final = 60
#: Changes whose runs are read for heat and clocks; beyond it the builds and drivers must do.
_READ_CHANGES: Final = 200
#: Words that a selection may use, beside a series' key.
SELECTION_WORDS: Final = ("delegate", "model", "serial", "phone", "soc", "GPU", "tool", "threads")


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundChange:
    """A change of one series, with what is known about it."""

    series_key: SeriesKey
    case: Case
    #: The device as people know it.
    phone: str
    is_virtual: bool
    #: The first night of the new level, and the first and last on which it may have begun (95 %).
    night: date
    earliest: date
    latest: date
    #: Level after / level before, with its 95 % interval.
    ratio: float
    low: float
    high: float
    confidence: float
    noise: float
    before_us: float
    after_us: float
    nights_after: int
    causes: tuple[Cause, ...] = ()
    status: ConfirmationStatus = ConfirmationStatus.UNCONFIRMED
    status_detail: str = ""
    #: What somebody wrote who expected it; empty for an unexpected one.
    expected: str = ""
    #: The series' cases before and after.
    case_before: CaseSketch
    case_after: CaseSketch


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeGroup:
    """Changes that happened together, in one sentence."""

    sentence: str
    members: tuple[FoundChange, ...]
    #: Series that fit the sentence's description, changed or not.
    series: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Regressions:
    """All changes since a night."""

    since: date | None
    nights: int
    series: int
    groups: tuple[ChangeGroup, ...]

    @property
    def changes(self) -> tuple[FoundChange, ...]:
        """All changes, group by group."""
        return tuple(change for group in self.groups for change in group.members)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked for."""

    #: None: what is news, each series' newest change of the last 14 nights.
    since: date | None = None
    selections: tuple[str, ...] = ()
    preset: Preset = Preset.DEFAULT
    threshold: float = LEAST_CHANGE


def find_regressions(store: Store, question: Question) -> Regressions:
    """Return every change that a question asks for, attributed and grouped; those that matter most first."""
    attributes = describe_series(store)
    wanted = None
    if question.selections:
        wanted = [key for key, words in attributes.items() if fits_any(question.selections, key, words)]
        if not wanted:
            return Regressions(since=question.since, nights=0, series=0, groups=())
    table = read_nights(store, since=question.since, series_keys=wanted or ())
    found = [
        change
        for change in changes(table.latency_us, penalty=question.preset.penalty)
        if _is_asked_for(change, table, question)
    ]
    cases = store.series([table.series[change.series] for change in found]) if found else {}
    causes = _attribute(store, table, found, attributes)
    confirmations = {(item.series_key, item.night): item for item in store.confirmations()}
    annotations = store.annotations()
    told = [
        _told(change, table, cases, attributes, item, confirmations, annotations)
        for change, item in zip(found, causes, strict=True)
    ]
    groups = _grouped(told, found, table, attributes)
    return Regressions(since=question.since, nights=len(table.nights), series=len(table.series), groups=groups)


def read_nights(store: Store, *, since: date | None, series_keys: Sequence[SeriesKey] = ()) -> NightTable:
    """Return the window's nights; A/B campaigns are left out, whose old builds are no news of the night."""
    campaigns = [campaign for campaign in store.campaigns() if campaign.terms.pairing is None]
    nights = sorted({night_of(campaign.created_at) for campaign in campaigns})
    asked = 0 if since is None else sum(night >= since for night in nights) + _LEAD_NIGHTS
    kept = nights[-max(WINDOW_NIGHTS, asked) :]
    if not kept:
        return night_table(store.points(series_keys=series_keys), last_nights=WINDOW_NIGHTS)
    first = min(item.created_at for item in campaigns if night_of(item.created_at) >= kept[0])
    points = store.points(since=first, series_keys=series_keys)
    return night_table(points, last_nights=len(kept), only={campaign.campaign_id for campaign in campaigns})


def describe_series(store: Store) -> dict[SeriesKey, dict[str, str]]:
    """Return of each series what it has in common with others: delegate, model, phone, SoC, GPU, tool, threads."""
    devices = store.devices()
    return {key: _words(case, devices.get(case.serial)) for key, case in store.series().items()}


def _words(case: Case, facts: DeviceFacts | None) -> dict[str, str]:
    words = {
        "delegate": case.delegate.value,
        "model": case.model_name,
        "serial": str(case.serial),
        "tool": case.tool.value,
        "threads": str(case.threads),
    }
    if facts is not None:
        words |= {"phone": facts.title, "soc": facts.soc}
        if case.delegate is DelegateName.GPU:
            words["GPU"] = facts.gpu
    return {name: value for name, value in words.items() if value}


def fits_any(selections: Sequence[str], series_key: SeriesKey, words: Mapping[str, str]) -> bool:
    """Whether a series fits one of some selections, each a key's beginning or ``name=pattern`` words that all fit."""
    return any(fits(selection, series_key, words) for selection in selections)


def fits(selection: str, series_key: SeriesKey, words: Mapping[str, str]) -> bool:
    """Whether a series fits a selection; ``*`` stands for any text, capitals don't matter."""
    known = {name.lower(): value.lower() for name, value in words.items()}
    for part in selection.split(","):
        name, equals, pattern = part.strip().lower().partition("=")
        if not equals:
            if not (name == "*" or series_key.startswith(name)):
                return False
        elif not fnmatchcase(known.get(name.strip(), ""), pattern.strip()):
            return False
    return True


def _is_asked_for(change: Change, table: NightTable, question: Question) -> bool:
    if abs(change.ratio - 1) < max(LEAST_CHANGE, question.threshold):
        return False
    if question.since is not None:
        return table.nights[change.night] >= question.since
    return change.is_newest and len(table.nights) - change.night <= RECENT_NIGHTS


def _told(
    change: Change,
    table: NightTable,
    cases: Mapping[SeriesKey, Case],
    attributes: Mapping[SeriesKey, Mapping[str, str]],
    causes: tuple[Cause, ...],
    confirmations: Mapping[tuple[SeriesKey, date], Confirmation],
    annotations: Sequence[Annotation],
) -> FoundChange:
    key = table.series[change.series]
    night, earliest, latest = (table.nights[place] for place in (change.night, change.earliest, change.latest))
    row = table.latency_us[change.series]
    before, after = _sides(change, table)
    confirmation = confirmations.get((key, night))
    expected = next(
        (
            item.text
            for item in annotations
            if earliest - timedelta(days=1) <= item.night <= latest + timedelta(days=1)
            and fits(item.selection, key, attributes[key])
        ),
        "",
    )
    return FoundChange(
        series_key=key,
        case=cases[key],
        phone=attributes[key].get("phone", str(cases[key].serial)),
        is_virtual=after.is_virtual,
        night=night,
        earliest=earliest,
        latest=latest,
        ratio=change.ratio,
        low=change.low,
        high=change.high,
        confidence=change.confidence,
        noise=change.noise,
        before_us=_median_of(row[: change.night], -change.nights_before),
        after_us=_median_of(row[change.night :], change.nights_after),
        nights_after=change.nights_after,
        causes=causes,
        status=confirmation.status if confirmation else ConfirmationStatus.UNCONFIRMED,
        status_detail=confirmation.detail if confirmation else "",
        expected=expected,
        case_before=before,
        case_after=after,
    )


def _median_of(row: np.ndarray[tuple[int, ...], np.dtype[np.float64]], nights: int) -> float:
    """Return the median of the first so many figures, of the last for a negative number."""
    there = row[np.isfinite(row)]
    return float(np.median(there[nights:] if nights < 0 else there[:nights]))


def _sides(change: Change, table: NightTable) -> tuple[CaseSketch, CaseSketch]:
    """Return the series' case on the last night before a change, and on its first night."""
    row = table.case[change.series]
    before = row[: change.night][row[: change.night] >= 0][-1]
    after = row[change.night :][row[change.night :] >= 0][0]
    return table.cases[int(before)], table.cases[int(after)]


def _attribute(
    store: Store, table: NightTable, found: Sequence[Change], attributes: Mapping[SeriesKey, Mapping[str, str]]
) -> list[tuple[Cause, ...]]:
    """Return of each change what changed beside it, what explains most first."""
    if not found:
        return []
    sightings = store.sightings()
    moved: dict[tuple[date, int], set[int]] = {}
    for change in found:
        moved.setdefault((table.nights[change.night], change.ratio > 1), set()).add(change.series)
    builds = {sha256: build.name for sha256, build in store.builds().items()}
    told_at: dict[tuple[int, str, str, str], tuple[int, int, int]] = {}
    found_causes = []
    for number, change in enumerate(found):
        causes = []
        alike = moved[table.nights[change.night], change.ratio > 1]
        for name, before, after in _differences(change, table, sightings, builds):
            at = change.night, name, before, after
            if at not in told_at:
                told_at[at] = _exposure(at, table, sightings, builds, alike)
            exposed, exposed_moved, others_moved = told_at[at]
            others = len(table.series) - exposed
            share = coincidence_share(exposed, exposed_moved, others, others_moved)
            causes.append(Cause(name=name, before=before, after=after, share=share, moved=(exposed_moved, exposed)))
        if number < _READ_CHANGES:
            causes += _covariates(store, table, change)
        found_causes.append(tuple(sorted(causes, key=lambda cause: -(cause.share or 0.0))))
    return found_causes


def _differences(
    change: Change,
    table: NightTable,
    sightings: Mapping[Serial, Sequence[DeviceSighting]],
    builds: Mapping[str, str],
) -> list[tuple[str, str, str]]:
    """Return what is another thing since a change's nights: (name, before, after)."""
    before, after = _sides(change, table)
    return _case_differences(before, after, builds) + _device_differences(
        sightings.get(after.serial, ()), _last_before(change, table), table.nights[change.latest]
    )


def _last_before(change: Change, table: NightTable) -> date:
    """Return the last night that is before the change for sure."""
    row = table.latency_us[change.series]
    there = np.flatnonzero(np.isfinite(row[: change.earliest]))
    return table.nights[int(there[-1])] if there.size else table.nights[0]


def _case_differences(before: CaseSketch, after: CaseSketch, builds: Mapping[str, str]) -> list[tuple[str, str, str]]:
    found = []
    if before.model_sha256 != after.model_sha256:
        found.append(("model", before.model_sha256[:12], after.model_sha256[:12]))
    if before.build_sha256 != after.build_sha256:
        old, new = (f"{builds.get(sha, '')}@{sha[:12]}" for sha in (before.build_sha256, after.build_sha256))
        found.append(("build", old, new))
    return found


def _device_differences(seen: Sequence[DeviceSighting], before: date, after: date) -> list[tuple[str, str, str]]:
    earlier = [item for item in seen if night_of(item.at) <= before]
    later = [item for item in seen if night_of(item.at) <= after]
    if not earlier or not later or earlier[-1] is later[-1]:
        return []
    old, new = earlier[-1].facts, later[-1].facts
    return [
        (name, old.get(name, "unknown"), new.get(name, "unknown"))
        for name in {**old, **new}
        if old.get(name) != new.get(name)
    ]


def _exposure(
    at: tuple[int, str, str, str],
    table: NightTable,
    sightings: Mapping[Serial, Sequence[DeviceSighting]],
    builds: Mapping[str, str],
    alike: set[int],
) -> tuple[int, int, int]:
    """Return how many series saw the very same difference, how many of them moved, and how many others did."""
    night, *difference = at
    exposed = moved = others_moved = 0
    device_saw: dict[Serial, bool] = {}
    for series in range(len(table.series)):
        row = table.case[series]
        old, new = row[:night][row[:night] >= 0], row[night:][row[night:] >= 0]
        saw = False
        if old.size and new.size:
            before, after = table.cases[int(old[-1])], table.cases[int(new[0])]
            if difference[0] in ("model", "build"):
                saw = tuple(difference) in _case_differences(before, after, builds)
            else:
                if after.serial not in device_saw:
                    found = _device_differences(
                        sightings.get(after.serial, ()), table.nights[max(night - 1, 0)], table.nights[night]
                    )
                    device_saw[after.serial] = tuple(difference) in found
                saw = device_saw[after.serial]
        exposed += saw
        moved += saw and series in alike
        others_moved += (not saw) and series in alike
    return max(exposed, moved), moved, others_moved


def _covariates(store: Store, table: NightTable, change: Change) -> list[Cause]:
    """Return which of heat, battery and clocks shifted with a change, and how much of it that explains."""
    keys = [
        table.cases[place].case_key for place in sorted({int(item) for item in table.case[change.series] if item >= 0})
    ]
    place_of_night = {night: place for place, night in enumerate(table.nights)}
    figures: dict[str, list[list[float]]] = {name: [[] for _ in table.nights] for name in _COVARIATES}
    grades: list[set[str]] = [set() for _ in table.nights]
    nights = {item.campaign_id: place_of_night.get(night_of(item.created_at)) for item in store.campaigns()}
    for run in store.runs(case_keys=keys):
        place = nights.get(run.campaign_id)
        if place is None or run.latency_us is None:
            continue
        if run.verdict.grade is not None:
            grades[place].add(run.verdict.grade.value)
        for name, value in _states(run).items():
            figures[name][place].append(value)
    start = max(0, change.night - change.nights_before)
    causes = []
    for name, values in figures.items():
        covariate = np.array([np.median(item) if item else np.nan for item in values])
        found = covariate_share(table.latency_us[change.series], covariate, change.night, start)
        if found is not None and found[0] >= 0.05:
            share, before, after = found
            unit = _COVARIATES[name]
            causes.append(Cause(name=name, before=f"{before:.4g} {unit}", after=f"{after:.4g} {unit}", share=share))
    old, new = ("/".join(sorted(set().union(*part))) for part in (grades[start : change.night], grades[change.night :]))
    if old and new and old != new:
        causes.append(Cause(name="grade", before=old, after=new, share=None))
    return causes


#: What is read from a run's states -> unit.
_COVARIATES: Final = {"battery heat": "°C", "start heat": "°C", "battery": "%", "clock limit": "MHz"}


def _states(run: RunRecord) -> dict[str, float]:
    """Return the covariates of a run that are known."""
    state: DeviceState | None = run.state_before
    if state is None:
        return {}
    found: dict[str, float | None] = {
        "battery heat": state.battery_heat_c,
        "start heat": max(state.heat_c.values(), default=None),
        "battery": state.battery_percent,
        "clock limit": max(state.clock_limit_khz.values(), default=0) / 1000 or None,
    }
    return {name: float(value) for name, value in found.items() if value is not None}


def _grouped(
    told: Sequence[FoundChange],
    found: Sequence[Change],
    table: NightTable,
    attributes: Mapping[SeriesKey, Mapping[str, str]],
) -> tuple[ChangeGroup, ...]:
    groups = group_changes(
        [attributes[key] for key in table.series],
        [change.series for change in found],
        # A night more on each side: of many series' 95 % intervals, some miss the night that they share.
        [(change.earliest - 1, change.latest + 1) for change in found],
        [1 if change.ratio > 1 else -1 for change in found],
    )
    made = []
    for group in groups:
        members = tuple(sorted((told[item] for item in group.members), key=lambda item: -abs(item.ratio - 1)))
        made.append(
            ChangeGroup(sentence=_sentence(group.words, members, group.series), members=members, series=group.series)
        )
    order = list(ConfirmationStatus)
    rank = {ConfirmationStatus.CONFIRMED: 0, ConfirmationStatus.UNCONFIRMED: 1, ConfirmationStatus.CANNOT: 1}
    return tuple(
        sorted(
            made,
            key=lambda group: (
                all(item.expected for item in group.members),
                min(rank.get(item.status, len(order)) for item in group.members),
                -len(group.members),
                -max(abs(item.ratio - 1) for item in group.members),
            ),
        )
    )


def _sentence(words: Mapping[str, str], members: Sequence[FoundChange], series: int) -> str:
    """Return what happened: ``all GPU cases on Adreno 640 since the 3rd of March: 8.1 % slower (12 of 12 series)``."""
    ratio = float(np.median([item.ratio for item in members]))
    change = f"{abs(ratio - 1) * 100:.1f} % {'slower' if ratio > 1 else 'faster'}"
    # The night that most members name: a phone that was away sees it later.
    nights = [item.night for item in members]
    night = max(sorted(set(nights)), key=nights.count)
    since = f"since {night:%Y-%m-%d}"
    if len(members) == 1 and not words:
        only = members[0]
        return (
            f"{only.case.model_name} on {only.phone} ({only.case.serial}), {only.case.configuration}, {since}: {change}"
        )
    how_many = "all" if len(members) == series else "most"
    delegate = (
        f"{words['delegate'].upper() if words['delegate'] in ('gpu', 'cpu', 'npu') else words['delegate']} "
        if "delegate" in words
        else "GPU "
        if "GPU" in words
        else ""
    )
    places = [words[name] for name in ("GPU", "soc", "phone", "serial") if name in words]
    where = f" on {', '.join(places)}" if places else ""
    model = f" of {words['model']}" if "model" in words else ""
    rest = [f"{name} {words[name]}" for name in ("tool", "threads") if name in words]
    with_rest = f" with {', '.join(rest)}" if rest else ""
    return f"{how_many} {delegate}cases{model}{where}{with_rest} {since}: {change} ({len(members)} of {series} series)"


def moment_of(text: str, *, now: datetime) -> date:
    """Return the night that ``30d``, ``4w`` or ``2026-03-09`` means; raises ValueError."""
    if text[-1:] in ("d", "w") and text[:-1].isdigit():
        return night_of(now) - timedelta(days=int(text[:-1]) * (7 if text.endswith("w") else 1))
    return date.fromisoformat(text)
