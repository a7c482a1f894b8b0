"""What stored, trusted figures advise. Pure; every rule speaks only where a difference is more than noise explains.

Only cases whose figure may be compared (``CaseResult.is_judged``) count: trusted, shown to be the delegate's, with
outputs that aren't known to be wrong. A case without a comparison of outputs is used, and its line says so.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from orchestrator.analysis.advice_case import (
    AdviceCase,
    advice_line,
    best_known,
    grouped,
    is_different,
    is_slower,
    known,
    times_as_long,
)
from orchestrator.analysis.case_result import comparable
from orchestrator.analysis.compare import best_of, speed_up, welch_error
from orchestrator.analysis.energy import ratio_of
from orchestrator.analysis.middle import t_quantile
from orchestrator.analysis.summary import LEVEL, Summary
from orchestrator.records.advice import Advice, AdviceReport
from orchestrator.records.evaluation import Evaluated
from orchestrator.records.parity import ParityVerdict
from orchestrator.records.run import DelegateTruth
from orchestrator.records.workload import all_but
from orchestrator.units import format_change, format_figure, format_latency, format_percent

#: Parts of a model's name that say its numbers' type and nothing else.
_TYPE_WORDS: Final = re.compile(
    r"[-_.](?:float(?:16|32)?|fp(?:16|32)|f(?:16|32)|u?int8|int16(?:x8)?|i8|quant(?:ized|ised)?|q8"
    r"|dynamic(?:[-_]?range)?|dynrange)"
    r"(?=$|[-_.])"
)
_QUANTISED: Final = re.compile(
    r"[-_.](?:u?int8|int16x8|i8|quant(?:ized|ised)?|q8|dynamic(?:[-_]?range)?|dynrange)(?=$|[-_.])"
)
#: Starts and memory have no interval here; in a front, what differs by less than this share is the same,
_SAME_SHARE: Final = 0.1
#: and what differs by less than this is the same to any app: a start by a millisecond, memory by half a MiB.
_SAME_START_US: Final = 1_000.0
_SAME_MEMORY_MIB: Final = 0.5
#: For the smallest detectable difference at a power of 0.8, beside the interval's own quantile.
_POWER_QUANTILE: Final = 0.8416
_MOST_OPERATORS: Final = 6
#: An operator, or a type of them, with this share of an inference is where work on a model pays.
_DOMINATING: Final = 0.5
#: Copies and conversions with this share together are worth a look at the model's types and layouts.
_MOVED_MOST: Final = 0.1
#: Operators and kernels that compute nothing: they copy, reorder or convert.
_MOVING: Final = re.compile(
    r"(?:copy|cast|convert|transpose|reshape|quantize|dequantize|identity|slice|strided_slice|split|split_v|pack|unpack"
    r"|concatenation|concatenate|pad|padv2|squeeze|expand_dims|static_reshape)(?:\b|_|\s)",
    re.IGNORECASE,
)

_BESIDE_THREADS: Final = all_but("threads")
#: Operators that run others, whose time is in theirs.
_WITH_SUBGRAPHS: Final = frozenset({"WHILE", "IF", "CALL_ONCE"})

#: What a front weighs beside latency: its name, what reads it (less is better), and what is the same in any case.
_Axis = tuple[str, Callable[[AdviceCase], float | None], float]


def advise(cases: Sequence[AdviceCase], *, inferences: int | None = None) -> AdviceReport:
    """Return all advice, model by model; ``inferences`` is how many an app makes with one start."""
    judged = [item for item in cases if item.result.is_judged]
    lines: list[Advice] = []
    for of_model in grouped(cases, lambda item: item.case.subject).values():
        # A virtual phone says nothing about a real one.
        for is_virtual in (False, True):
            own = [item for item in of_model if item.result.is_judged and item.is_virtual is is_virtual]
            groups = {
                serial: alike(found) for serial, found in grouped(own, lambda item: str(item.case.serial)).items()
            }
            if len(groups) > 1:
                lines += _fleet(groups)
            for members in groups.values():
                keyed = {item.case.case_key: item for item in members}
                best = best_of({key: item.summary for key, item in keyed.items()})
                if best is None:
                    continue
                first, tied = keyed[best.fastest], [keyed[key] for key in best.tied]
                lines += _best(members, first, tied, is_tested=best.is_tested)
                for rule in (
                    _pareto,
                    _accuracy,
                    _threads,
                    _energy_of_threads,
                    _over_big_cores,
                    _not_worth_it,
                    _partial,
                    _operators,
                ):
                    lines += rule(members)
                lines += _not_detectable(first, tied)
                lines += _break_even(members, inferences)
        lines += _wrong(of_model)
    lines += _quantised(judged)
    return AdviceReport(
        lines=tuple(lines), judged=len(judged), cases=len(cases), is_virtual=any(item.is_virtual for item in cases)
    )


def alike(members: Sequence[AdviceCase]) -> list[AdviceCase]:
    """Return one phone's cases with figures of one kind, medians or means."""
    results = comparable({item.case.case_key: item.result for item in members})
    if all(results.get(item.case.case_key) is item.result for item in members):
        return list(members)
    return [replace(item, result=results[item.case.case_key]) for item in members if item.case.case_key in results]


