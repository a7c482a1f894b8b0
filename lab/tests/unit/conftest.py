"""Parts that the tests of the virtual phone's physics and programs share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lab.tests.unit import networks as published_networks
from lab.tests.unit import tiny_models
from lab.tests.unit.bench_phone import BenchPhone


@pytest.fixture(scope="session")
def models() -> ModuleType:
    """Builders of tiny models."""
    return tiny_models


@pytest.fixture(scope="session")
def networks() -> ModuleType:
    """The networks of the published table."""
    return published_networks


@pytest.fixture
def bench_phone(tmp_path: Path) -> Callable[..., BenchPhone]:
    """Make phones without adb, each in a folder of its own."""
    made = 0

    def make(profile: str = "pixel-3", **settings: Any) -> BenchPhone:
        nonlocal made
        made += 1
        return BenchPhone(tmp_path / f"phone{made}", profile, **settings)

    return make
