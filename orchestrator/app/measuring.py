"""Measuring a plan: from a plan or a stored campaign to stored runs and their results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Self

from orchestrator.analysis.case_result import NOT_MEASURED
from orchestrator.analysis.measured import judge_cases
from orchestrator.analysis.rounds import progress_by_case
from orchestrator.app import time_limits
from orchestrator.app.attached import Needs, OpenedDevices, unchecked_hint
from orchestrator.app.preparing import Prepared, identify_models, prepare, start, task_of
from orchestrator.app.status import PublishedStatus
from orchestrator.app.workspace import Workspace
from orchestrator.config.plan import plan_from_options
from orchestrator.engine.campaign import run_on_devices
from orchestrator.engine.decisions import slim
from orchestrator.engine.events import CampaignEnded, DeviceNote
from orchestrator.engine.invocation import CampaignContext
from orchestrator.errors import (
    ArtifactError,
    DeviceError,
    HostStorageError,
    InterruptedByUserError,
    StoreError,
    UsageError,
)
from orchestrator.programs import program
from orchestrator.records.campaign import Campaign, CampaignStatus
from orchestrator.records.case import (
    NOT_IN_TOOL,
    CampaignId,
    Case,
    Serial,
    ToolName,
)
from orchestrator.records.plan import DelegateChoice, DeviceSelection, Plan, PlanOptions
from orchestrator.records.run import OUT_OF_TIME, TOO_FAST, RunRecord
from orchestrator.records.verdict import ParityVerdict
from orchestrator.store import IN_MEMORY
from orchestrator.tables.escapes import one_line
from orchestrator.units import counted

if TYPE_CHECKING:
    from orchestrator.report.data import ReportData

#: Options that ask another question than which delegate is the fastest.
_NOT_WHICH_DELEGATE: Final = ("delegates", "flags", "modes", "passes", "sustained")


@dataclass(frozen=True, kw_only=True)
class MeasuredCampaign:
    """A campaign that was run, however it began, with its results.

    Its runs are read from the store once, while the workspace is open.
    """

    workspace: Workspace
    result: CampaignEnded
    #: The devices at its beginning, and those that could not be used.
    opened: OpenedDevices
    #: The campaign before it, of a program with too few digits, and how many of its runs this one
    #: replaces.
    coarser: tuple[Campaign, ...] = ()
    replaced_runs: int = 0
    #: The open campaigns that can't be resumed in its place, with the reason.
    passed_over: tuple[str, ...] = ()

    @property
    def campaign(self) -> Campaign:
        """The campaign at its end."""
        return self.result.campaign

    @property
    def campaigns(self) -> list[Campaign]:
        """All that were measured, the last one last."""
        return [*self.coarser, self.campaign]

    @property
    def unfinished(self) -> str:
        """Why it isn't finished, for one that was begun on one device; empty where it is."""
        if self.result.status is CampaignStatus.FINISHED:
            return ""
        return next(iter(self.result.lost.values()), "it was abandoned")

    @property
    def _ids(self) -> list[CampaignId]:
        return [item.campaign_id for item in self.campaigns]

    def checked(self) -> Self:
        """Return it; raises what ended a device's part and isn't the device's."""
        if self.result.fault is not None:
            raise self.result.fault
        return self

    @cached_property
    def data(self) -> ReportData:
        """Its cases as a report shows them."""
        from orchestrator.app.stored import report_data

        return report_data(self.workspace, self.campaigns)

    @cached_property
    def without_result(self) -> int:
        """How many runs gave no result."""
        result_counts = self.workspace.store.result_counts(self._ids).values()
        return sum(item.without_result for item in result_counts) - self.replaced_runs

    @property
    def runs_text(self) -> str:
        """How many runs there are, for people: ``8 runs (1 without a result), 4 left out``."""
        left_out = self.result.not_run
        failed = f" ({self.without_result} without a result)" if self.without_result else ""
        text = counted(self.result.stored - left_out, "run") + failed
        return text + (f", {left_out} left out" if left_out else "")

    @cached_property
    def cut(self) -> Sequence[time_limits.LeftOut]:
        """The cases and runs without time, as ``time_limits.stored_left_out`` returns them."""
        by_campaign = time_limits.stored_left_out(self.workspace.store, self._ids)
        return [item for left_out in by_campaign.values() for item in left_out]

    @property
    def missing(self) -> Mapping[str, str]:
        """Selected phones that were never measured on -> why."""
        measured = self.campaign.serials
        return {
            serial: why for serial, why in self.opened.missing.items() if serial not in measured
        }

    @property
    def has_wrong_outputs(self) -> bool:
        """Whether a configuration computes something else than its model, known from now or before."""
        return any(row.parity is ParityVerdict.WRONG for row in self.data.results)

    @cached_property
    def nothing_clean(self) -> str:
        """Why no figure is clean; empty where one is, or where none was requested.

        Empty for pairs: their comparison says it.
        """
        if self.campaign.terms.pairing is not None:
            return ""
        timed = [row for row in self.data.results if row.status not in NOT_MEASURED]
        if not timed or any(row.is_judged for row in timed):
            return ""
        reasons = ", ".join(dict.fromkeys(row.why_not_clean for row in timed))
        return f"no result is clean ({reasons}); 'benchfarm report' shows the findings and what to do about them"

    @property
    def is_lacking(self) -> bool:
        """Whether a requested result is missing, not clean or wrong. Cases without time don't
        count.
        """
        return any(
            [
                self.without_result,
                self.result.left,
                self.missing,
                self.nothing_clean,
                self.has_wrong_outputs,
                self.passed_over,
                self.workspace.store.is_lost,
            ]
        )

    @cached_property
    def problems(self) -> list[str]:
        """The missing results, each with its reason, for people."""
        return self.problems_with(f"'benchfarm run --resume {self.campaign.campaign_id}'")

    def problems_with(self, next_step: str) -> list[str]:
        """Return the problems; ``next_step`` says how to measure the remaining runs. For pairs
        their comparison says it.
        """
        campaign, result = self.campaign, self.result
        store = self.workspace.store
        problems = [
            f"{store.name} was deleted or replaced meanwhile: these runs aren't in it"
            if store.is_lost
            else "",
            *self.passed_over,
            time_limits.left_out_text(self.cut),
            *_skip_lines(campaign),
        ]
        problems += [f"{serial}: {reason}" for serial, reason in result.lost.items()]
        problems += [self.opened.choice.lacking]
        problems += [f"{serial}: not measured: {why}" for serial, why in self.missing.items()]
        problems += [self.nothing_clean]
        if result.left and campaign.terms.pairing is None:
            # A stopping rule may add runs after the next round.
            at_least = "at least " if campaign.terms.stopping is not None else ""
            problems.append(f"{at_least}{counted(result.left, 'run')} left: {next_step}")
        return [one_line(text) for text in problems if text]


