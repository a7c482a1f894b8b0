"""A campaign's time: until when, how much is left, what that means for an invocation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.analysis.quality import skipped
from orchestrator.engine.decisions import SituationTracker, ending_without_run, open_work
from orchestrator.planning.expansion import Expansion, cut_to_time
from orchestrator.planning.time_budget import (
    Recent,
    busy_s,
    case_costs_s,
    over_budget,
    time_limit_s,
    usable_s,
    usual_pause_s,
)
from orchestrator.programs.native import NativeTool
from orchestrator.records.campaign import Campaign, Invocation, Terms
from orchestrator.records.case import (
    Case,
    CaseKey,
    DelegateName,
    Pass,
    ToolName,
)
from orchestrator.records.plan import FitLimits, Plan, PlanModel, PlanTerms, StoppingRule
from orchestrator.records.run import OUT_OF_TIME, Outcome, RecentRun, RunRecord
from orchestrator.store.opening import MemoryStore
from tests.samples.manual_clock import ManualClock
from tests.samples.stores import Samples

START = datetime(2026, 3, 2, 1, 0, tzinfo=UTC)
SAMPLES = Samples()
CASE = SAMPLES.case()
PLAN = Plan(name="p", models=(PlanModel(name="m", path=Path("m.tflite")),))
TOOLS = {ToolName.NATIVE: NativeTool()}


def campaign(**terms: object) -> Campaign:
    planned = [Invocation(case=CASE, run_pass=Pass.TIMING, number=number) for number in (0, 1)]
    return SAMPLES.campaign(created_at=START, invocations=tuple(planned), terms=Terms(**terms))  # type: ignore[arg-type]


def run(number: int, begins_s: float, taken_s: float = 10.0, **changes: object) -> RunRecord:
    started_at = START + timedelta(seconds=begins_s)
    return SAMPLES.run(number, **{"started_at": started_at, "duration_s": taken_s, **changes})


def tracker_of(begun: Campaign, runs: Sequence[RunRecord], clock: ManualClock) -> SituationTracker:
    return SituationTracker(begun, CASE.serial, runs, clock, MemoryStore().recent_runs)


def test_the_narrower_of_both_limits_counts() -> None:
    assert time_limit_s(START + timedelta(seconds=60), 90.0, START) == 60
    assert time_limit_s(START + timedelta(seconds=60), 30.0, START) == 30
    assert time_limit_s(START - timedelta(seconds=60), None, START) == 0
    assert time_limit_s(None, None, START) is None


def test_an_invocation_isn_t_begun_that_would_end_too_late() -> None:
    clock = ManualClock(START)
    tracker = tracker_of(campaign(until=START + timedelta(seconds=100)), [], clock)
    first = Invocation(case=CASE, run_pass=Pass.TIMING, number=0)
    clock.advance(70)
    assert ending_without_run(tracker.situation(first)) is None
    # It turned out to take longer than its settings ask for.
    tracker.add_run(run(0, 0, taken_s=40))
    ending = ending_without_run(tracker.situation(first))
    assert ending == skipped(OUT_OF_TIME, "about 40.0 s are needed, and 30.0 s are left")
    assert tracker.remaining_s
    clock.advance(31)
    assert not tracker.remaining_s


def test_a_clock_that_is_set_neither_ends_nor_prolongs_the_night() -> None:
    class Jumping(ManualClock):
        jump = timedelta()

        def now(self) -> datetime:
            return super().now() + self.jump

    clock = Jumping(START)
    tracker = tracker_of(campaign(until=START + timedelta(seconds=100)), [], clock)
    clock.jump = timedelta(days=1)
    assert tracker.remaining_s
    clock.jump = timedelta(days=-1)
    clock.advance(101)
    assert not tracker.remaining_s


def test_a_resumed_campaign_has_what_is_left_of_its_budget() -> None:
    # Two runs with a wait of 20 s; a night passed before the third.
    runs = [run(0, 0), run(1, 30), run(2, 40_000)]
    assert busy_s(Terms(), runs) == 50
    clock = ManualClock(START + timedelta(seconds=50_000))
    tracker = tracker_of(campaign(budget=60.0), runs, clock)
    clock.advance(9)
    assert tracker.remaining_s
    clock.advance(2)
    assert not tracker.remaining_s


def test_what_there_was_no_time_for_is_over_for_good() -> None:
    late = {"outcome": Outcome.SKIPPED, "reason_code": OUT_OF_TIME, "duration_s": 0.0}
    begun = campaign(until=START, stopping=StoppingRule(first=2, most=9))
    runs = [run(0, 0), run(1, 20, **late)]
    assert open_work(begun, runs, CASE.serial, TOOLS).invocations == ()
    sustained = replace(
        begun, invocations=(Invocation(case=CASE, run_pass=Pass.SUSTAINED, number=0),)
    )
    assert open_work(sustained, [], CASE.serial, TOOLS).invocations != ()
    assert (
        open_work(
            sustained, [run(0, 0, run_pass=Pass.SUSTAINED, **late)], CASE.serial, TOOLS
        ).invocations
        == ()
    )
    mark = Invocation(case=CASE, run_pass=Pass.REFERENCE, number=0)
    bracketed = replace(begun, invocations=(*begun.invocations, mark))
    # Nothing was measured that a reference workload could bracket.
    assert (
        open_work(bracketed, [run(0, 0, **late), run(1, 0, **late)], CASE.serial, TOOLS).invocations
        == ()
    )
    assert open_work(
        bracketed, [run(0, 0), run(1, 0, **late)], CASE.serial, TOOLS
    ).reference_check == (mark,)


def test_a_plan_without_limits_is_left_whole_and_one_with_is_cut_with_reasons() -> None:
    cases = [replace(CASE, threads=threads) for threads in (1, 2, 4)]
    queue = tuple(
        Invocation(case=case, run_pass=Pass.TIMING, number=number)
        for number in (0, 1)
        for case in cases
    )
    expansion = Expansion(cases=tuple(cases), invocations={CASE.serial: queue}, skipped=())

    def cut(plan: Plan, expansion: Expansion, *, reference_check: bool = False) -> Expansion:
        time_s = usable_s(plan, START, reference_check=reference_check)
        recent_of = MemoryStore().recent_runs
        return cut_to_time(plan, expansion, time_s, recent_of=recent_of, unit_of=lambda case: "")

    assert cut(PLAN, expansion) is expansion
    # Each invocation is thought to take 1.5 times 4.5 s.
    plan = replace(PLAN, budget=30.0)
    kept = cut(plan, expansion)
    assert len(kept.cases) == 2
    (skip,) = kept.skipped
    assert skip.reason_code == OUT_OF_TIME
    # The reference workload takes its part.
    plan = replace(PLAN, budget=50.0)
    assert len(cut(plan, expansion).cases) == 3
    assert len(cut(plan, expansion, reference_check=True).cases) == 1


def test_threads_that_a_delegate_leaves_unused_take_nothing_of_a_budget() -> None:
    cases = [replace(CASE, delegate=DelegateName.GPU, threads=threads) for threads in (1, 2, 4)] + [
        replace(CASE, threads=1)
    ]
    expansion = Expansion(
        cases=tuple(cases), invocations={CASE.serial: tuple(queue(cases))}, skipped=()
    )

    def kept_threads(plan: Plan, *measured: Case) -> list[int]:
        recent = {case.series_key: [recent_run(6.0)] for case in measured}
        cut = cut_to_time(
            plan, expansion, 27.0, recent_of=lambda keys: recent, unit_of=lambda case: ""
        )
        return [case.threads for case in cut.cases]

    # There is time for two cases.
    assert kept_threads(PLAN) == [1, 2, 4, 1]
    assert kept_threads(PLAN, cases[0]) == [1, 2, 4, 1]
    # Whose operators ran on the CPU in part, or who asks for each of them.
    assert kept_threads(PLAN, *cases[:3]) == [1, 2]
    every = replace(PLAN, matrix=replace(PLAN.matrix, every_thread_count=True))
    assert kept_threads(every) == [1, 2]


def named(model: str, delegate: DelegateName = DelegateName.XNNPACK) -> Case:
    return replace(CASE, model_name=model, delegate=delegate)


def queue(cases: Sequence[Case], each: int = 2) -> list[Invocation]:
    return [
        Invocation(case=one, run_pass=Pass.TIMING, number=number)
        for number in range(each)
        for one in cases
    ]


def recent_run(taken_s: float, pause_s: float | None = None) -> RecentRun:
    return RecentRun(run_pass=Pass.TIMING, duration_s=taken_s, pause_s=pause_s)


def chosen_of(
    wanted: Sequence[Invocation],
    recent: Recent,
    *,
    left_s: float,
    unit_of: Callable[[Case], str] = lambda case: "",
) -> Mapping[CaseKey, str]:
    cases = list({item.case.case_key: item.case for item in wanted}.values())
    return over_budget(
        cases, case_costs_s(wanted, recent, PlanTerms()), limit_s=left_s, unit_of=unit_of
    )


def kept(cases: Sequence[Case], left_out: object) -> list[str]:
    return [one.model_name for one in cases if one.case_key not in left_out]  # type: ignore[operator]


def test_the_first_cases_of_the_plan_are_kept_and_the_others_say_why_they_are_not() -> None:
    cases = [named("first"), named("long"), named("short")]
    recent = {
        one.series_key: [recent_run(5.0 * place)]
        for place, one in zip((2, 4, 1), cases, strict=True)
    }
    chosen = chosen_of(queue(cases), recent, left_s=35)
    # A smaller one is still tried behind one that doesn't fit.
    assert kept(cases, chosen) == ["first", "short"]
    assert list(chosen.values()) == [
        "it needs about 40.0 s; 15.0 s of 35.0 s are left after the cases before it in the plan"
    ]


def test_what_a_phone_does_between_runs_is_part_of_what_they_take() -> None:
    one = named("a")
    recent = {one.series_key: [recent_run(10, pause_s=20)] * 3}
    assert round(case_costs_s(queue([one], each=2), recent, PlanTerms())[one.case_key]) == 60


def test_a_few_long_pauses_of_an_outage_are_not_what_every_run_waits() -> None:
    one = named("a")
    # 2 s between runs, and three times 300 s in which the phone wasn't reached.
    pauses_s = [None, *[300.0] * 3, *[2.0] * 36]
    recent = {one.series_key: [recent_run(10, pause_s=pause_s) for pause_s in pauses_s]}
    assert round(usual_pause_s(recent, PlanTerms())) == 2
    assert round(case_costs_s(queue([one], each=10), recent, PlanTerms())[one.case_key]) == 120


def test_a_pause_is_as_long_as_the_plan_waits_or_as_earlier_ones_did() -> None:
    patient, hasty = (PlanTerms(limits=FitLimits(wait=wait)) for wait in (900.0, 0.0))

    def usual_s(pause_s: float, terms: PlanTerms) -> float:
        one = recent_run(10, pause_s=pause_s)
        return usual_pause_s({CASE.series_key: [one]}, terms)

    assert [usual_s(600, patient), usual_s(600, hasty)] == [600, 0]
    # The plan that cooled the phone waited longer than this one will.
    assert usual_s(300, hasty) == 300
    # What it used up itself is told by its own wait.
    runs = [run(0, 0), run(1, 610)]
    assert busy_s(Terms(limits=patient.limits), runs) == 620
    runs = [run(0, 0), run(1, 60), run(2, 370)]
    assert busy_s(Terms(limits=hasty.limits), runs) == 10 + 50 + 10 + 10


def test_an_unknown_case_is_thought_to_take_as_much_longer_as_the_known_ones() -> None:
    known, unknown = named("known"), named("unknown")
    recent = {known.series_key: [recent_run(12)]}
    assert set(case_costs_s(queue([known, unknown], each=1), recent, PlanTerms()).values()) == {12}


def test_cases_of_one_process_are_kept_or_left_out_together_at_the_cost_of_one() -> None:
    cases = [named("a"), named("b"), named("alone")]
    recent = {one.series_key: [recent_run(10)] for one in cases}
    chosen = chosen_of(
        queue(cases, each=1),
        recent,
        left_s=20,
        unit_of=lambda one: "" if one.model_name == "alone" else "session",
    )
    assert chosen == {}


@given(
    st.lists(st.floats(0.1, 100), min_size=1, max_size=20),
    st.floats(0, 500),
)
def test_what_is_kept_never_takes_more_than_there_is(each_s: list[float], left_s: float) -> None:
    cases = [named(f"m{number}") for number in range(len(each_s))]
    recent = {
        one.series_key: [recent_run(taken_s)] for one, taken_s in zip(cases, each_s, strict=True)
    }
    chosen = chosen_of(queue(cases, each=1), recent, left_s=left_s)
    costs_s = case_costs_s(queue(cases, each=1), recent, PlanTerms())
    kept = [one for one in cases if one.case_key not in chosen]
    # When nothing fits, the first of the plan is begun.
    assert sum(costs_s[one.case_key] for one in kept) <= left_s + 1e-9 or kept == cases[:1]
    assert bool(kept) == (left_s > 0)
    assert bool(chosen) <= (sum(costs_s.values()) > left_s)
