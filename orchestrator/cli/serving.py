"""``benchfarm history site`` and ``benchfarm serve``: the history's pages in a folder, and from the live store."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import date
from types import ModuleType
from typing import TYPE_CHECKING, Final

from orchestrator.app import api_answers, site
from orchestrator.app.access import Listening, access_of, address_of, require_packages
from orchestrator.app.farm_beside import queue_beside
from orchestrator.app.farm_now import FarmNow, job_answer
from orchestrator.app.site import TITLE, SiteRequest, campaign_html, first_night, gather, report_marks
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.progress import tell
from orchestrator.cli.result import CommandResult
from orchestrator.errors import UsageError
from orchestrator.records.campaign import Campaign
from orchestrator.records.identity import CampaignId, Serial
from orchestrator.report import site_pages
from orchestrator.report.site import Site, SiteCampaign
from orchestrator.serve.answers import (
    CampaignAnswer,
    ChangeAnswer,
    DoneAnswer,
    FarmAnswer,
    JobAnswer,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRequest:
    """The options of ``benchfarm serve``."""

    listening: Listening = field(default_factory=lambda: Listening(port=8080))
    since: str = ""
    title: str = TITLE
    #: Whether who hasn't the token may read.
    anyone_reads: bool = False


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
        return api_answers.campaigns(self._pages.site())

    def runs(self, campaign: str, *, offset: int, limit: int) -> Sequence[RunAnswer]:
        """See ApiSource."""
        return api_answers.runs(self._farm.store, campaign, offset=offset, limit=limit)

    def series(self) -> Sequence[SeriesAnswer]:
        """See ApiSource."""
        return api_answers.series(self._pages.site())

    def one_series(self, series_key: str) -> OneSeriesAnswer | None:
        """See ApiSource."""
        return api_answers.one_series(self._pages.site(), series_key)

    def changes(self) -> Sequence[ChangeAnswer]:
        """See ApiSource."""
        return api_answers.changes(self._pages.site())

    def hold(self, scope: str, kind: str) -> DoneAnswer:
        """See ApiSource."""
        if kind not in {"pause", "drain"}:
            raise UsageError(f"{kind!r} isn't known", hint="pause or drain")
        return self._done(lambda farm: farm.hold(self._settings, [scope], kind))

    def resume(self, scope: str) -> DoneAnswer:
        """See ApiSource."""
        return self._done(lambda farm: farm.release(self._settings, [scope]))

    def submit(self, schedule: str) -> DoneAnswer:
        """See ApiSource."""

        def submit(_: object) -> CommandResult:
            from orchestrator.cli.schedule import submit_now

            return submit_now(self._settings, schedule)

        return self._done(submit)

    def cancel(self, submission: str, serials: Sequence[str]) -> DoneAnswer:
        """See ApiSource."""
        return self._done(lambda farm: farm.cancel(self._settings, submission, serials))

    def release(self, serial: str) -> DoneAnswer:
        """See ApiSource."""
        from orchestrator.cli import devices

        if self._farm.quarantine.reason(Serial(serial)):
            done = devices.release(self._settings, serial)
        elif self._queue is not None and (host := self._queue.ask_release(serial)):
            done = CommandResult(text=f"{serial}: its host {host} releases it at its next look", data={"host": host})
        else:
            raise UsageError(f"{serial} isn't in quarantine")
        self._now.read(is_fresh=True)
        return DoneAnswer(text=done.text, data=done.data)

    def _done(self, act: Callable[[ModuleType], CommandResult]) -> DoneAnswer:
        if self._queue is None:
            raise UsageError("this store has no farm's queue", hint="a farm needs a store on PostgreSQL")
        from orchestrator.cli import farm

        done = act(farm)
        self._now.read(is_fresh=True)
        return DoneAnswer(text=done.text, data=done.data)


def build(settings: Settings, request: SiteRequest) -> CommandResult:
    """Write or renew the pages; raises UsageError, HostStorageError."""
    with Farm(settings, makes_store=False) as farm:
        done = site.build(farm, request)
    text = (
        f"{done.path}: {done.series} series, {done.reports} reports; "
        f"{done.written} pages written, {done.unchanged} unchanged, {done.removed} removed"
    )
    if done.kept:
        text += f"\nleft as they are, since somebody changed them: {', '.join(done.kept[:5])}"
    return CommandResult(text=text, data=done)


def run(settings: Settings, request: ServeRequest) -> CommandResult:
    """Serve until interrupted; raises UsageError."""
    require_packages("benchfarm serve")
    from orchestrator.app.gauges import Numbers
    from orchestrator.serve import app as web
    from orchestrator.serve.metrics import page

    access = replace(access_of(settings, request.listening), anyone_reads=request.anyone_reads)
    if request.anyone_reads and not access.token:
        raise UsageError("--anyone-reads is about a server with a token", hint="give --token-file, or leave it out")
    with ExitStack() as stack:
        farm = stack.enter_context(Farm(settings))
        pages = LivePages(farm, since=first_night(request.since, farm), title=request.title)
        # A store that can't be opened is told now, not at the first request.
        farm.store.campaigns()
        queue = queue_beside(settings, stack)
        numbers = Numbers(farm, queue)
        answers = LiveAnswers(farm, queue, pages, can_be_steered=bool(access.token))
        listening = stack.enter_context(web.listen(request.listening.host, request.listening.port))
        url = f"{address_of(listening)}/"
        if request.listening.token == "new":  # noqa: S105 - a word, no secret
            # Nobody else knows one that was made up; what was given stays out of logs.
            url += f"?token={access.token}"
        tell(settings.log_format, "serving", url, url=url)
        tell(
            settings.log_format, "serving", "the farm, live: /farm; its API: /api/v1; numbers for Prometheus: /metrics"
        )
        tell(settings.log_format, "serving", "Ctrl-C ends it")
        with suppress(KeyboardInterrupt):
            more = {"metrics": lambda: page(numbers.families())}
            web.serve(web.make_app(pages, access=access, more=more, source=answers), listening)
    return CommandResult(text="", data={"url": url})
