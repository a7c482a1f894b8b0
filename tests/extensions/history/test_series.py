"""Figures of nights: each is of one content, the newest that the night measured."""

from __future__ import annotations

import math
from array import array
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from orchestrator.analysis.summary import summarize
from orchestrator.clock import night_of
from orchestrator.extensions.history.series import (
    NightTable,
    night_details,
    night_table,
)
from orchestrator.records.case import BuildSha, CampaignId, ModelSha, Serial, SeriesKey
from orchestrator.records.history import CampaignSketch, Contents, Points, SeriesSketch

START = datetime(2026, 3, 1, 22, tzinfo=UTC)
OLD, NEW = 0, 1
#: Campaign, contents, latency, trusted.
Point = tuple[int, int, float, int]


def points_of(*points: Point, hours: tuple[float, ...] = (0.0, 1.0, 25.0)) -> Points:
    campaign_at, contents_at, latency_us, trusted = zip(*points, strict=True)
    return Points(
        series=(SeriesSketch(series_key=SeriesKey("s"), serial=Serial("P")),),
        contents=tuple(
            Contents(model_sha256=ModelSha("m"), build_sha256=BuildSha(name))
            for name in ("old", "new")
        ),
        campaigns=tuple(
            CampaignSketch(
                campaign_id=CampaignId(f"c{number}"), created_at=START + timedelta(hours=hour)
            )
            for number, hour in enumerate(hours[: max(campaign_at) + 1])
        ),
        series_at=array("q", [0] * len(points)),
        contents_at=array("q", contents_at),
        campaign_at=array("q", campaign_at),
        latency_us=array("d", latency_us),
        trusted=array("q", trusted),
    )


def table_of(points: Points) -> NightTable:
    return night_table(
        points, {item.campaign_id: night_of(item.created_at, UTC) for item in points.campaigns}
    )


@pytest.mark.parametrize("turn", [1, -1])
def test_a_night_that_measured_two_contents_has_the_figure_of_the_newest(turn: int) -> None:
    # Two campaigns of one night; the store may hand out their points in any order.
    points = points_of(
        *[(0, OLD, 1_000.0, 1), (0, OLD, 1_010.0, 1), (1, NEW, 2_000.0, 1), (1, NEW, 2_020.0, 1)][
            ::turn
        ]
    )
    table = table_of(points)
    assert table.latency_us.tolist() == [[2_010.0]]
    assert table.contents[table.contents_at[0, 0]].build_sha256 == "new"


def test_older_contents_that_a_later_campaign_of_the_night_measured_are_what_counts() -> None:
    table = table_of(points_of((0, NEW, 2_000.0, 1), (1, OLD, 1_000.0, 1)))
    assert table.latency_us.tolist() == [[1_000.0]]


def test_trusted_invocations_of_older_contents_say_nothing_of_the_newest() -> None:
    points = points_of((0, OLD, 1_000.0, 1), (1, NEW, 2_000.0, 0), (2, NEW, 2_100.0, 1))
    table = table_of(points)
    assert table.latency_us.tolist() == [[2_000.0, 2_100.0]]


def test_what_is_told_beside_a_figure_is_of_the_invocations_that_it_is_of() -> None:
    points = points_of(
        (0, OLD, 1_000.0, 1), (1, NEW, 2_000.0, 0), (1, NEW, 2_020.0, 0), (2, NEW, 2_100.0, 1)
    )
    table = table_of(points)
    details = night_details(points, table)
    assert details.invocations.tolist() == [[2, 1]]
    assert details.is_trusted.tolist() == [[False, True]]
    assert details.low_us[0, 0] < 2_010 < details.high_us[0, 0]
    assert np.isnan(details.low_us[0, 1])
    assert details.campaigns[2] == ("c1", "c2")


def test_the_interval_of_a_night_is_that_of_its_report() -> None:
    logs = [0.0, 0.01, 0.014, 0.02, 0.016, 0.3, -0.01, -0.02, -0.012]
    latencies = [1_000 * math.exp(log) for log in logs]
    points = points_of(*((0, OLD, latency, 1) for latency in latencies))
    details, report = night_details(points, table_of(points)), summarize(latencies).interval
    assert report is not None
    assert (details.low_us[0, 0], details.high_us[0, 0]) == pytest.approx((report.low, report.high))


def test_several_campaigns_of_one_content_are_one_night() -> None:
    points = points_of((0, OLD, 1_000.0, 1), (1, OLD, 1_020.0, 1))
    assert table_of(points).latency_us.tolist() == [[1_010.0]]
    assert night_details(points, table_of(points)).invocations.tolist() == [[2]]
