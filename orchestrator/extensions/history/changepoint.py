"""Change points in series of nights: optimal partitioning of many series at once.

A series is the logarithm of its night medians. It is cut into segments. The cuts minimise the
squared distances from the segments' means, in units of the night-to-night noise, plus a penalty for
each cut: Jackson et al., "An algorithm for optimal partitioning of data on an interval" (2005),
exact, with a minimum segment length. The recursion runs over nights and is vectorised over series,
so that a lab's thousands of series take about a second.

Nights are autocorrelated: a warm week, a clock state. A first-order autoregression is removed
before distances are squared (Chakar et al., "A robust approach for estimating change-points in the
mean of an AR(1) process", 2017). Otherwise such a week looks like a new level. The correlation is
estimated from the variance of means of four nights against that of neighbours, in winsorised
deviations, which outliers hardly touch. It is shrunk half-way to the median of all series, which
share their room and season (Efron & Morris 1975). Correlation that lasts longer than an
autoregression's raises the penalty for all. Noise and correlation are those of the nights before
the newest, so that a recent step doesn't count as noise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from orchestrator.analysis.intervals import PRIOR, error_factor, t_cdf
from orchestrator.records import frozen
from orchestrator.records.history import LEAST_CHANGE

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

#: Nights that are searched, back from the newest.
WINDOW_NIGHTS: Final = 90
#: An older change has been reported already, or is the normal level now.
RECENT_NIGHTS: Final = 14
#: Figures that may be needed to detect a new level. A series with gaps has them later.
KNOWN_FIGURES: Final = 5
#: Two outliers in a row must not look like a segment.
SEGMENT_NIGHTS: Final = 3
#: Series of constant figures have no noise; the log of a latency is never more precise than this.
MIN_SIGMA: Final = 0.002
#: Logarithms that differ by less are of the same printed figure.
_SAME_FIGURE: Final = 1e-9
#: Weight of the newest nights' noise against that of older ones.
_NEWEST_SHARE: Final = 0.8
#: The noise of a phone's series rose when its median over this many nights rose by this factor.
_RISE_NIGHTS: Final = 5
_MIN_RISE: Final = 1.3
#: A step is common to at least this many series, in one direction in at least this share of them.
_COMMON_SERIES: Final = 6
_COMMON_SHARE: Final = 0.9
#: Weight of the lab's usual noise in a short series, in nights.
_USUAL_NIGHTS: Final = 10
#: A new level is clear when it is beyond this share of the moving means of the nights before. A
#: mean is of as many nights as the new level has, at most seven.
_CLEAR_SHARE: Final = 0.95
_CLEAR_NIGHTS: Final = 45
_MAX_CLEAR_NIGHTS: Final = 7
#: The scatter of a new level of this many nights counts twice.
_FEW_NIGHTS: Final = 2.0
#: Less sure changes are never reported.
_MIN_CONFIDENCE: Final = 0.95
#: Nights are back at the old level when their mean has less than this share of the step.
_BACK_SHARE: Final = 0.4
#: Penalty of a cut, in squared sigmas.
PENALTY: Final = 18.0
_HAMPEL_NIGHTS: Final = 5
_HAMPEL_SIGMAS: Final = 2.5
#: Nights of the means that estimate the correlation, and of those that detect a longer one.
_BLOCK_NIGHTS: Final = 4
_LONG_BLOCK_NIGHTS: Final = 10
#: Bias of the estimated correlation, from clipped outliers and medians.
_CORRELATION_BIAS: Final = 0.05
#: Ratio of the long means' variance to the expected one up to which the penalty stays: they are
#: medians of few.
_LONG_EXCESS: Final = 1.25
#: A larger ratio multiplies the penalty by its power, at most by this factor: a step that all
#: series made must not hide.
_PENALTY_POWER: Final = 1.5
_MAX_PENALTY_FACTOR: Final = 2.0
#: Weight of a series' own estimate against that of all series: more where it is above theirs,
#: nearly in full where the excess is more than chance makes.
_OWN_WEIGHT: Final = 0.5
_OWN_WEIGHT_ABOVE: Final = 0.7
_OWN_WEIGHT_CLEAR: Final = 0.95
_CLEAR_EXCESS: Final = 0.35
_CORRELATION_GRID: Final = np.arange(0, 0.85, 0.05)
#: A median absolute deviation in units of a normal distribution's sigma.
_MAD: Final = 1.4826
#: Deviations are limited to this many sigmas; the share of a normal variance that this leaves.
_WINSOR_SIGMAS: Final = 2.5
_WINSOR_LEFT: Final = 0.9776
#: Deviance by which another cut may be worse and still be in the place's 95 % interval.
_PLACE_COST: Final = 3.84


@frozen
class Change:
    """One cut of one series. Nights are indices into the series, gaps included."""

    #: Row of the series in the table.
    series: int
    #: The first night of the new level.
    night: int
    #: Number of nights up to which it is recent: RECENT_NIGHTS after it began, and more for a
    #: series with gaps in its first figures of the new level.
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
    #: The new level is beyond nearly all moving means before it.
    is_clear: bool
    #: The night on which the series was back at the level before; None while the new one lasts.
    ended: int | None = None

    def later(self, nights: int) -> Change:
        """Return the change for a table that begins this many nights earlier."""
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
        """Whether it may be reported at all: noise alone hardly ever shows it."""
        return self.is_clear and self.confidence >= _MIN_CONFIDENCE


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
    # Series that can't be cut don't count for the others.
    rows = np.flatnonzero(lengths >= 2 * SEGMENT_NIGHTS)
    if not rows.size:
        return []
    logs, places, lengths = logs[rows], places[rows], lengths[rows]
    phones = [phones[row] for row in rows.tolist()] if phones else ()
    newest_noise = _NEWEST_SHARE * night_noise(*_newest(logs, lengths, RECENT_NIGHTS))
    clipped_logs = clipped(logs, lengths, np.maximum(night_noise(logs, lengths), newest_noise))
    is_old = lengths >= 3 * RECENT_NIGHTS
    older = np.where(is_old, lengths - RECENT_NIGHTS, lengths)
    common = common_step(
        _by_night(clipped_logs, places, np.where(is_old, 0, lengths), latency.shape[1])
    )
    without_step = clipped_logs if common is None else common.removed_from(clipped_logs, places)
    correlation, penalty_factor = autocorrelation(without_step, older)
    noise = night_noise(clipped_logs, older)
    # A phone may have become noisier: the newest nights count too, nearly in full.
    noise = np.maximum(noise * _rise(logs, lengths, noise, phones), newest_noise)
    noise = _with_usual_noise(noise, lengths)
    sigma = noise / np.sqrt(1 - correlation)
    z = clipped_logs / sigma[:, None]
    came_from = best_cuts(z, lengths, penalty=penalty * penalty_factor, correlation=correlation)
    all_changes: list[Change] = []
    for series, length in enumerate(lengths.tolist()):
        row = _Row(
            series=int(rows[series]),
            logs=logs[series, :length],
            z=z[series, :length],
            places=places[series, :length],
            sigma=float(sigma[series]),
            correlation=float(correlation[series]),
        )
        cuts = backtrack(came_from[:, series], length)
        if common is not None:
            cuts = common.added_to(cuts, series, row.places)
        row_changes = [row.described(cuts, number, length) for number in range(len(cuts))]
        if common is not None:
            row_changes = common.confirmed(row_changes, series, row.places)
        all_changes += row.with_earlier_alarm(row.with_ends(row_changes), came_from[:, series])
    return all_changes


@frozen
class CommonStep:
    """A step that nearly all series of few nights made on one night: a build, not chance."""

    night: int
    #: 1 where it is slower, -1 where it is faster.
    sign: float
    #: Of each series: the level after less that before; 0 for one that shows too little of it.
    steps: Floats
    confidence: float

    def removed_from(self, logs: Floats, places: Integers) -> Floats:
        """Return the series without the step: a new build is no autocorrelation."""
        without_step: Floats = logs - np.where(places >= self.night, self.steps[:, None], 0.0)
        return without_step

    def has(self, series: int) -> bool:
        """Whether a series made the step, and it is large enough to report."""
        return self.sign * float(self.steps[series]) >= math.log1p(LEAST_CHANGE)

    def added_to(self, cuts: list[int], series: int, places: Integers) -> list[int]:
        """Return the cuts of a series with this step, unless one of them is beside it."""
        cut = int(np.searchsorted(places, self.night))
        has_own = any(abs(other - cut) < SEGMENT_NIGHTS for other in cuts)
        return cuts if has_own or not self.has(series) else sorted([*cuts, cut])

    def confirmed(self, changes: list[Change], series: int, places: Integers) -> list[Change]:
        """Return the changes of a series; the common one has at least the common confidence."""
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
    has_figure = np.isfinite(table)
    figures = np.where(has_figure, table, 0.0)
    before = np.cumsum(has_figure, axis=1) - has_figure
    sums_before = np.cumsum(figures, axis=1) - figures
    after = has_figure.sum(axis=1)[:, None] - before
    sums_after = figures.sum(axis=1)[:, None] - sums_before
    counts = (before >= SEGMENT_NIGHTS) & (after >= SEGMENT_NIGHTS)
    is_candidate = counts.sum(axis=0) >= max(_COMMON_SERIES, has_figure.any(axis=1).sum() / 2)
    if not is_candidate.any():
        return None
    # The night that explains most: by means, whose step is largest at the right one.
    before, after = np.maximum(before, 1), np.maximum(after, 1)
    gain = (sums_after / after - sums_before / before) / np.sqrt(1 / before + 1 / after)
    gains = np.abs(_row_median(np.where(counts, gain, np.nan).T))
    night = int(np.argmax(np.where(is_candidate, gains, -1.0)))
    rows = np.flatnonzero(counts[:, night])
    levels = _row_median(table[rows, :night]), _row_median(table[rows, night:])
    row_steps = levels[1] - levels[0]
    size = float(np.median(row_steps))
    is_shared = np.mean(np.sign(row_steps) == np.sign(size)) >= _COMMON_SHARE
    if not is_shared or abs(size) < math.log1p(LEAST_CHANGE):
        return None
    # The standard error of a median of normal noise is sqrt(pi / 2) times that of the mean.
    median_error = (
        _MAD * float(np.median(np.abs(row_steps - size))) * math.sqrt(math.pi / 2 / rows.size)
    )
    # All series rise on a warm night: the deviations of whole nights count, too, and that few
    # nights don't show their autocorrelation.
    is_after = np.arange(table.shape[1]) >= night
    residuals = table[rows] - np.where(is_after, levels[1][:, None], levels[0][:, None])
    night_residuals = _row_median(residuals.T)
    sides = [int(np.sum(np.isfinite(night_residuals) & side)) for side in (~is_after, is_after)]
    degrees = max(1, sum(sides) - 2)
    variance = float(np.nansum(night_residuals**2)) / degrees
    shares = sum(error_factor(count, PRIOR) ** 2 / count for count in sides)
    error = max(math.sqrt(variance * shares), median_error, MIN_SIGMA)
    chance = table.shape[1] * 2 * t_cdf(-abs(size) / error, degrees)
    if chance > 1 - _MIN_CONFIDENCE:
        return None
    steps = np.zeros(len(table))
    steps[rows] = row_steps
    return CommonStep(night=night, sign=math.copysign(1, size), steps=steps, confidence=1 - chance)


def _with_usual_noise(noise: Floats, lengths: Integers) -> Floats:
    """Return the noise of series. That of a short series is raised towards the lab's median."""
    usual = float(np.median(noise)) if noise.size else 0.0
    shrunk = np.sqrt((lengths * noise**2 + _USUAL_NIGHTS * usual**2) / (lengths + _USUAL_NIGHTS))
    raised: Floats = np.where(lengths < 3 * RECENT_NIGHTS, np.maximum(noise, shrunk), noise)
    return raised


