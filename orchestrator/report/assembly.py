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
    autocorrelation_of_others,
    judge_case,
)
from orchestrator.analysis.intervals import UNSEEN, Autocorrelation
from orchestrator.analysis.outcome import figure_us
from orchestrator.analysis.rounds import standings_of
from orchestrator.frozen import frozen
from orchestrator.passes import is_around_others, passes
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
from orchestrator.tables.operators import diff_pairs, profiles_of
from orchestrator.tables.passes import (
    FURTHER,
    PassFigure,
    known_median,
    latency_reports,
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
    """What is stored of some campaigns, as a report is made of it."""

    #: With their invocations and skips, cases that weren't run are shown too.
    campaigns: Sequence[Campaign]
    #: In the order in which they were stored, read once; without attachments.
    runs: Iterable[RunRecord]
    #: Runs of these campaigns whose case a newer one of them has: they aren't shown, and tell what
    #: their device was like.
    beside: Iterable[RunRecord] = ()
    #: By serial; devices that no case or skip names are left out.
    devices: Mapping[Serial, DeviceFacts]
    #: By sha256.
    models: Mapping[str, Model]
    #: By sha256; those that no case names are left out.
    builds: Mapping[str, Build]
    #: In percent by sha256 of the model, where somebody measured it.
    accuracy: Mapping[str, float] = field(default_factory=dict)
    #: What the runs left behind, asked for those runs whose logs are shown; none are without it.
    outputs: Outputs | None = None
    #: As ``ReportData`` has it.
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
    """Cases as planned and run."""

    cases: dict[CaseKey, Case] = field(default_factory=dict)
    #: Those that count; some may have no case of the plan.
    runs: dict[CaseKey, list[RunRecord]] = field(default_factory=dict)
    #: The devices on which a run says that it is virtual.
    virtual: set[Serial] = field(default_factory=set)
    #: Cases whose latency was asked for.
    timed: set[CaseKey] = field(default_factory=set)
    #: How precise the plan of the newest campaign wanted them.
    goals: dict[CaseKey, float] = field(default_factory=dict)
    #: What the other cases of its device show of its autocorrelation.
    others: dict[CaseKey, Autocorrelation] = field(default_factory=dict)
    #: What is known of the outputs.
    checks: OutputChecks = field(default_factory=OutputChecks)
    #: Why they got as many invocations as they have: (code, sentence).
    stopped: dict[CaseKey, list[tuple[str, str]]] = field(default_factory=lambda: defaultdict(list))
    campaigns: Mapping[str, Campaign] = field(default_factory=dict)
    devices: Mapping[str, DeviceRow] = field(default_factory=dict)
    models: Mapping[str, ModelRow] = field(default_factory=dict)
    labels: Mapping[CaseKey, str] = field(default_factory=dict)
    fake_builds: frozenset[str] = frozenset()
    logs: Mapping[RunId, tuple[LogExcerpt, str]] = field(default_factory=dict)
    #: All that there are, looked up once.
    passes: Sequence[PassSpec] = field(default_factory=passes)


def _gather(stored: Stored) -> _Gathered:
    campaigns = stored.campaigns
    found = _Gathered(
        campaigns={str(campaign.campaign_id): campaign for campaign in campaigns},
        checks=OutputChecks(campaign.terms.output_checks for campaign in campaigns),
    )
    for campaign in sorted(campaigns, key=lambda campaign: campaign.created_at):
        rule = campaign.terms.stopping
        for invocation in campaign.invocations:
            key = invocation.case.case_key
            # The reference workload shows the state of the device, and is no result of the plan.
            if not is_around_others(invocation):
                found.cases.setdefault(key, invocation.case)
            if invocation.run_pass is FIGURE_PASS:
                found.timed.add(key)
                if rule is not None:
                    found.goals[key] = rule.half_width

    def counts(run: RunRecord) -> bool:
        known = found.campaigns.get(run.campaign_id)
        is_warm_up = known is not None and known.is_warm_up(run.run_pass, run.invocation)
        return not is_warm_up and not is_around_others(run)

    found.runs = grouped(filter(counts, stored.runs), lambda run: run.case.case_key)
    for key, own in found.runs.items():
        for run in own:
            found.checks.learn(run)
            found.cases.setdefault(key, run.case)
            if run.is_virtual:
                found.virtual.add(run.case.serial)
    found.others = _others(found, filter(counts, stored.beside))
    for campaign in campaigns:
        if campaign.terms.stopping is not None:
            # Of several campaigns each is on its own.
            cases = (
                (key, [run for run in runs if run.campaign_id == campaign.campaign_id])
                for key, runs in found.runs.items()
            )
            for key, item in standings_of(campaign, cases, found.others):
                found.stopped[key].append((item.reason.value, item.text))
    return found


def _others(found: _Gathered, beside: Iterable[RunRecord]) -> dict[CaseKey, Autocorrelation]:
    """Return of each case what the other cases of its campaign show of its device."""
    own = [run for runs in found.runs.values() for run in runs if run.run_pass is FIGURE_PASS]
    timed = [*own, *(run for run in beside if run.run_pass is FIGURE_PASS)]
    others = {
        name: autocorrelation_of_others(
            grouped(runs, lambda run: run.case.case_key), found.campaigns.get(name)
        )
        for name, runs in grouped(timed, lambda run: run.campaign_id).items()
    }
    return {run.case.case_key: others[run.campaign_id][run.case.case_key] for run in own}


def _result_row(case: Case, gathered: _Gathered) -> ResultRow:
    key, campaigns, device = case.case_key, gathered.campaigns, gathered.devices[case.serial]
    # Runs of many cases take more room than the rows that are made of them: they are let go one by
    # one.
    runs: Sequence[RunRecord] = gathered.runs.pop(key, ())
    # What is known of outputs says nothing of a case that never ran to its end.
    has_outputs = any(run.outcome is Outcome.COMPLETED for run in runs)
    check = gathered.checks.of(case) if has_outputs else None
    result = judge_case(runs, others=gathered.others.get(key, UNSEEN), check=check)
    if result.status is CaseStatus.NOT_RUN and key not in gathered.timed:
        result = replace(result, status=CaseStatus.UNTIMED)
    if key in gathered.goals:
        result = replace(result, precision_goal=gathered.goals[key])
    of_pass = grouped(runs, lambda run: run.run_pass)
    ran = [own for own in gathered.passes if own.name in of_pass]
    timed = latency_reports(of_pass[FIGURE_PASS], result)
    # Of a pass of its own, else of the runs that the latency comes from.
    peaks = (run for own in ran if own.measures_memory for run in of_pass[own.name])
    memory = usable_reports(peaks) or timed
    ran_in = {
        run.campaign_id: campaigns[run.campaign_id] for run in runs if run.campaign_id in campaigns
    }
    origins = {name: origin_of(campaign) for name, campaign in ran_in.items()}
    candidates = campaigns if len(campaigns) == 1 else ran_in
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
        init_us=known_median(report.init_us for report in timed),
        first_us=known_median(report.first_inference_us for report in timed),
        warmup_us=known_median(report.warmup_mean_us for report in timed),
        init_memory_mib=known_median(report.init_memory_mib for report in memory),
        overall_memory_mib=known_median(report.overall_memory_mib for report in memory),
        peak_memory_mib=known_median(report.peak_memory_mib for report in memory),
        delegate=_evidence(result, runs),
        invocations=tuple(map(invocation, runs)),
        of_passes={
            FURTHER.name: tuple(
                figure for own in ran for figure in _figures(own, of_pass[own.name])
            ),
            **{
                own.table.name: tuple(own.table.lines(of_pass[own.name], campaigns))
                for own in ran
                if own.table is not None
            },
        },
        profiles=profiles_of(of_pass[Pass.PROFILE]),
        findings=_findings(runs, result),
        suspect=frozenset(run.run_pass for run in runs if run.verdict.quality is Quality.SUSPECT),
        stopped=tuple(gathered.stopped[key]),
        campaign=max(candidates.values(), key=lambda item: item.created_at, default=None),
        origin="; ".join(dict.fromkeys(filter(None, origins.values()))),
    )


