"""An A/B comparison's plan: in which order pairs run, which of them count, and when they are enough.

Pure.

On every device a pair runs first, which shows whether the sides can be compared at all. Then the
pairs are looked at after 8, 12, 18 ... of them, and end as soon as a change is shown or that there
is none (:func:`orchestrator.analysis.effect.compare_pairs`). All of it follows from the stored
runs, so that a resume plans the same pairs again.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Final

from orchestrator.analysis.case_result import judge_case
from orchestrator.analysis.comparison import Fact, Rule
from orchestrator.analysis.effect import LOOKS, compare_pairs, looks_of
from orchestrator.analysis.measured import actual_of
from orchestrator.analysis.outcome import pair_figures
from orchestrator.analysis.rounds import SessionOf
from orchestrator.frozen import frozen
from orchestrator.records.campaign import Campaign, Invocation, Pairing
from orchestrator.records.case import FIGURE_PASS, Case, CaseKey, Serial
from orchestrator.records.run import ABANDONED, FAILED_BEFORE, OUT_OF_TIME, Outcome, RunRecord
from orchestrator.records.verdict import ComparisonVerdict
from orchestrator.units import counted, format_change, format_duration

#: So many pairs are measured of sides that can't be compared: enough for an interval of their ratio.
_APART_PAIRS: Final = 3
#: Which side of a pair goes first (0: baseline), pair by pair: A B | B A | B A | A B.
_LEADERS: Final = (0, 1, 1, 0)
#: The code of runs that were left out -> what ended their pairs by it.
_ENDS: Final = {OUT_OF_TIME: "budget", ABANDONED: "closed"}
#: At most this share of the pairs of a look, or this many, is added for pairs that can't be used.
_SPARE_SHARE: Final = 0.5
_SPARE_LEAST: Final = 4


@frozen
class PairCount:
    """How many pairs of one thing on one device there are, and whether they are enough."""

    #: Usable pairs after which it is looked at next; so many as there are once it is over.
    pairs: int
    #: Of the usable pairs so far; None for none.
    verdict: ComparisonVerdict | None = None
    #: What ended it without a decision: ``most``, ``budget``, ``closed``, ``places`` (the operators
    #: of the sides ran in different places) or ``unusable`` (too many pairs can't be used).
    limit: str = ""

    @property
    def is_over(self) -> bool:
        """Whether no further pair is to be measured; between two looks nothing is decided."""
        if self.limit or self.verdict is None:
            return bool(self.limit)
        return self.verdict.is_decided and self.verdict.counts[0] == self.pairs


def usable_pairs(
    before: Sequence[RunRecord], after: Sequence[RunRecord], *, warmup: int
) -> dict[int, tuple[RunRecord, RunRecord]]:
    """Return the pairs of which both runs can be used, by number; a pair loses both when one of
    them can't.

    Pairs that warm the device aren't among them.
    """
    sides = []
    for runs in (before, after):
        counted = [run for run in runs if run.run_pass is FIGURE_PASS and run.invocation >= warmup]
        used = set(judge_case(counted).used)
        sides.append({run.invocation: run for run in counted if run.run_id in used})
    return {
        number: (sides[0][number], sides[1][number])
        for number in sorted(sides[0].keys() & sides[1].keys())
    }


def count_pairs(
    pairing: Pairing,
    baseline_us: Sequence[float],
    candidate_us: Sequence[float],
    *,
    resolution_us: float = 0.0,
) -> PairCount:
    """Return how many pairs to count, from the latencies of those that ran."""
    looks, count = looks_of(pairing.most), len(baseline_us)
    verdict = None
    if count:
        verdict = compare_pairs(
            baseline_us, candidate_us, pairing.claim, resolution_us=resolution_us
        )
        is_at_look = count in looks or verdict.counts[0] < count
        if verdict.is_decided and is_at_look:
            return PairCount(pairs=verdict.counts[0], verdict=verdict)
    if count >= pairing.most:
        return PairCount(pairs=count, verdict=verdict, limit="most")
    return PairCount(pairs=next(look for look in looks if look > count), verdict=verdict)


def pair_seconds(runs: Sequence[RunRecord]) -> float | None:
    """Return what a pair takes on a device, from start to start; None for too few runs.

    The median over neighbours: a pause between a crash and the resume doesn't count.
    """
    # Figures of one process have one start.
    starts = sorted({run.started_at for run in runs})
    gaps = [(after - before).total_seconds() for before, after in pairwise(starts)]
    return 2 * median(gaps) if gaps else None


def pair_round(
    pairing: Pairing,
    cases: Mapping[CaseKey, Case],
    number: int,
    sides: Sequence[int],
    seed: str,
) -> list[Invocation]:
    """Return one pair of each of some sides (indices into ``pairing.sides``), in the order in which
    they run.

    The side that begins changes as A B, B A, B A, A B, so that a steady drift weighs on both alike;
    which one is first of all is drawn from the seed (the campaign's and the device). The order of several comparisons is shuffled
    in each round. Those that one pair of processes answers (prefill and decode) begin with the same
    side, whichever of them starts it.
    """
    # For spreading drift, not for secrecy.
    shuffler = random.Random(f"{seed}:{number}")  # noqa: S311
    order = list(sides)
    shuffler.shuffle(order)
    invocations = []
    for side in order:
        keys = pairing.sides[side]
        shared = "processes" if cases[keys[0]].tool.is_session else f"side {side}"
        first = random.Random(f"{seed}:{shared}").randrange(2)  # noqa: S311
        leader = (_LEADERS[number % len(_LEADERS)] + first) % 2
        invocations += [
            Invocation(case=cases[keys[index]], run_pass=FIGURE_PASS, number=number)
            for index in (leader, 1 - leader)
        ]
    return invocations


def first_invocations(
    pairing: Pairing, cases: Mapping[CaseKey, Case], *, seed: int
) -> tuple[Invocation, ...]:
    """Return warm-up and first pair of all devices, each device's in the order in which it runs
    them.
    """
    return tuple(
        item
        for serial in dict.fromkeys(cases[baseline].serial for baseline, _ in pairing.sides)
        for number in pairing.first_numbers
        for item in pair_round(
            pairing, cases, number, _sides_of(pairing, cases, serial), f"{seed}:{serial}"
        )
    )


def _sides_of(pairing: Pairing, cases: Mapping[CaseKey, Case], serial: Serial) -> list[int]:
    """Return which sides are a device's; ``cases`` may be that device's alone."""
    return [
        side
        for side, (baseline, _) in enumerate(pairing.sides)
        if (case := cases.get(baseline)) is not None and case.serial == serial
    ]


class PairProgress:
    """What one device's runs of an A/B campaign come to, and which pairs follow."""

    def __init__(self, campaign: Campaign, serial: Serial, runs: Iterable[RunRecord]) -> None:
        assert campaign.terms.pairing is not None, "an A/B campaign has its pairing"
        self._seed = f"{campaign.seed}:{serial}"
        self._pairing = campaign.terms.pairing
        self._cases = {item.case.case_key: item.case for item in campaign.invocations}
        self._sides = _sides_of(self._pairing, self._cases, serial)
        self._runs: dict[CaseKey, list[RunRecord]] = {
            key: [] for side in self._sides for key in self._pairing.sides[side]
        }
        for run in runs:
            is_one = run.run_pass is FIGURE_PASS and run.outcome is not Outcome.UNFIT
            if is_one and run.case.case_key in self._runs:
                self._runs[run.case.case_key].append(run)

    def counts(self) -> dict[int, PairCount]:
        """Return how far each comparison is.

        Empty before the first pair of all is whole.
        """
        first = set(self._pairing.first_numbers)
        if not all(first <= _numbers(runs) for runs in self._runs.values()):
            return {}
        return {side: self._count(side) for side in self._sides}

    def _count(self, side: int) -> PairCount:
        usable = self._usable(side)
        before_us, after_us, resolution_us = pair_figures(usable.values())
        count = count_pairs(self._pairing, before_us, after_us, resolution_us=resolution_us)
        both = [self._runs[key] for key in self._pairing.sides[side]]
        codes = {run.reason_code for runs in both for run in runs}
        for code, limit in _ENDS.items():
            if not count.is_over and code in codes:
                return replace(count, pairs=len(usable), limit=limit)
        last = [max(runs, key=lambda run: run.invocation).reason_code for runs in both if runs]
        if not count.is_over and FAILED_BEFORE in last:
            # One side isn't tried again, and the other alone makes no pair.
            return replace(count, pairs=len(usable), limit="unusable")
        if self.places(side):
            pairs = min(_APART_PAIRS, count.pairs)
            return replace(count, pairs=pairs, limit="places" if len(usable) >= pairs else "")
        spare = max(_SPARE_LEAST, math.ceil(_SPARE_SHARE * count.pairs))
        has_few = self._tried(side) >= LOOKS[0] and len(usable) < 2
        is_spent = has_few or self._tried(side) >= count.pairs + spare
        return replace(count, limit="unusable") if is_spent and not count.is_over else count

    def _tried(self, side: int) -> int:
        """Return how many pairs ran whole, usable or not; those that warm the device are none."""
        both = [_numbers(self._runs[key]) for key in self._pairing.sides[side]]
        return sum(number >= self._pairing.warmup for number in set.intersection(*both))

    def added(self) -> list[Invocation]:
        """Return what follows and isn't stored: the pairs up to the next look.

        Empty before the first pair is whole and when all is done. As many as were lost to runs that
        can't be used are added, until too many are: the pairs are of one device in one state, and
        not for ever.
        """
        wanted: dict[int, list[int]] = {}
        for side, count in self.counts().items():
            if count.is_over:
                continue
            missing = count.pairs - len(self._usable(side))
            for pair in range(self._tried(side) + missing):
                wanted.setdefault(self._pairing.warmup + pair, []).append(side)
        return [
            item
            for number, sides in sorted(wanted.items())
            for item in pair_round(self._pairing, self._cases, number, sides, self._seed)
            if item.number not in _numbers(self._runs[item.case.case_key])
        ]

    def plan_text(self, session_of: SessionOf = lambda _: "") -> str:
        """Return what follows in words: pairs until the next look, and how long they take.

        Before the first look only whether the sides can be compared; empty when they can.
        """
        counts = self.counts()
        if apart := next(filter(None, map(self.places, self._sides)), ()):
            return (
                f"the operators of the two sides ran in different places ({apart[0]}; {apart[1]}): the ratio of "
                f"{min(_APART_PAIRS, self._pairing.most)} pairs is shown, no change is claimed, and no more are measured"
            )
        going = {side: count for side, count in counts.items() if not count.is_over}
        if not going or all(count.pairs <= LOOKS[0] for count in going.values()):
            return ""
        # The same processes answer several: a language model's prefill and decode.
        missing = {
            session_of(self._cases[self._pairing.sides[side][0]]) or str(side): count.pairs
            - len(self._usable(side))
            for side, count in going.items()
        }
        pairs = sum(missing.values())
        pair_s = pair_seconds([run for runs in self._runs.values() for run in runs])
        lasts = f", about {format_duration(pairs * pair_s)}" if pair_s else ""
        undecided = counted(len(going), "comparison")
        if len(going) == 1:
            ((side, count),) = going.items()
            if (verdict := count.verdict) is not None:
                interval = f"{format_change(verdict.low)} to {format_change(verdict.high)}"
                after = counted(len(self._usable(side)), "pair")
                undecided = f"{format_change(verdict.ratio)} ({interval}) after {after}"
        return f"not decided yet: {undecided}; {counted(pairs, 'more pair')}{lasts}"

    def places(self, side: int) -> tuple[str, ...]:
        """Return where the operators of a comparison's sides ran if that keeps them apart, as a
        first pair shows it.

        Empty where they ran in one place, where nothing shows it, and where the place is what is
        compared.
        """
        pairs = self._usable(side)
        if not pairs or Fact.TRUTH in Rule(varied=frozenset({Fact(self._pairing.kind)})).free:
            return ()
        first = pairs[min(pairs)]
        before, after = (actual_of([run]) for run in first)
        return (before, after) if before and after and before != after else ()

    def _usable(self, side: int) -> dict[int, tuple[RunRecord, RunRecord]]:
        baseline, candidate = (self._runs[key] for key in self._pairing.sides[side])
        return usable_pairs(baseline, candidate, warmup=self._pairing.warmup)


def _numbers(runs: Iterable[RunRecord]) -> set[int]:
    return {run.invocation for run in runs}


def pair_counts(campaign: Campaign, runs: Sequence[RunRecord]) -> dict[int, PairCount]:
    """Return how far each of a campaign's sides is.

    Those without a whole first look are left out.
    """
    serials = dict.fromkeys(item.case.serial for item in campaign.invocations)
    return {
        side: count
        for serial in serials
        for side, count in PairProgress(campaign, serial, runs).counts().items()
    }


def answers(known: Campaign, wanted: Campaign) -> bool:
    """Whether a campaign compares just the cases of another at least as finely, for as long."""
    pairing, asked = known.terms.pairing, wanted.terms.pairing
    return (
        pairing is not None
        and asked is not None
        and set(pairing.sides) == set(asked.sides)
        and pairing.detect <= asked.detect
        and pairing.claim == asked.claim
        and known.terms.budget == wanted.terms.budget
    )
