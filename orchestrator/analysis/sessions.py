"""What earlier sessions of a device show: how much it remembers, and what sessions differ by. Pure.

A session is one campaign on one device. Two sessions of one program differ by more than the
invocations within each of them say: another temperature, another state of the system. No number of
invocations of two sessions can tell that from a change of the program. What sessions of a series
differed by so far is the best guess of what two more will.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from statistics import median
from typing import Final

from orchestrator.analysis.autocorrelation import UNSEEN, Autocorrelation, autocorrelation_of
from orchestrator.analysis.summary import logs_of
from orchestrator.analysis.trimmed_mean import TRIM_FROM_COUNT, trimmed_mean
from orchestrator.records.case import CampaignId, Serial, SeriesKey
from orchestrator.records.history import Points
from orchestrator.units import counted, format_percent

#: What sessions differ by where nothing is known, and how many steps from one session to the next
#: that is worth.
DEFAULT_STD: Final = 0.015
DEFAULT_WEIGHT: Final = 5
_DEFAULT_DEGREES: Final = 15
#: From so many steps on the estimate is called the series' own.
_KNOWN_FROM: Final = 10
#: Steps count up to so many times their median: a change of the program is no noise, and two states
#: of a device are some.
_STEP_MOST: Final = 5.0
#: Earlier campaigns are never worth more invocations than this: a device may change.
WEIGHT_MOST: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionNoise:
    """What sessions of one series differ by as a whole, beside the noise within each."""

    #: Relative deviation.
    std: float = DEFAULT_STD
    #: Steps from one session to the next that it is estimated from.
    steps: int = 0

    @property
    def degrees(self) -> float:
        """Degrees of freedom of ``std``.

        The default is stated, not estimated from so few steps. Neighbouring steps share a session,
        so that n of them are worth 2n/3 (von Neumann and others, Ann. Math. Statist. 12, 1941).
        """
        return max(_DEFAULT_DEGREES, DEFAULT_WEIGHT + 2 * self.steps / 3)

    @property
    def variance(self) -> tuple[float, float]:
        """What it adds to the variance of a difference of two sessions, and degrees of freedom."""
        return 2 * self.std**2, self.degrees

    @property
    def text(self) -> str:
        """What an interval holds, as a sentence."""
        known = f"from {counted(self.steps + 1, 'session')}"
        if self.steps < _KNOWN_FROM:
            known = f"default until {_KNOWN_FROM + 1} sessions are known; {self.steps + 1 if self.steps else 'none'} so far"
        return (
            "Between sessions: the interval holds what two sessions differ by, "
            f"{format_percent(self.std)} each ({known})."
        )


def session_noise(sessions: Sequence[Sequence[float]]) -> SessionNoise:
    """Return what sessions differ by, from the latencies of each in any unit, the oldest first.

    From steps between neighbours, of which changes of the program are few; what the invocations
    within each session explain is taken out, and the rest drawn to the default.
    """
    means = [trimmed_mean(logs_of(latencies)) for latencies in sessions if len(latencies) > 1]
    steps = [abs(after.value - before.value) for before, after in pairwise(means)]
    if not steps:
        return SessionNoise()
    most = _STEP_MOST * median(steps)
    squares = math.fsum(min(step, most) ** 2 for step in steps) / 2
    within = math.fsum((item.error or 0.0) ** 2 for item in means) / len(means)
    own = max(0.0, squares - len(steps) * within)
    variance = (DEFAULT_WEIGHT * DEFAULT_STD**2 + own) / (DEFAULT_WEIGHT + len(steps))
    return SessionNoise(std=math.sqrt(variance), steps=len(steps))


def session_noises(
    points: Points, *, without: Collection[CampaignId] = ()
) -> dict[SeriesKey, SessionNoise]:
    """Return what the sessions of each series differ by; ``without`` those of some campaigns."""
    sessions: dict[int, list[list[float]]] = {}
    for series, campaign, latencies in _sessions(points):
        if points.campaigns[campaign].campaign_id not in without:
            sessions.setdefault(series, []).append(latencies)
    return {
        points.series[series].series_key: session_noise(found) for series, found in sessions.items()
    }


def autocorrelations(points: Points, serials: Collection[Serial]) -> dict[Serial, Autocorrelation]:
    """Return what the invocations of each of some devices resembled each other by."""
    found: dict[Serial, Autocorrelation] = {}
    for series, _, latencies in _sessions(points):
        serial = points.series[series].serial
        if serial in serials and len(latencies) >= TRIM_FROM_COUNT:
            found[serial] = found.get(serial, UNSEEN) + autocorrelation_of(logs_of(latencies))
    return {serial: own.at_most(WEIGHT_MOST) for serial, own in found.items()}


def _sessions(points: Points) -> list[tuple[int, int, list[float]]]:
    """Return series, campaign and latencies of each session, by series and age.

    Those of a session are in the order of storing.
    """
    rows = zip(points.series_at, points.campaign_at, points.latency_us, strict=True)
    return [
        (*place, [latency_us for _, _, latency_us in group])
        for place, group in groupby(sorted(rows, key=lambda row: row[:2]), key=lambda row: row[:2])
    ]
