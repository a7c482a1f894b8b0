"""``benchfarm site``: history pages for any web server, and what they and ``benchfarm serve`` show."""

from __future__ import annotations

import hashlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np

from orchestrator import __version__
from orchestrator.analysis.changepoint import WINDOW_NIGHTS
from orchestrator.analysis.nights import night_details
from orchestrator.analysis.series import NightTable, night_of, night_table
from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.history import night_meant
from orchestrator.cli.reports import report_data
from orchestrator.cli.result import CommandResult
from orchestrator.engine.history import (
    FoundChange,
    Question,
    Regressions,
    describe_series,
    find_regressions,
    fits,
)
from orchestrator.ports import Store
from orchestrator.records.campaign import Campaign
from orchestrator.records.device import DeviceFacts
from orchestrator.records.history import Annotation, DeviceSighting, Points, RunMark
from orchestrator.records.identity import CampaignId, Serial, SeriesKey
from orchestrator.records.run import Outcome
from orchestrator.records.workload import Pass
from orchestrator.report.site import (
    SILENT_NIGHTS,
    STATUS_WORDS,
    Site,
    SiteCampaign,
    SiteChange,
    SiteEvent,
    SiteGroup,
    SiteSeries,
)
from orchestrator.units import format_change

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
    """The options of ``benchfarm site``."""

    out: Path
    since: str = ""
    title: str = TITLE
    #: Newest campaigns that get a page; all when None.
    reports: int | None = None
    fresh: bool = False


def build(settings: Settings, request: SiteRequest) -> CommandResult:
    """Write or renew the pages; raises UsageError, HostStorageError."""
    from orchestrator.report import site_pages
    from orchestrator.report.site_folder import SiteFolder

    with Farm(settings, makes_store=False) as farm:
        site, marks = gather(
            farm.store, since=first_night(request.since, farm), title=request.title, reports=request.reports
        )
        folder = SiteFolder(request.out)
        shown = [item for item in site.campaigns if item.has_page]
        shared = [site_pages.style_file(), site_pages.script_file()]
        if shown:
            shared.append(site_pages.library_file(settings.cache_folder))
        reports = [f"campaigns/{item.page}" for item in shown]
        fixed = ["index.html", "campaigns/index.html"]
        folder.check([*(item.path for item in shared), *fixed, *reports, *(f"series/{page}" for page in site.by_name)])
        for item in shared:
            folder.write(item.path, item.content)
        for path, html in site_pages.series_pages(site):
            folder.write(path, html.encode())
        for campaign, path in zip(shown, reports, strict=True):
            mark = marks[campaign.campaign_id]
            if not request.fresh and folder.note(path) == mark:
                folder.keep(path, mark)
                continue
            folder.write(path, campaign_html(farm, campaign.campaign_id).encode(), note=mark)
        # The pages that lead to all others come last: what they name is there.
        folder.write("campaigns/index.html", site_pages.campaigns_page(site).encode())
        folder.write("index.html", site_pages.overview_page(site).encode())
        done = folder.finish()
    text = (
        f"{request.out / 'index.html'}: {len(site.series)} series, {len(reports)} reports; "
        f"{done.written} pages written, {done.unchanged} unchanged, {done.removed} removed"
    )
    if done.kept:
        text += f"\nleft as they are, since somebody changed them: {', '.join(done.kept[:5])}"
    data = {
        "path": request.out / "index.html",
        "series": len(site.series),
        "nights": len(site.nights),
        "reports": len(reports),
        "written": done.written,
        "unchanged": done.unchanged,
        "removed": done.removed,
        "kept": done.kept,
        "size_bytes": done.size_bytes,
    }
    return CommandResult(text=text, data=data)


def first_night(since: str, farm: Farm) -> date | None:
    """Return the night that ``--since`` means, None for the newest ninety; raises UsageError."""
    return night_meant(since, farm, "--since") if since else None


def campaign_html(farm: Farm, campaign_id: CampaignId) -> str:
    """Return a campaign's report as a page of the site."""
    from orchestrator.report import site_pages
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
    details = night_details(points, table, only=only)
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
            sorted(_series(store, table, details.is_trusted, found, only), key=lambda row: (-row.badness, row.key))
        ),
        groups=_groups(found),
        campaigns=tuple(
            SiteCampaign(
                campaign_id=item.campaign_id,
                name=item.name,
                created_at=item.created_at,
                finished_at=item.finished_at,
                status=item.status.value,
                host=item.host,
                stored=progress[item.campaign_id][0],
                planned=progress[item.campaign_id][1],
                is_virtual=item.campaign_id in virtual,
                has_page=number < pages,
            )
            for number, item in enumerate(chosen)
        ),
    )
    return site, marks


