"""Advice from a campaign's clean figures: rules of the core and of passes, each with a condition
and a sentence with its figure.

They follow the runtime's own list of best practices
(https://ai.google.dev/edge/litert/performance/best_practices). Only cases with a clean figure count
(``CaseResult.is_judged``). The winner is the report's, not a rule's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Final, NamedTuple

from orchestrator.analysis.effect import Ratio, speed_up
from orchestrator.passes import passes
from orchestrator.records import frozen
from orchestrator.records.case import grouped
from orchestrator.report.data import ReportData
from orchestrator.report.winners import by_threads, fastest_row, figure_of, figures_of_one_kind
from orchestrator.tables.escapes import visible
from orchestrator.tables.rows import ResultRow
from orchestrator.units import counted, format_percent

#: A single run's figure differs from another one beyond this share: far more than two processes of
#: one configuration (docs/evidence.md).
_UNTESTED: Final = 0.25
#: An operator type with at least this share of an inference dominates it.
_DOMINATING: Final = 0.5
#: Copies and conversions with at least this share are a reason to check the model's types and
#: layouts.
_MOVED_MOST: Final = 0.1
#: Operators and kernels that compute nothing: they copy, reorder or convert.
_MOVING: Final = re.compile(
    r"(?:copy|cast|convert|transpose|reshape|quantize|dequantize|identity|slice|strided_slice|split|split_v|pack|unpack"
    r"|concatenation|concatenate|pad|padv2|squeeze|expand_dims|static_reshape)(?:\b|_|\s)",
    re.IGNORECASE,
)
#: Parts of a model's name for its numbers' type: of quantised models, and of any.
_QUANTISED_WORDS: Final = (
    r"u?int8|int16x8|i8|quant(?:ized|ised)?|q8|dynamic(?:[-_]?range)?|dynrange"
)
_QUANTISED: Final = re.compile(rf"[-_.](?:{_QUANTISED_WORDS})(?=$|[-_.])")
_TYPE_WORDS: Final = re.compile(
    rf"[-_.](?:float(?:16|32)?|fp(?:16|32)|f(?:16|32)|int16|{_QUANTISED_WORDS})(?=$|[-_.])"
)


class Sentence(NamedTuple):
    """A rule's sentence, and its cases; the first is the subject."""

    text: str
    rows: Sequence[ResultRow]


@frozen
class Advice:
    """One sentence about a model on a device, with the ids of its runs."""

    rule: str
    model: str
    device: str
    text: str
    runs: tuple[str, ...]


@frozen
class AdviceReport:
    """All advice from some campaigns."""

    lines: tuple[Advice, ...]
    #: Cases with a clean figure, and all.
    judged: int
    cases: int
    is_virtual: bool

    @property
    def basis(self) -> Iterator[str]:
        """The basis of the advice, in sentences."""
        yield f"From {self.judged} of {counted(self.cases, 'case')}: those with a clean figure."
        if self.is_virtual:
            yield "Figures of virtual phones are among them: they say nothing about real ones."


def collect_advice(data: ReportData) -> AdviceReport:
    """Return all advice, device by device."""
    judged = [row for row in data.results if row.compared is not None]
    rules = dict(RULES)
    for pass_spec in passes():
        rules |= pass_spec.advice
    return AdviceReport(
        lines=tuple(
            Advice(
                rule=name,
                model=sentence.rows[0].case.model_name,
                device=sentence.rows[0].device.title,
                text=sentence.text,
                runs=tuple(dict.fromkeys(run for row in sentence.rows for run in row.used)),
            )
            for rows in grouped(judged, lambda row: row.device.serial).values()
            for name, find in rules.items()
            for sentence in find(rows)
        ),
        judged=len(judged),
        cases=len(data.cases),
        is_virtual=any(row.is_virtual for row in data.results),
    )


def _by_model(rows: Iterable[ResultRow]) -> Iterable[Sequence[ResultRow]]:
    return grouped(rows, lambda row: row.model.subject).values()


def _ratio(row: ResultRow, over: ResultRow) -> Ratio:
    """Return the ratio of two cases' times, at the level of the report's ties."""
    return speed_up(figure_of(row), figure_of(over), level=max(row.level, over.level))


def _is_slower(row: ResultRow, than: ResultRow) -> bool:
    return _ratio(row, than).is_faster(_UNTESTED)


def times_as_long(row: ResultRow, over: ResultRow) -> str:
    """Return the ratio of two cases' times: ``1.34 times [1.31, 1.37]``."""
    return _times(_ratio(row, over))


def _times(ratio: Ratio) -> str:
    if ratio.interval is None:
        return f"{ratio.value:.2f} times (one run, not tested)"
    return f"{ratio.value:.2f} times [{ratio.interval.low:.2f}, {ratio.interval.high:.2f}]"


