"""Schedules: plans that the farm measures again and again, for the phones that are announced when they are due."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from orchestrator.app import farm_submitting
from orchestrator.app.beginning import identify
from orchestrator.app.farm_beside import shortcomings, worst_text
from orchestrator.app.farm_payload import by_phone_and_kind, contents_of, keep_all, pack
from orchestrator.app.farm_phones import check_names, choose_phones
from orchestrator.app.farm_submitting import check_travels, sent_plan
from orchestrator.app.nights import limited
from orchestrator.bootstrap import Farm, Settings, this_computer
from orchestrator.config.farm_documents import dump, read_plan
from orchestrator.config.plan import load_plan
from orchestrator.errors import BenchfarmError, NoDeviceError, UsageError
from orchestrator.quantities import parse_seconds
from orchestrator.queueing.queue import FarmQueue
from orchestrator.queueing.schedule import Cron, Schedule, Schedules
from orchestrator.records.device import DeviceFacts
from orchestrator.records.identity import Serial
from orchestrator.records.night import parse_window
from orchestrator.records.plan import Plan
from orchestrator.report.escapes import one_line
from orchestrator.serve.answers import DoneAnswer
from orchestrator.units import format_duration

#: A schedule's name is part of submissions' names, with the time behind it.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRequest:
    """A schedule, its numbers as typed."""

    name: str
    plan: Path
    cron: str
    timezone: str
    priority: int
    window: str
    budget: str
    grace: str
    replace: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedSchedule:
    """What is kept of a schedule, and what it means now."""

    cron: Cron
    next_at: datetime
    phones: Sequence[Serial]
    #: How many files its plan names, and how many of them weren't where they are kept.
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
    grace_s = _grace_s(request.grace)
    plan = _limited(load_plan(request.plan, home=settings.data_folder), request, cron.timezone)
    check_travels(plan)
    models = identify(plan)
    with FarmQueue(settings.store) as queue, Farm(settings) as farm:
        check_names(farm, queue, plan.devices)
        chosen, notes = _meant_now(farm, queue, plan)
        contents = contents_of(settings, queue)
        packed = pack(farm, plan, chosen)
        files, uploaded = keep_all(contents, packed, models)
        payloads = by_phone_and_kind(packed, chosen, models)
        first = Schedules(queue).put(
            Schedule(
                name=request.name,
                cron=cron,
                plan=dump(replace(sent_plan(plan, models), devices=plan.devices)),
                plan_name=plan.name,
                payloads=json.dumps(payloads),
                priority=request.priority,
                grace_s=grace_s,
                created_by=this_computer(),
            ),
            files,
            replace=request.replace,
        )
    if plan.window is not None and (opens := plan.window.around(first)[0]) > first:
        wait = format_duration((opens - first).total_seconds())
        notes = [*notes, f"its window {plan.window} isn't open when it is due: its jobs wait {wait}"]
    return AddedSchedule(
        cron=cron,
        next_at=first,
        phones=[item.serial for item in chosen],
        files=len(files),
        uploaded=uploaded,
        notes=notes,
    )


def _limited(plan: Plan, request: ScheduleRequest, timezone: str) -> Plan:
    """Return the plan with the schedule's own window and time; a window's hours are those of the schedule's zone."""
    plan = limited(plan, budget=request.budget, until="", now=datetime.now(UTC))
    try:
        if request.window:
            plan = replace(plan, window=parse_window(request.window, timezone))
    except ValueError as error:
        raise UsageError(f"--window: {error}", hint="for example 01:00-06:00") from error
    if plan.window is not None and not plan.window.timezone:
        plan = replace(plan, window=replace(plan.window, timezone=timezone))
    return plan


def _grace_s(text: str) -> float:
    try:
        grace_s = parse_seconds(text)
    except ValueError as error:
        raise UsageError(f"--grace: {error}") from error
    if grace_s <= 0:
        raise UsageError(f"--grace {text}: every time would be missed", hint="for example 1h")
    return grace_s


def _meant_now(farm: Farm, queue: FarmQueue, plan: Plan) -> tuple[list[DeviceFacts], list[str]]:
    """Return the phones that the plan means now, and what is to be said of it."""
    try:
        chosen, left_out = choose_phones(farm, queue, plan.devices)
    except NoDeviceError as error:
        note = "the plan is kept without programs: each phone is measured with its host's own"
        return [], [f"{error}; {note}"]
    return chosen, [f"{serial}: not meant now: {reason}" for serial, reason in left_out.items()]


def listed(settings: Settings) -> list[dict[str, Any]]:
    """Return the schedules with their limits, next and last times, and what those lacked."""
    with FarmQueue(settings.store) as queue, Farm(settings) as farm:
        schedules = Schedules(queue).listed()
        for item in schedules:
            item.update(_limits(item.pop("plan")))
            item["lacking"] = _lacking(farm, queue, item["ticks"])
            item["went_wrong"] |= bool(item["lacking"]) and not item["paused"]
    return schedules


def _limits(document: str) -> dict[str, object]:
    """Return window and time of a schedule's plan; nothing of a plan of a newer benchfarm."""
    try:
        plan = read_plan(document)
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
        if not Schedules(queue).remove(name):
            raise _unknown(name)
    return DoneAnswer(text=f"{name}: removed; what it submitted stays", data={"name": name})


def pause(settings: Settings, name: str, *, paused: bool) -> DoneAnswer:
    """Pause a schedule, or resume it; raises UsageError when there is none."""
    with FarmQueue(settings.store) as queue:
        if not Schedules(queue).pause(name, paused=paused):
            raise _unknown(name)
    text = f"{name}: {'paused' if paused else 'resumed; what was due meanwhile is not run later'}"
    return DoneAnswer(text=text, data={"name": name, "paused": paused})


def _unknown(name: str) -> UsageError:
    return UsageError(f"there is no schedule {name!r}", hint="'benchfarm farm schedule list' lists them")


def submit_now(settings: Settings, name: str) -> DoneAnswer:
    """Submit a schedule's plan now, whether it is paused or not; raises UsageError for a schedule that isn't there."""
    submission, note = farm_submitting.submit_now(settings, name)
    return DoneAnswer(text=one_line(f"{submission}: {note}"), data={"submission": submission, "note": note})
