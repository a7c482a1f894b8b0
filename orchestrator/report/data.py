"""Everything that a report shows, derived from stored records and not yet laid out; and in a few
sentences what was run, what came out, and what not to believe.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from orchestrator.analysis.case_result import CaseStatus
from orchestrator.passes import passes
from orchestrator.records.campaign import Campaign
from orchestrator.records.case import IMPORTED_TOOLS, Build
from orchestrator.records.device import HOST_SERIAL
from orchestrator.report.winners import Contest, answers_of, kind_title
from orchestrator.tables.labels import ShortNames, short_names
from orchestrator.tables.operators import DiffPair
from orchestrator.tables.rows import DeviceRow, ModelRow, ResultRow, SkipRow
from orchestrator.units import counted, format_percent


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """Everything that a report shows."""

    campaigns: tuple[Campaign, ...]
    devices: tuple[DeviceRow, ...]
    models: tuple[ModelRow, ...]
    builds: tuple[Build, ...]
    #: By model, device and configuration, in the order in which people read them.
    results: tuple[ResultRow, ...]
    skipped: tuple[SkipRow, ...]
    headline: Headline
    #: By model and device, in the order of the results.
    contests: tuple[Contest, ...]
    #: Where profiles were taken: of one case over campaigns, and of a delegate against the CPU.
    diffs: tuple[DiffPair, ...] = ()

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


_MOST_WARNINGS: Final = 6
_MOST_NAMES: Final = 3
_MOST_TITLED: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The report in a few sentences; names in them are as phones and users wrote them."""

    #: Models, phones and days, for a title.
    subject: str
    #: What was run, where and when.
    scope: str
    #: What came out, model by model.
    answers: tuple[str, ...] = ()
    #: How much of it can be relied on.
    trust: str
    #: What isn't to be trusted, and why, worst first.
    warnings: tuple[str, ...] = ()


def headline_of(
    campaigns: Sequence[Campaign],
    devices: Sequence[DeviceRow],
    results: Sequence[ResultRow],
    contests: Sequence[Contest],
) -> Headline:
    """Return the report in a few sentences."""
    if not results:
        return Headline(
            subject="nothing measured yet",
            scope="Nothing has been measured yet.",
            trust="There is no figure to trust or to doubt.",
        )
    # A thread count that a delegate doesn't use is no case of its own.
    cases = [row for row in results if not row.is_unused_thread_count]
    return Headline(
        subject=_subject(campaigns, devices, results),
        scope=_scope(campaigns, devices, cases),
        answers=tuple(f"{answer}." for answer in answers_of(contests)),
        trust=_trust(cases),
        warnings=_warnings(results, short_names((row.configuration, row.case) for row in results)),
    )


def _subject(
    campaigns: Sequence[Campaign], devices: Sequence[DeviceRow], results: Sequence[ResultRow]
) -> str:
    """Return models, phones and days: a report's title."""
    models = list({row.model.subject: row.model.label for row in results}.values())
    named = " and ".join(models) if len(models) <= _MOST_TITLED else f"{len(models)} models"
    virtual = sum(device.is_virtual for device in devices)
    noun = "device" if any(device.serial == HOST_SERIAL for device in devices) else "phone"
    if len(devices) == 1:
        who = devices[0].title
    elif virtual == len(devices):
        who = f"{len(devices)} virtual {noun}s"
    else:
        who = f"{len(devices)} {noun}s" + (f", {virtual} of them virtual" if virtual else "")
    return f"{named} on {who}" + (f", {_days(campaigns)}" if campaigns else "")


def _days(campaigns: Sequence[Campaign]) -> str:
    first = min(campaign.created_at for campaign in campaigns)
    last = max(campaign.finished_at or campaign.created_at for campaign in campaigns)
    return (
        f"{first:%Y-%m-%d}"
        if first.date() == last.date()
        else f"{first:%Y-%m-%d} to {last:%Y-%m-%d}"
    )


def _scope(
    campaigns: Sequence[Campaign], devices: Sequence[DeviceRow], cases: Sequence[ResultRow]
) -> str:
    models = counted(len({row.model.sha256 for row in cases}), "model")
    names = [device.title for device in devices]
    shown = ", ".join(names[:_MOST_NAMES]) + (
        f" and {len(names) - _MOST_NAMES} more" if names[_MOST_NAMES:] else ""
    )
    runs = counted(sum(len(row.invocations) for row in cases), "invocation")
    text = f"{counted(len(cases), 'case')} ({runs}) of {models} on {counted(len(names), 'device')}: {shown}"
    if not campaigns:
        return f"{text}."
    days = _days(campaigns)
    hosts = sorted({campaign.host for campaign in campaigns if campaign.host})
    where = f", run from {', '.join(hosts[:_MOST_NAMES])}" if hosts else ""
    unfinished = sum(campaign.status != "finished" for campaign in campaigns)
    open_text = f" {counted(unfinished, 'campaign')} not finished." if unfinished else ""
    return f"{text}{where}, {days}.{open_text}"


