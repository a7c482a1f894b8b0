"""A night's date is the store's, not that of the computer that reads it."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import date

import pytest

from orchestrator.errors import UsageError
from orchestrator.extensions.history.regressions import read_nights
from orchestrator.store.opening import Store


def test_a_night_has_one_date_whoever_reads_it(
    reopen: Callable[[], Store], samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = reopen()
    store.set_zone("Pacific/Auckland")
    # At 22:00 UTC it is eleven in the morning there: the night of the day before.
    samples.begin(store)
    store.append_run(samples.run(0))
    dates = set()
    for reader in ("Pacific/Kiritimati", "Etc/GMT+12", "UTC"):
        monkeypatch.setenv("TZ", reader)
        time.tzset()
        table, _ = read_nights(reopen(), since=None)
        dates.add(table.nights)
    monkeypatch.undo()
    time.tzset()
    assert dates == {(date(2026, 3, 1),)}


@pytest.mark.parametrize("name", ["Mars/Olympus", "", "../../etc/passwd", "/etc/localtime", "Europe", "a\0b"])
def test_what_is_no_time_zone_is_refused(store: Store, name: str) -> None:
    with pytest.raises(UsageError, match="isn't a time zone"):
        store.set_zone(name)
