"""The data of a report, derived from stored records and not yet laid out; and its headline: scope,
winners and problems in a few sentences.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Final

from orchestrator.analysis.case_result import CaseStatus
from orchestrator.analysis.findings import finding_step
from orchestrator.passes import stored_pass
from orchestrator.records import frozen
from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.records.case import IMPORTED_TOOLS, Build
from orchestrator.records.device import HOST_SERIAL
from orchestrator.records.failures import next_step_of
from orchestrator.records.run import OUT_OF_TIME, Outcome
from orchestrator.records.verdict import OUTPUT_CODES, Outputs, ParityVerdict
from orchestrator.report.winners import Contest, counted_devices, winner_sentences
from orchestrator.tables.labels import PARITY_WORDS, ShortNames, no_time_text
from orchestrator.tables.operators import DiffPair
from orchestrator.tables.rows import DeviceRow, ModelRow, ResultRow, SkipRow
from orchestrator.units import counted, format_percent


@dataclass(frozen=True, kw_only=True)
class ReportData:
    """Everything that a report shows."""

    campaigns: tuple[Campaign, ...]
    devices: tuple[DeviceRow, ...]
    models: tuple[ModelRow, ...]
    builds: tuple[Build, ...]
    #: By model, device and configuration, in the order in which people read them.
    results: tuple[ResultRow, ...]
    skipped: tuple[SkipRow, ...]
    #: Of the configurations, in all parts of the report.
    names: ShortNames
    #: By model and device, in the order of the results.
    contests: tuple[Contest, ...]
    #: Pairs of profiles: of one case over campaigns, and of a delegate against the CPU.
    diffs: tuple[DiffPair, ...] = ()
    #: A sentence about runs that the report leaves out; empty for none.
    left_out: str = ""

    @cached_property
    def cases(self) -> Sequence[ResultRow]:
        """The results without thread counts that a delegate doesn't use: another row has their
        figure.
        """
        return [row for row in self.results if not row.is_unused_thread_count]

    @cached_property
    def headline(self) -> Headline:
        """The report in a few sentences."""
        return _headline(self)

    @property
    def has_virtual(self) -> bool:
        """Whether anything in the report comes from a virtual phone."""
        return any(device.is_virtual for device in self.devices) or any(
            row.is_virtual for row in self.results
        )

    @property
    def has_real(self) -> bool:
        """Whether anything in the report comes from a real device."""
        return any(not row.is_virtual for row in self.results)


_OUTPUT_WORDS: Final = {
    OUTPUT_CODES[ParityVerdict.WRONG],
    PARITY_WORDS[ParityVerdict.WRONG],
    PARITY_WORDS[ParityVerdict.DRIFT],
}
#: Cases without a figure that are no problem.
_NO_PROBLEM: Final = frozenset({CaseStatus.UNTIMED, CaseStatus.SKIPPED})
#: The greatest number of named cases of one problem.
_MOST_NAMED: Final = 5
_MOST_DEVICES: Final = 3
_MOST_MODELS: Final = 2


@frozen
class Problem:
    """A problem, with the cases that have it."""

    #: The first cases (name, key), and the number of further ones.
    cases: tuple[tuple[str, str], ...] = ()
    more: int = 0
    #: The problem and its next step, as text behind the names.
    said: str

    @property
    def text(self) -> str:
        """The problem in words, with the names of its cases."""
        case_names = "; ".join(name for name, _ in self.cases)
        return f"{case_names}{f' and {self.more} more' if self.more else ''}{self.said}"


@frozen
class Headline:
    """The report in a few sentences; names in them are as phones and users wrote them."""

    #: Models, phones and days, for a title.
    subject: str
    #: The cases, devices and days.
    scope: str
    #: The unfinished campaigns, also part of the scope; empty where all are finished.
    state: str = ""
    #: The cases left out by the time budget, also part of the scope; empty for none.
    no_time: str = ""
    #: The winners, model by model.
    answers: tuple[str, ...] = ()
    #: How many figures are clean, and how precise they are.
    trust: str
    #: The problems, those of most cases first.
    problems: tuple[Problem, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """The problems in words."""
        return tuple(problem.text for problem in self.problems)


def _headline(data: ReportData) -> Headline:
    if not data.results:
        return Headline(
            subject="nothing measured yet",
            scope="Nothing has been measured yet.",
            trust="There are no figures.",
        )
    state, no_time = _state(data.campaigns), _no_time(data)
    cases = data.cases
    return Headline(
        subject=_subject(data),
        scope=" ".join(filter(None, [_scope(data), state, no_time, data.left_out])),
        state=state,
        no_time=no_time,
        answers=tuple(f"{answer}." for answer in winner_sentences(data.contests)),
        trust=_trust(cases),
        problems=tuple(_problems(cases, data.names)),
    )


def _subject(data: ReportData) -> str:
    """Return models, phones and days: a report's title."""
    devices = data.devices
    models = list({row.model.subject: row.model.label for row in data.results}.values())
    model_text = " and ".join(models) if len(models) <= _MOST_MODELS else f"{len(models)} models"
    virtual = sum(device.is_virtual for device in devices)
    device_text = devices[0].title if len(devices) == 1 else counted_devices(devices)
    if virtual and len(devices) > 1:
        device_text += f", {virtual} of them virtual"
    return f"{model_text} on {device_text}" + (
        f", {_days(data.campaigns)}" if data.campaigns else ""
    )


