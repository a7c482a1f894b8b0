"""What the runs of a case show together: the one gatherer of a case's judgement. Pure.

Reports, comparisons, advice and the rounds of a campaign read the same record, made by
:func:`judge_cases` from the runs and campaigns of the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final

from orchestrator.analysis.case_result import (
    CaseResult,
    CaseStatus,
    check_of,
    judge_latency,
    newest_checks,
    with_outputs,
)
from orchestrator.analysis.findings import finding_step
from orchestrator.analysis.intervals import (
    NO_AUTOCORRELATION,
    Autocorrelation,
    autocorrelation_of,
)
from orchestrator.analysis.outcome import of_one_kind
from orchestrator.analysis.summary import logs_of
from orchestrator.delegates import DELEGATES, place_of
from orchestrator.frozen import frozen
from orchestrator.records.campaign import Campaign, Terms
from orchestrator.records.case import (
    FIGURE_PASS,
    REFERENCE_PASS,
    Build,
    CampaignId,
    Case,
    CaseKey,
    Serial,
    grouped,
)
from orchestrator.records.device import DeviceFacts
from orchestrator.records.plan import StoppingRule
from orchestrator.records.run import DelegateEvidence, Outcome, RunRecord
from orchestrator.records.verdict import (
    ChangeRule,
    Finding,
    Grade,
    Outputs,
    Quality,
    Severity,
    outputs_of,
)

#: As findings are listed.
SEVERITIES: Final = (Severity.ERROR, Severity.WARNING, Severity.INFO)
_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


@frozen
class FindingCount:
    """One finding, with the number of a case's invocations that have it."""

    finding: Finding
    #: In how many invocations; 0 when it is about the case as a whole.
    count: int
    #: Whether it is about the case's figure, or an invocation that the figure comes from.
    is_of_figure: bool

    @property
    def next_step(self) -> str:
        """The next step; empty when none is known."""
        return finding_step(self.finding.code)


@dataclass(frozen=True, kw_only=True)
class MeasuredCase:
    """One case with its runs, and what they are worth."""

    case: Case
    #: Of every pass, in the order of storing; none for a case that was only planned.
    runs: tuple[RunRecord, ...]
    #: What the latency is worth, whatever the outputs are: by it more rounds are made.
    latency: CaseResult
    #: The latency with the check of the outputs.
    result: CaseResult
    #: The autocorrelation by the other cases of its campaign and device.
    others: Autocorrelation
    #: Those with a run of it; the only one where it has none.
    campaigns: tuple[Campaign, ...]
    #: None where the store doesn't have it.
    facts: DeviceFacts | None = None
    program: Build | None = None

    @property
    def campaign(self) -> Campaign | None:
        """The newest campaign with a run of it, which its figure is of; None when unknown."""
        return max(self.campaigns, key=attrgetter("created_at"), default=None)

    @property
    def campaign_id(self) -> CampaignId:
        """That campaign's id; only for a case with runs or a campaign."""
        return self.campaign.campaign_id if self.campaign else self.runs[-1].campaign_id

    @property
    def terms(self) -> Terms:
        """Its campaign's terms."""
        return self.campaign.terms if self.campaign is not None else Terms()

    @property
    def device(self) -> str:
        """Its device's title, or its serial number."""
        return str(self.case.serial) if self.facts is None else self.facts.title

    @property
    def build(self) -> str:
        """Its program's name, where that is known, with the first digits of its contents."""
        names = [self.program.name] if self.program is not None else []
        return " ".join([*names, self.case.build_sha256[:8]])

    @cached_property
    def is_virtual(self) -> bool:
        """Whether an invocation's device is virtual, or the program is a fake binary."""
        is_fake = self.program is not None and self.program.is_virtual
        return is_fake or any(run.is_virtual for run in self.runs)

    @property
    def system(self) -> str:
        """The operating system's fingerprint when the campaign began; empty when it wasn't kept."""
        return self.terms.fingerprints.get(self.case.serial, "")

    @property
    def origin(self) -> str:
        """Where its campaigns were imported from, in words; empty for this store's own."""
        origins = (campaign.terms.origin for campaign in self.campaigns)
        return "; ".join(dict.fromkeys(origin.text for origin in origins if origin is not None))

    @property
    def change_rule(self) -> ChangeRule | None:
        """When a change was claimed by pairs that ended as soon as their verdict was known; None for
        a case of another campaign.
        """
        return self.terms.pairing.change_rule if self.terms.pairing is not None else None

    @cached_property
    def timing(self) -> tuple[RunRecord, ...]:
        """The runs of its latency."""
        return tuple(run for run in self.runs if run.run_pass is FIGURE_PASS)

    @cached_property
    def used(self) -> dict[int, RunRecord]:
        """Invocation number -> run, of those that the figure comes from."""
        chosen = set(self.result.used)
        return {run.invocation: run for run in self.timing if run.run_id in chosen}

    @cached_property
    def outputs(self) -> Outputs | None:
        """The state of the outputs of its figure; None where no run completed."""
        if not _has_completed(self.runs):
            return None
        reports = [run.report for run in self.runs if run.report is not None]
        # A text of another lab may say that its CPU ran XNNPACK's kernels.
        is_builtin = DELEGATES[self.case.delegate].is_builtin and all(
            report.delegate.actual in ("", self.case.delegate.value) for report in reports
        )
        return outputs_of(self.result.parity, is_builtin=is_builtin)

    @cached_property
    def findings(self) -> tuple[FindingCount, ...]:
        """Each finding once, worst first."""
        groups = grouped(
            ((kind, run) for run in self.runs for kind in _kinds(run.verdict.findings).items()),
            lambda item: item[0][0],
        )
        counts = [
            FindingCount(
                finding=members[0][0][1],
                count=len(members),
                is_of_figure=any(run.run_id in self.result.used for _, run in members),
            )
            for members in groups.values()
        ]
        counts += [
            FindingCount(finding=item, count=0, is_of_figure=True)
            for kind, item in _kinds(self.result.findings).items()
            if kind not in groups
        ]
        counts.sort(
            key=lambda item: (
                SEVERITIES.index(item.finding.severity),
                -item.count,
                item.finding.code,
            )
        )
        return tuple(counts)

    @property
    def codes(self) -> frozenset[str]:
        """Codes of the warnings of the runs that the figure comes from, and of the figure itself."""
        return frozenset(
            item.finding.code
            for item in self.findings
            if item.is_of_figure and item.finding.severity is Severity.WARNING
        )

    @property
    def grade(self) -> Grade | None:
        """The worst grade among the runs used; None when one of them has none."""
        return self.result.grade

    @cached_property
    def evidence(self) -> DelegateEvidence | None:
        """Where the operators ran, of the most informative invocation; None when no output was
        read.
        """
        read = [run for run in self.timing if run.report is not None]
        used = [run for run in read if run.run_id in self.result.used] or read
        evidence = [run.report.delegate for run in used if run.report is not None]
        return next((item for item in evidence if item.truth is self.result.truth), None) or (
            evidence[-1] if evidence else None
        )

    @cached_property
    def actual(self) -> str:
        """Where the operators of the runs used ran."""
        return actual_of(self.used.values())


