"""``benchfarm farm``: giving plans to a farm of many hosts, looking at it, steering it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli import nights
from orchestrator.cli.beginning import identify
from orchestrator.cli.farm_parcel import pack
from orchestrator.cli.farm_working import contents_of
from orchestrator.cli.result import CommandResult, one_line, table
from orchestrator.config.farm_documents import dump, read_facts, read_labels
from orchestrator.config.plan import load_plan
from orchestrator.errors import NoDeviceError, PlanError, UsageError
from orchestrator.planning.selection import choose
from orchestrator.predicates import Labels
from orchestrator.quantities import parse_seconds
from orchestrator.queueing.messages import PROTOCOL, PhoneJob
from orchestrator.queueing.queue import FarmQueue
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import CampaignId, Serial
from orchestrator.records.plan import DeviceSelection, Plan, PlanModel, Sharding
from orchestrator.records.workload import Model
from orchestrator.units import format_bytes, format_duration

#: A host that wasn't heard for so long isn't given as alive.
SILENT_S = 15.0


def submit(settings: Settings, path: Path, *, priority: int, name: str) -> CommandResult:
    """Queue a plan for every announced phone that fits it, all that it names by content; all of it or nothing.

    Raises:
        PlanError: the plan is wrong, or asks for what only one host can do.
        NoDeviceError: no announced phone fits, or one that is named was never announced.
        ArtifactError: a build that the plan names isn't here.
        UsageError: a submission of this name was there already.
    """
    plan = load_plan(path, home=settings.data_folder)
    _check_travels(plan)
    models = identify(plan)
    submission = name or f"{re.sub('[^A-Za-z0-9._-]', '_', plan.name)[:40] or 'plan'}-{secrets.token_hex(4)}"
    with FarmQueue(settings.store) as queue, Farm(settings) as farm:
        chosen, left_out = choose_phones(farm, queue, plan.devices)
        contents = contents_of(settings, queue)
        packed = pack(farm, plan, chosen, contents.place)
        document = dump(_sent(plan, models))
        jobs = [
            PhoneJob(
                submission=submission, serial=facts.serial, plan=document, parcel=dump(packed.parcels[facts.serial])
            )
            for facts in chosen
        ]
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


def _check_travels(plan: Plan) -> None:
    """Raise PlanError for a plan that asks for what only one host can do."""
    reasons = ["it measures on this computer too"] if plan.devices.host else []
    if plan.sharding is not Sharding.NONE:
        reasons.append("equal phones are to share a case, and a farm's phones may be at different hosts")
    if reasons:
        raise PlanError(
            f"each of the farm's jobs is one phone's: {'; '.join(reasons)}",
            hint="run it on the phones' own host with 'benchfarm run'",
        )


def _sent(plan: Plan, models: Sequence[Model]) -> Plan:
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
    announced, left_out = _usable(queue.phones(), wanted.serials)
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


def _usable(
    rows: Sequence[Mapping[str, Any]], named: Sequence[str]
) -> tuple[dict[str, Mapping[str, Any]], dict[str, str]]:
    """Return the phones that can have a job, each by the best of the hosts that have it, and why the others can't.

    One that is named may wait for what ails it.
    """
    best: dict[str, Mapping[str, Any]] = {}
    for row in sorted(rows, key=lambda row: (row["protocol"] < PROTOCOL, bool(row["unusable"]), row["silent_s"])):
        best.setdefault(row["serial"], row)
    out = {}
    for serial, row in sorted(best.items()):
        if row["protocol"] < PROTOCOL:
            out[serial] = f"its host {row['host']} has an older benchfarm, which can't read this job: update it"
        elif row["unusable"] and serial not in named:
            out[serial] = row["unusable"]
    return {serial: row for serial, row in sorted(best.items()) if serial not in out}, out


def status(settings: Settings, submission: str) -> CommandResult:
    """Tell of the hosts, their phones and the jobs; of one submission also what there was no time for.

    The exit code is 1 when a job asked for failed, and 6 when none failed and the time didn't reach for all.
    """
    with FarmQueue(settings.store) as queue, Farm(settings) as farm:
        hosts, phones, jobs, holds = queue.hosts(), queue.phones(), queue.jobs(submission), queue.holds()
        cut = _cut(farm, jobs) if submission else {}
    if submission and not jobs:
        raise UsageError(f"there is no submission {submission!r}", hint="'benchfarm farm status' lists all")
    for host in hosts:
        host["state"] = "silent" if host["silent_s"] > SILENT_S else holds.get(f"host:{host['name']}", "alive")
        host["reads"] = "all jobs" if host["protocol"] >= PROTOCOL else "jobs of an older benchfarm only"
    running = {(job["serial"], job["host"]): job for job in jobs if job["status"] == "runs"}
    for phone in phones:
        del phone["facts"]
        job = running.get((phone["serial"], phone["host"]))
        phone["job"] = job["job_id"] if job is not None else None
        phone["labels"] = read_labels(phone["labels"]).model_dump()
    lines = [
        table(
            ("host", "state", "benchfarm", "reads"),
            [(h["name"], h["state"], h["benchfarm_version"], h["reads"]) for h in hosts],
        )
    ]
    lines += ["", table(("phone", "host", "state"), [(p["serial"], p["host"], _phone_state(p, holds)) for p in phones])]
    open_jobs = [job for job in jobs if submission or job["status"] in {"waits", "runs", "failed"}]
    rows = [
        (str(j["job_id"]), j["submission"], j["serial"], _job_state(j), str(j["priority"]), j["host"], j["note"])
        for j in open_jobs
    ]
    lines += ["", table(("job", "submission", "phone", "status", "priority", "host", "note"), rows)]
    if "farm" in holds:
        lines += ["", f"the whole farm is held: {holds['farm']}"]
    lines += [f"{serial}: {nights.told(items)}" for serial, items in cut.items()]
    has_failed = bool(submission) and any(job["status"] == "failed" for job in jobs)
    return CommandResult(
        text="\n".join(lines),
        data={"hosts": hosts, "phones": phones, "jobs": jobs, "holds": holds, "no_time_for": cut},
        exit_code=int(has_failed) or nights.CUT_EXIT_CODE * bool(cut),
    )


def _cut(farm: Farm, jobs: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, object]]]:
    """Return what each phone of a submission had no time for, by serial number; phones with time for all aside."""
    found: dict[str, list[dict[str, object]]] = {}
    for job in jobs:
        campaign = farm.store.campaign(CampaignId(job["campaign_id"]))
        if campaign is None:
            continue
        if left_out := nights.stored_left_out(farm.store, campaign):
            found[job["serial"]] = left_out
    return found


def _phone_state(phone: Mapping[str, object], holds: Mapping[str, str]) -> str:
    if phone["unusable"]:
        return str(phone["unusable"])
    if f"phone:{phone['serial']}" in holds:
        return "paused"
    return f"job {phone['job']}" if phone["job"] is not None else "free"


def _job_state(job: Mapping[str, Any]) -> str:
    if job["status"] == "waits" and job["waits_s"]:
        return f"waits {format_duration(job['waits_s'])}"
    return str(job["status"])


def cancel(settings: Settings, submission: str, serials: Sequence[str]) -> CommandResult:
    """Cancel a submission, or some phones' part of it: what waits at once, what runs once its phone is put back."""
    with FarmQueue(settings.store) as queue:
        jobs = queue.jobs(submission)
        if not jobs:
            raise UsageError(f"there is no submission {submission!r}", hint="'benchfarm farm status' lists all")
        unknown = sorted(set(serials) - {job["serial"] for job in jobs})
        if unknown:
            raise UsageError(f"{submission} has no job for {', '.join(unknown)}")
        stopped = queue.cancel(submission, list(serials) or None)
    running = sum(status == "doing" for status in stopped.values())
    text = f"{submission}: {len(stopped) - running} jobs cancelled, {running} are being stopped"
    return CommandResult(text=text, data={"submission": submission, "jobs": sorted(stopped), "running": running})


