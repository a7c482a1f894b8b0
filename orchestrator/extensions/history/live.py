"""A site that is served: its pages, from the store and the farm as they are now."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache
from typing import Final

from orchestrator.errors import BenchfarmError
from orchestrator.extensions.history import pages as site_pages
from orchestrator.extensions.history.farm_now import FarmNow, Kept
from orchestrator.extensions.history.site import Site, gather, report_marks
from orchestrator.extensions.history.web import ServedPage, page_of
from orchestrator.plugins import Workspace
from orchestrator.records.answers import ChangeAnswer
from orchestrator.records.case import CampaignId
from orchestrator.tables.html import script_hash

_KEPT_REPORTS: Final = 8
#: How many times as long as gathering it took is shown what the pages show.
_AGE_FACTOR: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gathered:
    """What the pages show, what of the store says whether that is still so, and each report's mark."""

    site: Site
    seen: object
    marks: Mapping[CampaignId, str]


class LivePages:
    """The pages of a store as it is now; gathered again when something was stored, or read again,
    since.
    """

    def __init__(self, workspace: Workspace, farm: FarmNow, *, since: date | None) -> None:
        self._workspace = workspace
        self._farm = farm
        self._since = since
        self._kept = Kept(self._gather, age_factor=_AGE_FACTOR)
        #: Pages are made one after the other.
        self._lock = threading.Lock()
        self._report = lru_cache(maxsize=_KEPT_REPORTS)(self._made_report)
        #: The changes that the farm's page has, and of which night and campaigns.
        self._changes: tuple[object, Sequence[ChangeAnswer]] = (None, ())

    def page(self, path: str) -> ServedPage | None:
        """Return the page of a path, None when there is none."""
        if path in {"farm", "farm/now"}:
            content = self._farm_page(is_part=path != "farm")
            return page_of("farm.html", content.encode(), asks=True)
        path = f"{path}index.html" if path in {"", "campaigns/"} else path
        with self._lock:
            found = self._content(path)
        is_report = path.startswith("campaigns/") and path != "campaigns/index.html"
        script = script_hash("report") if is_report else ""
        return None if found is None else page_of(path, found, script=script)

    def site(self) -> Site:
        """Return what the pages show now."""
        return self._kept.now().site

    def _farm_page(self, *, is_part: bool) -> str:
        """Return the farm's page.

        Changes are looked for again when a campaign was begun, ended or hidden, or somebody expected
        or confirmed a change: that reads the whole history, and every page that is open asks again
        and again.
        """
        farm, store = self._farm.read(), self._workspace.store
        with suppress(BenchfarmError):
            if not farm.fault:
                mark = (
                    farm.night.night,
                    farm.night.left == 0,
                    store.campaign_count(),
                    store.hidden_campaigns(),
                    list(store.annotations()),
                    list(store.confirmations()),
                )
                if mark != self._changes[0]:
                    # What is kept may be of before the mark.
                    self._changes = (mark, recent_changes(self._kept.now(is_fresh=True).site))
        now = self._workspace.clock.now()
        return site_pages.farm_page(farm, self._changes[1], now, is_part=is_part)

    def _content(self, path: str) -> bytes | None:
        if path.startswith("assets/"):
            asset = site_pages.shared_files().get(path)
            return asset.encode() if asset is not None else None
        now = self._kept.now()
        for item in now.site.campaigns:
            if path == item.page:
                campaign_id = CampaignId(item.campaign_id)
                return self._report(campaign_id, now.marks[campaign_id])
        page = site_pages.all_pages(self._workspace, now.site).get(path)
        return page().encode() if page is not None else None

    def _made_report(self, campaign_id: CampaignId, _mark: str) -> bytes:
        return site_pages.campaign_html(self._workspace, campaign_id).encode()

    def _gather(self, before: _Gathered | None) -> _Gathered:
        """Return what was known, unless something was stored, or read again, since."""
        store = self._workspace.store
        campaigns = store.campaigns()
        seen = (len(campaigns), list(store.annotations()), list(store.confirmations()))
        if before is not None and seen == before.seen:
            shown = [item for item in campaigns if item.campaign_id in before.marks]
            if report_marks(store, shown) == before.marks:
                return before
        site, marks = gather(store, since=self._since)
        return _Gathered(site=replace(site, is_live=True), seen=seen, marks=marks)


def recent_changes(site: Site) -> list[ChangeAnswer]:
    """Return the changes that began or went away in the last nights and that nobody expected or
    refuted; what happened last first, and of a night the largest.
    """
    passed = {"expected", "refuted"}
    found = [
        change
        for row in site.series
        for change in row.changes
        if change.is_news and change.state not in passed
    ]
    found.sort(key=lambda item: (item.ended or item.night, abs(math.log(item.ratio))), reverse=True)
    return [site.change_answer(change) for change in found]
