"""What ``--budget``, ``--until`` and ``--older-than`` mean."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from orchestrator.app.time_limits import limited, moment_of
from orchestrator.cli.stored import prune
from orchestrator.errors import UsageError
from orchestrator.records.plan import Plan, PlanModel
from tests.samples.records import settings_in

NOW = datetime(2026, 3, 2, 1, 0, tzinfo=UTC)
PLAN = Plan(name="p", models=(PlanModel(name="m", path=Path("m.tflite")),))


def test_a_budget_narrows_a_plans_time_and_never_widens_it() -> None:
    assert limited(PLAN, {"budget": "2h"}, NOW).budget == 7200
    own = replace(PLAN, budget=60.0)
    assert limited(own, {"budget": "2h"}, NOW).budget == 60
    assert limited(own, {}, NOW) == own


def test_a_time_of_day_is_the_next_one_here_and_a_date_is_itself() -> None:
    local = NOW.astimezone()
    later = local + timedelta(minutes=10)
    if later.date() == local.date():
        assert moment_of(f"{later:%H:%M}", NOW) == later.replace(second=0)
    earlier = local - timedelta(minutes=10)
    expected = (earlier + timedelta(days=1)).replace(tzinfo=None).astimezone()
    if earlier.date() == local.date():
        assert moment_of(f"{earlier:%H:%M}", NOW) == expected
    assert moment_of("2026-03-02T06:00+00:00", NOW) == NOW + timedelta(hours=5)


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("berlin")
@pytest.mark.parametrize(
    ("now", "text", "expected"),
    [
        # Summer time ends at 01:00 UTC: 02:00 to 03:00 come twice.
        ("2026-10-25T00:30", "02:45", "2026-10-25T00:45"),
        ("2026-10-25T00:50", "02:45", "2026-10-25T01:45"),
        ("2026-10-25T01:30", "02:45", "2026-10-25T01:45"),
        ("2026-10-25T01:30", "2026-10-25T02:45", "2026-10-25T01:45"),
        ("2026-10-25T01:50", "02:45", "2026-10-26T01:45"),
        # Summer time begins: 02:00 to 03:00 aren't there.
        ("2026-03-29T00:30", "02:45", "2026-03-29T01:45"),
        ("2026-03-29T01:50", "02:45", "2026-03-30T00:45"),
    ],
)
def test_a_time_of_day_is_the_next_one_also_where_clocks_change(
    now: str, text: str, expected: str
) -> None:
    found = moment_of(text, datetime.fromisoformat(now).replace(tzinfo=UTC))
    assert found == datetime.fromisoformat(expected).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("budget", "until", "told"),
    [
        ("0s", "", "--budget: '0s' should be greater than 0"),
        ("8d", "", "less than or equal to 604800"),
        ("soon", "", "isn't a time span"),
        ("", "25:00", "hour must be in 0..23"),
        ("", "6 am", "Invalid isoformat"),
        ("", "tomorrow", "Invalid isoformat"),
        ("", "2020-01-01T06:00", "has passed"),
        ("", "9999-12-31T23:59-01:00", "out of range"),
    ],
)
def test_a_time_that_means_nothing_is_refused(budget: str, until: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        limited(PLAN, {"budget": budget, "until": until}, NOW)


@pytest.mark.parametrize("age", ["90", "0", "-1d", "3m", "soon", ""])
def test_an_age_without_its_unit_deletes_nothing(age: str, tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    with pytest.raises(UsageError):
        prune(settings, older_than=age, dry_run=False, compact=False)
    assert not (tmp_path / "store.sqlite").exists()
