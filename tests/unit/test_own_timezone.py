"""The time zone of this computer by name, wherever it is told."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from orchestrator.clock import local_timezone


@pytest.fixture(autouse=True)
def own_zone_again() -> Iterator[None]:
    """Have this process's clock be the computer's again."""
    yield
    time.tzset()


@pytest.mark.parametrize(
    ("zone", "name"),
    [
        ("Europe/Berlin", "Europe/Berlin"),
        (":Europe/Berlin", "Europe/Berlin"),
        # Forms that name no zone.
        ("XYZ-3", "Etc/GMT-3"),
        ("XYZ4", "Etc/GMT+4"),
        ("XYZ-5:45", "UTC"),
    ],
)
def test_a_time_zone_always_has_a_name(
    monkeypatch: pytest.MonkeyPatch, zone: str, name: str
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", zone)
        time.tzset()
        assert local_timezone() == name
