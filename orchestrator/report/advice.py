"""What a report's clean figures advise; every rule speaks only where a difference is more than noise explains.

Only cases whose figure may be compared (``CaseResult.is_judged``) count: trusted, shown to be the delegate's, with
outputs that aren't known to be wrong. A case without a comparison of outputs is used, and its line says so.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from orchestrator.analysis.compare import Ratio, speed_up, welch_error
from orchestrator.analysis.middle import t_quantile
from orchestrator.analysis.summary import LEVEL
from orchestrator.records.advice import Advice, AdviceReport
from orchestrator.records.evaluation import Evaluated
from orchestrator.records.identity import RunId
from orchestrator.records.parity import ParityVerdict
from orchestrator.records.run import DelegateTruth
from orchestrator.records.verdict import Quality
from orchestrator.records.workload import all_but, grouped
from orchestrator.report.data import ReportData
from orchestrator.report.escapes import visible
from orchestrator.report.rows import ResultRow
from orchestrator.report.winners import Contest, alike, figure_of
from orchestrator.units import counted, format_change, format_figure, format_latency, format_percent

#: Every rule with the source of what it goes by.
SOURCES: Final[Mapping[str, str]] = {
    "best": "the fastest and its ties by Welch's interval (docs/internals/statistics.md)",
    "fleet": "smallest worst regret over the phones (minimax regret, Savage 1951)",
    "pareto": "what nothing else beats in latency, start, memory, energy and error at once",
    "threads": "Welch's interval (docs/internals/statistics.md); ai.google.dev/edge/litert/performance/best_practices",
    "energy-of-threads": "paired blocks by Student's t (docs/reference/energy.md); Welch's interval of latencies",
    "more-threads-than-big-cores": "the phone's clusters as probed, and the figures (docs/reference/findings.md)",
    "not-detectable": "what these invocations would show at 95 % with power 0.8 (docs/internals/statistics.md)",
    "more-threads-hurt": "Welch's interval (docs/internals/statistics.md); "
    "ai.google.dev/edge/litert/performance/best_practices",
    "delegate-not-worth-it": "Welch's interval; ai.google.dev/edge/litert/performance/delegates",
    "partial-delegation": "the operators as the program listed them; ai.google.dev/edge/litert/performance/delegates",
    "quantised": "Welch's interval; ai.google.dev/edge/litert/models/post_training_quantization",
    "break-even": "initialisation + inferences x latency, equal for both (docs/guides/choose-a-delegate.md)",
    "dominating-operator": "the operators' times in the pass profile; what one can gain is its share (Amdahl 1967)",
    "moves-data": "the operators' times in the pass profile; ai.google.dev/edge/litert/performance/best_practices",
    "loses-accuracy": "LiteRT's evaluation programs on the device itself; Wald's interval of a share of the images",
    "wrong-outputs": "the comparison with the reference (docs/guides/parity.md)",
}
#: Parts of a model's name that say its numbers' type and nothing else: of a quantised one, and of any.
_QUANTISED_WORDS: Final = r"u?int8|int16x8|i8|quant(?:ized|ised)?|q8|dynamic(?:[-_]?range)?|dynrange"
_QUANTISED: Final = re.compile(rf"[-_.](?:{_QUANTISED_WORDS})(?=$|[-_.])")
_TYPE_WORDS: Final = re.compile(rf"[-_.](?:float(?:16|32)?|fp(?:16|32)|f(?:16|32)|int16|{_QUANTISED_WORDS})(?=$|[-_.])")
#: Two figures of which one is a single invocation's differ beyond this factor: far more than what two processes of
#: one configuration differ by (docs/evidence.md).
_UNTESTED_FACTOR: Final = 1.25
#: Starts and memory have no interval here; in a front, what differs by less than this share is the same.
_SAME_SHARE: Final = 0.1
#: For the smallest detectable difference at a power of 0.8, beside the interval's own quantile.
_POWER_QUANTILE: Final = 0.8416
_MOST_OPERATORS: Final = 6
#: An operator, or a type of them, with this share of an inference is where work on a model pays.
_DOMINATING: Final = 0.5
#: Copies and conversions with this share together are a reason to check the model's types and layouts.
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


def _energy_uj(row: ResultRow) -> float | None:
    is_clean = row.energy is not None and row.energy.quality is Quality.TRUSTED
    return row.energy.net_uj.value if is_clean and row.energy and row.energy.net_uj else None


#: What a front weighs beside latency: what it is called, what reads it (less is better), by how much it must differ to
#: be noticed by any app, and how it is told.
_AXES: Final[Sequence[tuple[str, Callable[[ResultRow], float | None], float, Callable[[float], str]]]] = (
    ("start", lambda row: row.init_us, 1_000.0, lambda value: f"starts in {format_latency(value)}"),
    ("memory", lambda row: row.overall_memory_mib, 0.5, lambda value: f"{value:.3g} MiB"),
    ("energy", _energy_uj, 0.0, lambda value: f"{value / 1e3:.3g} mJ"),
    ("error", lambda row: row.result.parity_error, 0.0, lambda value: f"error {value:.2g}"),
    (
        "accuracy",
        lambda row: None if row.accuracy is None else -row.accuracy,
        0.0,
        lambda value: f"accuracy {-value:.4g} %",
    ),
)


def advice_of(data: ReportData, *, inferences: int | None = None) -> AdviceReport:
    """Return all advice, model by model; ``inferences`` is how many an app makes with one start."""
    lines: list[Advice] = []
    contests = grouped(data.contests, lambda item: item.shown.model.subject)
    for subject, rows in grouped(data.results, lambda row: row.model.subject).items():
        of_model = [item for item in contests.get(subject, ()) if item.best is not None]
        for is_virtual in (False, True):
            # A virtual phone says nothing about a real one.
            own = [item for item in of_model if item.shown.is_virtual is is_virtual]
            if len(own) > 1:
                lines += _fleet({item.shown.device.serial: item.clean for item in own})
            for contest in own:
                lines.append(_best(contest))
                for rule in _RULES:
                    lines += rule(contest.clean)
                lines += _not_detectable(contest)
                lines += _break_even(contest.clean, inferences)
        lines += _wrong(rows)
    judged = [row for row in data.results if row.compared is not None]
    lines += _quantised(judged)
    return AdviceReport(
        lines=tuple(lines),
        judged=len(judged),
        cases=len(data.results),
        is_virtual=any(row.is_virtual for row in data.results),
    )


def _line(rule: str, about: ResultRow, text: str, *shown: ResultRow, device: str = "") -> Advice:
    """Return a line of a rule about a case, with the runs of all cases that show it."""
    runs: dict[RunId, None] = {}
    for row in (about, *shown):
        runs |= dict.fromkeys(row.result.used)
    name, where = about.case.model_name, device or about.device.title
    return Advice(rule=rule, model=name, device=where, text=text, evidence=tuple(runs), source=SOURCES[rule])


def _center_us(row: ResultRow) -> float:
    """Return the middle that ratios are made of."""
    return math.exp(figure_of(row).log_middle.value)


def _fastest(rows: Iterable[ResultRow]) -> ResultRow:
    return min(rows, key=_center_us)


def _is_slower(row: ResultRow, than: ResultRow) -> bool:
    """Whether a case is slower by more than noise explains."""
    ratio = speed_up(figure_of(than), figure_of(row))
    return _is_different(ratio) and ratio.value < 1


def _is_different(ratio: Ratio) -> bool:
    """Whether a difference is more than noise explains; without an interval, more than a wide margin."""
    if ratio.interval is None:
        return abs(math.log(ratio.value)) > math.log(_UNTESTED_FACTOR)
    return ratio.differs


def _times_as_long(row: ResultRow, than: ResultRow) -> str:
    """Return how much longer a case takes: ``1.34 times [1.31, 1.37]``."""
    ratio = speed_up(figure_of(row), figure_of(than))
    interval = ratio.interval
    ends = f" [{interval.low:.2f}, {interval.high:.2f}]" if interval is not None else " (single invocation, not tested)"
    return f"{ratio.value:.2f} times{ends}"


def _figure(row: ResultRow) -> str:
    return format_figure(figure_of(row).median_us, is_per_token=row.case.is_per_token)


def _name(row: ResultRow) -> str:
    return row.case.configuration


def _best(contest: Contest) -> Advice:
    first, parity = contest.shown, contest.shown.result.parity
    text = f"use {_name(first)}: {_figure(first)}"
    if contest.is_alone:
        text += ", the only configuration with a figure that counts"
    if contest.tied:
        text += f"; not told from it: {' | '.join(map(_name, contest.tied))}"
    if not contest.is_tested:
        text += "; those with a single invocation aren't tested"
    if parity is None:
        text += "; its outputs were not compared (pass parity)"
    elif parity is ParityVerdict.SAME:
        text += "; its outputs agree with the reference"
    else:
        text += f"; the comparison of its outputs says '{parity}'"
    return _line("best", first, text, *contest.tied)


def fleet_choice(groups: Mapping[str, Sequence[ResultRow]]) -> tuple[Sequence[ResultRow], Sequence[float]] | None:
    """Return the configuration whose worst regret over all phones is smallest: its case and regret on each phone.

    A regret is how much slower it is than the phone's own best, 0.1 for 10 %. None where no configuration was judged
    on every phone.
    """
    known: list[dict[str, ResultRow]] = []
    for rows in groups.values():
        # Of two alike (builds, rules of measuring) the one with most invocations counts.
        named = grouped(rows, _name)
        known.append({name: max(alike, key=lambda row: figure_of(row).count) for name, alike in named.items()})
    best_us = [_center_us(_fastest(rows)) for rows in groups.values()]
    choices = []
    for name in sorted(set.intersection(*map(set, known)) if known else ()):
        chosen = [of_phone[name] for of_phone in known]
        choices.append((chosen, [_center_us(row) / us - 1 for row, us in zip(chosen, best_us, strict=True)]))
    return min(choices, key=lambda choice: (max(choice[1]), sum(choice[1])), default=None)


def _fleet(groups: Mapping[str, Sequence[ResultRow]]) -> Iterator[Advice]:
    some = next(iter(groups.values()))[0]
    everywhere = "all virtual phones" if some.is_virtual else "all phones"
    choice = fleet_choice(groups)
    if choice is None:
        yield _line("fleet", some, "no configuration has a figure that counts on every phone", device=everywhere)
        return
    rows, regrets = choice
    told = ", ".join(f"{row.device.title} +{regret:.0%}" for row, regret in zip(rows, regrets, strict=True))
    text = f"one choice for all: {_name(rows[0])}; against each phone's own best: {told}"
    yield _line("fleet", rows[0], text, *rows[1:], device=everywhere)


def _pareto(rows: Sequence[ResultRow]) -> Iterator[Advice]:
    # An axis that one of them has no figure for can't be weighed.
    used = [axis for axis in _AXES if all(axis[1](row) is not None for row in rows)]
    if len(rows) < 2 or not used:
        return

    def beats(one: ResultRow, other: ResultRow) -> bool:
        """Whether one is nowhere worse than another by more than what is the same, and somewhere better."""
        is_better = _is_slower(other, one)
        for name, read, floor, _ in used:
            mine, its = read(one) or 0.0, read(other) or 0.0
            same = 0.0 if name == "accuracy" else max(floor, _SAME_SHARE * max(abs(mine), abs(its)))
            if mine > its + same:
                return False
            is_better = is_better or mine < its - same
        return is_better or _center_us(one) < _center_us(other)

    def weighed(row: ResultRow) -> str:
        known = [told(value) for _, read, _, told in _AXES if (value := read(row)) is not None]
        return f"{_name(row)} ({', '.join([_figure(row), *known])})"

    front: list[ResultRow] = []
    for row in sorted(rows, key=_center_us):
        if not any(beats(other, row) for other in front):
            front.append(row)
    if len(front) < len(rows):
        names = ", ".join(("latency", *(name for name, *_ in used)))
        text = f"not beaten at once in {names}: {'; '.join(map(weighed, front))}"
        yield _line("pareto", front[0], text, *front[1:])


def _accuracy(rows: Sequence[ResultRow]) -> Iterator[Advice]:
    """Say what a faster configuration costs in accuracy, against the most accurate one of the same metric."""
    known = [row for row in rows if row.evaluation is not None]
    for group in grouped(known, lambda row: _found(row).metric).values():
        right = max(group, key=lambda row: (row.accuracy or 0.0, -_center_us(row)))
        for members in grouped(group, lambda row: row.case.delegate).values():
            row = _fastest(members)
            lost = (right.accuracy or 0.0) - (row.accuracy or 0.0)
            if lost <= 0 or not _is_slower(right, row):
                continue
            images = f" on {_found(row).count} images" if _found(row).count else ""
            least = _told_apart(_found(right), _found(row))
            doubt = "" if least is None or lost > least else f"; so few images can't tell less than {least:.2g} apart"
            text = (
                f"{_name(row)} is faster than {_name(right)} and loses {lost:.2g} points of accuracy{images}: "
                f"{row.accuracy:.4g} against {right.accuracy:.4g} %{doubt}"
            )
            yield _line("loses-accuracy", row, text, right)


def _found(row: ResultRow) -> Evaluated:
    assert row.evaluation is not None, "it was evaluated"
    assert row.evaluation.found is not None, "what has a percentage was found"
    return row.evaluation.found


def _told_apart(*shares: Evaluated) -> float | None:
    """Return how many points two shares of so many images differ by chance, in 19 of 20; None for what is no share."""
    spread = 0.0
    for each in shares:
        if each.metric != "top-1" or not each.count or each.percent is None:
            return None
        spread += each.percent * (100 - each.percent) / each.count
    return 1.96 * math.sqrt(spread)


def _threads(rows: Sequence[ResultRow]) -> Iterator[Advice]:
    for group in grouped(rows, lambda row: _BESIDE_THREADS(row.case)).values():
        if len({row.case.threads for row in group}) < 2:
            continue
        group.sort(key=lambda row: row.case.threads)
        fastest = _fastest(group)
        enough = next(row for row in group if row is fastest or not _is_slower(row, fastest))
        count = enough.case.threads
        what, flags = enough.case.delegate.value, _flags_of(enough)
        threads = f"{counted(enough.case.threads, 'thread')} {'is' if count == 1 else 'are'}"
        if enough is not fastest:
            noise = f"noise ({_times_as_long(enough, fastest)})"
            text = f"{what}: {threads} enough; {fastest.case.threads} aren't faster by more than {noise}"
        elif count == group[0].case.threads:
            text = f"{what}: {threads} enough; none of more is faster"
        else:
            text = f"{what}: {threads} worth using"
        yield _line("threads", enough, f"{text}{flags}", *(row for row in group if row is not enough))
        hurt = [row for row in group if row.case.threads > count and _is_slower(row, enough)]
        if hurt:
            told = ", ".join(f"{row.case.threads} threads take {_times_as_long(row, enough)}" for row in hurt)
            text = f"{what}: more threads hurt: {told} as long as {count}{flags}"
            yield _line("more-threads-hurt", enough, text, *hurt)


def _energy_of_threads(rows: Sequence[ResultRow]) -> Iterator[Advice]:
    """Say what the fastest number of threads costs beside the one that takes least energy."""
    metered = [(row, row.energy) for row in rows if _energy_uj(row) is not None and row.energy is not None]
    for group in grouped(metered, lambda pair: _BESIDE_THREADS(pair[0].case)).values():
        fastest, its = min(group, key=lambda pair: _center_us(pair[0]))
        frugal, least = min(group, key=lambda pair: _energy_uj(pair[0]) or 0.0)
        many, fewer = (counted(row.case.threads, "thread") for row in (fastest, frugal))
        ratio = its.against(least)
        if fastest is frugal or ratio is None or ratio.half_width is None or ratio.value <= 1 + ratio.half_width:
            continue
        gain = f"not shown to be faster than {fewer}, and cost"
        if _is_slower(frugal, fastest):
            faster = format_percent(_center_us(frugal) / _center_us(fastest) - 1)
            gain = f"{faster} faster than {fewer} and cost"
        ends = [ratio.value / (1 + ratio.half_width) - 1, ratio.value * (1 + ratio.half_width) - 1]
        of = "a token" if fastest.case.is_per_token else "an inference"
        cost = f"{format_percent(ratio.value - 1)} more energy {of} [{', '.join(map(format_percent, ends))}]"
        are = "is" if fastest.case.threads == 1 else "are"
        text = f"{fastest.case.delegate.value}: {many} {are} {gain} {cost}{_flags_of(fastest)}"
        yield _line("energy-of-threads", fastest, text, frugal)


def _over_big_cores(rows: Sequence[ResultRow]) -> Iterator[Advice]:
    for group in grouped(rows, lambda row: _BESIDE_THREADS(row.case)).values():
        facts = group[0].device.facts
        big = len(facts.big_cores) if facts is not None else 0
        within = [row for row in group if row.case.threads <= big]
        over = [row for row in group if row.case.delegate.is_cpu and 0 < big < row.case.threads]
        slow = [row for row in over if within and _is_slower(row, _fastest(within))]
        if slow:
            worst, best = max(slow, key=_center_us), _fastest(within)
            cost = f"{_times_as_long(worst, best)} as long as {best.case.threads}"
            what = f"{worst.case.delegate.value}: {worst.case.threads} threads on {big} big cores take {cost}"
            text = f"{what}: stay on the big cores{_flags_of(worst)}"
            yield _line("more-threads-than-big-cores", worst, text, best)


def _flags_of(row: ResultRow) -> str:
    return f" (with {' '.join(f'{name}={value}' for name, value in row.case.flags)})" if row.case.flags else ""


def _not_worth_it(rows: Sequence[ResultRow]) -> Iterator[Advice]:
    on_cpu = [row for row in rows if row.case.delegate.is_cpu]
    if not on_cpu:
        return
    cpu = _fastest(on_cpu)
    others = [row for row in rows if not row.case.delegate.is_cpu]
    for delegate, group in grouped(others, lambda row: row.case.delegate.value).items():
        best = _fastest(group)
        ratio = speed_up(figure_of(cpu), figure_of(best))
        is_sure = _is_different(ratio)
        if is_sure and ratio.value > 1:
            continue
        verdict = "isn't worth it" if is_sure else "isn't shown to be worth it"
        why = f"takes {_times_as_long(best, cpu)} as long as" if is_sure else "can't be told from"
        cost = ""
        if best.init_us is not None and cpu.init_us is not None and best.init_us > cpu.init_us:
            cost = f", and starts in {format_latency(best.init_us)} instead of {format_latency(cpu.init_us)}"
        text = f"{delegate} {verdict} for this model: its best, {_name(best)}, {why} {_name(cpu)}{cost}"
        yield _line("delegate-not-worth-it", best, text, cpu)


def _partial(rows: Sequence[ResultRow]) -> Iterator[Advice]:
    partial = [row for row in rows if row.result.truth is DelegateTruth.PARTIAL]
    for delegate, group in grouped(partial, lambda row: row.case.delegate.value).items():
        first = _fastest(group)
        found = first.delegate
        nodes = (
            f"{found.delegated_nodes} of {found.total_nodes}" if found and found.total_nodes else "only a part of the"
        )
        left = f"replace {first.left_to_cpu}" if first.left_to_cpu else "the program didn't list which"
        hint = "" if first.left_to_cpu else " (see 'benchfarm model inspect')"
        text = f"{delegate} takes {nodes} operators; to give it the whole model: {left}{hint}"
        yield _line("partial-delegation", first, text)


def _operators(rows: Sequence[ResultRow]) -> Iterator[Advice]:
    """What the fastest profiled configuration spends its time on: one operator, or moving data about."""
    profiled = [row for row in rows if row.profiles]
    if not profiled:
        return
    first = _fastest(profiled)
    profile = first.profiles[-1]
    operators = [each for each in profile.rows if not each.is_partition]
    if not operators:
        return
    types: dict[str, list[float]] = defaultdict(list)
    for each in operators:
        types[each.node_type].append(each.share)
    shares = {name: sum(parts) for name, parts in types.items()}
    most = max(operators, key=lambda each: each.share)
    heaviest = max(shares, key=lambda name: shares[name])
    if most.share >= _DOMINATING:
        # A fused operator is called by all its tensors; the first names it.
        called = f"{most.node_type} {re.split('[,;]', most.name.lstrip('['))[0].rstrip(']')}".strip()
        if most.node_type in _WITH_SUBGRAPHS:
            called += ", a loop or branch whose own operators the report's profile lists"
        text = f"{format_percent(most.share, 0)} of the time is one operator: {called}; look at it first"
        yield _line("dominating-operator", first, f"{text} ({_name(first)})")
    elif shares[heaviest] >= _DOMINATING:
        text = f"{format_percent(shares[heaviest], 0)} of the time is in {len(types[heaviest])} operators of one type"
        yield _line("dominating-operator", first, f"{text}: {heaviest}; look at them first ({_name(first)})")
    moving = sorted((name for name in types if _MOVING.match(name)), key=lambda name: -shares[name])
    moved = sum(shares[name] for name in moving)
    if moved >= _MOVED_MOST:
        listed = ", ".join(
            f"{len(types[name])} {name} {format_percent(shares[name], 0)}" for name in moving[:_MOST_OPERATORS]
        )
        turns = profile.islands
        between = f"; a delegate's and the CPU's operators alternate {turns} times" if turns > 1 else ""
        text = f"{format_percent(moved, 0)} of the time only moves or converts data: {listed}{between}"
        yield _line("moves-data", first, f"{text} ({_name(first)})")


def _break_even(rows: Sequence[ResultRow], inferences: int | None) -> Iterator[Advice]:
    timed = [(row, row.init_us) for row in rows if row.init_us is not None]
    if len(timed) < 2:
        return
    if inferences is not None:
        totals = sorted((init_us + inferences * _center_us(row), place) for place, (row, init_us) in enumerate(timed))
        first, second = (timed[place][0] for _, place in totals[:2])
        text = f"for {inferences} inferences with one start: {_name(first)}, {format_latency(totals[0][0])} in all"
        yield _line("break-even", first, text, second)
    fast, fast_init_us = min(timed, key=lambda pair: _center_us(pair[0]))
    # Of those that start sooner, the one that the fastest catches up with last is what it has to be weighed against.
    rivals = [
        ((fast_init_us - init_us) / (_center_us(row) - _center_us(fast)), row)
        for row, init_us in timed
        if init_us < fast_init_us and _is_slower(row, fast)
    ]
    if rivals:
        count, rival = max(rivals, key=lambda pair: pair[0])
        needed = math.ceil(count)
        from_when = f"{needed:,} inferences with one start" if needed > 1 else "the first inference"
        text = f"{_name(fast)} starts later than {_name(rival)} and pays from {from_when} on"
        yield _line("break-even", fast, text, rival)


def _not_detectable(contest: Contest) -> Iterator[Advice]:
    first = contest.shown
    told, shown = [], []
    for row in contest.tied:
        one, other = figure_of(first), figure_of(row)
        # A single invocation shows nothing of what could be detected.
        if min(one.count, other.count) > 1:
            error, degrees = welch_error(one.log_middle, other.log_middle)
            least = math.expm1((t_quantile(0.5 + LEVEL / 2, degrees) + _POWER_QUANTILE) * error)
            seen = format_change(_center_us(row) / _center_us(first))
            told.append(f"{_name(row)} ({seen}; {format_percent(least)} would have shown)")
            shown.append(row)
    if told:
        text = f"below what these invocations can show, against {_name(first)}: {' | '.join(told)}"
        yield _line("not-detectable", first, f"{text}; measure more to decide", *shown)


_RULES: Final = (
    _pareto,
    _accuracy,
    _threads,
    _energy_of_threads,
    _over_big_cores,
    _not_worth_it,
    _partial,
    _operators,
)


def _quantised(judged: Sequence[ResultRow]) -> Iterator[Advice]:
    """Compare models whose names differ by their numbers' type only, each by its fastest configuration on a device."""

    def twins(row: ResultRow) -> tuple[bool, str, str]:
        return row.is_virtual, row.device.serial, _TYPE_WORDS.sub("", row.case.model_name.lower())

    for _, group in sorted(grouped(judged, twins).items()):
        figures = alike({row.key: row.result for row in group})
        same_kind = [
            row if row.compared is figures[row.key] else replace(row, compared=figures[row.key])
            for row in group
            if row.key in figures
        ]
        best = [_fastest(rows) for rows in grouped(same_kind, lambda row: row.model.subject).values()]
        for small in (row for row in best if _QUANTISED.search(row.case.model_name.lower())):
            for large in (row for row in best if not _QUANTISED.search(row.case.model_name.lower())):
                ratio = speed_up(figure_of(large), figure_of(small))
                word = f"{ratio.value:.2f} times as fast as" if _is_different(ratio) else "not told from"
                accuracy = ""
                if small.accuracy is not None and large.accuracy is not None:
                    accuracy = f", accuracy {small.accuracy - large.accuracy:+.1f} points"
                text = (
                    f"quantised, {_name(small)}: {word} {large.case.model_name} at its best, {_name(large)}{accuracy}"
                )
                yield _line("quantised", small, text, large)