def fleet_choice(groups: Mapping[str, Sequence[AdviceCase]]) -> tuple[str, dict[str, float]] | None:
    """Return the configuration whose worst regret over all phones is smallest, with its regret on each.

    A regret is how much slower it is than the phone's own best, 0.1 for 10 %. None where no configuration was judged
    on every phone.
    """
    shared = set.intersection(*({item.name for item in members} for members in groups.values())) if groups else set()
    regrets: dict[str, dict[str, float]] = {name: {} for name in sorted(shared)}
    for serial, members in groups.items():
        # Of two alike (builds, rules of measuring) the one that is known best counts.
        centers = {item.name: item.center_us for item in sorted(members, key=known)}
        least = min(item.center_us for item in members)
        for name, of_name in regrets.items():
            of_name[serial] = centers[name] / least - 1
    if not regrets:
        return None
    best = min(regrets, key=lambda name: (max(regrets[name].values()), sum(regrets[name].values()), name))
    return best, regrets[best]


def _best(
    members: Sequence[AdviceCase], first: AdviceCase, tied: Sequence[AdviceCase], *, is_tested: bool
) -> Iterator[Advice]:
    text = f"use {first.name}: {format_figure(first.summary.median_us, is_per_token=first.case.is_per_token)}"
    if len(members) == 1:
        text += ", the only configuration with a figure that counts"
    if tied:
        text += f"; not told from it: {' | '.join(item.name for item in tied)}"
    if not is_tested:
        text += "; those with a single invocation aren't tested"
    text += _checked(first)
    yield advice_line("best", first, text, *tied)


def _checked(item: AdviceCase) -> str:
    if item.result.parity is ParityVerdict.SAME:
        return "; its outputs agree with the reference"
    if item.result.parity is None:
        return "; its outputs were not compared (pass parity)"
    return f"; the comparison of its outputs says '{item.result.parity}'"


def _fleet(groups: Mapping[str, Sequence[AdviceCase]]) -> Iterator[Advice]:
    some = next(iter(groups.values()))[0]
    everywhere = "all virtual phones" if some.is_virtual else "all phones"
    choice = fleet_choice(groups)
    if choice is None:
        yield advice_line("fleet", some, "no configuration has a figure that counts on every phone", device=everywhere)
        return
    name, regrets = choice
    chosen = {serial: best_known(groups[serial], name) for serial in regrets}
    told = ", ".join(f"{chosen[serial].device} +{regret:.0%}" for serial, regret in regrets.items())
    first, *others = chosen.values()
    text = f"one choice for all: {name}; against each phone's own best: {told}"
    yield advice_line("fleet", first, text, *others, device=everywhere)