def _newest(logs: Floats, lengths: Integers, nights: int) -> tuple[Floats, Integers]:
    """Return each series' newest nights, and how many there are."""
    count = min(nights, logs.shape[1])
    columns = np.maximum(lengths[:, None] - count + np.arange(count), 0)
    return np.take_along_axis(logs, columns, axis=1), np.minimum(lengths, count)


def _rise(logs: Floats, lengths: Integers, noise: Floats, phones: Sequence[str]) -> Floats:
    """Return the factor by which the noise of each series' phone rose; 1 where it didn't.

    It is the median over nights of the medians over a phone's series. One series shows too little
    in a few nights; a step of all series is one night.
    """
    factors = np.ones(len(logs))
    old = np.flatnonzero(lengths >= 3 * RECENT_NIGHTS)
    newest, _ = _newest(logs[old], lengths[old], _RISE_NIGHTS + 1)
    steps = _MAD * np.abs(np.diff(newest, axis=1)) / noise[old, None] / math.sqrt(2)
    names = np.asarray(phones)[old] if len(phones) else np.full(old.size, "")
    for mask in [np.ones(old.size, dtype=bool), *(names == name for name in sorted(set(names)))]:
        if np.sum(mask) >= _COMMON_SERIES:
            rise = float(np.median(np.median(steps[mask], axis=0)))
            factors[old[mask]] = rise if rise >= _MIN_RISE else 1.0
    return factors


