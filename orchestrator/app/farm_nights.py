"""What a worker does for schedules: it submits what is due, for the phones that are announced then."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from orchestrator.app.farm_newcomers import kept_for_newcomers
from orchestrator.app.farm_payload import jobs_for
from orchestrator.app.farm_phones import choose_phones
from orchestrator.bootstrap import Farm, Settings
from orchestrator.config.farm_documents import dump, read_plan
from orchestrator.config.profiles import KeptInventory
from orchestrator.engine.night import bounded
from orchestrator.errors import UsageError
from orchestrator.ports import Store
from orchestrator.queueing.queue import FarmQueue
from orchestrator.queueing.schedule import Line, Schedule, Schedules


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
    document = dump(replace(plan, devices=type(plan.devices)()))
    payloads: Mapping[str, dict[str, object]] = json.loads(schedule.payloads)
    made, files = jobs_for(chosen, payloads, submission=submission, plan=document)
    kept = kept_for_newcomers(
        submission,
        plan,
        payloads,
        chosen,
        inventory=farm.inventory,
        priority=schedule.priority,
        opens_at=opens_at,
    )
    queue.submit(made, plan_name=schedule.plan_name, priority=schedule.priority, files=files, kept=kept)
    further = f"; not meant: {', '.join(sorted(left_out))}" if left_out else ""
    return f"{len(made)} jobs, for {', '.join(job.serial for job in made)}{further}"


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
