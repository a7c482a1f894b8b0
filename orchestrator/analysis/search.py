"""Which invocations a search still wants, and what it has found: successive halving cut by intervals. Pure.

Every configuration gets 1 invocation, those that may still be the fastest 2 in all, then 4 ... Successive halving
(Jamieson & Talwalkar, AISTATS 2016) drops half each time whatever the figures say; here what is dropped is what lies
wholly above the best's interval, so that a tie is never decided by the schedule. The spread of a single configuration's
two invocations says nothing: the intervals take the spread of all of them together, or its own from 4 invocations on
where that is larger.

All of it follows from what is stored, rung by rung from the first, so that a search that was killed goes on to the same
end, and one whose winner turns out to compute wrong numbers takes up again what that one had pushed out.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.analysis.case_result import OWN_FIGURE, CaseResult, CaseStatus, judge_case, parity_verdict
from orchestrator.analysis.middle import degrees_of, middle, t_quantile
from orchestrator.analysis.outcome import figure_us
from orchestrator.records.campaign import Campaign, Invocation
from orchestrator.records.identity import CaseKey, Serial
from orchestrator.records.parity import ParityVerdict
from orchestrator.records.run import Outcome, RunRecord
from orchestrator.records.search import ArmStatus, SearchArm, SearchRule, SearchStanding
from orchestrator.records.workload import Case, Pass
from orchestrator.units import counted

#: From this many on, a configuration's own spread counts where it is larger than all of them together.
_OWN_SPREAD_FROM: Final = 4
#: A configuration without a figure after this many invocations gets no more.
_TRIES: Final = 2
#: A search of fewer configurations isn't cut short by its budget.
_BUDGET_FROM: Final = 8
#: What a further invocation would only repeat.
_SETTLED: Final = frozenset({CaseStatus.FELL_BACK, CaseStatus.TIMED_OUT})
_ORDER: Final = {ArmStatus.LIVE: 0, ArmStatus.ASIDE: 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A configuration's stored invocations up to a rung."""

    case: Case
    result: CaseResult
    latencies_us: tuple[float, ...]
    count: int

    @property
    def center(self) -> float:
        return middle([math.log(value) for value in self.latencies_us]).value


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """Where the replay of a search has come to."""

    live: tuple[CaseKey, ...]
    out: Mapping[CaseKey, tuple[ArmStatus, str]]
    #: Of what is live, what the budget went past.
    aside: frozenset[CaseKey]
    wanted: tuple[Invocation, ...]
    ended_by: str


def next_search(campaign: Campaign, runs: Sequence[RunRecord], serial: Serial, rule: SearchRule) -> list[Invocation]:
    """Return what a search wants to be run next on a device; empty when it is over. ``runs`` are that device's."""
    wanted: list[Invocation] = []
    for cases in _models(campaign, serial).values():
        wanted += _replay(campaign, cases, runs, rule).wanted
    return wanted


def search_standings(campaign: Campaign, runs: Iterable[RunRecord], rule: SearchRule) -> list[SearchStanding]:
    """Return how a search stands, for each device and model."""
    known = list(runs)
    return [
        _standing(campaign, serial, cases, known, rule)
        for serial in dict.fromkeys(item.case.serial for item in campaign.invocations)
        for cases in _models(campaign, serial).values()
    ]


def _models(campaign: Campaign, serial: Serial) -> dict[str, list[Case]]:
    found: dict[str, dict[CaseKey, Case]] = {}
    for item in campaign.invocations:
        if item.case.serial == serial and item.run_pass is Pass.TIMING:
            found.setdefault(item.case.model_sha256, {})[item.case.case_key] = item.case
    return {sha256: list(cases.values()) for sha256, cases in found.items()}


