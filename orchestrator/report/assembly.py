"""From stored records to the figures of a report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from orchestrator.analysis.case_result import CaseResult, CaseStatus, judge_case, remembered
from orchestrator.analysis.outcome import figure_us, of_one_kind, truth_of
from orchestrator.analysis.rounds import standings
from orchestrator.records.campaign import Campaign
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.evaluation import Evaluation
from orchestrator.records.identity import CaseKey, Serial
from orchestrator.records.run import DelegateEvidence, RunRecord
from orchestrator.records.verdict import Finding, Severity
from orchestrator.records.workload import Build, Case, Model, Pass, SkippedCase
from orchestrator.report.curves import (
    diff_pairs,
    known_median,
    latency_reports,
    memory_reports,
    start_rows,
    sustained_rows,
)
from orchestrator.report.data import (
    BestMark,
    CampaignRow,
    DeviceRow,
    FindingRow,
    InvocationRow,
    ModelRow,
    ReportData,
    ResultRow,
    SkipRow,
)
from orchestrator.report.energy import energy_row, load_rows
from orchestrator.report.escapes import without_folders
from orchestrator.report.headline import headline_of, totals_of
from orchestrator.report.labels import MODEL_HASH, configuration_labels, configuration_order, unique_labels
from orchestrator.report.logs import Outputs, ShownLog, shown_logs
from orchestrator.report.next_steps import finding_step, next_step
from orchestrator.report.operators import profiles_of
from orchestrator.report.page_policy import without_collector
from orchestrator.report.scaling import with_comparisons
from orchestrator.report.shared import with_shared
from orchestrator.report.winners import contests_of

_VIRTUAL_SUFFIX = " (virtual)"
_MODEL_SUFFIX = ".tflite"


@without_collector
def build_report_data(
    *,
    campaigns: Sequence[Campaign],
    runs: Iterable[RunRecord],
    devices: Mapping[Serial, DeviceFacts],
    models: Mapping[str, Model],
    builds: Mapping[str, Build],
    accuracy: Mapping[str, float] | None = None,
    outputs: Outputs | None = None,
    evaluations: Iterable[Evaluation] = (),
) -> ReportData:
    """Derive the figures of a report over some campaigns.

    Args:
        campaigns: those reported on; with their invocations and skips, cases that weren't run are shown too.
        runs: their runs in the order in which they were stored, read once; without attachments.
        devices: facts by serial; devices that no case or skip names are left out.
        models: by sha256.
        builds: by sha256; builds that no case names are left out.
        accuracy: in percent by model name (with or without ``.tflite``) or sha256, where somebody measured it.
        outputs: what the runs left behind, asked for those runs whose logs are shown; none are without it.
        evaluations: of the accuracy by delegate, oldest first.
    """
    gathered = _Gathered(campaigns, runs, outputs)
    cases = gathered.cases
    skips = _unique_skips(campaigns)
    device_rows = _device_rows(gathered, [skip.serial for skip in skips], devices)
    model_rows = _model_rows(cases.values(), models, accuracy or {})
    labels = configuration_labels(cases.values(), builds)
    # Of the same configuration and metric the newest.
    newest: dict[object, dict[str, Evaluation]] = defaultdict(dict)
    for each in evaluations:
        if each.found is not None:
            newest[_evaluated_key(each)][each.found.metric] = each
    rows = [
        _result_row(
            case,
            gathered,
            model=model_rows[case.subject],
            device=device_rows[case.serial],
            configuration=labels[key],
            is_fake=case.build_sha256 in builds and builds[case.build_sha256].is_virtual,
            evaluations=tuple(newest[_case_key(case)].values()) if newest else (),
        )
        for key, case in cases.items()
    ]
    rows.sort(
        key=lambda row: (
            row.model.label,
            row.device.is_virtual,
            row.device.label,
            configuration_order(row.case, row.configuration),
        )
    )
    results = with_shared(tuple(with_comparisons(rows)))
    used_builds = {case.build_sha256 for case in cases.values()}
    skipped = tuple(
        SkipRow(
            device=device_rows[skip.serial],
            model_name=skip.model_name,
            delegate=skip.delegate,
            threads=skip.threads,
            tool=skip.tool,
            reason_code=skip.reason_code,
            reason=skip.reason,
        )
        for skip in skips
    )
    campaign_rows = tuple(_campaign_row(campaign) for campaign in campaigns)
    shown_devices = tuple(sorted(device_rows.values(), key=lambda row: (row.is_virtual, row.label)))
    totals = totals_of(results, skipped)
    contests = contests_of(results)
    return ReportData(
        campaigns=campaign_rows,
        devices=shown_devices,
        models=tuple(sorted(model_rows.values(), key=lambda row: row.label)),
        builds=tuple(builds[sha256] for sha256 in sorted(used_builds) if sha256 in builds),
        results=results,
        skipped=skipped,
        totals=totals,
        headline=headline_of(campaign_rows, shown_devices, results, totals, contests),
        contests=contests,
        diffs=diff_pairs(results, {row.campaign_id: row.title for row in campaign_rows}),
    )


class _Gathered:
    """Runs by case, and what is shown of the one whose log tells most."""

    def __init__(self, campaigns: Sequence[Campaign], runs: Iterable[RunRecord], outputs: Outputs | None) -> None:
        self.cases: dict[CaseKey, Case] = {}
        self.runs: dict[CaseKey, list[RunRecord]] = defaultdict(list)
        #: Cases whose latency was asked for.
        self.timed: set[CaseKey] = set()
        #: How precise the plan of the newest campaign wanted them.
        self.goals: dict[CaseKey, float] = {}
        #: Where campaigns were imported from.
        self.origins = {
            str(campaign.campaign_id): campaign.terms.origin.text
            for campaign in campaigns
            if campaign.terms.origin is not None
        }
        #: How long sustained runs were to last, by campaign.
        self.sustained_s = {str(campaign.campaign_id): campaign.terms.sustained_s for campaign in campaigns}
        #: How many runs of a case one round of the pass ``contention`` has, by campaign.
        self.round_widths = {str(campaign.campaign_id): 1 + len(campaign.terms.contention) for campaign in campaigns}
        for campaign in sorted(campaigns, key=lambda campaign: _aware(campaign.created_at)):
            rule = campaign.terms.stopping
            for invocation in campaign.invocations:
                # The reference workload says how the device is, and is no result of the plan.
                if invocation.run_pass is not Pass.REFERENCE:
                    self.cases.setdefault(invocation.case.case_key, invocation.case)
                if invocation.run_pass is Pass.TIMING:
                    self.timed.add(invocation.case.case_key)
                    if rule is not None:
                        self.goals[invocation.case.case_key] = rule.half_width
        #: What the other cases of its device show of the memory of invocations.
        self.others: dict[CaseKey, tuple[float, ...]] = {}
        kept = []
        known = {campaign.campaign_id: campaign for campaign in campaigns}
        for run in runs:
            if run.campaign_id in known and known[run.campaign_id].is_warm_up(run.run_pass, run.invocation):
                continue
            if run.run_pass is not Pass.REFERENCE:
                self.cases.setdefault(run.case.case_key, run.case)
                self.runs[run.case.case_key].append(run)
            kept.append(run)
        of_device: dict[Serial, dict[CaseKey, list[RunRecord]]] = defaultdict(dict)
        for key, own in self.runs.items():
            of_device[self.cases[key].serial][key] = own
        for siblings in of_device.values():
            self.others |= remembered(siblings)
        self.logs = {} if outputs is None else shown_logs(self.runs.values(), outputs)
        self.stopped: dict[CaseKey, list[tuple[str, str]]] = defaultdict(list)
        for campaign in campaigns:
            if campaign.terms.stopping is not None:
                own = [run for run in kept if run.campaign_id == campaign.campaign_id]
                for key, item in standings(campaign, own).items():
                    self.stopped[key].append((item.reason.value, item.text))


def _result_row(
    case: Case,
    gathered: _Gathered,
    *,
    model: ModelRow,
    device: DeviceRow,
    configuration: str,
    is_fake: bool,
    evaluations: tuple[Evaluation, ...],
) -> ResultRow:
    # Nobody asks for them again: those of many cases take more room than the rows that are made of them.
    runs = gathered.runs.pop(case.case_key, [])
    result = judge_case(runs, others=gathered.others.get(case.case_key, ()))
    if result.status is CaseStatus.NOT_RUN and case.case_key not in gathered.timed:
        result = replace(result, status=CaseStatus.UNTIMED)
    if case.case_key in gathered.goals:
        result = replace(result, precision_goal=gathered.goals[case.case_key])
    timed = latency_reports(runs, result)
    memory = memory_reports(runs, result)
    origins = dict.fromkeys(filter(None, (gathered.origins.get(run.campaign_id) for run in runs)))
    return ResultRow(
        case=case,
        model=model,
        device=device,
        configuration=result.named(configuration),
        is_virtual=device.is_virtual or is_fake or any(run.is_virtual for run in runs),
        result=result,
        best=BestMark.NONE,
        speed_up=None,
        baseline="",
        compared=None,
        init_us=known_median(report.init_us for report in timed),
        first_us=known_median(report.first_inference_us for report in timed),
        warmup_us=known_median(report.warmup_mean_us for report in timed),
        init_memory_mib=known_median(report.init_memory_mib for report in memory),
        overall_memory_mib=known_median(report.overall_memory_mib for report in memory),
        peak_memory_mib=known_median(report.peak_memory_mib for report in memory),
        delegate=_evidence(result, runs),
        invocations=tuple(
            _invocation_row(
                run,
                result,
                gathered.logs.get(run.run_id),
                origin=gathered.origins.get(run.campaign_id, ""),
                told=_shown_of(device),
            )
            for run in runs
        ),
        starts=start_rows(runs),
        energy=energy_row(runs),
        loads=load_rows(runs, gathered.round_widths),
        profiles=profiles_of(runs),
        sustained=sustained_rows(runs, gathered.sustained_s),
        grade=result.grade,
        findings=_findings(runs, result),
        next_step=next_step(result),
        stopped=tuple(gathered.stopped[case.case_key]),
        origin="; ".join(origins),
        evaluations=evaluations,
    )


def _evaluated_key(each: Evaluation) -> tuple[object, ...]:
    """Return what an evaluation is of: threads don't change answers."""
    return each.model_sha256, each.serial, each.delegate, each.flags