def clean(settings: Settings, *, older_than: str, is_trial: bool) -> CommandResult:
    """Forget old jobs and take files away that no job needs, at the farm and on this host; raises UsageError."""
    try:
        older_than_s = parse_seconds(older_than)
    except ValueError as error:
        raise UsageError(f"--older-than: {error}", hint="for example 30 d") from error
    with FarmQueue(settings.store) as queue:
        contents = contents_of(settings, queue)
        found = contents.clean(older_than_s=older_than_s, is_trial=is_trial)
        copies = contents.clean_copies(is_trial=is_trial)
    what = "would be taken away" if is_trial else "were taken away"
    return CommandResult(
        text=f"{found.jobs} jobs and {found.files} files ({format_bytes(found.size_bytes)}) of the farm, "
        f"{copies.files} copies ({format_bytes(copies.size_bytes)}) of this host {what}",
        data={"trial": is_trial, "farm": found, "host": copies},
    )


def hold(settings: Settings, scopes: Sequence[str], kind: str) -> CommandResult:
    """Pause or drain hosts or phones (``host:NAME``, ``phone:SERIAL``) or the whole farm."""
    with FarmQueue(settings.store) as queue:
        for scope in _checked(scopes):
            queue.hold(scope, kind)
        holds = queue.holds()
    return CommandResult(text=_told(holds), data={"holds": holds})


def release(settings: Settings, scopes: Sequence[str]) -> CommandResult:
    """End pauses and drains; raises UsageError for one that isn't there."""
    with FarmQueue(settings.store) as queue:
        for scope in _checked(scopes):
            if not queue.release(scope):
                raise UsageError(f"{scope} isn't held", hint="'benchfarm farm status' lists what is")
        holds = queue.holds()
    return CommandResult(text=_told(holds), data={"holds": holds})


def _checked(scopes: Sequence[str]) -> list[str]:
    for scope in scopes:
        kind, _, name = scope.partition(":")
        if scope != "farm" and not (kind in {"host", "phone"} and name):
            raise UsageError(f"{scope!r} names nothing", hint="write farm, host:NAME or phone:SERIAL")
    return list(scopes or ["farm"])


def _told(holds: dict[str, str]) -> str:
    return "\n".join(f"{scope}: {kind}" for scope, kind in sorted(holds.items())) or "nothing is held"
