"""Submitting a plan to a farm: what travels to the phones that it means, now and when some come
later.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.app.beginning import identify
from orchestrator.config.plan import load_plan
from orchestrator.errors import PlanError, UsageError
from orchestrator.extensions.farm.manifest import Manifest, dump, labels_of
from orchestrator.extensions.farm.payload import contents_of, pack
from orchestrator.extensions.farm.phones import away_meant, check_names, choose_phones
from orchestrator.extensions.farm.queue import FarmQueue, Submission
from orchestrator.plugins import Settings, Workspace
from orchestrator.predicates import Labels
from orchestrator.records.case import CampaignId, Serial, campaign_id_of
from orchestrator.records.device import DeviceFacts
from orchestrator.records.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedJob:
    """A phone's job."""

    job_id: int
    serial: Serial
    campaign_id: CampaignId


@dataclass(frozen=True, kw_only=True)
class Submitted:
    """What was queued of a plan."""

    submission: str
    jobs: Sequence[QueuedJob]
    #: How many files the jobs need, and how many of them the farm didn't have.
    files: int
    uploaded: int
    #: Phones that have no job, those that are away, and those of whose programs this computer has
    #: none -> why.
    left_out: Mapping[str, str]
    away: Mapping[str, str]
    without_program: Mapping[Serial, Sequence[str]]
    #: Open submissions with jobs on the same phones -> those phones.
    overlaps: Mapping[str, Sequence[str]]
    #: Whether every phone that the plan names has a job, and none that it means is away.
    is_whole: bool
    #: Whether it was there already, and nothing was queued now.
    is_known: bool = False


def submit(
    settings: Settings, path: Path, *, priority: int, name: str, once: bool = False
) -> Submitted:
    """Queue a plan for every announced phone that fits it, all that it names by content; all of it
    or nothing.

    ``{date}`` in the name is today's date (UTC). ``once``: a submission of the name that is there
    already is returned.

    Raises:
        PlanError: the plan is wrong, or asks for what only one host can do.
        NoDeviceError: no announced phone fits.
        ArtifactError: a build that the plan names isn't here.
        UsageError: a submission of this name was there already.
    """
    plan = load_plan(path, home=settings.data_folder)
    check_travels(plan)
    models = identify(plan)
    submission = (
        name or f"{re.sub('[^A-Za-z0-9._-]', '_', plan.name)[:40] or 'plan'}-{secrets.token_hex(4)}"
    )
    with FarmQueue(settings.store) as queue, Workspace(settings) as workspace:
        submission = submission.replace("{date}", f"{queue.now():%Y%m%d}")
        if once and (known := _known(queue, submission)) is not None:
            return known
        check_names(workspace, queue, plan.devices)
        chosen, left_out = choose_phones(workspace, queue, plan.devices)
        away = away_meant(queue, plan.devices, workspace.inventory)
        packed = pack(workspace, plan, chosen, models)
        if queue.jobs(submission):
            raise UsageError(f"{submission}: this submission is in the queue already")
        if any(
            workspace.store.campaign(campaign_id_of(submission, facts.serial)) is not None
            for facts in chosen
        ):
            raise UsageError(
                f"{submission}: a submission of this name was measured before",
                hint="give another --name",
            )
        contents = contents_of(settings, queue)
        uploaded = sum(contents.keep(file, sha256) for sha256, file in packed.paths.items())
        made = submission_of(submission, packed.manifest, workspace.inventory, priority=priority)
        overlaps = _overlaps(queue, {facts.serial for facts in chosen})
        try:
            jobs = queue_jobs(queue, made, chosen)
        except UsageError:
            if once and (known := _known(queue, submission)) is not None:
                return known
            raise
    return Submitted(
        submission=submission,
        jobs=jobs,
        files=len(packed.paths),
        uploaded=uploaded,
        left_out=left_out,
        away=away,
        without_program=packed.missing,
        overlaps=overlaps,
        is_whole=not away
        and (plan.devices.any is not None or not left_out.keys() & set(plan.devices.serials)),
    )


def _known(queue: FarmQueue, submission: str) -> Submitted | None:
    """Return a submission that is there already, None for one that isn't."""
    jobs = [
        QueuedJob(
            job_id=row["job_id"],
            serial=Serial(row["serial"]),
            campaign_id=CampaignId(row["campaign_id"]),
        )
        for row in queue.jobs(submission)
    ]
    if not jobs:
        return None
    return Submitted(
        submission=submission,
        jobs=jobs,
        files=0,
        uploaded=0,
        left_out={},
        away={},
        without_program={},
        overlaps={},
        is_whole=True,
        is_known=True,
    )


def _overlaps(queue: FarmQueue, serials: Collection[str]) -> dict[str, list[str]]:
    """Return the open submissions that have jobs on some phones, with those phones."""
    found: dict[str, list[str]] = {}
    for job in queue.jobs():
        if job["status"] in {"waits", "runs"} and job["serial"] in serials:
            found.setdefault(job["submission"], []).append(job["serial"])
    return found


def check_travels(plan: Plan) -> None:
    """Raise PlanError for a plan that asks for what only one host can do."""
    reasons = ["it measures on this computer too"] if plan.devices.host else []
    if reasons:
        raise PlanError(
            f"each of the farm's jobs is one phone's: {'; '.join(reasons)}",
            hint="run it on the phones' own host with 'benchfarm run'",
        )


def submission_of(
    name: str, manifest: Manifest, inventory: Mapping[Serial, Labels], *, priority: int
) -> Submission:
    """Return a plan's submission; ``inventory`` is what this computer says that phones are for."""
    labels = {str(serial): labels_of(item) for serial, item in inventory.items()}
    return Submission(
        submission=name,
        document=dump(replace(manifest, labels=labels)),
        plan_name=manifest.plan.name,
        files=manifest.files,
        priority=priority,
    )


def queue_jobs(
    queue: FarmQueue, submission: Submission, chosen: Sequence[DeviceFacts]
) -> list[QueuedJob]:
    """Make a submission's jobs for the chosen phones.

    Raises UsageError when it is there already.
    """
    numbers = queue.submit(submission, {facts.serial: dump(facts) for facts in chosen})
    return [
        QueuedJob(
            job_id=number,
            serial=facts.serial,
            campaign_id=campaign_id_of(submission.submission, facts.serial),
        )
        for number, facts in zip(numbers, chosen, strict=True)
    ]
