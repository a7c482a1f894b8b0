"""A night's date is the store's, not that of the computer that reads it."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from datetime import date
from pathlib import Path

import pytest
from sqlalchemy import update

from orchestrator.extensions.history.regressions import campaign_nights, read_nights
from orchestrator.store.opening import Store, open_store
from orchestrator.store.schema import SETTINGS


def test_a_night_has_one_date_whoever_reads_it(
    reopen: Callable[[], Store], samples, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = reopen()
    with store.writing() as connection:
        named = update(SETTINGS).where(SETTINGS.c.name == "timezone")
        connection.execute(named.values(value="Pacific/Auckland"))
    # At 22:00 UTC it is eleven in the morning there: the night of the day before.
    samples.begin(store)
    store.append_run(samples.run(0))
    dates = set()
    for reader in ("Pacific/Kiritimati", "Etc/GMT+12", "UTC"):
        monkeypatch.setenv("TZ", reader)
        time.tzset()
        opened = reopen()
        nights = read_nights(opened, campaign_nights(opened, opened.campaigns()))
        dates.add(nights.table.nights)
    monkeypatch.undo()
    time.tzset()
    assert dates == {(date(2026, 3, 1),)}


def test_a_new_store_keeps_the_zone_that_tz_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for zone in ("Europe/Berlin", "UTC"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        with closing(open_store(f"sqlite:///{tmp_path}/store.sqlite")) as store:
            assert str(store.zone) == "Europe/Berlin"
    monkeypatch.undo()
    time.tzset()