def _kinds(findings: Sequence[Finding]) -> dict[tuple[str, Severity], Finding]:
    """Return the first finding of each kind: a kind counts once per invocation."""
    return {(item.code, item.severity): item for item in reversed(findings)}


def _has_completed(runs: Iterable[RunRecord]) -> bool:
    return any(run.outcome is Outcome.COMPLETED for run in runs)


def actual_of(runs: Iterable[RunRecord]) -> str:
    """Return where the operators of some runs ran: ``gpu, partial``; empty when nothing shows it."""
    reports = [run.report for run in runs if run.report is not None]
    places = sorted({place_of(report.delegate) for report in reports if report.delegate.actual})
    truths = sorted({report.delegate.truth.value for report in reports})
    return ", ".join([*places, *truths]) if places else ""


def judge_cases(
    runs: Iterable[RunRecord],
    campaigns: Sequence[Campaign] = (),
    *,
    beside: Iterable[RunRecord] = (),
    devices: Mapping[Serial, DeviceFacts] = _NOTHING,
    builds: Mapping[str, Build] = _NOTHING,
) -> dict[CaseKey, MeasuredCase]:
    """Return each case that was planned or run, judged by its runs: those planned first, in the
    order of their campaigns.

    Runs that only warm a device for pairs, and those of the reference workload, are no results.

    Args:
        runs: The runs, in the order in which they were stored.
        campaigns: Their campaigns, with what was planned and known when they began.
        beside: Further runs of these campaigns, whose cases aren't wanted from them; they show the
            autocorrelation of their device.
        devices: By serial number.
        builds: By sha256.
    """
    by_id = {campaign.campaign_id: campaign for campaign in campaigns}

    def is_result(run: RunRecord) -> bool:
        campaign = by_id.get(run.campaign_id)
        is_warm_up = campaign is not None and campaign.is_warm_up(run.run_pass, run.invocation)
        return not is_warm_up and run.run_pass is not REFERENCE_PASS

    planned = [
        item
        for campaign in sorted(campaigns, key=attrgetter("created_at"))
        for item in campaign.invocations
        if item.run_pass is not REFERENCE_PASS
    ]
    timed = {item.case.case_key for item in planned if item.run_pass is FIGURE_PASS}
    by_case = grouped(filter(is_result, runs), lambda run: run.case.case_key)
    cases = {item.case.case_key: item.case for item in planned}
    cases |= {key: case_runs[0].case for key, case_runs in by_case.items()}
    results = [run for case_runs in by_case.values() for run in case_runs]
    checks = newest_checks(results, campaigns)
    timed_runs = (run for run in (*results, *beside) if run.run_pass is FIGURE_PASS)
    autocorrelations = _autocorrelations(filter(is_result, timed_runs), by_id)
    gathered: dict[CaseKey, MeasuredCase] = {}
    for key, case in cases.items():
        case_runs = by_case.get(key, [])
        # A case without a completed run has no outputs to check.
        check = checks.get(case.outputs_key) if checks and _has_completed(case_runs) else None
        timing = [run for run in case_runs if run.run_pass is FIGURE_PASS]
        name = timing[-1].campaign_id if timing else CampaignId("")
        others = autocorrelations.get((name, key), NO_AUTOCORRELATION)
        rule = by_id[name].terms.stopping if name in by_id else None
        latency = replace(
            judge_latency(case_runs, others=others),
            precision_goal=(rule or StoppingRule()).half_width,
        )
        if latency.status is CaseStatus.NOT_RUN and key not in timed:
            latency = replace(latency, status=CaseStatus.UNTIMED)
        names = dict.fromkeys(run.campaign_id for run in case_runs)
        with_runs = [by_id[name] for name in names if name in by_id]
        gathered[key] = MeasuredCase(
            case=case,
            runs=tuple(case_runs),
            latency=latency,
            result=with_outputs(latency, case_runs, check),
            others=others,
            campaigns=tuple(campaigns if len(campaigns) == 1 else with_runs),
            facts=devices.get(case.serial),
            program=builds.get(case.build_sha256),
        )
    return gathered


