"""The shell scripts that run on a phone, as text for one request."""

from __future__ import annotations

from functools import cache
from importlib import resources

from orchestrator.devices.shell import quote


def script(name: str, *arguments: str) -> str:
    """Return ``scripts/NAME.sh`` with its arguments in front, ready to be sent to a phone's shell."""
    return f"set -- {' '.join(map(quote, arguments))}\n{_text(name)}"


@cache
def _text(name: str) -> str:
    return resources.files("orchestrator.devices").joinpath("scripts", f"{name}.sh").read_text("utf-8")