def _days(campaigns: Sequence[Campaign]) -> str:
    first = min(campaign.created_at for campaign in campaigns)
    last = max(campaign.finished_at or campaign.created_at for campaign in campaigns)
    return (
        f"{first:%Y-%m-%d}"
        if first.date() == last.date()
        else f"{first:%Y-%m-%d} to {last:%Y-%m-%d}"
    )


def _scope(data: ReportData) -> str:
    campaigns, cases = data.campaigns, data.cases
    models = counted(len({row.model.sha256 for row in cases}), "model")
    names = [device.title for device in data.devices]
    name_list = ", ".join(names[:_MOST_DEVICES]) + (
        f" and {len(names) - _MOST_DEVICES} more" if names[_MOST_DEVICES:] else ""
    )
    case_runs = [run for row in cases for run in row.runs]
    stored = sum(run.is_final for run in case_runs)
    left_out = sum(run.outcome is Outcome.SKIPPED for run in case_runs)
    runs = counted(stored, "invocation") + (f", {left_out} of them left out" if left_out else "")
    text = f"{counted(len(cases), 'case')} ({runs}) of {models} on {counted(len(names), 'device')}: {name_list}"
    if not campaigns:
        return f"{text}."
    return f"{text}, {_days(campaigns)}."


def _state(campaigns: Sequence[Campaign]) -> str:
    """Return the counts of unfinished and closed campaigns; empty where all were finished."""
    closed = sum(item.status is CampaignStatus.CLOSED for item in campaigns)
    unfinished = sum(not item.status.is_over for item in campaigns)
    sentences = [f"{counted(unfinished, 'campaign')} not finished."] if unfinished else []
    sentences += [f"{counted(closed, 'campaign')} closed with runs left out."] if closed else []
    return " ".join(sentences)


def _sentence(text: str) -> str:
    """Return a text as a sentence; none where there is none."""
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}." if text else ""


def _no_time(data: ReportData) -> str:
    """Return a sentence about cases left out by the time budget that no campaign measured."""
    skipped_cases: Collection[object] = [
        skip
        for campaign in data.campaigns
        for skip in campaign.skipped
        if skip.reason_code == OUT_OF_TIME
    ]
    if len(data.campaigns) > 1:
        combination = attrgetter("serial", "model_name", "delegate", "threads", "tool")
        skipped_cases = {*map(combination, skipped_cases)} - {
            combination(row.case) for row in data.results
        }
    runs = (run for row in data.results for run in row.runs)
    text = no_time_text(len(skipped_cases), sum(run.reason_code == OUT_OF_TIME for run in runs))
    return _sentence(text)


def _trust(cases: Sequence[ResultRow]) -> str:
    timed = sum(row.status is not CaseStatus.UNTIMED for row in cases)
    clean = sum(row.is_judged for row in cases)
    virtual = sum(row.is_virtual for row in cases)
    text = "No latency was requested: the passes have sections of their own."
    if timed:
        text = f"{clean} of {counted(timed, 'result')} clean{_precision(cases)}."
    started = [run for row in cases for run in row.runs if run.is_begun]
    if failed := sum(bool(run.lost_code) for run in started):
        text += f" {failed} of {counted(len(started), 'invocation')} that ran gave no result."
    if virtual:
        text += f" {counted(virtual, 'case')} of virtual phones: no measurements."
    return text


