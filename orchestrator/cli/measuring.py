"""``benchfarm bench`` and ``benchfarm run``: from what was asked for to stored runs, a report and a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from orchestrator.analysis.case_result import CaseStatus
from orchestrator.bootstrap import Farm, Settings, this_computer
from orchestrator.cli import nights
from orchestrator.cli.beginning import begin, identify, prepare
from orchestrator.cli.board import PublishedBoard
from orchestrator.cli.build_options import builds_of
from orchestrator.cli.campaigns import new_campaign_id
from orchestrator.cli.checking import unchecked_hint
from orchestrator.cli.files import check_writable
from orchestrator.cli.host_files import host_files
from orchestrator.cli.joining import PluggedIn
from orchestrator.cli.progress import observer_for_stderr, tell
from orchestrator.cli.reports import load_ahead, report_data, report_title, write_html
from orchestrator.cli.result import CommandResult, Streamed, one_line
from orchestrator.cli.runs_passing import CountedRuns, read_again, stopped
from orchestrator.clock import SystemClock
from orchestrator.engine.campaign import CampaignResult, CampaignRunner
from orchestrator.engine.events import DeviceNote, FileMoving
from orchestrator.engine.recovery import Turns
from orchestrator.engine.workload import Services, Workload
from orchestrator.errors import HostStorageError, UsageError
from orchestrator.executors.local import ThreadExecutor
from orchestrator.ports import Device
from orchestrator.records.campaign import Campaign
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.identity import Serial
from orchestrator.records.plan import Plan
from orchestrator.records.workload import Build, Model, Pass

if TYPE_CHECKING:
    from orchestrator.report.data import ReportData

#: Cases that were never meant to have a figure, or whose turn didn't come.
_NO_FIGURE_EXPECTED: Final = frozenset({CaseStatus.UNTIMED, CaseStatus.NOT_RUN, CaseStatus.SKIPPED})


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRequest:
    """The options of ``benchfarm bench``, as they were typed."""

    models: tuple[Path, ...]
    delegates: tuple[str, ...]
    threads: tuple[str, ...]
    every_thread_count: bool
    tools: tuple[str, ...]
    serials: tuple[str, ...]
    profiles: tuple[str, ...]
    where: tuple[str, ...]
    one_of_each: str
    at_most: int | None
    host: bool
    flags: tuple[str, ...]
    modes: tuple[str, ...]
    builds: tuple[str, ...]
    passes: tuple[str, ...]
    #: None: as many as the noise needs.
    invocations: str | None
    precision: str | None
    budget: str | None
    sustained: str | None
    parity_inputs: str | None
    sentinel: bool
    reboot: bool
    num_runs: int
    min_secs: float
    max_secs: float
    affinity: str
    timeout_s: float
    seed: int
    #: None: after the models.
    name: str | None


def bench(settings: Settings, request: BenchRequest, out: Path | None) -> CommandResult:
    """Measure the named models; raises UsageError kinds before anything runs."""
    plan = plan_of(request)
    # Whoever waits for an answer means the phones that are there.
    return execute(settings, replace(plan, devices=replace(plan.devices, joins=False)), out)


def run_plan(settings: Settings, path: Path, out: Path | None, *, budget: str = "", until: str = "") -> CommandResult:
    """Run a plan file; raises PlanError with all its faults before anything runs.

    ``budget`` is the most time that each device may take, ``until`` the moment at which nothing may run any more.
    """
    from orchestrator.config.plan import load_plan

    plan = load_plan(path, home=settings.data_folder)
    return execute(settings, nights.limited(plan, budget=budget, until=until, now=SystemClock().now()), out)


def plan_of(request: BenchRequest) -> Plan:
    """Return the plan that the options mean; raises PlanError naming the options at fault."""
    from orchestrator.config.plan_options import plan_from_options

    return plan_from_options(
        models=request.models,
        delegates=request.delegates,
        threads=request.threads,
        every_thread_count=request.every_thread_count,
        tools=request.tools,
        flags=request.flags,
        modes=request.modes,
        serials=request.serials,
        profiles=request.profiles,
        where=request.where,
        one_of_each=request.one_of_each,
        at_most=request.at_most,
        host=request.host,
        passes=request.passes or (("sustained",) if request.sustained else ()),
        builds=builds_of(request.builds, request.tools),
        settings={
            "num_runs": request.num_runs,
            "min_secs": request.min_secs,
            "max_secs": request.max_secs,
            "affinity": request.affinity,
        },
        invocations=request.invocations,
        precision=request.precision,
        budget=request.budget,
        sustained=request.sustained,
        parity_inputs=request.parity_inputs,
        sentinel=request.sentinel,
        reboot=request.reboot,
        timeout=request.timeout_s,
        seed=request.seed,
        name=request.name,
    )


def execute(settings: Settings, plan: Plan, out: Path | None) -> CommandResult:
    """Run a plan, however it came to be; raises UsageError kinds before anything runs."""
    if out is not None:
        check_writable(out)
    with Farm(settings) as farm:
        # Before any phone is looked for: what is wrong with a plan's files is wrong without phones too.
        models, named = identify(plan), host_files(plan)
        plan = nights.when_open(farm, plan)
        farm.open_store_ahead()
        # A night is for the phones that there are; whoever names phones on the command line means these.
        devices = farm.open_devices(plan.devices, despite_losses=plan.devices.joins)
        for hint in filter(None, (unchecked_hint(settings, known) for _, known in devices)):
            tell(settings.log_format, "hint", hint)
        beginning = prepare(farm, plan, devices, models, named)
        if not beginning.expansion.cases:
            raise UsageError("there is no time for any of the cases", hint="allow more, or plan less")
        campaign = begin(
            farm,
            plan,
            devices,
            beginning,
            named,
            campaign_id=new_campaign_id(farm.clock.now()),
            host=this_computer(),
        )
        arrivals = PluggedIn(farm, campaign, devices, plan=plan, models=models, named=named)
        return measure(farm, campaign, beginning.models, beginning.builds, devices, out, arrivals)


def measure(
    farm: Farm,
    campaign: Campaign,
    models: Sequence[Model],
    builds: Sequence[Build],
    devices: Sequence[tuple[Device, DeviceFacts]],
    out: Path | None,
    arrivals: PluggedIn,
) -> CommandResult:
    """Run what is open of a campaign on opened devices, and return what came of it with its report."""
    services, workload = equipment(farm, campaign, models, builds)
    if not any(device.kind is DeviceKind.HOST for device, _ in devices):
        # This computer has time for it while phones measure; when it is measured itself, it hasn't.
        load_ahead()
    with arrivals.listening(services.observer):
        result = CampaignRunner(services, turns_of(farm, services)).run(workload, devices, arrivals=arrivals)
    summary = _summary(farm, result, out)
    if result.fault is not None:
        # What the others measured has its report; the fault is told as any other, by its own exit code.
        tell(farm.settings.log_format, "report", summary.text.rpartition("\n")[2], campaign_id=campaign.campaign_id)
        raise result.fault
    return summary


def equipment(
    farm: Farm, campaign: Campaign, models: Sequence[Model], builds: Sequence[Build]
) -> tuple[Services, Workload]:
    """Return what a campaign is run with; progress goes to standard error from now on."""
    observer = PublishedBoard(observer_for_stderr(farm.settings.log_format), farm.board_folder)
    farm.at_exit.callback(observer.close)
    farm.on_push = lambda serial, name, sent_bytes, size_bytes: observer.on_event(
        FileMoving(serial=Serial(serial), name=name, sent_bytes=sent_bytes, size_bytes=size_bytes)
    )
    farm.on_wait = lambda serial, text: observer.on_event(DeviceNote(serial=Serial(serial), text=text, is_problem=True))
    services = Services(
        store=farm.store,
        tools=farm.tools,
        conditioner=farm.conditioner,
        observer=observer,
        clock=farm.clock,
        cancelled=farm.cancelled,
        reference=farm.reference,
    )
    workload = Workload(
        campaign=campaign,
        models={model.sha256: model for model in models},
        builds={build.sha256: build for build in builds},
        # Only what the campaign was begun with: another build's runs would be another night's.
        flex_builds={
            sha256: twin
            for sha256, twin in farm.builds.with_flex(builds).items()
            if twin.sha256 in campaign.terms.files
        },
        known_flags={build.sha256: farm.flag_book.names(build) for build in builds},
    )
    farm.pushes = campaign.terms.pushes
    for serial, reason in farm.left_out.items():
        observer.on_event(DeviceNote(serial=Serial(serial), text=f"not used: {reason}", is_problem=True))
    return services, workload


def turns_of(farm: Farm, services: Services) -> Turns:
    """Return what gives a campaign's devices their turns on this computer."""
    return Turns(services, farm.lease, ThreadExecutor(farm.cancelled), rescuer=farm.rescuer, quarantine=farm.quarantine)


