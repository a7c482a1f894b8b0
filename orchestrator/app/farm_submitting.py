"""Submitting to a farm: what travels to the phones that a plan means, now, by a schedule, and when they come later."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from orchestrator.app.beginning import identify
from orchestrator.app.farm_payload import by_phone_and_kind, contents_of, jobs_for, keep_all, pack
from orchestrator.app.farm_phones import away_meant, check_names, choose_phones, facts_and_labels, usable
from orchestrator.bootstrap import Farm, Settings
from orchestrator.config.farm_documents import dump, labels_of, read_facts, read_labels, read_plan
from orchestrator.config.plan import load_plan
from orchestrator.config.profiles import KeptInventory
from orchestrator.engine.night import bounded
from orchestrator.errors import PlanError, UsageError
from orchestrator.planning.selection import choose, misfit
from orchestrator.ports import Store
from orchestrator.predicates import Labels
from orchestrator.queueing.newcomers import Added
from orchestrator.queueing.queue import FarmQueue
from orchestrator.queueing.schedule import Line, Schedule, Schedules
from orchestrator.queueing.submissions import PhoneJob, Submission, campaign_id_of
from orchestrator.records.device import DeviceFacts
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
        packed = pack(farm, plan, chosen)
        payloads = by_phone_and_kind(packed, chosen, models)
        # Of one night for all its phones, whenever each of them can be had.
        now = queue.now()
        sent, opens_at = bounded(replace(sent_plan(plan, models), devices=plan.devices), now)
        _check_new(farm, queue, submission, chosen)
        files, uploaded = keep_all(contents, packed, models)
        jobs = _queue(farm, queue, submission, sent, payloads, chosen, priority=priority, opens_at=opens_at)
    return Submitted(
        submission=submission,
        jobs=jobs,
        files=len(files),
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


def _check_new(farm: Farm, queue: FarmQueue, submission: str, phones: Sequence[DeviceFacts]) -> None:
    """Raise UsageError for a submission that is queued, or was measured: its jobs would find everything stored."""
    if queue.jobs(submission):
        raise UsageError(f"{submission}: this submission is in the queue already")
    if any(farm.store.campaign(campaign_id_of(submission, facts.serial)) is not None for facts in phones):
        raise UsageError(f"{submission}: a submission of this name was measured before", hint="give another --name")


def _queue(
    farm: Farm,
    queue: FarmQueue,
    submission: str,
    plan: Plan,
    payloads: Mapping[str, Mapping[str, Any]],
    chosen: Sequence[DeviceFacts],
    *,
    priority: int,
    opens_at: datetime,
) -> Sequence[tuple[int, PhoneJob]]:
    """Queue a plan, as it travels, with the devices that it means; return the chosen phones' jobs by number."""
    document = dump(replace(plan, devices=DeviceSelection()))
    jobs, files = jobs_for(chosen, payloads, submission=submission, plan=document)
    kept = kept_for_newcomers(
        submission, plan, payloads, chosen, inventory=farm.inventory, priority=priority, opens_at=opens_at
    )
    numbers = queue.submit(jobs, plan_name=plan.name, priority=priority, files=files, kept=kept)
    return tuple(zip(numbers, jobs, strict=True))


def kept_for_newcomers(
    name: str,
    plan: Plan,
    payloads: Mapping[str, Mapping[str, Any]],
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
        payloads: What it names, by phone and kind of phone (farm_payload.by_phone_and_kind).
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
    jobs, files = jobs_for(newcomers, payloads, submission=submission.name, plan=document)
    return [
        Added(job=job, facts=announced[job.serial]["facts"], files=files[job.serial])
        for job in jobs
        # A campaign of this name is an earlier submission's, whose jobs are forgotten.
        if store.campaign(job.campaign_id) is None
    ]


def submit_scheduled(farm: Farm, queue: FarmQueue, schedule: Schedule, submission: str, moment: datetime) -> str:
    """Queue a schedule's plan for the phones that are announced now, once for a submission's name.

    Raises:
        NoDeviceError: no phone fits.
        BenchfarmError: the plan can't be read any more.
    """
    if jobs := queue.jobs(submission):
        return f"{len(jobs)} jobs, queued before its worker died"
    plan, opens_at = bounded(read_plan(schedule.plan), moment)
    chosen, left_out = choose_phones(farm, queue, plan.devices)
    made = _queue(
        farm,
        queue,
        submission,
        plan,
        json.loads(schedule.payloads),
        chosen,
        priority=schedule.priority,
        opens_at=opens_at,
    )
    further = f"; not meant: {', '.join(sorted(left_out))}" if left_out else ""
    return f"{len(made)} jobs, for {', '.join(job.serial for _, job in made)}{further}"


def make_due(
    settings: Settings, queue: FarmQueue, store: Store, *, host: str, inventory: KeptInventory | None = None
) -> list[Line]:
    """Submit what is due now; return a line about each for people."""
    with Farm(settings, store=store, inventory=inventory) as farm:
        return list(
            Schedules(queue).make_due(
                lambda schedule, name, moment: submit_scheduled(farm, queue, schedule, name, moment), host=host
            )
        )


def submit_now(settings: Settings, name: str) -> tuple[str, str]:
    """Submit a schedule's plan now, whether it is paused or not; return the submission, and a note for people.

    Raises UsageError for a schedule that isn't there.
    """
    with FarmQueue(settings.store) as queue, Farm(settings) as farm:
        schedule = Schedules(queue).one(name)
        if schedule is None:
            raise UsageError(f"there is no schedule {name!r}", hint="'benchfarm farm schedule list' lists them")
        moment = queue.now()
        submission = f"{name}-{moment:%Y%m%dT%H%M%SZ}"
        return submission, submit_scheduled(farm, queue, schedule, submission, moment)
