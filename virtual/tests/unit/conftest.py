"""Parts that the tests of the virtual phone's physics and programs share."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from virtual.tests.unit import tiny_models
from virtual.tests.unit.bench_phone import BenchPhone


@pytest.fixture(scope="session")
def models() -> ModuleType:
    """Builders of tiny models."""
    return tiny_models


@pytest.fixture
def bench_phone() -> Callable[..., BenchPhone]:
    """Make phones without adb: ``bench_phone(profile, seed=...)``."""
    return BenchPhone