def _skip_lines(campaign: Campaign) -> list[str]:
    """Return the skipped cases as lines: each reason once for all of its devices, with the number
    of threads where the delegate runs with another number. Cases without time are one line for each
    device and model.
    """
    runs = {(item.case.serial, item.case.delegate, item.case.tool) for item in campaign.invocations}
    serials: dict[str, dict[str, None]] = {}
    late: dict[str, dict[str, None]] = {}
    for skip in campaign.skipped:
        threads = f", {counted(skip.threads, 'thread')}"
        if skip.reason_code == OUT_OF_TIME:
            where = f"no time on {skip.serial} for {skip.model_name}"
            late.setdefault(where, {})[f"{skip.delegate}{threads}, {skip.tool}"] = None
            continue
        thread_note = threads if (skip.serial, skip.delegate, skip.tool) in runs else ""
        subject = f"{skip.delegate}{thread_note}, {skip.tool}: "
        text = f"{'' if skip.reason_code == NOT_IN_TOOL else subject}{skip.reason}"
        serials.setdefault(text, {})[skip.serial] = None
    return [f"{where}: {'; '.join(cases)}" for where, cases in late.items()] + [
        f"not run on {next(iter(phones)) if len(phones) == 1 else f'{len(phones)} devices'}: {text}"
        for text, phones in serials.items()
    ]


def bench_plan(options: PlanOptions, *, in_python: bool = False) -> Plan:
    """Return the plan of a quick measurement; raises as ``plan_from_options``.

    Where nothing but timing is asked for, and no delegate is named, the question is which one is
    the fastest. There is no reference workload by default: the user waits for the answer.
    """
    options = {"reference_check": False, **options}
    if not any(options.get(key) for key in _NOT_WHICH_DELEGATE):
        options = {**options, "delegates": DelegateChoice.AUTO.value}
    return plan_from_options(in_python, **options)


