"""A site that is served: its pages and the API's answers, from the store and the farm as they are now."""

from __future__ import annotations

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from itertools import islice
from typing import TYPE_CHECKING, Final

from orchestrator.analysis.changepoint import RECENT_NIGHTS
from orchestrator.app import farm_control, farm_schedules
from orchestrator.app.farm_now import FarmNow, job_answer
from orchestrator.app.phones import release_phone
from orchestrator.app.site import campaign_html, gather, report_marks
from orchestrator.app.stored import find_campaigns
from orchestrator.bootstrap import Farm
from orchestrator.errors import UsageError
from orchestrator.ports import Store
from orchestrator.records.campaign import Campaign
from orchestrator.records.identity import CampaignId, Serial
from orchestrator.records.run import RunRecord
from orchestrator.report import site_pages
from orchestrator.report.site import Site, SiteCampaign, SiteChange, SiteSeries
from orchestrator.serve.answers import (
    CampaignAnswer,
    ChangeAnswer,
    DoneAnswer,
    FarmAnswer,
    JobAnswer,
    NightFigure,
    OneSeriesAnswer,
    RunAnswer,
    SeriesAnswer,
)

if TYPE_CHECKING:
    from orchestrator.queueing.queue import FarmQueue
    from orchestrator.serve.app import ServedPage

#: Seconds for which the pages stay as they are, and how many times as long as gathering them took.
_LEAST_AGE_S: Final = 2.0
_AGE_FACTOR: Final = 10.0
_KEPT_REPORTS: Final = 8


class LivePages:
    """The pages of a store as it is now; gathered again when something was stored, or read again, since."""

    def __init__(self, farm: Farm, *, since: date | None, title: str) -> None:
        self._farm = farm
        self._since = since
        self._title = title
        self._lock = threading.Lock()
        self._known: tuple[Site, Mapping[CampaignId, str]] | None = None
        self._seen: object = None
        self._fresh_until_s = 0.0
        self._reports: OrderedDict[str, bytes] = OrderedDict()

    def page(self, path: str) -> ServedPage | None:
        """Return the page of a path, None when there is none."""
        from orchestrator.report.page_policy import script_hash
        from orchestrator.serve.app import page_of

        if path == "farm":
            return page_of("farm.html", site_pages.farm_page().encode(), asks=True)
        with self._lock:
            content = self._content(path)
        folder, _, name = path.partition("/")
        is_report = folder == "campaigns" and name not in ("", "index.html")
        script = script_hash("report") if is_report else ""
        return None if content is None else page_of(path or "index.html", content, script=script)

    def site(self) -> Site:
        """Return what the pages show now."""
        with self._lock:
            return self._current()[0]

    def _content(self, path: str) -> bytes | None:
        if path.startswith("assets/"):
            shared = (site_pages.style_file(), site_pages.script_file(), site_pages.farm_script_file())
            known = {item.path: item.content for item in shared}
            if path not in known:
                library = site_pages.library_file(self._farm.settings.cache_folder)
                known[library.path] = library.content
            return known.get(path)
        site, marks = self._current()
        if path in ("", "index.html"):
            return site_pages.overview_page(site).encode()
        folder, _, name = path.partition("/")
        if folder == "series" and name in site.by_name:
            return site_pages.series_page(site, site.by_name[name]).encode()
        if folder != "campaigns":
            return None
        if name in ("", "index.html"):
            return site_pages.campaigns_page(site).encode()
        campaign = next((item for item in site.campaigns if item.page == name), None)
        return None if campaign is None else self._report(campaign, marks[campaign.campaign_id])

    def _report(self, campaign: SiteCampaign, mark: str) -> bytes:
        key = f"{campaign.campaign_id} {mark}"
        if key not in self._reports:
            self._reports[key] = campaign_html(self._farm, campaign.campaign_id).encode()
            while len(self._reports) > _KEPT_REPORTS:
                self._reports.popitem(last=False)
        self._reports.move_to_end(key)
        return self._reports[key]

    def _current(self) -> tuple[Site, Mapping[CampaignId, str]]:
        begin_s = time.monotonic()
        if self._known is not None and begin_s < self._fresh_until_s:
            return self._known
        store = self._farm.store
        campaigns = store.campaigns()
        seen = (
            [(item.campaign_id, item.status, item.finished_at) for item in campaigns],
            dict(store.progress()),
            list(store.annotations()),
            list(store.confirmations()),
        )
        if self._known is None or seen != self._seen or self._is_read_again(campaigns):
            site, marks = gather(store, since=self._since, title=self._title)
            self._known = replace(site, is_live=True), marks
            self._seen = seen
        took_s = time.monotonic() - begin_s
        self._fresh_until_s = time.monotonic() + max(_LEAST_AGE_S, _AGE_FACTOR * took_s)
        return self._known

    def _is_read_again(self, campaigns: Sequence[Campaign]) -> bool:
        """Whether something else is read from what was stored: nothing else tells of that."""
        assert self._known is not None, "only asked of what is known"
        _, marks = self._known
        shown = [item for item in campaigns if item.campaign_id in marks]
        return report_marks(self._farm.store, shown) != marks


