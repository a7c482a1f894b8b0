"""From stored records to the figures of a report."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from orchestrator.analysis.case_result import (
    CaseResult,
    CaseStatus,
    OutputChecks,
    device_autocorrelations,
    judge_case,
)
from orchestrator.analysis.intervals import NO_AUTOCORRELATION, Autocorrelation
from orchestrator.analysis.outcome import figure_us
from orchestrator.analysis.rounds import iter_progress
from orchestrator.frozen import frozen
from orchestrator.passes import is_reference_run, passes
from orchestrator.passes.specification import PassSpec
from orchestrator.records.campaign import Campaign
from orchestrator.records.case import (
    FIGURE_PASS,
    Build,
    Case,
    CaseKey,
    Model,
    Pass,
    RunId,
    Serial,
    grouped,
)
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.run import DelegateEvidence, FigureKind, Outcome, RunRecord
from orchestrator.records.verdict import Finding, Quality, Severity
from orchestrator.report.data import ReportData
from orchestrator.report.winners import ranked
from orchestrator.tables.devices import origin_of
from orchestrator.tables.escapes import without_folders
from orchestrator.tables.labels import (
    MODEL_HASH,
    configuration_labels,
    configuration_order,
    short_names,
    unique_labels,
)
from orchestrator.tables.operators import diff_pairs, newest_profiles
from orchestrator.tables.passes import (
    FURTHER,
    PassFigure,
    latency_reports,
    median_or_none,
    usable_reports,
)
from orchestrator.tables.rows import (
    SEVERITIES,
    DeviceRow,
    FindingRow,
    InvocationRow,
    ModelRow,
    ResultRow,
    SkipRow,
    title_of,
)
from orchestrator.tables.runs import LogExcerpt, Outputs, logs_and_samples

_MODEL_SUFFIX = ".tflite"


@contextmanager
def collector_off() -> Iterator[None]:
    """Keep the garbage collector off; it is on again afterwards when it was on before."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@frozen
class Stored:
    """The stored records of some campaigns that a report is made of."""

    #: With their planned invocations and skips: a report shows cases that weren't run, too.
    campaigns: Sequence[Campaign]
    #: In the order in which they were stored, read once; without attachments.
    runs: Iterable[RunRecord]
    #: Runs whose case a newer one of these campaigns has: they aren't shown, but show their
    #: device's autocorrelation.
    beside: Iterable[RunRecord] = ()
    #: By serial; devices that no case or skip names are left out.
    devices: Mapping[Serial, DeviceFacts]
    #: By sha256.
    models: Mapping[str, Model]
    #: By sha256; builds that no case names are left out.
    builds: Mapping[str, Build]
    #: In percent by sha256 of the model, where known.
    accuracy: Mapping[str, float] = field(default_factory=dict)
    #: Returns the attachments of the runs whose logs are shown; None for a report without logs.
    outputs: Outputs | None = None
    #: See ``ReportData.left_out``.
    left_out: str = ""


@collector_off()
def build_report_data(stored: Stored) -> ReportData:
    """Derive the figures of a report over some campaigns."""
    campaigns, builds = stored.campaigns, stored.builds
    gathered = _gather(stored)
    cases = gathered.cases
    skipped = tuple(dict.fromkeys(skip for campaign in campaigns for skip in campaign.skipped))
    device_rows = _device_rows(gathered, [skip.serial for skip in skipped], stored.devices)
    gathered.devices = device_rows
    gathered.models = _model_rows(cases.values(), stored.models, stored.accuracy)
    gathered.labels = configuration_labels(cases.values(), builds)
    gathered.fake_builds = frozenset(sha256 for sha256, build in builds.items() if build.is_virtual)
    if stored.outputs is not None:
        gathered.logs = logs_and_samples(gathered.runs.values(), stored.outputs)
    rows = [_result_row(case, gathered) for case in cases.values()]
    rows.sort(
        key=lambda row: (
            row.model.label,
            row.device.is_virtual,
            row.device.label,
            configuration_order(row.case, row.configuration),
        )
    )
    results, contests = ranked(rows)
    # A thread count that a delegate doesn't use has no column of its own.
    names = short_names(
        (row.configuration, row.case) for row in results if not row.is_unused_thread_count
    )
    used_builds = {case.build_sha256 for case in cases.values()}
    shown_devices = tuple(sorted(device_rows.values(), key=lambda row: (row.is_virtual, row.label)))
    return ReportData(
        campaigns=tuple(campaigns),
        devices=shown_devices,
        models=tuple(sorted(gathered.models.values(), key=lambda row: row.label)),
        builds=tuple(builds[sha256] for sha256 in sorted(used_builds) if sha256 in builds),
        results=results,
        skipped=tuple(SkipRow(device=device_rows[skip.serial], skipped=skip) for skip in skipped),
        names=names,
        contests=contests,
        diffs=diff_pairs(
            results, {campaign.campaign_id: title_of(campaign) for campaign in campaigns}
        ),
        left_out=stored.left_out,
    )


