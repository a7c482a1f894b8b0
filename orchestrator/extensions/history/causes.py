"""Causes of changes: different contents and systems. Groups of series that changed together."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from orchestrator.clock import night_of
from orchestrator.extensions.history.changepoint import Change
from orchestrator.extensions.history.series import NightTable
from orchestrator.records import frozen
from orchestrator.records.case import Build, Serial, grouped
from orchestrator.records.history import Contents, DeviceSighting

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

#: A description is used when this share of the series that fit it changed.
_COVERAGE: Final = 0.6
_MIN_GROUP: Final = 2
#: Attributes in a description, at most.
_MAX_WORDS: Final = 3
#: (name, before, after).
Difference: TypeAlias = tuple[str, str, str]
#: An attribute of a series, and its value.
Word: TypeAlias = tuple[str, str]


@frozen
class Cause:
    """One thing that changed where a series changed."""

    #: ``build``, ``model``, ``GPU driver`` ...
    name: str
    before: str
    after: str
    #: Series that saw the same difference, and how many of them moved alike.
    exposed: int
    moved: int


class Causes:
    """Differences on the nights of changes: the series that saw one, and how many of them moved in
    the same direction.
    """

    def __init__(
        self, store: Store, table: NightTable, selected: Sequence[Change], cuts: Sequence[Change]
    ) -> None:
        """``cuts`` are all changes; ``selected`` are those of which the causes are needed."""
        #: By whether it is slower, and its series.
        self._changes = grouped(cuts, lambda change: (change.ratio > 1, change.series))
        # Many changes share a difference.
        self._cause = cache(self._find_cause)
        #: Difference -> series -> indices of its first nights with it.
        self._nights: dict[Difference, dict[int, list[int]]] = defaultdict(
            lambda: defaultdict(list)
        )
        #: Series -> its differences: night, difference, whether it is one of contents.
        self._differences: dict[int, list[tuple[int, Difference, bool]]] = defaultdict(list)
        if not selected:
            # Most nights have no change.
            return
        builds = store.builds()
        # A lab that builds its program every night has a difference in each series every night.
        nights = {night for item in selected for night in range(item.earliest - 1, item.latest + 2)}
        series_of: dict[Serial, list[int]] = defaultdict(list)
        for series, sketch in enumerate(table.sketches):
            series_of[sketch.serial].append(series)
            for night, before, after in content_steps(table, series):
                if night in nights:
                    for difference in content_differences(before, after, builds):
                        self._note(series, night, difference, is_content=True)
        for serial, device_sightings in store.sightings().items():
            for earlier, later in pairwise(device_sightings):
                night = bisect_left(table.nights, night_of(later.at, store.zone))
                for difference in system_differences(earlier, later):
                    for series in series_of[serial]:
                        figures = np.isfinite(table.latency_us[series])
                        if figures[:night].any() and figures[night:].any():
                            self._note(series, night, difference, is_content=False)

    def _note(self, series: int, night: int, difference: Difference, *, is_content: bool) -> None:
        self._nights[difference][series].append(night)
        self._differences[series].append((night, difference, is_content))

    def for_change(self, change: Change) -> tuple[Cause, ...]:
        """Return the causes of a change: differences on the nights on which it may have begun. The
        one that moved the largest share of its series is first.

        Of each content only the nearest night counts, as a lab may build every night.
        """
        near = [
            (difference, is_content, abs(night - change.night))
            for night, difference, is_content in self._differences[change.series]
            if _is_near(change, night)
        ]
        nearest: dict[str, int] = {}
        for (name, _, _), _, distance in near:
            nearest[name] = min(distance, nearest.get(name, distance))
        beside = dict.fromkeys(
            difference
            for difference, is_content, distance in near
            if not is_content or distance == nearest[difference[0]]
        )
        causes = [self._cause(difference, change.ratio > 1) for difference in beside]
        return tuple(sorted(causes, key=lambda cause: -cause.moved / cause.exposed))

    def _find_cause(self, difference: Difference, is_slower: bool) -> Cause:
        exposed = self._nights[difference]
        moved = sum(
            any(
                _is_near(change, night)
                for change in self._changes.get((is_slower, series), ())
                for night in nights
            )
            for series, nights in exposed.items()
        )
        name, before, after = difference
        return Cause(name=name, before=before, after=after, exposed=len(exposed), moved=moved)


def _is_near(change: Change, night: int) -> bool:
    """Whether a change may have begun on a night, or on the one before or after: some intervals
    miss the true night.
    """
    return change.earliest - 1 <= night <= change.latest + 1


def contents_around(change: Change, table: NightTable) -> tuple[Contents, Contents]:
    """Return the contents of a series before and after a change: of the last night before it may
    have begun, and of the last on which it may. Where they are equal, take one more night on each
    side.
    """
    row = table.contents_at[change.series]
    measured = np.flatnonzero(row >= 0)
    sides: list[Contents] = []
    for more in (0, 1):
        before = max(0, int(np.searchsorted(measured, change.earliest - more)) - 1)
        after = int(np.searchsorted(measured, change.latest + more, side="right")) - 1
        sides = [table.contents[int(row[measured[place]])] for place in (before, after)]
        if sides[0] != sides[1]:
            break
    return sides[0], sides[1]


def content_steps(table: NightTable, series: int) -> Iterator[tuple[int, Contents, Contents]]:
    """Yield the indices of nights with new contents of a series, with those before and after."""
    row = table.contents_at[series]
    measured = np.flatnonzero(row >= 0)
    for place in np.flatnonzero(np.diff(row[measured])).tolist():
        before, after = (table.contents[int(row[night])] for night in measured[place : place + 2])
        yield int(measured[place + 1]), before, after


def content_differences(
    before: Contents, after: Contents, builds: Mapping[str, Build]
) -> list[Difference]:
    """Return the differences between the contents of two nights."""
    differences = []
    if before.model_sha256 != after.model_sha256:
        differences.append(("model", before.model_sha256[:12], after.model_sha256[:12]))
    if before.build_sha256 != after.build_sha256:
        old, new = (
            f"{builds[sha].name if sha in builds else ''}@{sha[:12]}"
            for sha in (before.build_sha256, after.build_sha256)
        )
        differences.append(("build", old, new))
    old_files, new_files = dict(before.files), dict(after.files)
    return differences + [
        (f"file {name}", old_files.get(name, "none")[:12], new_files.get(name, "none")[:12])
        for name in sorted(old_files.keys() | new_files.keys())
        if old_files.get(name) != new_files.get(name)
    ]


def system_differences(before: DeviceSighting, after: DeviceSighting) -> list[Difference]:
    """Return the differences between two sightings of a device."""
    old, new = before.facts, after.facts
    return [
        (name, old.get(name, "unknown"), new.get(name, "unknown"))
        for name in {**old, **new}
        if old.get(name) != new.get(name)
    ]


@frozen
class Group:
    """Changes of one night and direction that one description fits."""

    #: Attribute -> value; empty for a single change, and for one that all series share.
    words: Mapping[str, str]
    #: Indices of the changes.
    members: tuple[int, ...]
    #: Series that fit the words, changed or not.
    series: int


def group_changes(
    attributes: Mapping[int, Mapping[str, str]], changes: Sequence[Change]
) -> list[Group]:
    """Return changes grouped by the shortest descriptions that fit them and little else.

    The largest group is first. ``attributes`` are those of every series that could have changed.
    """
    series_of: dict[Word, set[int]] = defaultdict(set)
    for series, item in attributes.items():
        for word in item.items():
            series_of[word].add(series)
    groups: list[Group] = []
    for together in _same_night(changes):
        remaining = set(together)
        while remaining:
            words = _best_words(attributes, series_of, [changes[item].series for item in remaining])
            if words is None:
                groups += [Group(words={}, members=(item,), series=1) for item in sorted(remaining)]
                break
            fitting = _fitting(words, series_of, attributes)
            members = tuple(sorted(item for item in remaining if changes[item].series in fitting))
            groups.append(Group(words=dict(words), members=members, series=len(fitting)))
            remaining -= set(members)
    return sorted(groups, key=lambda group: (-len(group.members), group.members))


def _same_night(changes: Sequence[Change]) -> list[list[int]]:
    """Return the changes grouped by direction and by a night on which all may have happened."""
    remaining = list(range(len(changes)))
    groups: list[list[int]] = []
    while remaining:
        allowed = [
            (changes[item].ratio > 1, night)
            for item in remaining
            for night in range(changes[item].earliest - 1, changes[item].latest + 2)
        ]
        # The night on which most of them may have happened.
        is_slower, night = Counter(sorted(allowed)).most_common(1)[0][0]
        group = [
            item
            for item in remaining
            if (changes[item].ratio > 1) == is_slower and _is_near(changes[item], night)
        ]
        groups.append(group)
        remaining = [item for item in remaining if item not in group]
    return groups


def _best_words(
    attributes: Mapping[int, Mapping[str, str]],
    series_of: Mapping[Word, set[int]],
    members: Sequence[int],
) -> tuple[Word, ...] | None:
    """Return the best description: the one with most members that enough of its series share.

    It is empty where all series share the change, None where none fits.
    """
    counts = Counter(
        words
        for series in members
        for size in range(_MAX_WORDS + 1)
        for words in combinations(sorted(attributes[series].items()), size)
    )
    best: tuple[Word, ...] | None = None
    best_score = 0.0
    for words, moved in sorted(counts.items(), key=lambda item: (-item[1], len(item[0]), item[0])):
        if moved < _MIN_GROUP or moved <= best_score:
            break
        fitting = len(_fitting(words, series_of, attributes))
        # Members that fit, less the unchanged series that fit; each word costs a little.
        score = 2 * moved - fitting - 0.01 * len(words)
        if moved >= _COVERAGE * fitting and score > best_score:
            best, best_score = words, score
    return best


def _fitting(
    words: Sequence[Word], series_of: Mapping[Word, set[int]], all_series: Iterable[int]
) -> set[int]:
    return set(all_series).intersection(*(series_of[word] for word in words))
