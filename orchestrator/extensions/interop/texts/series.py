"""Runs of a series: what a run has in common with an earlier one is read once.

Hundreds of thousands of runs in one file are mostly alike: each line is an earlier run's but for
the model's name and the figures. From a run that was read line by line its form is learned, a
pattern that leaves these open; of a run of that form only they are read. Whatever else a run holds
is read line by line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from orchestrator.extensions.interop.texts.pasted import parse_pasted
from orchestrator.extensions.interop.texts.splitting import RunSplitter
from orchestrator.reading.lines import mean_as_printed, parse_footprint
from orchestrator.reading.report import build_report, contradictions, warmup_and_inference
from orchestrator.reading.transcript import Transcript
from orchestrator.records.run import LatencySummary, ToolReport

_NUMBER: Final = r"(\d{1,12}(?:\.\d{1,9})?(?:e\+\d\d)?)"
_SPREAD: Final = r"count=(\d{1,9})" + "".join(
    f" {name}={_NUMBER}" for name in ("first", "curr", "min", "max", "avg", "std")
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
        (
            "timings",
            r"Inference timings in us: "
            + ", ".join(
                rf"{name}: {_NUMBER}"
                for name in ("Init", "First inference", r"Warmup \(avg\)", r"Inference \(avg\)")
            ),
        ),
        (
            "memory",
            rf"Memory footprint delta from the start of the tool \(MB\): init={_NUMBER} overall={_NUMBER}",
        ),
    )
)
#: Words of lines with figures; a form has none beside those of its kinds.
_OF_FIGURES: Final = ("count=", "nference", "(avg)", "(MB)", "footprint", "RPC", "ession in")
_SEVERITY, _START = "INFO: ", "STARTING!\n"
#: Forms that are known at a time, and runs from which one was tried to be learned: making a pattern
#: takes a while.
_MOST_FORMS, _MOST_TRIES = 8, 64
#: Runs that are read line by line before any form is learned: a short text isn't worth it.
_RUNS_BEFORE: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class _Form:
    """How a run looks, and what one was read as."""

    pattern: re.Pattern[str]
    #: The kinds of its lines with figures, each with the indexes of its groups.
    places: tuple[tuple[str, slice], ...]
    #: A run of this form, whose figures are set for each run that is read, and what its report
    #: says.
    model: Transcript
    like: Mapping[str, Any]

    def report(self, found: re.Match[str]) -> ToolReport | None:
        """Return the report of a run of this form.

        None where its figures have to be looked at more closely.
        """
        # Each figure of the model is another run's by now: all of them are set here.
        values, log, same = found.groups(), self.model, dict(self.like)
        log.stats = []
        for kind, place in self.places:
            figures = values[place]
            if kind == "stats":
                count, (first, last, low, high, mean, std, *percentiles) = (
                    int(figures[0]),
                    map(float, figures[1:]),
                )
                p5, median, p95 = percentiles or (None, None, None)
                if p95 is not None and median is not None and p95 < median:
                    p95 = None
                summary = LatencySummary(
                    count=count,
                    first_us=first,
                    current_us=last,
                    min_us=low,
                    max_us=high,
                    mean_us=mean,
                    std_us=std,
                    p5_us=p5,
                    median_us=median,
                    p95_us=p95,
                )
                log.stats.append((summary, 0))
            elif kind == "timings":
                log.timings = dict(
                    zip(("init", "first", "warmup", "inference"), map(float, figures), strict=True)
                )
            elif kind == "memory":
                init, overall = map(parse_footprint, figures)
                if init is None or overall is None or overall < init:
                    # Cut off, or not what the programs print.
                    return None
                same["init_memory_mib"], same["overall_memory_mib"] = init, overall
            elif kind == "graph":
                same["echoed"] = {**log.echoed, "Graph": figures[0]}
                same["extra"] = {**same["extra"], "graph": figures[0]}
            elif kind == "size":
                same["model_size_mb"] = float(figures[0])
        whole, printed = mean_as_printed(log.stats[-1][0]), f"{log.timings['inference']:.6g}"
        is_cut = whole != printed and whole.startswith(printed)
        if is_cut or printed == "0" or not all(summary.count for summary, _ in log.stats):
            return None
        timings, (warmup, inference) = log.timings, warmup_and_inference(log)
        same |= {
            "init_us": timings["init"],
            "first_inference_us": timings["first"],
            "warmup_mean_us": timings["warmup"],
            "inference_mean_us": timings["inference"],
            "warmup": warmup,
            "inference": inference,
            "disagreements": tuple(contradictions(log, warmup, inference)),
        }
        return ToolReport(**same)


class Series:
    """The forms that were learned of one text."""

    def __init__(self, splitter: RunSplitter, requested: str = "") -> None:
        """Give the runs to a splitter; ``requested`` is the delegate that was asked for, where that
        is known.
        """
        self._splitter, self._requested = splitter, requested
        self._forms: list[_Form] = []
        self._tries = self._runs = 0

    def unlike_others(self, text: str) -> Iterator[tuple[str, bool]]:
        """Yield the parts of a text that have to be read line by line, and whether each is the
        last.

        The splitter gets the other runs' reports.
        """
        place, start = 0, _next_start(text, 0)
        while start >= 0:
            if start > place:
                yield text[place:start], False
            place = start
            if self._splitter.is_between_runs:
                while end := self._take(text, place):
                    place = end
            start = _next_start(text, place + len(_SEVERITY) + 1)
            if start >= 0 and self._tries < _MOST_TRIES:
                self._runs += 1
                if self._runs > _RUNS_BEFORE:
                    self._tries += 1
                    self._learn(text[place:start])
        if place < len(text):
            yield text[place:], True

    def _take(self, text: str, place: int) -> int:
        """Give the splitter the run that begins at a place, and return where it ends; 0 where no
        form fits.
        """
        for form in self._forms:
            if found := form.pattern.match(text, place):
                if report := form.report(found):
                    self._splitter.add(report)
                    if form is not self._forms[0]:
                        self._forms.sort(key=lambda other: other is not form)
                return found.end() if report else 0
        return 0

    def _learn(self, text: str) -> None:
        """Learn the form of a run that went well, from its first line up to the next run's."""
        splitter = RunSplitter()
        for each in text.split("\n")[:-1]:
            line = parse_pasted(each)
            if line.style != "console":
                return
            splitter.feed(line)
        if not splitter.is_between_runs or splitter.rows or len(splitter.transcripts) != 1:
            return
        (log,) = splitter.transcripts
        report = build_report(log, requested=self._requested)
        form = _form_of(text, log, report)
        found = (
            form.pattern.match(text + _START)
            if form is not None and report.outcome == "ok"
            else None
        )
        if form is not None and found is not None and form.report(found) == report:
            self._forms = [form, *self._forms[: _MOST_FORMS - 1]]