def is_alarm(change: Change, *, nights: int) -> bool:
    """Whether a cut is news in a series of so many nights, and lasts."""
    return change.ended is None and is_news(change, nights=nights)


def is_news(change: Change, *, nights: int, threshold: float = LEAST_CHANGE) -> bool:
    """Whether a cut is reported: lasting or the newest, recent, and large enough to matter."""
    ended = change.ended
    lasts = change.is_newest or ended is None
    is_recent = nights <= (change.recent_until if ended is None else ended + RECENT_NIGHTS)
    is_large = abs(change.ratio - 1) >= threshold
    return lasts and is_recent and is_large and change.is_sure


def best_cuts(z: Floats, lengths: Integers, *, penalty: float, correlation: Floats) -> Integers:
    """Return places x series: where the last segment of the best cuts up to a place begins.

    ``correlation`` is that of each series' neighbouring nights. A segment's first night still
    depends on the level before it, which is that of the best cuts up to there.
    """
    (count, width), rho = z.shape, correlation
    centred = np.where(np.arange(width) < lengths[:, None], z, 0.0)
    # Centred on each series' own mean, so that sums of squares lose no digits.
    centred -= (centred.sum(axis=1) / np.maximum(lengths, 1))[:, None] * (
        np.arange(width) < lengths[:, None]
    )
    # Nights first: the recursion takes whole rows of memory.
    nights = centred.T
    innovations = nights.copy()
    innovations[1:] -= rho * nights[:-1]
    zero = np.zeros((1, count))
    sums = np.vstack([zero, np.cumsum(innovations, axis=0)])
    squares = np.vstack([zero, np.cumsum(innovations * innovations, axis=0)])
    # The variance of the innovations, and the amount that a level of 1 adds to them.
    variance, lift = 1 - rho**2, 1 - rho
    best = np.full((width + 1, count), np.inf)
    best[0] = -penalty
    came_from = np.zeros((width + 1, count), dtype=np.int64)
    rows = np.arange(count)
    # The first night of a segment without the part that depends on the level before, by the
    # segment's begin.
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
        weighted_squares = (
            weight[begins] * first[begins] ** 2
            + (squares[end] - squares[1 : starts.size + 1]) / variance
        )
        total = best[begins] + weighted_squares - level * level / total_weight
        chosen = np.argmin(total, axis=0)
        came_from[end] = chosen
        best[end] = total[chosen, rows] + penalty
        if end < width:
            before = level[chosen, rows] / total_weight[chosen, rows]
            first[end] = nights[end] - rho * (nights[end - 1] - before)
    return came_from


