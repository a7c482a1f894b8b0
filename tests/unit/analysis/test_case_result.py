from dataclasses import replace

import pytest

from orchestrator.analysis.case_result import CaseStatus, judge_latency
from orchestrator.analysis.samples import BUSY_CLOCK
from orchestrator.records.case import Pass
from orchestrator.records.run import DelegateTruth, Outcome
from orchestrator.records.verdict import Finding, Grade, Quality, Severity
from tests.samples.sample_lab import FELL_BACK, case, run, series

OWNER = case()


@pytest.mark.parametrize(
    "truth",
    [
        DelegateTruth.NONE,
        DelegateTruth.FELL_BACK,
        DelegateTruth.WRONG_BACKEND,
        DelegateTruth.FLAG_IGNORED,
        DelegateTruth.FAILED,
    ],
)
def test_figure_of_something_else_is_never_judged(truth):
    for outcome in (Outcome.COMPLETED, Outcome.FAILED):
        result = judge_latency([run(OWNER, 0, 5_000.0, truth=truth, outcome=outcome)])
        assert result.status is CaseStatus.FELL_BACK
        assert result.summary.median_us == 5_000.0
        assert not result.is_judged


def test_figure_without_evidence_of_its_delegate_is_not_judged():
    result = judge_latency(series(OWNER, 5_000.0, truth=DelegateTruth.UNKNOWN))
    assert result.status is CaseStatus.UNCONFIRMED
    assert not result.is_judged


def test_rejected_invocations_dont_count():
    good = series(OWNER, 5_000.0, 4)
    bad = run(OWNER, 4, 50_000.0, quality=Quality.REJECTED)
    result = judge_latency([*good, bad])
    assert result.summary.count == 4
    assert bad.run_id not in result.used
    assert result.ended == 5
    assert result.is_judged


def test_only_rejected_invocations_are_a_rejected_case_with_the_finding_that_did_it():
    finding = Finding(code="rebooted", severity=Severity.ERROR, message="rebooted")
    result = judge_latency(series(OWNER, 5_000.0, 2, quality=Quality.REJECTED, findings=(finding,)))
    assert result.status is CaseStatus.REJECTED
    assert (result.reason_code, result.reason) == ("rebooted", "rebooted")
    assert not result.is_judged


def test_one_suspect_invocation_makes_the_case_suspect():
    runs = [*series(OWNER, 5_000.0, 4), run(OWNER, 4, 5_000.0, quality=Quality.SUSPECT)]
    result = judge_latency(runs)
    assert result.quality is Quality.SUSPECT
    assert not result.is_judged


def test_invocations_that_disagree_about_the_delegate_lower_the_quality():
    result = judge_latency([*series(OWNER, 5_000.0, 4), run(OWNER, 4, 21_000.0, **FELL_BACK)])
    assert result.status is CaseStatus.MEASURED
    assert result.summary.max_us < 6_000.0
    assert result.quality is Quality.SUSPECT
    assert "full" in result.notes[0]


def test_minority_of_usable_invocations_lowers_the_quality():
    failed = [
        run(OWNER, number, None, outcome=Outcome.FAILED, quality=Quality.REJECTED)
        for number in range(1, 4)
    ]
    result = judge_latency([run(OWNER, 0, 5_000.0), *failed])
    assert result.quality is Quality.SUSPECT
    assert result.notes == ("Only 1 of 4 invocations could be used.",)


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        (Outcome.FAILED, CaseStatus.FAILED),
        (Outcome.TIMED_OUT, CaseStatus.TIMED_OUT),
        (Outcome.ABORTED, CaseStatus.ABORTED),
        (Outcome.SKIPPED, CaseStatus.SKIPPED),
        (Outcome.UNFIT, CaseStatus.UNFIT),
    ],
)
def test_case_without_a_figure_tells_how_its_last_invocation_ended(outcome, status):
    result = judge_latency(
        [run(OWNER, 0, None, outcome=outcome, reason_code="link-lost", reason="the cable")]
    )
    assert result.status is status
    assert (result.reason_code, result.reason) == ("link-lost", "the cable")
    assert result.summary is None


def test_failure_is_told_rather_than_that_later_invocations_were_left_out():
    failed = run(OWNER, 0, None, outcome=Outcome.FAILED, reason_code="crashed", reason="signal 11")
    left_out = [
        run(OWNER, number, None, outcome=Outcome.SKIPPED, reason_code="failed-before")
        for number in (1, 2)
    ]
    result = judge_latency([failed, *left_out])
    assert (result.status, result.reason_code) == (CaseStatus.FAILED, "crashed")


def test_latency_of_a_failed_run_is_no_figure():
    assert (
        judge_latency([run(OWNER, 0, 5_000.0, outcome=Outcome.FAILED)]).status is CaseStatus.FAILED
    )


def test_memory_and_profile_invocations_give_no_latency():
    assert (
        judge_latency([run(OWNER, 0, 5_000.0, run_pass=Pass.MEMORY)]).status is CaseStatus.NOT_RUN
    )


