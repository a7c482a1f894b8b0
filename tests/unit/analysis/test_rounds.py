"""Which invocations a campaign wants beyond its plan: from what is stored alone, whatever was
killed when."""

from __future__ import annotations

import math
import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.analysis.measured import judge_cases
from orchestrator.analysis.rounds import StopReason, is_hopeless, next_round, progress_by_case
from orchestrator.analysis.summary import autocorrelations
from orchestrator.records.campaign import Campaign, CampaignStatus, Invocation, Terms
from orchestrator.records.case import CampaignId, Case, Pass
from orchestrator.records.plan import StoppingRule
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.verdict import Quality, QualityVerdict
from orchestrator.store.opening import MemoryStore
from tests.samples import sample_lab
from tests.samples.sample_lab import START, lab_of

SERIAL = sample_lab.PIXEL_3.serial
RULE = StoppingRule(first=4, half_width=0.02, most=12)
#: Relative deviation between invocations of each case.
NOISES = {1: 0.001, 2: 0.04, 3: 0.3}


def case(threads: int) -> Case:
    return sample_lab.case(threads=threads)


def campaign(*, rule: StoppingRule | None = RULE, seed: int = 1) -> Campaign:
    planned = [
        Invocation(case=case(threads), run_pass=Pass.TIMING, number=number)
        for number in range(RULE.first)
        for threads in NOISES
    ]
    return sample_lab.campaign_of(
        (),
        status=CampaignStatus.RUNNING,
        seed=seed,
        terms=Terms(stopping=rule),
        invocations=tuple(planned),
    )


def run(item: Invocation, position: int = 0, **changes: object) -> RunRecord:
    """A run whose figure depends on the invocation alone, as repeated history would have it."""
    drawn = random.Random(f"{item.case.threads}:{item.number}").gauss(0, NOISES[item.case.threads])
    made = sample_lab.run(
        item.case, item.number, 1000.0 * math.exp(drawn), run_pass=item.run_pass,
        started_at=START + timedelta(seconds=5 * position), attachments=(),
    )  # fmt: skip
    return replace(made, **changes)  # type: ignore[arg-type]


def finish(the_campaign: Campaign, runs: list[RunRecord]) -> list[RunRecord]:
    done = {(item.case.case_key, item.invocation) for item in runs}
    for item in the_campaign.invocations:
        if (item.case.case_key, item.number) not in done:
            runs.append(run(item, len(runs)))
    while batch := next_round(the_campaign, runs, SERIAL):
        runs += [run(item, len(runs) + place) for place, item in enumerate(batch)]
        assert len(runs) < 1000
    return runs


def counts(runs: list[RunRecord]) -> dict[int, int]:
    return dict(Counter(item.case.threads for item in runs))


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(cut=st.integers(0, 28), seed=st.integers(0, 5))
def test_a_resume_from_any_moment_continues_in_the_same_order_to_the_same_end(
    cut: int, seed: int
) -> None:
    the_campaign = campaign(seed=seed)
    whole = finish(the_campaign, [])
    again = finish(the_campaign, whole[:cut])
    assert [item.run_id for item in again] == [item.run_id for item in whole]


def test_a_device_that_stored_campaigns_know_to_forget_takes_fewer_processes() -> None:
    chance = random.Random(20261122)

    def measured(campaign_id: str, terms: Terms) -> list[RunRecord]:
        begun = replace(campaign(), campaign_id=CampaignId(campaign_id), terms=terms)
        first = [item for item in begun.invocations if item.case.threads == 1]
        runs: list[RunRecord] = []
        begun = replace(begun, invocations=tuple(first))
        batch = first
        while batch:
            runs += [
                sample_lab.run(
                    item.case,
                    item.number,
                    1000 * math.exp(chance.gauss(0, 0.015)),
                    campaign_id=begun.campaign_id,
                    attachments=(),
                )
                for item in batch
            ]
            batch = next_round(begun, runs, SERIAL)
        return runs

    fixed = Terms(stopping=StoppingRule(first=16, half_width=0.02, most=16))
    store = MemoryStore()
    for number in range(8):
        runs = measured(f"earlier-{number}", fixed)
        lab_of(runs, campaign_id=runs[0].campaign_id, invocations=()).store_in(store)
    rule = StoppingRule(first=4, half_width=0.02, most=40)
    known = autocorrelations(store.points())
    carried = {serial: (item.weight, item.total) for serial, item in known.items()}
    processes = [
        sum(
            len(measured(f"{is_known}-{number}", Terms(stopping=rule, autocorrelations=memory)))
            for number in range(25)
        )
        / 25
        for is_known, memory in ((False, {}), (True, carried))
    ]
    assert processes[1] <= 13
    assert processes[0] >= processes[1] + 3
    # What is hidden says nothing.
    for number in range(8):
        store.hide_campaign(CampaignId(f"earlier-{number}"))
    assert autocorrelations(store.points(), but=store.hidden_campaigns()) == {}