def _pareto(members: Sequence[AdviceCase]) -> Iterator[Advice]:
    axes: list[_Axis] = [
        ("start", lambda item: item.init_us, _SAME_START_US),
        ("memory", lambda item: item.memory_mib, _SAME_MEMORY_MIB),
        ("energy", lambda item: item.energy_uj, 0.0),
        ("error", lambda item: item.parity_error, 0.0),
        ("accuracy", lambda item: None if item.accuracy is None else -item.accuracy, 0.0),
    ]
    # An axis that one of them has no figure for can't be weighed.
    used = [axis for axis in axes if all(axis[1](item) is not None for item in members)]
    if len(members) < 2 or not used:
        return

    front: list[AdviceCase] = []
    for item in sorted(members, key=lambda item: item.center_us):
        if not any(_beats(other, item, used) for other in front):
            front.append(item)
    names = ", ".join(("latency", *(name for name, _, _ in used)))
    told = "; ".join(f"{item.name} ({_weighed(item)})" for item in front)
    if len(front) < len(members):
        yield advice_line("pareto", front[0], f"not beaten at once in {names}: {told}", *front[1:])


def _accuracy(members: Sequence[AdviceCase]) -> Iterator[Advice]:
    """Say what a faster configuration costs in accuracy, against the most accurate one of the same metric."""
    known = [item for item in members if item.evaluated is not None and item.evaluated.percent is not None]
    for group in grouped(known, lambda item: item.evaluated.metric if item.evaluated else "").values():
        right = max(group, key=lambda item: (item.accuracy or 0.0, -item.center_us))
        for best in grouped(group, lambda item: item.case.delegate.value).values():
            item = min(best, key=lambda each: each.center_us)
            lost = (right.accuracy or 0.0) - (item.accuracy or 0.0)
            if lost <= 0 or not is_slower(right, item):
                continue
            images = "" if item.evaluated is None or not item.evaluated.count else f" on {item.evaluated.count} images"
            least = _told_apart(right.evaluated, item.evaluated)
            doubt = "" if least is None or lost > least else f"; so few images can't tell less than {least:.2g} apart"
            text = (
                f"{item.name} is faster than {right.name} and loses {lost:.2g} points of accuracy{images}: "
                f"{item.accuracy:.4g} against {right.accuracy:.4g} %{doubt}"
            )
            yield advice_line("loses-accuracy", item, text, right)


def _told_apart(*shares: Evaluated | None) -> float | None:
    """Return how many points two shares of so many images differ by chance, in 19 of 20; None for what is no share."""
    spread = 0.0
    for each in shares:
        if each is None or each.metric != "top-1" or not each.count or each.percent is None:
            return None
        spread += each.percent * (100 - each.percent) / each.count
    return 1.96 * math.sqrt(spread)


def _beats(one: AdviceCase, other: AdviceCase, axes: Sequence[_Axis]) -> bool:
    """Whether one is nowhere worse than another by more than what is the same, and somewhere better."""
    is_better = is_slower(other, one)
    for name, read, floor in axes:
        mine, its = read(one) or 0.0, read(other) or 0.0
        same = 0.0 if name == "accuracy" else max(floor, _SAME_SHARE * max(abs(mine), abs(its)))
        if mine > its + same:
            return False
        is_better = is_better or mine < its - same
    return is_better or one.center_us < other.center_us


def _weighed(item: AdviceCase) -> str:
    parts = [format_figure(item.summary.median_us, is_per_token=item.case.is_per_token)]
    parts += [f"starts in {format_latency(item.init_us)}"] if item.init_us is not None else []
    parts += [f"{item.memory_mib:.3g} MiB"] if item.memory_mib is not None else []
    parts += [f"{item.energy_uj / 1e3:.3g} mJ"] if item.energy_uj is not None else []
    parts += [f"error {item.parity_error:.2g}"] if item.parity_error is not None else []
    parts += [f"accuracy {item.accuracy:.4g} %"] if item.accuracy is not None else []
    return ", ".join(parts)


