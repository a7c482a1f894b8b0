"""When a plan may measure, for how long, and what goes first when that isn't enough."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from orchestrator.records.run import Outcome
from orchestrator.records.workload import Pass

#: The code of what wasn't measured because the time was over.
OUT_OF_TIME: Final = "out-of-time"
#: The code of what wasn't measured because somebody gave up what was left of its campaign.
ABANDONED: Final = "abandoned"
#: The code of what wasn't measured because its delegate uses no threads: another number of them shows its figure.
THREADS_UNUSED: Final = "threads-unused"
#: Nothing was begun, and nothing will be: that says nothing of the case.
NOT_BEGUN: Final = frozenset({OUT_OF_TIME, ABANDONED, THREADS_UNUSED})
_DAY_MIN: Final = 24 * 60


def parse_time_of_day(text: str) -> int:
    """Return the minutes after midnight of ``06:00`` (24:00 is 1440); raises ValueError."""
    hours, colon, minutes = text.strip().partition(":")
    if colon and hours.isascii() and hours.isdigit() and len(minutes) == 2 and minutes.isascii() and minutes.isdigit():
        total = int(hours) * 60 + int(minutes)
        if total <= _DAY_MIN and int(minutes) < 60:
            return total
    raise ValueError(f"{text!r} isn't a time of day such as 06:00")


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentRun:
    """When a run of a series began, and how long it took."""

    run_pass: Pass
    started_at: datetime
    duration_s: float
    outcome: Outcome
    #: Which campaign's, told from others'.
    campaign: str = ""