def _next_start(text: str, place: int) -> int:
    """Return where the next run's first line begins; -1 for nowhere."""
    while (found := text.find(_START, place)) >= 0:
        begin = found - len(_SEVERITY) if text.endswith(_SEVERITY, 0, found) else found
        if begin == 0 or text[begin - 1] == "\n":
            return begin
        place = found + 1
    return -1


def _form_of(text: str, log: Transcript, report: ToolReport) -> _Form | None:
    """Return the form of a run; None where it has figures of which no kind is known."""
    parts: list[str] = []
    places: list[tuple[str, slice]] = []
    groups = 0
    for line in text.removesuffix("\n").split("\n"):
        said = line.removeprefix(_SEVERITY)
        kind, found = next(
            ((k, m) for k, pattern in _KINDS if (m := pattern.fullmatch(said))), ("", None)
        )
        if found is None:
            if any(word in said for word in _OF_FIGURES) and not said.startswith(
                ("Running benchmark for", "Note: ")
            ):
                return None
            parts.append(re.escape(line))
            continue
        parts.append((_SEVERITY if said != line else "") + found.re.pattern)
        places.append((kind, slice(groups, groups + len(found.groups()))))
        groups += len(found.groups())
    kinds = [kind for kind, _ in places]
    sizes = {place.stop - place.start for kind, place in places if kind == "stats"}
    is_known = all(kinds.count(kind) <= 1 + (kind == "stats") for kind in kinds) and {
        "session",
        "timings",
    } <= {*kinds}
    if not is_known or len(sizes) != 1 or not log.profile.is_empty or log.profile_proto:
        return None
    pattern = re.compile("\n".join(parts) + rf"\n(?=(?:{_SEVERITY})?{_START})", re.ASCII)
    like = {item.name: getattr(report, item.name) for item in fields(report)}
    return _Form(pattern=pattern, places=tuple(places), model=log, like=like)