def _threads(members: Sequence[AdviceCase]) -> Iterator[Advice]:
    for group in grouped(members, lambda item: _BESIDE_THREADS(item.case)).values():
        if len({item.case.threads for item in group}) < 2:
            continue
        group.sort(key=lambda item: item.case.threads)
        fastest = min(group, key=lambda item: item.center_us)
        enough = next(item for item in group if item is fastest or not is_slower(item, fastest))
        what = enough.case.delegate.value
        if enough is not fastest:
            text = (
                f"{what}: {_threaded(enough)} enough; {fastest.case.threads} aren't faster by more than "
                f"noise ({times_as_long(enough, fastest)})"
            )
        elif enough.case.threads == min(item.case.threads for item in group):
            text = f"{what}: {_threaded(enough)} enough; none of more is faster"
        else:
            text = f"{what}: {_threaded(enough)} worth using"
        yield advice_line(
            "threads", enough, f"{text}{_flags_of(enough)}", *(item for item in group if item is not enough)
        )
        hurt = [item for item in group if item.case.threads > enough.case.threads and is_slower(item, enough)]
        if hurt:
            told = ", ".join(f"{item.case.threads} threads take {times_as_long(item, enough)}" for item in hurt)
            text = f"{what}: more threads hurt: {told} as long as {enough.case.threads}{_flags_of(enough)}"
            yield advice_line("more-threads-hurt", enough, text, *hurt)


def _energy_of_threads(members: Sequence[AdviceCase]) -> Iterator[Advice]:
    """What the fastest number of threads costs beside the one that takes least energy."""
    metered = [item for item in members if item.energy_uj is not None]
    for group in grouped(metered, lambda item: repr(replace(item.case, threads=0).to_row())).values():
        fastest = min(group, key=lambda item: item.center_us)
        frugal = min(group, key=lambda item: item.energy_uj or 0.0)
        ratio = ratio_of(fastest.energy_blocks, frugal.energy_blocks)
        if fastest is frugal or ratio is None or ratio.half_width is None or ratio.value <= 1 + ratio.half_width:
            continue
        threads = f"{frugal.case.threads} thread{'s' if frugal.case.threads > 1 else ''}"
        gain = (
            f"{format_percent(frugal.center_us / fastest.center_us - 1)} faster than {threads} and cost"
            if is_slower(frugal, fastest)
            else f"not shown to be faster than {threads}, and cost"
        )
        ends = [ratio.value / (1 + ratio.half_width) - 1, ratio.value * (1 + ratio.half_width) - 1]
        of = "a token" if fastest.case.is_per_token else "an inference"
        cost = f"{format_percent(ratio.value - 1)} more energy {of} [{', '.join(map(format_percent, ends))}]"
        text = f"{fastest.case.delegate.value}: {_threaded(fastest)} {gain} {cost}{_flags_of(fastest)}"
        yield advice_line("energy-of-threads", fastest, text, frugal)


def _threaded(item: AdviceCase) -> str:
    return "1 thread is" if item.case.threads == 1 else f"{item.case.threads} threads are"


def _flags_of(item: AdviceCase) -> str:
    return f" (with {' '.join(f'{name}={value}' for name, value in item.case.flags)})" if item.case.flags else ""


def _over_big_cores(members: Sequence[AdviceCase]) -> Iterator[Advice]:
    for group in grouped(members, lambda item: _BESIDE_THREADS(item.case)).values():
        over = [item for item in group if item.case.delegate.is_cpu and 0 < item.big_cores < item.case.threads]
        within = [item for item in group if item.case.threads <= item.big_cores]
        if not over or not within:
            continue
        best = min(within, key=lambda item: item.center_us)
        slow = [item for item in over if is_slower(item, best)]
        if slow:
            worst = max(slow, key=lambda item: item.center_us)
            cost = times_as_long(worst, best)
            text = (
                f"{worst.case.delegate.value}: {worst.case.threads} threads on {worst.big_cores} big cores take "
                f"{cost} as long as {best.case.threads}: stay on the big cores{_flags_of(worst)}"
            )
            yield advice_line("more-threads-than-big-cores", worst, text, best)