def backtrack(came_from: Integers, length: int) -> list[int]:
    """Return the begins of one series' segments, without the first one's, for this length."""
    cuts: list[int] = []
    place = length if length >= SEGMENT_NIGHTS else 0
    while (place := int(came_from[place])) > 0:
        cuts.append(place)
    return cuts[::-1]


def night_noise(logs: Floats, lengths: Integers) -> Floats:
    """Return each series' night-to-night sigma: from differences of neighbours, which steps hardly
    touch.

    It is at least the rounding error, from the smallest difference of any two figures: those of a
    coarse program are equal on most nights.
    """
    inside = np.where(np.arange(logs.shape[1]) < lengths[:, None], logs, np.nan)
    gaps = np.diff(np.sort(inside, axis=1), axis=1)
    gaps[~(gaps > _SAME_FIGURE)] = np.inf
    floor = gaps.min(axis=1, initial=np.inf) / math.sqrt(12)
    floor = np.maximum(MIN_SIGMA, np.where(np.isfinite(floor), floor, 0.0))
    differences = np.diff(logs, axis=1)
    differences[np.arange(differences.shape[1]) >= (lengths - 1)[:, None]] = np.nan
    sigma: Floats = np.maximum(floor, _sigma(differences) / math.sqrt(2))
    return sigma