@dataclass(slots=True)
class _Gathered:
    """The cases as planned and run, with their lookups."""

    cases: dict[CaseKey, Case] = field(default_factory=dict)
    #: The counted runs; some may have no case of the plan.
    runs: dict[CaseKey, list[RunRecord]] = field(default_factory=dict)
    #: The devices on which a run says that it is virtual.
    virtual: set[Serial] = field(default_factory=set)
    #: Cases with a planned timing pass.
    timed: set[CaseKey] = field(default_factory=set)
    #: The precision goal of the newest campaign's plan.
    goals: dict[CaseKey, float] = field(default_factory=dict)
    #: The autocorrelation by the other cases on its device.
    autocorrelations: dict[CaseKey, Autocorrelation] = field(default_factory=dict)
    #: The checks of outputs.
    checks: OutputChecks = field(default_factory=OutputChecks)
    #: Why they have this number of invocations: (code, sentence).
    stopped: dict[CaseKey, list[tuple[str, str]]] = field(default_factory=lambda: defaultdict(list))
    campaigns: Mapping[str, Campaign] = field(default_factory=dict)
    devices: Mapping[str, DeviceRow] = field(default_factory=dict)
    models: Mapping[str, ModelRow] = field(default_factory=dict)
    labels: Mapping[CaseKey, str] = field(default_factory=dict)
    fake_builds: frozenset[str] = frozenset()
    logs: Mapping[RunId, tuple[LogExcerpt, str]] = field(default_factory=dict)
    #: All passes, looked up once.
    passes: Sequence[PassSpec] = field(default_factory=passes)


def _gather(stored: Stored) -> _Gathered:
    campaigns = stored.campaigns
    gathered = _Gathered(
        campaigns={str(campaign.campaign_id): campaign for campaign in campaigns},
        checks=OutputChecks(campaign.terms.output_checks for campaign in campaigns),
    )
    for campaign in sorted(campaigns, key=lambda campaign: campaign.created_at):
        rule = campaign.terms.stopping
        for invocation in campaign.invocations:
            key = invocation.case.case_key
            # The reference workload checks the device, and is no result of the plan.
            if not is_reference_run(invocation):
                gathered.cases.setdefault(key, invocation.case)
            if invocation.run_pass is FIGURE_PASS:
                gathered.timed.add(key)
                if rule is not None:
                    gathered.goals[key] = rule.half_width

    def is_counted(run: RunRecord) -> bool:
        campaign = gathered.campaigns.get(run.campaign_id)
        is_warm_up = campaign is not None and campaign.is_warm_up(run.run_pass, run.invocation)
        return not is_warm_up and not is_reference_run(run)

    gathered.runs = grouped(filter(is_counted, stored.runs), lambda run: run.case.case_key)
    for key, case_runs in gathered.runs.items():
        for run in case_runs:
            gathered.checks.learn(run)
            gathered.cases.setdefault(key, run.case)
            if run.is_virtual:
                gathered.virtual.add(run.case.serial)
    gathered.autocorrelations = _autocorrelations(gathered, filter(is_counted, stored.beside))
    for campaign in campaigns:
        if campaign.terms.stopping is not None:
            # Each campaign has its own stopping rule.
            cases = (
                (key, [run for run in runs if run.campaign_id == campaign.campaign_id])
                for key, runs in gathered.runs.items()
            )
            for key, item in iter_progress(campaign, cases, gathered.autocorrelations):
                gathered.stopped[key].append((item.reason.value, item.text))
    return gathered