def _summary(farm: Farm, result: CampaignResult, out: Path | None) -> CommandResult:
    from orchestrator.report.shared import shared_cases, shared_text
    from orchestrator.report.tables import render_text_table

    campaign = result.campaign
    counted = CountedRuns()
    data = report_data(farm, [campaign], runs=counted.of(farm.store.runs(campaign_ids=[campaign.campaign_id])))
    path = out or farm.settings.data_folder / "reports" / f"{campaign.campaign_id}.html"
    unwritten = ""
    try:
        write_html(data, path, title=report_title([campaign]), cache_folder=farm.settings.cache_folder)
    except (UsageError, HostStorageError) as error:
        # What was measured is stored; a report can be rendered again.
        unwritten = str(error)
    doubtful, cut = counted.doubtful, nights.left_out_of(campaign.skipped, counted.late)
    shared = [f"{item.rows[0].model.label}, {item.rows[0].configuration}: {shared_text(item)}"
              for item in shared_cases(data.results)]  # fmt: skip
    again = read_again(farm, campaign)
    lines = [render_text_table(data).rstrip("\n"), "", *map(one_line, shared)]
    lines += [nights.told(cut)] if cut else []
    skips = dict.fromkeys(
        f"not run on {skip.serial}: {skip.delegate}, {skip.tool}: {skip.reason}" for skip in campaign.skipped
    )
    lines += [one_line(line) for line in skips]
    lines += [f"{serial}: {one_line(reason)}" for serial, reason in result.lost.items()]
    lacking = farm.choice.lacking if farm.choice is not None else ""
    lines += [lacking] if lacking else []
    came = {item.case.serial for item in campaign.invocations}
    missing = {serial: why for serial, why in farm.missing.items() if campaign.terms.joins and serial not in came}
    lines += [one_line(f"{serial}: not measured: {why}") for serial, why in missing.items()]
    if result.savings is not None and result.savings.text:
        lines.append(result.savings.text)
    if any(item.run_pass is Pass.SUSTAINED for item in campaign.invocations):
        lines.append(f"latency against time: 'benchfarm results sustained {campaign.campaign_id}'")
    if result.left:
        least = "at least " if campaign.terms.stopping is not None else ""
        lines.append(f"{least}{result.left} invocations are left; 'benchfarm run --resume' goes on")
    nothing_clean = _nothing_clean(data)
    lines += [one_line(nothing_clean)] if nothing_clean else []
    if unwritten:
        lines.append(f"the report could not be written: {unwritten}")
        lines.append(f"'benchfarm report {campaign.campaign_id} --out FILE' renders it again")
    else:
        lines.append(f"report: {path}")
    return CommandResult(
        text="\n".join(lines),
        data={
            "campaign_id": campaign.campaign_id,
            "status": campaign.status,
            "stored": result.stored,
            "left": result.left,
            "saved": result.savings,
            "stopped": Streamed(lambda: stopped(campaign, again())),
            "without_result": doubtful,
            "nothing_clean": nothing_clean,
            "no_time_for": cut,
            "lost": result.lost,
            "lacking": lacking,
            "missing": missing,
            "shared": shared,
            "left_out": farm.left_out,
            "report": None if unwritten else path,
            "runs": Streamed(again),
        },
        is_kept=True,
        exit_code=HostStorageError.exit_code
        if unwritten
        else int(bool(doubtful or result.left or missing or nothing_clean)) or nights.CUT_EXIT_CODE * bool(cut),
    )


def _nothing_clean(data: ReportData) -> str:
    """Return why no figure of a campaign can be relied on; empty where one can, or where none was asked for."""
    from orchestrator.report.tables import why_not_clean

    timed = [row for row in data.results if row.result.status not in _NO_FIGURE_EXPECTED]
    if not timed or any(row.result.is_judged for row in timed):
        return ""
    reasons = ", ".join(dict.fromkeys(map(why_not_clean, timed)))
    return f"no result is clean ({reasons}); 'benchfarm report' shows the findings and what to do about them"
