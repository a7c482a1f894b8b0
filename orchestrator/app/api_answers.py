"""Stored results as the API answers with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice

from orchestrator.analysis.changepoint import RECENT_NIGHTS
from orchestrator.app.stored import find_campaigns
from orchestrator.ports import Store
from orchestrator.records.run import RunRecord
from orchestrator.report.site import Site, SiteChange, SiteSeries
from orchestrator.serve.answers import (
    CampaignAnswer,
    ChangeAnswer,
    NightFigure,
    OneSeriesAnswer,
    RunAnswer,
    SeriesAnswer,
)


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