def _case_key(case: Case) -> tuple[object, ...]:
    return case.model_sha256, case.serial, case.delegate.value, case.flags


def _evidence(result: CaseResult, runs: Sequence[RunRecord]) -> DelegateEvidence | None:
    timed = [run for run in runs if run.report is not None and run.run_pass is Pass.TIMING]
    told = [run for run in timed if run.run_id in result.used] or timed
    reports = [run.report for run in told if run.report is not None]
    matching = [report.delegate for report in reports if report.delegate.truth is result.truth]
    return next(iter(matching), None) or (reports[-1].delegate if reports else None)


def _shown_of(device: DeviceRow) -> Callable[[str], str]:
    """Return what becomes of a device's texts: those of a computer name folders of its user, which a report doesn't."""
    is_host = device.facts is not None and device.facts.kind is DeviceKind.HOST
    return without_folders if is_host else lambda text: text


def _invocation_row(
    run: RunRecord, result: CaseResult, shown: ShownLog | None, *, origin: str, told: Callable[[str], str]
) -> InvocationRow:
    report = run.report
    is_used = run.run_id in result.used
    # Those that aren't used are shown as they were printed.
    kind = result.figure if is_used else of_one_kind([run])[0]
    inference = report.inference if report is not None else None
    return InvocationRow(
        run_id=run.run_id,
        campaign_id=run.campaign_id,
        run_pass=run.run_pass,
        number=run.invocation + 1,
        outcome=run.outcome,
        reason_code=run.reason_code,
        reason=told(run.reason),
        quality=run.verdict.quality,
        truth=truth_of(run),
        is_used=is_used,
        started_at=_aware(run.started_at),
        duration_s=run.duration_s,
        exit_code=run.exit_code,
        latency_us=figure_us(run, kind),
        figure=kind,
        p5_us=inference.p5_us if inference is not None else None,
        p95_us=inference.p95_us if inference is not None else None,
        inferences=inference.count if inference is not None else None,
        init_us=report.init_us if report is not None else None,
        first_us=report.first_inference_us if report is not None else None,
        command_text=told(run.command),
        state_before=run.state_before,
        state_after=run.state_after,
        log=None if shown is None else replace(shown.log, text=told(shown.log.text)),
        origin=origin,
        traces=() if shown is None else shown.traces,
    )