def _wrong(rows: Iterable[ResultRow]) -> Iterator[Advice]:
    for row in rows:
        if row.result.parity is ParityVerdict.WRONG:
            figure = f" ({format_latency(row.result.summary.median_us)})" if row.result.summary else ""
            text = f"don't use {_name(row)}{figure}: its outputs are wrong ({row.result.parity_reason})"
            yield _line("wrong-outputs", row, text)


def format_text(advice: AdviceReport) -> str:
    """Return advice for a terminal: model and device, then a line for each rule with evidence and source."""
    lines: list[str] = []
    head = ""
    for item in advice.lines:
        about = f"{visible(item.model)} on {visible(item.device)}"
        if about != head:
            lines += ["", about] if lines else [about]
            head = about
        runs = ", ".join(run[:12] for run in item.evidence[:3]) + (" ..." if len(item.evidence) > 3 else "")
        lines.append(f"  {item.rule}: {visible(item.text)}")
        lines.append(f"      {len(item.evidence)} runs: {runs}; rule: {item.source}")
    text = f"From {advice.judged} of {advice.cases} cases, those whose figures count."
    if not advice.judged:
        text = f"None of {advice.cases} cases has a figure that counts, so there is no advice."
    virtual = " Figures of virtual phones are among them: they advise nothing about real ones."
    return "\n".join([*lines, *([""] if lines else []), f"{text}{virtual if advice.is_virtual else ''}"])
