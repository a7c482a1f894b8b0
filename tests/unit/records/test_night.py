"""Windows of the day, also across midnight and changes of the clocks."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from orchestrator.records.night import parse_window


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("window", "now", "begin", "end"),
    [
        ("01:00-06:00", "2026-01-10T00:30", "2026-01-10T01:00", "2026-01-10T06:00"),
        ("01:00-06:00", "2026-01-10T01:00", "2026-01-10T01:00", "2026-01-10T06:00"),
        ("01:00-06:00", "2026-01-10T06:00", "2026-01-11T01:00", "2026-01-11T06:00"),
        ("22:00-06:00", "2026-01-10T03:00", "2026-01-09T22:00", "2026-01-10T06:00"),
        ("22:00-06:00", "2026-01-10T12:00", "2026-01-10T22:00", "2026-01-11T06:00"),
        ("22:00-24:00", "2026-01-10T12:00", "2026-01-10T22:00", "2026-01-11T00:00"),
    ],
)
def test_a_window_is_the_open_one_or_the_next(window: str, now: str, begin: str, end: str) -> None:
    assert parse_window(window, "UTC").around(utc(now)) == (utc(begin), utc(end))


def test_a_window_keeps_its_wall_clock_when_the_clocks_change() -> None:
    berlin = parse_window("01:00-06:00", "Europe/Berlin")
    # The night in which an hour is left out is an hour shorter, the one in which it comes twice an hour longer.
    assert berlin.around(utc("2026-03-28T12:00")) == (utc("2026-03-29T00:00"), utc("2026-03-29T04:00"))
    assert berlin.around(utc("2026-10-24T12:00")) == (utc("2026-10-24T23:00"), utc("2026-10-25T05:00"))


def test_a_window_tells_itself_as_it_was_written() -> None:
    assert str(parse_window("01:00 - 06:30", "Europe/Berlin")) == "01:00-06:30 Europe/Berlin"


@pytest.mark.parametrize(
    ("text", "zone", "told"),
    [
        ("01:00", "", "isn't a span"),
        ("1-6", "", "isn't a time of day"),
        ("25:00-06:00", "", "isn't a time of day"),
        ("01:60-06:00", "", "isn't a time of day"),
        ("01:00-01:00", "", "begins and ends"),
        ("00:00-24:00", "", "begins and ends"),
        ("01:00-06:00", "Middle/Earth", "isn't a time zone"),
        ("01:00-06:00", "../../etc/passwd", "isn't a time zone"),
    ],
)
def test_a_window_that_means_nothing_is_refused(text: str, zone: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_window(text, zone)
