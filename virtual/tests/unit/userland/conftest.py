"""Phones for the tests of the userland; ``userland_phone`` beside this file holds their parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from virtual.tests.unit.userland.userland_phone import TestPhone


@pytest.fixture
def make_phone() -> Iterator[Callable[..., TestPhone]]:
    """Make phones."""
    from virtual.tests.unit.userland.userland_phone import TestPhone

    phones: list[TestPhone] = []

    def make(**settings: Any) -> TestPhone:
        phones.append(TestPhone(**settings))
        return phones[-1]

    yield make
    for phone in phones:
        phone.userland.processes.kill_all()


@pytest.fixture
def phone(make_phone: Callable[..., TestPhone]) -> TestPhone:
    """An ordinary phone."""
    return make_phone()
