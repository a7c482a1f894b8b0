"""The first setup of a campaign: its files found, models inspected, cases and skips, the reference
workload, its record.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import Final

from orchestrator import __version__
from orchestrator.analysis.measured import newest_checks
from orchestrator.analysis.summary import autocorrelations
from orchestrator.app.attached import Needs, OpenedDevices, open_devices
from orchestrator.app.workspace import Workspace
from orchestrator.engine.decisions import LEASE_WAIT_S
from orchestrator.engine.flag_check import learn_flags, with_flag_skips
from orchestrator.errors import DeviceBusyError, DeviceError, ModelError, PlanError, UsageError
from orchestrator.files import sha256_of
from orchestrator.models.inspect import identify_model, sample_models
from orchestrator.passes import pass_of
from orchestrator.planning.expansion import (
    Expansion,
    FlagFiles,
    Stock,
    cut_to_time,
    expand,
    reference_case,
    with_output_checks,
)
from orchestrator.planning.time_budget import usable_s
from orchestrator.ports import Device, session_of
from orchestrator.processes import map_in_threads
from orchestrator.records import frozen
from orchestrator.records.campaign import (
    Campaign,
    CampaignStatus,
    Invocation,
    Terms,
)
from orchestrator.records.case import (
    FIGURE_PASS,
    OUTPUT_CHECK_PASS,
    REFERENCE_PASS,
    Build,
    CampaignId,
    Case,
    DelegateName,
    Model,
    ModelSha,
    Serial,
    SkippedCase,
)
from orchestrator.records.device import DeviceFacts
from orchestrator.records.plan import Plan, PlanTerms
from orchestrator.records.run import OUT_OF_TIME, RunRecord
from orchestrator.records.verdict import OutputCheck
from orchestrator.settings import this_computer
from orchestrator.tables.escapes import one_line


def identify_models(plan: Plan) -> list[Model]:
    """Check every model of a plan; raises ModelError for one that can't be used."""
    models = []
    for entry in plan.models:
        model = identify_model(entry.path, name=entry.name)
        if entry.sha256 is not None and entry.sha256 != model.sha256:
            raise ModelError(
                f"{entry.path}: its sha256 is {model.sha256}, the plan requires {entry.sha256}",
                hint="get the file that the plan means, or change the plan",
            )
        models.append(model)
    return models


def reference_model() -> Model:
    """Return the model of the reference workload that came with this benchfarm."""
    return identify_model(sample_models()[0])


#: The flag whose file names a library that it needs in its folder.
_SETTINGS_FLAG: Final = "stable_delegate_settings_file"
_LARGEST_SETTINGS_BYTES: Final = 1 << 20


def find_flag_files(plan: Plan) -> dict[str, FlagFiles]:
    """Return the host's files of each flag value ``@path`` of a plan.

    Raises:
        PlanError: a file can't be read, two of one case have the same name, or a stable delegate's
            settings don't say which library they are for.
    """
    files: dict[str, FlagFiles] = {}
    for flags in plan.matrix.flags:
        sha256s: dict[str, str] = {}
        for flag, value in flags:
            if not value.startswith("@") or len(value) == 1:
                continue
            if value not in files:
                files[value] = _files_of(flag, Path(value[1:]))
            for name, sha256 in files[value].files:
                if sha256s.setdefault(name, sha256) != sha256:
                    raise PlanError(
                        f"flag {flag}: another file of these flags is called {name!r}, too",
                        hint="rename one of them: both would lie in one folder of the phone",
                    )
    return files


def _files_of(flag: str, path: Path) -> FlagFiles:
    paths = [path, *(_library_of(path) if flag == _SETTINGS_FLAG else [])]
    try:
        contents = {item: sha256_of(item) for item in paths}
    except OSError as error:
        raise PlanError(f"flag {flag}: {error.filename} can't be read: {error.strerror}") from error
    return FlagFiles(
        name=path.name,
        files=tuple((item.name, sha256) for item, sha256 in contents.items()),
        paths={sha256: item for item, sha256 in contents.items()},
    )