def test_interrupted_invocations_dont_count_against_the_case():
    aborted = [run(OWNER, number, None, outcome=Outcome.ABORTED) for number in range(2, 6)]
    assert judge_latency([*series(OWNER, 5_000.0, 2), *aborted]).is_judged


def at_clock(one, khz):
    """Return a run whose fastest cluster spent all of its time at one clock."""
    before, after = one.state_before, one.state_after
    ticks = {300_000: 1000, 2_000_000: 1000, 2_800_000: 1000}
    return replace(
        one,
        state_before=replace(before, uptime_s=10.0, time_in_state={4: ticks}),
        state_after=replace(
            after, uptime_s=20.0, time_in_state={4: {**ticks, khz: ticks[khz] + 1000}}
        ),
    )


def at_clocks(clocks, latencies_us):
    return [
        at_clock(run(OWNER, number, latency_us), khz)
        for number, (khz, latency_us) in enumerate(zip(clocks, latencies_us, strict=True))
    ]


def one_low(latency_us):
    """Six invocations, of which the fourth ran at lower clocks."""
    clocks = [2_800_000] * 3 + [2_000_000] + [2_800_000] * 2
    return at_clocks(clocks, [5000.0, 5010.0, 4990.0, latency_us, 5005.0, 4995.0])


def test_an_invocation_that_was_slower_at_lower_clocks_is_left_out_and_told():
    result = judge_latency(one_low(7000.0))
    assert [finding.code for finding in result.findings] == ["clocks-low"]
    assert "invocation 4" in result.findings[0].evidence, "people count from 1"
    assert any("lower clocks" in note for note in result.notes)
    assert len(result.used) == 5
    assert result.summary.max_us < 5100
    assert result.quality is Quality.TRUSTED


def test_many_invocations_at_lower_clocks_make_the_case_suspect_and_none_is_left_out():
    clocks = [2_800_000] * 4 + [2_000_000] * 2
    result = judge_latency(at_clocks(clocks, [5000.0, 5010.0, 4990.0, 5005.0, 7000.0, 7010.0]))
    assert len(result.used) == 6
    assert result.quality is Quality.SUSPECT


def test_a_lower_mean_clock_without_a_longer_latency_was_idle_time_and_is_no_finding():
    result = judge_latency(one_low(5100.0))
    assert result.findings == ()
    assert result.quality is Quality.TRUSTED


def test_clocks_at_which_the_cores_worked_outdo_those_with_idle_time_in_them():
    runs = one_low(7000.0)
    looked = [replace(one, report=replace(one.report, extra={BUSY_CLOCK: 0.98})) for one in runs]
    assert judge_latency(looked).findings == ()


def test_equal_clocks_and_too_few_siblings_are_no_finding():
    same = [at_clock(one, 2_000_000) for one in series(OWNER, 5_000.0, 6)]
    assert judge_latency(same).findings == ()
    few = [
        at_clock(one, khz)
        for one, khz in zip(
            series(OWNER, 5_000.0, 3), (2_000_000, 2_800_000, 2_800_000), strict=True
        )
    ]
    assert judge_latency(few).findings == ()


def graded(one, grade):
    return replace(one, verdict=replace(one.verdict, grade=grade))


def test_a_case_has_the_worst_grade_of_its_invocations_and_says_that_they_differ():
    runs = [
        graded(one, grade) for one, grade in zip(series(OWNER, 5_000.0, 4), "BBCB", strict=True)
    ]
    runs = [graded(one, Grade(one.verdict.grade)) for one in runs]
    result = judge_latency(runs)
    assert result.grade is Grade.C
    assert [finding.code for finding in result.findings] == ["mixed-grades"]
    assert any("1 of C" in note and "3 of B" in note for note in result.notes)
    assert result.quality is Quality.TRUSTED
    same = judge_latency([graded(one, Grade.B) for one in runs])
    assert (same.grade, same.findings) == (Grade.B, ())


def test_grades_of_which_one_is_missing_are_mixed_and_the_case_has_none():
    runs = [
        graded(one, Grade.B if number else None)
        for number, one in enumerate(series(OWNER, 5_000.0, 4))
    ]
    result = judge_latency(runs)
    assert result.grade is None
    assert result.findings[0].code == "mixed-grades"


def test_a_slow_first_invocation_is_left_out_and_says_so() -> None:
    latencies = [6_000.0, 5_010.0, 4_990.0, 5_005.0, 4_995.0, 5_002.0]
    result = judge_latency([run(OWNER, number, us) for number, us in enumerate(latencies)])
    assert [finding.code for finding in result.findings] == ["slow-start"]
    assert len(result.used) == 5
    assert result.summary is not None
    assert result.summary.max_us < 5_100
    # One that is slow later on is no start, and one that is as noisy as the others stays.
    for kept in ([*latencies[1:], 6_000.0], [5_500.0, 5_010.0, 4_600.0, 5_405.0, 4_995.0]):
        again = judge_latency([run(OWNER, number, us) for number, us in enumerate(kept)])
        assert (again.findings, len(again.used)) == ((), len(kept))