def _series(
    store: Store,
    table: NightTable,
    trusted: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
    found: Regressions | None,
    only: Collection[CampaignId],
) -> Iterator[SiteSeries]:
    cases = store.series()
    devices = store.devices()
    words = describe_series(store)
    builds = {sha256: build.name for sha256, build in store.builds().items()}
    annotations = [item for item in store.annotations() if table.nights and item.night >= table.nights[0]]
    updates = {serial: _updates(seen, table) for serial, seen in store.sightings().items()}
    changes: dict[SeriesKey, list[SiteChange]] = defaultdict(list)
    for change in found.changes if found is not None else ():
        changes[change.series_key].append(_change(change))
    last = [int(np.flatnonzero(np.isfinite(row))[-1]) for row in table.latency_us]
    mishaps = _mishaps(store, table, only)
    outputs: dict[SeriesKey, list[SiteEvent]] = defaultdict(list)
    for item in found.outputs if found is not None else ():
        text = f"outputs {item.change.before or 'not compared before'} → {item.change.after}"
        outputs[item.change.series_key].append(SiteEvent(night=item.change.night, kind="outputs", text=text))
    other_figures = found.other_figures if found is not None else {}
    grades = _grades(store, table, last)
    for place, key in enumerate(table.series):
        sketch = table.sketches[place]
        events = [
            *_notes(annotations, key, words.get(key, {})),
            *updates.get(sketch.serial, ()),
            *_contents(table, place, builds),
            *mishaps.get(key, ()),
            *outputs[key],
        ]
        if key in other_figures:
            text = "the program's figures are of another kind (median, mean): earlier nights aren't compared"
            events.append(SiteEvent(night=other_figures[key], kind="figures", text=text))
        yield SiteSeries(
            key=key,
            case=cases[key],
            facts=devices.get(sketch.serial),
            is_virtual=sketch.is_virtual,
            grade=grades.get(key, ""),
            changes=tuple(sorted(changes[key], key=lambda item: item.night)),
            events=tuple(sorted(events, key=lambda event: event.night)),
            latency_us=table.latency_us[place],
            last_place=last[place],
            is_trusted=bool(trusted[place, last[place]]),
        )


def _change(found: FoundChange) -> SiteChange:
    return SiteChange(
        night=found.night,
        earliest=found.earliest,
        latest=found.latest,
        ratio=found.ratio,
        low=found.low,
        high=found.high,
        confidence=found.confidence,
        before_us=found.before_us,
        after_us=found.after_us,
        status=found.status,
        status_detail=found.status_detail,
        expected=found.expected,
        causes=found.causes,
    )


def _groups(found: Regressions | None) -> tuple[SiteGroup, ...]:
    if found is None:
        return ()
    return tuple(
        SiteGroup(
            sentence=group.sentence,
            members=tuple((item.series_key, _label(item)) for item in group.members),
            status=_status(group.members),
            is_virtual=any(item.is_virtual for item in group.members),
        )
        for group in found.groups
    )


def _label(change: FoundChange) -> str:
    return (
        f"{change.case.model_name} on {change.phone} ({change.case.serial}), {change.case.configuration}: "
        f"{format_change(change.ratio)}"
    )


def _status(members: Sequence[FoundChange]) -> str:
    if all(item.expected for item in members):
        return f"expected: {members[0].expected}"
    states = dict.fromkeys(STATUS_WORDS[item.status] for item in members)
    counts = {state: sum(STATUS_WORDS[item.status] == state for item in members) for state in states}
    return ", ".join(state if len(states) == 1 else f"{count} {state}" for state, count in counts.items())


def _notes(annotations: Sequence[Annotation], key: SeriesKey, words: Mapping[str, str]) -> Iterator[SiteEvent]:
    for item in annotations:
        if fits(item.selection, key, words):
            yield SiteEvent(night=item.night, kind="note", text=item.text)


