"""Phones that come after a farm's submission: what is kept of it for them, and which of them it means."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from orchestrator.app.farm_payload import jobs_for
from orchestrator.app.farm_phones import facts_and_labels, usable
from orchestrator.config.farm_documents import dump, labels_of, read_facts, read_labels, read_plan
from orchestrator.planning.selection import choose, misfit
from orchestrator.ports import Store
from orchestrator.predicates import Labels
from orchestrator.queueing.newcomers import Added
from orchestrator.queueing.submissions import Submission
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import Serial
from orchestrator.records.plan import DeviceSelection, Plan


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
