"""History pages for any web server, and what they and the live pages show."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orchestrator import __version__
from orchestrator.analysis.changepoint import WINDOW_NIGHTS
from orchestrator.analysis.series import night_details, night_of, night_table
from orchestrator.app.history import night_meant
from orchestrator.app.reporting import report_data
from orchestrator.app.site_series import Site, SiteCampaign, site_series
from orchestrator.bootstrap import Farm
from orchestrator.engine.history import FoundOutputs, Question, Regressions, find_regressions
from orchestrator.records.campaign import Campaign
from orchestrator.records.device import DeviceFacts
from orchestrator.records.history import Points
from orchestrator.records.identity import CampaignId, Serial
from orchestrator.records.parity import ParityVerdict

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

_NO_POINTS: Final = Points(
    series=(),
    contents=(),
    campaigns=(),
    series_at=array("q"),
    contents_at=array("q"),
    campaign_at=array("q"),
    latency_us=array("d"),
    trusted=array("q"),
)
TITLE: Final = "Benchmark history"


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteRequest:
    """Which pages are written, and where."""

    out: Path
    since: str = ""
    title: str = TITLE
    #: Newest campaigns that get a page; all when None.
    reports: int | None = None
    fresh: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenSite:
    """What the folder of a site holds now."""

    path: Path
    series: int
    nights: int
    reports: int
    #: Pages that were written, were as they should be, and were of no use any more.
    written: int
    unchanged: int
    removed: int
    #: Pages that somebody changed, left as they are.
    kept: Sequence[str]
    size_bytes: int


def build(farm: Farm, request: SiteRequest) -> WrittenSite:
    """Write or renew the pages; raises UsageError, HostStorageError."""
    from orchestrator.app import site_pages
    from orchestrator.report.site_folder import SiteFolder

    site, marks = gather(
        farm.store, since=first_night(request.since, farm), title=request.title, reports=request.reports
    )
    folder = SiteFolder(request.out)
    shown = [item for item in site.campaigns if item.has_page]
    shared = [site_pages.style_file(), site_pages.script_file()]
    if shown:
        shared.append(site_pages.library_file(farm.settings.cache_folder))
    reports = [f"campaigns/{item.page}" for item in shown]
    fixed = ["index.html", "campaigns/index.html"]
    folder.check([*(item.path for item in shared), *fixed, *reports, *(f"series/{page}" for page in site.by_name)])
    for item in shared:
        folder.write(item.path, item.content)
    for path, html in site_pages.series_pages(site):
        folder.write(path, html.encode())
    for campaign, path in zip(shown, reports, strict=True):
        mark = marks[campaign.campaign.campaign_id]
        if not request.fresh and folder.note(path) == mark:
            folder.keep(path, mark)
            continue
        folder.write(path, campaign_html(farm, campaign.campaign.campaign_id).encode(), note=mark)
    # The pages that lead to all others come last: what they name is there.
    folder.write("campaigns/index.html", site_pages.campaigns_page(site).encode())
    folder.write("index.html", site_pages.overview_page(site).encode())
    return WrittenSite(
        path=request.out / "index.html",
        series=len(site.series),
        nights=len(site.nights),
        reports=len(reports),
        **asdict(folder.finish()),
    )


def first_night(since: str, farm: Farm) -> date | None:
    """Return the night that ``--since`` means, None for the newest ninety; raises UsageError."""
    return night_meant(since, farm, "--since") if since else None


def campaign_html(farm: Farm, campaign_id: CampaignId) -> str:
    """Return a campaign's report as a page of the site."""
    from orchestrator.app import site_pages
    from orchestrator.report.render import render_html

    campaign = farm.store.campaign(campaign_id)
    assert campaign is not None
    cache_folder, title = farm.settings.cache_folder, campaign.name or campaign.campaign_id
    library = f"../{site_pages.library_file(cache_folder).path}"
    return render_html(report_data(farm, [campaign]), title=title, cache_folder=cache_folder, library=library)


