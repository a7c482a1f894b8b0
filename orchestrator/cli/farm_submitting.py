"""``benchfarm farm submit``: which of the announced phones a plan means, what travels to them, and their jobs."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.beginning import identify
from orchestrator.cli.farm_parcel import Packed, pack
from orchestrator.cli.farm_working import contents_of
from orchestrator.cli.result import CommandResult, one_line
from orchestrator.config.farm_documents import dump, read_facts, read_labels
from orchestrator.config.plan import load_plan
from orchestrator.errors import NoDeviceError, PlanError, UsageError
from orchestrator.planning.selection import choose
from orchestrator.predicates import Labels
from orchestrator.queueing.messages import PROTOCOL, PhoneJob
from orchestrator.queueing.queue import FarmQueue
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import Serial
from orchestrator.records.plan import DeviceSelection, Plan, PlanModel, Sharding
from orchestrator.records.workload import Model
from orchestrator.units import format_duration

#: A host that wasn't heard for so long is no reason to measure on its phones.
_SILENT_S: Final = 900.0


def submit(settings: Settings, path: Path, *, priority: int, name: str) -> CommandResult:
    """Queue a plan for every announced phone that fits it, all that it names by content; all of it or nothing.

    Raises:
        PlanError: the plan is wrong, or asks for what only one host can do.
        NoDeviceError: no announced phone fits, or one that is named was never announced.
        ArtifactError: a build that the plan names isn't here.
        UsageError: a submission of this name was there already.
    """
    plan = load_plan(path, home=settings.data_folder)
    check_travels(plan)
    models = identify(plan)
    submission = name or f"{re.sub('[^A-Za-z0-9._-]', '_', plan.name)[:40] or 'plan'}-{secrets.token_hex(4)}"
    with FarmQueue(settings.store) as queue, Farm(settings) as farm:
        chosen, left_out = choose_phones(farm, queue, plan.devices)
        contents = contents_of(settings, queue)
        packed = pack(farm, plan, chosen, contents.place)
        jobs = _jobs(submission, dump(sent_plan(plan, models)), chosen, packed)
        _check_new(farm, queue, jobs)
        files = {str(model.sha256): model.path for model in models if model.path is not None} | dict(packed.paths)
        uploaded = sum(contents.keep(file, sha256) for sha256, file in files.items())
        needed = {
            str(serial): [*(str(model.sha256) for model in models), *(item.sha256 for item in parcel.contents)]
            for serial, parcel in packed.parcels.items()
        }
        numbers = queue.submit(jobs, plan_name=plan.name, priority=priority, files=needed)
    lines = [f"{submission}: {len(jobs)} jobs queued, for {', '.join(job.serial for job in jobs)}"]
    lines[0] += f"; {len(files)} files, {uploaded} of them new to {contents.place or 'the farm'}"
    lines += [f"{serial}: not meant: {reason}" for serial, reason in left_out.items()]
    lines += [f"{serial}: its host's own program is used: {why[0]}" for serial, why in packed.missing.items()]
    return CommandResult(
        text="\n".join(map(one_line, lines)),
        data={
            "submission": submission,
            "jobs": [
                {"job_id": number, "serial": job.serial, "campaign_id": job.campaign_id}
                for number, job in zip(numbers, jobs, strict=True)
            ],
            "files": len(files),
            "uploaded": uploaded,
            "left_out": left_out,
            "without_program": packed.missing,
        },
    )


def _jobs(submission: str, plan: str, chosen: Sequence[DeviceFacts], packed: Packed) -> list[PhoneJob]:
    return [
        PhoneJob(submission=submission, serial=facts.serial, plan=plan, parcel=dump(packed.parcels[facts.serial]))
        for facts in chosen
    ]


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
            PlanModel(name=model.name, path=Path(f"{model.sha256}.tflite"), sha256=model.sha256) for model in models
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


def choose_phones(farm: Farm, queue: FarmQueue, wanted: DeviceSelection) -> tuple[list[DeviceFacts], dict[str, str]]:
    """Return the announced phones that a plan means, each once, and why not the others.

    A phone's pools and tags are those of this computer's inventory, or else its host's.
    """
    announced, left_out = usable(queue.phones(), wanted.serials)
    missing = [serial for serial in wanted.serials if serial not in announced and serial not in left_out]
    if missing:
        raise NoDeviceError(
            f"no host has announced {', '.join(missing)}", hint="'benchfarm farm status' lists what is announced"
        )
    facts = [read_facts(row["facts"]) for row in announced.values()]
    labels: dict[Serial, Labels] = {Serial(key): read_labels(row["labels"]) for key, row in announced.items()}
    labels |= farm.inventory
    named = [item for item in facts if not wanted.serials or item.serial in wanted.serials]
    choice = choose(wanted, named, labels)
    left_out |= {str(serial): reason for serial, reason in {**choice.unfit, **choice.spare}.items()}
    if not choice.chosen:
        reasons = "".join(f"\n  {serial}: {reason}" for serial, reason in left_out.items())
        raise NoDeviceError(
            f"no phone that a host has announced fits the plan{reasons}",
            hint="'benchfarm farm status' lists what is announced",
        )
    if choice.lacking:
        left_out["plan"] = choice.lacking
    return [item for item in named if item.serial in choice.chosen], left_out


def usable(
    rows: Sequence[Mapping[str, Any]], named: Sequence[str]
) -> tuple[dict[str, Mapping[str, Any]], dict[str, str]]:
    """Return the phones that can have a job, each by the best of the hosts that have it, and why the others can't.

    One that is named may wait for what ails it.
    """
    best: dict[str, Mapping[str, Any]] = {}
    for row in sorted(
        rows,
        key=lambda row: (
            row["protocol"] < PROTOCOL,
            row["silent_s"] > _SILENT_S,
            bool(row["unusable"]),
            row["silent_s"],
        ),
    ):
        best.setdefault(row["serial"], row)
    out = {}
    for serial, row in sorted(best.items()):
        if row["protocol"] < PROTOCOL:
            out[serial] = f"its host {row['host']} has an older benchfarm, which can't read this job: update it"
        elif serial not in named and row["silent_s"] > _SILENT_S:
            out[serial] = f"its host {row['host']} wasn't heard for {format_duration(row['silent_s'])}"
        elif serial not in named and row["unusable"]:
            out[serial] = row["unusable"]
    return {serial: row for serial, row in sorted(best.items()) if serial not in out}, out