def _findings(runs: Sequence[RunRecord], result: CaseResult) -> tuple[FindingRow, ...]:
    """Return each finding once, worst first, with the number of invocations that it was made in; 0 for the case's."""
    order = [Severity.ERROR, Severity.WARNING, Severity.INFO]
    seen: dict[tuple[str, Severity], FindingRow] = {}
    used = frozenset(result.used)
    for run in runs:
        is_of_figure = run.run_id in used
        counted = set()
        for finding in run.verdict.findings:
            key = (finding.code, finding.severity)
            if key in counted:
                continue
            counted.add(key)
            row = seen.get(key)
            if row is not None:
                seen[key] = replace(row, count=row.count + 1, is_of_figure=row.is_of_figure or is_of_figure)
                continue
            seen[key] = _finding_row(finding, count=1, is_of_figure=is_of_figure)
    for finding in result.findings:
        seen.setdefault((finding.code, finding.severity), _finding_row(finding, count=0, is_of_figure=True))
    return tuple(sorted(seen.values(), key=lambda row: (order.index(row.severity), -row.count, row.code)))


def _finding_row(finding: Finding, *, count: int, is_of_figure: bool) -> FindingRow:
    return FindingRow(
        code=finding.code,
        severity=finding.severity,
        message=finding.message,
        evidence=finding.evidence,
        count=count,
        next_step=finding_step(finding.code),
        is_of_figure=is_of_figure,
    )