def _not_worth_it(members: Sequence[AdviceCase]) -> Iterator[Advice]:
    on_cpu = [item for item in members if item.case.delegate.is_cpu]
    if not on_cpu:
        return
    cpu = min(on_cpu, key=lambda item: item.center_us)
    others = [item for item in members if not item.case.delegate.is_cpu]
    for group in grouped(others, lambda item: item.case.delegate.value).values():
        best = min(group, key=lambda item: item.center_us)
        ratio = speed_up(cpu.summary, best.summary)
        if is_different(ratio) and ratio.value > 1:
            continue
        is_sure = is_different(ratio)
        verdict = "isn't worth it" if is_sure else "isn't shown to be worth it"
        why = f"takes {times_as_long(best, cpu)} as long as" if is_sure else "can't be told from"
        cost = ""
        if best.init_us is not None and cpu.init_us is not None and best.init_us > cpu.init_us:
            cost = f", and starts in {format_latency(best.init_us)} instead of {format_latency(cpu.init_us)}"
        text = f"{best.case.delegate.value} {verdict} for this model: its best, {best.name}, {why} {cpu.name}{cost}"
        yield advice_line("delegate-not-worth-it", best, text, cpu)


def _partial(members: Sequence[AdviceCase]) -> Iterator[Advice]:
    partial = [item for item in members if item.result.truth is DelegateTruth.PARTIAL]
    for group in grouped(partial, lambda item: item.case.delegate.value).values():
        first = min(group, key=lambda item: item.center_us)
        nodes = f"{first.delegated_nodes} of {first.total_nodes}" if first.total_nodes else "only a part of the"
        known = dict.fromkeys(first.cpu_operators)
        listed = ", ".join(f"{name} ({why})" if why else name for name, why in list(known)[:_MOST_OPERATORS])
        more = f" and {len(known) - _MOST_OPERATORS} more" if len(known) > _MOST_OPERATORS else ""
        replaced = (
            f"replace {listed}{more}" if listed else "the program didn't list which (see 'benchfarm model inspect')"
        )
        text = f"{first.case.delegate.value} takes {nodes} operators; to give it the whole model: {replaced}"
        yield advice_line("partial-delegation", first, text)


def _operators(members: Sequence[AdviceCase]) -> Iterator[Advice]:
    """What the fastest profiled configuration spends its time on: one operator, or moving data about."""
    profiled = [item for item in members if item.operators]
    if not profiled:
        return
    first = min(profiled, key=lambda item: item.center_us)
    kind, name, share = max(first.operators, key=lambda row: row[2])
    # A fused operator is called by all its tensors; the first names it.
    called = f"{kind} {re.split('[,;]', name.lstrip('['))[0].rstrip(']')}".strip()
    if kind in _WITH_SUBGRAPHS:
        called += ", a loop or branch whose own operators the report's profile lists"
    types: dict[str, list[float]] = {}
    for each, _, part in first.operators:
        types.setdefault(each, []).append(part)
    heaviest = max(types, key=lambda each: sum(types[each]))
    if share >= _DOMINATING:
        yield advice_line(
            "dominating-operator",
            first,
            f"{format_percent(share, 0)} of the time is one operator: {called}; look at it first ({first.name})",
        )
    elif sum(types[heaviest]) >= _DOMINATING:
        yield advice_line(
            "dominating-operator",
            first,
            f"{format_percent(sum(types[heaviest]), 0)} of the time is in {len(types[heaviest])} operators of one "
            f"type: {heaviest}; look at them first ({first.name})",
        )
    moving = {each: parts for each, parts in types.items() if _MOVING.match(each)}
    moved = sum(map(sum, moving.values()))
    if moved >= _MOVED_MOST:
        listed = ", ".join(
            f"{len(parts)} {each} {format_percent(sum(parts), 0)}"
            for each, parts in sorted(moving.items(), key=lambda entry: -sum(entry[1]))[:_MOST_OPERATORS]
        )
        between = f"; a delegate's and the CPU's operators alternate {first.islands} times" if first.islands > 1 else ""
        text = f"{format_percent(moved, 0)} of the time only moves or converts data: {listed}{between} ({first.name})"
        yield advice_line("moves-data", first, text)


