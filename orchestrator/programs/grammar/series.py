"""Runs of a series: what a run has in common with an earlier one is read once.

Hundreds of thousands of runs in one file are mostly alike: each line is an earlier run's but for the model's name and
the figures. From a run that was read line by line its form is learned, a pattern that leaves these open, and a run of
that form has the earlier one's report with figures of its own. Whatever else a run holds is read line by line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from orchestrator.programs.grammar.figures import mean_as_printed, parse_footprint
from orchestrator.programs.grammar.run_figures import by_result_line, contradictions_between
from orchestrator.records.run import LatencySummary, ToolReport

_NUMBER: Final = r"(\d{1,12}(?:\.\d{1,9})?(?:e\+\d\d)?)"
_SPREAD: Final = (
    rf"count=(\d{{1,9}}) first={_NUMBER} curr={_NUMBER} min={_NUMBER} max={_NUMBER} avg={_NUMBER} std={_NUMBER}"
)
_TIMINGS: Final = (
    rf"Inference timings in us: Init: {_NUMBER}, First inference: {_NUMBER}, Warmup \(avg\): {_NUMBER}, "
    rf"Inference \(avg\): {_NUMBER}"
)
#: A line's kind and its pattern, in which what differs between runs is a group.
_KINDS: Final = tuple(
    (kind, re.compile(pattern, re.ASCII))
    for kind, pattern in (
        ("graph", r"Graph: \[([\w./+@~,%-]{1,300})\]"),
        ("model", r"Loaded model ([\w./+@~,%-]{1,300})"),
        ("size", rf"The input model file size \(MB\): {_NUMBER}"),
        ("session", rf"Initialized session in {_NUMBER}ms\."),
        ("stats", rf"{_SPREAD} p5={_NUMBER} median={_NUMBER} p95={_NUMBER}"),
        ("stats", _SPREAD),
        ("timings", _TIMINGS),
        ("memory", rf"Memory footprint delta from the start of the tool \(MB\): init={_NUMBER} overall={_NUMBER}"),
    )
)
#: What every form has, each once, beside one or two lines of statistics.
_NEEDED: Final = ("session", "timings")
#: Words of lines with figures; a form has none beside those of its kinds.
_OF_FIGURES: Final = ("count=", "nference", "(avg)", "(MB)", "footprint", "RPC", "ession in")
_SEVERITY, _START = "INFO: ", "STARTING!\n"
#: Forms that are known at a time, and runs from which one was tried to be learned: making a pattern takes a while.
_MOST_FORMS, _MOST_TRIES = 8, 64
#: Runs that are read line by line before any form is learned: a short text isn't worth it.
_RUNS_BEFORE: Final = 16


def next_start(text: str, place: int, *, is_after: bool = False) -> int:
    """Return where the next run's first line begins, at ``place`` or (``is_after``) behind it; -1 for nowhere."""
    place += len(_SEVERITY) + 1 if is_after else 0
    while (found := text.find(_START, place)) >= 0:
        begin = found - len(_SEVERITY) if text.endswith(_SEVERITY, 0, found) else found
        if begin == 0 or text[begin - 1] == "\n":
            return begin
        place = found + 1
    return -1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """How a run looks, and its report."""

    pattern: re.Pattern[str]
    #: Kind -> the index of its first group; and those of the lines of statistics.
    places: dict[str, int]
    stats: tuple[int, ...]
    has_percentiles: bool
    model: ToolReport

    def report(self, found: re.Match[str]) -> ToolReport | None:
        """Return the report of a run of this form; None where its figures have to be looked at more closely."""
        values, places, model = found.groups(), self.places, self.model
        place = places["timings"]
        init_us, first_us, warmup_us, mean_us = map(float, values[place : place + 4])
        stats = [self._summary(values, place) for place in self.stats]
        whole, printed = mean_as_printed(stats[-1]), f"{mean_us:.6g}"
        if not (mean_us and all(summary.count for summary in stats)):
            return None
        if whole != printed and whole.startswith(printed):
            # A mean that may have been cut off.
            return None
        timings = {"init": init_us, "first": first_us, "warmup": warmup_us, "inference": mean_us}
        warmup, inference = by_result_line(stats, timings)
        init_mib = overall_mib = None
        if "memory" in places:
            place = places["memory"]
            init_mib, overall_mib = parse_footprint(values[place]), parse_footprint(values[place + 1])
            if init_mib is None or overall_mib is None or overall_mib < init_mib:
                # Cut off, or not what the programs print.
                return None
        echoed, extra = model.echoed, model.extra
        if "graph" in places:
            graph = values[places["graph"]]
            echoed, extra = {**echoed, "Graph": graph}, {**extra, "graph": graph}
        return ToolReport(
            outcome=model.outcome,
            failure_code=model.failure_code,
            failure_reason=model.failure_reason,
            init_us=init_us,
            first_inference_us=first_us,
            warmup_mean_us=warmup_us,
            inference_mean_us=mean_us,
            warmup=warmup,
            inference=inference,
            init_memory_mib=init_mib,
            overall_memory_mib=overall_mib,
            model_size_mb=float(values[places["size"]]) if "size" in places else None,
            delegate=model.delegate,
            echoed=echoed,
            unconsumed_flags=model.unconsumed_flags,
            disagreements=tuple(contradictions_between(mean_us, inference if inference or warmup else stats[-1])),
            extra=extra,
        )

    def _summary(self, values: tuple[str, ...], place: int) -> LatencySummary:
        first, current, low, high, mean, std = map(float, values[place + 1 : place + 7])
        p5, median, p95 = map(float, values[place + 7 : place + 10]) if self.has_percentiles else (None, None, None)
        if p95 is not None and median is not None and p95 < median:
            p95 = None
        return LatencySummary(
            count=int(values[place]), first_us=first, current_us=current, min_us=low, max_us=high, mean_us=mean,
            std_us=std, p5_us=p5, median_us=median, p95_us=p95,
        )  # fmt: skip


