"""Submitting to a farm: which of the announced phones a plan means, what travels to them, and their jobs."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from orchestrator.app.beginning import identify
from orchestrator.app.farm_newcomers import kept_for_newcomers
from orchestrator.app.farm_payload import by_phone_and_kind, jobs_for, keep_all, pack
from orchestrator.app.farm_phones import away_meant, check_names, choose_phones
from orchestrator.app.farm_worker import contents_of
from orchestrator.bootstrap import Farm, Settings
from orchestrator.config.farm_documents import dump
from orchestrator.config.plan import load_plan
from orchestrator.engine.night import bounded
from orchestrator.errors import PlanError, UsageError
from orchestrator.queueing.messages import PhoneJob
from orchestrator.queueing.queue import FarmQueue
from orchestrator.records.identity import Serial
from orchestrator.records.plan import DeviceSelection, Plan, PlanModel, Sharding
from orchestrator.records.tokens import model_ending
from orchestrator.records.workload import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """What was queued of a plan."""

    submission: str
    #: Each with its number in the queue.
    jobs: Sequence[tuple[int, PhoneJob]]
    #: How many files the jobs need, and how many of them weren't where they are kept.
    files: int
    uploaded: int
    #: Where the files are kept; empty: in the farm's database.
    place: str
    opens_at: datetime
    #: Whether that is later than now.
    waits: bool
    #: Phones that have no job, those that are away, and those of whose programs this computer has none -> why.
    left_out: Mapping[str, str]
    away: Mapping[str, str]
    without_program: Mapping[Serial, Sequence[str]]
    #: Whether every phone that the plan names has a job, and none that it means is away.
    is_whole: bool


def submit(settings: Settings, path: Path, *, priority: int, name: str) -> Submitted:
    """Queue a plan for every announced phone that fits it, all that it names by content; all of it or nothing.

    Raises:
        PlanError: the plan is wrong, or asks for what only one host can do.
        NoDeviceError: no announced phone fits.
        ArtifactError: a build that the plan names isn't here.
        UsageError: a submission of this name was there already.
    """
    plan = load_plan(path, home=settings.data_folder)
    check_travels(plan)
    models = identify(plan)
    submission = name or f"{re.sub('[^A-Za-z0-9._-]', '_', plan.name)[:40] or 'plan'}-{secrets.token_hex(4)}"
    with FarmQueue(settings.store) as queue, Farm(settings) as farm:
        check_names(farm, queue, plan.devices)
        chosen, left_out = choose_phones(farm, queue, plan.devices)
        away = away_meant(queue, plan.devices, farm.inventory)
        contents = contents_of(settings, queue)
        packed = pack(farm, plan, chosen, contents.place)
        payloads = by_phone_and_kind(packed, chosen, models)
        # Of one night for all its phones, whenever each of them can be had.
        now = queue.now()
        sent, opens_at = bounded(sent_plan(plan, models), now)
        jobs, needed = jobs_for(chosen, payloads, submission=submission, plan=dump(sent))
        _check_new(farm, queue, jobs)
        files, uploaded = keep_all(contents, packed, models)
        kept = kept_for_newcomers(
            submission,
            replace(sent, devices=plan.devices),
            payloads,
            chosen,
            inventory=farm.inventory,
            priority=priority,
            opens_at=opens_at,
        )
        numbers = queue.submit(jobs, plan_name=plan.name, priority=priority, files=needed, kept=kept)
    return Submitted(
        submission=submission,
        jobs=tuple(zip(numbers, jobs, strict=True)),
        files=len(files),
        uploaded=uploaded,
        place=contents.place,
        opens_at=opens_at,
        waits=opens_at > now,
        left_out=left_out,
        away=away,
        without_program=packed.missing,
        is_whole=not away and (plan.devices.most is not None or not left_out.keys() & set(plan.devices.serials)),
    )


def check_travels(plan: Plan) -> None:
    """Raise PlanError for a plan that asks for what only one host can do."""
    reasons = ["it measures on this computer too"] if plan.devices.host else []
    if plan.sharding is not Sharding.NONE:
        reasons.append("equal phones are to share a case, and a farm's phones may be at different hosts")
    if reasons:
        raise PlanError(
            f"each of the farm's jobs is one phone's: {'; '.join(reasons)}",
            hint="run it on the phones' own host with 'benchfarm run'",
        )


def sent_plan(plan: Plan, models: Sequence[Model]) -> Plan:
    """Return the plan without anything of this computer: its models by content, its phones chosen."""
    return replace(
        plan,
        models=tuple(
            PlanModel(name=model.name, path=Path(f"{model.sha256}{model_ending(model.path)}"), sha256=model.sha256)
            for model in models
        ),
        devices=DeviceSelection(),
        parity_inputs=None,
        builds={},
        folder=None,
    )


def _check_new(farm: Farm, queue: FarmQueue, jobs: Sequence[PhoneJob]) -> None:
    """Raise UsageError for a submission that is queued, or was measured: its jobs would find everything stored."""
    if queue.jobs(jobs[0].submission):
        raise UsageError(f"{jobs[0].submission}: this submission is in the queue already")
    for job in jobs:
        if farm.store.campaign(job.campaign_id) is not None:
            raise UsageError(
                f"{job.submission}: a submission of this name was measured before", hint="give another --name"
            )
