"""An A/B comparison's plan: the order of pairs, which of them count, and when they are enough; and
what a phone can resolve, by sessions of one configuration (A/A). Pure.

On every device a pair runs first, which shows whether the sides can be compared at all. Then the
pairs are judged after 8, 12, 18 ... of them (interim looks), and end as soon as a change is shown
or ruled out (:func:`orchestrator.analysis.effect.compare_pairs`). All of it follows from the stored
runs, so that a resume plans the same pairs again.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from statistics import median
from typing import Final

from orchestrator.analysis.case_result import actual_of, judge_latency
from orchestrator.analysis.comparison import Fact, Rule, same_kind
from orchestrator.analysis.effect import (
    LOOKS,
    Pairs,
    compare_pairs,
    compare_samples,
    detectable_in_pairs,
    interim_counts,
    pairs_of,
)
from orchestrator.analysis.measured import judge_cases
from orchestrator.analysis.quality import of_one_kind
from orchestrator.analysis.rounds import SessionOf
from orchestrator.analysis.summary import session_noise, summarize
from orchestrator.records import frozen
from orchestrator.records.campaign import Campaign, Invocation, Pairing
from orchestrator.records.case import FIGURE_PASS, Case, CaseKey, Serial
from orchestrator.records.run import ABANDONED, FAILED_BEFORE, OUT_OF_TIME, Outcome, RunRecord
from orchestrator.records.verdict import ComparisonVerdict
from orchestrator.units import counted, format_change, format_duration, format_latency

#: Pairs of sides that can't be compared: enough for an interval of their ratio.
_INCOMPARABLE_PAIRS: Final = 3
#: Which side of a pair goes first (0: baseline), pair by pair: A B | B A | B A | A B.
_LEADERS: Final = (0, 1, 1, 0)
#: The reason code of runs that were left out -> the limit that ended their pairs.
_ENDS: Final = {OUT_OF_TIME: "budget", ABANDONED: "closed"}
#: At most this share of the pairs of a look, or this many, is added for pairs that can't be used.
_SPARE_SHARE: Final = 0.5
_SPARE_MIN: Final = 4


@frozen
class PairCount:
    """The pairs of one comparison on one device, and whether they are enough."""

    #: Usable pairs of the next look; all pairs once it is over.
    pairs: int
    #: Of the usable pairs so far; None for none.
    verdict: ComparisonVerdict | None = None
    #: What ended it without a decision: ``most``, ``budget``, ``closed``, ``places`` (the operators
    #: of the sides ran in different places) or ``unusable`` (too many pairs can't be used).
    limit: str = ""

    @property
    def is_over(self) -> bool:
        """Whether no further pair is needed; nothing is decided between two looks."""
        if self.limit or self.verdict is None:
            return bool(self.limit)
        return self.verdict.is_decided and self.verdict.counts[0] == self.pairs


def count_pairs(pairing: Pairing, pairs: Pairs) -> PairCount:
    """Return the number of pairs to count, from the latencies of those that ran."""
    interim, count = interim_counts(pairing.most), len(pairs)
    verdict = None
    if count:
        verdict = compare_pairs(
            pairs.baseline_us,
            pairs.candidate_us,
            pairing.change_rule,
            resolution_us=pairs.resolution_us,
        )
        is_at_look = count in interim or verdict.counts[0] < count
        if verdict.is_decided and is_at_look:
            return PairCount(pairs=verdict.counts[0], verdict=verdict)
    if count >= pairing.most:
        return PairCount(pairs=count, verdict=verdict, limit="most")
    return PairCount(pairs=next(look for look in interim if look > count), verdict=verdict)


def pair_seconds(runs: Sequence[RunRecord]) -> float | None:
    """Return the seconds of a pair on a device, from start to start; None for too few runs.

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
    """Return the indices of a device's sides; ``cases`` may be that device's alone."""
    return [
        side
        for side, (baseline, _) in enumerate(pairing.sides)
        if (case := cases.get(baseline)) is not None and case.serial == serial
    ]


def pairing_of(campaign: Campaign) -> Pairing:
    """Return the pairing of an A/B campaign."""
    assert campaign.terms.pairing is not None, "an A/B campaign has its pairing"
    return campaign.terms.pairing


