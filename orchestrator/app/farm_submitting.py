"""Submitting a plan to a farm: what travels to the phones that it means, now and when some come later."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app.beginning import identify
from orchestrator.app.farm_payload import Payloads, contents_of, jobs_for, pack
from orchestrator.app.farm_phones import away_meant, check_names, choose_phones, facts_and_labels, usable
from orchestrator.bootstrap import Farm, Settings
from orchestrator.config.farm_documents import dump, labels_of, read_facts, read_labels, read_plan
from orchestrator.config.plan import load_plan
from orchestrator.errors import PlanError, UsageError
from orchestrator.planning.selection import choose, misfit
from orchestrator.planning.time_budget import bounded
from orchestrator.predicates import Labels
from orchestrator.queueing.newcomers import Added
from orchestrator.queueing.queue import FarmQueue
from orchestrator.queueing.submissions import PhoneJob, Submission
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import Serial, campaign_id_of
from orchestrator.records.plan import DeviceSelection, Plan, PlanModel, Sharding
from orchestrator.records.tokens import model_ending
from orchestrator.records.workload import Model

if TYPE_CHECKING:
    from orchestrator.store.opening import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """What was queued of a plan."""

    submission: str
    #: Each with its number in the queue.
    jobs: Sequence[tuple[int, PhoneJob]]
    #: How many files the jobs need, and how many of them the farm didn't have.
    files: int
    uploaded: int
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
        packed = pack(farm, plan, chosen, models)
        # Of one night for all its phones, whenever each of them can be had.
        now = queue.now()
        sent, opens_at = bounded(sent_plan(plan, models), now)
        if queue.jobs(submission):
            raise UsageError(f"{submission}: this submission is in the queue already")
        if any(farm.store.campaign(campaign_id_of(submission, facts.serial)) is not None for facts in chosen):
            raise UsageError(f"{submission}: a submission of this name was measured before", hint="give another --name")
        contents = contents_of(settings, queue)
        uploaded = sum(contents.keep(file, sha256) for sha256, file in packed.paths.items())
        kept = kept_submission(
            submission,
            sent,
            packed.payloads,
            chosen,
            inventory=farm.inventory,
            priority=priority,
            opens_at=opens_at,
        )
        jobs = queue_jobs(queue, kept, sent, packed.payloads, chosen)
    return Submitted(
        submission=submission,
        jobs=jobs,
        files=len(packed.paths),
        uploaded=uploaded,
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
    """Return the plan without anything of this computer: its models by content."""
    return replace(
        plan,
        models=tuple(
            PlanModel(name=model.name, path=Path(f"{model.sha256}{model_ending(model.path)}"), sha256=model.sha256)
            for model in models
        ),
        parity_inputs=None,
        builds={},
        folder=None,
    )


def kept_submission(
    name: str,
    plan: Plan,
    payloads: Payloads,
    chosen: Sequence[DeviceFacts],
    *,
    inventory: Mapping[Serial, Labels],
    priority: int,
    opens_at: datetime,
) -> Submission:
    """Return what is kept of a submission.

    Args:
        name: Of the submission.
        plan: As it travels, with the devices that it means; it says when its time is over, and no window.
        payloads: What it names.
        chosen: The phones that it was made for.
        inventory: What this computer says that phones are for.
        priority: Of all its jobs.
        opens_at: When its window opens, or when it is submitted.
    """
    return Submission(
        name=name,
        plan=dump(plan),
        plan_name=plan.name,
        payloads=json.dumps(payloads),
        labels=json.dumps({serial: labels_of(item) for serial, item in inventory.items()}),
        priority=priority,
        joins=plan.devices.joins,
        replaces_lost=plan.devices.replaces_lost,
        opens_at=opens_at,
        until=plan.until,
        facts={facts.serial: dump(facts) for facts in chosen},
        files=[sha256 for own in payloads.values() for sha256 in own["files"]],
    )


def queue_jobs(
    queue: FarmQueue, kept: Submission, plan: Plan, payloads: Payloads, chosen: Sequence[DeviceFacts]
) -> Sequence[tuple[int, PhoneJob]]:
    """Queue a submission's jobs for the chosen phones; return them with their numbers."""
    document = dump(replace(plan, devices=DeviceSelection()))
    jobs = jobs_for(chosen, payloads, submission=kept.name, plan=document)
    numbers = queue.submit(jobs, plan_name=kept.plan_name, priority=kept.priority, kept=kept)
    return tuple(zip(numbers, jobs, strict=True))


def meant(
    store: Store,
    submission: Submission,
    kept: Mapping[str, str],
    phones: Sequence[Mapping[str, Any]],
) -> list[Added]:
    """Return the phones that a submission means beside those that it has (queueing.newcomers.Choose).

    Raises PlanError for what can't be read, StoreError.
    """
    plan, payloads = read_plan(submission.plan), json.loads(submission.payloads)
    announced, _ = usable(phones, ())
    inventory = {Serial(key): read_labels(json.dumps(value)) for key, value in json.loads(submission.labels).items()}
    facts, labels = facts_and_labels(announced, inventory)
    named = plan.devices.serials
    fitting = [
        item
        for item in facts
        if (not named or item.serial in named) and not misfit(plan.devices, item, labels.get(item.serial))
    ]
    # Whatever is said of them now: those that have their jobs keep their places.
    counted = DeviceSelection(one_of_each=plan.devices.one_of_each, most=plan.devices.most)
    present = [read_facts(document) for document in kept.values() if document]
    choice = choose(counted, [*present, *fitting], {}, kept=[Serial(serial) for serial in kept])
    document = dump(replace(plan, until=submission.until, devices=DeviceSelection()))
    newcomers = [item for item in fitting if item.serial in choice.chosen]
    return [
        Added(job=job, facts=announced[job.serial]["facts"])
        for job in jobs_for(newcomers, payloads, submission=submission.name, plan=document)
        # A campaign of this name is an earlier submission's, whose jobs are deleted.
        if store.campaign(job.campaign_id) is None
    ]