class LiveAnswers:
    """What the API answers with: the farm and the store as they are now. An ApiSource."""

    def __init__(self, farm: Farm, queue: FarmQueue | None, pages: LivePages, *, can_be_steered: bool) -> None:
        self._settings = farm.settings
        self._farm = farm
        self._queue = queue
        self._pages = pages
        self._now = FarmNow(farm, queue, can_be_steered=can_be_steered)

    def farm(self) -> FarmAnswer:
        """See ApiSource."""
        return self._now.read()

    def jobs(self, submission: str) -> Sequence[JobAnswer]:
        """See ApiSource."""
        return [job_answer(row) for row in self._queue.jobs(submission)] if self._queue is not None else []

    def campaigns(self) -> Sequence[CampaignAnswer]:
        """See ApiSource."""
        return campaigns(self._pages.site())

    def runs(self, campaign: str, *, offset: int, limit: int) -> Sequence[RunAnswer]:
        """See ApiSource."""
        return runs(self._farm.store, campaign, offset=offset, limit=limit)

    def series(self) -> Sequence[SeriesAnswer]:
        """See ApiSource."""
        return series(self._pages.site())

    def one_series(self, series_key: str) -> OneSeriesAnswer | None:
        """See ApiSource."""
        return one_series(self._pages.site(), series_key)

    def changes(self) -> Sequence[ChangeAnswer]:
        """See ApiSource."""
        return changes(self._pages.site())

    def hold(self, scope: str, kind: str) -> DoneAnswer:
        """See ApiSource."""
        if kind not in {"pause", "drain"}:
            raise UsageError(f"{kind!r} isn't known", hint="pause or drain")
        return self._done(lambda: farm_control.hold(self._settings, [scope], kind))

    def resume(self, scope: str) -> DoneAnswer:
        """See ApiSource."""
        return self._done(lambda: farm_control.release(self._settings, [scope]))

    def submit(self, schedule: str) -> DoneAnswer:
        """See ApiSource."""
        return self._done(lambda: farm_schedules.submit_now(self._settings, schedule))

    def cancel(self, submission: str, serials: Sequence[str]) -> DoneAnswer:
        """See ApiSource."""
        return self._done(lambda: farm_control.cancel(self._settings, submission, serials))

    def release(self, serial: str) -> DoneAnswer:
        """See ApiSource."""
        if self._farm.quarantine.reason(Serial(serial)):
            done = release_phone(self._settings, serial)
        elif self._queue is not None and (host := self._queue.ask_release(serial)):
            done = DoneAnswer(text=f"{serial}: its host {host} releases it at its next look", data={"host": host})
        else:
            raise UsageError(f"{serial} isn't in quarantine")
        self._now.read(is_fresh=True)
        return done

    def _done(self, act: Callable[[], DoneAnswer]) -> DoneAnswer:
        if self._queue is None:
            raise UsageError("this store has no farm's queue", hint="a farm needs a store on PostgreSQL")
        done = act()
        self._now.read(is_fresh=True)
        return done


