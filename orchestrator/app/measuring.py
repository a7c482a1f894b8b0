"""Measuring a plan: from what was asked for to stored runs, and what came of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from orchestrator.analysis.case_result import CaseStatus
from orchestrator.app import nights
from orchestrator.app.beginning import begin, identify, new_campaign_id, prepare
from orchestrator.app.board import PublishedBoard
from orchestrator.app.host_files import host_files
from orchestrator.app.joining import PluggedIn
from orchestrator.app.listing import unchecked_hint
from orchestrator.app.reporting import load_ahead, report_data
from orchestrator.app.running import resumable
from orchestrator.bootstrap import Farm, OpenedDevices, this_computer
from orchestrator.config.plan_keys import PlanOptions
from orchestrator.engine.campaign import CampaignResult, CampaignRunner
from orchestrator.engine.events import DeviceNote, FileMoving, Notice
from orchestrator.engine.recovery import Turns
from orchestrator.engine.workload import Services, Workload
from orchestrator.errors import UsageError
from orchestrator.records.campaign import Campaign
from orchestrator.records.device import DeviceKind
from orchestrator.records.identity import Serial
from orchestrator.records.night import OUT_OF_TIME
from orchestrator.records.plan import DelegateChoice, Plan
from orchestrator.records.run import RunRecord
from orchestrator.records.workload import Build, Model

if TYPE_CHECKING:
    from orchestrator.report.data import ReportData

#: Cases that were never meant to have a figure, or whose turn didn't come.
_NO_FIGURE_EXPECTED: Final = frozenset({CaseStatus.UNTIMED, CaseStatus.NOT_RUN, CaseStatus.SKIPPED})


#: Options that ask another question than which delegate is the fastest.
_NOT_WHICH_DELEGATE: Final = ("delegates", "flags", "modes", "passes", "sustained")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCampaign:
    """What came of running a campaign."""

    result: CampaignResult
    #: The devices that it began with, and those that could not be used.
    opened: OpenedDevices
    #: Its cases as a report shows them.
    data: ReportData
    #: How many runs gave no result.
    without_result: int
    #: What there was no time for, as ``nights.left_out_of`` returns it.
    cut: Sequence[Mapping[str, object]]

    @property
    def campaign(self) -> Campaign:
        """The campaign at its end."""
        return self.result.campaign

    @property
    def missing(self) -> Mapping[str, str]:
        """Phones that were meant and never measured on -> why."""
        campaign = self.campaign
        came = {item.case.serial for item in campaign.invocations}
        if not campaign.terms.joins:
            return {}
        return {serial: why for serial, why in self.opened.missing.items() if serial not in came}

    @property
    def nothing_clean(self) -> str:
        """Why no figure can be relied on; empty where one can, or where none was asked for."""
        from orchestrator.report.tables import why_not_clean

        timed = [row for row in self.data.results if row.result.status not in _NO_FIGURE_EXPECTED]
        if not timed or any(row.result.is_judged for row in timed):
            return ""
        return f"no result is clean ({', '.join(dict.fromkeys(map(why_not_clean, timed)))})"


def bench_plan(options: PlanOptions) -> Plan:
    """Return the plan of a quick measurement; raises as ``plan_from_options``."""
    from orchestrator.config.plan_options import plan_from_options

    return plan_from_options(**with_question(options))


def with_question(options: PlanOptions) -> PlanOptions:
    """Return a quick measurement's options with the delegates to try.

    Where nothing but timing is asked for, and no delegate is named, the question is which one is the fastest.
    """
    if any(options.get(key) for key in _NOT_WHICH_DELEGATE):
        return options
    return {**options, "delegates": DelegateChoice.AUTO.value}


def bench(farm: Farm, plan: Plan) -> MeasuredCampaign:
    """Measure a plan on the phones that are there: whoever waits for an answer means these. Raises as :func:`run`."""
    return run(farm, replace(plan, devices=replace(plan.devices, joins=False)))


def run(farm: Farm, plan: Plan) -> MeasuredCampaign:
    """Run a plan, however it came to be.

    Raises:
        UsageError kinds, NoDeviceError, ArtifactError: before anything runs.
        InterruptedByUserError: Ctrl-C; devices are restored, what was measured is stored.
        StoreError, HostStorageError: a run couldn't be kept.
    """
    # Before any phone is looked for: what is wrong with a plan's files is wrong without phones too.
    models, named = identify(plan), host_files(plan)
    plan = nights.when_open(farm, plan)
    farm.open_store_ahead()
    # A night is for the phones that there are; whoever names phones on the command line means these.
    opened = farm.open_devices(plan.devices, despite_losses=plan.devices.joins)
    for hint in filter(None, (unchecked_hint(farm.settings, facts) for facts in opened.facts)):
        farm.observer.on_event(Notice(event="hint", text=hint))
    beginning = prepare(farm, plan, opened.devices, models, named)
    if not beginning.expansion.cases:
        raise UsageError("there is no time for any of the cases", hint="allow more, or plan less")
    campaign = begin(
        farm,
        plan,
        opened.devices,
        beginning,
        named,
        campaign_id=new_campaign_id(farm.clock.now()),
        host=this_computer(),
    )
    arrivals = PluggedIn(farm, campaign, opened, plan=plan, models=models, named=named)
    return measure(farm, campaign, beginning.models, beginning.builds, opened, arrivals)


def measure(
    farm: Farm,
    campaign: Campaign,
    models: Sequence[Model],
    builds: Sequence[Build],
    opened: OpenedDevices,
    arrivals: PluggedIn,
) -> MeasuredCampaign:
    """Run what is open of a campaign on opened devices, and return what came of it."""
    services, workload = equipment(farm, campaign, models, builds, opened)
    if not any(device.kind is DeviceKind.HOST for device, _ in opened.devices):
        # This computer has time for it while phones measure; when it is measured itself, it hasn't.
        load_ahead(len(campaign.invocations), farm.settings.cache_folder)
    with arrivals.listening(services.observer), resumable(campaign):
        result = CampaignRunner(services, turns_of(farm, services)).run(workload, opened.devices, arrivals=arrivals)
    counted = _CountedRuns()
    runs = counted.of(farm.store.runs(campaign_ids=[campaign.campaign_id]))
    return MeasuredCampaign(
        result=result,
        opened=opened,
        data=report_data(farm, [result.campaign], runs=runs),
        without_result=counted.doubtful,
        cut=nights.left_out_of(result.campaign.skipped, counted.late),
    )


class _CountedRuns:
    """What a campaign's result says of runs that pass by: those of a large one, held together, take a gigabyte."""

    def __init__(self) -> None:
        #: How many gave no result.
        self.doubtful = 0
        #: Those that there was no time for.
        self.late: list[RunRecord] = []

    def of(self, runs: Iterable[RunRecord]) -> Iterator[RunRecord]:
        """Yield runs as they are, and count them."""
        for run in runs:
            self.doubtful += run.is_without_result
            if run.reason_code == OUT_OF_TIME:
                self.late.append(run)
            yield run


def equipment(
    farm: Farm, campaign: Campaign, models: Sequence[Model], builds: Sequence[Build], opened: OpenedDevices
) -> tuple[Services, Workload]:
    """Return what a campaign is run with; the farm's observer hears of it, and other processes see how it stands."""
    observer = PublishedBoard(farm.observer, farm.board_folder)
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
    for serial, reason in opened.left_out.items():
        observer.on_event(DeviceNote(serial=Serial(serial), text=f"not used: {reason}", is_problem=True))
    return services, workload


def turns_of(farm: Farm, services: Services) -> Turns:
    """Return what gives a campaign's devices their turns on this computer."""
    return Turns(services, farm.lease, rescuer=farm.rescuer, quarantine=farm.quarantine)
