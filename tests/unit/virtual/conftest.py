"""Parts that the tests of the virtual phone's physics and programs share."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def _beside(name: str) -> ModuleType:
    """Load a module that lies beside this file (tests are no package)."""
    known = sys.modules.get(f"virtual_{name}")
    if known is not None:
        return known
    spec = importlib.util.spec_from_file_location(f"virtual_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def models() -> ModuleType:
    """Builders of tiny models."""
    return _beside("tiny_models")


@pytest.fixture(scope="session")
def networks() -> ModuleType:
    """The networks of the published table."""
    return _beside("networks")


@pytest.fixture
def bench_phone(tmp_path: Path) -> Callable[..., Any]:
    """Make phones without adb, each in a folder of its own."""
    made = 0

    def make(profile: str = "pixel-3", **settings: Any) -> Any:
        nonlocal made
        made += 1
        return _beside("bench_phone").BenchPhone(tmp_path / f"phone{made}", profile, **settings)

    return make
