"""benchfarm as a library: the names that ``orchestrator`` exports. ``docs/python.md`` shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orchestrator

if TYPE_CHECKING:
    from orchestrator import *  # noqa: F403

__all__ = orchestrator.__all__


def __getattr__(name: str) -> object:
    return getattr(orchestrator, name)


def __dir__() -> list[str]:
    return sorted(orchestrator.__all__)
