"""Changes that came with an update of the phone's system or driver, held against other series with the same update."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from orchestrator.analysis.changepoint import Change
from orchestrator.analysis.series import NightTable, night_of
from orchestrator.engine.causes import Difference, sides_of
from orchestrator.records.history import DeviceSighting
from orchestrator.records.identity import Serial, SeriesKey

#: What an update changes (DeviceFacts.versions), the most telling first.
_NAMES: Final = ("GPU driver", "system image", "security patch", "Android")
#: So many of the series with an update move alike, at the least, for it to explain a change.
_LEAST_SHARE: Final = 0.6
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

    def told(change: Change) -> str:
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
        if len(alike) < _LEAST_SERIES or len(alike) < _LEAST_SHARE * len(places):
            return ""
        phones = len({where for where, _ in alike})
        on = f" on {phones} phones" if phones > 1 else ""
        name, old, new = update
        return (
            f"explained by system update ({name} {old} -> {new}), confirmed by {len(alike)} of {len(places)} series{on}"
        )

    return [told(change) for change in found]


def _updates(
    table: NightTable, sightings: Mapping[Serial, Sequence[DeviceSighting]]
) -> Iterator[tuple[Serial, int, Difference]]:
    """Yield what changed of each phone, with the place of the first night since."""
    for serial, seen in sightings.items():
        for old, new in pairwise(seen):
            night = next((place for place, night in enumerate(table.nights) if night >= night_of(new.at)), None)
            if night is None:
                continue
            for name in _NAMES:
                before, after = old.facts.get(name), new.facts.get(name)
                if before and after and before != after:
                    yield serial, night, (name, before, after)


def _is_near(change: Change, night: int) -> bool:
    """Whether a change may have begun on a night; one more on each side, as of many intervals some miss theirs."""
    return change.earliest - 1 <= night <= change.latest + 1


def _has_both_sides(table: NightTable, series: int, night: int) -> bool:
    figures = np.isfinite(table.latency_us[series])
    return bool(figures[:night].any() and figures[night:].any())