class PairProgress:
    """The pairs of one device in an A/B campaign: those that ran, and those that follow."""

    def __init__(self, campaign: Campaign, serial: Serial, runs: Iterable[RunRecord]) -> None:
        self._seed = f"{campaign.seed}:{serial}"
        self._pairing = pairing_of(campaign)
        self._cases = {item.case.case_key: item.case for item in campaign.invocations}
        self._sides = _sides_of(self._pairing, self._cases, serial)
        self._runs: dict[CaseKey, list[RunRecord]] = {
            key: [] for side in self._sides for key in self._pairing.sides[side]
        }
        for run in runs:
            is_one = run.run_pass is FIGURE_PASS and run.is_final
            if is_one and run.case.case_key in self._runs:
                self._runs[run.case.case_key].append(run)
        self._measured = judge_cases(chain.from_iterable(self._runs.values()), [campaign])
        self._pairs = {side: self._pairs_of(side) for side in self._sides}

    def counts(self) -> dict[int, PairCount]:
        """Return each comparison's pair count, by its side.

        Empty before the first pair of all is complete.
        """
        first = set(self._pairing.first_numbers)
        if not all(first <= _numbers(runs) for runs in self._runs.values()):
            return {}
        return {side: self._count(side) for side in self._sides}

    def _count(self, side: int) -> PairCount:
        usable = self._pairs[side]
        count = count_pairs(self._pairing, usable)
        side_runs = [self._runs[key] for key in self._pairing.sides[side]]
        codes = {run.reason_code for runs in side_runs for run in runs}
        for code, limit in _ENDS.items():
            if not count.is_over and code in codes:
                return replace(count, pairs=len(usable), limit=limit)
        last = [max(runs, key=lambda run: run.invocation).reason_code for runs in side_runs if runs]
        if not count.is_over and FAILED_BEFORE in last:
            # One side isn't tried again, and the other alone makes no pair.
            return replace(count, pairs=len(usable), limit="unusable")
        if self.places(side):
            pairs = min(_INCOMPARABLE_PAIRS, count.pairs)
            return replace(count, pairs=pairs, limit="places" if len(usable) >= pairs else "")
        spare = max(_SPARE_MIN, math.ceil(_SPARE_SHARE * count.pairs))
        has_few = self._tried(side) >= LOOKS[0] and len(usable) < 2
        is_spent = has_few or self._tried(side) >= count.pairs + spare
        return replace(count, limit="unusable") if is_spent and not count.is_over else count

    def _tried(self, side: int) -> int:
        """Return the number of pairs of which both runs are stored, usable or not, without warm-up."""
        numbers = [_numbers(self._runs[key]) for key in self._pairing.sides[side]]
        return sum(number >= self._pairing.warmup for number in set.intersection(*numbers))

    def added(self) -> list[Invocation]:
        """Return the invocations up to the next look that aren't stored yet.

        Empty before the first pair is complete and when all is done. Pairs lost to unusable runs are
        replaced, up to a limit.
        """
        sides_by_number: dict[int, list[int]] = {}
        for side, count in self.counts().items():
            if count.is_over:
                continue
            missing = count.pairs - len(self._pairs[side])
            for pair in range(self._tried(side) + missing):
                sides_by_number.setdefault(self._pairing.warmup + pair, []).append(side)
        return [
            item
            for number, sides in sorted(sides_by_number.items())
            for item in pair_round(self._pairing, self._cases, number, sides, self._seed)
            if item.number not in _numbers(self._runs[item.case.case_key])
        ]

    def plan_text(self, session_of: SessionOf = lambda _: "") -> str:
        """Return the plan as text: the pairs until the next look, and their duration.

        Before the first look only whether the sides can be compared; empty when they can.
        """
        counts = self.counts()
        if places := next(filter(None, map(self.places, self._sides)), ()):
            return (
                f"the operators of the two sides ran in different places ({places[0]}; {places[1]}): the ratio of "
                f"{min(_INCOMPARABLE_PAIRS, self._pairing.most)} pairs is shown, no change is claimed, and no more are measured"
            )
        open_counts = {side: count for side, count in counts.items() if not count.is_over}
        if not open_counts or all(count.pairs <= LOOKS[0] for count in open_counts.values()):
            return ""
        # The same processes answer several: a language model's prefill and decode.
        missing = {
            session_of(self._cases[self._pairing.sides[side][0]]) or str(side): count.pairs
            - len(self._pairs[side])
            for side, count in open_counts.items()
        }
        pairs = sum(missing.values())
        pair_s = pair_seconds([run for runs in self._runs.values() for run in runs])
        duration = f", about {format_duration(pairs * pair_s)}" if pair_s else ""
        undecided = counted(len(open_counts), "comparison")
        if len(open_counts) == 1:
            ((side, count),) = open_counts.items()
            if (verdict := count.verdict) is not None:
                interval = f"{format_change(verdict.low)} to {format_change(verdict.high)}"
                after = counted(len(self._pairs[side]), "pair")
                undecided = f"{format_change(verdict.ratio)} ({interval}) after {after}"
        return f"not decided yet: {undecided}; {counted(pairs, 'more pair')}{duration}"

    def places(self, side: int) -> tuple[str, ...]:
        """Return the places where the sides' operators ran in the first pair, if these differ and
        prevent the comparison.

        Empty where they ran in one place, where nothing shows it, and where places are compared.
        """
        numbers = [number for _, number in self._pairs[side].rounds]
        if not numbers or Fact.TRUTH in Rule(varied=frozenset({Fact(self._pairing.kind)})).free:
            return ()
        keys = self._pairing.sides[side]
        before, after = (actual_of([self._measured[key].used_runs[min(numbers)]]) for key in keys)
        return (before, after) if before and after and before != after else ()

    def _pairs_of(self, side: int) -> Pairs:
        """Return the pairs that a comparison is made of; none where the sides' figures differ in
        kind.
        """
        keys = self._pairing.sides[side]
        if not self._measured.keys() >= set(keys):
            return Pairs()
        before, after, _ = same_kind(*(self._measured[key] for key in keys))
        if before.figure is not after.figure:
            return Pairs()
        baseline, candidate = before.summary, after.summary
        return pairs_of(baseline, candidate) if baseline and candidate else Pairs()


