"""Submissions to a farm of many hosts: a plan's jobs for the phones that it selects, with the
contents of its files; cancel, pause, forget.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from orchestrator.clock import night_of
from orchestrator.errors import NotFoundError, PlanError, UsageError
from orchestrator.extensions.farm.job_table import Submission, name_taken
from orchestrator.extensions.farm.manifest import Content, ContentStore, Manifest, builds_kind, dump
from orchestrator.extensions.farm.phones import check_names, choose_phones
from orchestrator.extensions.farm.queue import FarmQueue
from orchestrator.files import safe_name, sha256_of
from orchestrator.plugins import (
    Settings,
    Workspace,
    close_cancelled,
    find_flag_files,
    identify_models,
    load_plan,
    program,
    reference_model,
    tools_for,
)
from orchestrator.records.answers import OPEN_JOBS, DoneAnswer, JobAnswer, answer_of
from orchestrator.records.case import Build, CampaignId, Model, Serial, Skip
from orchestrator.records.device import DeviceFacts, DeviceKind
from orchestrator.records.model import model_ending
from orchestrator.records.plan import Plan, PlanModel
from orchestrator.tables.escapes import one_line
from orchestrator.units import counted


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """The result of a submission."""

    submission: str
    jobs: Sequence[JobAnswer]
    #: Phones without a job -> the reason; for an existing submission only those that its plan
    #: selects. Phones for which this computer lacks builds of programs -> the reasons.
    left_out: Mapping[str, str] = field(default_factory=dict)
    without_program: Mapping[Serial, Sequence[str]] = field(default_factory=dict)
    #: Open submissions with jobs on the same phones -> those phones.
    overlaps: Mapping[str, Sequence[str]] = field(default_factory=dict)
    #: Whether every named phone has a job, and no selected one is away.
    is_whole: bool = True
    #: Whether the submission existed already, so that nothing was queued.
    is_known: bool = False


def submit(
    settings: Settings, path: Path, *, priority: int, name: str, once: bool = False
) -> Submitted:
    """Queue a plan for every announced phone that fits it, with the contents of its files; all or
    nothing.

    ``{date}`` in the name is the date of the current night, as 20261129: from noon to noon in the
    store's zone. ``once``: an existing submission of the name is returned, also one of which only
    results are left.

    Raises:
        PlanError: the plan is wrong, or measures on the host, too.
        NoDeviceError: no announced phone fits.
        ArtifactError: a build that the plan names isn't here.
        UsageError: a submission of this name was there already, or results of one are stored; the
            plan uses none of the programs of which it names builds.
    """
    plan = load_plan(path, home=settings.data_folder)
    if plan.devices.host:
        raise PlanError(
            "each of the farm's jobs is one phone's: it measures on this computer too",
            hint="run it on the phones' own host with 'benchfarm run'",
        )
    models = identify_models(plan)
    bare_name = safe_name(plan.name[:40]).strip("_.-") or "plan"
    submission = name or f"{bare_name}-{secrets.token_hex(4)}"
    with FarmQueue(settings.store) as queue, Workspace(settings) as workspace:
        night = night_of(queue.now(), workspace.store.zone)
        submission = submission.replace("{date}", f"{night:%Y%m%d}")
        if once and (existing := _existing(queue, submission)):
            return existing
        # The jobs of a named submission may be deleted while its results are stored.
        if name and workspace.store.submission(submission):
            if once:
                return Submitted(submission=submission, jobs=(), is_known=True)
            raise name_taken(submission)
        check_names(workspace, queue, plan.devices)
        chosen, left_out, missed = choose_phones(queue, plan.devices)
        manifest, paths, missing = _pack(workspace, plan, chosen, models)
        serials = [facts.serial for facts in chosen]
        contents = ContentStore(queue, settings.cache_folder)
        for sha256, file in paths.items():
            contents.keep(file, sha256)
        overlaps = _overlaps(queue, serials)
        record = Submission(
            submission=submission,
            document=dump(replace(manifest, left_out=missed)),
            plan_name=plan.name,
            files=sorted(paths),
            priority=priority,
        )
        try:
            queue.submit(record, {facts.serial: dump(facts) for facts in chosen})
        except UsageError:
            if once and (existing := _existing(queue, submission)):
                return existing
            raise
        jobs = _jobs(queue, submission)
    return Submitted(
        submission=submission,
        jobs=jobs,
        left_out=left_out,
        without_program=missing,
        overlaps=overlaps,
        is_whole=not missed,
    )


def _existing(queue: FarmQueue, submission: str) -> Submitted | None:
    """Return an existing submission, or None."""
    if not (jobs := _jobs(queue, submission)):
        return None
    left_out = queue.left_out(submission)
    return Submitted(
        submission=submission,
        jobs=jobs,
        left_out=left_out,
        is_whole=not left_out,
        is_known=True,
    )


def _jobs(queue: FarmQueue, submission: str) -> list[JobAnswer]:
    return [answer_of(JobAnswer, row) for row in queue.jobs(submission)]


def _overlaps(queue: FarmQueue, serials: Collection[str]) -> dict[str, list[str]]:
    """Return the open submissions that have jobs on these phones, with those phones."""
    overlaps: dict[str, list[str]] = {}
    for job in queue.jobs():
        if job["status"] in OPEN_JOBS and job["serial"] in serials:
            overlaps.setdefault(job["submission"], []).append(job["serial"])
    return overlaps


def _pack(
    workspace: Workspace, plan: Plan, phones: Sequence[DeviceFacts], models: Sequence[Model]
) -> tuple[Manifest, Mapping[str, Path], Mapping[Serial, Sequence[str]]]:
    """Return the plan's manifest, the paths of its files on this computer by sha256, and by phone
    the reasons why this computer has no build of some programs: the phone's host may have one.

    Raises PlanError for an unreadable file, ArtifactError for a build that isn't here or doesn't
    fit a phone, UsageError for builds of programs that the plan doesn't use.
    """
    paths = {str(model.sha256): model.path for model in models if model.path is not None}

    def content(path: Path) -> Content:
        sha256 = sha256_of(path)
        paths[sha256] = path
        return path.name, sha256

    def without_paths(build: Build) -> Build:
        """Return a build with the names of its files in place of their paths."""
        assert build.path is not None, "a resolved build has its file"
        paths[str(build.sha256)] = build.path
        paths.update({item.sha256: item.path for item in build.companions if item.path is not None})
        companions = tuple(replace(item, path=Path(item.name)) for item in build.companions)
        return replace(build, path=Path(build.path.name), companions=companions)

    flag_files = find_flag_files(plan)
    for item in flag_files.values():
        paths.update(item.paths)
    try:
        inputs = tuple(map(content, _inputs(plan)))
    except OSError as error:
        raise PlanError(
            f"parity_inputs: {error.filename} can't be read: {error.strerror}"
        ) from error
    reference = None if plan.reference_check is False else reference_model().path
    # Another host, or a later version, may declare programs by other files.
    tools = tools_for(plan, DeviceKind.ANDROID)
    declaring = (program(tool).declared_in for tool in tools)
    workspace.builds.check(plan, phones, is_shared=True)
    builds_by_phone = workspace.builds.of(plan, phones)
    own_builds: dict[Serial, list[Build]] = {}
    by_kind: dict[str, list[Build]] = {}
    missing: dict[Serial, list[str]] = {}
    for facts in phones:
        phone_builds = [
            build for (serial, _), build in builds_by_phone.items() if serial == facts.serial
        ]
        # An app that is on the phone already has no path and isn't sent.
        builds = [
            build for build in phone_builds if isinstance(build, Build) and build.path is not None
        ]
        own_builds[facts.serial] = builds
        by_kind[builds_kind(facts)] = max(by_kind.get(builds_kind(facts), []), builds, key=len)
        if reasons := [build.reason for build in phone_builds if isinstance(build, Skip)]:
            missing[facts.serial] = reasons
    # A phone with an older Android may need other builds than the rest of its kind.
    differing = {
        str(facts.serial): own_builds[facts.serial]
        for facts in phones
        if own_builds[facts.serial] != by_kind[builds_kind(facts)]
    }
    chosen = by_kind | differing
    flex = workspace.builds.with_flex(
        [build for phone_builds in chosen.values() for build in phone_builds]
    )
    manifest = Manifest(
        plan=_without_paths(plan, models),
        builds={name: tuple(map(without_paths, builds)) for name, builds in chosen.items()},
        named=tuple(sorted(plan.builds.keys() & {*tools})),
        flex_builds={sha256: without_paths(build) for sha256, build in flex.items()},
        flag_files={value: item.files for value, item in flag_files.items()},
        parity_inputs=inputs,
        programs=tuple(content(path) for path in dict.fromkeys(declaring) if path is not None),
        reference=content(reference) if reference is not None else None,
    )
    return manifest, paths, missing


def _without_paths(plan: Plan, models: Sequence[Model]) -> Plan:
    """Return a plan without paths of this computer: its models by content."""
    sent = [
        PlanModel(
            name=model.name,
            path=Path(f"{model.sha256}{model_ending(model.path)}"),
            sha256=model.sha256,
        )
        for model in models
    ]
    return replace(plan, models=tuple(sent), parity_inputs=None, builds={}, folder=None)


def _inputs(plan: Plan) -> list[Path]:
    """Return the inputs ``<model>.<number>.bin`` of the plan's models for the pass ``parity``,
    sorted by name.
    """
    models = {model.name for model in plan.models}
    paths = []
    for path in sorted(plan.parity_inputs.iterdir()) if plan.parity_inputs is not None else ():
        model, number = path.name.removesuffix(".bin").rpartition(".")[::2]
        if path.suffix == ".bin" and model in models and number.isdecimal() and path.is_file():
            paths.append(path)
    return paths


_LISTED: Final = "'benchfarm farm status' lists all"
_SCOPES: Final = "host:NAME or phone:SERIAL"


def cancel(workspace: Workspace, submission: str, serials: Sequence[str]) -> DoneAnswer:
    """Cancel a submission, or some phones' jobs of it: waiting jobs at once, running ones once
    their phones are restored.

    The remaining runs of their campaigns are abandoned: here for waiting jobs, by the worker for
    running ones.
    """
    with FarmQueue(workspace.settings.store) as queue:
        jobs = queue.jobs(submission)
        if not jobs:
            raise unknown_submission(submission)
        unknown = sorted(set(serials) - {job["serial"] for job in jobs})
        if unknown:
            raise UsageError(f"{submission} has no job for {', '.join(unknown)}")
        stopped = queue.cancel(submission, list(serials) or None)
    # Also those of an earlier call, if it was interrupted.
    campaign_ids = [
        job["campaign_id"]
        for job in jobs
        if stopped.get(job["job_id"]) == "waits" or job["status"] == "cancelled"
    ]
    closed = close_cancelled(workspace, map(CampaignId, campaign_ids))
    waiting, running = (list(stopped.values()).count(status) for status in ("waits", "runs"))
    text = f"{submission}: {counted(waiting, 'job')} cancelled, {running} being stopped"
    if closed:
        text += f"; the remaining runs of {closed} that had begun are abandoned"
    data = {"submission": submission, "jobs": sorted(stopped), "running": running, "closed": closed}
    return DoneAnswer(text=text, data=data)


def pause(settings: Settings, scopes: Sequence[str]) -> DoneAnswer:
    """Pause hosts or phones (``host:NAME``, ``phone:SERIAL``) or the whole farm."""
    with FarmQueue(settings.store) as queue:
        existing = {"farm"}
        # Also hosts whose worker ended: it may start again.
        existing |= {f"host:{row['name']}" for row in queue.rows("SELECT name FROM farm_hosts")}
        existing |= {f"phone:{row['serial']}" for row in [*queue.phones(), *queue.away()]}
        if unknown := set(scopes) - existing:
            names = ", ".join(sorted(unknown))
            raise UsageError(f"the farm has no {names}", hint=f"write farm, {_SCOPES}; {_LISTED}")
        for scope in scopes or ["farm"]:
            queue.pause(scope)
        return _paused(queue)


def resume(settings: Settings, scopes: Sequence[str]) -> DoneAnswer:
    """End pauses, all or none; raises UsageError for a scope that isn't paused."""
    resumed = scopes or ["farm"]
    with FarmQueue(settings.store) as queue:
        if unknown := set(resumed) - set(queue.pauses()):
            raise UsageError(f"not paused: {', '.join(sorted(unknown))}", hint=_LISTED)
        for scope in resumed:
            queue.resume(scope)
        return _paused(queue)


