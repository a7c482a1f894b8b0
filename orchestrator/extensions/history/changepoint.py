"""Where series of nights changed: optimal partitioning of many series at once.

A series is the logarithm of its night medians. It is cut into segments so that the squared
distances from the segments' means, in units of the night-to-night noise, plus a penalty for each
cut are least: Jackson et al., "An algorithm for optimal partitioning of data on an interval"
(2005), exact, with a least segment length. The recursion runs over nights and is vectorised over
series, so that a lab's thousands of series take about a second.

Nights remember each other: a warm week, a clock state. What a night has of the one before it is
taken out before distances are squared (a first-order autoregression, as Chakar et al., "A robust
approach for estimating change-points in the mean of an AR(1) process", 2017). Otherwise such a week
looks like a new level. Each series' correlation comes from how much means of four nights differ
against how much neighbours do, in winsorised deviations, which outliers hardly touch; it is drawn
half-way to the median of all series, which share their room and season (Efron & Morris 1975).
Memory that lasts longer than an autoregression's raises the penalty for all. Noise and memory are
those of the nights before the newest, so that a step which is news doesn't hide itself by looking
like noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.analysis.intervals import PRIOR, error_factor, t_cdf
from orchestrator.frozen import frozen
from orchestrator.records.history import LEAST_CHANGE

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Nights that are looked at, back from the newest.
WINDOW_NIGHTS: Final = 90
#: A change that is older has been told, or is what is normal now.
RECENT_NIGHTS: Final = 14
#: As many figures of a new level may be needed to know it: a series of fewer nights has them later.
KNOWN_FIGURES: Final = 5
#: Two outliers in a row must not look like a segment.
SEGMENT_NIGHTS: Final = 3
#: Series of constant figures have no noise; the log of a latency is never known better than this.
LEAST_SIGMA: Final = 0.002
#: Logarithms that differ by less are of one printed figure.
_SAME_FIGURE: Final = 1e-9
#: What the noise of the newest nights counts against that of older ones.
_NEWEST_SHARE: Final = 0.8
#: The noise of a phone's series rose when it did so in the median of as many nights, by so much.
_RISE_NIGHTS: Final = 5
_RISE_LEAST: Final = 1.3
#: A step is common to so many series and more, in one direction in so large a share of them.
_COMMON_SERIES: Final = 6
_COMMON_SHARE: Final = 0.9
#: What the noise that is usual in a lab counts, in nights of a series of few.
_USUAL_NIGHTS: Final = 10
#: A new level is clear that is beyond so many of the means of as many nights in a row, at most
#: seven, among the nights before.
_CLEAR_SHARE: Final = 0.95
_CLEAR_NIGHTS: Final = 45
_CLEAR_MOST: Final = 7
#: The scatter of a new level of so many nights is taken to be twice what it looks.
_FEW_NIGHTS: Final = 2.0
#: Less sure changes are never told.
_CONFIDENCE_LEAST: Final = 0.95
#: Nights have gone back whose mean has less than this of the step left.
_LEFT_MOST: Final = 0.4
#: For a cut, in squared sigmas.
PENALTY: Final = 18.0
_HAMPEL_NIGHTS: Final = 5
_HAMPEL_SIGMAS: Final = 2.5
#: Nights whose means say how much neighbours remember, and those that say whether they remember for
#: longer.
_MEMORY_NIGHTS: Final = 4
_LONG_NIGHTS: Final = 10
#: The estimate of a correlation lies so much too high, where outliers were clipped and medians
#: taken.
_MEMORY_BIAS: Final = 0.05
#: By how much long means may differ more than the correlation says before it raises the penalty:
#: medians of few.
_LONG_EXCESS: Final = 1.25
#: What is more than that raises the penalty by its power, at most to so many times: what all series
#: did must not hide.
_LONG_POWER: Final = 1.5
_LONG_MOST: Final = 2.0
#: What a series' own estimate counts against that of all series: more where it remembers for longer,
#: nearly in full where that is more than chance makes.
_OWN_MEMORY: Final = 0.5
_OWN_MEMORY_ABOVE: Final = 0.7
_OWN_MEMORY_CLEAR: Final = 0.95
_CLEAR_EXCESS: Final = 0.35
_MEMORY_GRID: Final = np.arange(0, 0.85, 0.05)
#: A median absolute deviation in units of a normal distribution's sigma.
_MAD: Final = 1.4826
#: Deviations count up to so many sigmas; what that leaves of a normal distribution's variance.
_WINSOR_SIGMAS: Final = 2.5
_WINSOR_LEFT: Final = 0.9776
#: By how much a cut elsewhere may be worse, in deviance, to be in the 95 % interval of its place.
_PLACE_COST: Final = 3.84


@frozen
class Change:
    """One cut of one series. Nights are places in the series as it was given, gaps included."""

    #: Which of the given series.
    series: int
    #: The first night of the new level.
    night: int
    #: With how many nights it is recent at last: RECENT_NIGHTS after it began, and more for a series
    #: that has its first figures of the new level later than night after night.
    recent_until: int
    #: First and last night that the new level may have begun on, with 95 % confidence.
    earliest: int
    latest: int
    #: Level after / level before, of the two segments that meet here (medians): 1.05 takes 5 %
    #: longer.
    ratio: float
    #: Ends of the 95 % interval of ``ratio``.
    low: float
    high: float
    #: 0 to 1: one less the chance that noise alone shows such a cut anywhere in the series.
    confidence: float
    #: Nights with a figure in the segment before and after.
    nights_before: int
    nights_after: int
    #: Whether this is the series' newest change; a change and its end are one.
    is_newest: bool
    #: The new level is beyond nearly all that as many nights in a row had before.
    is_clear: bool
    #: The night on which the series was back at the level before; None while the new one lasts.
    ended: int | None = None

    def later(self, nights: int) -> Change:
        """Return it as one of a table that begins so many nights earlier."""
        return replace(
            self,
            night=self.night + nights,
            earliest=self.earliest + nights,
            latest=self.latest + nights,
            recent_until=self.recent_until + nights,
            ended=None if self.ended is None else self.ended + nights,
        )

    @property
    def is_sure(self) -> bool:
        """Whether it may be told at all: noise alone hardly ever shows it."""
        return self.is_clear and self.confidence >= _CONFIDENCE_LEAST


def changes(
    latency: Floats, *, penalty: float = PENALTY, phones: Sequence[str] = ()
) -> list[Change]:
    """Return every cut of every series, by series and night.

    Args:
        latency: series x nights, in any unit of time, NaN where a night has no figure. Nights
            without a figure and figures that aren't positive are left out; a series needs two
            segments' nights to be cut at all.
        penalty: for a cut, in squared sigmas of the night-to-night noise.
        phones: of each series; those of a phone may become noisier together. All count as one where
            it is empty.
    """
    logs, places, lengths = _packed(latency)
    # Series that can't be cut say nothing of the others.
    rows = np.flatnonzero(lengths >= 2 * SEGMENT_NIGHTS)
    if not rows.size:
        return []
    logs, places, lengths = logs[rows], places[rows], lengths[rows]
    phones = [phones[row] for row in rows.tolist()] if phones else ()
    newest = _NEWEST_SHARE * noise_of(*_newest(logs, lengths, RECENT_NIGHTS))
    calm = clipped(logs, lengths, np.maximum(noise_of(logs, lengths), newest))
    is_old = lengths >= 3 * RECENT_NIGHTS
    older = np.where(is_old, lengths - RECENT_NIGHTS, lengths)
    common = common_step(_by_night(calm, places, np.where(is_old, 0, lengths), latency.shape[1]))
    whole = calm if common is None else common.taken_out_of(calm, places)
    memory, longer = memory_of(whole, older)
    noise = noise_of(calm, older)
    # A phone may have become noisier: the newest nights count too, nearly in full.
    noise = np.maximum(noise * _rise(logs, lengths, noise, phones), newest)
    noise = _with_usual_noise(noise, lengths)
    sigma = noise / np.sqrt(1 - memory)
    z = calm / sigma[:, None]
    came_from = best_cuts(z, lengths, penalty=penalty * longer, memory=memory)
    found: list[Change] = []
    for series, length in enumerate(lengths.tolist()):
        row = _Row(
            series=int(rows[series]),
            logs=logs[series, :length],
            z=z[series, :length],
            places=places[series, :length],
            sigma=float(sigma[series]),
            memory=float(memory[series]),
        )
        cuts = walked_back(came_from[:, series], length)
        if common is not None:
            cuts = common.added_to(cuts, series, row.places)
        described = [row.described(cuts, at, length) for at in range(len(cuts))]
        if common is not None:
            described = common.confirmed(described, series, row.places)
        found += row.held(row.with_ends(described), came_from[:, series])
    return found


@frozen
class CommonStep:
    """A step that nearly all series of few nights made on one night: a build, not chance."""

    night: int
    #: 1 where it is slower, -1 where it is faster.
    sign: float
    #: Of each series: the level after less that before; 0 for one that shows too little of it.
    steps: Floats
    confidence: float

    def taken_out_of(self, logs: Floats, places: Integers) -> Floats:
        """Return the series without it: a new build is no memory."""
        found: Floats = logs - np.where(places >= self.night, self.steps[:, None], 0.0)
        return found

    def has(self, series: int) -> bool:
        """Whether a series made it, and by as much as is told."""
        return self.sign * float(self.steps[series]) >= math.log1p(LEAST_CHANGE)

    def added_to(self, cuts: list[int], series: int, places: Integers) -> list[int]:
        """Return the cuts of a series with this one, unless one of its own is beside it."""
        cut = int(np.searchsorted(places, self.night))
        has_own = any(abs(own - cut) < SEGMENT_NIGHTS for own in cuts)
        return cuts if has_own or not self.has(series) else sorted([*cuts, cut])

    def confirmed(self, changes: list[Change], series: int, places: Integers) -> list[Change]:
        """Return the changes of a series; what all made is as sure as all of them are."""
        if not self.has(series):
            return changes
        cut = int(np.searchsorted(places, self.night))
        beside = set(places[max(0, cut - SEGMENT_NIGHTS + 1) : cut + SEGMENT_NIGHTS].tolist())
        return [
            replace(item, confidence=max(item.confidence, self.confidence), is_clear=True)
            if item.night in beside
            else item
            for item in changes
        ]


def common_step(table: Floats) -> CommonStep | None:
    """Return the largest step that nearly all series made on one night; None where there is none.

    ``table``: series x nights, NaN where a night has no figure. A series counts on the nights that
    have enough of its figures on both sides.
    """
    known = np.isfinite(table)
    there = np.where(known, table, 0.0)
    before, sums = np.cumsum(known, axis=1) - known, np.cumsum(there, axis=1) - there
    after, rest = known.sum(axis=1)[:, None] - before, there.sum(axis=1)[:, None] - sums
    counts = (before >= SEGMENT_NIGHTS) & (after >= SEGMENT_NIGHTS)
    is_asked = counts.sum(axis=0) >= max(_COMMON_SERIES, known.any(axis=1).sum() / 2)
    if not is_asked.any():
        return None
    # The night that explains most: by means, whose step is largest at the right one.
    before, after = np.maximum(before, 1), np.maximum(after, 1)
    gain = (rest / after - sums / before) / np.sqrt(1 / before + 1 / after)
    gains = np.abs(_row_median(np.where(counts, gain, np.nan).T))
    night = int(np.argmax(np.where(is_asked, gains, -1.0)))
    at = np.flatnonzero(counts[:, night])
    levels = _row_median(table[at, :night]), _row_median(table[at, night:])
    own = levels[1] - levels[0]
    size = float(np.median(own))
    is_shared = np.mean(np.sign(own) == np.sign(size)) >= _COMMON_SHARE
    if not is_shared or abs(size) < math.log1p(LEAST_CHANGE):
        return None
    # The standard error of a median of normal noise is sqrt(pi / 2) times that of the mean.
    spread = _MAD * float(np.median(np.abs(own - size))) * math.sqrt(math.pi / 2 / at.size)
    # All series rise on a warm night: how far nights are off as a whole counts, too, and that a few
    # of them don't show how they remember.
    is_after = np.arange(table.shape[1]) >= night
    rest_of = table[at] - np.where(is_after, levels[1][:, None], levels[0][:, None])
    off = _row_median(rest_of.T)
    sides = [int(np.sum(np.isfinite(off) & side)) for side in (~is_after, is_after)]
    degrees = max(1, sum(sides) - 2)
    variance = float(np.nansum(off**2)) / degrees
    shares = sum(error_factor(count, PRIOR) ** 2 / count for count in sides)
    error = max(math.sqrt(variance * shares), spread, LEAST_SIGMA)
    chance = table.shape[1] * 2 * t_cdf(-abs(size) / error, degrees)
    if chance > 1 - _CONFIDENCE_LEAST:
        return None
    steps = np.zeros(len(table))
    steps[at] = own
    return CommonStep(night=night, sign=math.copysign(1, size), steps=steps, confidence=1 - chance)


def _with_usual_noise(noise: Floats, lengths: Integers) -> Floats:
    """Return the noise of series; a few nights that look quieter than those of all others are drawn
    to them.
    """
    usual = float(np.median(noise)) if noise.size else 0.0
    drawn = np.sqrt((lengths * noise**2 + _USUAL_NIGHTS * usual**2) / (lengths + _USUAL_NIGHTS))
    found: Floats = np.where(lengths < 3 * RECENT_NIGHTS, np.maximum(noise, drawn), noise)
    return found


def _newest(logs: Floats, lengths: Integers, nights: int) -> tuple[Floats, Integers]:
    """Return each series' newest nights, and how many there are."""
    count = min(nights, logs.shape[1])
    at = np.maximum(lengths[:, None] - count + np.arange(count), 0)
    return np.take_along_axis(logs, at, axis=1), np.minimum(lengths, count)


