"""Change points on series of known truth, and against an independent solver of the same problem."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from orchestrator.extensions.history.changepoint import (
    backtrack,
    best_cuts,
    changes,
    is_alarm,
    is_news,
)
from tests.conftest import installed

SEED = 20261122


def partition(values: np.ndarray, lengths: np.ndarray, penalty: float) -> list[list[int]]:
    came_from = best_cuts(values, lengths, penalty=penalty, correlation=np.zeros(len(values)))
    return [
        backtrack(came_from[:, number], length) for number, length in enumerate(lengths.tolist())
    ]


def series(generator: np.random.Generator, nights: int = 90, noise: float = 0.01) -> np.ndarray:
    return 10_000.0 * np.exp(generator.normal(0, noise, nights))


@pytest.mark.slow
@pytest.mark.parametrize("penalty", [20.0, 90.0])
def test_cuts_are_those_of_an_independent_solver(penalty: float) -> None:
    ruptures = installed("ruptures")
    generator = np.random.default_rng(SEED)
    rows = []
    for number in range(500):
        row = generator.normal(0, 1, 90)
        for _ in range(number % 5):
            row[generator.integers(1, 90) :] += generator.normal(0, 4)
        rows.append(row)
    values = np.array(rows)

    ours = partition(values, np.full(len(values), 90), penalty=penalty)

    theirs = [
        ruptures.KernelCPD(kernel="linear", min_size=3)
        .fit(row.reshape(-1, 1))
        .predict(pen=penalty)[:-1]
        for row in values
    ]
    assert ours == theirs
    assert sum(map(len, ours)) > 200


def test_a_step_is_found_with_its_night_size_and_interval() -> None:
    values = series(np.random.default_rng(SEED))
    values[70:] *= 1.05

    (change,) = changes(values[None])

    assert change.night == 70
    assert change.earliest <= 70 <= change.latest <= change.earliest + 3
    assert change.low < 1.05 < change.high
    assert change.high - change.low < 0.025
    assert change.confidence > 0.999
    assert (change.nights_before, change.nights_after) == (70, 20)
    assert is_alarm(change, nights=84)
    assert not is_alarm(change, nights=85)
    assert not is_news(change, nights=84, threshold=0.08)


def test_a_single_outlier_is_no_change_however_large() -> None:
    generator = np.random.default_rng(SEED)
    values = np.array([series(generator) for _ in range(200)])
    values[np.arange(200), generator.integers(0, 90, 200)] *= 3.0

    assert len(changes(values)) <= 2


def test_missing_nights_move_no_change() -> None:
    generator = np.random.default_rng(SEED)
    values = series(generator)
    values[60:] *= 0.9
    values[generator.choice(np.r_[0:58, 62:90], 30, replace=False)] = math.nan

    (change,) = changes(values[None])

    assert change.night == 60
    assert change.ratio == pytest.approx(0.9, abs=0.01)
    assert change.nights_before + change.nights_after == 60


@pytest.mark.parametrize(
    "values",
    [[], [5.0], [5.0] * 5, [math.nan] * 30, [0.0] * 30, [-1.0] * 30, [math.inf] * 30, [5.0] * 90],
    ids=["none", "one", "five", "missing", "zero", "negative", "infinite", "constant"],
)
def test_series_with_nothing_to_find_have_no_change(values: list[float]) -> None:
    assert changes(np.array([values], dtype=float)) == []
    assert changes(np.empty((0, 90))) == []


@pytest.mark.slow
def test_detection_meets_its_bar_at_quiet_phones_noise() -> None:
    """3 and 5 % steps under heat drift and outliers at 0.3 to 1.5 % noise;
    benchmarks/regressions.py has the table.
    """
    generator = np.random.default_rng(SEED)
    count, nights, step = 150, 109, 95
    cv = np.exp(generator.uniform(np.log(0.003), np.log(0.015), count))
    drift = np.zeros((count, nights))
    for night in range(1, nights):
        drift[:, night] = 0.8 * drift[:, night - 1] + 0.6 * generator.normal(0, 1, count)
    logs = cv[:, None] * (
        math.sqrt(0.7) * generator.normal(0, 1, (count, nights)) + math.sqrt(0.3) * drift
    )
    logs += np.where(
        generator.random((count, nights)) < 0.02, generator.uniform(0.05, 0.34, (count, nights)), 0
    )

    def alarmed(factor: float) -> tuple[float, float]:
        values = 10_000 * np.exp(logs)
        values[:, step:] *= factor
        first = np.full(count, np.inf)
        for night in range(step, nights):
            seen = values[:, night - 89 : night + 1]
            for change in changes(seen):
                if is_alarm(change, nights=90) and (change.ratio > 1) == (factor >= 1):
                    first[change.series] = min(first[change.series], night - step + 1)
        return float(np.isfinite(first).mean()), float(np.median(first))

    assert alarmed(1.05)[0] >= 0.99
    share, delay = alarmed(1.03)
    assert share >= 0.9
    assert delay <= 3
    # Three candidates for 1,000 series-nights: these are 14 nights.
    assert alarmed(1.0)[0] <= 0.003 * (nights - step)


def remembering(generator: np.random.Generator, rho: float, count: int, nights: int) -> np.ndarray:
    """Return series at a noise of 1.5 % whose nights resemble the ones before them."""
    news = generator.standard_normal((count, nights))
    logs = news.copy()
    for night in range(1, nights):
        logs[:, night] = rho * logs[:, night - 1] + math.sqrt(1 - rho**2) * news[:, night]
    return 10_000 * np.exp(0.015 * logs)


def test_nights_that_remember_make_hardly_any_change() -> None:
    values = remembering(np.random.default_rng(SEED), 0.5, 300, 90)

    # Taken for independent, such nights make 25 changes at a penalty of 45, and many more at 18.
    assert len(changes(values)) <= 6


def test_steps_are_found_beside_nights_that_remember_and_those_that_forget() -> None:
    generator = np.random.default_rng(SEED)
    for rho, step, share in ((0.0, 1.03, 0.85), (0.5, 1.05, 0.8)):
        values = remembering(generator, rho, 200, 90)
        values[:, 76:] *= step
        assert (
            len({change.series for change in changes(values) if abs(change.night - 76) <= 3})
            >= share * 200
        )


def told(values: np.ndarray, first: int) -> tuple[float, np.ndarray]:
    """Return the alarms of 1,000 series-nights, those within 14 nights of another one once, and
    series x nights: what each was told of (1 slower, -1 faster)."""
    alarms = np.zeros(values.shape)
    for night in range(first, values.shape[1]):
        seen = values[:, max(0, night - 89) : night + 1]
        for change in changes(seen):
            if is_alarm(change, nights=seen.shape[1]):
                alarms[change.series, night] = 1 if change.ratio > 1 else -1
    count = 0
    for row in alarms:
        last = -99
        for night in np.flatnonzero(row).tolist():
            if night - last > 14:
                count, last = count + 1, night
    return 1000 * count / (len(values) * (values.shape[1] - first)), alarms


def nights_of(kind: str, generator: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    """Return latencies of series x nights without a change."""
    normal = generator.standard_normal(shape)
    match kind:
        case "whole ms":
            level = 20_400 * np.exp(generator.uniform(-0.05, 0.05, (shape[0], 1)))
            found: np.ndarray = np.round(level * np.exp(0.01 * normal) / 1000) * 1000
            return found
        case "noise that triples":
            logs = 0.015 * normal * np.where(np.arange(shape[1]) < 100, 1, 3)
        case "skew":
            logs = 0.015 * generator.exponential(1, shape)
        case _:
            logs = 0.005 * normal - 0.04 * (generator.random(shape) < 0.3)
    return 10_000 * np.exp(logs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "most"),
    # Before the newest nights' noise and the earlier medians were looked at: 19, 33, 1.9, 2.5.
    [("whole ms", 4.0), ("noise that triples", 9.0), ("skew", 1.2), ("states by night", 2.4)],
)
def test_rough_nights_are_hardly_ever_told_as_a_change(kind: str, most: float) -> None:
    values = nights_of(kind, np.random.default_rng(SEED), (80, 125))
    assert told(values, 95)[0] <= most


@pytest.mark.parametrize("nights", [9, 11, 20])
def test_a_step_of_all_series_is_found_in_a_young_lab(nights: int) -> None:
    generator = np.random.default_rng(SEED)
    found = []
    for _ in range(10):
        values = np.array([series(generator, nights, 0.015) for _ in range(20)])
        values[:, max(3, nights - 5) :] *= 1.05
        found.append(np.mean(told(values, nights - 1)[1][:, -1] > 0))
    # When common steps were taken for memory: 3 of 100.
    assert np.mean(found) >= 0.95


@pytest.mark.parametrize("nights", [6, 11, 20])
def test_a_young_lab_without_a_step_is_told_of_hardly_any(nights: int) -> None:
    generator = np.random.default_rng(SEED)
    alarms = 0
    for _ in range(20):
        values = np.array([series(generator, nights, 0.015) for _ in range(20)])
        alarms += int(np.sum(told(values, nights - 1)[1][:, -1] != 0))
    assert alarms <= 2


def new_models(values: np.ndarray) -> None:
    values[-2:, :-4] = math.nan


def other_phone_away(values: np.ndarray) -> None:
    values[8:16, 2] = math.nan


def older_series(values: np.ndarray) -> None:
    """The first four series alone have more than the newest 14 nights."""
    values[4:, :-14] = math.nan


@pytest.mark.parametrize(
    ("nights", "lacking", "least"),
    [(14, other_phone_away, 24), (14, new_models, 22), (45, older_series, 24)],
)
def test_a_step_of_all_series_is_found_where_some_lack_nights(
    nights: int, lacking: Callable[[np.ndarray], None], least: int
) -> None:
    generator = np.random.default_rng(SEED)
    values = np.array([series(generator, nights) for _ in range(24)])
    values[:, -6:] *= 1.05
    lacking(values)
    alarms = [change for change in changes(values) if is_alarm(change, nights=nights)]
    # As soon as one figure was missing: none.
    assert len(alarms) >= least
    assert all(change.ratio > 1 for change in alarms)


def test_nights_that_are_off_as_a_whole_are_no_step_of_all_series() -> None:
    generator = np.random.default_rng(SEED)
    labs = 0
    for _ in range(40):
        values = np.array([series(generator, 14, 0.01) for _ in range(24)])
        values *= remembering(generator, 0.5, 1, 14) / 10_000
        labs += bool(np.any(told(values, 13)[1]))
    # When such nights were taken for independent series': 11 of 40.
    assert labs <= 2


@pytest.mark.parametrize("every", [1, 2, 4, 7])
def test_a_slowdown_of_a_series_that_isnt_measured_each_night_is_news_as_long(every: int) -> None:
    generator = np.random.default_rng(SEED)
    values = np.array([series(generator) for _ in range(16)])
    values[:2, 42:] *= 1.1
    values[:2, np.arange(90) % every != 0] = math.nan
    news = np.flatnonzero(told(values, 44)[1][:2].all(axis=0))
    first = next(night for night in range(42, 90) if night % every == 0)
    # Never, once a week. From the third or fourth figure on, and for 14 nights, of which those up
    # to the fifth figure count as five.
    assert news[0] <= first + 3 * every
    assert news[-1] == first + 4 * every + 9
    assert news.size == news[-1] - news[0] + 1


def test_a_slowdown_is_news_when_its_phone_is_back() -> None:
    generator = np.random.default_rng(SEED)
    values = np.array([series(generator) for _ in range(16)])
    values[:2, 50:] *= 1.1
    values[:2, 52:72] = math.nan
    news = np.flatnonzero(told(values, 52)[1][:2].any(axis=0))
    assert news.min() in {72, 73}


def test_new_series_dont_make_the_others_forget() -> None:
    values = remembering(np.random.default_rng(SEED), 0.6, 150, 90)
    few = np.full((200, 90), math.nan)
    few[:, -4:] = remembering(np.random.default_rng(SEED), 0.6, 200, 4)
    # When the new ones' figures counted: 11 changes for 2.
    assert changes(np.vstack([values, few])) == changes(values)


def test_a_step_that_passed_went_away_within_three_nights_and_is_no_alarm() -> None:
    generator = np.random.default_rng(SEED)
    values = np.array([series(generator, 110, 0.015) for _ in range(40)])
    values[:, 95:105] *= 1.08
    ended = 0
    for row, seen in enumerate(values[:, 18:108]):
        last = [change for change in changes(seen[None]) if change.is_newest]
        ended += len(last) == 1 and last[0].ended is not None and abs(last[0].night - 77) <= 2
        assert not any(is_alarm(change, nights=90) and change.ratio > 1 for change in last), row
        assert all(is_news(change, nights=90) for change in last if change.ended is not None)
    assert ended >= 36


def test_steps_that_a_later_one_undid_together_went_away_with_it() -> None:
    values = np.array([series(np.random.default_rng(SEED), 90, 0.005)])
    values[:, 77:84] *= 1.1
    values[:, 80:84] *= 1.1
    first, second = [change for change in changes(values) if change.ratio > 1]
    assert (first.night, first.ended) == (77, 84)
    assert (second.night, second.ended is not None) == (80, True)
    # A dip that passed undid nothing.
    values[:, 87:] *= 1.21
    first, second = [change for change in changes(values) if change.ratio > 1]
    assert is_alarm(first, nights=90)
    assert is_alarm(second, nights=90)


def looks(values: np.ndarray, first: int, last: int) -> np.ndarray:
    """Return series x nights: whether each night's list has an alarm of the series."""
    found = np.zeros(values.shape, dtype=bool)
    for night in range(first, last):
        seen = values[:, max(0, night - 89) : night + 1]
        for change in changes(seen):
            found[change.series, night] |= is_alarm(change, nights=seen.shape[1])
            assert change.confidence >= 0.95 or not is_news(change, nights=seen.shape[1])
    return found[:, first:last]