def run_plan(workspace: Workspace, plan: Plan, needs: Needs = Needs.ONE) -> MeasuredCampaign:
    """Run a plan, however it came to be, on the phones that are there when it begins.

    A model that is too fast for its program is measured with a finer one where that is there.

    Raises:
        UsageError kinds, NoDeviceError, ArtifactError: before anything runs.
        InterruptedByUserError: Ctrl-C; devices are restored, what was measured is stored.
        StoreError, HostStorageError: a run couldn't be kept.
    """
    measured = _run_once(workspace, plan, needs)
    ended = measured.result
    if ended.fault is not None or ended.lost or ended.left:
        # The missing runs come first: they are reported, and measured by a resume.
        return measured
    runs = workspace.store.runs(
        campaign_ids=[measured.campaign.campaign_id], reason_codes=[TOO_FAST]
    )
    too_fast = Counter(run.case for run in runs)
    for tool in dict.fromkeys(case.tool for case in too_fast):
        if (finer := program(tool).finer_program) is not None and finer not in plan.matrix.tools:
            fast = {case: count for case, count in too_fast.items() if case.tool is tool}
            return _remeasure(workspace, plan, measured, fast, finer)
    return measured


def _remeasure(
    workspace: Workspace,
    plan: Plan,
    measured: MeasuredCampaign,
    fast: Mapping[Case, int],
    finer: ToolName,
) -> MeasuredCampaign:
    """Measure models that were too fast for their program with a finer one; ``fast`` has their
    cases, with the number of runs.

    Without the finer program the first results stay.
    """
    coarse = next(iter(fast)).tool
    sha256s = {case.model_sha256 for case in fast}
    models = tuple(
        item
        for item, model in zip(plan.models, identify_models(plan), strict=True)
        if model.sha256 in sha256s
    )
    names = ", ".join(item.name or item.path.stem for item in models)
    budget, end = plan.budget, measured.campaign.finished_at
    if budget is not None and end is not None:
        budget -= (end - measured.campaign.created_at).total_seconds()
        if budget <= 0:
            return measured
    text = f"{names}: too fast for the digits of {coarse}, so measured with {finer}"
    other = replace(
        plan,
        models=models,
        budget=budget,
        matrix=replace(plan.matrix, tools=(finer,)),
        builds={tool: name for tool, name in plan.builds.items() if tool is finer},
        devices=DeviceSelection(serials=tuple({case.serial for case in fast})),
        text=f"# {text}\n{plan.text}",
    )
    keys = {"campaign_id": measured.campaign.campaign_id}
    try:
        workspace.notice("too-fast", text, keys=keys)
        again = _run_once(workspace, other, Needs.EACH)
    except (UsageError, ArtifactError, DeviceError) as error:
        text = f"{names}: it can't be measured with {finer}: {error}"
        workspace.notice("too-fast", text, level="warning", keys=keys)
        return measured
    return replace(
        again,
        result=replace(
            again.result,
            stored=measured.result.stored + again.result.stored,
            not_run=measured.result.not_run + again.result.not_run,
        ),
        opened=replace(
            again.opened,
            missing={**measured.opened.missing, **again.opened.missing},
            left_out={**measured.opened.left_out, **again.opened.left_out},
        ),
        coarser=(measured.campaign,),
        replaced_runs=sum(fast.values()),
    )


def _run_once(workspace: Workspace, plan: Plan, needs: Needs) -> MeasuredCampaign:
    task = task_of(workspace, plan, needs)
    for hint in filter(None, (unchecked_hint(workspace.settings, facts) for facts in task.facts)):
        workspace.notice("hint", hint)
    prepared = prepare(workspace, task)
    if not prepared.campaign.invocations:
        raise UsageError(
            "the time budget is too small for any case", hint="increase --budget or reduce the plan"
        )
    return measure(workspace, start(workspace, prepared))