def _library_of(settings: Path) -> list[Path]:
    """Return the library that a stable delegate's settings name, when it lies beside them on this
    computer.

    The phone's loader finds a bare name in the folder where both are placed; an absolute path is
    the phone's own.
    """
    where = f"flag {_SETTINGS_FLAG}: {settings}"
    try:
        with settings.open("rb") as file:
            values = json.loads(file.read(_LARGEST_SETTINGS_BYTES))
        library = values["stable_delegate_loader_settings"]["delegate_path"]
    except OSError as error:
        raise PlanError(f"{where} can't be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise PlanError(
            f"{where} doesn't name a delegate's library",
            hint='it needs {"stable_delegate_loader_settings": {"delegate_path": "libmine.so"}}',
        ) from error
    if str(library).startswith("/"):
        return []
    if "/" in str(library) or not settings.with_name(str(library)).is_file():
        raise PlanError(
            f"{where}: the library {str(library)!r} doesn't lie beside it",
            hint="write its bare name and put it into the same folder, or write an absolute path on the phone",
        )
    return [settings.with_name(str(library))]


def files_of(models: Iterable[Model], builds: Iterable[Build]) -> dict[str, str]:
    """Return the paths of models, programs and their libraries, by sha256."""
    builds = list(builds)
    files = {str(model.sha256): str(model.path) for model in models}
    files |= {str(build.sha256): str(build.path) for build in builds if build.path is not None}
    return files | {item.sha256: str(item.path) for build in builds for item in build.companions}


def terms_of(
    plan: Plan,
    devices: Iterable[DeviceFacts],
    files: Mapping[str, str],
    terms: Terms = Terms(),  # noqa: B008 - frozen
) -> Terms:
    """Return a campaign's own ``terms`` with those of its plan on these devices."""
    return replace(
        terms,
        **{item.name: getattr(plan, item.name) for item in fields(PlanTerms)},
        stopping=plan.stopping,
        every_thread_count=plan.matrix.every_thread_count,
        parity_inputs=str(plan.parity_inputs) if plan.parity_inputs is not None else "",
        plan_folder=str(plan.folder) if plan.folder is not None else "",
        files=files,
        fingerprints={facts.serial: facts.fingerprint for facts in devices if facts.fingerprint},
    )


#: By default the reference workload brackets plans that take at least this long on their busiest
#: device.
REFERENCE_FROM_S = 600.0


@frozen
class Task:
    """A plan with all that it is measured with: its models and files, and the opened devices."""

    plan: Plan
    models: Sequence[Model]
    #: The files of each flag value ``@path``.
    flag_files: Mapping[str, FlagFiles]
    opened: OpenedDevices

    @property
    def facts(self) -> list[DeviceFacts]:
        """The facts of the devices."""
        return self.opened.facts


def task_of(workspace: Workspace, plan: Plan, needs: Needs = Needs.EACH) -> Task:
    """Return the task of a plan: its files are checked, its devices opened.

    Raises ModelError, PlanError, UsageError, and as `open_devices`.
    """
    # Before phones are searched: a fault of the plan's files doesn't depend on phones.
    models, flag_files = identify_models(plan), find_flag_files(plan)
    opened = open_devices(workspace, plan.devices, needs)
    workspace.builds.check(plan, opened.facts, lacks_devices=opened.lacks_devices, has_finer=True)
    return Task(plan=plan, models=models, flag_files=flag_files, opened=opened)


@frozen
class Prepared:
    """A campaign, stored or about to be, with the files and devices to run it."""

    campaign: Campaign
    models: Sequence[Model]
    builds: Sequence[Build]
    #: Its devices, and those that could not be used.
    opened: OpenedDevices


def expansion_for(workspace: Workspace, task: Task) -> tuple[Expansion, list[Build]]:
    """Return the cases of a task, and their builds.

    Raises PlanError for flags that are wrong, ArtifactError for a named build that can't be used.
    """
    plan, facts = task.plan, task.facts
    if specs := [item.spec for item in workspace.builds.missing(plan, facts) if item.spec]:
        workspace.on_missing(specs)
    choices = workspace.builds.of(plan, facts)
    builds = {build.sha256: build for build in choices.values() if isinstance(build, Build)}
    flex_builds = (
        workspace.builds.with_flex(list(builds.values()))
        if any(model.needs_flex for model in task.models)
        else {}
    )
    profiles = workspace.profiles if any(item.profile for item in facts) else {}
    stock = Stock(
        builds=choices, profiles=profiles, flag_files=task.flag_files, flex_builds=flex_builds
    )
    expansion = expand(plan, facts, task.models, stock)
    used = {case.build_sha256 for case in expansion.cases}
    builds |= {
        flex_build.sha256: flex_build
        for flex_build in flex_builds.values()
        if flex_build.sha256 in used
    }
    learn_flags(workspace.flag_book, workspace.lease, task.opened.devices, choices)
    checked = with_flag_skips(
        expansion,
        delegates=plan.matrix.named or tuple(DelegateName),
        builds=builds.values(),
        book=workspace.flag_book,
    )
    return checked, list(builds.values())


