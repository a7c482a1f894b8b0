"""A site that is served: its pages and the API's answers, from the store and the farm as they are
now.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import date
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final

from orchestrator.app.phones import release_phone
from orchestrator.app.status import QueueView, extension
from orchestrator.app.stored import find_campaigns
from orchestrator.errors import BenchfarmError, UsageError
from orchestrator.extensions.history import pages as site_pages
from orchestrator.extensions.history.api import Limit, MissingError, Offset, Phones, Route
from orchestrator.extensions.history.changepoint import RECENT_NIGHTS
from orchestrator.extensions.history.farm_now import FarmNow, farm_values, job_answer
from orchestrator.extensions.history.regressions import FoundChange
from orchestrator.extensions.history.site import Site, SiteSeries, gather, report_marks
from orchestrator.plugins import Workspace
from orchestrator.records.answers import (
    CampaignAnswer,
    ChangeAnswer,
    DeviceAnswer,
    DoneAnswer,
    FarmAnswer,
    JobAnswer,
    NightFigure,
    OneSeriesAnswer,
    PauseRequest,
    RunAnswer,
    SeriesAnswer,
    answer_of,
)
from orchestrator.records.case import CampaignId, Serial

if TYPE_CHECKING:
    from orchestrator.extensions.history.web import ServedPage

#: Seconds for which the pages stay as they are, and how many times as long as gathering them took.
_LEAST_AGE_S: Final = 2.0
_AGE_FACTOR: Final = 10.0
_KEPT_REPORTS: Final = 8


class LivePages:
    """The pages of a store as it is now; gathered again when something was stored, or read again,
    since.
    """

    def __init__(self, workspace: Workspace, farm: FarmNow, *, since: date | None) -> None:
        self._workspace = workspace
        self._farm = farm
        self._since = since
        self._lock = threading.Lock()
        self._site: Site | None = None
        self._marks: Mapping[CampaignId, str] = {}
        self._seen: object = None
        self._fresh_until_s = 0.0
        self._report = lru_cache(maxsize=_KEPT_REPORTS)(self._made_report)
        #: The changes that the farm's page has, and of which night and campaigns.
        self._changes: tuple[object, Sequence[ChangeAnswer]] = (None, ())

    def page(self, path: str) -> ServedPage | None:
        """Return the page of a path, None when there is none."""
        from orchestrator.extensions.history.web import page_of
        from orchestrator.tables.html import script_hash

        if path in {"farm", "farm/now"}:
            content = site_pages.farm_page(*self._now(), is_part=path != "farm")
            return page_of("farm.html", content.encode(), asks=True)
        path = f"{path}index.html" if path in {"", "campaigns/"} else path
        with self._lock:
            found = self._content(path)
        is_report = path.startswith("campaigns/") and path != "campaigns/index.html"
        script = script_hash("report") if is_report else ""
        return None if found is None else page_of(path, found, script=script)

    def site(self) -> Site:
        """Return what the pages show now."""
        with self._lock:
            return self._current()

    def _now(self) -> tuple[Mapping[str, object], Sequence[ChangeAnswer]]:
        """Return what the farm's page shows.

        Changes are looked for again when a campaign was begun or ended: that reads the whole
        history, and every page that is open asks again and again.
        """
        farm = self._farm.read()
        with suppress(BenchfarmError):
            if not farm.fault:
                campaigns = self._workspace.store.campaign_count()
                mark = (farm.night.night, campaigns, farm.night.left == 0)
                if mark != self._changes[0]:
                    self._changes = (mark, recent_changes(self.site()))
        now = self._workspace.clock.now()
        return farm_values(farm, now, self._workspace.store.zone), self._changes[1]

    def _content(self, path: str) -> bytes | None:
        if path.startswith("assets/"):
            return site_pages.shared_files().get(path)
        site = self._current()
        for item in site.campaigns:
            if path == f"campaigns/{item.page}":
                campaign_id = item.campaign.campaign_id
                return self._report(campaign_id, self._marks[campaign_id])
        page = site_pages.all_pages(self._workspace, site).get(path)
        return page().encode() if page is not None else None

    def _made_report(self, campaign_id: CampaignId, _mark: str) -> bytes:
        return site_pages.campaign_html(self._workspace, campaign_id).encode()

    def _current(self) -> Site:
        begin_s = time.monotonic()
        if self._site is not None and begin_s < self._fresh_until_s:
            return self._site
        store = self._workspace.store
        campaigns = store.campaigns()
        seen = (len(campaigns), list(store.annotations()), list(store.confirmations()))
        shown = [item for item in campaigns if item.campaign_id in self._marks]
        is_known = seen == self._seen and report_marks(store, shown) == self._marks
        if self._site is None or not is_known:
            site, self._marks = gather(store, since=self._since)
            self._site, self._seen = replace(site, is_live=True), seen
        took_s = time.monotonic() - begin_s
        self._fresh_until_s = time.monotonic() + max(_LEAST_AGE_S, _AGE_FACTOR * took_s)
        return self._site


class LiveAnswers:
    """What the API answers with: the farm and the store as they are now."""

    def __init__(
        self,
        workspace: Workspace,
        queue: QueueView | None,
        pages: LivePages,
        farm: FarmNow,
    ) -> None:
        self._settings = workspace.settings
        self._workspace = workspace
        self._queue = queue
        self._pages = pages
        self._now = farm

    @property
    def routes(self) -> list[Route]:
        """The requests of the API."""
        return [
            Route("GET", "/farm", "The farm as it is now", self.farm),
            Route("GET", "/devices", "All phones", self.devices),
            Route("GET", "/campaigns", "Stored campaigns, newest first", self.campaigns),
            Route(
                "GET",
                "/runs",
                "Runs of a campaign or submission, in the order of storing",
                self.runs,
            ),
            Route("GET", "/series", "Series over the nights, worst first", self.series),
            Route("GET", "/series/{series_key}", "One series with its nights", self.one_series),
            Route(
                "GET", "/jobs", "Jobs of a submission, or all open and the newest others", self.jobs
            ),
            Route("GET", "/changes", "Changes of series, newest first", self.changes),
            Route(
                "GET", "/access", "Whether the token that was sent may steer the farm", self.access
            ),
            Route("POST", "/pauses", "Pause the farm, a host or a phone", self.pause),
            Route("DELETE", "/pauses", "End a pause", self.resume),
            Route("DELETE", "/submissions/{submission}", "Cancel a submission", self.cancel),
            Route(
                "DELETE", "/quarantine/{serial}", "Release a phone from quarantine", self.release
            ),
        ]

    def farm(self) -> FarmAnswer:
        """Return the farm as it is now."""
        return self._now.read()

    def devices(self) -> Sequence[DeviceAnswer]:
        """Return all phones."""
        return self.farm().devices

    def jobs(
        self, submission: str = "", offset: Offset = 0, limit: Limit = 100
    ) -> Sequence[JobAnswer]:
        """Return the jobs of a submission, or all open and the newest others."""
        found = self._queue.jobs(submission) if self._queue is not None else []
        return [job_answer(row) for row in found[offset : offset + limit]]

    def campaigns(self, offset: Offset = 0, limit: Limit = 100) -> Sequence[CampaignAnswer]:
        """Return the campaigns, newest first."""
        return [
            answer_of(
                CampaignAnswer,
                item.campaign,
                stored=item.stored,
                planned=max(item.planned, item.stored),
                page=f"campaigns/{item.page}",
            )
            for item in self._pages.site().campaigns[offset : offset + limit]
        ]

    def runs(self, campaign: str, offset: Offset = 0, limit: Limit = 100) -> Sequence[RunAnswer]:
        """Return some runs of a campaign or submission, in their order.

        Raises UsageError for one that isn't there.
        """
        store = self._workspace.store
        chosen = [item.campaign_id for item in find_campaigns(store, campaign)]
        return [
            answer_of(
                RunAnswer,
                run,
                serial=run.case.serial,
                model=run.case.model_name,
                configuration=run.case.configuration,
                invocation=run.invocation + 1,
                quality=run.verdict.quality.word,
            )
            for run in islice(store.runs(campaign_ids=chosen), offset, offset + limit)
        ]

    def series(self, offset: Offset = 0, limit: Limit = 100) -> Sequence[SeriesAnswer]:
        """Return the series, worst first."""
        site = self._pages.site()
        return [_series(site, row) for row in site.series[offset : offset + limit]]

    def one_series(self, series_key: str) -> OneSeriesAnswer:
        """Return a series with its nights; raises MissingError when there is none."""
        site = self._pages.site()
        row = next((row for row in site.series if row.key == series_key), None)
        if row is None:
            raise MissingError("there is no series of this key")
        nights = [
            answer_of(
                NightFigure,
                item,
                low_us=item.low_us if math.isfinite(item.low_us) else None,
                high_us=item.high_us if math.isfinite(item.high_us) else None,
                is_clean=item.is_trusted,
            )
            for item in site.nights_of(row)
        ]
        changed = tuple(_change(site, row, change) for change in row.changes)
        return OneSeriesAnswer(series=_series(site, row), nights=tuple(nights), changes=changed)

    def changes(self, offset: Offset = 0, limit: Limit = 100) -> Sequence[ChangeAnswer]:
        """Return the changes, the newest first and of a night the largest first."""
        return changes_of(self._pages.site())[offset : offset + limit]

    def access(self) -> DoneAnswer:
        """Return that the token is right: without it the request doesn't come so far."""
        return DoneAnswer(text="the token is right")

    def pause(self, wanted: PauseRequest) -> DoneAnswer:
        """Pause a part of the farm."""
        return self._done(lambda: extension("control").pause(self._settings, [wanted.scope]))

    def resume(self, scope: str) -> DoneAnswer:
        """End a pause."""
        return self._done(lambda: extension("control").resume(self._settings, [scope]))

    def cancel(self, submission: str, phone: Phones = None) -> DoneAnswer:
        """Cancel a submission, or some phones' part of it."""
        return self._done(
            lambda: extension("control").cancel(self._settings, submission, phone or [])
        )

    def release(self, serial: str) -> DoneAnswer:
        """End a phone's quarantine."""
        if self._workspace.quarantine.reason(Serial(serial)):
            done = release_phone(self._settings, serial)
        elif self._queue is not None and (host := self._queue.ask_release(serial)):
            done = DoneAnswer(
                text=f"{serial}: its host {host} releases it at its next look", data={"host": host}
            )
        else:
            raise UsageError(f"{serial} isn't in quarantine")
        self._now.read(is_fresh=True)
        return done

    def _done(self, act: Callable[[], DoneAnswer]) -> DoneAnswer:
        if self._queue is None:
            raise UsageError(
                "this store has no farm's queue", hint="a farm needs a store on PostgreSQL"
            )
        done = act()
        self._now.read(is_fresh=True)
        return done