@pytest.mark.parametrize(("step", "told", "most"), [(1.05, 0.95, 1), (1.03, 0.9, 8)])
def test_an_alarm_stays_from_night_to_night_until_two_nights_contradict_it(
    step: float, told: float, most: int
) -> None:
    values = remembering(np.random.default_rng(SEED), 0.0, 100, 112)
    values[:, 98:] *= step
    alarms = looks(values, 100, 112)

    assert np.mean(alarms.any(axis=1)) >= told
    # Gone, and back: 11 of the small steps when one night could contradict them.
    rows = ["".join(map(str, row)) for row in alarms.astype(int)]
    assert sum("10" in row.rstrip("0") for row in rows) <= most


def test_a_phone_that_became_noisier_is_known_by_all_its_series() -> None:
    generator = np.random.default_rng(SEED)
    values = np.array([series(generator, 125, 0.01) for _ in range(60)])
    values[:12, 100:] = 10_000 * np.exp(0.03 * generator.standard_normal((12, 25)))
    phones = ["swapped"] * 12 + [f"phone {row // 12}" for row in range(48)]

    def candidates(names: list[str]) -> int:
        series_told = set()
        for night in range(101, 125):
            found = changes(values[:, night - 89 : night + 1], phones=names)
            series_told |= {item.series for item in found if is_alarm(item, nights=90)}
        return len(series_told)

    assert candidates(phones) <= 1
    assert candidates([f"phone {row}" for row in range(60)]) >= 4
