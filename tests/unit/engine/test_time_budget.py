"""Which cases a night has time for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.engine.night import Recent, costs_of, importance_of, left_out, usual_pause_s
from orchestrator.records.campaign import Invocation
from orchestrator.records.identity import BuildSha, CaseKey, ModelSha, Serial
from orchestrator.records.night import ImportanceRule, RecentRun
from orchestrator.records.run import Outcome
from orchestrator.records.workload import Case, DelegateName, Pass, ToolName

NOW = datetime(2026, 3, 2, 1, 0, tzinfo=UTC)


def case(model: str, delegate: DelegateName = DelegateName.XNNPACK) -> Case:
    return Case(
        serial=Serial("A"), model_sha256=ModelSha("aa" * 32), model_name=model, delegate=delegate, threads=4,
        tool=ToolName.NATIVE, build_sha256=BuildSha("bb" * 32),
    )  # fmt: skip


def queue(cases: Sequence[Case], each: int = 2) -> list[Invocation]:
    return [Invocation(case=one, run_pass=Pass.TIMING, number=number) for number in range(each) for one in cases]


def run(*, days: float, taken_s: float, run_pass: Pass = Pass.TIMING) -> RecentRun:
    started_at = NOW - timedelta(days=days)
    return RecentRun(run_pass=run_pass, started_at=started_at, duration_s=taken_s, outcome=Outcome.COMPLETED)


def chosen_of(
    wanted: Sequence[Invocation],
    recent: Recent,
    *,
    left_s: float,
    rules: Sequence[ImportanceRule] = (),
    now: datetime = NOW,
    unit_of: Callable[[Case], str] = lambda case: "",
) -> Mapping[CaseKey, str]:
    costs_s = costs_of(wanted, recent)
    return left_out(wanted, costs_s=costs_s, recent=recent, rules=rules, left_s=left_s, now=now, unit_of=unit_of)


def kept(cases: Sequence[Case], left_out: object) -> list[str]:
    return [one.model_name for one in cases if one.case_key not in left_out]  # type: ignore[operator]


def test_a_night_that_fits_is_left_whole() -> None:
    cases = [case("a"), case("b")]
    recent = {one.series_key: [run(days=1, taken_s=10)] for one in cases}
    chosen = chosen_of(queue(cases), recent, left_s=40)
    assert (sum(costs_of(queue(cases), recent).values()), chosen) == (40, {})


def test_the_stalest_cases_are_kept_and_the_others_say_why_they_are_not() -> None:
    cases = [case("yesterday"), case("last-week"), case("never")]
    recent = {
        cases[0].series_key: [run(days=1, taken_s=10)],
        cases[1].series_key: [run(days=7, taken_s=10)],
    }
    chosen = chosen_of(queue(cases), recent, left_s=45)
    assert kept(cases, chosen) == ["last-week", "never"]
    (reason,) = chosen.values()
    assert "it would take about 20.0 s" in reason
    assert "its last run is 1.0 days old" in reason


def test_importance_outweighs_staleness_by_its_factor() -> None:
    cases = [case("old"), case("dear", DelegateName.GPU)]
    recent = {cases[0].series_key: [run(days=5, taken_s=10)], cases[1].series_key: [run(days=1, taken_s=10)]}
    for value, first in ((4.0, "old"), (6.0, "dear")):
        rules = (ImportanceRule(value=value, delegates=("gpu",)),)
        chosen = chosen_of(queue(cases), recent, left_s=20, rules=rules)
        assert kept(cases, chosen) == [first]


def test_a_case_left_out_goes_first_the_next_night() -> None:
    cases = [case("a"), case("b")]
    last = {one.model_name: 1.0 for one in cases}
    measured: list[str] = []
    for night in range(4):
        now = NOW + timedelta(days=night)
        recent = {
            one.series_key: [
                RecentRun(
                    run_pass=Pass.TIMING, started_at=now - timedelta(days=last[one.model_name]), duration_s=10,
                    outcome=Outcome.FAILED,
                )
            ]
            for one in cases
        }  # fmt: skip
        chosen = chosen_of(queue(cases), recent, left_s=20, now=now)
        (name,) = kept(cases, chosen)
        measured.append(name)
        last = {other: 1.0 if other == name else days + 1.0 for other, days in last.items()}
    assert sorted(measured[:2]) == sorted(measured[2:]) == ["a", "b"]


def test_what_a_phone_does_between_runs_is_part_of_what_they_take() -> None:
    one = case("a")
    # Three runs of 10 s that began 30 s after one another.
    recent = {one.series_key: [run(days=1 - number * 30 / 86400, taken_s=10) for number in range(3)]}
    assert round(costs_of(queue([one], each=2), recent)[one.case_key]) == 60


def test_a_few_long_pauses_of_an_outage_are_not_what_every_run_waits() -> None:
    one = case("a")
    # Forty runs of 10 s: 2 s between them, and three times 300 s in which the phone wasn't reached.
    begins_s = [0.0]
    for number in range(1, 40):
        begins_s.append(begins_s[-1] + 10 + (300 if number in (10, 11, 12) else 2))
    recent = {one.series_key: [run(days=0.5 - begin_s / 86400, taken_s=10) for begin_s in begins_s]}
    assert round(usual_pause_s(recent)) == 2
    assert round(costs_of(queue([one], each=10), recent)[one.case_key]) == 120


def test_an_unknown_case_is_thought_to_take_as_much_longer_as_the_known_ones() -> None:
    known, unknown = case("known"), case("unknown")
    recent = {known.series_key: [run(days=1, taken_s=12)]}
    assert set(costs_of(queue([known, unknown], each=1), recent).values()) == {12}


def test_cases_of_one_process_are_kept_or_left_out_together_at_the_cost_of_one() -> None:
    cases = [case("a"), case("b"), case("alone")]
    recent = {one.series_key: [run(days=1, taken_s=10)] for one in cases}
    chosen = chosen_of(
        queue(cases, each=1), recent, left_s=20, unit_of=lambda one: "" if one.model_name == "alone" else "session"
    )
    assert chosen == {}


def test_the_first_rule_that_fits_a_case_counts() -> None:
    rules = (ImportanceRule(value=3, models=("a*",), delegates=("gpu",)), ImportanceRule(value=0, models=("a*",)))
    assert [importance_of(rules, case("ab", delegate)) for delegate in (DelegateName.GPU, DelegateName.CPU)] == [3, 0]
    assert importance_of(rules, case("b")) == 1


@given(st.lists(st.tuples(st.floats(0.1, 100), st.floats(0, 30)), min_size=1, max_size=20), st.floats(0, 500))
def test_what_is_kept_never_takes_more_than_there_is(facts: list[tuple[float, float]], left_s: float) -> None:
    cases = [case(f"m{number}") for number in range(len(facts))]
    recent = {
        one.series_key: [run(days=days, taken_s=taken_s)] for one, (taken_s, days) in zip(cases, facts, strict=True)
    }
    chosen = chosen_of(queue(cases, each=1), recent, left_s=left_s)
    costs_s = costs_of(queue(cases, each=1), recent)
    kept = [one for one in cases if one.case_key not in chosen]
    assert sum(costs_s[one.case_key] for one in kept) <= left_s + 1e-9 or len(kept) == 1
    assert bool(kept) == (left_s > 0)
    assert bool(chosen) <= (sum(costs_s.values()) > left_s)


def test_when_nothing_fits_the_first_in_rank_is_begun_and_nothing_without_time() -> None:
    cases = [case("old"), case("new")]
    recent = {cases[0].series_key: [run(days=9, taken_s=50)], cases[1].series_key: [run(days=1, taken_s=50)]}
    chosen = chosen_of(queue(cases), recent, left_s=20)
    assert kept(cases, chosen) == ["old"]
    chosen = chosen_of(queue(cases), recent, left_s=0)
    assert kept(cases, chosen) == []