def _figures(own: PassSpec, runs: Sequence[RunRecord]) -> Iterator[PassFigure]:
    """Yield the figures of a pass."""
    reports = usable_reports(runs)
    for figure in own.figures:
        known = [value for report in reports if (value := figure.value(report)) is not None]
        yield PassFigure(
            run_pass=own.name.value,
            head=figure.head,
            value=known_median(known),
            digits=figure.digits,
            count=len(known),
        )


def _evidence(result: CaseResult, runs: Sequence[RunRecord]) -> DelegateEvidence | None:
    timed = [run for run in runs if run.report is not None and run.run_pass is FIGURE_PASS]
    counted = [run for run in timed if run.run_id in result.used] or timed
    found = [run.report.delegate for run in counted if run.report is not None]
    return next((each for each in found if each.truth is result.truth), None) or (
        found[-1] if found else None
    )


def _invocation_row(
    run: RunRecord,
    result: CaseResult,
    origin: str,
    shown: tuple[LogExcerpt, str] | None,
    *,
    is_host: bool,
) -> InvocationRow:
    log, samples = shown or (None, "")
    is_used = run.run_id in result.used
    kind = result.figure
    if not is_used:
        # As it was printed: a mean also beside a median that can't be one.
        has_median = figure_us(run, FigureKind.MEDIAN) is not None
        kind = FigureKind.MEDIAN if has_median else FigureKind.MEAN
    latency_us = figure_us(run, kind)
    # The profiles hold the operators already.
    if run.report is not None and run.report.operators:
        run = replace(run, report=replace(run.report, operators=()))
    if is_host:
        # Texts of this computer name folders of its user, which a report doesn't.
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
    """Return each finding once, worst first, with the number of invocations that it was made in; 0
    for the case's.
    """
    made = grouped(
        ((kind, item, run) for run in runs for kind, item in _kinds(run.verdict.findings).items()),
        lambda found: found[0],
    )
    used = frozenset(result.used)
    rows = [
        FindingRow(
            finding=found[0][1],
            count=len(found),
            is_of_figure=any(run.run_id in used for *_, run in found),
        )
        for found in made.values()
    ]
    rows += [
        FindingRow(finding=item, count=0, is_of_figure=True)
        for kind, item in _kinds(result.findings).items()
        if kind not in made
    ]
    rows.sort(
        key=lambda row: (SEVERITIES.index(row.finding.severity), -row.count, row.finding.code)
    )
    return tuple(rows)


def _kinds(findings: Sequence[Finding]) -> dict[tuple[str, Severity], Finding]:
    """Return the first finding of each kind: of one invocation each kind counts once."""
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
    for subject, label in unique_labels(labels, shown=MODEL_HASH).items():
        sha256 = subject.partition(" ")[0]
        rows[subject] = ModelRow(
            sha256=sha256,
            subject=subject,
            label=label,
            # Of a model that somebody else measured the size isn't known.
            size_bytes=(models[sha256].size_bytes or None) if sha256 in models else None,
            accuracy=accuracy.get(sha256),
        )
    return rows