def _paused(queue: FarmQueue) -> DoneAnswer:
    pauses = queue.pauses()
    return DoneAnswer(text=paused_text(pauses), data={"pauses": pauses})


def paused_text(pauses: Sequence[str]) -> str:
    """Return the paused scopes as a text for people."""
    return f"paused: {', '.join(pauses) or 'nothing'}"


def forget(settings: Settings, scopes: Sequence[str]) -> DoneAnswer:
    """Remove hosts and phones for good (``host:NAME``, ``phone:SERIAL``), all or none.

    For a serial number that several phones had, remove its clash.

    Raises UsageError for a live host, and for a phone that a host announces.
    """
    with FarmQueue(settings.store) as queue:
        unknown = queue.forget(scopes)
    if unknown:
        raise UsageError(
            f"unknown, or still there: {', '.join(unknown)}",
            hint=f"end its worker or unplug it first; write {_SCOPES}; {_LISTED}",
        )
    text = "\n".join(one_line(f"{scope}: forgotten") for scope in scopes)
    return DoneAnswer(text=text, data={"forgotten": list(scopes)})


def unknown_submission(name: str) -> NotFoundError:
    """Return the error for a submission that isn't there."""
    return NotFoundError(
        f"there is no submission {name!r}",
        hint="'benchfarm farm status' lists the open ones, 'benchfarm results list' what is stored",
    )