def _sigma(values: Floats) -> Floats:
    """Return the winsorised sigma of each row's values around 0, without NaN."""
    sizes = np.abs(values)
    limits = _WINSOR_SIGMAS * _MAD * np.nan_to_num(_row_median(sizes))
    squares = np.nansum(np.minimum(sizes, limits[:, None]) ** 2, axis=1)
    sigma: Floats = np.sqrt(
        squares / np.maximum(1, np.sum(~np.isnan(values), axis=1)) / _WINSOR_LEFT
    )
    return sigma


def autocorrelation(logs: Floats, lengths: Integers) -> tuple[Floats, float]:
    """Return each series' correlation of neighbouring nights, and the factor for the penalty.

    The factor is 1 to _MAX_PENALTY_FACTOR, for all series together: above 1 where nights are
    correlated for longer than a first-order autoregression.
    """
    sigma = night_noise(logs, lengths)
    block_sigma = _sigma(_block_steps(logs, lengths, _BLOCK_NIGHTS))
    estimates = np.interp(
        (block_sigma / sigma) ** 2, _variance_ratios(_BLOCK_NIGHTS), _CORRELATION_GRID
    )
    usual = float(np.median(estimates)) if estimates.size else 0.0
    excess = estimates - usual
    shrunk = excess * np.select(
        [excess > _CLEAR_EXCESS, excess > 0], [_OWN_WEIGHT_CLEAR, _OWN_WEIGHT_ABOVE], _OWN_WEIGHT
    )
    # A few nights can't tell a series' own correlation from a step or from chance.
    shrunk = np.where(lengths < 2 * RECENT_NIGHTS, 0.0, shrunk)
    correlation = np.clip(usual - _CORRELATION_BIAS + shrunk, 0.0, _CORRELATION_GRID[-1])
    expected = np.interp(correlation, _CORRELATION_GRID, _variance_ratios(_LONG_BLOCK_NIGHTS))
    long_sigma = _MAD * np.nan_to_num(
        _row_median(np.abs(_block_steps(logs, lengths, _LONG_BLOCK_NIGHTS)))
    )
    excess_ratio = (
        float(np.median((long_sigma / sigma) ** 2 / expected)) / _LONG_EXCESS
        if estimates.size
        else 1.0
    )
    return correlation, min(_MAX_PENALTY_FACTOR, max(1.0, excess_ratio) ** _PENALTY_POWER)


def _block_steps(logs: Floats, lengths: Integers, nights: int) -> Floats:
    """Return the differences of means of neighbouring blocks of nights, NaN after a series' end."""
    width = logs.shape[1]
    inside = np.where(np.arange(width) < lengths[:, None], logs, 0.0)
    sums = np.hstack([np.zeros((len(logs), 1)), np.cumsum(inside, axis=1)])
    ends = np.arange(2 * nights, width + 1)
    means = (sums[:, ends] - 2 * sums[:, ends - nights] + sums[:, ends - 2 * nights]) / nights
    steps: Floats = np.where(ends > lengths[:, None], np.nan, means)
    return steps


def _variance_ratios(nights: int) -> Floats:
    """Return the variance of a difference of block means, in halves of that of neighbouring nights,
    for each correlation of the grid.
    """
    lags = np.abs(np.subtract.outer(np.arange(2 * nights), np.arange(2 * nights)))
    signs = np.repeat([-1.0, 1.0], nights) / nights
    correlations = _CORRELATION_GRID[:, None, None] ** lags
    ratios: Floats = np.einsum("i,gij,j->g", signs, correlations, signs) / (1 - _CORRELATION_GRID)
    return ratios