def test_builds_of_unlike_speed_in_turns_hide_no_autocorrelation() -> None:
    old = case(1)
    slow = replace(old, build_sha256=sample_lab.APK.sha256)
    found = []
    for factor in (1.0, 1.15):
        chance, log, runs = random.Random(5), 0.0, []
        for place in range(80):
            log = 0.8 * log + chance.gauss(0, 0.01)
            side = slow if place % 4 in {1, 2} else old
            us = 1000 * math.exp(log) * (factor if side is slow else 1.0)
            runs.append(sample_lab.run(side, place // 2, us, attachments=()))
        store = MemoryStore()
        lab_of(runs, invocations=()).store_in(store)
        found.append(autocorrelations(store.points())[SERIAL].correlation())
    # 0.13 with the slower build when both were one sample.
    assert found[0] == pytest.approx(found[1])
    assert found[0] > 0.4


def test_rounds_are_interleaved_and_shuffled_by_the_seed() -> None:
    wide = [
        finish(campaign(rule=replace(RULE, half_width=1e-6), seed=seed), []) for seed in range(6)
    ]
    orders = {tuple(item.run_id for item in runs[12:]) for runs in wide}
    assert len(orders) > 1
    for runs in wide:
        assert all(
            {item.case.threads for item in runs[at : at + 3]} == set(NOISES)
            for at in range(12, 36, 3)
        )


@pytest.mark.parametrize(
    "end",
    [
        {"outcome": Outcome.FAILED, "reason_code": "crashed", "report": None},
        {"outcome": Outcome.TIMED_OUT, "reason_code": "timeout", "report": None},
        {"outcome": Outcome.SKIPPED, "reason_code": "model", "report": None},
        {"verdict": QualityVerdict(quality=Quality.REJECTED)},
    ],
)
def test_a_case_without_a_usable_figure_gets_no_more(end: dict[str, object]) -> None:
    the_campaign = campaign()
    runs = [
        run(item, **(end if item.case.threads == 3 else {})) for item in the_campaign.invocations
    ]
    assert {item.case.threads for item in next_round(the_campaign, runs, SERIAL)} <= {2}
    progress = {
        item.case.threads: item
        for item in progress_by_case(the_campaign, judge_cases(runs, [the_campaign])).values()
    }
    assert progress[3].reason is StopReason.FAILED
    assert progress[3].text == "no more: it failed, or was left out"


@pytest.mark.parametrize(
    ("endings", "hopeless"),
    [
        ("", False),
        ("ab", False),
        (".t", True),
        ("..t", False),
        (".aa", True),
        ("........aa", False),
        (".a.a.a.a.a", False),
        ("........aaaaa", True),
        # What the device or the user did says nothing of the case.
        ("a--a", True),
    ],
)
def test_two_failures_in_a_row_and_half_of_the_last_ten_end_a_case(
    endings: str, hopeless: bool
) -> None:
    outcomes = {".": Outcome.COMPLETED, "t": Outcome.TIMED_OUT, "-": Outcome.ABORTED}
    found = [(outcomes.get(letter, Outcome.FAILED), letter.strip(".")) for letter in endings]
    assert is_hopeless(found) is hopeless


def test_an_invocation_that_can_not_be_used_does_not_count() -> None:
    the_campaign = campaign()
    bad = {"verdict": QualityVerdict(quality=Quality.REJECTED)}
    runs = [
        run(item, **(bad if item.case.threads == 1 and item.number < 1 else {}))
        for item in the_campaign.invocations
    ]
    assert 1 in {item.case.threads for item in next_round(the_campaign, runs, SERIAL)}
    assert counts(finish(the_campaign, runs))[1] == 5


def test_why_a_case_stopped_tells_the_interval_of_its_report() -> None:
    """Equal prints of 50 us are known to half a microsecond."""
    runs = [sample_lab.run(case(1), number, 50.0) for number in range(RULE.first)]
    unplanned = replace(campaign(), invocations=())
    (standing,) = progress_by_case(unplanned, judge_cases(runs, [unplanned])).values()
    assert standing.text == "enough: ±1.0 % after 4"


def test_nothing_is_added_before_the_plan_is_through_nor_without_a_rule() -> None:
    noisy = [run(item) for item in campaign().invocations if item.case.threads == 3]
    assert [item.case.threads for item in next_round(campaign(), noisy, SERIAL)] == [3]
    assert next_round(campaign(), noisy[:-1], SERIAL) == []
    assert len(finish(campaign(rule=None), [])) == 12


def test_unfit_waits_count_as_nothing() -> None:
    the_campaign = campaign()
    runs = finish(the_campaign, [])
    unfit = run(
        Invocation(case=case(1), run_pass=Pass.TIMING, number=9), outcome=Outcome.UNFIT, report=None
    )
    assert next_round(the_campaign, [*runs, unfit], SERIAL) == []


def test_cases_of_one_process_get_another_one_as_long_as_any_needs_it() -> None:
    the_campaign = campaign()
    runs = [run(item) for item in the_campaign.invocations]
    batch = next_round(the_campaign, runs, SERIAL, lambda _: "one session")
    assert {item.case.threads for item in batch} == {1, 2, 3}
    assert {item.number for item in batch} == {4}
