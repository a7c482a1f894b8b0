"""Tests of the core that need what an extension brings."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def needs_extension(name: str) -> pytest.MarkDecorator:
    """Skip a test where an extension was left out, as in ``make test-core``."""
    is_here = find_spec("orchestrator.extensions") and find_spec(f"orchestrator.extensions.{name}")
    return pytest.mark.skipif(not is_here, reason=f"the extension {name} isn't here")
