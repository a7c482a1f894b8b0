"""An A/B comparison's plan: how many pairs, in which order, and which of those that ran count. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

from orchestrator.analysis.case_result import judge_case
from orchestrator.analysis.outcome import figure_us, of_one_kind
from orchestrator.analysis.pairs import PAIRS_MOST, pairs_for
from orchestrator.analysis.student import t_quantile
from orchestrator.analysis.trimming import degrees_of, middle
from orchestrator.records.campaign import Invocation
from orchestrator.records.identity import CaseKey
from orchestrator.records.run import RunRecord
from orchestrator.records.search import Pairing
from orchestrator.records.workload import Case, Pass

#: Which side of a pair goes first (0: baseline), pair by pair: A B | B A | B A | A B.
_LEADERS: Final = (0, 1, 1, 0)
#: With which probability two equal sides are to be called the same.
_EQUAL_POWER: Final = 0.8
#: Pairs that can't be used are made up for by at most so many more, against those that were planned.
_SPARE_SHARE: Final = 0.5
_SPARE_LEAST: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCount:
    """How many pairs of one thing on one device are to be counted, and why so many."""

    pairs: int
    #: The deviation of the pilot's log ratios; None when the pilot has too few usable pairs to say.
    log_std: float | None
    #: What kept it from more: ``most``, ``budget``, or ``pilot`` when the pilot gave nothing to plan with.
    limit: str = ""
    #: What would have been needed.
    needed: int = 0

    @property
    def most_tried(self) -> int:
        """Pairs that are run at the most, those that can't be used included."""
        return self.pairs + max(_SPARE_LEAST, math.ceil(_SPARE_SHARE * self.pairs)) if self.limit != "pilot" else 0


def usable_pairs(
    before: Sequence[RunRecord], after: Sequence[RunRecord], *, warmup: int
) -> dict[int, tuple[RunRecord, RunRecord]]:
    """Return the pairs of which both runs can be used, by number; a pair loses both when one of them can't.

    Pairs that warm the device aren't among them.
    """
    sides = []
    for runs in (before, after):
        counted = [run for run in runs if run.run_pass is Pass.TIMING and run.invocation >= warmup]
        used = set(judge_case(counted).used)
        sides.append({run.invocation: run for run in counted if run.run_id in used})
    return {number: (sides[0][number], sides[1][number]) for number in sorted(sides[0].keys() & sides[1].keys())}


def log_ratios(pairs: Iterable[tuple[RunRecord, RunRecord]]) -> list[float]:
    """Return the logarithm of candidate time / baseline time of each pair, both sides' figures of one kind."""
    pairs = tuple(pairs)
    kind, _ = of_one_kind([run for pair in pairs for run in pair])
    found = [(figure_us(before, kind), figure_us(after, kind)) for before, after in pairs]
    return [math.log(after_us / before_us) for before_us, after_us in found if before_us and after_us]


def planned_pairs(
    pairing: Pairing, pilot: Sequence[float], ratios: Sequence[float], *, pair_s: float | None, sides: int
) -> PairCount:
    """Return how many pairs to count, from the pilot's log ratios and, once those planned have run, from theirs.

    Eight pairs often look quieter than the phone is. So the spread of all planned pairs is looked at once more: only
    ever the spread, not the difference, which would make accidents look like changes.
    """
    first = count_pairs(pairing, pilot, pair_s=pair_s, sides=sides)
    if first.limit or len(ratios) < first.pairs:
        return first
    again = count_pairs(pairing, ratios[: first.pairs], pair_s=pair_s, sides=sides)
    return again if again.pairs > first.pairs else first


def count_pairs(pairing: Pairing, pilot: Sequence[float], *, pair_s: float | None, sides: int) -> PairCount:
    """Return how many pairs to count, from the pilot's log ratios.

    Enough to claim the wanted difference nearly always, and to call equal sides the same 8 times of 10. ``pair_s`` is
    what one pair takes, ``sides`` how many comparisons with processes of their own share the device's budget.
    """
    std = middle(pilot).std if pilot else None
    if std is None:
        return PairCount(pairs=len(pilot), log_std=None, limit="pilot")
    needed = max(
        pairs_for(pairing.detect, std, level=pairing.level, threshold=pairing.threshold),
        _pairs_to_call_equal(std, pairing.threshold, pairing.level),
        pairing.pilot,
    )
    pairs, limit = needed, ""
    if pairs > pairing.most:
        pairs, limit = pairing.most, "most"
    if pairing.budget_s is not None and pair_s:
        affordable = int(pairing.budget_s / (pair_s * sides)) - pairing.warmup
        if pairs > affordable:
            pairs, limit = max(pairing.pilot, affordable), "budget"
    return PairCount(pairs=pairs, log_std=std, limit=limit, needed=needed)


def _pairs_to_call_equal(std: float, threshold: float, level: float) -> int:
    """Return the pairs after which the interval of two equal sides lies within the threshold, 8 times of 10."""
    low, high = 2, PAIRS_MOST
    margin = math.log1p(threshold)
    while low < high:
        count = (low + high) // 2
        degrees = degrees_of(count)
        reach = t_quantile(0.5 + level / 2, degrees) + t_quantile(0.5 + _EQUAL_POWER / 2, degrees)
        if reach * std / math.sqrt(count) <= margin:
            high = count
        else:
            low = count + 1
    return low


def pair_seconds(runs: Sequence[RunRecord]) -> float | None:
    """Return what a pair takes on a device, from start to start; None for too few runs.

    The median over neighbours: a pause between a crash and the resume doesn't count.
    """
    # Figures of one process have one start.
    starts = sorted({run.started_at for run in runs})
    gaps = [(after - before).total_seconds() for before, after in pairwise(starts)]
    return 2 * median(gaps) if gaps else None


def pair_round(
    pairing: Pairing, cases: Mapping[CaseKey, Case], number: int, sides: Sequence[int], *, seed: int, serial: str
) -> list[Invocation]:
    """Return one pair of each of some sides (indices into ``pairing.sides``), in the order in which they run.

    The side that begins changes as A B, B A, B A, A B, so that a steady drift weighs on both alike; which one is
    first of all is drawn from the seed. The order of several comparisons is shuffled in each round. Those that one
    pair of processes answers (prefill and decode) begin with the same side, whichever of them starts it.
    """
    # For spreading drift, not for secrecy.
    shuffler = random.Random(f"{seed}:{serial}:{number}")  # noqa: S311
    order = list(sides)
    shuffler.shuffle(order)
    invocations = []
    for side in order:
        keys = pairing.sides[side]
        shared = "processes" if cases[keys[0]].tool.is_session else f"side {side}"
        first = random.Random(f"{seed}:{serial}:{shared}").randrange(2)  # noqa: S311
        leader = (_LEADERS[number % len(_LEADERS)] + first) % 2
        invocations += [
            Invocation(case=cases[keys[index]], run_pass=Pass.TIMING, number=number) for index in (leader, 1 - leader)
        ]
    return invocations
