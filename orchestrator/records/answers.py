"""What commands, pages and the API answer about a farm, and about an action."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from datetime import date, datetime
from typing import Any, Final, TypeVar

from orchestrator.records import frozen

_Answer = TypeVar("_Answer")


@frozen
class DeviceAnswer:
    """A phone of the farm as it is now."""

    serial: str
    #: clash, measuring, free, idle, waiting, paused, silent, quarantined, unusable, away or
    #: abandoned.
    state: str
    #: Why it isn't measuring; empty where nothing is wrong.
    reason: str
    #: The host that has it; empty for this computer.
    host: str = ""
    #: Its name for people; empty while unknown.
    name: str = ""
    #: Its current activity, or its last one.
    doing: str = ""
    submission: str = ""
    campaign_id: str = ""
    #: Invocations stored and left of its campaign.
    stored: int = 0
    left: int = 0
    #: When it will finish its campaign at its current pace; None while unknown.
    done_at: datetime | None = None
    battery_heat_c: float | None = None
    battery_percent: float | None = None
    #: When heat and battery were read.
    read_at: datetime | None = None
    #: Of an offline phone: until when its host reported it.
    seen_at: datetime | None = None
    is_virtual: bool = False


@frozen
class HostAnswer:
    """A host of the farm."""

    name: str
    #: alive, silent or paused.
    state: str
    note: str
    benchfarm_version: str
    #: Seconds since its last heartbeat.
    silent_s: float


#: The states of a job that is measured now or later.
OPEN_JOBS: Final = ("waits", "runs")


@frozen
class JobAnswer:
    """One phone's part of a submission."""

    job_id: int
    submission: str
    serial: str
    plan: str
    campaign_id: str
    #: waits, runs, done, failed or cancelled.
    status: str
    priority: int
    host: str
    note: str
    #: When a waiting job may be retried.
    again_at: datetime | None


@frozen
class NightAnswer:
    """The current night, from noon to noon: all campaigns begun in it."""

    night: date
    #: Invocations with a result, those without one or abandoned, and those left in open campaigns.
    #: Skipped ones aren't counted.
    with_result: int = 0
    without_result: int = 0
    left: int = 0
    #: When the last phone will finish; None while unknown.
    done_at: datetime | None = None


@frozen
class FarmAnswer:
    """The farm at one moment."""

    #: False for a store without a farm's queue: one computer and its phones.
    has_queue: bool
    #: Whether the server was started with a token, with which the farm can be controlled.
    can_be_steered: bool = False
    night: NightAnswer
    #: What can't be read now; empty when everything could.
    fault: str = ""
    devices: tuple[DeviceAnswer, ...] = ()
    hosts: tuple[HostAnswer, ...] = ()
    #: Running and waiting jobs, and the failed ones of each plan's newest submission.
    jobs: tuple[JobAnswer, ...] = ()
    #: What is paused: farm, host:NAME or phone:SERIAL.
    pauses: tuple[str, ...] = ()
    #: The longest time that a job has waited for a free phone.
    lag_s: float = 0.0


@frozen
class DoneAnswer:
    """The result of an action."""

    #: For people.
    text: str
    #: The --json output of the command of the same name.
    data: Any = None


def answer_of(kind: type[_Answer], source: object, **more: object) -> _Answer:
    """Return an answer from the fields of a row or record of the same names; ``more`` are the other
    fields.
    """
    names = [item.name for item in fields(kind) if item.name not in more]  # type: ignore[arg-type]
    if isinstance(source, Mapping):
        return kind(**{name: source[name] for name in names}, **more)
    return kind(**{name: getattr(source, name) for name in names}, **more)