def _autocorrelations(
    gathered: _Gathered, beside: Iterable[RunRecord]
) -> dict[CaseKey, Autocorrelation]:
    """Return the autocorrelation of each case by the other cases of its campaign and device."""
    figure_runs = [
        run for runs in gathered.runs.values() for run in runs if run.run_pass is FIGURE_PASS
    ]
    timed = [*figure_runs, *(run for run in beside if run.run_pass is FIGURE_PASS)]
    by_campaign = {
        name: device_autocorrelations(
            grouped(runs, lambda run: run.case.case_key), gathered.campaigns.get(name)
        )
        for name, runs in grouped(timed, lambda run: run.campaign_id).items()
    }
    return {
        run.case.case_key: by_campaign[run.campaign_id][run.case.case_key] for run in figure_runs
    }


def _result_row(case: Case, gathered: _Gathered) -> ResultRow:
    key, campaigns, device = case.case_key, gathered.campaigns, gathered.devices[case.serial]
    # Runs take more memory than their rows, so they are removed case by case.
    runs: Sequence[RunRecord] = gathered.runs.pop(key, ())
    # A case without a completed run has no outputs to check.
    has_outputs = any(run.outcome is Outcome.COMPLETED for run in runs)
    check = gathered.checks.of(case) if has_outputs else None
    result = judge_case(
        runs, others=gathered.autocorrelations.get(key, NO_AUTOCORRELATION), check=check
    )
    if result.status is CaseStatus.NOT_RUN and key not in gathered.timed:
        result = replace(result, status=CaseStatus.UNTIMED)
    if key in gathered.goals:
        result = replace(result, precision_goal=gathered.goals[key])
    of_pass = grouped(runs, lambda run: run.run_pass)
    specs_with_runs = [spec for spec in gathered.passes if spec.name in of_pass]
    timed = latency_reports(of_pass[FIGURE_PASS], result)
    # From a separate pass, else from the runs of the latency.
    peaks = (run for spec in specs_with_runs if spec.measures_memory for run in of_pass[spec.name])
    memory_reports = usable_reports(peaks) or timed
    campaigns_with_runs = {
        run.campaign_id: campaigns[run.campaign_id] for run in runs if run.campaign_id in campaigns
    }
    origins = {name: origin_of(campaign) for name, campaign in campaigns_with_runs.items()}
    candidates = campaigns if len(campaigns) == 1 else campaigns_with_runs
    is_host = device.facts is not None and device.facts.kind is DeviceKind.HOST
    if is_host:
        result = replace(result, reason=without_folders(result.reason))

    def invocation(run: RunRecord) -> InvocationRow:
        origin, log = origins.get(run.campaign_id, ""), gathered.logs.get(run.run_id)
        return _invocation_row(run, result, origin, log, is_host=is_host)

    return ResultRow(
        case=case,
        model=gathered.models[case.subject],
        device=device,
        configuration=result.named(gathered.labels[key]),
        is_virtual=device.is_virtual
        or case.build_sha256 in gathered.fake_builds
        or any(run.is_virtual for run in runs),
        result=result,
        init_us=median_or_none(report.init_us for report in timed),
        first_us=median_or_none(report.first_inference_us for report in timed),
        warmup_us=median_or_none(report.warmup_mean_us for report in timed),
        init_memory_mib=median_or_none(report.init_memory_mib for report in memory_reports),
        overall_memory_mib=median_or_none(report.overall_memory_mib for report in memory_reports),
        peak_memory_mib=median_or_none(report.peak_memory_mib for report in memory_reports),
        delegate=_evidence(result, runs),
        invocations=tuple(map(invocation, runs)),
        pass_lines={
            FURTHER.name: tuple(
                figure for spec in specs_with_runs for figure in _figures(spec, of_pass[spec.name])
            ),
            **{
                spec.table.name: tuple(spec.table.lines(of_pass[spec.name], campaigns))
                for spec in specs_with_runs
                if spec.table is not None
            },
        },
        profiles=newest_profiles(of_pass[Pass.PROFILE]),
        findings=_findings(runs, result),
        suspect=frozenset(run.run_pass for run in runs if run.verdict.quality is Quality.SUSPECT),
        stopped=tuple(gathered.stopped[key]),
        campaign=max(candidates.values(), key=lambda item: item.created_at, default=None),
        origin="; ".join(dict.fromkeys(filter(None, origins.values()))),
    )


