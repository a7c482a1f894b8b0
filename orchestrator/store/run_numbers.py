"""Which runs fit, in an SQL database."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import product

from sqlalchemy import ColumnElement, Connection, select

from orchestrator.records.identity import CampaignId, CaseKey, Serial, SeriesKey
from orchestrator.store.registry import pages
from orchestrator.store.tables import CAMPAIGNS, CASES, DEVICES, RUNS, SERIES


def read_run_numbers(
    connection: Connection,
    campaign_ids: Sequence[CampaignId],
    case_keys: Sequence[CaseKey],
    series_keys: Sequence[SeriesKey],
    serials: Sequence[Serial],
) -> array[int]:
    """Return the numbers of the runs that fit, in their order: 8 bytes a run."""
    numbers = array("q")
    for conditions in product(
        _filters(CAMPAIGNS.c.campaign_id, campaign_ids),
        _filters(CASES.c.case_key, case_keys),
        _filters(SERIES.c.series_key, series_keys),
        _filters(DEVICES.c.serial, serials),
    ):
        in_campaigns, of_cases, of_series, of_devices = conditions
        query = select(RUNS.c.run_no)
        if in_campaigns is not None:
            query = query.join(CAMPAIGNS, RUNS.c.campaign_no == CAMPAIGNS.c.campaign_no).where(in_campaigns)
        if of_cases is not None or of_series is not None or of_devices is not None:
            query = query.join(CASES, RUNS.c.case_no == CASES.c.case_no)
        if of_cases is not None:
            query = query.where(of_cases)
        if of_series is not None or of_devices is not None:
            query = query.join(SERIES, CASES.c.series_no == SERIES.c.series_no)
        if of_series is not None:
            query = query.where(of_series)
        if of_devices is not None:
            query = query.join(DEVICES, SERIES.c.device_no == DEVICES.c.device_no).where(of_devices)
        numbers.extend(connection.scalars(query))
    return array("q", sorted(numbers))


def _filters(column: ColumnElement[str], values: Sequence[str]) -> Iterator[ColumnElement[bool] | None]:
    """Yield conditions that together, without overlap, let through what is wanted; None when all is."""
    if not values:
        yield None
    for page in pages(list(dict.fromkeys(values))):
        yield column.in_(page)
