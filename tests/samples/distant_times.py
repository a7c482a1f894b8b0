"""Times of schedules that no clock comes to while a test runs, at whatever hour that is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def half_a_day_away() -> str:
    """Return the cron of a daily time from which the last one and the next one are half a day away."""
    moment = datetime.now(UTC) + timedelta(hours=12)
    return f"{moment.minute} {moment.hour} * * *"


def half_an_hour_ago() -> datetime:
    """Return a whole minute; an hourly time at its minute was last then, and comes again in half an hour."""
    return (datetime.now(UTC) - timedelta(minutes=30)).replace(second=0, microsecond=0)