def _rise(logs: Floats, lengths: Integers, noise: Floats, phones: Sequence[str]) -> Floats:
    """Return by how much each series' noise rose with that of its phone's series; 1 where it didn't.

    What a series alone shows of it in a few nights is too little. The median over nights of the
    medians over series: a step of all is one night.
    """
    found = np.ones(len(logs))
    old = np.flatnonzero(lengths >= 3 * RECENT_NIGHTS)
    newest, _ = _newest(logs[old], lengths[old], _RISE_NIGHTS + 1)
    steps = _MAD * np.abs(np.diff(newest, axis=1)) / noise[old, None] / math.sqrt(2)
    names = np.asarray(phones)[old] if len(phones) else np.full(old.size, "")
    for own in [np.ones(old.size, dtype=bool), *(names == name for name in sorted(set(names)))]:
        if np.sum(own) >= _COMMON_SERIES:
            rise = float(np.median(np.median(steps[own], axis=0)))
            found[old[own]] = rise if rise >= _RISE_LEAST else 1.0
    return found


def is_alarm(change: Change, *, nights: int) -> bool:
    """Whether a cut is news in a series of so many nights, and lasts."""
    return change.ended is None and is_news(change, nights=nights)


def is_news(change: Change, *, nights: int, threshold: float = LEAST_CHANGE) -> bool:
    """Whether a cut is to be told: it lasts or is the newest, is recent, and large enough to matter."""
    ended = change.ended
    lasts = change.is_newest or ended is None
    is_recent = nights <= (change.recent_until if ended is None else ended + RECENT_NIGHTS)
    is_large = abs(change.ratio - 1) >= threshold
    return lasts and is_recent and is_large and change.is_sure


