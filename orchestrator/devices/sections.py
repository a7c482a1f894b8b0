"""Several commands in one round trip: their outputs come back as named sections."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from functools import cache


class SectionScript:
    """A shell script of several commands whose outputs are told apart by a mark that no output can foresee."""

    def __init__(self, commands: Mapping[str, str]) -> None:
        """Put the commands together; each one's errors are dropped: what isn't there is an empty section."""
        self._mark = _mark()
        # The mark begins a line even when the output before it didn't end its own.
        self.text = "".join(
            f"echo; echo {self._mark}{name}\n{{ {command}\n}} 2>/dev/null </dev/null\n"
            for name, command in commands.items()
        )

    def split(self, output: str) -> dict[str, str]:
        """Return each section's output by name; sections whose command printed nothing are empty."""
        sections: dict[str, str] = {}
        for part in output.replace("\r\n", "\n").split("\n" + self._mark)[1:]:
            name, _, body = part.partition("\n")
            sections[name] = body
        return sections


@cache
def _mark() -> str:
    """Return the mark of this process: the same scripts stay the same texts."""
    return f"--{secrets.token_hex(8)}:"
