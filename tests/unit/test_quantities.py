"""Amounts as people write them."""

import pytest

from orchestrator.units import (
    parse_age,
    parse_bytes,
    parse_celsius,
    parse_percent,
    parse_seconds,
)


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (parse_seconds, "90", 90.0),
        (parse_seconds, " 1.5min ", 90.0),
        (parse_seconds, "250 ms", 0.25),
        (parse_seconds, "2 h", 7200.0),
        (parse_seconds, "1e3 us", 0.001),
        (parse_bytes, "4096", 4096),
        (parse_bytes, "1.5 GB", 1_500_000_000),
        (parse_bytes, "8GiB", 8 * 2**30),
        (parse_percent, "20 %", 20.0),
        (parse_celsius, "38.5 °C", 38.5),
        (parse_celsius, "-5c", -5.0),
    ],
)
def test_amount_is_read_into_its_unit(read, text, value):
    assert read(text) == pytest.approx(value)


@pytest.mark.parametrize(
    "text", ["", "s", "1 parsec", "1 2", "nan", "inf", "1e999", "1,5 s", "0x10", "1 s s", "--1"]
)
def test_what_is_no_amount_is_refused(text):
    with pytest.raises(ValueError, match="isn't a time span such as"):
        parse_seconds(text)


@pytest.mark.parametrize(
    ("text", "days"), [("90d", 90), ("12 w", 84), ("1 week", 7), ("0d", 0), ("36h", 1.5)]
)
def test_an_age_is_read_into_seconds(text: str, days: float) -> None:
    assert parse_age(text) == days * 86400


@pytest.mark.parametrize("text", ["90", "0", "-1d", "3m", "2 years", "", "200000w"])
def test_an_age_that_may_be_meant_otherwise_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"age|unit|100 years"):
        parse_age(text)
