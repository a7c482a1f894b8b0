"""The API's own answers as records, beside those of a farm; its OpenAPI description is made from
both.
"""

from __future__ import annotations

from datetime import date, datetime

from orchestrator.records import frozen


@frozen
class LeftOutAnswer:
    """A phone that a submission selects and that has no job of it."""

    serial: str
    #: Why it got none at submission.
    reason: str


@frozen
class CampaignAnswer:
    """A stored campaign."""

    campaign_id: str
    name: str
    status: str
    created_at: datetime
    finished_at: datetime | None
    host: str
    stored: int
    planned: int
    #: Path of its report on this server.
    page: str
    #: Where it was imported from; empty for one of this store's own.
    origin: str
    is_virtual: bool


@frozen
class RunAnswer:
    """One invocation of a benchmark program."""

    run_id: str
    campaign_id: str
    serial: str
    model: str
    configuration: str
    run_pass: str
    #: Counts from 1 within case and pass.
    invocation: int
    started_at: datetime
    outcome: str
    reason_code: str
    #: Median inference time in microseconds; None without one.
    latency_us: float | None
    quality: str
    is_virtual: bool


@frozen
class ChangeAnswer:
    """A change of a series."""

    series_key: str
    #: The first night of the new level.
    night: date
    #: Time after / time before, with its 95 % interval.
    ratio: float
    low: float
    high: float
    before_us: float
    after_us: float
    #: not confirmed yet, confirmed, refuted, can't be confirmed, expected, or went away on a date.
    state: str
    #: Names the series for people.
    label: str
    #: Path of the series' page on this server; empty where its nights aren't shown.
    page: str
    #: Whether 'benchfarm history changes' reports it: it began in the last 14 nights (more where its
    #: series lacks nights), or is the newest of its series and went away in them. Those that began
    #: before 'serve --since' aren't here.
    is_recent: bool
    is_virtual: bool


@frozen
class SeriesAnswer:
    """One case over the nights."""

    series_key: str
    model: str
    device: str
    serial: str
    configuration: str
    last_night: date
    #: Microseconds.
    last_us: float
    #: The newest figure against the median of the nights before it, as a ratio minus 1.
    against_window: float | None
    newest_change: ChangeAnswer | None
    page: str
    is_virtual: bool


@frozen
class NightFigure:
    """One night of a series."""

    night: date
    #: Microseconds; the interval is None for a single invocation.
    median_us: float
    low_us: float | None
    high_us: float | None
    invocations: int
    #: Whether it is of clean runs, and its outputs weren't known to be wrong or to drift.
    is_clean: bool
    #: Ids of the campaigns that measured it.
    campaigns: tuple[str, ...]


@frozen
class OneSeriesAnswer:
    """A series with its nights."""

    series: SeriesAnswer
    nights: tuple[NightFigure, ...]
    changes: tuple[ChangeAnswer, ...]


@frozen
class PauseRequest:
    """A request to pause."""

    #: farm, host:NAME or phone:SERIAL.
    scope: str


@frozen
class ErrorAnswer:
    """Why a request was refused."""

    error: str
    #: What to do; may be empty.
    hint: str = ""