def _replay(campaign: Campaign, cases: Sequence[Case], runs: Sequence[RunRecord], rule: SearchRule) -> _State:
    """Go through the rungs with what is stored, to the first that lacks something or to the end."""
    keys = {case.case_key: case for case in cases}
    mine: dict[CaseKey, list[RunRecord]] = {key: [] for key in keys}
    for run in runs:
        if run.case.case_key in mine and run.outcome is not Outcome.UNFIT:
            mine[run.case.case_key].append(run)
    out: dict[CaseKey, tuple[ArmStatus, str]] = {}
    for key, own in mine.items():
        verdict, reason, _ = parity_verdict(own)
        if verdict is ParityVerdict.WRONG:
            out[key] = (ArmStatus.WRONG, f"its outputs are wrong: {reason}")
    rung, ended_by = 1, ""
    aside: frozenset[CaseKey] = frozenset()
    while True:
        seen = {key: _seen(keys[key], mine[key], rung) for key in keys if key not in out}
        for key, arm in seen.items():
            if not arm.latencies_us and arm.count >= min(_TRIES, rung):
                word = arm.result.reason or arm.result.status.value
                # One failure may be an accident; the next rung's invocation settles it.
                if arm.count >= _TRIES or rung >= rule.most or arm.result.status in _SETTLED:
                    out[key] = (ArmStatus.FAILED, f"it has no figure of its own: {word}")
        live = [key for key in seen if key not in out]
        lacking = [
            Invocation(case=keys[key], run_pass=Pass.TIMING, number=number)
            for number in range(rung)
            for key in _shuffled(campaign, [key for key in live if key not in aside], number)
            if number not in {run.invocation for run in mine[key] if run.run_pass is Pass.TIMING}
        ]
        if lacking:
            return _State(live=tuple(live), out=out, aside=aside, wanted=tuple(lacking), ended_by="")
        out |= _cut({key: seen[key] for key in live}, rung, rule)
        live = [key for key in live if key not in out]
        if not live:
            ended_by = "nothing-left"
        elif len(live) == 1 and seen[live[0]].latencies_us:
            ended_by = "one-left"
        elif _are_alike([seen[key] for key in live], rule):
            ended_by = "alike"
        elif rung >= rule.most:
            ended_by = "most"
        else:
            # Whatever has left since, somebody has to go on.
            going = [key for key in live if key not in aside] or live
            afforded = _afforded({key: seen[key] for key in going}, mine, rung, rule)
            aside = frozenset(live) - afforded
            ended_by = "" if len(afforded) > 1 else "budget"
        if ended_by:
            return _State(live=tuple(live), out=out, aside=aside, wanted=(), ended_by=ended_by)
        rung = min(2 * rung, rule.most)


def _afforded(
    going: Mapping[CaseKey, _Seen], mine: Mapping[CaseKey, Sequence[RunRecord]], rung: int, rule: SearchRule
) -> frozenset[CaseKey]:
    """Return which configurations the budget has another rung for: all, or the fastest that it pays for, at least one.

    With few configurations there is little to save, and each deserves its processes. Only invocations up to this rung
    are looked at, so that a search comes to the same however much of it is stored.
    """
    if len(mine) < _BUDGET_FROM or rule.budget >= 1:
        return frozenset(going)
    known = {key: [run for run in runs if run.invocation < rung] for key, runs in mine.items()}
    left_s = rule.budget * _full_s(known.values(), rule) - sum(map(_timed_s, known.values()))
    # Outputs are compared once, at the end, for each that is left.
    more = min(2 * rung, rule.most) - rung + (1 if rule.parity else 0)
    afforded: list[CaseKey] = []
    for key in sorted(going, key=lambda key: going[key].center if going[key].latencies_us else math.inf):
        left_s -= more * _invocation_s(known[key])
        if left_s < 0 and afforded:
            break
        afforded.append(key)
    return frozenset(afforded)


def _full_s(by_case: Iterable[Sequence[RunRecord]], rule: SearchRule) -> float:
    """Return the seconds that the full product would take; it gives a case up that fails twice, too."""
    return sum(
        _invocation_s(runs) * (rule.most if any(run.outcome is Outcome.COMPLETED for run in runs) else _TRIES)
        for runs in by_case
    )


def _timed_s(runs: Sequence[RunRecord]) -> float:
    return sum(run.duration_s for run in runs if run.run_pass is Pass.TIMING)


def _invocation_s(runs: Sequence[RunRecord]) -> float:
    count = sum(run.run_pass is Pass.TIMING for run in runs)
    return _timed_s(runs) / count if count else 0.0


def _shuffled(campaign: Campaign, keys: Sequence[CaseKey], number: int) -> list[CaseKey]:
    order = sorted(keys)
    random.Random(f"{campaign.seed}:search:{number}").shuffle(order)  # noqa: S311 - spreads drift, hides nothing
    return order


def _seen(case: Case, runs: Sequence[RunRecord], rung: int) -> _Seen:
    own = [run for run in runs if run.run_pass is Pass.TIMING and run.invocation < rung]
    result = judge_case(own)
    used = [run for run in own if result.status in OWN_FIGURE and run.run_id in result.used]
    figures = [latency_us for run in used if (latency_us := figure_us(run, result.figure)) is not None]
    return _Seen(case=case, result=result, latencies_us=tuple(figures), count=len(own))


