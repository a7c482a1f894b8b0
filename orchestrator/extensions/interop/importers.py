"""What ``benchfarm import`` takes: bundles, sessions and leaderboards of a device lab (sessions.py),
and results of TensorFlow's iOS app, which a person starts: its console's text, as runs of a named
device.
"""

from __future__ import annotations

import math
import re
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator.app.importing import (
    Imported,
    raw_output,
    read_source,
    require_printable,
    store_import,
)
from orchestrator.engine.reread import ForeignRun, ImportBatch
from orchestrator.errors import OutputParseError, StoreCorruptError, StoreError, UsageError
from orchestrator.extensions.interop.bundle import Bundle
from orchestrator.extensions.interop.ios_app import PROGRAM as IOS_APP
from orchestrator.extensions.interop.ios_app import read_console, scenario_of
from orchestrator.files import sha256_of
from orchestrator.plugins import (
    CommandResult,
    Importer,
    ImportRequest,
    Settings,
    Workspace,
    import_result,
)
from orchestrator.programs.foreign_app import foreign_build, source_of
from orchestrator.records.campaign import Campaign, CampaignStatus, Origin
from orchestrator.records.case import Build, CampaignId, Case, Model, RunId, Serial, SkippedCase
from orchestrator.records.device import CpuCluster, DeviceFacts, DeviceKind
from orchestrator.records.run import RunRecord, ToolReport
from orchestrator.store.own_folders import own_folders
from orchestrator.units import counted

if TYPE_CHECKING:
    from orchestrator.store.opening import Store


def _import_bundle(settings: Settings, request: ImportRequest) -> CommandResult:
    """Store what a bundle holds and isn't stored yet; the exit code is 1 when runs had to be left
    out.
    """
    from orchestrator.engine.reread import read_imported

    path, *others = request.files
    if others or request.device or request.models:
        raise UsageError("a bundle is imported alone and says itself what is in it")
    with Workspace(settings) as workspace, Bundle(path) as bundle:
        tools = workspace.tools

        def read(run: RunRecord, facts: DeviceFacts, campaign: Campaign) -> RunRecord:
            return read_imported(run, facts, tools, campaign.terms.quiet.screen)

        done = take_in(bundle, workspace.store, read=read)
    new = f"new: {len(done.new_campaigns)} of {counted(len(done.campaigns), 'campaign')}, {', '.join(done.campaigns)}"
    lines = [f"{counted(done.new_runs, 'run')} taken in, {done.known_runs} stored before; {new}"]
    lines.append(
        f"read again from their raw output; imported from {path.name}, sha256 {done.origin.sha256}"
    )
    if done.other_runs:
        why = "the store holds others in their place, or they are of a campaign of its own"
        lines.append(f"{counted(len(done.other_runs), 'run')} left out: {why}")
    return CommandResult(text="\n".join(lines), data=done, exit_code=1 if done.other_runs else 0)


def _import_sessions(settings: Settings, request: ImportRequest) -> CommandResult:
    from orchestrator.extensions.interop.sessions import import_sessions

    with Workspace(settings) as workspace:
        return import_result(import_sessions(workspace, request))


def _import_console(settings: Settings, request: ImportRequest) -> CommandResult:
    with Workspace(settings) as workspace:
        if request.models or request.profile:
            return import_result([import_files(workspace, request)])
        from orchestrator.extensions.interop.plain_text import import_texts

        return import_result(import_texts(workspace, request))


def _is_session(path: Path) -> bool:
    from orchestrator.extensions.interop.sessions import is_session

    return is_session(path)


