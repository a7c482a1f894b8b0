"""What a campaign and its phones do now: the one answer for the live view, `status`, pages and
numbers.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final


class Standing(enum.StrEnum):
    """What a phone does; those that need attention come first."""

    ABANDONED = "abandoned"
    AWAY = "away"
    WORKING = "working"
    WAITING = "waiting"
    DONE = "done"

    @property
    def order(self) -> int:
        """Its place in lists."""
        return list(Standing).index(self)

    @property
    def is_under_way(self) -> bool:
        """Whether the phone's end is waited for."""
        return self in {Standing.WORKING, Standing.WAITING}


@dataclass(frozen=True, slots=True, kw_only=True)
class PhoneStatus:
    """One phone of a campaign."""

    serial: str
    standing: Standing = Standing.WAITING
    #: What it measures, waits for, or why it was abandoned.
    doing: str = ""
    stored: int = 0
    #: At least this many invocations.
    left: int = 0
    battery_heat_c: float | None = None
    #: None when too little is known.
    eta_s: float | None = None
    #: Of the stored ones, those that gave no result.
    failed: int = 0

    @property
    def look(self) -> str:
        """How it is shown: as its standing, but for one that is done and has failed runs."""
        if self.standing is not Standing.DONE or not self.failed:
            return self.standing.value
        return (Standing.ABANDONED if self.failed >= self.stored else Standing.AWAY).value


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveFigure:
    """What a case's runs show as yet."""

    serial: str
    #: Model and configuration.
    case: str
    median_us: float
    #: Half the 95 % interval as a share; None for a single run.
    precision: float | None
    runs: int
    is_per_token: bool = False


#: The state of a campaign that another computer of a shared store runs, and of one that is stored
#: as running while no process is at it.
ELSEWHERE: Final = "elsewhere"
CUT_OFF: Final = "cut off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A campaign at one moment."""

    campaign_id: str
    name: str
    #: As stored (running, finished, interrupted ...), or one of the two above.
    state: str
    #: The computer that began it, and the process of this computer that runs it; empty for none.
    host: str = ""
    holder: str = ""
    #: Runs stored and planned, where the phones aren't known.
    runs: tuple[int, int] = (0, 0)
    phones: tuple[PhoneStatus, ...] = ()
    #: Runs that were planned when it began, which added rounds don't change; 0 for unknown.
    planned: int = 0
    figures: tuple[LiveFigure, ...] = ()

    @property
    def stored(self) -> int:
        """How many runs are stored."""
        return sum(phone.stored for phone in self.phones) if self.phones else self.runs[0]

    @property
    def left(self) -> int:
        """How many invocations are left, at least."""
        if self.phones:
            return sum(phone.left for phone in self.phones)
        return max(0, self.runs[1] - self.runs[0])

    @property
    def eta_s(self) -> float | None:
        """How long the campaign takes: as its longest phone.

        None while nothing is known. Phones that are away or abandoned aren't waited for; one whose
        pace isn't known yet is taken for as slow as the slowest of the others.
        """
        left = [phone for phone in self.phones if phone.left and phone.standing.is_under_way]
        known = [(phone.eta_s, phone.left) for phone in left if phone.eta_s is not None]
        if not known:
            return None
        slowest_s = max(eta_s / count for eta_s, count in known)
        return max(slowest_s * p.left if p.eta_s is None else p.eta_s for p in left)