def _device_rows(
    gathered: _Gathered, skipped_on: Sequence[str], devices: Mapping[Serial, DeviceFacts]
) -> dict[str, DeviceRow]:
    serials = dict.fromkeys([*(case.serial for case in gathered.cases.values()), *skipped_on])
    ran_virtual = {run.case.serial for runs in gathered.runs.values() for run in runs if run.is_virtual}
    facts = {str(serial): value for serial, value in devices.items()}
    titles = {
        str(serial): facts[serial].title.removesuffix(_VIRTUAL_SUFFIX) if serial in facts else str(serial)
        for serial in serials
    }
    labels = unique_labels(titles)
    return {
        serial: DeviceRow(
            serial=serial,
            label=label,
            is_virtual=serial in ran_virtual or (serial in facts and facts[serial].is_virtual),
            facts=facts.get(serial),
        )
        for serial, label in labels.items()
    }


def _model_rows(
    cases: Iterable[Case], models: Mapping[str, Model], accuracy: Mapping[str, float]
) -> dict[str, ModelRow]:
    names: dict[str, str] = {}
    labels: dict[str, str] = {}
    for case in cases:
        names[case.subject] = case.model_name.removesuffix(_MODEL_SUFFIX) or case.model_name
        _, _, figure = case.subject.partition(" ")
        labels[case.subject] = f"{names[case.subject]}, {figure}" if figure else names[case.subject]
    labels = unique_labels(labels, shown=MODEL_HASH)
    by_name = {name.removesuffix(_MODEL_SUFFIX): value for name, value in accuracy.items()}
    rows = {}
    for subject, label in labels.items():
        sha256 = subject.partition(" ")[0]
        rows[subject] = ModelRow(
            sha256=sha256,
            subject=subject,
            label=label,
            size_bytes=models[sha256].size_bytes if sha256 in models else None,
            accuracy=accuracy.get(sha256, by_name.get(names[subject])),
        )
    return rows


def _unique_skips(campaigns: Sequence[Campaign]) -> tuple[SkippedCase, ...]:
    return tuple(dict.fromkeys(skip for campaign in campaigns for skip in campaign.skipped))


def _campaign_row(campaign: Campaign) -> CampaignRow:
    return CampaignRow(
        campaign_id=campaign.campaign_id,
        name=campaign.name,
        status=campaign.status.value,
        created_at=_aware(campaign.created_at),
        finished_at=None if campaign.finished_at is None else _aware(campaign.finished_at),
        host=campaign.host,
        benchfarm_version=campaign.benchfarm_version,
        seed=campaign.seed,
        origin=campaign.terms.origin.text if campaign.terms.origin else "",
    )


def _aware(moment: datetime) -> datetime:
    """Return a time with its zone: a store without zones keeps UTC."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
