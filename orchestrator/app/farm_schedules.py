"""Schedules: plans that the farm measures at set times, on the phones that are announced then."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from orchestrator.app.beginning import identify
from orchestrator.app.farm_beside import shortcomings, worst_text
from orchestrator.app.farm_payload import contents_of, pack
from orchestrator.app.farm_phones import check_names, choose_phones
from orchestrator.app.farm_submitting import check_travels, queue_jobs, submission_of
from orchestrator.app.nights import limited
from orchestrator.app.options import arg, opt
from orchestrator.bootstrap import Farm, Settings, this_computer
from orchestrator.config.farm_documents import dump, read_manifest
from orchestrator.config.plan import load_plan
from orchestrator.config.profiles import KeptInventory
from orchestrator.errors import BenchfarmError, NoDeviceError, UsageError
from orchestrator.quantities import parse_seconds
from orchestrator.queueing.queue import FarmQueue
from orchestrator.queueing.schedule import Cron, Line, Schedule, Schedules
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import Serial
from orchestrator.records.night import parse_window
from orchestrator.report.escapes import one_line
from orchestrator.serve.answers import DoneAnswer
from orchestrator.units import format_duration

if TYPE_CHECKING:
    from orchestrator.store.opening import Store

#: A schedule's name is part of submissions' names, with the time behind it.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")


#: As far as the database's integers go.
Priority = Annotated[int, opt("--priority", "Larger numbers run first.", min=-(2**31), max=2**31 - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRequest:
    """A schedule, its numbers as typed."""

    name: Annotated[str, arg("Name of the schedule. Its submissions are named after it.")]
    plan: Annotated[Path, arg("Plan file (YAML). It is stored as it is now, with its files.")]
    cron: Annotated[str, opt("--cron", 'minute hour day month weekday, for example "0 1 * * *".')]
    timezone: Annotated[str, opt("--timezone", "Time zone of --cron and --window, such as Europe/Berlin.")] = "UTC"
    priority: Priority = 0
    window: Annotated[str, opt("--window", "When it may measure, 01:00-06:00 (default: the plan's).")] = ""
    budget: Annotated[str, opt("--budget", "Time budget per phone, 5h, at most the plan's.")] = ""
    grace: Annotated[str, opt("--grace", "Skip a time that is overdue by more than this.")] = "1h"
    replace: Annotated[bool, opt("--replace", "Replace a schedule of this name.")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedSchedule:
    """What is kept of a schedule, and what it means now."""

    name: str
    cron: str
    timezone: str
    next_at: datetime
    phones: Sequence[Serial]
    #: How many files its plan names, and how many of them the farm didn't have.
    files: int
    uploaded: int
    notes: Sequence[str]


def add(settings: Settings, request: ScheduleRequest) -> AddedSchedule:
    """Keep a plan with all that it names, to be submitted by cron.

    Raises:
        UsageError: an option that means nothing, or a schedule of this name without ``--replace``.
        PlanError: the plan is wrong, or asks for what only one host can do.
    """
    if not _NAME.fullmatch(request.name):
        raise UsageError(f"{request.name!r} can't name a schedule", hint="letters, digits, . _ - only, at most 60")
    cron = Cron(text=request.cron, timezone=request.timezone or "UTC")
    try:
        grace_s = parse_seconds(request.grace)
    except ValueError as error:
        raise UsageError(f"--grace: {error}") from error
    if grace_s <= 0:
        raise UsageError(f"--grace {request.grace}: every time would be missed", hint="for example 1h")
    plan = load_plan(request.plan, home=settings.data_folder)
    plan = limited(plan, budget=request.budget, until="", now=datetime.now(UTC))
    try:
        window = parse_window(request.window, cron.timezone) if request.window else plan.window
    except ValueError as error:
        raise UsageError(f"--window: {error}", hint="for example 01:00-06:00") from error
    # Its hours are those of the schedule's zone.
    window = window and replace(window, timezone=window.timezone or cron.timezone)
    plan = replace(plan, window=window)
    check_travels(plan)
    models = identify(plan)
    chosen: Sequence[DeviceFacts] = ()
    with FarmQueue(settings.store) as queue, Farm(settings) as farm:
        check_names(farm, queue, plan.devices)
        try:
            chosen, left_out = choose_phones(farm, queue, plan.devices)
            notes = [f"{serial}: not meant now: {reason}" for serial, reason in left_out.items()]
        except NoDeviceError as error:
            notes = [f"{error}; the plan is kept without programs: each phone is measured with its host's own"]
        packed, contents = pack(farm, plan, chosen, models), contents_of(settings, queue)
        uploaded = sum(contents.keep(file, sha256) for sha256, file in packed.paths.items())
        schedule = Schedule(
            name=request.name,
            cron=cron,
            document=dump(packed.manifest),
            plan_name=plan.name,
            files=packed.manifest.files,
            priority=request.priority,
            grace_s=grace_s,
            created_by=this_computer(),
        )
        first = Schedules(queue).put(schedule, replace=request.replace)
    if window is not None and (opens := window.around(first)[0]) > first:
        wait = format_duration((opens - first).total_seconds())
        notes.append(f"its window {window} isn't open when it is due: its jobs wait {wait}")
    return AddedSchedule(
        name=request.name,
        cron=cron.text,
        timezone=cron.timezone,
        next_at=first,
        phones=[item.serial for item in chosen],
        files=len(packed.paths),
        uploaded=uploaded,
        notes=notes,
    )


def listed(settings: Settings) -> list[dict[str, Any]]:
    """Return the schedules with their limits, next and last times, and what those lacked."""
    with FarmQueue(settings.store) as queue, Farm(settings) as farm:
        schedules = Schedules(queue).listed()
        for item in schedules:
            item.update(_limits(item.pop("document")))
            item["lacking"] = _lacking(farm, queue, item["ticks"])
            item["went_wrong"] |= bool(item["lacking"]) and not item["paused"]
    return schedules


def _limits(document: str) -> dict[str, object]:
    """Return window and time of a schedule's plan; nothing of a plan of a newer benchfarm."""
    try:
        plan = read_manifest(document).plan
    except BenchfarmError:
        return {"window": None, "phone_time_s": None}
    return {"window": plan.window and str(plan.window), "phone_time_s": plan.phone_time_s}