def best_cuts(z: Floats, lengths: Integers, *, penalty: float, memory: Floats) -> Integers:
    """Return places x series: where the last segment of the best cuts up to a place begins.

    ``memory`` is each series' correlation of neighbours: a segment's first night still has
    something of the level before it, which is taken to be that of the best cuts up to there.
    """
    (count, width), rho = z.shape, memory
    used = np.where(np.arange(width) < lengths[:, None], z, 0.0)
    # Centred on each series' own mean, so that sums of squares lose no digits.
    used -= (used.sum(axis=1) / np.maximum(lengths, 1))[:, None] * (
        np.arange(width) < lengths[:, None]
    )
    # Nights first: the recursion takes whole rows of memory.
    nights = used.T
    news = nights.copy()
    news[1:] -= rho * nights[:-1]
    zero = np.zeros((1, count))
    sums = np.vstack([zero, np.cumsum(news, axis=0)])
    squares = np.vstack([zero, np.cumsum(news * news, axis=0)])
    # The variance of news, and what a level of 1 adds to them.
    variance, lift = 1 - rho**2, 1 - rho
    best = np.full((width + 1, count), np.inf)
    best[0] = -penalty
    came_from = np.zeros((width + 1, count), dtype=np.int64)
    rows = np.arange(count)
    # The first night of a segment without what it has of the level before, by where the segment
    # begins.
    first = np.zeros((width + 1, count))
    first[0] = nights[0] if width else 0.0
    weight = np.tile(1 / variance, (width + 1, 1))
    weight[0] = 1.0
    for end in range(SEGMENT_NIGHTS, width + 1):
        starts = np.arange(0, end - SEGMENT_NIGHTS + 1)
        begins, size = slice(0, starts.size), (end - 1 - starts)[:, None]
        total_weight = weight[begins] + size * lift**2 / variance
        level = (
            weight[begins] * first[begins]
            + (sums[end] - sums[1 : starts.size + 1]) * lift / variance
        )
        own = (
            weight[begins] * first[begins] ** 2
            + (squares[end] - squares[1 : starts.size + 1]) / variance
        )
        total = best[begins] + own - level * level / total_weight
        chosen = np.argmin(total, axis=0)
        came_from[end] = chosen
        best[end] = total[chosen, rows] + penalty
        if end < width:
            before = level[chosen, rows] / total_weight[chosen, rows]
            first[end] = nights[end] - rho * (nights[end - 1] - before)
    return came_from