Id = TypeVar("Id", bound=str)
Placed = TypeVar("Placed", DeviceFacts, Case, SkippedCase)
#: Reads a run again from its raw output.
Reading = Callable[[RunRecord, DeviceFacts, Campaign], RunRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenIn:
    """What taking a bundle in did."""

    #: Campaigns that the store didn't hold before.
    new_campaigns: tuple[CampaignId, ...]
    #: Campaigns of the bundle, new or known.
    campaigns: tuple[CampaignId, ...]
    new_runs: int
    #: Runs that the store held already, the very same ones.
    known_runs: int
    #: Runs in whose place the store holds others, which were kept: run ids of the bundle's.
    other_runs: tuple[RunId, ...] = ()
    origin: Origin


def take_in(bundle: Bundle, store: Store, *, read: Reading) -> TakenIn:
    """Store what a bundle holds and the store doesn't; what the store holds already is never
    changed.

    Figures and verdicts are what ``read`` makes of the raw output, never what the bundle says. A
    file can name any device: each is stored as ``SERIAL@HOST``, with the name of the bundle's
    computer, and apart from this lab's own. An import that was cut off is continued by importing
    again.

    Args:
        bundle: What is taken in.
        store: Into which.
        read: Reads a run again.

    Raises:
        StoreCorruptError: the bundle is damaged; nothing was stored, or, where raw output is,
            nothing from there on.
        StoreError: a campaign of this id is stored and is another one, or a record can't be stored
            as it is.
    """
    origin = Origin(file=bundle.path.name, sha256=sha256_of(bundle.path))
    records = bundle.checked()
    campaigns: dict[CampaignId, Campaign] = {
        _plain(bundle, item.campaign_id): item for item in records["campaign"]
    }
    stored_ids = (
        {run.run_id for run in store.runs(campaign_ids=list(campaigns))} if campaigns else set()
    )
    # Nothing that comes from a file is added to what this lab has measured itself.
    stored = [store.campaign(campaign_id) for campaign_id in campaigns]
    own = {item.campaign_id for item in stored if item is not None and item.terms.origin is None}
    begun = _begin(bundle, store, records, campaigns, origin)
    facts = store.devices() if campaigns else {}
    new, known, others = 0, 0, []
    for run in bundle.runs():
        campaign = campaigns.get(run.campaign_id)
        if campaign is None:
            raise StoreCorruptError(
                f"{bundle.path}: run {run.run_id} is of a campaign that the bundle doesn't hold"
            )
        _plain(bundle, run.run_id)
        if run.run_id in stored_ids:
            known += 1
            continue
        moved = replace(run, case=_here(run.case, campaign))
        serial = moved.case.serial
        is_new = run.campaign_id not in own and store.append_run(
            read(moved, facts[serial], campaign) if serial in facts else moved
        )
        new += is_new
        others += [] if is_new else [run.run_id]
    for campaign_id in begun:
        store.set_status(campaign_id, CampaignStatus.FINISHED, campaigns[campaign_id].finished_at)
    return TakenIn(
        new_campaigns=tuple(begun),
        campaigns=tuple(campaigns),
        new_runs=new,
        known_runs=known,
        other_runs=tuple(others),
        origin=origin,
    )


def _plain(bundle: Bundle, name: Id) -> Id:
    """Return an id that may become a part of a file's name; raises StoreCorruptError."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}", name):
        raise StoreCorruptError(f"{bundle.path}: {name[:80]!r} is no id of a campaign or run")
    return name


def _here(record: Placed, campaign: Campaign) -> Placed:
    """Return a device, case or skip under the serial number that it has in this store."""
    return replace(record, serial=Serial(f"{record.serial}@{campaign.host}"))


def _begin(
    bundle: Bundle,
    store: Store,
    records: Mapping[str, list[Any]],
    campaigns: Mapping[CampaignId, Campaign],
    origin: Origin,
) -> list[CampaignId]:
    """Begin the campaigns that the store doesn't hold; return their ids."""
    begun = []
    # What the store knows of a device, a model or a build, above all where its file is, stays as it
    # is.
    known_devices, known_models, known_builds = store.devices(), store.models(), store.builds()
    devices: list[DeviceFacts] = records["device"]
    models = [known_models.get(item.sha256, item) for item in records["model"]]
    builds = [known_builds.get(item.sha256, item) for item in records["build"]]
    for campaign_id, campaign in campaigns.items():
        stored = store.campaign(campaign_id)
        if stored is not None:
            plans = {stored.plan_text, own_folders(store, [stored], ()).hide(stored.plan_text)}
            if (stored.created_at, stored.host) != (campaign.created_at, campaign.host) or (
                campaign.plan_text not in plans
            ):
                raise StoreError(
                    f"{bundle.path}: campaign {campaign_id} is stored here already and is another one",
                    hint="import the bundle into a store of its own (--store FILE)",
                )
            continue
        moved = [replace(_here(facts, campaign), is_imported=True) for facts in devices]
        kept = [known_devices.get(facts.serial, facts) for facts in moved]
        store.begin_campaign(
            replace(
                campaign,
                # Whatever it was, and however far this import comes: it can't be resumed here.
                status=CampaignStatus.FINISHED,
                terms=replace(campaign.terms, origin=origin),
                invocations=tuple(
                    replace(item, case=_here(item.case, campaign)) for item in campaign.invocations
                ),
                skipped=tuple(_here(item, campaign) for item in campaign.skipped),
            ),
            # The store refuses a virtual phone under a real one's serial number, and the other way
            # round.
            devices=[
                item if item.is_virtual == new.is_virtual else new
                for item, new in zip(kept, moved, strict=True)
            ],
            models=models,
            builds=builds,
        )
        begun.append(campaign_id)
    return begun


#: Sizes are printed with six digits.
_SIZE_TOLERANCE = 1e-5


def import_files(workspace: Workspace, request: ImportRequest) -> Imported:
    """Import results of TensorFlow's iOS app; raises UsageError kinds.

    Every file is read and checked before anything is stored.
    """
    from orchestrator.models.inspect import identify_model

    if not request.device or not request.models:
        raise UsageError("these results don't say what they are of: give --serial and --model")
    require_printable(serial=request.device, app=request.app, name=request.name)
    models = [identify_model(path) for path in request.models]
    sources = [(path, read_source(path)) for path in request.files]
    facts = _facts(workspace, request.device, request.profile)
    batch = ImportBatch(devices={facts.serial: facts})
    if facts.kind is not DeviceKind.IOS:
        raise UsageError(
            f"no app's results are read for {facts.serial}, an {facts.kind.value} device",
            hint="those of TensorFlow's iOS app are: name an iPhone, --profile iphone-xs",
        )
    build = foreign_build(IOS_APP, request.app)
    for path, data in sources:
        reports = read_console(data.decode("utf-8", "replace"))
        if not reports:
            batch.faults.append(f"{path}: no result of {IOS_APP.title}")
        for number, report in enumerate(reports):
            try:
                case = _case(batch, facts, models, build, report)
            except OutputParseError as error:
                batch.faults.append(f"{path}: {report.label or f'run {number + 1}'}: {error}")
                continue
            batch.runs.append(ForeignRun(case=case, raw=raw_output(path, source_of(data, number))))
    if batch.faults:
        raise UsageError("nothing was imported:\n  " + "\n  ".join(batch.faults))
    return store_import(workspace, batch, request=request)


def _facts(workspace: Workspace, serial: str, profile_name: str) -> DeviceFacts:
    """Return what is known of the device: as it is stored, else what its profile declares."""
    known = workspace.store.devices().get(Serial(serial))
    if known is not None:
        if known.is_virtual or known.kind is DeviceKind.HOST:
            what = "a virtual phone" if known.is_virtual else "a computer"
            raise UsageError(
                f"{serial} is {what}; results of a real phone need a name of their own"
            )
        return known
    if not profile_name:
        return DeviceFacts(serial=Serial(serial), kind=DeviceKind.IOS, is_virtual=False)
    profile = workspace.profiles.get(profile_name)
    if profile is None or profile.kind is DeviceKind.HOST:
        names = ", ".join(
            name for name, item in workspace.profiles.items() if item.kind is not DeviceKind.HOST
        )
        raise UsageError(
            f"there is no profile of a phone {profile_name!r}", hint=f"there are {names}"
        )
    clusters, first = [], 0
    for cores in profile.cluster_cores:
        clusters.append(
            CpuCluster(cpus=tuple(range(first, first + cores)), min_khz=None, max_khz=None)
        )
        first += cores
    return DeviceFacts(
        serial=Serial(serial),
        kind=profile.kind,
        is_virtual=False,
        model=profile.title,
        soc=profile.soc,
        clusters=tuple(clusters),
        profile=profile.name,
    )


def _case(
    batch: ImportBatch,
    facts: DeviceFacts,
    models: Sequence[Model],
    build: Build,
    report: ToolReport,
) -> Case:
    """Return the case of one report, with its model and build in the batch.

    Raises OutputParseError.
    """
    scenario = scenario_of(report)
    size_mb = report.model_size_mb
    fitting = [
        model
        for model in models
        if size_mb is None or math.isclose(size_mb, model.size_bytes / 1e6, rel_tol=_SIZE_TOLERANCE)
    ]
    if len(fitting) != 1:
        size = f", of {size_mb:g} MB" if size_mb is not None else ""
        given = "".join(
            f"; {model.path} has {model.size_bytes / 1e6:g} MB" for model in models if size
        )
        raise OutputParseError(
            f"name the file of the one model that was measured{size} with --model{given}"
        )
    batch.models[fitting[0].sha256] = fitting[0]
    batch.builds[build.sha256] = build
    return Case(
        serial=facts.serial,
        model_sha256=fitting[0].sha256,
        model_name=fitting[0].name,
        tool=build.tool,
        build_sha256=build.sha256,
        affinity="all",
        **scenario,
    )


BUNDLE = Importer(title="a bundle", takes=zipfile.is_zipfile, take_in=_import_bundle)
SESSION = Importer(
    title="a session's folder or leaderboard lines", takes=_is_session, take_in=_import_sessions
)
CONSOLE = Importer(
    title="a text that a benchmark program printed",
    takes=Path.is_file,
    take_in=_import_console,
    is_last=True,
)