def _lacking(farm: Farm, queue: FarmQueue, ticks: Sequence[Mapping[str, Any]]) -> str:
    """Return what is wrong with the jobs of a schedule's last time, for people; empty when nothing is."""
    jobs = queue.jobs(ticks[0]["submission"]) if ticks and ticks[0]["submission"] else []
    failed = sorted(job["serial"] for job in jobs if job["status"] == "failed")
    nothing = worst_text(shortcomings(farm.store, [job for job in jobs if job["status"] == "done"]))
    texts = [
        f"failed on {', '.join(failed)}" if failed else "",
        f"no run of {nothing} gave a result" if nothing else "",
    ]
    return "; ".join(text for text in texts if text)


def remove(settings: Settings, name: str) -> DoneAnswer:
    """Forget a schedule; what it submitted stays. Raises UsageError when there is none."""
    with FarmQueue(settings.store) as queue:
        Schedules(queue).remove(name)
    return DoneAnswer(text=f"{name}: removed; what it submitted stays", data={"name": name})


def pause(settings: Settings, name: str, *, paused: bool) -> DoneAnswer:
    """Pause a schedule, or resume it; raises UsageError when there is none."""
    with FarmQueue(settings.store) as queue:
        Schedules(queue).pause(name, paused=paused)
    text = f"{name}: {'paused' if paused else 'resumed; what was due meanwhile is not run later'}"
    return DoneAnswer(text=text, data={"name": name, "paused": paused})


def submit_now(settings: Settings, name: str) -> DoneAnswer:
    """Submit a schedule's plan now, whether it is paused or not; raises UsageError for a schedule that isn't there."""
    with FarmQueue(settings.store) as queue, Farm(settings) as farm:
        schedule = Schedules(queue).one(name)
        moment = queue.now()
        submission = f"{name}-{moment:%Y%m%dT%H%M%SZ}"
        note = _submit(farm, queue, schedule, submission, moment)
    return DoneAnswer(text=one_line(f"{submission}: {note}"), data={"submission": submission, "note": note})


def make_due(
    settings: Settings, queue: FarmQueue, store: Store, *, host: str, inventory: KeptInventory | None = None
) -> list[Line]:
    """Submit what is due now; return a line about each for people."""
    with Farm(settings, store=store, inventory=inventory) as farm:
        return Schedules(queue).make_due(
            lambda schedule, name, moment: _submit(farm, queue, schedule, name, moment), host=host
        )


def _submit(farm: Farm, queue: FarmQueue, schedule: Schedule, submission: str, moment: datetime) -> str:
    """Queue a schedule's plan for the phones that are announced now, once for a submission's name; return a note.

    Raises NoDeviceError when no phone fits, BenchfarmError when the plan can't be read any more.
    """
    if known := queue.jobs(submission):
        return f"{len(known)} jobs, queued before its worker died"
    manifest = read_manifest(schedule.document)
    chosen, left_out = choose_phones(farm, queue, manifest.plan.devices)
    made = submission_of(submission, manifest, farm.inventory, priority=schedule.priority, now=moment)
    jobs = queue_jobs(queue, made, chosen)
    further = f"; not meant: {', '.join(sorted(left_out))}" if left_out else ""
    return f"{len(jobs)} jobs, for {', '.join(job.serial for job in jobs)}{further}"
