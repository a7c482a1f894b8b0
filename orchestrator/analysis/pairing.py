"""An A/B comparison's plan: how many pairs, in which order, and which of those that ran count.

Pure.

On every device a pair runs first, which shows whether the sides can be compared at all, then a
pilot, then as many pairs as its noise requires. All of it follows from the stored runs, so that a
resume plans the same pairs again.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

from orchestrator.analysis.case_result import judge_case
from orchestrator.analysis.compare import compare_pairs, fewest, pairs_for
from orchestrator.analysis.matching import measured_cases
from orchestrator.analysis.middle import degrees_of, middle, t_quantile
from orchestrator.analysis.outcome import figure_us, of_one_kind
from orchestrator.records.campaign import Campaign, Invocation
from orchestrator.records.identity import CaseKey, Serial
from orchestrator.records.pairing import Pairing
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.tokens import FIGURE
from orchestrator.records.verdict import ComparisonVerdict
from orchestrator.records.workload import FIGURE_PASS, Case
from orchestrator.units import format_duration, format_percent

#: Kinds of sides whose operators may run in different places: that belongs to what is compared.
PLACE_FREE: Final = frozenset({"delegate", "model"})
#: So many pairs are measured of sides that can't be compared: enough for an interval of their ratio.
_APART_PAIRS: Final = 3
#: Which side of a pair goes first (0: baseline), pair by pair: A B | B A | B A | A B.
_LEADERS: Final = (0, 1, 1, 0)
#: With which probability two equal sides are to be called the same.
_EQUAL_POWER: Final = 0.8
#: At most this share of the planned pairs, or this many, is added for pairs that can't be used.
_SPARE_SHARE: Final = 0.5
_SPARE_LEAST: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class PairCount:
    """How many pairs of one thing on one device are to be counted, and why."""

    pairs: int
    #: The deviation of the pilot's log ratios; None when the pilot has too few usable pairs to say.
    log_std: float | None
    #: What kept it from more: ``most``, ``budget``, or ``pilot`` when the pilot gave nothing to
    #: plan with.
    limit: str = ""
    #: What would have been needed.
    needed: int = 0

    @property
    def most_tried(self) -> int:
        """At most this many pairs are run, those that can't be used included."""
        return (
            self.pairs + max(_SPARE_LEAST, math.ceil(_SPARE_SHARE * self.pairs))
            if self.limit != "pilot"
            else 0
        )