def prepare(workspace: Workspace, task: Task, reference: Model | None = None) -> Prepared:
    """Return the campaign of a task; ``reference`` is used instead of this computer's own model of
    the reference workload.

    Cases without time are among the campaign's skipped cases.

    Raises:
        UsageError: nothing can be measured.
        PlanError: flags that are wrong.
        ArtifactError: a build that the plan names can't be used.
    """
    expansion, builds, checks = planned(workspace, task)
    if not expansion.cases and OUT_OF_TIME not in {skip.reason_code for skip in expansion.skipped}:
        raise nothing_to_measure(expansion.skipped)
    brackets: dict[Serial, Invocation] = {}
    if wants_reference_check(task.plan, expansion):
        reference = reference or reference_model()
        brackets = _reference_checks(workspace, task, expansion, reference)
        if brackets:
            task = replace(task, models=[reference, *task.models])
    campaign = replace(
        new_campaign(workspace, task.plan.name),
        invocations=tuple(
            invocation
            for serial, queue in expansion.invocations.items()
            for invocation in (*filter(None, [brackets.get(serial)]), *queue)
        ),
        skipped=expansion.skipped,
        terms=Terms(output_checks=checks),
    )
    return prepared_of(task, campaign, builds)


def prepared_of(task: Task, campaign: Campaign, builds: Sequence[Build]) -> Prepared:
    """Return a new campaign with its task's plan, terms and files."""
    plan = task.plan
    models = list({model.sha256: model for model in task.models}.values())
    files = files_of(models, builds)
    for item in task.flag_files.values():
        files |= {sha256: str(path) for sha256, path in item.paths.items()}
    terms = terms_of(plan, task.facts, files, campaign.terms)
    campaign = replace(campaign, plan_text=plan.text, seed=plan.seed, terms=terms)
    return Prepared(campaign=campaign, models=models, builds=builds, opened=task.opened)


def nothing_to_measure(skipped: Iterable[SkippedCase]) -> UsageError:
    """Return the error of cases that are all skipped, with each reason once."""
    reasons = dict.fromkeys(f"{skip.serial}: {skip.reason}" for skip in skipped)
    lines = [one_line(reason) for reason in reasons] or [
        "none of the plan's programs runs on these devices with a delegate that they have"
    ]
    return UsageError("nothing can be measured:\n  " + "\n  ".join(lines))


def planned(
    workspace: Workspace, task: Task
) -> tuple[Expansion, list[Build], dict[str, OutputCheck]]:
    """Return the cases of a task in the time that its plan has, the builds for it, and the known
    checks of outputs on its devices.

    Errors are those of `expansion_for`.
    """
    plan = task.plan
    expansion, builds = expansion_for(workspace, task)
    checks, is_wanted = output_checks_of(workspace, task)
    expansion = with_output_checks(expansion, is_wanted)
    cut = partial(
        cut_to_time,
        plan,
        expansion,
        # Asked once, also where it is cut twice.
        recent_of=cache(workspace.store.recent_runs),
        unit_of=lambda case: session_of(workspace.tools, case),
    )
    now = workspace.clock.now()
    fitting = cut(usable_s(plan, now, reference_check=False))
    # What is cut may be too short for it.
    if wants_reference_check(plan, fitting):
        fitting = cut(usable_s(plan, now, reference_check=True))
    return fitting, builds, checks


def output_checks_of(
    workspace: Workspace, task: Task
) -> tuple[dict[str, OutputCheck], Callable[[Case], bool]]:
    """Return the known output checks of a task's devices, and a predicate: whether its campaign
    compares a case's outputs in addition to the plan's own passes.
    """
    checks = _stored_output_checks(workspace, task.facts)
    if not _checks_outputs(workspace, task.plan):
        return checks, lambda _: False
    models = {model.sha256: model for model in task.models}

    @cache
    def reason(sha256: ModelSha) -> str:
        return workspace.reference.reason_against(models[sha256])

    return checks, lambda case: case.outputs_key not in checks and not reason(case.model_sha256)


def _checks_outputs(workspace: Workspace, plan: Plan) -> bool:
    """Whether new configurations' outputs are compared in addition to the plan's own passes."""
    if FIGURE_PASS not in plan.passes or any(
        pass_of(name).compares_outputs for name in plan.passes
    ):
        return False
    usual = workspace.settings.checks_outputs
    return usual if plan.check_outputs is None else plan.check_outputs