def _break_even(members: Sequence[AdviceCase], inferences: int | None) -> Iterator[Advice]:
    timed = [(item, item.init_us) for item in members if item.init_us is not None]
    if len(timed) < 2:
        return
    if inferences is not None:
        totals = sorted(timed, key=lambda pair: pair[1] + inferences * pair[0].center_us)
        first, init_us = totals[0]
        total_us = init_us + inferences * first.center_us
        text = f"for {inferences} inferences with one start: {first.name}, {format_latency(total_us)} in all"
        yield advice_line("break-even", first, text, totals[1][0])
    fast, fast_init_us = min(timed, key=lambda pair: pair[0].center_us)
    # Of those that start sooner, the one that the fastest catches up with last is what it has to be weighed against.
    rivals = [
        ((fast_init_us - init_us) / (item.center_us - fast.center_us), item)
        for item, init_us in timed
        if init_us < fast_init_us and is_slower(item, fast)
    ]
    if rivals:
        count, rival = max(rivals, key=lambda pair: pair[0])
        needed = math.ceil(count)
        from_when = f"{needed:,} inferences with one start" if needed > 1 else "the first inference"
        text = f"{fast.name} starts later than {rival.name} and pays from {from_when} on"
        yield advice_line("break-even", fast, text, rival)


def _not_detectable(first: AdviceCase, tied: Sequence[AdviceCase]) -> Iterator[Advice]:
    # A single invocation shows nothing of what could be detected.
    tied = [item for item in tied if min(item.summary.count, first.summary.count) > 1]
    if not tied:
        return
    told = []
    for item in tied:
        least = _detectable(first.summary, item.summary)
        seen = format_change(item.center_us / first.center_us)
        told.append(f"{item.name} ({seen}; {format_percent(least)} would have shown)")
    text = f"below what these invocations can show, against {first.name}: {' | '.join(told)}; measure more to decide"
    yield advice_line("not-detectable", first, text, *tied)


def _detectable(one: Summary, other: Summary) -> float:
    error, degrees = welch_error(one.log_middle, other.log_middle)
    return math.expm1((t_quantile(0.5 + LEVEL / 2, degrees) + _POWER_QUANTILE) * error)


def _quantised(judged: Sequence[AdviceCase]) -> Iterator[Advice]:
    """Compare models whose names differ by their numbers' type only, each by its fastest configuration on a device."""
    groups = grouped(judged, lambda item: f"{item.is_virtual} {item.case.serial} {_stem(item.case.model_name)}")
    for _, group in sorted(groups.items()):
        models = grouped(alike(group), lambda item: item.case.subject)
        best = [min(members, key=lambda item: item.center_us) for members in models.values()]
        for small in (item for item in best if _is_quantised(item)):
            for large in (item for item in best if not _is_quantised(item)):
                ratio = speed_up(large.summary, small.summary)
                word = f"{ratio.value:.2f} times as fast as" if is_different(ratio) else "not told from"
                accuracy = ""
                if small.accuracy is not None and large.accuracy is not None:
                    accuracy = f", accuracy {small.accuracy - large.accuracy:+.1f} points"
                text = f"quantised, {small.name}: {word} {large.case.model_name} at its best, {large.name}{accuracy}"
                yield advice_line("quantised", small, text, large)


def _stem(name: str) -> str:
    return _TYPE_WORDS.sub("", name.lower())


def _is_quantised(item: AdviceCase) -> bool:
    return _QUANTISED.search(item.case.model_name.lower()) is not None


def _wrong(cases: Sequence[AdviceCase]) -> Iterator[Advice]:
    for item in cases:
        if item.result.parity is ParityVerdict.WRONG:
            figure = f" ({format_latency(item.result.summary.median_us)})" if item.result.summary else ""
            text = f"don't use {item.name}{figure}: its outputs are wrong ({item.result.parity_reason})"
            yield advice_line("wrong-outputs", item, text)