def _trust(cases: Sequence[ResultRow]) -> str:
    timed = sum(row.result.status is not CaseStatus.UNTIMED for row in cases)
    clean = sum(row.result.is_judged for row in cases)
    virtual = sum(row.is_virtual for row in cases)
    if not timed:
        text = "No latency was asked for: the passes have sections of their own."
    elif clean == timed:
        which = f"All {timed} results are" if timed > 1 else "The one result is"
        text = f"{which} clean{_precision(cases)}."
    else:
        text = f"{clean} of {timed} results are clean{_precision(cases) if clean else ''}."
    if virtual == len(cases):
        text += " All figures come from virtual phones: they are no measurements."
    elif virtual:
        text += (
            f" {counted(virtual, 'case')} of virtual phones among them: those are no measurements."
        )
    return text


def _precision(results: Sequence[ResultRow]) -> str:
    """Return how closely the clean figures are known, as an aside."""
    judged = [row.result for row in results if row.result.is_judged]
    precise = [
        result.precision for result in judged if result.is_precise and result.precision is not None
    ]
    wide = [
        result.precision
        for result in judged
        if not result.is_precise and result.precision is not None
    ]
    singles = len(judged) - len(precise) - len(wide)
    parts = [
        (len(precise), f"precise to {_between(precise)} (95 %)" if precise else ""),
        (len(wide), f"not precise: {_between(wide)} (95 %)" if wide else ""),
        (singles, "one process: no interval" if singles == 1 else "one process each: no interval"),
    ]
    known = [(count, text) for count, text in parts if count]
    if len(known) == 1:
        return f", {known[0][1]}"
    return ": " + "; ".join(f"{count} {text}" for count, text in known)


def _between(spreads: Sequence[float]) -> str:
    low, high = format_percent(min(spreads)), format_percent(max(spreads))
    return "\N{PLUS-MINUS SIGN}" + (low if low == high else f"{low.removesuffix(' %')} to {high}")


def _warnings(results: Sequence[ResultRow], names: ShortNames) -> tuple[str, ...]:
    groups: dict[str, list[ResultRow]] = defaultdict(list)
    for row in results:
        result = row.result
        if result.is_judged or result.status is CaseStatus.UNTIMED or row.is_unused_thread_count:
            continue
        groups[row.why_not_clean].append(row)
    ordered = sorted(groups.items(), key=lambda item: -len(item[1]))
    warnings = [_warning(reason, rows, names) for reason, rows in ordered[:_MOST_WARNINGS]]
    if len(ordered) > _MOST_WARNINGS:
        hidden = len(ordered) - _MOST_WARNINGS
        warnings.append(f"{counted(hidden, 'more kind')} of trouble: see the findings.")
    return (*warnings, *_pass_warnings(results, names), *_mixed_modes(results))


def _pass_warnings(results: Sequence[ResultRow], names: ShortNames) -> Iterator[str]:
    """Yield what can't be trusted of the passes with figures of their own: a case's latency may be
    clean beside it.
    """
    for run_pass in (own.name for own in passes() if own.warns):
        if rows := [row for row in results if run_pass in row.suspect]:
            yield _warning(f"suspect in the pass {run_pass}", rows, names)


def _mixed_modes(results: Sequence[ResultRow]) -> tuple[str, ...]:
    """Say when figures of one model stand side by side that were measured in different modes: they
    aren't alike.
    """
    modes: dict[str, set[str]] = defaultdict(set)
    for row in results:
        # This computer has no modes, and how a foreign app ran is its own affair.
        if (
            row.result.is_judged
            and row.case.serial != HOST_SERIAL
            and row.case.tool not in IMPORTED_TOOLS
        ):
            modes[row.model.sha256].add(row.case.process_mode.value)
    mixed = [found for found in modes.values() if len(found) > 1]
    if not mixed:
        return ()
    words = ", ".join(sorted(set().union(*mixed)))
    text = (
        f"Figures of different modes ({words}) stand side by side for {counted(len(mixed), 'model')}: Android's "
        "scheduler treats them differently; 'benchfarm ab tool:apk tool:native -m MODEL -s SERIAL' measures "
        "by how much."
    )
    return (text,)


def _warning(reason: str, rows: Sequence[ResultRow], names: ShortNames) -> str:
    """Return one sentence: how many cases, why, and which delegates on which phones for which
    models.
    """
    takes = _some([names.of(row.configuration) for row in rows], "configurations")
    phones = _some([kind_title(row) for row in rows], "kinds of phones")
    models = _some([row.model.label for row in rows], "models")
    return f"{counted(len(rows), 'case')} {reason}: {takes} on {phones} with {models}."


def _some(values: Sequence[str], noun: str) -> str:
    """Return the few that there are by name, or how many there are."""
    distinct = list(dict.fromkeys(values))
    return "; ".join(distinct) if len(distinct) <= _MOST_NAMES else f"{len(distinct)} {noun}"
