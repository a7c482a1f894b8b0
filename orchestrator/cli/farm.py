"""``benchfarm farm``: giving plans to a farm of many hosts, looking at it, steering it."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from orchestrator.bootstrap import Farm, Settings
from orchestrator.cli.host_files import host_files
from orchestrator.cli.measuring import identify
from orchestrator.cli.result import CommandResult, table
from orchestrator.config.farm_documents import dump, read_facts
from orchestrator.config.plan import load_plan
from orchestrator.errors import NoDeviceError, PlanError, UsageError
from orchestrator.queueing.messages import PhoneJob
from orchestrator.queueing.queue import FarmQueue
from orchestrator.records.identity import Serial
from orchestrator.records.plan import DeviceSelection, Plan, PlanModel

#: A host that wasn't heard for so long isn't given as alive.
SILENT_S = 15.0


def submit(settings: Settings, path: Path, *, priority: int, name: str) -> CommandResult:
    """Queue a plan for every announced phone that fits it, models by content; all of it or nothing.

    Raises:
        PlanError: the plan is wrong, or needs what can't travel to other hosts.
        NoDeviceError: no announced phone fits, or one that is named was never announced.
        UsageError: a submission of this name is there already.
    """
    plan = load_plan(path, home=settings.data_folder)
    _check_travels(plan)
    files = [(model, model.path) for model in identify(plan) if model.path is not None]
    submission = name or f"{re.sub('[^A-Za-z0-9._-]', '_', plan.name)[:40] or 'plan'}-{secrets.token_hex(4)}"
    with FarmQueue(settings.store) as queue, Farm(settings) as farm:
        serials = _fitting(farm, queue, plan.devices)
        sent = replace(
            plan,
            models=tuple(PlanModel(name=item.name, path=Path(path.name), sha256=item.sha256) for item, path in files),
            devices=DeviceSelection(),
        )
        document = dump(sent)
        jobs = [PhoneJob(submission=submission, serial=Serial(serial), plan=document) for serial in serials]
        uploaded = sum(queue.upload(path, model.sha256) for model, path in files)
        numbers = queue.submit(jobs, plan_name=plan.name, priority=priority)
    return CommandResult(
        text=f"{submission}: {len(jobs)} jobs queued, for {', '.join(serials)}; {uploaded} models uploaded",
        data={
            "submission": submission,
            "jobs": [
                {"job_id": number, "serial": job.serial, "campaign_id": job.campaign_id}
                for number, job in zip(numbers, jobs, strict=True)
            ],
            "uploaded": uploaded,
        },
    )


def _check_travels(plan: Plan) -> None:
    """Raise PlanError for a plan that needs more of this computer than its models."""
    reasons = [f"a flag names the file {value!r}" for value in host_files(plan)]
    reasons += [f"the build {value!r} is a path" for value in plan.builds.values() if "/" in value]
    if plan.parity_inputs is not None:
        reasons.append("parity inputs are a folder")
    if plan.devices.host:
        reasons.append("it measures on this computer too")
    if plan.sentinel:
        reasons.append("the reference workload is not measured by the farm yet")
    if reasons:
        raise PlanError(
            f"the farm's hosts get a plan's models and nothing else: {'; '.join(reasons)}",
            hint="run it on the phones' own host with 'benchfarm run'",
        )


def _fitting(farm: Farm, queue: FarmQueue, wanted: DeviceSelection) -> list[str]:
    """Return the announced phones that a plan means; pools and tags are those of the submitter's inventory."""
    known = {row["serial"]: row for row in queue.phones()}
    missing = [serial for serial in wanted.serials if serial not in known]
    if missing:
        raise NoDeviceError(
            f"no host has announced {', '.join(missing)}", hint="'benchfarm farm status' lists what is announced"
        )
    fitting = [
        serial
        for serial, row in known.items()
        if (not wanted.serials or serial in wanted.serials)
        and farm._fits(read_facts(row["facts"]), wanted)
        and (wanted.serials or not row["unusable"])
    ]
    if not fitting:
        raise NoDeviceError(
            "no phone that a host has announced fits the plan", hint="'benchfarm farm status' lists what is announced"
        )
    return sorted(fitting)


def status(settings: Settings, submission: str) -> CommandResult:
    """Tell of the hosts, their phones and the jobs; exit code 1 when a job asked for failed."""
    with FarmQueue(settings.store) as queue:
        hosts, phones, jobs, holds = queue.hosts(), queue.phones(), queue.jobs(submission), queue.holds()
    if submission and not jobs:
        raise UsageError(f"there is no submission {submission!r}", hint="'benchfarm farm status' lists all")
    for host in hosts:
        host["state"] = "silent" if host["silent_s"] > SILENT_S else holds.get(f"host:{host['name']}", "alive")
    running = {job["serial"]: job for job in jobs if job["status"] == "runs"}
    for phone in phones:
        del phone["facts"]
        phone["job"] = running[phone["serial"]]["job_id"] if phone["serial"] in running else None
    lines = [table(("host", "state", "benchfarm"), [(h["name"], h["state"], h["benchfarm_version"]) for h in hosts])]
    lines += ["", table(("phone", "host", "state"), [(p["serial"], p["host"], _phone_state(p, holds)) for p in phones])]
    open_jobs = [job for job in jobs if submission or job["status"] in {"waits", "runs", "failed"}]
    rows = [
        (str(j["job_id"]), j["submission"], j["serial"], j["status"], str(j["priority"]), j["host"], j["note"])
        for j in open_jobs
    ]
    lines += ["", table(("job", "submission", "phone", "status", "priority", "host", "note"), rows)]
    if "farm" in holds:
        lines += ["", f"the whole farm is held: {holds['farm']}"]
    return CommandResult(
        text="\n".join(lines),
        data={"hosts": hosts, "phones": phones, "jobs": jobs, "holds": holds},
        exit_code=int(bool(submission) and any(job["status"] == "failed" for job in jobs)),
    )


def _phone_state(phone: dict[str, object], holds: dict[str, str]) -> str:
    if phone["unusable"]:
        return str(phone["unusable"])
    if f"phone:{phone['serial']}" in holds:
        return "paused"
    return f"job {phone['job']}" if phone["job"] is not None else "free"


def cancel(settings: Settings, submission: str) -> CommandResult:
    """Cancel a submission: what waits at once, what runs as soon as its phone is put back."""
    with FarmQueue(settings.store) as queue:
        jobs = queue.jobs(submission)
        if not jobs:
            raise UsageError(f"there is no submission {submission!r}", hint="'benchfarm farm status' lists all")
        stopped = queue.cancel(submission)
    running = sum(status == "doing" for status in stopped.values())
    text = f"{submission}: {len(stopped) - running} jobs cancelled, {running} are being stopped"
    return CommandResult(text=text, data={"submission": submission, "jobs": sorted(stopped), "running": running})


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
