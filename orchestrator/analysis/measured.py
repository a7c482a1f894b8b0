"""What the runs of a case show together: the one gatherer of a case's judgement. Pure.

Reports, comparisons, advice and the rounds of a campaign read the same record, made by
:func:`judge_cases` from the runs and campaigns of the store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final

from orchestrator.analysis.case_result import CaseResult, CaseStatus, judge_latency
from orchestrator.analysis.findings import finding
from orchestrator.analysis.intervals import (
    NO_AUTOCORRELATION,
    Autocorrelation,
    autocorrelation_of,
)
from orchestrator.analysis.quality import of_one_kind
from orchestrator.analysis.summary import logs_of
from orchestrator.records.campaign import Campaign, Terms
from orchestrator.records.case import (
    FIGURE_PASS,
    REFERENCE_PASS,
    Build,
    CampaignId,
    CaseKey,
    Serial,
    grouped,
)
from orchestrator.records.device import DeviceFacts
from orchestrator.records.plan import StoppingRule
from orchestrator.records.run import RunRecord
from orchestrator.records.verdict import (
    OUTPUT_CODES,
    OUTPUT_FINDINGS,
    OutputCheck,
    ParityVerdict,
    Quality,
)

_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


def judge_cases(
    runs: Iterable[RunRecord],
    campaigns: Sequence[Campaign] = (),
    *,
    beside: Iterable[RunRecord] = (),
    devices: Mapping[Serial, DeviceFacts] = _NOTHING,
    builds: Mapping[str, Build] = _NOTHING,
) -> dict[CaseKey, CaseResult]:
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
    gathered: dict[CaseKey, CaseResult] = {}
    for key, case in cases.items():
        case_runs = by_case.get(key, [])
        timing = [run for run in case_runs if run.run_pass is FIGURE_PASS]
        name = timing[-1].campaign_id if timing else CampaignId("")
        others = autocorrelations.get((name, key), NO_AUTOCORRELATION)
        rule = by_id[name].terms.stopping if name in by_id else None
        latency = (
            judge_latency(case_runs, others=others)
            if case_runs
            else CaseResult(case=case, status=CaseStatus.NOT_RUN)
        )
        is_untimed = latency.status is CaseStatus.NOT_RUN and key not in timed
        names = dict.fromkeys(run.campaign_id for run in case_runs)
        with_runs = [by_id[name] for name in names if name in by_id]
        result = replace(
            latency,
            status=CaseStatus.UNTIMED if is_untimed else latency.status,
            precision_goal=(rule or StoppingRule()).half_width,
            campaigns=tuple(campaigns if len(campaigns) == 1 else with_runs),
            facts=devices.get(case.serial),
            program=builds.get(case.build_sha256),
        )
        # A case without a completed run has no outputs to check.
        if checks and result.has_completed:
            result = _with_outputs(result, checks.get(case.outputs_key))
        gathered[key] = result
    return gathered


def _with_outputs(result: CaseResult, check: OutputCheck | None) -> CaseResult:
    """Return the result of a case's latency with the check of its outputs: ``check`` is used where
    none of its runs compared them.

    A figure of a configuration whose outputs are wrong is rejected, however good it is; outputs
    that drift make it suspect.
    """
    own_check = next(iter(newest_checks(result.runs).values()), None)
    output_check = own_check or check
    if output_check is None:
        return result
    verdict, reason = output_check.verdict, output_check.reason
    result = replace(result, parity=verdict, parity_reason=reason, parity_error=output_check.error)
    if result.summary is None or result.status is CaseStatus.FELL_BACK:
        return result
    # Its own comparison has the finding already.
    if own_check is None and verdict in OUTPUT_FINDINGS.values():
        output_finding = finding(OUTPUT_CODES[verdict], evidence=reason)
        result = replace(result, findings=(*result.findings, output_finding))
    if verdict is ParityVerdict.WRONG:
        return replace(
            result,
            status=CaseStatus.REJECTED,
            quality=Quality.REJECTED,
            reason_code="wrong-outputs",
            reason=f"Its outputs are wrong, so its speed counts for nothing: {reason}.",
        )
    if verdict is ParityVerdict.DRIFT and result.quality is Quality.TRUSTED:
        return replace(
            result, quality=Quality.SUSPECT, notes=(*result.notes, f"The outputs drift: {reason}.")
        )
    return result


def check_of(run: RunRecord) -> OutputCheck | None:
    """Return a run's check of the outputs, None where it didn't compare them."""
    extra = run.report.extra if run.report is not None else {}
    if not extra.get("parity"):
        return None
    return OutputCheck(
        verdict=ParityVerdict(str(extra["parity"])),
        reason=str(extra.get("parity_reason", "")),
        error=run.extra_figure("parity_error"),
        run_id=run.run_id,
        at=run.started_at,
    )


def newest_checks(
    runs: Iterable[RunRecord], campaigns: Iterable[Campaign] = ()
) -> dict[str, OutputCheck]:
    """Return the newest comparison of each case's outputs, whatever its number of threads, by
    `Case.outputs_key`: of some runs, and those stored with their campaigns.
    """
    checks = [item for campaign in campaigns for item in campaign.terms.output_checks.items()]
    checks += [
        (run.case.outputs_key, check) for run in runs if (check := check_of(run)) is not None
    ]
    return dict(sorted(checks, key=lambda item: item[1].at))


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
) -> list[CaseResult]:
    """Return the cases with runs of their latency, one for each campaign and case, campaign by
    campaign in the order in which they were stored; runs of an unfit device don't count.
    """
    by_id = {campaign.campaign_id: campaign for campaign in campaigns}
    fit_runs = (
        run
        for run in runs
        if run.is_final and (run.run_pass is FIGURE_PASS or check_of(run) is not None)
    )
    measured: list[CaseResult] = []
    for name, campaign_runs in grouped(fit_runs, lambda run: run.campaign_id).items():
        campaign = [by_id[name]] if name in by_id else []
        cases = judge_cases(campaign_runs, campaign, devices=devices, builds=builds)
        keys = dict.fromkeys(run.case.case_key for run in campaign_runs)
        measured += [cases[key] for key in keys if cases[key].timing]
    return measured
