"""benchfarm: measure TensorFlow Lite (LiteRT) models on real phones, and know what each number is
worth.

This module is the library; ``docs/python.md`` shows it. A name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

__version__ = "0.1.0"

if TYPE_CHECKING:
    from orchestrator.app.lab import Comparison, Lab, Progress, Results, bench, compare, load, run
    from orchestrator.errors import (
        ArtifactError,
        BenchfarmError,
        DeviceError,
        HostStorageError,
        InterruptedByUserError,
        NoDeviceError,
        PlanError,
        StoreError,
        UsageError,
    )
    from orchestrator.records.case import Case
    from orchestrator.records.plan import Plan

__all__ = [
    "ArtifactError",
    "BenchfarmError",
    "Case",
    "Comparison",
    "DeviceError",
    "HostStorageError",
    "InterruptedByUserError",
    "Lab",
    "NoDeviceError",
    "Plan",
    "PlanError",
    "Progress",
    "Results",
    "StoreError",
    "UsageError",
    "__version__",
    "bench",
    "compare",
    "load",
    "run",
]

_HOMES: Final = {
    **dict.fromkeys(
        ("Comparison", "Lab", "Progress", "Results", "bench", "compare", "load", "run"),
        "orchestrator.app.lab",
    ),
    "Plan": "orchestrator.records.plan",
    "Case": "orchestrator.records.case",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'orchestrator' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES.get(name, "orchestrator.errors")), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
