"""Figures as people read them, and amounts as people write them."""

import math

import pytest

from orchestrator.units import (
    format_bytes,
    format_change,
    format_duration,
    format_latency,
    format_percent,
    format_slowdown,
    parse_age,
    parse_bytes,
    parse_celsius,
    parse_percent,
    parse_seconds,
)


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (1.031, "+3.1 %"),
        (0.98, "-2.0 %"),
        (1e300, ">+1000 %"),
        (0.9997, "+0.0 %"),
        (math.inf, "---"),
        (None, "---"),
    ],
)
def test_a_change_has_its_sign_and_no_absurd_digits(ratio: float | None, text: str) -> None:
    assert format_change(ratio) == text


@pytest.mark.parametrize(
    ("ratio", "text"),
    [(0.021, "2.1 %"), (-0.0002, "0.0 %"), (3e7, ">1000 %"), (None, "---")],
)
def test_a_percentage_has_no_absurd_digits(ratio: float | None, text: str) -> None:
    assert format_percent(ratio) == text


def test_a_change_in_words_says_its_direction() -> None:
    assert format_slowdown(1.081) == "8.1 % slower"
    assert format_slowdown(0.97) == "3.0 % faster"


@pytest.mark.parametrize(
    ("latency_us", "text"),
    [
        (999.7, "1.00 ms"),
        (9.996, "10.0 us"),
        (999_600, "1.00 s"),
        (0, "0 us"),
    ],
)
def test_a_latency_that_is_rounded_up_has_the_next_unit(latency_us: float, text: str) -> None:
    assert format_latency(latency_us) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.9996, "1.0 s"),
        (59.97, "1 min 00 s"),
        (3599.7, "1 h 00 min"),
    ],
)
def test_a_time_span_that_is_rounded_up_has_the_next_unit(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(("size_bytes", "text"), [(999_400, "999 kB"), (999_600, "1.00 MB")])
def test_a_size_that_is_rounded_up_has_the_next_unit(size_bytes: float, text: str) -> None:
    assert format_bytes(size_bytes) == text


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (parse_seconds, "90", 90.0),
        (parse_seconds, " 1.5min ", 90.0),
        (parse_seconds, "250 ms", 0.25),
        (parse_seconds, "1e3 us", 0.001),
        (parse_bytes, "1.5 GB", 1_500_000_000),
        (parse_bytes, "8GiB", 8 * 2**30),
        (parse_percent, "20 %", 20.0),
        (parse_celsius, "38.5 °C", 38.5),
        (parse_celsius, "-5c", -5.0),
    ],
)
def test_amount_is_read_into_its_unit(read, text, value):
    assert read(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "1 parsec", "nan", "1e999", "1,5 s", "0x10", "1 s s"])
def test_what_is_no_amount_is_refused(text):
    with pytest.raises(ValueError, match="isn't a time span such as"):
        parse_seconds(text)


@pytest.mark.parametrize(("text", "days"), [("90d", 90), ("12 w", 84), ("0d", 0), ("36h", 1.5)])
def test_an_age_is_read_into_seconds(text: str, days: float) -> None:
    assert parse_age(text) == days * 86400


@pytest.mark.parametrize("text", ["90", "-1d", "3m", "", "200000w"])
def test_an_age_that_may_be_meant_otherwise_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"age|unit"):
        parse_age(text)