def walked_back(came_from: Integers, length: int) -> list[int]:
    """Return where the segments of one series of this length begin, but for the first one."""
    cuts: list[int] = []
    place = length if length >= SEGMENT_NIGHTS else 0
    while (place := int(came_from[place])) > 0:
        cuts.append(place)
    return cuts[::-1]


def noise_of(logs: Floats, lengths: Integers) -> Floats:
    """Return each series' night-to-night sigma: from differences of neighbours, which steps hardly
    touch.

    Never less than rounding makes: figures of a coarse program are alike on most nights, and then
    off by the least difference between any two of them.
    """
    inside = np.where(np.arange(logs.shape[1]) < lengths[:, None], logs, np.nan)
    gaps = np.diff(np.sort(inside, axis=1), axis=1)
    gaps[~(gaps > _SAME_FIGURE)] = np.inf
    least = gaps.min(axis=1, initial=np.inf) / math.sqrt(12)
    least = np.maximum(LEAST_SIGMA, np.where(np.isfinite(least), least, 0.0))
    differences = np.diff(logs, axis=1)
    differences[np.arange(differences.shape[1]) >= (lengths - 1)[:, None]] = np.nan
    found: Floats = np.maximum(least, _sigma(differences) / math.sqrt(2))
    return found


def _sigma(values: Floats) -> Floats:
    """Return the sigma of each row's values around 0 (not counting NaN): winsorised, as outliers
    are few and large.
    """
    size = np.abs(values)
    most = _WINSOR_SIGMAS * _MAD * np.nan_to_num(_row_median(size))
    squares = np.nansum(np.minimum(size, most[:, None]) ** 2, axis=1)
    found: Floats = np.sqrt(
        squares / np.maximum(1, np.sum(~np.isnan(values), axis=1)) / _WINSOR_LEFT
    )
    return found