def _series(site: Site, row: SiteSeries) -> SeriesAnswer:
    return answer_of(
        SeriesAnswer,
        row,
        series_key=row.key,
        device=row.phone,
        serial=row.case.serial,
        configuration=row.case.configuration,
        last_night=site.nights[row.last_place],
        newest_change=_change(site, row, row.newest) if row.newest is not None else None,
        page=f"series/{row.page}",
    )


def changes_of(site: Site) -> list[ChangeAnswer]:
    """Return all changes, the newest first and of a night the largest first."""
    found = [_change(site, row, change) for row in site.series for change in row.changes]
    return sorted(found, key=lambda item: (item.night, abs(math.log(item.ratio))), reverse=True)


def recent_changes(site: Site) -> list[ChangeAnswer]:
    """Return the changes of the last nights that nobody expected or refuted."""
    passed = {"expected", "refuted"}
    return [item for item in changes_of(site) if item.is_recent and item.state not in passed]


def _change(site: Site, row: SiteSeries, change: FoundChange) -> ChangeAnswer:
    return answer_of(
        ChangeAnswer,
        change,
        series_key=row.key,
        label=row.label,
        page=f"series/{row.page}",
        is_recent=change.night >= site.nights[-RECENT_NIGHTS:][0],
        is_virtual=row.is_virtual,
    )
