"""The first screen: who wins on each phone, how that is known, where the dots stand."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from orchestrator.records.case import DelegateName, Serial
from orchestrator.records.run import Outcome, Sample
from orchestrator.records.verdict import Finding, Quality, Severity
from orchestrator.report.charts import model_pictures, percentiles
from orchestrator.report.drawing import Axis, Dot, axis_of, change_axis, dots, sparkline
from orchestrator.tables.labels import short_names
from orchestrator.tables.runs import device_moment
from tests.samples.sample_lab import MOBILENET, REAL_PIXEL, case, lab_of, run, series

GPU = DelegateName.GPU
THROTTLED = Finding(code="throttled", severity=Severity.WARNING, message="a clock limit fell")


def phones(count, **other):
    return [
        replace(REAL_PIXEL, serial=Serial(f"{other.get('model', 'pixel')}-{n}"), **other)
        for n in range(count)
    ]


def picture_of(runs, *devices):
    data = lab_of(runs, *devices).data()
    (picture,) = model_pictures(data.contests).values()
    return picture


def cells(picture, *names):
    """The words of some columns, row by row."""
    columns = {column.name: column for column in picture.table.columns}
    rows = picture.table.listed
    return list(zip(*(columns[name].cells(rows) for name in names), strict=True))


def contest(phone, gpu_us, cpu_us, **gpu):
    return [
        *series(case(phone, delegate=GPU, threads=1), gpu_us, **gpu),
        *series(case(phone), cpu_us, is_reversed=True),
    ]


def test_each_phone_has_a_row_the_fastest_first():
    equal, other = phones(3), phones(1, model="Pixel 4")
    runs = [run for n, phone in enumerate(equal) for run in contest(phone, 6_000 + 60 * n, 12_000)]
    runs += contest(other[0], 9_000, 3_000)
    picture = picture_of(runs, *equal, *other)
    assert cells(picture, "phone", "fastest", "median_us", "speed_up", "winner") == [
        ("Google Pixel 4", "xnnpack, 4 threads", "3.00", "1.00x", "clear"),
        ("Google Pixel 3 (pixel-0)", "gpu", "6.00", "2.00x", "clear"),
        ("Google Pixel 3 (pixel-1)", "gpu", "6.06", "1.98x", "clear"),
        ("Google Pixel 3 (pixel-2)", "gpu", "6.12", "1.96x", "clear"),
    ]
    assert picture.sentence == "gpu is fastest on 3 of 4 phones, xnnpack on 1; outputs not checked."
    mixed = [*equal[:2], replace(equal[2], is_virtual=True)]
    told = picture_of(runs[:30], *mixed).sentence
    assert told.startswith("gpu is fastest on 2 of 3 phones, gpu (virtual) on 1")


def test_a_phone_without_a_clean_figure_never_stands_first():
    clean, suspect = phones(1)[0], phones(1, model="Pixel 4")[0]
    runs = [
        *series(case(clean), 9_000),
        *series(case(suspect), 5_000, quality=Quality.SUSPECT),
    ]
    picture = picture_of(runs, clean, suspect)
    assert [phone for (phone,) in cells(picture, "phone")] == ["Google Pixel 3", "Google Pixel 4"]


def test_without_a_figure_nothing_is_fastest_and_nothing_is_drawn():
    pair = phones(2)
    failed = [run(case(phone), 0, None, outcome=Outcome.FAILED) for phone in pair]
    for runs, said in ((failed, "2 phones"), (failed[:1], "Google Pixel 3")):
        picture = picture_of(runs, *pair)
        assert picture.sentence == f"no clean figure on {said}."
        assert "picture" not in {column.name for column in picture.table.columns}


def test_a_tie_names_first_whose_figure_stands_beside_it():
    pair = phones(2)
    runs = [*contest(pair[0], 10_000, 10_010), *contest(pair[1], 10_010, 10_000)]
    picture = picture_of(runs, *pair)
    assert cells(picture, "fastest", "median_us", "winner") == [
        ("gpu or xnnpack, 4 threads", "10.0", "tied"),
        ("xnnpack, 4 threads or gpu", "10.0", "tied"),
    ]
    assert picture.sentence == "a tie on 2 of 2 phones; outputs not checked."


def test_a_slow_phone_and_a_suspect_figure_dont_press_the_others_flat():
    three = phones(3)
    runs = [run for phone in three[:2] for run in contest(phone, 6_000, 12_000)]
    slow = picture_of([*runs, *contest(three[2], 900_000, 1_800_000)], *three)
    assert "logarithmic" not in slow.table.columns[1].box
    (*_, beyond) = (slow.table.columns[1].value(line) for line in slow.table.listed)
    assert beyond.count('class="off"') == 2
    runs = [
        *series(case(three[0]), 12_000),
        *series(
            case(three[0], threads=1), 10_000_000, quality=Quality.SUSPECT, findings=(THROTTLED,)
        ),
    ]
    assert "linear" in picture_of(runs, three[0]).table.columns[1].box


def test_a_range_of_more_than_ten_times_is_logarithmic():
    axis = axis_of([1.0, 2.0, 300.0])
    assert axis.is_log
    assert axis.ticks() == [1.0, 3.0, 10.0, 30.0, 100.0, 300.0]
    assert (axis.at(1.0), axis.at(300.0), axis.at(5_000.0)) == (2.5, 97.5, 97.5)
    assert axis_of([4.0, 30.0]) == Axis(1.4, 30.0)
    assert axis_of([]).ticks()
    assert axis_of([5.0]).ticks()


def test_the_axis_of_changes_holds_a_lone_interval_and_few_of_a_hundred_leave_it() -> None:
    assert change_axis([0.197, 0.094, 0.309], 0.02).high == pytest.approx(0.4)
    assert change_axis([*[0.04] * 99, 3.0], 0.02).high == pytest.approx(0.1)


def test_labels_stand_beside_their_dots_and_never_cover_each_other():
    axis = axis_of([10.0, 30.0])
    near = [Dot(value=10 + n / 10, label="a long name of it", told="t") for n in range(5)]
    assert 1 <= dots(axis, near, "t").count("<text") < 5
    apart = [Dot(value=value, label="gpu", told="t") for value in (10.0, 20.0, 30.0)]
    anchors = re.findall(r'text-anchor="(\w+)"', dots(axis, apart, "t"))
    assert anchors == ["start", "start", "end"]


@pytest.mark.parametrize(
    ("runs", "fastest", "winner"),
    [
        (
            contest(REAL_PIXEL, 6_000, 12_000, quality=Quality.SUSPECT, findings=(THROTTLED,)),
            "xnnpack, 4 threads",
            "gpu may be faster: suspect (throttled)",
        ),
        (
            contest(REAL_PIXEL, 15_000, 12_000, quality=Quality.SUSPECT, findings=(THROTTLED,)),
            "xnnpack, 4 threads",
            "only one",
        ),
        (
            [
                *series(case(REAL_PIXEL, delegate=GPU), 6_000, 1),
                *series(case(REAL_PIXEL), 12_000, 1),
            ],
            "gpu",
            "not tested",
        ),
        (
            series(
                case(REAL_PIXEL, MOBILENET, GPU),
                6_000,
                quality=Quality.SUSPECT,
                findings=(THROTTLED,),
            ),
            "no clean figure",
            "suspect (throttled)",
        ),
    ],
)
def test_a_winner_says_what_makes_it_less_than_clear(runs, fastest, winner):
    other = replace(REAL_PIXEL, serial=Serial("other"))
    rows = cells(
        picture_of([*runs, *contest(other, 90_000, 99_000)], REAL_PIXEL, other), "fastest", "winner"
    )
    assert [word for word, found in rows if found == winner and word.startswith(fastest)]


def test_of_one_phone_each_configuration_has_a_row_the_fastest_first() -> None:
    runs = contest(REAL_PIXEL, 6_000, 12_000) + series(
        case(REAL_PIXEL, threads=1), 40_000, quality=Quality.SUSPECT, findings=(THROTTLED,)
    )
    picture = picture_of(runs, REAL_PIXEL)
    assert cells(picture, "configuration", "median_us", "winner") == [
        ("gpu", "6.00", "clear"),
        ("xnnpack, 4 threads", "12.00", ""),
        ("xnnpack, 1 thread", "40.00", "suspect (throttled)"),
    ]
    column = {column.name: column for column in picture.table.columns}["picture"]
    drawn = [column.value(line) for line in picture.table.listed]
    # What isn't clean, and is far beyond the others, is at the axis' end.
    assert [html.count("<circle") for html in drawn] == [1, 1, 0]
    assert 'class="off"' in drawn[2]


def test_names_leave_out_what_is_the_same_everywhere_unless_two_would_be_alike():
    cases = [case(delegate=GPU, threads=1), case(threads=1), case(threads=4)]
    names = short_names((item.configuration, item) for item in cases)
    assert list(names.short.values()) == ["gpu", "xnnpack, 1 thread", "xnnpack, 4 threads"]
    assert names.note == "All configurations use native; gpu uses 1 thread."
    twice = short_names([("gpu, 1 thread, a", cases[0]), ("gpu, 1 thread, a, a", cases[1])])
    assert len(set(twice.short.values())) == len(twice.short)


def test_a_sparkline_breaks_where_nights_are_missing_and_marks_changes():
    nan = float("nan")
    drawn = sparkline([1.0, 1.1, *[nan] * 10, 1.2], [(2, "change")], 8)
    assert re.findall('d="(.*?)"', drawn) == ["M0 72l0 0 1 -23M12 28l0 0"]
    assert drawn.count('class="change"') == 1
    assert "<path" not in sparkline([nan, nan], [], 8)
    # One scale: ten percent are as high in every series, and what leaves it is cut.
    steps = [
        re.findall(r"-?\d+(?=\")", sparkline([100.0, 100.0, last], [], 8))[1]
        for last in (100.01, 110.0, 150.0)
    ]
    assert steps == ["0", "-22", "-96"]


def test_a_moment_has_the_hottest_zone_that_shows_a_temperature() -> None:
    sample = Sample(uptime_s=100.0, heat_c={"cpu": 30.0, "trip": 9_999.0})
    assert device_moment(sample) == (100.0, 30.0, {}, {}, None)
    assert device_moment(replace(sample, heat_c={"trip": 9_999.0}))[1] is None


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "1 run, p50 1, max 1 ms"),
        (9, "9 runs, p50 5, max 9 ms"),
        (10, "10 runs, p50 5.5, p90 9, max 10 ms"),
        (99, "99 runs, p50 50, p90 90, max 99 ms"),
        (100, "100 runs, p50 50.5, p90 90, p99 99, max 100 ms"),
    ],
)
def test_a_percentile_of_too_few_runs_is_called_what_it_is_their_maximum(
    count: int, text: str
) -> None:
    figures_us = [1000.0 * number for number in range(count, 0, -1)]
    assert percentiles(case(), figures_us) == text