def usable_pairs(
    before: Sequence[RunRecord], after: Sequence[RunRecord], *, warmup: int
) -> dict[int, tuple[RunRecord, RunRecord]]:
    """Return the pairs of which both runs can be used, by number.

    A pair loses both when one of them can't.

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


def log_ratios(pairs: Iterable[tuple[RunRecord, RunRecord]]) -> list[float]:
    """Return the logarithm of candidate time / baseline time of each pair, both sides' figures of
    one kind.
    """
    pairs = tuple(pairs)
    kind, _ = of_one_kind([run for pair in pairs for run in pair])
    found = [(figure_us(before, kind), figure_us(after, kind)) for before, after in pairs]
    return [
        math.log(after_us / before_us) for before_us, after_us in found if before_us and after_us
    ]


def planned_pairs(
    pairing: Pairing,
    pilot: Sequence[float],
    ratios: Sequence[float],
    *,
    pair_s: float | None,
    sides: int,
) -> PairCount:
    """Return how many pairs to count, from the pilot's log ratios and, once those planned have run,
    from theirs.

    Eight pairs often look quieter than the phone is. So the spread of all planned pairs is looked
    at once more: only ever the spread, not the difference, which would make accidents look like
    changes.
    """
    first = count_pairs(pairing, pilot, pair_s=pair_s, sides=sides)
    if first.limit or len(ratios) < first.pairs:
        return first
    again = count_pairs(pairing, ratios[: first.pairs], pair_s=pair_s, sides=sides)
    return again if again.pairs > first.pairs else first


def count_pairs(
    pairing: Pairing, pilot: Sequence[float], *, pair_s: float | None, sides: int
) -> PairCount:
    """Return how many pairs to count, from the pilot's log ratios.

    Enough to claim the wanted difference nearly always, and to call equal sides the same 8 times of
    10. ``pair_s`` is what one pair takes, ``sides`` how many comparisons with processes of their
    own share the device's budget.
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
    """Return the pairs after which the interval of two equal sides lies within the threshold, 8
    times of 10.
    """

    def is_enough(count: int) -> bool:
        degrees = degrees_of(count)
        reach = t_quantile(0.5 + level / 2, degrees) + t_quantile(0.5 + _EQUAL_POWER / 2, degrees)
        return reach * std / math.sqrt(count) <= math.log1p(threshold)

    return fewest(is_enough)


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
    *,
    seed: int,
    serial: str,
) -> list[Invocation]:
    """Return one pair of each of some sides (indices into ``pairing.sides``), in the order in which
    they run.

    The side that begins changes as A B, B A, B A, A B, so that a steady drift weighs on both alike;
    which one is first of all is drawn from the seed. The order of several comparisons is shuffled
    in each round. Those that one pair of processes answers (prefill and decode) begin with the same
    side, whichever of them starts it.
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
            pairing, cases, number, _sides_of(pairing, cases, serial), seed=seed, serial=serial
        )
    )


def _sides_of(pairing: Pairing, cases: Mapping[CaseKey, Case], serial: Serial) -> list[int]:
    return [
        side for side, (baseline, _) in enumerate(pairing.sides) if cases[baseline].serial == serial
    ]


class PairProgress:
    """What one device's runs of an A/B campaign come to, and which pairs follow."""

    def __init__(self, campaign: Campaign, serial: Serial, runs: Iterable[RunRecord]) -> None:
        assert campaign.terms.pairing is not None, "an A/B campaign has its pairing"
        self._seed = campaign.seed
        self._serial = serial
        self._pairing = campaign.terms.pairing
        self._cases = {item.case.case_key: item.case for item in campaign.invocations}
        self._sides = _sides_of(self._pairing, self._cases, serial)
        #: Comparison -> what those share that the same processes answer: a language model's prefill
        #: and decode.
        self._process = {side: self._process_of(side) for side in self._sides}
        self._runs: dict[CaseKey, list[RunRecord]] = {
            key: [] for side in self._sides for key in self._pairing.sides[side]
        }
        for run in runs:
            self.learn(run)

    def learn(self, run: RunRecord) -> None:
        """Take note of a stored run; one that the device wasn't fit for is still open."""
        if run.outcome is not Outcome.UNFIT and run.case.case_key in self._runs:
            self._runs[run.case.case_key].append(run)

    def counts(self) -> dict[int, PairCount]:
        """Return how many pairs each comparison needs, as the pilot says.

        Empty before the pilot is whole.
        """
        pilots = {side: self._pilot_of(side) for side in self._sides}
        if not all(map(self._has, self._sides, pilots.values())):
            return {}
        first = self._pairing.pilot_numbers
        pair_s = pair_seconds(
            [run for runs in self._runs.values() for run in runs if run.invocation in first]
        )
        return {
            side: planned_pairs(
                self._pairing,
                log_ratios(
                    pair for number, pair in self._usable(side).items() if number in pilots[side]
                ),
                log_ratios(self._usable(side).values()),
                pair_s=pair_s,
                sides=len(set(self._process.values())),
            )
            for side in self._sides
        }

    def added(self) -> list[Invocation]:
        """Return what follows the first pair and isn't stored.

        Empty before that is whole and when all is done.

        The pilot, then up to the planned pairs, then as many as were lost to runs that can't be
        used, until those run out too: the pairs are of one device in one state, and not for ever.
        """
        wanted: dict[int, list[int]] = {}
        counts = self.counts()
        if not counts and all(self._has(side, self._pairing.first_numbers) for side in self._sides):
            for side in self._sides:
                for number in self._pilot_of(side):
                    wanted.setdefault(number, []).append(side)
        for side, count in counts.items():
            missing = count.pairs - len(self._usable(side))
            if count.limit == "pilot" or missing <= 0 or self.places(side):
                continue
            tried = set.intersection(*(self._numbers(key) for key in self._pairing.sides[side]))
            for pair in range(min(len(tried) + missing, count.most_tried)):
                wanted.setdefault(self._pairing.warmup + pair, []).append(side)
        return [
            item
            for number, sides in sorted(wanted.items())
            for item in pair_round(
                self._pairing, self._cases, number, sides, seed=self._seed, serial=self._serial
            )
            if item.number not in self._numbers(item.case.case_key, every=True)
        ]

    def _pilot_of(self, side: int) -> range:
        """Return the numbers of warm-up and pilot; sides that ran in different places need no more
        than shows their ratio.
        """
        numbers = self._pairing.pilot_numbers
        return numbers[: self._pairing.warmup + _APART_PAIRS] if self.places(side) else numbers

    def _has(self, side: int, numbers: range) -> bool:
        """Whether both cases of a comparison have these numbers."""
        return all(
            set(numbers) <= self._numbers(key, every=True) for key in self._pairing.sides[side]
        )

    def plan_text(self) -> str:
        """Return what the pilot means in words: how many pairs, why, and how long they take.

        Before the pilot only whether the sides can be compared; empty when they can.
        """
        counts, added = self.counts(), self.added()
        if apart := next(filter(None, map(self.places, self._sides)), ()):
            return (
                f"the operators of the two sides ran in different places ({apart[0]}; {apart[1]}): the ratio of "
                f"{min(_APART_PAIRS, self._pairing.pilot)} pairs is shown, no change is claimed, and no more are measured"
            )
        if not counts:
            return ""
        processes: dict[str, int] = {}
        for side, count in counts.items():
            processes[self._process[side]] = max(count.pairs, processes.get(self._process[side], 0))
        noises = [count.log_std for count in counts.values() if count.log_std is not None]
        pair_s = pair_seconds([run for runs in self._runs.values() for run in runs])
        left = {
            (self._process[side], item.number, place)
            for side in self._sides
            for place, key in enumerate(self._pairing.sides[side])
            for item in added
            if item.case.case_key == key
        }
        noise = f", as pairs differ by {format_percent(max(noises))}" if noises else ""
        lasts = f", about {format_duration(len(left) / 2 * pair_s)} more" if pair_s else ""
        text = f"{sum(processes.values())} pairs are planned{noise}{lasts}"
        for limit, needed in {count.limit: count.needed for count in counts.values()}.items():
            if limit in {"most", "budget"}:
                word = "the maximum allowed" if limit == "most" else "what the budget allows"
                text += f"; that is {word}, {needed} would be needed"
        return text

    def places(self, side: int) -> tuple[str, ...]:
        """Return where the operators of a comparison's sides ran if that keeps them apart, as a
        first pair shows it.

        Empty where they ran in one place, where nothing shows it, and where the place is what is
        compared.
        """
        pairs = self._usable(side)
        if not pairs or self._pairing.kind in PLACE_FREE:
            return ()
        first = pairs[min(pairs)]
        before, after = (measured_cases([run], devices={}, builds={})[0].actual for run in first)
        return (before, after) if before and after and before != after else ()

    def side_of(self, key: CaseKey) -> str:
        """Return the name of the side that a case belongs to: ``A, build old``.

        Empty for another case.
        """
        for letter, label, place in (
            ("A", self._pairing.baseline, 0),
            ("B", self._pairing.candidate, 1),
        ):
            if any(pair[place] == key for pair in self._pairing.sides):
                return f"{letter}, {label}"
        return ""

    def so_far(self, run: RunRecord) -> ComparisonVerdict | None:
        """Return how the sides of a run compare after it.

        None while its pair isn't whole, or only warms the device.
        """
        side = next(
            (side for side in self._sides if run.case.case_key in self._pairing.sides[side]), None
        )
        pairs = {} if side is None else self._usable(side)
        if run.invocation not in pairs or not (logs := log_ratios(pairs.values())):
            return None
        found = compare_pairs(
            [1.0] * len(logs), [math.exp(log) for log in logs], level=self._pairing.level
        )
        return found if found.ratio is not None else None

    def _process_of(self, side: int) -> str:
        cases = [self._cases[key] for key in self._pairing.sides[side]]
        rows = [
            case.to_row() | {"flags": [flag for flag in case.flags if flag[0] != FIGURE]}
            for case in cases
        ]
        return (
            json.dumps(rows, sort_keys=True, default=str) if cases[0].tool.is_session else str(side)
        )

    def _usable(self, side: int) -> dict[int, tuple[RunRecord, RunRecord]]:
        baseline, candidate = (self._runs[key] for key in self._pairing.sides[side])
        return usable_pairs(baseline, candidate, warmup=self._pairing.warmup)

    def _numbers(self, key: CaseKey, *, every: bool = False) -> set[int]:
        """Return the stored numbers of a case.

        Those that only warm the device are left out unless ``every``.
        """
        return {
            run.invocation
            for run in self._runs[key]
            if every or run.invocation >= self._pairing.warmup
        }


def pair_counts(campaign: Campaign, runs: Sequence[RunRecord]) -> dict[int, PairCount]:
    """Return how many pairs each of a campaign's sides is planned to have.

    Those without a whole pilot are left out.
    """
    serials = dict.fromkeys(item.case.serial for item in campaign.invocations)
    return {
        side: count
        for serial in serials
        for side, count in PairProgress(campaign, serial, runs).counts().items()
    }


def equal_campaign(campaigns: Sequence[Campaign], pairing: Pairing) -> Campaign | None:
    """Return the first campaign that compares just these cases at least as finely.

    None when there is none.
    """
    for campaign in campaigns:
        known = campaign.terms.pairing
        if (
            known is not None
            and set(known.sides) == set(pairing.sides)
            and known.detect <= pairing.detect
            and (known.level, known.threshold) == (pairing.level, pairing.threshold)
            and (known.most, known.budget_s) == (pairing.most, pairing.budget_s)
        ):
            return campaign
    return None
