"""Phones for the tests of the userland; ``userland_phone`` beside this file holds their parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from lab.tests.unit.userland.userland_phone import TestPhone


@pytest.fixture
def make_phone(tmp_path: Path) -> Iterator[Callable[..., TestPhone]]:
    """Make phones, each in a folder of its own."""
    from lab.tests.unit.userland.userland_phone import TestPhone

    phones: list[TestPhone] = []

    def make(**settings: Any) -> TestPhone:
        phones.append(TestPhone(tmp_path / f"phone{len(phones)}", **settings))
        return phones[-1]

    yield make
    for phone in phones:
        phone.userland.close()


@pytest.fixture
def phone(make_phone: Callable[..., TestPhone]) -> TestPhone:
    """An ordinary phone."""
    return make_phone()