def _updates(seen: Sequence[DeviceSighting], table: NightTable) -> list[SiteEvent]:
    """Return what became another thing on a device within the nights."""
    events = []
    for before, after in pairwise(seen):
        night = night_of(after.at)
        if not table.nights or night < table.nights[0]:
            continue
        changed = [
            f"{name} {before.facts.get(name, 'unknown')} → {after.facts.get(name, 'unknown')}"
            for name in {**before.facts, **after.facts}
            if before.facts.get(name) != after.facts.get(name)
        ]
        if changed:
            events.append(SiteEvent(night=night, kind="system", text="; ".join(changed)))
    return events


def _contents(table: NightTable, place: int, builds: Mapping[str, str]) -> Iterator[SiteEvent]:
    """Yield the nights from which a series had another program or model."""
    row = table.contents_at[place]
    there = np.flatnonzero(row >= 0)
    for before, after in pairwise(there[np.r_[True, row[there][1:] != row[there][:-1]]].tolist()):
        old, new = table.contents[int(row[before])], table.contents[int(row[after])]
        night = table.nights[after]
        if old.build_sha256 != new.build_sha256:
            names = [f"{builds.get(item, '')} {item[:12]}".strip() for item in (old.build_sha256, new.build_sha256)]
            yield SiteEvent(night=night, kind="build", text=" → ".join(names))
        if old.model_sha256 != new.model_sha256:
            yield SiteEvent(night=night, kind="model", text=f"{old.model_sha256[:12]} → {new.model_sha256[:12]}")
        if old.files != new.files:
            names = sorted({name for name, _ in {*old.files} ^ {*new.files}})
            yield SiteEvent(night=night, kind="files", text=", ".join(names))


def _mishaps(store: Store, table: NightTable, only: Collection[CampaignId]) -> dict[SeriesKey, list[SiteEvent]]:
    """Return of each series the nights that it has no figure of, with what became of their runs."""
    if not table.nights:
        return {}
    place_of_night = {night: place for place, night in enumerate(table.nights)}
    row_of = {key: row for row, key in enumerate(table.series)}
    codes: dict[tuple[SeriesKey, date], Counter[str]] = defaultdict(Counter)
    for mark in store.marks(since=datetime.combine(table.nights[0], time()).astimezone()):
        night, row = night_of(mark.created_at), row_of.get(mark.series_key)
        place = place_of_night.get(night)
        if mark.run_pass is not Pass.TIMING or mark.campaign_id not in only or row is None or place is None:
            continue
        if not np.isfinite(table.latency_us[row][place]):
            codes[mark.series_key, night][_what_became(mark)] += 1
    events: dict[SeriesKey, list[SiteEvent]] = defaultdict(list)
    for (key, night), counts in codes.items():
        text = ", ".join(code if count == 1 else f"{code} ({count} times)" for code, count in counts.most_common())
        events[key].append(SiteEvent(night=night, kind="no figure", text=text))
    return events


def _what_became(mark: RunMark) -> str:
    """Return the code that says why a run has no figure."""
    if mark.outcome is Outcome.COMPLETED:
        return f"rejected: {', '.join(mark.findings) or mark.reason_code or 'its findings say why'}"
    return ": ".join(dict.fromkeys(word for word in (mark.outcome.value, mark.reason_code) if word))


def _grades(store: Store, table: NightTable, last: Sequence[int]) -> dict[SeriesKey, str]:
    """Return of each series the worst grade of its newest night's timing runs; of the newest nights only."""
    first = max(0, len(table.nights) - SILENT_NIGHTS)
    recent = {key: table.nights[place] for key, place in zip(table.series, last, strict=True) if place >= first}
    nights = {item.campaign_id: night_of(item.created_at) for item in store.campaigns()}
    asked = [campaign for campaign, night in nights.items() if night in set(recent.values())]
    grades: dict[SeriesKey, str] = {}
    for run in store.runs(campaign_ids=asked) if asked else ():
        grade = run.verdict.grade
        if grade is None or run.run_pass is not Pass.TIMING:
            continue
        key = run.case.series_key
        if recent.get(key) == nights[run.campaign_id]:
            grades[key] = max(grades.get(key, ""), grade.value)
    return grades


def report_marks(store: Store, campaigns: Sequence[Campaign]) -> Mapping[CampaignId, str]:
    """Return of each campaign what its report depends on, as a hash: how far it is, and what was read from its runs."""
    from orchestrator.report.site_pages import templates_key

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
