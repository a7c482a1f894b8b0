"""Medians and means of invocations: never one against the other."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from orchestrator.analysis.case_result import CaseResult, judge_latency
from orchestrator.analysis.comparison import ComparedCase, Fact, Rule, compare_sides
from orchestrator.analysis.quality import figure_us
from orchestrator.records.case import BuildSha, CampaignId, Case, content_key
from orchestrator.records.run import FigureKind
from orchestrator.records.verdict import ComparisonOutcome
from tests.samples.sample_lab import case, run, series, skewed
from tests.unit.analysis.test_comparison import NEW, OLD, measured

OLDER_PROGRAM = replace(case(), build_sha256=BuildSha(content_key("prints no medians")))


def night(
    owner: Case, latency_us: float, campaign: CampaignId, **printed: bool
) -> list[CaseResult]:
    runs = series(owner, latency_us, 8, campaign_id=campaign)
    return measured([skewed(record, **printed) for record in runs])


def compared(before: list[CaseResult], after: list[CaseResult]) -> ComparedCase:
    (row,) = compare_sides(before, after, Rule()).rows
    return row


@pytest.mark.parametrize("is_candidate_older", [False, True])
def test_two_builds_of_one_speed_are_the_same_whichever_of_them_prints_medians(
    is_candidate_older: bool,
) -> None:
    owners = (case(), OLDER_PROGRAM) if is_candidate_older else (OLDER_PROGRAM, case())
    sides = [
        night(owner, 1_000, campaign, has_median=owner is not OLDER_PROGRAM)
        for owner, campaign in zip(owners, (OLD, NEW), strict=True)
    ]
    row = compared(*sides)
    assert row.verdict.ratio == pytest.approx(1.0)
    assert row.verdict.outcome not in {ComparisonOutcome.FASTER, ComparisonOutcome.SLOWER}
    without = "candidate" if is_candidate_older else "baseline"
    assert f"Means are compared: the {without} printed no medians." in row.verdict.reasons
    # What stands beside the ratio is what the ratio is of.
    for side in (row.baseline, row.candidate):
        assert side.figure is FigureKind.MEAN
        assert side.summary is not None
        assert side.summary.median_us == pytest.approx(1_080, rel=0.01)


def test_a_median_and_a_mean_that_have_nothing_in_common_are_incomparable() -> None:
    row = compared(
        night(OLDER_PROGRAM, 1_000, OLD, has_median=False),
        night(case(), 1_000, NEW, has_mean=False),
    )
    assert row.verdict.outcome is ComparisonOutcome.INCOMPARABLE
    assert [item.fact for item in row.differences] == [Fact.FIGURE]


def judged(*has_medians: bool, has_mean: bool = True) -> CaseResult:
    runs = series(case(), 1_000, len(has_medians))
    return judge_latency(
        [
            skewed(one, has_median=has, has_mean=has_mean or not has)
            for one, has in zip(runs, has_medians, strict=True)
        ]
    )


def test_invocations_of_both_kinds_make_a_figure_of_means_and_say_so() -> None:
    result = judged(True, False, True, True)
    assert result.figure is FigureKind.MEAN
    assert result.summary is not None
    assert result.summary.count == 4
    assert result.summary.median_us == pytest.approx(1_080, rel=0.02)
    assert result.notes == ("Some invocations printed no medians: the figure is made of means.",)
    # Nothing is wrong with the figure.
    assert result.is_judged


def test_invocations_that_have_no_kind_in_common_count_by_the_more_frequent_one() -> None:
    result = judged(True, False, True, True, has_mean=False)
    assert result.figure is FigureKind.MEDIAN
    assert len(result.used) == 3


@pytest.mark.parametrize("nonsense_us", [math.nan, math.inf, 0.0, -1.0, 1e-320, 1e300])
def test_one_rule_says_what_a_latency_is_everywhere(nonsense_us: float) -> None:
    whole = run(case(), 0, 1_000)
    assert whole.report is not None
    assert whole.report.inference is not None
    broken = replace(
        whole, report=replace(whole.report, inference_mean_us=nonsense_us, inference=None)
    )
    assert (figure_us(broken), broken.measured_us, broken.latency_us) == (None, None, None)
    odd = replace(whole.report, inference=replace(whole.report.inference, median_us=nonsense_us))
    no_median = replace(whole, report=odd)
    assert (figure_us(no_median), no_median.measured_us, no_median.latency_us) == (
        None,
        None,
        None,
    )