def _threads(rows: Sequence[ResultRow]) -> Iterator[Sentence]:
    for group in by_threads(rows):
        fastest = fastest_row(group)
        smallest = next(row for row in group if row is fastest or not _is_slower(row, fastest))
        larger = [row for row in group if row.case.threads > smallest.case.threads]
        if larger:
            times = ", ".join(
                f"{row.case.threads} take {times_as_long(row, smallest)} as long" for row in larger
            )
            text = f"{smallest.configuration}: no number of threads above it is known to be faster: {times}"
            yield Sentence(text, [smallest, *larger])


def _slow_delegate(rows: Sequence[ResultRow]) -> Iterator[Sentence]:
    for of_model in _by_model(rows):
        on_cpu = [row for row in of_model if row.case.delegate.is_cpu]
        by_delegate = grouped(
            (row for row in of_model if not row.case.delegate.is_cpu), lambda row: row.case.delegate
        )
        if not on_cpu:
            continue
        cpu = fastest_row(on_cpu)
        for best in map(fastest_row, by_delegate.values()):
            if not _is_slower(cpu, best):
                ratio = _ratio(best, cpu)
                is_slower = ratio.is_faster(_UNTESTED)
                relation = "is slower than" if is_slower else "isn't shown to be faster than"
                text = f"{best.configuration} {relation} {cpu.configuration}: it takes {_times(ratio)} as long"
                yield Sentence(text, [best, cpu])


def _shares(rows: Sequence[ResultRow]) -> Iterator[tuple[ResultRow, list[tuple[str, float]]]]:
    """Yield each model's fastest profiled case with the share of the time of each type of operator,
    largest first.
    """
    for of_model in _by_model(row for row in rows if row.profiles):
        row = fastest_row(of_model)
        types = grouped(
            (item for item in row.profiles[-1].rows if not item.is_partition),
            lambda item: item.node_type,
        )
        shares = [(name, sum(item.share for item in items)) for name, items in types.items()]
        yield row, sorted(shares, key=lambda pair: -pair[1])


def _dominating(rows: Sequence[ResultRow]) -> Iterator[Sentence]:
    for row, shares in _shares(rows):
        for name, share in shares[:1]:
            if share >= _DOMINATING:
                text = f"{row.configuration}: {format_percent(share, 0)} of the time is in {name}: optimise it first"
                yield Sentence(text, [row])


def _moves_data(rows: Sequence[ResultRow]) -> Iterator[Sentence]:
    for row, shares in _shares(rows):
        moving = [(name, share) for name, share in shares if _MOVING.match(name)]
        if (moved := sum(share for _, share in moving)) >= _MOVED_MOST:
            listed = ", ".join(f"{name} {format_percent(share, 0)}" for name, share in moving[:6])
            text = f"{format_percent(moved, 0)} of the time only copies, reorders or converts data: {listed}"
            yield Sentence(f"{row.configuration}: {text}", [row])


def _quantised(rows: Sequence[ResultRow]) -> Iterator[Sentence]:
    """Compare models whose names differ by their numbers' type only, each by its fastest
    configuration.
    """
    models = grouped(rows, lambda row: row.case.model_name)
    twins = grouped(models, lambda name: _TYPE_WORDS.sub("", name.lower()))
    for names in twins.values():
        if len(names) < 2:
            continue
        group = [row for name in names for row in models[name]]
        figures = figures_of_one_kind({row.key: row for row in group})
        same_kind = [replace(row, compared=figures[row.key]) for row in group if row.key in figures]
        best = [fastest_row(of_model) for of_model in _by_model(same_kind)]
        quantised_rows = [row for row in best if _QUANTISED.search(row.case.model_name.lower())]
        for quantised, other in product(
            quantised_rows, [row for row in best if row not in quantised_rows]
        ):
            if _is_slower(other, quantised):
                text = f"{other.case.model_name} takes {times_as_long(other, quantised)} as long"
                yield Sentence(
                    f"{quantised.configuration}: its twin {text}, each at its best",
                    [quantised, other],
                )


#: The rules, which are called with the clean cases of one device.
RULES: Final[Mapping[str, Callable[[Sequence[ResultRow]], Iterable[Sentence]]]] = {
    "quantised-is-faster": _quantised,
    "dominating-operator": _dominating,
    "moves-data": _moves_data,
    "threads-enough": _threads,
    "delegate-not-faster": _slow_delegate,
}


def format_text(advice: AdviceReport) -> str:
    """Return advice for a terminal: model and device, then a line for each sentence."""
    lines: list[str] = []
    of_place = grouped(advice.lines, lambda item: f"{item.model} on {item.device}")
    for place, items in of_place.items():
        lines.append(visible(place))
        for item in items:
            runs = counted(len(item.runs), "run")
            lines.append(f"  {item.rule}: {visible(item.text)} ({runs})")
    return "\n".join([*lines, *advice.basis])