def campaigns(site: Site) -> list[CampaignAnswer]:
    """Return the campaigns, newest first."""
    return [
        CampaignAnswer(
            campaign_id=item.campaign_id,
            name=item.name,
            status=item.status,
            created_at=item.created_at,
            finished_at=item.finished_at,
            host=item.host,
            stored=item.stored,
            planned=max(item.planned, item.stored),
            page=f"campaigns/{item.page}" if item.has_page else "",
        )
        for item in site.campaigns
    ]


def runs(store: Store, campaign: str, *, offset: int, limit: int) -> list[RunAnswer]:
    """Return some runs of a campaign or of a farm's submission, in their order; raises UsageError for none such."""
    chosen = [item.campaign_id for item in find_campaigns(store, campaign)]
    return [_run(run) for run in islice(store.runs(campaign_ids=chosen), offset, offset + limit)]


def _run(run: RunRecord) -> RunAnswer:
    return RunAnswer(
        run_id=run.run_id,
        campaign_id=run.campaign_id,
        serial=run.case.serial,
        model=run.case.model_name,
        configuration=run.case.configuration,
        run_pass=run.run_pass,
        invocation=run.invocation + 1,
        started_at=run.started_at,
        outcome=run.outcome,
        reason_code=run.reason_code,
        latency_us=run.latency_us,
        quality=run.verdict.quality.word,
        is_virtual=run.is_virtual,
    )


def series(site: Site) -> list[SeriesAnswer]:
    """Return all series, worst first."""
    return [_series(site, row) for row in site.series]


def one_series(site: Site, key: str) -> OneSeriesAnswer | None:
    """Return a series with its nights, None when there is none."""
    row = next((row for row in site.series if row.key == key), None)
    if row is None:
        return None
    nights = [
        NightFigure(
            night=item.night,
            median_us=item.median_us,
            low_us=item.low_us if math.isfinite(item.low_us) else None,
            high_us=item.high_us if math.isfinite(item.high_us) else None,
            invocations=item.invocations,
            is_clean=item.is_trusted,
        )
        for item in site.nights_of(row)
    ]
    changed = tuple(_change(site, row, change) for change in row.changes)
    return OneSeriesAnswer(series=_series(site, row), nights=tuple(nights), changes=changed)


def changes(site: Site) -> list[ChangeAnswer]:
    """Return all changes, the newest first and of a night the largest first."""
    found: Sequence[ChangeAnswer] = [_change(site, row, change) for row in site.series for change in row.changes]
    return sorted(found, key=lambda item: (item.night, abs(math.log(item.ratio))), reverse=True)


def _series(site: Site, row: SiteSeries) -> SeriesAnswer:
    return SeriesAnswer(
        series_key=row.key,
        model=row.model,
        device=row.phone,
        serial=row.case.serial,
        configuration=row.case.configuration,
        last_night=site.nights[row.last_place],
        last_us=row.last_us,
        against_window=row.against_window,
        newest_change=_change(site, row, row.newest) if row.newest is not None else None,
        page=f"series/{row.page}",
        is_virtual=row.is_virtual,
    )


def _change(site: Site, row: SiteSeries, change: SiteChange) -> ChangeAnswer:
    return ChangeAnswer(
        series_key=row.key,
        night=change.night,
        ratio=change.ratio,
        low=change.low,
        high=change.high,
        before_us=change.before_us,
        after_us=change.after_us,
        state=change.state,
        label=row.label,
        page=f"series/{row.page}",
        is_recent=change.night >= site.nights[-RECENT_NIGHTS:][0],
        is_virtual=row.is_virtual,
    )