def _precision(rows: Sequence[ResultRow]) -> str:
    """Return the precision of the clean figures, in parentheses."""
    judged = [row for row in rows if row.is_judged]
    precisions = [
        (item.is_precise, item.precision) for item in judged if item.precision is not None
    ]
    parts = []
    for words, is_precise in (("precise to", True), ("not precise,", False)):
        if spreads := [precision for flag, precision in precisions if flag is is_precise]:
            parts.append(f"{len(spreads)} {words} {_between(spreads)}")
    if singles := len(judged) - len(precisions):
        parts.append(f"{singles} of one process, without an interval")
    return f" ({'; '.join(parts)})" if parts else ""


def _between(spreads: Sequence[float]) -> str:
    low, high = format_percent(min(spreads)), format_percent(max(spreads))
    return "\N{PLUS-MINUS SIGN}" + (low if low == high else f"{low.removesuffix(' %')} to {high}")


def _problems(rows: Sequence[ResultRow], names: ShortNames) -> Iterator[Problem]:
    """Yield the problems of figures and the reasons for missing ones, each with its next step;
    those of most cases first.
    """
    groups: dict[tuple[str, str, str], list[ResultRow]] = defaultdict(list)
    for row in rows:
        if row.is_judged or row.status in _NO_PROBLEM:
            continue
        is_suspect = row.status is CaseStatus.MEASURED
        title, reason = row.why_not_clean, row.reason
        step = finding_step(row.worst_code) if is_suspect else row.next_step
        # Other problems take precedence: a fallback's outputs may differ, too.
        code = row.worst_code if is_suspect else row.reason_code
        if row.outputs is Outputs.DIFFER and code in _OUTPUT_WORDS:
            title, reason = "outputs differ", row.parity_reason
            step = finding_step(OUTPUT_CODES[row.parity])
        groups[title, reason, step].append(row)
    for row in rows:
        for failure in row.failed_runs:
            step = next_step_of(failure.code) or finding_step(failure.code)
            groups[failure.text, "", step].append(row)
        # Its latency may be clean beside a suspect run of such a pass.
        for run_pass, code in row.suspect.items():
            if stored_pass(run_pass).names_suspect_runs:
                text = f"suspect in the pass {run_pass}{f' ({code})' if code else ''}"
                groups[text, "", finding_step(code)].append(row)
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    has_models = len({row.model.subject for row in rows}) > 1

    for (title, reason, step), members in ordered:
        cases = tuple(
            (
                f"{names.of(row.configuration)} on {row.device.title}"
                + f" with {row.model.label}" * has_models,
                row.key,
            )
            for row in members[:_MOST_NAMED]
        )
        reason_text = f": {reason.removesuffix('.')}" if reason else ""
        # Errors of phones have it in their reason.
        is_said = step.removesuffix(".").lower() in reason.lower()
        description = f": {title}{reason_text}. {'' if is_said else _sentence(step)}".rstrip()
        yield Problem(cases=cases, more=len(members) - len(cases), said=description)
    yield from _mixed_modes(rows)


def _mixed_modes(results: Sequence[ResultRow]) -> Iterator[Problem]:
    """Yield a problem where figures of one model were measured in different modes: they aren't
    comparable.
    """
    modes: dict[str, set[str]] = defaultdict(set)
    for row in results:
        # This computer has no modes, and an imported figure's mode isn't known.
        if row.is_judged and row.case.serial != HOST_SERIAL and row.case.tool not in IMPORTED_TOOLS:
            modes[row.model.sha256].add(row.case.process_mode.value)
    mixed = [of_model for of_model in modes.values() if len(of_model) > 1]
    if mixed:
        words = ", ".join(sorted(set().union(*mixed)))
        yield Problem(
            said=f"Figures of different modes ({words}) stand side by side for {counted(len(mixed), 'model')}: Android's "
            "scheduler treats them differently; 'benchfarm ab tool:apk tool:native -m MODEL -s SERIAL' measures "
            "by how much."
        )