def memory_of(logs: Floats, lengths: Integers) -> tuple[Floats, float]:
    """Return each series' correlation of neighbouring nights, and by how much they remember for
    longer than it says.

    The second figure is 1 to _LONG_MOST, for all series together.
    """
    near = noise_of(logs, lengths)
    blocks = _sigma(_block_steps(logs, lengths, _MEMORY_NIGHTS))
    found = np.interp((blocks / near) ** 2, _growths(_MEMORY_NIGHTS), _MEMORY_GRID)
    usual = float(np.median(found)) if found.size else 0.0
    excess = found - usual
    own = excess * np.select(
        [excess > _CLEAR_EXCESS, excess > 0], [_OWN_MEMORY_CLEAR, _OWN_MEMORY_ABOVE], _OWN_MEMORY
    )
    # A few nights tell a series' own memory from a step in it no better than they do chance.
    own = np.where(lengths < 2 * RECENT_NIGHTS, 0.0, own)
    memory = np.clip(usual - _MEMORY_BIAS + own, 0.0, _MEMORY_GRID[-1])
    growth = np.interp(memory, _MEMORY_GRID, _growths(_LONG_NIGHTS))
    long = _MAD * np.nan_to_num(_row_median(np.abs(_block_steps(logs, lengths, _LONG_NIGHTS))))
    longer = float(np.median((long / near) ** 2 / growth)) / _LONG_EXCESS if found.size else 1.0
    return memory, min(_LONG_MOST, max(1.0, longer) ** _LONG_POWER)