def _autocorrelations(
    runs: Iterable[RunRecord], campaigns: Mapping[CampaignId, Campaign]
) -> dict[tuple[CampaignId, CaseKey], Autocorrelation]:
    """Return, for each campaign and case, its device's autocorrelation without that case: from the
    device's other cases in the campaign and from earlier campaigns as known when it began.

    ``runs`` are of all cases of the campaigns: an interval doesn't depend on which of them are
    shown.
    """
    cases = grouped(runs, lambda run: (run.campaign_id, run.case.serial, run.case.case_key))
    by_case = {place: _autocorrelation(case_runs) for place, case_runs in cases.items()}
    rest_of_device: dict[tuple[CampaignId, CaseKey], Autocorrelation] = {}
    for (name, serial), places in grouped(by_case, lambda place: place[:2]).items():
        terms = campaigns[name].terms if name in campaigns else Terms()
        weight, total = terms.autocorrelations.get(serial, (0.0, 0.0))
        earlier = Autocorrelation(weight=weight, total=total)
        device_total = sum((by_case[place] for place in places), earlier)
        rest_of_device |= {(name, place[2]): device_total - by_case[place] for place in places}
    return rest_of_device


def _autocorrelation(runs: Iterable[RunRecord]) -> Autocorrelation:
    """Return the autocorrelation that the runs of one case show of their device."""
    _, measured = of_one_kind([run for run in runs if run.verdict.quality is not Quality.REJECTED])
    measured.sort(key=lambda pair: pair[0].started_at)
    return autocorrelation_of(logs_of([latency_us for _, latency_us in measured]))


def measured_cases(
    runs: Iterable[RunRecord],
    *,
    devices: Mapping[Serial, DeviceFacts],
    builds: Mapping[str, Build],
    campaigns: Iterable[Campaign] = (),
) -> list[MeasuredCase]:
    """Return the cases with runs of their latency, one for each campaign and case, campaign by
    campaign in the order in which they were stored; runs of an unfit device don't count.
    """
    by_id = {campaign.campaign_id: campaign for campaign in campaigns}
    fit_runs = (
        run
        for run in runs
        if run.outcome is not Outcome.UNFIT
        and (run.run_pass is FIGURE_PASS or check_of(run) is not None)
    )
    measured: list[MeasuredCase] = []
    for name, campaign_runs in grouped(fit_runs, lambda run: run.campaign_id).items():
        campaign = [by_id[name]] if name in by_id else []
        cases = judge_cases(campaign_runs, campaign, devices=devices, builds=builds)
        keys = dict.fromkeys(run.case.case_key for run in campaign_runs)
        measured += [cases[key] for key in keys if cases[key].timing]
    return measured