#: The newest comparisons of a case's outputs that are read: some may have failed.
_OUTPUT_CHECKS_OF_CASE: Final = 10


def _stored_output_checks(
    workspace: Workspace, devices: Sequence[DeviceFacts]
) -> dict[str, OutputCheck]:
    """Return the stored output checks of these devices with their present systems."""
    systems = {facts.serial: facts.computes_with for facts in devices}
    runs = workspace.store.last_runs(
        _OUTPUT_CHECKS_OF_CASE,
        serials=list(systems),
        run_passes=[OUTPUT_CHECK_PASS],
    )

    def is_of_present_system(run: RunRecord) -> bool:
        made_on = run.report.extra.get("parity_system") if run.report is not None else ""
        return bool(made_on) and made_on == systems[run.case.serial]

    return newest_checks(filter(is_of_present_system, runs))


def wants_reference_check(plan: Plan, expansion: Expansion) -> bool:
    """Whether the reference workload brackets a campaign: as the plan says, by default when it
    costs little.
    """
    return (
        plan.reference_check
        if plan.reference_check is not None
        else expansion.estimate_s(plan)[0] >= REFERENCE_FROM_S
    )


def _reference_checks(
    workspace: Workspace, task: Task, expansion: Expansion, model: Model
) -> dict[Serial, Invocation]:
    """Return the reference workload of each device that has work."""
    builds = workspace.builds.of(task.plan, task.facts)
    return {
        facts.serial: Invocation(case=case, run_pass=REFERENCE_PASS, number=0)
        for facts in task.facts
        if (case := reference_case(task.plan, facts, model, builds)) is not None
        and expansion.invocations.get(facts.serial)
    }


#: For this long a device's measured autocorrelation is carried over to new campaigns.
_AUTOCORRELATION_SPAN: Final = timedelta(days=30)


def new_campaign(workspace: Workspace, name: str) -> Campaign:
    """Return an empty campaign that begins now, on this computer."""
    now = workspace.clock.now()
    return Campaign(
        # A unique id that sorts by time.
        campaign_id=CampaignId(f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"),
        name=name,
        created_at=now,
        status=CampaignStatus.RUNNING,
        plan_text="",
        seed=0,
        benchfarm_version=__version__,
        host=this_computer(),
    )


_POLL_S: Final = 1.0


def hold(workspace: Workspace, campaign: Campaign, devices: Iterable[Device]) -> None:
    """Hold a campaign and its devices for this process, before the campaign is stored.

    Raises DeviceBusyError when other processes, computers or programs still use all devices after
    `Workspace.wait`.
    """

    def busy(device: Device) -> DeviceBusyError | None:
        while True:
            try:
                workspace.lease.reserve(
                    device.serial, wait_s=max(LEASE_WAIT_S, workspace.wait.remaining_s)
                )
                workspace.conditioner.take(
                    device, on_wait=lambda text: workspace.note(device.serial, text)
                )
            except DeviceBusyError as error:
                if workspace.wait.expired or workspace.clock.wait(_POLL_S, workspace.cancelled):
                    return error
            except DeviceError:
                # The campaign itself waits for a lost phone, and reports other faults.
                return None
            else:
                return None

    workspace.hold_campaign(campaign)
    serials = campaign.serials
    refused = map_in_threads(busy, [device for device in devices if device.serial in serials])
    if refused and (first := refused[0]) is not None and all(refused):
        raise first


def start(workspace: Workspace, prepared: Prepared) -> Prepared:
    """Store a new campaign with all that its resumption needs, and its devices' autocorrelations
    from earlier campaigns; return it.

    Raises StoreError kinds, as `hold`.
    """
    campaign = prepared.campaign
    hold(workspace, campaign, [device for device, _ in prepared.opened.devices])
    serials = [facts.serial for facts in prepared.opened.facts]
    # A farm's store has a thousand phones, and each of its jobs needs one.
    points = workspace.store.points(
        since=campaign.created_at - _AUTOCORRELATION_SPAN, serials=serials
    )
    earlier = autocorrelations(points, but=workspace.store.hidden_campaigns())
    weights: dict[str, tuple[float, float]] = {
        serial: (item.weight, item.total) for serial, item in earlier.items()
    }
    campaign = replace(campaign, terms=replace(campaign.terms, autocorrelations=weights))
    workspace.store.begin_campaign(
        campaign,
        devices=prepared.opened.facts,
        models=prepared.models,
        builds=prepared.builds,
    )
    return replace(prepared, campaign=campaign)
