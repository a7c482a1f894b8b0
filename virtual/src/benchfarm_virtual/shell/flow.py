"""How control leaves the middle of a script."""

from __future__ import annotations


class ShellKilledError(Exception):
    """The shell's own process was killed by a signal; unwind."""


class LeaveLoopError(Exception):
    """``break`` or ``continue`` through ``levels`` loops."""

    def __init__(self, levels: int, *, again: bool) -> None:
        super().__init__()
        self.levels = levels
        self.again = again


class ExitError(Exception):
    """``exit``."""

    def __init__(self, status: int) -> None:
        super().__init__()
        self.status = status