def _numbers(runs: Iterable[RunRecord]) -> set[int]:
    return {run.invocation for run in runs}


def pair_counts(campaign: Campaign, runs: Sequence[RunRecord]) -> dict[int, PairCount]:
    """Return the pair count of each of a campaign's sides, by its index.

    Sides without a complete first pair are left out.
    """
    serials = dict.fromkeys(item.case.serial for item in campaign.invocations)
    return {
        side: count
        for serial in serials
        for side, count in PairProgress(campaign, serial, runs).counts().items()
    }


def is_reusable(stored: Campaign, requested: Campaign) -> bool:
    """Whether a stored campaign already compares the requested cases: as finely, for as long."""
    pairing, requested_pairing = stored.terms.pairing, requested.terms.pairing
    return (
        pairing is not None
        and requested_pairing is not None
        and set(pairing.sides) == set(requested_pairing.sides)
        and pairing.detect <= requested_pairing.detect
        and pairing.change_rule == requested_pairing.change_rule
        and stored.terms.budget == requested.terms.budget
    )


#: The numbers of pairs for which the smallest visible change is listed.
_PAIRS: Final = (5, 10, 20, 40, 80)


@frozen
class Session:
    """One campaign of a configuration on one phone."""

    median_us: float
    seconds: float
    #: Logarithms of the ratios of neighbouring processes, in pairs.
    pairs: tuple[float, ...]
    processes: int
    #: One for each process, in the order of the runs.
    latencies_us: tuple[float, ...]


@frozen
class SmallestChange:
    """The smallest change that a comparison of some length can show."""

    how: str
    minutes: float
    change: float


@frozen
class Resolution:
    """The sessions of equal sides on a phone, and the changes that it can show."""

    serial: Serial
    title: str
    configuration: str
    sessions: tuple[Session, ...]

    @property
    def pair_noise(self) -> float | None:
        """The standard deviation of the ratio of two processes in turns; None with too few."""
        ratios = [ratio for session in self.sessions for ratio in session.pairs]
        return statistics.stdev(ratios) if len(ratios) > 2 else None

    @property
    def between(self) -> float | None:
        """The smallest change that 'benchfarm compare' usually detects between two sessions; None with
        fewer than three.
        """
        if len(self.sessions) < 3:
            return None
        latencies = [session.latencies_us for session in self.sessions]
        before, after = map(summarize, latencies[-2:])
        return compare_samples(before, after, sessions=session_noise(latencies)).detectable

    @property
    def visible(self) -> list[SmallestChange]:
        """The smallest visible changes, by the minutes of measuring."""
        count = sum(session.processes for session in self.sessions)
        process_s = sum(session.seconds for session in self.sessions) / count
        noise = self.pair_noise
        rows = [
            SmallestChange(
                how=f"ab, {pairs} pairs",
                minutes=2 * pairs * process_s / 60,
                change=detectable_in_pairs(noise, pairs),
            )
            for pairs in _PAIRS
            if noise is not None
        ]
        if (between := self.between) is not None:
            session_s = statistics.median(session.seconds for session in self.sessions)
            rows.append(
                SmallestChange(how="two sessions", minutes=2 * session_s / 60, change=between)
            )
        return rows

    @property
    def text(self) -> str:
        """The sessions in a sentence."""
        medians = [session.median_us for session in self.sessions]
        apart = format_change(max(medians) / min(medians))
        return (
            f"{self.serial} ({self.title}), {self.configuration}: {counted(len(medians), 'session')}, "
            f"{format_latency(min(medians))} to {format_latency(max(medians))} ({apart})"
        )


def campaign_session(runs: Sequence[RunRecord]) -> Session | None:
    """Return the session of one campaign's runs of a case; None where they have no figure."""
    summary = judge_latency(runs).own_summary
    ended = sorted(
        (run for run in runs if run.outcome is Outcome.COMPLETED), key=lambda run: run.started_at
    )
    figures = [latency_us for _, latency_us in of_one_kind(ended)[1]]
    if summary is None or not figures:
        return None
    return Session(
        median_us=summary.median_us,
        seconds=(ended[-1].ended_at - ended[0].started_at).total_seconds(),
        pairs=tuple(
            math.log(after / before)
            for before, after in zip(figures[::2], figures[1::2], strict=False)
        ),
        processes=len(figures),
        latencies_us=tuple(figures),
    )
