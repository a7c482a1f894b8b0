"""When a plan may measure, for how long, and what goes first when that isn't enough."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from fnmatch import fnmatchcase
from typing import Final
from zoneinfo import ZoneInfo

from orchestrator.records.run import Outcome
from orchestrator.records.workload import Case, Pass

#: The code of what wasn't measured because the time was over.
OUT_OF_TIME: Final = "out-of-time"
#: The code of what wasn't measured because somebody gave up what was left of its campaign.
ABANDONED: Final = "abandoned"
#: The code of what wasn't measured because its delegate uses no threads: another number of them shows its figure.
THREADS_UNUSED: Final = "threads-unused"
#: Nothing was begun, and nothing will be: that says nothing of the case.
NOT_BEGUN: Final = frozenset({OUT_OF_TIME, ABANDONED, THREADS_UNUSED})
_DAY_MIN: Final = 24 * 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A span of every day; one that ends before it begins ends on the day after."""

    #: Minutes after midnight, 0 to 1439.
    begin_min: int
    end_min: int
    #: An IANA name such as ``Europe/Berlin``; empty for the time zone of the computer that asks.
    timezone: str = ""

    def __str__(self) -> str:
        """Return the window as a plan says it: ``01:00-06:00``."""
        span = "-".join(f"{minute // 60:02}:{minute % 60:02}" for minute in (self.begin_min, self.end_min))
        return f"{span} {self.timezone}".rstrip()

    def around(self, now: datetime) -> tuple[datetime, datetime]:
        """Return begin and end (UTC) of the window that is open at a moment, else of the next one."""
        return next(span for span in self._spans(now) if span[1] > now and span[1] > span[0])

    def _spans(self, now: datetime) -> Iterator[tuple[datetime, datetime]]:
        first = (now.astimezone(ZoneInfo(self.timezone)) if self.timezone else now.astimezone()).date()
        for days in range(-1, 4):
            day = first + timedelta(days=days)
            ends_on = day if self.end_min > self.begin_min else day + timedelta(days=1)
            yield self._at(day, self.begin_min), self._at(ends_on, self.end_min)

    def _at(self, day: date, minute: int) -> datetime:
        local = datetime.combine(day, time(minute // 60 % 24, minute % 60))
        # A moment that a change of the clocks leaves out is taken as the one an hour later.
        known = local.replace(tzinfo=ZoneInfo(self.timezone)) if self.timezone else local.astimezone()
        return known.astimezone(UTC)


def parse_window(text: str, timezone: str = "") -> Window:
    """Return the window of ``01:00-06:00``; raises ValueError saying what is wrong."""
    begin, dash, end = text.replace(" ", "").partition("-")
    if not dash:
        raise ValueError(f"{text!r} isn't a span of the day such as 01:00-06:00")
    minutes = [parse_time_of_day(begin), parse_time_of_day(end) % _DAY_MIN]
    if minutes[0] == minutes[1]:
        raise ValueError(f"{text!r} begins and ends at the same time of day")
    return Window(begin_min=minutes[0] % _DAY_MIN, end_min=minutes[1], timezone=parse_timezone(timezone))


def parse_time_of_day(text: str) -> int:
    """Return the minutes after midnight of ``06:00`` (24:00 is 1440); raises ValueError."""
    hours, colon, minutes = text.strip().partition(":")
    if colon and hours.isascii() and hours.isdigit() and len(minutes) == 2 and minutes.isascii() and minutes.isdigit():
        total = int(hours) * 60 + int(minutes)
        if total <= _DAY_MIN and int(minutes) < 60:
            return total
    raise ValueError(f"{text!r} isn't a time of day such as 06:00")


def parse_timezone(name: str) -> str:
    """Return the name of a time zone that this computer knows, or an empty one; raises ValueError."""
    if not name:
        return ""
    try:
        ZoneInfo(name)
    except (ValueError, OSError, KeyError):
        raise ValueError(f"{name!r} isn't a time zone that this computer knows, such as Europe/Berlin") from None
    return name


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportanceRule:
    """How much some cases matter; a case must fit every key that is given."""

    #: Against 1 for what no rule speaks of; 0 is measured when there is time left.
    value: float
    #: Patterns with ``*`` and ``?``; empty fits all, as with the others.
    models: tuple[str, ...] = ()
    delegates: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    threads: tuple[int, ...] = ()
    serials: tuple[str, ...] = ()

    def fits(self, case: Case) -> bool:
        """Whether the rule speaks of a case."""
        pairs = (
            (self.models, case.model_name),
            (self.delegates, str(case.delegate)),
            (self.tools, str(case.tool)),
            (self.serials, str(case.serial)),
        )
        named = all(any(fnmatchcase(name, item) for item in wanted) for wanted, name in pairs if wanted)
        return named and (not self.threads or case.threads in self.threads)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentRun:
    """When a run of a series began, and how long it took."""

    run_pass: Pass
    started_at: datetime
    duration_s: float
    outcome: Outcome
    #: Which campaign's, told from others'.
    campaign: str = ""