def clipped(logs: Floats, lengths: Integers, sigma: Floats) -> Floats:
    """Return the series with lone outliers limited to a few sigmas from the median of their five
    nights (Hampel).

    The first and last two nights belong to the first and last five: the newest two may both be
    outliers.
    """
    count, width = logs.shape
    half = _HAMPEL_NIGHTS // 2
    inside = np.where(np.arange(width) < lengths[:, None], logs, np.nan)
    edge = np.full((count, half), np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(
        np.hstack([edge, inside, edge]), _HAMPEL_NIGHTS, axis=1
    )
    medians = _row_median(windows.reshape(-1, _HAMPEL_NIGHTS)).reshape(count, width)
    centres = np.clip(np.arange(width), half, np.maximum(lengths[:, None] - 1 - half, half))
    medians = np.take_along_axis(medians, np.minimum(centres, width - 1), axis=1)
    reach = _HAMPEL_SIGMAS * sigma[:, None]
    limited: Floats = np.nan_to_num(np.clip(inside, medians - reach, medians + reach))
    return limited


def _row_median(values: Floats) -> Floats:
    """Return the median of each row without its NaN; NaN for a row of NaN."""
    if not values.shape[1]:
        return np.full(len(values), np.nan)
    # NaN sorts last; a row of NaN has it at index 0, too.
    ordered = np.sort(values, axis=1)
    counts = np.sum(~np.isnan(values), axis=1)
    rows = np.arange(len(values))
    low = ordered[rows, np.maximum((counts - 1) // 2, 0)]
    high = ordered[rows, np.minimum(counts // 2, values.shape[1] - 1)]
    medians: Floats = (low + high) / 2
    return medians


def _packed(latency: Floats) -> tuple[Floats, Integers, Integers]:
    """Return logs packed to the left without gaps, the night of each, and the count per series."""
    usable = np.isfinite(latency) & (latency > 0)
    order = np.argsort(~usable, axis=1, kind="stable")
    lengths = usable.sum(axis=1)
    values = np.take_along_axis(np.where(usable, latency, 1.0), order, axis=1)
    width = int(lengths.max(initial=0))
    return np.log(values[:, :width]), order[:, :width], lengths


def _by_night(logs: Floats, places: Integers, lengths: Integers, nights: int) -> Floats:
    """Return packed series as series x nights again, NaN where there is no figure."""
    table = np.full((len(logs), nights), np.nan)
    rows, columns = np.nonzero(np.arange(logs.shape[1]) < lengths[:, None])
    table[rows, places[rows, columns]] = logs[rows, columns]
    return table


@frozen
class _Row:
    """One series without gaps, from which its cuts are described."""

    series: int
    logs: Floats
    #: Without lone outliers, in sigmas.
    z: Floats
    #: The night of each figure.
    places: Integers
    sigma: float
    correlation: float

    @property
    def variance_factor(self) -> float:
        """Factor by which correlation increases the variance of a mean of many nights."""
        return (1 + self.correlation) / (1 - self.correlation)

    def described(self, cuts: Sequence[int], number: int, length: int) -> Change:
        """Return the change at one of the cuts of the first ``length`` nights."""
        edges = [0, *cuts, length]
        start, cut, end = edges[number : number + 3]
        before, after, counts = slice(start, cut), slice(cut, end), (cut - start, end - cut)
        log_ratio = float(np.median(self.logs[after]) - np.median(self.logs[before]))
        # The standard error of a difference of two medians of normal noise is pi / 2 times that of
        # means, squared.
        shares = 1 / counts[0] + 1 / counts[1]
        error = self.sigma * math.sqrt(self.variance_factor * math.pi / 2 * shares)
        step = float(np.mean(self.z[after]) - np.mean(self.z[before]))
        # A phone may have become noisier with the new level, more than the newest nights show.
        scatter = float(np.std(self.z[after], ddof=1)) * (1 + _FEW_NIGHTS / counts[1])
        gain = step * step / shares / self.variance_factor / max(1.0, scatter) ** 2
        further = min(KNOWN_FIGURES, len(self.places) - cut) - 1
        earliest, latest = _place(self.z / math.sqrt(self.variance_factor), start, cut, end)
        return Change(
            series=self.series,
            night=int(self.places[cut]),
            recent_until=int(self.places[cut + further]) + RECENT_NIGHTS - further,
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
        """Return the changes; one that the next one or the newest nights undo has an end."""
        merged: list[Change] = []
        for change in changes:
            last = merged[-1] if merged else None
            step = 0.0 if last is None or last.ended is not None else math.log(last.ratio)
            if (
                last is not None
                and step
                and abs(step + math.log(change.ratio)) < abs(step) * _BACK_SHARE
            ):
                merged[-1] = replace(last, ended=change.night, is_newest=change.is_newest)
            else:
                merged.append(change)
        for number, change in enumerate(merged):
            if change.ended is None:
                merged[number] = replace(
                    change, ended=self._end_night(change, merged[number + 1 :])
                )
        return merged

    def _end_night(self, change: Change, later: Sequence[Change]) -> int | None:
        """Return the first night after the level of a change: that of a later change that nothing
        undid, or of the newest nights; None while it lasts.
        """
        for following in (item for item in later if item.ended is None):
            cut = int(np.searchsorted(self.places, following.night))
            if self._is_back(change, self.z[cut : cut + following.nights_after]):
                return following.night
        is_known = change.is_newest and change.nights_after > SEGMENT_NIGHTS
        is_back = is_known and self._is_back(change, self.z[-SEGMENT_NIGHTS:])
        return int(self.places[-SEGMENT_NIGHTS]) if is_back else None

    def with_earlier_alarm(self, changes: list[Change], came_from: Integers) -> list[Change]:
        """Return the changes with the alarm of one of the last nights, where today's noise would
        have reported it then: the nightly list flaps less.

        It stays, with its confidence, until two nights contradict it: then it has an end.
        """
        length, nights = len(self.z), int(self.places[-1]) + 1
        if changes and is_news(changes[-1], nights=nights):
            return changes
        for end in range(length - 1, max(length - 1 - RECENT_NIGHTS, 2 * SEGMENT_NIGHTS - 1), -1):
            if came_from[end] < max(SEGMENT_NIGHTS, length - RECENT_NIGHTS):
                continue
            cuts = backtrack(came_from, end)
            earlier = self.described(cuts, len(cuts) - 1, end)
            if not is_news(earlier, nights=nights):
                continue
            current = self.described(cuts, len(cuts) - 1, length)
            current = replace(current, confidence=earlier.confidence, is_clear=True)
            is_back = self._is_back(earlier, self.z[-SEGMENT_NIGHTS:])
            if is_back or (
                self._is_undone(earlier, cuts, length)
                and self._is_undone(earlier, cuts, length - 1)
            ):
                current = replace(earlier, ended=int(self.places[-SEGMENT_NIGHTS]))
            elif abs(current.ratio - 1) < LEAST_CHANGE:
                current = earlier
            older = [item for item in changes if item.night < current.earliest]
            return [*(replace(item, is_newest=False) for item in older), current]
        return changes

    def _is_undone(self, change: Change, cuts: Sequence[int], length: int) -> bool:
        """Whether too little of a change is left in its nights among the first ``length`` ones."""
        current = self.described(cuts, len(cuts) - 1, length)
        return abs(current.ratio - 1) < LEAST_CHANGE or self._is_back(
            change, self.z[cuts[-1] : length]
        )

    def _is_back(self, change: Change, nights: Floats) -> bool:
        """Whether nights are back at the level before a change."""
        cut = int(np.searchsorted(self.places, change.night))
        level = float(np.mean(self.z[max(0, cut - change.nights_before) : cut]))
        step = math.log(change.ratio) / self.sigma
        if not step:
            return False
        parts = (nights - level) / step
        # Below half of the step they are nearer to the level before; one night may be an outlier.
        are_two = np.sum(parts[-SEGMENT_NIGHTS:] < 0.5) >= 2
        return bool(are_two and np.mean(parts) < _BACK_SHARE)


def _is_clear(before: Floats, after: Floats, step: float) -> bool:
    """Whether a new level is beyond nearly all means of as many nights in a row before it."""
    limit = max(SEGMENT_NIGHTS, len(before) // 2)
    count = min(len(after), len(before), limit, _MAX_CLEAR_NIGHTS)
    means = np.mean(np.lib.stride_tricks.sliding_window_view(before, count), axis=1)
    beyond = means < np.mean(after) if step > 0 else means > np.mean(after)
    return bool(np.mean(beyond) >= _CLEAR_SHARE)


def _place(z: Floats, start: int, cut: int, end: int) -> tuple[int, int]:
    """Return the first and last cut of a stretch of nights that fit nearly as well as the best."""
    stretch = z[start:end]
    sizes = np.arange(1, stretch.size)
    sums = np.cumsum(stretch)
    left_sum, right_sum = sums[:-1], sums[-1] - sums[:-1]
    gain = left_sum * left_sum / sizes + right_sum * right_sum / (stretch.size - sizes)
    places = np.flatnonzero(gain >= gain[cut - start - 1] - _PLACE_COST) + start + 1
    return int(min(places[0], cut)), int(max(places[-1], cut))