class CampaignInterruptedError(InterruptedByUserError):
    """Stopped by Ctrl-C or a signal; the phones were restored and what was measured is kept."""

    def __init__(
        self, campaign: Campaign, unrestored: Sequence[str], unreleased: Sequence[str] = ()
    ) -> None:
        """``unrestored``: the phones that couldn't be restored; ``unreleased``: restored phones on
        which a program may still run.
        """
        hint = f"resume it: benchfarm run --resume {campaign.campaign_id}"
        if campaign.status.is_over:
            word = "report" if campaign.terms.pairing is None else "compare"
            hint = f"all of it is measured: benchfarm {word} {campaign.campaign_id}"
        but = [f"{', '.join(unrestored)} couldn't be restored"] if unrestored else []
        if unreleased:
            names = ", ".join(unreleased)
            but.append(f"{names} couldn't be released: a program may still run there")
        super().__init__(
            f"Stopped by Ctrl-C or a signal; what was measured is kept, but {'; '.join(but)}."
            if but
            else "",
            hint=hint
            + ("; before that, 'benchfarm device restore' tries again" if unrestored else ""),
        )
        self.campaign = campaign
        self.campaign_id = campaign.campaign_id

    @property
    def code(self) -> str:
        """The same code as for any interrupted command."""
        return InterruptedByUserError().code


def interruption_error(workspace: Workspace) -> CampaignInterruptedError:
    """Return the error of the last campaign's interruption, with its progress."""
    campaign = workspace.store.campaign(workspace.measured)
    assert campaign is not None, "it was begun"
    serials = campaign.serials
    conditioner = workspace.conditioner
    return CampaignInterruptedError(
        campaign,
        [serial for serial in conditioner.unrestored() if serial in serials],
        [serial for serial in conditioner.unreleased() if serial in serials],
    )


def measure(workspace: Workspace, prepared: Prepared) -> MeasuredCampaign:
    """Run the open runs of a stored campaign on opened devices. No other process can run it until
    the workspace is closed.

    All that measures goes through here: ``run``, ``bench``, comparisons, resumed campaigns and a
    farm's jobs. Raises CampaignInterruptedError, StoreError, HostStorageError.
    """
    campaign, opened = prepared.campaign, prepared.opened
    workspace.hold_campaign(campaign)
    workspace.measured = campaign.campaign_id
    observer = PublishedStatus(workspace.observer, workspace.status_folder)
    workspace.at_exit.callback(observer.close)
    workspace.phone_observer = observer
    context = CampaignContext(
        campaign=campaign,
        models={model.sha256: model for model in prepared.models},
        builds={build.sha256: build for build in prepared.builds},
        known_flags={build.sha256: workspace.flag_book.names(build) for build in prepared.builds},
        store=workspace.store,
        tools=workspace.tools,
        runner_of=workspace.runner_of,
        lease=workspace.lease,
        conditioner=workspace.conditioner,
        rescuer=workspace.rescuer,
        quarantine=workspace.quarantine,
        observer=observer,
        clock=workspace.clock,
        cancelled=workspace.cancelled,
        reference=workspace.reference,
    )
    for serial, reason in opened.left_out.items():
        observer.on_event(
            DeviceNote(serial=Serial(serial), text=f"not used: {reason}", is_problem=True)
        )
    try:
        result = run_on_devices(context, opened.devices)
    except (InterruptedByUserError, KeyboardInterrupt):
        raise interruption_error(workspace) from None
    except (StoreError, HostStorageError) as error:
        error.campaign_id = campaign.campaign_id
        raise
    return MeasuredCampaign(workspace=workspace, result=result, opened=opened)


def run_reader(
    workspace: Workspace, campaigns: Sequence[Campaign]
) -> Callable[[], Iterable[RunRecord]]:
    """Return a function that yields the runs of some campaigns, also once the workspace is closed."""
    campaign_ids = [item.campaign_id for item in campaigns]
    if workspace.settings.store == IN_MEMORY:
        # The store ends with the workspace.
        held = list(workspace.store.runs(campaign_ids=campaign_ids))
        return lambda: held

    def read_runs() -> Iterator[RunRecord]:
        with Workspace(workspace.settings) as other:
            yield from other.store.runs(campaign_ids=campaign_ids)

    return read_runs


def stop_reasons(campaign: Campaign, runs: Iterable[RunRecord]) -> Iterator[Mapping[str, object]]:
    """Yield why each case has as many invocations as it has; runs of other campaigns pass by."""
    campaign_runs = (slim(run) for run in runs if run.campaign_id == campaign.campaign_id)
    for key, item in progress_by_case(campaign, judge_cases(campaign_runs, [campaign])).items():
        yield {"case_key": key} | {
            name: getattr(item, name) for name in ("reason", "text", "stored", "used", "half_width")
        }