def _cut(seen: Mapping[CaseKey, _Seen], rung: int, rule: SearchRule) -> dict[CaseKey, tuple[ArmStatus, str]]:
    """Return what is dropped after a rung, with the reason."""
    ends = _intervals(seen, rule)
    figures = {key: arm for key, arm in seen.items() if arm.latencies_us}
    if len(figures) < 2:
        return {}
    best = min(figures, key=lambda key: figures[key].center)
    found = {}
    for key, arm in figures.items():
        slower = math.exp(arm.center - figures[best].center)
        if ends[key][0] > ends[best][1] if key in ends and best in ends else slower > rule.gross:
            after = f"after {counted(rung, 'invocation')}"
            found[key] = (ArmStatus.DROPPED, f"{slower:.2f} times the best's latency {after}")
    return found


def _intervals(seen: Mapping[CaseKey, _Seen], rule: SearchRule) -> dict[CaseKey, tuple[float, float]]:
    """Return the interval of the middle of each one's logarithms; none while nothing is known of their spread."""
    logs = {key: [math.log(value) for value in arm.latencies_us] for key, arm in seen.items()}
    many = {key: values for key, values in logs.items() if len(values) > 1}
    degrees = sum(degrees_of(len(values)) for values in many.values())
    if not degrees:
        return {}
    middles = {key: middle(values) for key, values in logs.items() if values}
    squares = sum(degrees_of(len(values)) * (middles[key].std or 0.0) ** 2 for key, values in many.items())
    pooled = math.sqrt(squares / degrees)
    found = {}
    for key, values in logs.items():
        if not values:
            continue
        own = middles[key].std or 0.0
        count = len(values)
        is_own = count >= _OWN_SPREAD_FROM and own > pooled
        spread, freedom = (own, degrees_of(count)) if is_own else (pooled, degrees)
        reach = t_quantile(0.5 + rule.level / 2, freedom) * spread / math.sqrt(count)
        found[key] = (middles[key].value - reach, middles[key].value + reach)
    return found


def _are_alike(arms: Sequence[_Seen], rule: SearchRule) -> bool:
    """Whether the intervals of all survivors together are so narrow that the choice among them doesn't matter."""
    ends = _intervals({arm.case.case_key: arm for arm in arms}, rule)
    if len(ends) < len(arms) or len(arms) < 2:
        return False
    return max(high for _, high in ends.values()) - min(low for low, _ in ends.values()) <= math.log1p(rule.alike)


def _standing(
    campaign: Campaign, serial: Serial, cases: Sequence[Case], runs: Sequence[RunRecord], rule: SearchRule
) -> SearchStanding:
    mine = [run for run in runs if run.case.serial == serial]
    state = _replay(campaign, cases, mine, rule)
    by_case = {case.case_key: [run for run in mine if run.case.case_key == case.case_key] for case in cases}
    seen = {case.case_key: _seen(case, by_case[case.case_key], rule.most) for case in cases}
    ends = _intervals(seen, rule)
    arms = []
    for key, arm in seen.items():
        status, reason = state.out.get(key, (ArmStatus.LIVE, ""))
        if key in state.aside and key not in state.out:
            status, reason = ArmStatus.ASIDE, "not shown to be slower; the budget went to faster ones"
        low, high = ends.get(key, (None, None))
        arms.append(
            SearchArm(
                case=arm.case,
                status=status,
                used=arm.result.used if arm.latencies_us else (),
                latency_us=math.exp(arm.center) if arm.latencies_us else None,
                low_us=None if low is None else math.exp(low),
                high_us=None if high is None else math.exp(high),
                reason=reason,
                parity=parity_verdict(by_case[key])[0],
            )
        )
    taken = [run for own in by_case.values() for run in own if run.outcome is not Outcome.UNFIT]
    return SearchStanding(
        serial=serial,
        model_name=cases[0].model_name,
        model_sha256=cases[0].model_sha256,
        arms=tuple(sorted(arms, key=lambda arm: (_ORDER.get(arm.status, len(_ORDER)), arm.latency_us or math.inf))),
        is_over=bool(state.ended_by),
        ended_by=state.ended_by,
        invocations=sum(run.run_pass is Pass.TIMING for run in taken),
        device_s=sum(run.duration_s for run in taken),
        full_invocations=rule.most * len(cases),
        full_s=_full_s([[run for run in own if run.outcome is not Outcome.UNFIT] for own in by_case.values()], rule),
    )