def _block_steps(logs: Floats, lengths: Integers, nights: int) -> Floats:
    """Return the differences of means of neighbouring stretches of so many nights.

    NaN beyond a series' end.
    """
    width = logs.shape[1]
    inside = np.where(np.arange(width) < lengths[:, None], logs, 0.0)
    sums = np.hstack([np.zeros((len(logs), 1)), np.cumsum(inside, axis=1)])
    ends = np.arange(2 * nights, width + 1)
    means = (sums[:, ends] - 2 * sums[:, ends - nights] + sums[:, ends - 2 * nights]) / nights
    found: Floats = np.where(ends > lengths[:, None], np.nan, means)
    return found


def _growths(nights: int) -> Floats:
    """Return such a difference's variance against half of a neighbour difference's, by correlation
    of the grid.
    """
    lags = np.abs(np.subtract.outer(np.arange(2 * nights), np.arange(2 * nights)))
    signs = np.repeat([-1.0, 1.0], nights) / nights
    correlations = _MEMORY_GRID[:, None, None] ** lags
    found: Floats = np.einsum("i,gij,j->g", signs, correlations, signs) / (1 - _MEMORY_GRID)
    return found


def clipped(logs: Floats, lengths: Integers, sigma: Floats) -> Floats:
    """Return the series with lone outliers brought to a few sigmas of the median of their five
    nights (Hampel).

    The first and last two nights count to the first and last five: the newest two of them may both
    be outliers.
    """
    count, width = logs.shape
    half = _HAMPEL_NIGHTS // 2
    inside = np.where(np.arange(width) < lengths[:, None], logs, np.nan)
    edge = np.full((count, half), np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(
        np.hstack([edge, inside, edge]), _HAMPEL_NIGHTS, axis=1
    )
    middle = _row_median(windows.reshape(-1, _HAMPEL_NIGHTS)).reshape(count, width)
    whole = np.clip(np.arange(width), half, np.maximum(lengths[:, None] - 1 - half, half))
    middle = np.take_along_axis(middle, np.minimum(whole, width - 1), axis=1)
    reach = _HAMPEL_SIGMAS * sigma[:, None]
    found: Floats = np.nan_to_num(np.clip(inside, middle - reach, middle + reach))
    return found


def _row_median(values: Floats) -> Floats:
    """Return the median of each row without its NaN; NaN for a row of nothing else."""
    if not values.shape[1]:
        return np.full(len(values), np.nan)
    # NaN comes last: also where there is nothing else.
    ordered = np.sort(values, axis=1)
    there = np.sum(~np.isnan(values), axis=1)
    rows = np.arange(len(values))
    low = ordered[rows, np.maximum((there - 1) // 2, 0)]
    high = ordered[rows, np.minimum(there // 2, values.shape[1] - 1)]
    found: Floats = (low + high) / 2
    return found


def _packed(latency: Floats) -> tuple[Floats, Integers, Integers]:
    """Return logs without gaps from the left, where each came from, and how many there are."""
    usable = np.isfinite(latency) & (latency > 0)
    order = np.argsort(~usable, axis=1, kind="stable")
    lengths = usable.sum(axis=1)
    values = np.take_along_axis(np.where(usable, latency, 1.0), order, axis=1)
    width = int(lengths.max(initial=0))
    return np.log(values[:, :width]), order[:, :width], lengths


def _by_night(logs: Floats, places: Integers, lengths: Integers, nights: int) -> Floats:
    """Return packed series x nights again, NaN where there is no figure."""
    found = np.full((len(logs), nights), np.nan)
    rows, columns = np.nonzero(np.arange(logs.shape[1]) < lengths[:, None])
    found[rows, places[rows, columns]] = logs[rows, columns]
    return found


@frozen
class _Row:
    """One series without gaps: what its cuts are described by."""

    series: int
    logs: Floats
    #: Without lone outliers, in sigmas.
    z: Floats
    #: Which night each figure is of.
    places: Integers
    sigma: float
    memory: float

    @property
    def grown(self) -> float:
        """By how much the variance of a mean of many nights is larger than that of nights which
        forget.
        """
        return (1 + self.memory) / (1 - self.memory)

    def described(self, cuts: Sequence[int], number: int, length: int) -> Change:
        """Return one of the cuts of the first nights, so many."""
        edges = [0, *cuts, length]
        start, cut, end = edges[number : number + 3]
        before, after, counts = slice(start, cut), slice(cut, end), (cut - start, end - cut)
        log_ratio = float(np.median(self.logs[after]) - np.median(self.logs[before]))
        # The standard error of a difference of two medians of normal noise is pi / 2 times that of
        # means, squared.
        shares = 1 / counts[0] + 1 / counts[1]
        error = self.sigma * math.sqrt(self.grown * math.pi / 2 * shares)
        step = float(np.mean(self.z[after]) - np.mean(self.z[before]))
        # A phone may have become noisier with the new level, more than the newest nights show.
        scatter = float(np.std(self.z[after], ddof=1)) * (1 + _FEW_NIGHTS / counts[1])
        gain = step * step / shares / self.grown / max(1.0, scatter) ** 2
        known = min(KNOWN_FIGURES, len(self.places) - cut) - 1
        earliest, latest = _place(self.z / math.sqrt(self.grown), start, cut, end)
        return Change(
            series=self.series,
            night=int(self.places[cut]),
            recent_until=int(self.places[cut + known]) + RECENT_NIGHTS - known,
            earliest=int(self.places[earliest]),
            latest=int(self.places[latest]),
            ratio=math.exp(log_ratio),
            low=math.exp(log_ratio - 1.96 * error),
            high=math.exp(log_ratio + 1.96 * error),
            confidence=max(0.0, 1 - length * math.erfc(math.sqrt(gain / 2))),
            nights_before=counts[0],
            nights_after=counts[1],
            is_newest=number == len(cuts) - 1,
            is_clear=_is_clear(self.z[max(0, cut - _CLEAR_NIGHTS) : cut], self.z[after], step),
        )

    def with_ends(self, changes: Sequence[Change]) -> list[Change]:
        """Return the changes; one that the next undoes, or that the newest nights have left, has an
        end.
        """
        found: list[Change] = []
        for change in changes:
            last = found[-1] if found else None
            step = 0.0 if last is None or last.ended is not None else math.log(last.ratio)
            if (
                last is not None
                and step
                and abs(step + math.log(change.ratio)) < abs(step) * _LEFT_MOST
            ):
                found[-1] = replace(last, ended=change.night, is_newest=change.is_newest)
            else:
                found.append(change)
        for at, change in enumerate(found):
            if change.ended is None:
                found[at] = replace(change, ended=self._left_on(change, found[at + 1 :]))
        return found

    def _left_on(self, change: Change, later: Sequence[Change]) -> int | None:
        """Return the night from which on the level of a change was left: by one of the later ones
        that nothing undid, or by the newest nights; None while it lasts.
        """
        for following in (item for item in later if item.ended is None):
            cut = int(np.searchsorted(self.places, following.night))
            if self._has_left(change, self.z[cut : cut + following.nights_after]):
                return following.night
        is_known = change.is_newest and change.nights_after > SEGMENT_NIGHTS
        has_left = is_known and self._has_left(change, self.z[-SEGMENT_NIGHTS:])
        return int(self.places[-SEGMENT_NIGHTS]) if has_left else None

    def held(self, changes: list[Change], came_from: Integers) -> list[Change]:
        """Return the changes with the alarm of one of the last nights, as far as today's noise would
        have told it then: a list that is asked for each night flaps less.

        It stays, as sure as it was, until two nights contradict it: then it went away.
        """
        length, nights = len(self.z), int(self.places[-1]) + 1
        if changes and is_news(changes[-1], nights=nights):
            return changes
        for end in range(length - 1, max(length - 1 - RECENT_NIGHTS, 2 * SEGMENT_NIGHTS - 1), -1):
            if came_from[end] < max(SEGMENT_NIGHTS, length - RECENT_NIGHTS):
                continue
            cuts = walked_back(came_from, end)
            then = self.described(cuts, len(cuts) - 1, end)
            if not is_news(then, nights=nights):
                continue
            now = self.described(cuts, len(cuts) - 1, length)
            now = replace(now, confidence=then.confidence, is_clear=True)
            has_left = self._has_left(then, self.z[-SEGMENT_NIGHTS:])
            if has_left or (
                self._is_gone(then, cuts, length) and self._is_gone(then, cuts, length - 1)
            ):
                now = replace(then, ended=int(self.places[-SEGMENT_NIGHTS]))
            elif abs(now.ratio - 1) < LEAST_CHANGE:
                now = then
            before = [item for item in changes if item.night < now.earliest]
            return [*(replace(item, is_newest=False) for item in before), now]
        return changes

    def _is_gone(self, change: Change, cuts: Sequence[int], length: int) -> bool:
        """Whether too little of a change is left in the nights since it, the first ones so many."""
        then = self.described(cuts, len(cuts) - 1, length)
        return abs(then.ratio - 1) < LEAST_CHANGE or self._has_left(
            change, self.z[cuts[-1] : length]
        )

    def _has_left(self, change: Change, nights: Floats) -> bool:
        """Whether nights have less of a change's step than it takes to be at its new level."""
        cut = int(np.searchsorted(self.places, change.night))
        level = float(np.mean(self.z[max(0, cut - change.nights_before) : cut]))
        step = math.log(change.ratio) / self.sigma
        if not step:
            return False
        parts = (nights - level) / step
        # Half of the way is nearer to the level before; one night alone may be an outlier.
        are_two = np.sum(parts[-SEGMENT_NIGHTS:] < 0.5) >= 2
        return bool(are_two and np.mean(parts) < _LEFT_MOST)


def _is_clear(before: Floats, after: Floats, step: float) -> bool:
    """Whether a new level is beyond nearly all means of as many nights in a row before it."""
    most = max(SEGMENT_NIGHTS, len(before) // 2)
    count = min(len(after), len(before), most, _CLEAR_MOST)
    means = np.mean(np.lib.stride_tricks.sliding_window_view(before, count), axis=1)
    beyond = means < np.mean(after) if step > 0 else means > np.mean(after)
    return bool(np.mean(beyond) >= _CLEAR_SHARE)


def _place(z: Floats, start: int, cut: int, end: int) -> tuple[int, int]:
    """Return the first and last cut of this stretch that explain it nearly as well as the best one."""
    stretch = z[start:end]
    sizes = np.arange(1, stretch.size)
    sums = np.cumsum(stretch)
    left, right = sums[:-1], sums[-1] - sums[:-1]
    gain = left * left / sizes + right * right / (stretch.size - sizes)
    near = np.flatnonzero(gain >= gain[cut - start - 1] - _PLACE_COST) + start + 1
    return int(min(near[0], cut)), int(max(near[-1], cut))
