"""Which cases belong together, what keeps figures apart, and what a whole comparison comes to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from orchestrator.analysis.case_result import CaseResult
from orchestrator.analysis.comparison import (
    ABSOLUTE,
    Axis,
    ComparedCase,
    Comparison,
    Fact,
    FailOn,
    Rule,
    compare_measured,
    compare_sides,
    match,
)
from orchestrator.analysis.findings import finding
from orchestrator.analysis.measured import measured_cases
from orchestrator.records.campaign import Campaign, Terms
from orchestrator.records.case import (
    BuildSha,
    CampaignId,
    Case,
    DelegateName,
    ModelSha,
    ProcessMode,
    Serial,
    content_key,
)
from orchestrator.records.device import DeviceFacts
from orchestrator.records.plan import StoppingRule
from orchestrator.records.run import THREADS_UNUSED, DelegateTruth, Outcome, RunRecord
from orchestrator.records.verdict import ComparisonOutcome, Grade, Quality, QualityVerdict
from orchestrator.tables.comparisons import to_text
from tests.samples.sample_lab import (
    BUILDS,
    PIXEL_3,
    PIXEL_4,
    REAL_PIXEL,
    campaign_of,
    case,
    run,
    series,
)

OLD, NEW = CampaignId("20260313-220500-aaaaaa"), CampaignId("20260314-220500-bbbbbb")
OTHER_BUILD = replace(case(), build_sha256=BuildSha(content_key("other")))
DEVICES: dict[Serial, DeviceFacts] = {
    facts.serial: facts for facts in (PIXEL_3, PIXEL_4, REAL_PIXEL)
}


def measured(runs: Sequence[RunRecord], *, campaigns: Sequence[Campaign] = ()) -> list[CaseResult]:
    return measured_cases(
        runs,
        campaigns=campaigns,
        devices=DEVICES,
        builds={build.sha256: build for build in BUILDS.values()},
    )


def on_system(item: CaseResult, system: str) -> CaseResult:
    terms = Terms(fingerprints={item.case.serial: system})
    campaign = campaign_of(item.runs, campaign_id=item.campaign_id, terms=terms)
    return replace(item, campaigns=(campaign,))


def night(
    owner: Case, latency_us: float = 20_000, campaign: CampaignId = OLD, **other: object
) -> list[CaseResult]:
    return measured(series(owner, latency_us, 8, campaign_id=campaign, **other))


def compared(
    before: list[CaseResult], after: list[CaseResult], rule: Rule | None = None
) -> Comparison:
    return compare_sides(before, after, rule or Rule())


def outcomes(comparison: Comparison) -> list[ComparisonOutcome]:
    return [row.verdict.outcome for row in comparison.rows]


def test_another_build_on_another_night_is_what_a_night_tests_and_is_told() -> None:
    (row,) = compared(night(case()), night(OTHER_BUILD, campaign=NEW)).rows
    assert row.verdict.outcome is not ComparisonOutcome.INCOMPARABLE
    assert any("programs differ" in reason for reason in row.verdict.reasons)


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"model_sha256": ModelSha(content_key("retrained"))}, Fact.MODEL),
        ({"mode": ProcessMode.TOP_APP}, Fact.MODE),
        ({"num_runs": 10}, Fact.SETTINGS),
        ({"affinity": "all"}, Fact.SETTINGS),
        ({"flags": (("xnnpack_force_fp16", "true"),)}, Fact.FLAGS),
        ({"serial": PIXEL_4.serial}, Fact.DEVICE),
    ],
)
def test_a_case_that_changed_is_still_found_and_told_as_incomparable_with_what_differs(
    change: dict[str, object], fact: Fact
) -> None:
    comparison = compared(night(case()), night(replace(case(), **change), campaign=NEW))  # type: ignore[arg-type]
    (row,) = comparison.rows
    assert row.verdict.outcome is ComparisonOutcome.INCOMPARABLE
    assert {item.fact for item in row.differences} == {fact}
    assert row.differences[0].text in row.verdict.reasons
    assert comparison.overall is None


def test_a_number_of_threads_that_the_program_chooses_is_another_than_a_given_one() -> None:
    (before,), (after,) = night(replace(case(), threads=0)), night(replace(case(), threads=4))
    row = compare_measured(before, after, Rule())
    assert [item.fact for item in row.differences] == [Fact.THREADS]


def test_every_fact_that_may_be_let_pass_can_be_and_is_told_then() -> None:
    changed = replace(case(), num_runs=10)
    rule = Rule(allowed=frozenset({Fact.SETTINGS}))
    (row,) = compared(night(case()), night(changed, campaign=NEW), rule).rows
    assert row.verdict.outcome is ComparisonOutcome.SAME or row.verdict.ratio is not None
    assert any(
        reason.startswith("Allowed: The setting num_runs differs") for reason in row.verdict.reasons
    )


@pytest.mark.parametrize(
    ("runs", "fact"),
    [
        (series(case(), 20_000, quality=Quality.REJECTED, campaign_id=NEW), Fact.QUALITY),
        (
            series(
                case(),
                20_000,
                truth=DelegateTruth.FELL_BACK,
                outcome=Outcome.FAILED,
                reason_code="delegate-fell-back",
                campaign_id=NEW,
            ),
            Fact.FIGURE,
        ),
        (
            [run(case(), 0, None, outcome=Outcome.FAILED, reason_code="crashed", campaign_id=NEW)],
            Fact.FIGURE,
        ),
        (series(case(), 20_000, is_virtual=False, campaign_id=NEW), Fact.VIRTUAL),
    ],
)
def test_what_is_no_figure_is_never_compared_whatever_is_allowed(
    runs: list[RunRecord], fact: Fact
) -> None:
    assert fact in ABSOLUTE
    (row,) = compared(night(case()), measured(runs), Rule(allowed=frozenset(Fact))).rows
    assert row.verdict.outcome is ComparisonOutcome.INCOMPARABLE
    assert fact in {item.fact for item in row.differences}


def test_operators_that_ran_elsewhere_make_figures_incomparable() -> None:
    gpu = case(delegate=DelegateName.GPU, threads=1)
    partial = night(gpu, campaign=NEW, truth=DelegateTruth.PARTIAL, nodes=(20, 31))
    (row,) = compared(night(gpu), partial).rows
    assert [item.fact for item in row.differences] == [Fact.TRUTH]
    assert row.verdict.outcome is ComparisonOutcome.INCOMPARABLE


def test_what_is_kept_apart_still_has_both_figures_their_ratio_and_its_interval() -> None:
    changed = night(replace(case(), num_runs=10), 22_000, NEW)
    (row,) = compared(night(case()), changed).rows
    assert row.verdict.outcome is ComparisonOutcome.INCOMPARABLE
    assert row.verdict.ratio == pytest.approx(1.1, abs=0.001)
    assert (row.verdict.low or 2) < 1.1 < (row.verdict.high or 0)
    assert "20.0 ms -> 22.0 ms" in to_text(
        Comparison(axis="campaign", baseline="a", candidate="b", rows=(row,))
    )


def test_how_much_of_each_model_a_delegate_takes_is_told_and_keeps_no_two_models_apart() -> None:
    gpu = case(delegate=DelegateName.GPU, threads=1)
    other = replace(gpu, model_sha256=ModelSha(content_key("pruned")), model_name="pruned")
    partial = night(other, 22_000, truth=DelegateTruth.PARTIAL, nodes=(20, 31))
    (row,) = compared(night(gpu), partial, Rule(axis=Axis.MODEL)).rows
    assert row.verdict.outcome is ComparisonOutcome.SLOWER
    assert (
        "The operators ran in different places: gpu, full and gpu, partial." in row.verdict.reasons
    )


def test_a_system_update_between_nights_is_told_and_an_unknown_system_is_not_held_against_a_night() -> (
    None
):
    before, after = night(case()), night(case(), campaign=NEW)
    updated = compared(
        [on_system(before[0], "google/blueline:12/A")],
        [on_system(after[0], "google/blueline:12/B")],
    )
    assert [item.fact for item in updated.rows[0].differences] == [Fact.SYSTEM]
    unknown = compared(before, [on_system(after[0], "google/blueline:12/B")])
    assert unknown.rows[0].differences == ()


def graded(runs: list[RunRecord], grade: Grade) -> list[CaseResult]:
    return measured(
        [replace(r, verdict=QualityVerdict(quality=Quality.TRUSTED, grade=grade)) for r in runs]
    )


def test_grades_far_from_each_other_keep_nights_apart_and_only_stand_beside_pairs() -> None:
    before = graded(series(case(), 20_000, campaign_id=OLD), Grade.A)
    after = graded(series(case(), 20_000, campaign_id=NEW), Grade.C)
    assert [item.fact for item in compared(before, after).rows[0].differences] == [Fact.GRADE]
    beside = graded(series(OTHER_BUILD, 20_000, campaign_id=OLD), Grade.C)
    (row,) = compared(before, beside, Rule(axis=Axis.BUILD)).rows
    assert row.differences == ()
    assert any("grades of control differ: A and C" in reason for reason in row.verdict.reasons)


@pytest.mark.parametrize(
    ("grades", "is_apart"),
    [
        ("BC", False),
        ("CB", False),
        ("AC", True),
        ("DE", True),
        ("EE", False),
    ],
)
def test_neighbouring_grades_are_compared_and_told(grades: str, is_apart: bool) -> None:
    before, after = (
        graded(series(case(), 20_000, campaign_id=campaign), Grade(grade))
        for campaign, grade in zip((OLD, NEW), grades, strict=True)
    )
    (row,) = compared(before, after).rows
    assert (row.verdict.outcome is ComparisonOutcome.INCOMPARABLE) is is_apart
    told = (
        f"The lowest grades of control differ: {grades[0]} and {grades[1]}." in row.verdict.reasons
    )
    assert told is (not is_apart and grades[0] != grades[1])


def suspect(runs: list[RunRecord], code: str) -> list[CaseResult]:
    verdict = QualityVerdict(quality=Quality.SUSPECT, findings=(finding(code),))
    return measured([replace(run, verdict=verdict) for run in runs])


@pytest.mark.parametrize(
    ("code", "is_claimed"),
    [("foreign-load", False), ("coarse-resolution", False), ("screen-off", True)],
)
def test_no_change_of_two_sessions_is_claimed_that_other_load_or_rounding_may_be(
    code: str, is_claimed: bool
) -> None:
    before, runs = night(case()), series(case(), 24_000, 8, campaign_id=NEW)
    (row,) = compared(before, suspect(runs, code)).rows
    doubts = [reason for reason in row.verdict.reasons if reason.startswith("No change is claimed")]

    assert (row.verdict.outcome is ComparisonOutcome.SLOWER) is is_claimed
    assert row.verdict.ratio == pytest.approx(1.2, abs=0.001)
    assert bool(doubts) is not is_claimed
    assert all(f"the candidate has {code}" in doubt for doubt in doubts)


@pytest.mark.parametrize(("goal", "is_told"), [(0.02, True), (0.1, False)])
def test_a_figure_is_as_precise_as_its_plan_wanted_it(goal: float, is_told: bool) -> None:
    runs = [run(case(), number, 20_000 + 800 * (-1) ** number) for number in range(6)]
    terms = Terms(stopping=StoppingRule(half_width=goal))
    (item,) = measured(runs, campaigns=[campaign_of(runs, terms=terms)])
    (row,) = compared([item], night(case(), campaign=NEW)).rows
    told = [reason for reason in row.verdict.reasons if "is not precise" in reason]
    assert bool(told) is is_told


def test_other_load_keeps_no_pairs_from_a_verdict_that_both_sides_met() -> None:
    runs = series(OTHER_BUILD, 24_000, 8, campaign_id=OLD)
    (row,) = compared(night(case()), suspect(runs, "foreign-load"), Rule(axis=Axis.BUILD)).rows
    assert row.verdict.outcome is ComparisonOutcome.SLOWER


def against_night(runs: list[RunRecord]) -> ComparedCase:
    (row,) = compared(night(case()), measured(runs), Rule(axis=Axis.BUILD)).rows
    return row


def test_one_after_the_other_is_not_in_turns() -> None:
    runs = series(OTHER_BUILD, 20_600, 8, campaign_id=OLD)
    later = [replace(item, started_at=item.started_at.replace(year=2027)) for item in runs]
    row = against_night(later)
    assert row.verdict.method == "welch"


def test_one_run_after_all_others_costs_its_own_pair_alone() -> None:
    # As where the phone wasn't fit for it.
    runs = series(OTHER_BUILD, 20_600, 8, campaign_id=OLD)
    runs[3] = replace(runs[3], started_at=runs[3].started_at.replace(year=2027))
    row = against_night(runs)
    assert (row.verdict.method, row.verdict.counts) == ("paired-t", (7, 7))
    assert "1 of 8 pairs left out: one run can't be used or came late." in row.verdict.reasons


def test_a_side_that_stopped_earlier_lost_no_pair() -> None:
    longer = series(OTHER_BUILD, 20_600, 9, campaign_id=OLD)
    row = against_night(longer)
    assert row.verdict.counts == (8, 8)
    assert row.verdict.method == "paired-t"
    assert not any("can't be used" in reason for reason in row.verdict.reasons)
    assert "1 invocation without a partner: not run on the other side." in row.verdict.reasons
    longer[3] = run(OTHER_BUILD, 3, 90_000, quality=Quality.REJECTED, campaign_id=OLD)
    row = against_night(longer)
    assert row.verdict.counts == (7, 7)
    assert row.verdict.ratio == pytest.approx(1.03, abs=1e-6)
    assert "1 of 8 pairs left out: one run can't be used or came late." in row.verdict.reasons
    assert "1 invocation without a partner: not run on the other side." in row.verdict.reasons


def test_devices_are_compared_although_serial_and_system_differ_and_real_ones_not_with_virtual_ones() -> (
    None
):
    rule = Rule(axis=Axis.DEVICE)
    (row,) = compared(night(case(PIXEL_3)), night(case(PIXEL_4), 10_000), rule).rows
    assert row.verdict.outcome is ComparisonOutcome.FASTER
    (row,) = compared(night(case(PIXEL_3)), night(case(REAL_PIXEL)), rule).rows
    assert [item.fact for item in row.differences] == [Fact.VIRTUAL]


def test_configurations_differ_in_what_their_selectors_name_and_nothing_else() -> None:
    rule = Rule(axis=Axis.CONFIG, varied=frozenset({Fact.THREADS}))
    one, four = case(threads=1), case(threads=4)
    both = compared(
        night(one), [*night(four, 10_000), *night(case(threads=4, delegate=DelegateName.GPU))], rule
    )
    assert outcomes(both) == [ComparisonOutcome.FASTER]
    assert len(both.only_candidate) == 1
    assert "gpu" in both.only_candidate[0]


def test_nothing_is_in_two_pairs_and_nothing_is_lost() -> None:
    before = [*night(case()), *night(case(threads=1)), *night(case(PIXEL_4))]
    after = [
        *night(case(), campaign=NEW),
        *night(replace(case(threads=1), num_runs=9), campaign=NEW),
    ]
    pairs, left, right = match(before, after, Rule())
    assert len(pairs) + len(left) == len(before)
    assert len(pairs) + len(right) == len(after)
    assert len({id(item) for pair in pairs for item in pair}) == 2 * len(pairs)


def test_cases_of_one_name_stand_in_the_order_of_the_baseline() -> None:
    cases = [replace(case(), num_runs=count) for count in (40, 10, 50, 20, 60, 30)]
    sides = ([item for one in cases for item in night(one, campaign=name)] for name in (OLD, NEW))
    rows = compared(*sides).rows
    assert len({row.title for row in rows}) == 1
    assert [row.baseline.case for row in rows] == cases


def test_two_cases_that_changed_are_not_guessed_together() -> None:
    changed = [replace(case(), num_runs=9), replace(case(), num_runs=11)]
    after = [item for one in changed for item in night(one, campaign=NEW)]
    comparison = compared(night(case()), after)
    assert comparison.rows == ()
    assert len(comparison.only_candidate) == 2


def test_the_overall_change_is_the_geometric_mean_of_what_could_be_compared() -> None:
    before = [*night(case()), *night(case(threads=1))]
    after = [*night(case(), 22_000, NEW), *night(case(threads=1), 20_000 / 1.1, NEW)]
    overall = compared(before, after).overall
    assert overall is not None
    assert overall.ratio == pytest.approx(1.0, abs=0.001)
    assert overall.count == 2
    assert overall.low is not None
    assert overall.high is not None
    assert overall.low < 1 < overall.high
    single = compared(before[:1], after[:1]).rows[0].verdict
    assert single.low is not None
    # Cases of one phone and night err together: two of them are no surer than one.
    assert math.log(overall.ratio / overall.low) == pytest.approx(
        math.log((single.ratio or 0) / single.low), rel=0.35
    )


@pytest.mark.parametrize(
    ("latency_us", "slower", "inconclusive"),
    [(22_000, True, True), (18_000, False, False), (20_300, False, True)],
)
def test_a_comparison_fails_as_asked_for(
    latency_us: float, slower: bool, inconclusive: bool
) -> None:
    comparison = compared(night(case()), night(case(), latency_us, NEW))
    assert comparison.fails(FailOn.SLOWER) is slower
    assert comparison.fails(FailOn.INCONCLUSIVE) is inconclusive
    assert comparison.fails(FailOn.NEVER) is False


def test_a_number_of_threads_that_is_nothing_to_both_sides_is_no_case() -> None:
    gpu = case(delegate=DelegateName.GPU)
    sides = [
        measured(
            [
                *series(case(), us, 8, campaign_id=name),
                run(
                    gpu, 0, None, campaign_id=name,
                    outcome=Outcome.SKIPPED, reason_code=THREADS_UNUSED,
                ),
            ]
        )
        for name, us in ((OLD, 22_000), (NEW, 20_000))
    ]  # fmt: skip
    comparison = compared(*sides)
    assert [row.baseline.case for row in comparison.rows] == [case()]
    assert not comparison.fails(FailOn.INCONCLUSIVE)
    # A case that nobody measured again wasn't compared.
    more = compared([*sides[0], *night(case(threads=2))], sides[1])
    assert more.fails(FailOn.INCONCLUSIVE)
    assert not more.fails(FailOn.SLOWER)


def test_where_nothing_could_be_compared_nothing_was_shown_to_be_good() -> None:
    comparison = compared(night(case()), night(replace(case(), num_runs=9), campaign=NEW))
    assert comparison.fails(FailOn.SLOWER)
    assert compare_sides([], [], Rule()).fails(FailOn.SLOWER)
    assert not comparison.fails(FailOn.NEVER)


def test_an_invocation_that_waits_for_another_try_is_no_part_of_a_case() -> None:
    waiting = run(case(), 8, None, outcome=Outcome.UNFIT, reason_code="zone-hot", campaign_id=OLD)
    (item,) = measured([*series(case(), 20_000, 8, campaign_id=OLD), waiting])
    assert len(item.runs) == 8
    assert item.case.serial == Serial("virtual-pixel-3-01")