def _figures(spec: PassSpec, runs: Sequence[RunRecord]) -> Iterator[PassFigure]:
    """Yield the figures of a pass."""
    reports = usable_reports(runs)
    for figure in spec.figures:
        values = [value for report in reports if (value := figure.value(report)) is not None]
        yield PassFigure(
            run_pass=spec.name.value,
            head=figure.head,
            value=median_or_none(values),
            digits=figure.digits,
            count=len(values),
        )


def _evidence(result: CaseResult, runs: Sequence[RunRecord]) -> DelegateEvidence | None:
    timed = [run for run in runs if run.report is not None and run.run_pass is FIGURE_PASS]
    used = [run for run in timed if run.run_id in result.used] or timed
    evidence = [run.report.delegate for run in used if run.report is not None]
    return next((item for item in evidence if item.truth is result.truth), None) or (
        evidence[-1] if evidence else None
    )


def _invocation_row(
    run: RunRecord,
    result: CaseResult,
    origin: str,
    log_and_samples: tuple[LogExcerpt, str] | None,
    *,
    is_host: bool,
) -> InvocationRow:
    log, samples = log_and_samples or (None, "")
    is_used = run.run_id in result.used
    kind = result.figure
    if not is_used:
        # As printed: the mean where there is no usable median.
        has_median = figure_us(run, FigureKind.MEDIAN) is not None
        kind = FigureKind.MEDIAN if has_median else FigureKind.MEAN
    latency_us = figure_us(run, kind)
    # The profiles hold the operators already.
    if run.report is not None and run.report.operators:
        run = replace(run, report=replace(run.report, operators=()))
    if is_host:
        # Texts of this computer name its user's folders, which a report leaves out.
        run = replace(run, reason=without_folders(run.reason), command=without_folders(run.command))
        log = None if log is None else replace(log, text=without_folders(log.text))
    return InvocationRow(
        run=run,
        is_used=is_used,
        figure=kind,
        latency_us=latency_us,
        origin=origin,
        log=log,
        samples=samples,
    )


def _findings(runs: Sequence[RunRecord], result: CaseResult) -> tuple[FindingRow, ...]:
    """Return each finding once, worst first, with its number of invocations; 0 for the case's."""
    groups = grouped(
        ((kind, item, run) for run in runs for kind, item in _kinds(run.verdict.findings).items()),
        lambda item: item[0],
    )
    used = frozenset(result.used)
    rows = [
        FindingRow(
            finding=members[0][1],
            count=len(members),
            is_of_figure=any(run.run_id in used for *_, run in members),
        )
        for members in groups.values()
    ]
    rows += [
        FindingRow(finding=item, count=0, is_of_figure=True)
        for kind, item in _kinds(result.findings).items()
        if kind not in groups
    ]
    rows.sort(
        key=lambda row: (SEVERITIES.index(row.finding.severity), -row.count, row.finding.code)
    )
    return tuple(rows)


def _kinds(findings: Sequence[Finding]) -> dict[tuple[str, Severity], Finding]:
    """Return the first finding of each kind: a kind counts once per invocation."""
    return {(item.code, item.severity): item for item in reversed(findings)}


def _device_rows(
    gathered: _Gathered, skipped_on: Sequence[str], devices: Mapping[Serial, DeviceFacts]
) -> dict[str, DeviceRow]:
    serials = dict.fromkeys([*(case.serial for case in gathered.cases.values()), *skipped_on])
    facts = {str(serial): value for serial, value in devices.items()}
    titles = {
        str(serial): facts[serial].kind_title if serial in facts else str(serial)
        for serial in serials
    }
    return {
        serial: DeviceRow(
            serial=serial,
            label=label,
            is_virtual=serial in gathered.virtual or (serial in facts and facts[serial].is_virtual),
            facts=facts.get(serial),
        )
        for serial, label in unique_labels(titles).items()
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
    rows = {}
    for subject, label in unique_labels(labels, length=MODEL_HASH).items():
        sha256 = subject.partition(" ")[0]
        rows[subject] = ModelRow(
            sha256=sha256,
            subject=subject,
            label=label,
            # Another lab's model has no known size.
            size_bytes=(models[sha256].size_bytes or None) if sha256 in models else None,
            accuracy=accuracy.get(sha256),
        )
    return rows
