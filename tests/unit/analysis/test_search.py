"""A search finds what the full product finds, in a third of its processes, and doesn't decide ties by its schedule."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from orchestrator.analysis.search import next_search, search_standings
from orchestrator.records.campaign import Invocation
from orchestrator.records.run import DelegateTruth, Outcome
from orchestrator.records.search import ArmStatus, SearchRule
from orchestrator.records.verdict import Quality
from orchestrator.records.workload import Pass
from tests.samples.sample_lab import campaign_of, case, run

RULE = SearchRule()


class Phone:
    """Runs whatever a search asks for, with known latencies and lognormal noise."""

    def __init__(self, latencies_us, *, noise=0.015, seed=0, failing=()):
        self.cases = [case(threads=number + 1) for number in range(len(latencies_us))]
        self.latencies_us = {item.case_key: value for item, value in zip(self.cases, latencies_us, strict=True)}
        self.failing = {self.cases[number].case_key for number in failing}
        self.noise, self.random, self.runs = noise, random.Random(seed), []
        invocations = tuple(Invocation(case=item, run_pass=Pass.TIMING, number=0) for item in self.cases)
        self.campaign = replace(campaign_of([run(self.cases[0], 0, 1.0)]), invocations=invocations)
        self.serial = self.cases[0].serial

    def do(self, invocation):
        latency_us = self.latencies_us[invocation.case.case_key] * self.random.lognormvariate(0, self.noise)
        fault = {}
        if invocation.case.case_key in self.failing:
            fault = {"truth": DelegateTruth.FELL_BACK, "outcome": Outcome.FAILED, "quality": Quality.REJECTED}
        self.runs.append(run(invocation.case, invocation.number, latency_us, **fault))

    def search(self, rule=RULE):
        while wanted := next_search(self.campaign, self.runs, self.serial, rule):
            for invocation in wanted:
                self.do(invocation)
        (standing,) = search_standings(self.campaign, self.runs, rule)
        return standing

    def index(self, arm):
        return arm.case.threads - 1


@pytest.mark.parametrize("seed", range(12))
def test_a_search_finds_the_fastest_in_a_third_of_the_processes(seed):
    generator = random.Random(seed)
    latencies = [2_000.0 * generator.uniform(1.0, 6.0) for _ in range(20)]
    phone = Phone(latencies, seed=seed)
    found = phone.search()
    assert found.is_over
    names = [phone.index(arm) for arm in found.live]
    assert latencies.index(min(latencies)) in names
    assert latencies[names[0]] <= 1.02 * min(latencies)
    assert 3 * found.invocations <= found.full_invocations == 160


def test_equals_stay_together_and_are_told_as_a_tie():
    found = Phone([3_000.0, 3_000.0, 3_000.0, 9_000.0]).search(replace(RULE, alike=0.0))
    assert [arm.case.threads for arm in sorted(found.live, key=lambda arm: arm.case.threads)] == [1, 2, 3]
    assert (found.ended_by, len(found.tied)) == ("most", 2)


@pytest.mark.parametrize("count", [12, 20, 28])
def test_many_equals_stay_within_the_budget_and_are_told_as_a_tie(count):
    # Nothing but a resolution that nobody asked for would tell them apart.
    latencies = [1_000.0 + number for number in range(count)]
    phone = Phone(latencies, seed=count)
    found = phone.search()
    assert found.is_over
    assert found.device_s <= found.full_s / 3
    assert len(found.tied) > count // 2
    # However much of it is stored, it comes to the same.
    (again,) = search_standings(phone.campaign, phone.runs, RULE)
    assert again == found
    assert Phone(latencies, seed=count).search(replace(RULE, budget=1.0)).ended_by in {"most", "alike"}


def test_budget_goes_to_the_fastest_and_what_they_leave_behind_is_dropped():
    # Twenty that two processes can't tell apart; the first two are 6 % faster than the next.
    latencies = [1_000.0, 1_001.0, *(1_060.0 + number for number in range(18))]
    phone = Phone(latencies, seed=7, noise=0.02)
    found = phone.search()
    assert found.device_s <= found.full_s / 3
    assert {phone.index(arm) for arm in found.live} >= {0, 1}
    assert max(len(arm.used) for arm in found.live) >= 4
    assert any(arm.status is ArmStatus.DROPPED for arm in found.arms)


def test_a_search_that_was_killed_asks_for_the_same_next():
    whole, cut = Phone([3_000.0, 3_050.0, 5_000.0], seed=4), Phone([3_000.0, 3_050.0, 5_000.0], seed=4)
    for invocation in next_search(whole.campaign, whole.runs, whole.serial, RULE):
        whole.do(invocation)
    for invocation in next_search(cut.campaign, cut.runs, cut.serial, RULE)[:2]:
        cut.do(invocation)
    left = next_search(cut.campaign, cut.runs, cut.serial, RULE)
    assert len(left) == 1
    cut.do(left[0])
    assert next_search(cut.campaign, cut.runs, cut.serial, RULE) == next_search(
        whole.campaign, whole.runs, whole.serial, RULE
    )


def test_a_delegate_that_fell_back_leaves_after_one_process_and_never_wins():
    found = Phone([1_000.0, 3_000.0, 4_000.0], failing=(0,)).search()
    assert found.best.case.threads == 2
    (failed,) = [arm for arm in found.arms if arm.status is ArmStatus.FAILED]
    assert (failed.case.threads, failed.latency_us) == (1, None)
    assert "no figure of its own" in failed.reason


def test_what_a_wrong_winner_pushed_out_comes_back():
    phone = Phone([1_000.0, 3_000.0, 3_100.0])
    assert [arm.case.threads for arm in phone.search().live] == [1]
    wrong = run(phone.cases[0], 0, 1_000.0, run_pass=Pass.PARITY)
    phone.runs.append(
        replace(wrong, report=replace(wrong.report, extra={"parity": "wrong", "parity_reason": "far off"}))
    )
    assert next_search(phone.campaign, phone.runs, phone.serial, RULE)
    found = phone.search()
    assert found.best.case.threads == 2
    assert {arm.case.threads: arm.status for arm in found.arms}[1] is ArmStatus.WRONG


def test_nothing_that_works_ends_without_a_winner():
    found = Phone([1_000.0, 2_000.0], failing=(0, 1)).search()
    assert (found.best, found.ended_by) == (None, "nothing-left")
