"""From stored records to the figures of a report; of several campaigns each case's newest runs."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from sys import intern
from types import MappingProxyType
from typing import Any, Final, TypeVar

from orchestrator.analysis.case_result import CaseResult
from orchestrator.analysis.measured import judge_cases
from orchestrator.analysis.rounds import progress_by_case
from orchestrator.analysis.samples import without_output
from orchestrator.passes import passes, stored_pass
from orchestrator.passes.specification import PassSpec
from orchestrator.records import frozen
from orchestrator.records.campaign import Campaign
from orchestrator.records.case import (
    FIGURE_PASS,
    Build,
    CampaignId,
    Case,
    CaseKey,
    Model,
    Pass,
    RunId,
    Serial,
    grouped,
)
from orchestrator.records.device import DeviceFacts, DeviceKind, DeviceState
from orchestrator.records.run import RunRecord, ToolReport
from orchestrator.report.data import ReportData
from orchestrator.report.winners import ranked
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
    FIGURES_TABLE,
    PassFigure,
    latency_reports,
    median_or_none,
    usable_reports,
)
from orchestrator.tables.rows import (
    DeviceRow,
    ModelRow,
    ResultRow,
    SkipRow,
    title_of,
)
from orchestrator.tables.runs import LogExcerpt, Outputs, logs_and_samples
from orchestrator.units import counted

_MODEL_SUFFIX = ".tflite"


@contextmanager
def without_garbage_collection() -> Iterator[None]:
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


@without_garbage_collection()
def build_report_data(stored: Stored) -> ReportData:
    """Derive the figures of a report over some campaigns."""
    campaigns, builds = stored.campaigns, stored.builds
    measured = judge_cases(
        stored.runs, campaigns, beside=stored.beside, devices=stored.devices, builds=builds
    )
    cases = [item.case for item in measured.values()]
    stopped = _stopped(campaigns, measured)
    skipped = tuple(dict.fromkeys(skip for campaign in campaigns for skip in campaign.skipped))
    device_rows = _device_rows(measured.values(), [skip.serial for skip in skipped], stored.devices)
    model_rows = _model_rows(cases, stored.models, stored.accuracy)
    case_runs = [item.runs for item in measured.values() if item.runs]
    shown = _Shown(
        devices=device_rows,
        models=model_rows,
        configurations=configuration_labels(cases, builds),
        logs=logs_and_samples(case_runs, stored.outputs) if stored.outputs is not None else {},
        passes=passes(),
    )
    del case_runs
    # Runs take more memory than their rows, so they are removed case by case.
    rows = [_result_row(measured.pop(case.case_key), shown, stopped) for case in cases]
    rows.sort(
        key=lambda row: (
            row.model.label,
            row.device.is_virtual,
            row.device.label,
            configuration_order(row.case, row.configuration),
        )
    )
    # A thread count that a delegate doesn't use has no column of its own.
    names = short_names(
        (row.configuration, row.case) for row in rows if not row.is_unused_thread_count
    )
    results, contests = ranked(rows, names)
    used_builds = {case.build_sha256 for case in cases}
    shown_devices = tuple(sorted(device_rows.values(), key=lambda row: (row.is_virtual, row.label)))
    return ReportData(
        campaigns=tuple(campaigns),
        devices=shown_devices,
        models=tuple(sorted(model_rows.values(), key=lambda row: row.label)),
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


@frozen
class _Shown:
    """What the rows of a report show beside their runs."""

    devices: Mapping[str, DeviceRow]
    #: By `Case.subject`.
    models: Mapping[str, ModelRow]
    #: The label of each case's configuration.
    configurations: Mapping[CaseKey, str]
    logs: Mapping[RunId, tuple[LogExcerpt, str]]
    #: All passes, looked up once.
    passes: Sequence[PassSpec]


def _stopped(
    campaigns: Sequence[Campaign], measured: Mapping[CaseKey, CaseResult]
) -> Mapping[CaseKey, Sequence[tuple[str, str]]]:
    """Return why cases have their number of invocations, as code and sentence for each campaign
    with a stopping rule.
    """
    stopped: dict[CaseKey, list[tuple[str, str]]] = defaultdict(list)
    for campaign in campaigns:
        if campaign.terms.stopping is not None:
            for key, item in progress_by_case(campaign, measured).items():
                stopped[key].append((item.reason.value, item.text))
    return stopped


def _result_row(
    result: CaseResult, shown: _Shown, stopped: Mapping[CaseKey, Sequence[tuple[str, str]]]
) -> ResultRow:
    key, device = result.case.case_key, shown.devices[result.case.serial]
    is_host = device.facts is not None and device.facts.kind is DeviceKind.HOST
    # Texts of this computer name its user's folders, which a report leaves out.
    clean: Callable[[str], str] = without_folders if is_host else str
    campaigns = {str(campaign.campaign_id): campaign for campaign in result.campaigns}
    of_pass = grouped(result.runs, lambda run: run.run_pass)
    specs_with_runs = [spec for spec in shown.passes if spec.name in of_pass]
    timed = latency_reports(of_pass[FIGURE_PASS], result)
    # From a separate pass, else from the runs of the latency.
    peaks = (run for spec in specs_with_runs if spec.measures_memory for run in of_pass[spec.name])
    memory_reports = usable_reports(peaks) or timed
    runs = tuple(_shown_run(run, clean) for run in result.runs)
    logged = ((run.run_id, *shown.logs[run.run_id]) for run in runs if run.run_id in shown.logs)
    return ResultRow(
        **vars(replace(result, runs=runs, reason=clean(result.reason))),
        model=shown.models[result.case.subject],
        device=device,
        configuration=result.named(shown.configurations[key]),
        init_us=median_or_none(report.init_us for report in timed),
        first_us=median_or_none(report.first_inference_us for report in timed),
        warmup_us=median_or_none(report.warmup_mean_us for report in timed),
        init_memory_mib=median_or_none(report.init_memory_mib for report in memory_reports),
        overall_memory_mib=median_or_none(report.overall_memory_mib for report in memory_reports),
        peak_memory_mib=median_or_none(report.peak_memory_mib for report in memory_reports),
        logs={
            run_id: (replace(log, text=clean(log.text)), samples) for run_id, log, samples in logged
        },
        pass_lines={
            FIGURES_TABLE.name: tuple(
                figure for spec in specs_with_runs for figure in _figures(spec, of_pass[spec.name])
            ),
            **{
                spec.table.name: tuple(spec.table.lines(of_pass[spec.name], campaigns))
                for spec in specs_with_runs
                if spec.table is not None
            },
        },
        profiles=newest_profiles(of_pass[Pass.PROFILE]),
        stopped=tuple(stopped.get(key, ())),
    )


def _shown_run(run: RunRecord, clean: Callable[[str], str]) -> RunRecord:
    """Return a run with cleaned texts and without its operators, which the profiles hold."""
    report = run.report
    if report is not None and report.operators:
        report = replace(report, operators=())
    elif clean is str:
        return run
    return replace(run, report=report, reason=clean(run.reason), command=clean(run.command))


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


def _device_rows(
    cases: Iterable[CaseResult], skipped_on: Sequence[str], devices: Mapping[Serial, DeviceFacts]
) -> dict[str, DeviceRow]:
    is_virtual: dict[str, bool] = {}
    for item in cases:
        says_so = any(run.is_virtual for run in item.runs)
        is_virtual[item.case.serial] = is_virtual.get(item.case.serial, False) or says_so
    serials = dict.fromkeys([*is_virtual, *skipped_on])
    facts = {str(serial): value for serial, value in devices.items()}
    titles = {
        str(serial): facts[serial].kind_title if serial in facts else str(serial)
        for serial in serials
    }
    return {
        serial: DeviceRow(
            serial=serial,
            label=label,
            is_virtual=is_virtual.get(serial, False)
            or (serial in facts and facts[serial].is_virtual),
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


#: Shared by all runs to save memory.
_NONE: Final[Mapping[Any, Any]] = MappingProxyType({})
Value = TypeVar("Value")


def slim_runs(runs: Iterable[RunRecord]) -> Iterator[RunRecord]:
    """Yield runs without data that no report shows: echoed parameters, most of the device state.

    Invocations of a case share equal values, such as where the operators ran.
    """
    interned = _Interned()
    for run in map(without_output, runs):
        key = run.case.case_key
        yield replace(
            run,
            campaign_id=CampaignId(intern(run.campaign_id)),
            report=None if run.report is None else _slim_report(run.report, interned, key),
            verdict=interned.equal(run.verdict, key, "verdict"),
            state_before=_slim_state(run.state_before, interned, key),
            state_after=_slim_state(run.state_after, interned, key),
        )


class _Interned:
    """A cache of values that runs share in memory."""

    def __init__(self) -> None:
        self._newest: dict[Hashable, Any] = {}

    def equal(self, value: Value, *place: Hashable) -> Value:
        """Return the newest value of this place if it is equal, else the value."""
        newest = self._newest.get(place)
        if type(newest) is type(value) and newest == value:
            return newest
        self._newest[place] = value
        return value

    def table(self, values: Mapping[Any, Any]) -> dict[Any, Any]:
        """Return a mapping whose keys and figures are held once."""
        intern_value = self._newest.setdefault
        return {
            intern(key) if isinstance(key, str) else key: intern_value((type(value), value), value)
            for key, value in values.items()
        }


def _slim_report(report: ToolReport, interned: _Interned, key: Hashable) -> ToolReport:
    extra = {intern(name): interned.equal(value, key, name) for name, value in report.extra.items()}
    return replace(
        report,
        outcome=intern(report.outcome),
        warmup=None,
        delegate=interned.equal(report.delegate, key, "delegate"),
        extra=extra or _NONE,
    )


def _slim_state(
    state: DeviceState | None, interned: _Interned, key: Hashable
) -> DeviceState | None:
    if state is None:
        return None
    return replace(
        state,
        heat_c=interned.table(state.heat_c),
        battery_health=intern(state.battery_health),
        plugged=intern(state.plugged),
        clock_khz=interned.table(state.clock_khz),
        clock_limit_khz=interned.equal(state.clock_limit_khz, key, "limits"),
        cooling=_NONE,
        clock_floor_khz=_NONE,
        governors=_NONE,
        time_in_state=_NONE,
        gpu_time_in_state=_NONE,
    )


def newest_runs(stored: Stored, is_shown: Callable[[Case, CampaignId], bool]) -> Stored:
    """Return the runs that count of several campaigns, the other timing runs of the campaigns with
    counted runs, and a sentence about cases that are left out.

    For each case and pass, the newest campaign with a run that isn't unfit counts, of those that
    the case ``is_shown`` of. A campaign without counted runs loses its stopping rule.
    """
    runs = list(stored.runs)
    campaigns = [
        replace(
            item,
            invocations=tuple(
                planned for planned in item.invocations if is_shown(planned.case, item.campaign_id)
            ),
        )
        for item in stored.campaigns
    ]
    order = {item.campaign_id: item.created_at for item in campaigns}
    campaigns_by_case: dict[tuple[CaseKey, Pass], set[CampaignId]] = defaultdict(set)
    for run in runs:
        is_counted = run.campaign_id in order and is_shown(run.case, run.campaign_id)
        if run.is_final and is_counted:
            campaigns_by_case[run.case.case_key, run.run_pass].add(run.campaign_id)
    newest = {key: max(names, key=order.__getitem__) for key, names in campaigns_by_case.items()}
    repeated = {
        case_key
        for (case_key, run_pass), names in campaigns_by_case.items()
        if len(names) > 1 and not stored_pass(run_pass).keeps_all_campaigns
    }
    counting = {
        campaign for (_, run_pass), campaign in newest.items() if stored_pass(run_pass).is_in_plans
    }
    kept_runs: list[RunRecord] = []
    beside_runs: list[RunRecord] = []
    for run in runs:
        if is_shown(run.case, run.campaign_id) and (
            stored_pass(run.run_pass).keeps_all_campaigns
            or newest.get((run.case.case_key, run.run_pass), run.campaign_id) == run.campaign_id
        ):
            kept_runs.append(run)
        elif run.run_pass is FIGURE_PASS and run.campaign_id in counting:
            beside_runs.append(run)
    stored = replace(stored, campaigns=campaigns, runs=kept_runs, beside=beside_runs)
    if not repeated:
        return stored
    with_rules = [
        item
        if item.campaign_id in counting
        else replace(item, terms=replace(item.terms, stopping=None))
        for item in campaigns
    ]
    left_out = (
        f"{counted(len(repeated), 'case')} ran in several of these campaigns: the newest one's figures are shown, and "
        "'benchfarm compare' sets campaigns side by side."
    )
    return replace(stored, campaigns=with_rules, left_out=left_out)