def gather(
    store: Store, *, since: date | None, title: str = TITLE, reports: int | None = None
) -> tuple[Site, Mapping[CampaignId, str]]:
    """Return what the pages show, and of each campaign a mark that changes when its report does.

    The marks are of the moment before the rest is read: later ones differ when something changes meanwhile.
    """
    campaigns = store.campaigns()
    plain = {item.campaign_id for item in campaigns if item.terms.pairing is None}
    nights = sorted({night_of(item.created_at) for item in campaigns if item.campaign_id in plain})
    first = since or (nights[-WINDOW_NIGHTS] if len(nights) > WINDOW_NIGHTS else None)
    chosen = [item for item in campaigns if first is None or night_of(item.created_at) >= first]
    marks = report_marks(store, chosen)
    points = store.points(since=min((item.created_at for item in chosen), default=None)) if chosen else _NO_POINTS
    only = {item.campaign_id for item in chosen if item.campaign_id in plain}
    table = night_table(points, only=only)
    details = night_details(points, table)
    found = find_regressions(store, Question(since=table.nights[0])) if table.nights else None
    pages = len(chosen) if reports is None else reports
    progress = store.progress()
    virtual = _virtual_campaigns(store, chosen, points)
    site = Site(
        title=title,
        since=since,
        table=table,
        details=details,
        series=tuple(
            sorted(site_series(store, table, details.is_trusted, found, only), key=lambda row: (-row.badness, row.key))
        ),
        groups=found.groups if found is not None else (),
        faulty_outputs=_faulty_outputs(found),
        campaigns=tuple(
            SiteCampaign(
                campaign=item,
                stored=progress[item.campaign_id][0],
                planned=progress[item.campaign_id][1],
                is_virtual=item.campaign_id in virtual,
                has_page=number < pages,
            )
            for number, item in enumerate(chosen)
        ),
    )
    return site, marks


def _faulty_outputs(found: Regressions | None) -> tuple[FoundOutputs, ...]:
    """Return the series whose outputs are wrong or drift now, the unexpected and the wrong ones first."""
    turns = sorted(found.outputs if found is not None else (), key=lambda item: item.change.night)
    newest = {item.change.series_key: item for item in turns}
    faulty = [item for item in newest.values() if item.change.after is not ParityVerdict.SAME]
    return tuple(
        sorted(faulty, key=lambda item: (bool(item.expected), item.change.after is not ParityVerdict.WRONG, item.label))
    )


def report_marks(store: Store, campaigns: Sequence[Campaign]) -> Mapping[CampaignId, str]:
    """Return of each campaign what its report depends on, as a hash: how far it is, and what was read from its runs."""
    from orchestrator.app.site_pages import templates_key

    progress = store.progress()
    readings = store.readings([item.campaign_id for item in campaigns])
    marks = {}
    for item in campaigns:
        told = (
            __version__,
            templates_key(),
            item.name,
            item.status.value,
            item.finished_at,
            item.terms.origin,
            progress[item.campaign_id],
            readings.get(item.campaign_id, ""),
        )
        marks[item.campaign_id] = hashlib.sha256(repr(told).encode(errors="surrogatepass")).hexdigest()
    return marks


def _virtual_campaigns(store: Store, campaigns: Sequence[Campaign], points: Points) -> Collection[CampaignId]:
    """Return the campaigns with virtual phones; those without any figure are asked for their cases."""
    devices: Mapping[Serial, DeviceFacts] = store.devices()
    is_virtual = [item.is_virtual for item in points.series]
    places = {at for at, series in zip(points.campaign_at, points.series_at, strict=True) if is_virtual[series]}
    virtual = {points.campaigns[place].campaign_id for place in places}
    known = {item.campaign_id for item in points.campaigns}
    for item in campaigns:
        whole = None if item.campaign_id in known else store.campaign(item.campaign_id)
        if whole is not None and any(
            devices[one.case.serial].is_virtual for one in whole.invocations if one.case.serial in devices
        ):
            virtual.add(item.campaign_id)
    return virtual
