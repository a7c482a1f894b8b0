"""A/B plans: the order of pairs, which of them count, and how many there are to be."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from orchestrator.analysis.effect import Pairs
from orchestrator.analysis.pairing import (
    PairCount,
    PairProgress,
    count_pairs,
    pair_round,
    pair_seconds,
)
from orchestrator.records.campaign import Pairing, Terms
from orchestrator.records.case import BuildSha, ToolName, content_key
from orchestrator.records.run import OUT_OF_TIME, DelegateTruth, Outcome, RunRecord
from orchestrator.records.verdict import Quality
from tests.samples.records import pairing_of
from tests.samples.sample_lab import START, campaign_of, case, run, series, skewed

A = case()
B = replace(A, build_sha256=BuildSha(content_key("other")))
CASES = {A.case_key: A, B.case_key: B}
PAIRING = pairing_of(
    (A, B), baseline="build a", candidate="build b", kind="build", threshold=0.02 * 2 / 3
)


def leaders(seed: int, count: int) -> str:
    rounds = [pair_round(PAIRING, CASES, number, [0], f"{seed}:P") for number in range(count)]
    assert all({item.case.case_key for item in pair} == set(CASES) for pair in rounds)
    assert all(item.number == number for number, pair in enumerate(rounds) for item in pair)
    return "".join("A" if pair[0].case is A else "B" for pair in rounds)


def test_sides_lead_in_the_order_abba_then_baab_and_the_seed_says_which_is_first() -> None:
    orders = {leaders(seed, 8) for seed in range(20)}
    assert orders == {"ABBAABBA", "BAABBAAB"}
    assert leaders(3, 8) == leaders(3, 8)


def test_prefill_and_decode_of_a_process_begin_with_the_same_side_whichever_starts_it() -> None:
    sides = [
        tuple(replace(item, tool=ToolName.LITERT_LM, flags=(("figure", phase),)) for item in (A, B))
        for phase in ("prefill", "decode")
    ]
    cases = {item.case_key: item for side in sides for item in side}
    pairing = replace(
        PAIRING, sides=tuple((before.case_key, after.case_key) for before, after in sides)
    )
    for seed in range(8):
        first = ""
        for number in range(8):
            order = pair_round(pairing, cases, number, [0, 1], f"{seed}:P")
            builds = [item.case.build_sha256 for item in order]
            assert builds[:2] == builds[2:], "a process of the first two is the others' too"
            first += "A" if builds[0] == A.build_sha256 else "B"
        assert first in {"ABBAABBA", "BAABBAAB"}


def next_look(before: Sequence[RunRecord], after: Sequence[RunRecord]) -> Sequence[PairCount]:
    runs = sorted([*before, *after], key=lambda item: item.invocation)
    begun = replace(campaign_of(runs), terms=Terms(pairing=PAIRING))
    return [*PairProgress(begun, A.serial, runs).counts().values()]


def test_warm_up_and_pairs_with_an_unusable_run_are_left_out_whole() -> None:
    before, after = series(A, 20_000, 6), series(B, 20_600, 6)
    after[3] = run(B, 3, 90_000, quality=Quality.REJECTED)
    (count,) = next_look(before, after[:5])
    assert count.verdict is not None
    # Of the pairs 1 to 4.
    assert count.verdict.counts == (3, 3)
    assert count.verdict.ratio == pytest.approx(1.03)


def test_a_run_that_came_after_all_others_costs_its_own_pair_and_another_one_follows() -> None:
    # As where the phone wasn't fit for it.
    before, after = series(A, 20_000, 9), series(B, 20_600, 9)
    after[3] = replace(after[3], started_at=after[3].started_at.replace(year=2027))
    runs = [*before, *after]
    begun = campaign_of(runs, terms=Terms(pairing=PAIRING))
    added = PairProgress(begun, A.serial, runs).added()
    assert [item.number for item in added] == [9, 9]


def test_a_pair_whose_other_run_came_late_is_not_counted_as_the_comparison_leaves_it_out() -> None:
    before, after = series(A, 20_000, 9), series(B, 20_600, 9)
    after[4] = replace(after[4], started_at=START + timedelta(hours=3))
    (count,) = next_look(before, after)
    assert count.verdict is not None
    assert (count.verdict.counts, count.pairs, count.is_over) == ((7, 7), 8, False)


def test_pairs_are_of_one_kind_of_figure() -> None:
    before, after = series(A, 20_000, 6), series(B, 20_000, 6)
    (count,) = next_look([skewed(item, has_median=False) for item in before], map_skewed(after))
    assert count.verdict is not None
    assert count.verdict.ratio == pytest.approx(1.0)
    # A run without a figure makes no means of the others' medians.
    before[2] = replace(before[2], report=None)
    (count,) = next_look(map_skewed(before), map_skewed(after))
    assert count.verdict is not None
    assert count.verdict.counts == (4, 4)


def map_skewed(runs: Sequence[RunRecord]) -> list[RunRecord]:
    return [item if item.report is None else skewed(item) for item in runs]


def counted(logs: Sequence[float], pairing: Pairing = PAIRING) -> PairCount:
    candidate_us = tuple(math.exp(log) for log in logs)
    return count_pairs(pairing, Pairs(baseline_us=(1.0,) * len(logs), candidate_us=candidate_us))


def noisy(std: float, count: int, *, seed: int, shift: float = 0.0) -> list[float]:
    chance = random.Random(seed)
    return [chance.gauss(shift, std) for _ in range(count)]


def test_a_quiet_phone_needs_the_first_look_only_and_a_noisy_one_more() -> None:
    quiet = counted(noisy(0.001, 8, seed=1))
    assert (quiet.pairs, quiet.is_over, quiet.limit) == (8, True, "")
    noisier = counted(noisy(0.02, 8, seed=1))
    assert (noisier.pairs, noisier.is_over) == (12, False)
    assert counted(noisy(0.02, 12, seed=1)).pairs == 18


def test_nothing_is_decided_between_two_looks() -> None:
    earlier = 0
    for seed in range(3, 9):
        logs = noisy(0.02, 30, seed=seed, shift=0.03)
        counts = [counted(logs[:count]) for count in range(8, 31)]
        over = [count for count, at in enumerate(counts, 8) if at.is_over]
        assert over[0] in (8, 12, 18, 27)
        assert over == list(range(over[0], 31))
        verdicts = [at.verdict for at in counts[: over[0] - 8]]
        earlier += any(verdict is not None and verdict.is_decided for verdict in verdicts)
    assert earlier, "a look at each number of pairs would have decided sooner"


def test_the_most_pairs_limit_a_plan_and_say_so() -> None:
    most = counted(noisy(0.06, 20, seed=2), replace(PAIRING, most=20))
    assert (most.pairs, most.is_over, most.limit) == (20, True, "most")


@pytest.mark.parametrize("truth", [DelegateTruth.FULL, DelegateTruth.PARTIAL])
@pytest.mark.parametrize("whole", [0, 1, 2, 6])
def test_pairs_end_where_there_is_no_time_for_one(whole: int, truth: DelegateTruth) -> None:
    late = run(A, whole, None, outcome=Outcome.SKIPPED, reason_code=OUT_OF_TIME)
    runs = [run(A, number, 20_000 + 600 * (number % 3)) for number in range(whole)]
    runs += [run(B, number, 20_000, truth=truth, nodes=(20, 31)) for number in range(whole + 1)]
    begun = replace(campaign_of([*runs, late]), terms=Terms(pairing=PAIRING))
    progress = PairProgress(begun, A.serial, [*runs, late])
    assert progress.added() == []
    limits = [count.limit for count in progress.counts().values()]
    # The first pair shows whether the sides can be compared at all.
    assert limits == (["budget"] if whole else [])


def test_a_pause_between_a_crash_and_the_resume_is_no_part_of_what_a_pair_takes() -> None:
    def at(*seconds: float) -> Sequence[object]:
        return [
            replace(run(A, n), started_at=START + timedelta(seconds=s))
            for n, s in enumerate(seconds)
        ]

    assert pair_seconds(at(0, 5, 10, 15, 9000, 9005, 9010)) == 10.0  # type: ignore[arg-type]
    assert pair_seconds(at(0)) is None  # type: ignore[arg-type]
    # Two figures of each process.
    assert pair_seconds(at(0, 0, 5, 5, 10, 10, 15, 15)) == 10.0  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "last"), [("build", 3), ("model", 8)])
def test_a_first_pair_whose_sides_ran_in_different_places_is_followed_by_two(
    kind: str, last: int
) -> None:
    """A build that gives the delegate less is no slower build; a model that does so is another
    model.
    """

    def progress(numbers: range) -> PairProgress:
        runs = [run(A, number, 20_000 + 600 * (number % 3)) for number in numbers]
        runs += [
            run(B, number, 21_000, truth=DelegateTruth.PARTIAL, nodes=(20, 31))
            for number in numbers
        ]
        pairing = replace(PAIRING, kind=kind)
        return PairProgress(
            replace(campaign_of(runs), terms=Terms(pairing=pairing)), A.serial, runs
        )

    told = "ran in different places (xnnpack, full; xnnpack, partial)"
    begun = progress(PAIRING.first_numbers)
    assert {item.number for item in begun.added()} == set(range(2, last + 1))
    assert (told in begun.plan_text()) is (kind == "build")
    whole = progress(range(last + 1))
    assert (whole.added() == []) is (kind == "build")
    assert (told in whole.plan_text()) is (kind == "build")


def test_what_follows_is_told_with_the_difference_so_far() -> None:
    numbers = range(9)
    runs = [run(A, number, 20_000 + 900 * (number % 3)) for number in numbers]
    runs += [run(B, number, 20_600 + 700 * (number % 2)) for number in numbers]
    progress = PairProgress(
        replace(campaign_of(runs), terms=Terms(pairing=PAIRING)), A.serial, runs
    )
    assert progress.plan_text() == (
        "not decided yet: -0.4 % (-12.8 % to +13.6 %) after 8 pairs; 4 more pairs, about 8 min 00 s"
    )