@dataclass(slots=True)
class Series:
    """The forms that were learned of one text."""

    #: Reads a run's lines as if nothing stood before them; None where they aren't one run and nothing else.
    read: Callable[[str], ToolReport | None]
    _forms: list[_Form] = field(default_factory=list)
    _tries: int = 0
    _runs: int = 0

    def take(self, text: str, place: int) -> tuple[ToolReport, int] | None:
        """Return the report of the run that begins at ``place``, and where it ends; None where no form fits."""
        for number, form in enumerate(self._forms):
            found = form.pattern.match(text, place)
            if found is None:
                continue
            report = form.report(found)
            if report is None:
                return None
            if number:
                self._forms.insert(0, self._forms.pop(number))
            return report, found.end()
        return None

    def learn(self, text: str) -> None:
        """Learn the form of a run, from its first line up to the next run's."""
        self._runs += 1
        if self._runs <= _RUNS_BEFORE or self._tries >= _MOST_TRIES:
            return
        self._tries += 1
        report = self.read(text)
        form = _form_of(text, report) if report is not None else None
        found = form.pattern.match(text + "STARTING!\n") if form is not None else None
        if form is not None and found is not None and form.report(found) == report:
            self._forms = [form, *self._forms[: _MOST_FORMS - 1]]


def _form_of(text: str, report: ToolReport) -> _Form | None:
    """Return the form of a run that went well; None where it has figures of which no kind is known."""
    if report.outcome != "ok" or report.profile_blocks or report.operators:
        return None
    parts: list[str] = []
    places: dict[str, int] = {}
    stats: list[tuple[int, int]] = []
    groups = 0
    for line in text.removesuffix("\n").split("\n"):
        said = line.removeprefix(_SEVERITY)
        kind, found = next(((k, m) for k, pattern in _KINDS if (m := pattern.fullmatch(said))), ("", None))
        if found is None:
            if any(word in said for word in _OF_FIGURES) and not said.startswith(("Running benchmark for", "Note: ")):
                return None
            parts.append(re.escape(line))
            continue
        if kind in places:
            return None
        if kind == "stats":
            stats.append((groups, len(found.groups())))
        else:
            places[kind] = groups
        parts.append((_SEVERITY if said != line else "") + found.re.pattern)
        groups += len(found.groups())
    sizes = {size for _, size in stats}
    if any(kind not in places for kind in _NEEDED) or len(stats) not in {1, 2} or len(sizes) != 1:
        return None
    pattern = "\n".join(parts) + rf"\n(?=(?:{_SEVERITY})?STARTING!\n)"
    return _Form(
        pattern=re.compile(pattern, re.ASCII),
        places=places,
        stats=tuple(place for place, _ in stats),
        has_percentiles=10 in sizes,
        model=report,
    )
