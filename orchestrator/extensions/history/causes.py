"""What is another thing since a change: contents and systems; and which series changed together."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from orchestrator.extensions.history.changepoint import Change
from orchestrator.extensions.history.series import NightTable, night_of
from orchestrator.frozen import frozen
from orchestrator.records.case import Build, Serial
from orchestrator.records.history import Contents, DeviceSighting

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

#: A description is used when this share of the series that fit it changed.
_COVERAGE: Final = 0.6
_LEAST_GROUP: Final = 2
#: Attributes in a description, at the most.
_WORDS: Final = 3
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
    """What happened beside changes: which series saw the very same difference, and how many of
    those moved alike.
    """

    def __init__(
        self, store: Store, table: NightTable, found: Sequence[Change], cuts: Sequence[Change]
    ) -> None:
        """``cuts`` are all changes that are known, of which ``found`` are asked for."""
        #: Of slower and of faster series, their changes.
        self._changes: dict[bool, dict[int, list[Change]]] = {
            True: defaultdict(list),
            False: defaultdict(list),
        }
        for change in cuts:
            self._changes[change.ratio > 1][change.series].append(change)
        # Many changes share a difference.
        self._cause = cache(self._cause_of)
        #: Which series saw a difference, and the places of their first nights with it; and each
        #: series' own.
        self._seen: dict[Difference, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
        self._own: dict[int, list[tuple[int, Difference, bool]]] = defaultdict(list)
        if not found:
            # Most nights: nobody asks.
            return
        builds = store.builds()
        # A lab that builds its program every night has a difference in each series every night.
        nights = {night for item in found for night in range(item.earliest - 1, item.latest + 2)}
        series_of: dict[Serial, list[int]] = defaultdict(list)
        for series, sketch in enumerate(table.sketches):
            series_of[sketch.serial].append(series)
            for night, before, after in content_steps(table, series):
                if night in nights:
                    for difference in content_differences(before, after, builds):
                        self._note(series, night, difference, is_content=True)
        for serial, seen in store.sightings().items():
            for earlier, later in pairwise(seen):
                night = bisect_left(table.nights, night_of(later.at, store.zone))
                for difference in system_differences(earlier, later):
                    for series in series_of[serial]:
                        figures = np.isfinite(table.latency_us[series])
                        if figures[:night].any() and figures[night:].any():
                            self._note(series, night, difference, is_content=False)

    def _note(self, series: int, night: int, difference: Difference, *, is_content: bool) -> None:
        self._seen[difference][series].append(night)
        self._own[series].append((night, difference, is_content))

    def of(self, change: Change) -> tuple[Cause, ...]:
        """Return what changed on the nights on which a change may have begun: systems, and of each
        content what is nearest to its night, as a lab may build every night. First is what moved
        most of the series that saw it.
        """
        near = [
            (difference, is_content, abs(night - change.night))
            for night, difference, is_content in self._own[change.series]
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

    def _cause_of(self, difference: Difference, is_slower: bool) -> Cause:
        changes, exposed = self._changes[is_slower], self._seen[difference]
        moved = sum(
            any(_is_near(change, night) for night in nights for change in changes.get(series, ()))
            for series, nights in exposed.items()
        )
        name, before, after = difference
        return Cause(name=name, before=before, after=after, exposed=len(exposed), moved=moved)


def _is_near(change: Change, night: int) -> bool:
    """Whether a change may have begun on a night; one more on each side, as of many intervals some
    miss theirs.
    """
    return change.earliest - 1 <= night <= change.latest + 1


def sides_of(change: Change, table: NightTable) -> tuple[Contents, Contents]:
    """Return what a series measured on the last night before a change may have begun, and on the
    last on which it may; where both are alike, of one more night on each side.
    """
    row = table.contents_at[change.series]
    there = np.flatnonzero(row >= 0)
    sides: list[Contents] = []
    for more in (0, 1):
        before = max(0, int(np.searchsorted(there, change.earliest - more)) - 1)
        after = int(np.searchsorted(there, change.latest + more, side="right")) - 1
        sides = [table.contents[int(row[there[place]])] for place in (before, after)]
        if sides[0] != sides[1]:
            break
    return sides[0], sides[1]


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
    before: Contents, after: Contents, builds: Mapping[str, Build]
) -> list[Difference]:
    """Return what of a night's contents is another thing."""
    found = []
    if before.model_sha256 != after.model_sha256:
        found.append(("model", before.model_sha256[:12], after.model_sha256[:12]))
    if before.build_sha256 != after.build_sha256:
        old, new = (
            f"{builds[sha].name if sha in builds else ''}@{sha[:12]}"
            for sha in (before.build_sha256, after.build_sha256)
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


@frozen
class Group:
    """Changes of one night and direction that one description fits."""

    #: Attribute -> value; empty for a change that stands alone, and for one that all series share.
    words: Mapping[str, str]
    #: Which of the given changes.
    members: tuple[int, ...]
    #: Series that fit the words, changed or not.
    series: int


def group_changes(
    attributes: Sequence[Mapping[str, str]], changes: Sequence[Change]
) -> list[Group]:
    """Return changes by the shortest descriptions that fit them and little else, the largest group
    first; ``attributes`` are those of every series that could have changed.
    """
    series_of: dict[Word, set[int]] = defaultdict(set)
    for series, item in enumerate(attributes):
        for word in item.items():
            series_of[word].add(series)
    groups: list[Group] = []
    for together in _at_once(changes):
        left = set(together)
        while left:
            words = _best_words(attributes, series_of, [changes[item].series for item in left])
            if words is None:
                groups += [Group(words={}, members=(item,), series=1) for item in sorted(left)]
                break
            fitting = _fitting(words, series_of, len(attributes))
            members = tuple(sorted(item for item in left if changes[item].series in fitting))
            groups.append(Group(words=dict(words), members=members, series=len(fitting)))
            left -= set(members)
    return sorted(groups, key=lambda group: (-len(group.members), group.members))


def _at_once(changes: Sequence[Change]) -> list[list[int]]:
    """Return changes of one direction that may have happened on one and the same night."""
    left = list(range(len(changes)))
    found: list[list[int]] = []
    while left:
        allowed = [
            (changes[item].ratio > 1, night)
            for item in left
            for night in range(changes[item].earliest - 1, changes[item].latest + 2)
        ]
        # The night that most of them allow.
        is_slower, night = Counter(sorted(allowed)).most_common(1)[0][0]
        together = [
            item
            for item in left
            if (changes[item].ratio > 1) == is_slower and _is_near(changes[item], night)
        ]
        found.append(together)
        left = [item for item in left if item not in together]
    return found


def _best_words(
    attributes: Sequence[Mapping[str, str]],
    series_of: Mapping[Word, set[int]],
    members: Sequence[int],
) -> tuple[Word, ...] | None:
    """Return the description with the most members that enough of its series share; empty for all,
    None for none.
    """
    counts = Counter(
        words
        for series in members
        for size in range(_WORDS + 1)
        for words in combinations(sorted(attributes[series].items()), size)
    )
    best: tuple[Word, ...] | None = None
    best_score = 0.0
    for words, moved in sorted(counts.items(), key=lambda item: (-item[1], len(item[0]), item[0])):
        if moved < _LEAST_GROUP or moved <= best_score:
            break
        fitting = len(_fitting(words, series_of, len(attributes)))
        # Members that fit, less the series that would be called changed and aren't; a word costs a
        # little.
        score = 2 * moved - fitting - 0.01 * len(words)
        if moved >= _COVERAGE * fitting and score > best_score:
            best, best_score = words, score
    return best


def _fitting(words: Sequence[Word], series_of: Mapping[Word, set[int]], count: int) -> set[int]:
    return set(range(count)).intersection(*(series_of[word] for word in words))
