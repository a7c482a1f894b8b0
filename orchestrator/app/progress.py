"""Events of a measurement as text."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import fields
from typing import Any, Final

from orchestrator.engine.events import (
    CampaignEnded,
    CampaignStarted,
    DeviceFinished,
    DeviceNote,
    FilePlaced,
    InvocationStarted,
    Notice,
    RoundAdded,
    RunStored,
)
from orchestrator.passes import pass_of
from orchestrator.records.campaign import Campaign, Invocation
from orchestrator.records.case import FIGURE_PASS, Case
from orchestrator.records.run import DelegateTruth, Outcome, RunRecord
from orchestrator.records.verdict import Severity
from orchestrator.tables.escapes import one_line, visible
from orchestrator.units import counted, format_bytes, format_duration, format_figure

#: Events that are written for programs.
_EVENTS: Final = (
    CampaignStarted,
    CampaignEnded,
    DeviceFinished,
    DeviceNote,
    FilePlaced,
    InvocationStarted,
    RoundAdded,
    RunStored,
)
#: Fields of events that programs know by another name.
_KEYS: Final = {"done": "stored", "name": "file"}


def event_text(event: object) -> str:
    """Return an event as one line for people, empty for one that isn't for people."""
    match event:
        case CampaignStarted(campaign=campaign, devices=devices, total=total, done=done):
            counts = Counter(facts.title for facts in devices)
            titles = [
                title if count == 1 else f"{count} x {title}" for title, count in counts.items()
            ]
            names = ", ".join(titles) or "no device"
            stored = f", {done} stored already" if done else ""
            text = f"campaign {campaign.campaign_id} '{campaign.name}': {counted(total, 'invocation')} on {names}{stored}"
        case Notice(text=text):
            pass
        case FilePlaced(serial=serial, name=name, pushed_bytes=0):
            text = f"{serial}: {visible(name)} is there already"
        case FilePlaced(serial=serial, name=name, pushed_bytes=pushed_bytes, duration_s=duration_s):
            text = f"{serial}: sent {visible(name)}, {format_bytes(pushed_bytes)} in {format_duration(duration_s)}"
        case DeviceNote(serial=serial, text=note, is_problem=is_problem):
            text = f"{serial}: {'problem: ' if is_problem else ''}{note}"
        case RoundAdded(serial=serial, cases=cases, run_pass=name) if pass_of(
            name
        ).compares_outputs:
            text = f"{serial}: the outputs of {counted(cases, 'case')} are to be compared with the reference"
        case RoundAdded(serial=serial, last=last, cases=cases):
            text = (
                f"{serial}: not certain enough yet: {counted(cases, 'case')}; "
                f"invocations up to {last + 1} are added"
            )
        case RunStored(run=run) if run.outcome is Outcome.SKIPPED and not (
            pass_of(run.run_pass).compares_outputs and run.reason_code.startswith("parity-")
        ):
            # Its cause was reported before. Why outputs can't be compared wasn't.
            text = ""
        case RunStored(run=run, position=position, total=total, side=side):
            of_side = f"[{side}] " if side else ""
            text = f"{run.case.serial}: {position}/{total} {of_side}{describe_run(run)}"
        case DeviceFinished(serial=serial, left=left, reason=reason) if left:
            text = f"{serial}: abandoned with {counted(left, 'invocation')} left: {reason or 'stopped'}"
        case CampaignEnded(
            campaign=campaign,
            status=status,
            stored=stored,
            not_run=not_run,
            left=left,
        ):
            some = f" ({not_run} of them left out)" if not_run else ""
            text = f"campaign {campaign.campaign_id} {status}: {stored} stored{some}, {left} left"
        case _:
            text = ""
    return one_line(text)


def describe_run(run: RunRecord) -> str:
    """Return a run as one line: its case, its outcome, its figure and its quality."""
    case = run.case
    kind = "" if run.run_pass is FIGURE_PASS else f" ({run.run_pass} pass)"
    title = f"{visible(case.model_name)}, {case.configuration}{kind} #{run.invocation + 1}"
    if run.outcome is not Outcome.COMPLETED:
        return f"{title}: {ending_text(run)}"
    grade = f" {run.verdict.grade}" if run.verdict.grade is not None else ""
    codes = codes_of(run)
    worth = f"{run.verdict.quality.word}{grade}{f' ({codes})' if codes else ''}"
    parts = ", ".join(filter(None, (figure_of(run), nodes_of(run), worth)))
    return f"{title}: {parts}{' [virtual]' if run.is_virtual else ''}"


def ending_text(run: RunRecord) -> str:
    """Return how a run ended that gave no result: its outcome, its code and its reason."""
    # The outcome and its code may be one word.
    words = dict.fromkeys((run.outcome.value, run.reason_code, run.reason))
    return ": ".join(filter(None, words))


def figure_of(run: RunRecord) -> str:
    """Return a run's figure as people read it; empty for one that didn't complete."""
    if run.outcome is not Outcome.COMPLETED:
        return ""
    run_pass = pass_of(run.run_pass)
    latency_us = run.measured_us if run_pass.tells_latency else None
    if latency_us is not None:
        return format_figure(latency_us, is_per_token=run.case.is_per_token)
    return run_pass.tells(run) or "done"


def nodes_of(run: RunRecord) -> str:
    """Return the delegated share of a partly delegated run's operators; empty for others."""
    delegate = run.report.delegate if run.report else None
    if delegate is None or delegate.truth is not DelegateTruth.PARTIAL:
        return ""
    counted = delegate.delegated_nodes is not None and delegate.total_nodes is not None
    share = f"{delegate.delegated_nodes} of {delegate.total_nodes}" if counted else "not all"
    return f"{share} operators delegated"


def codes_of(run: RunRecord) -> str:
    """Return the codes of the findings against a run."""
    codes = (item.code for item in run.verdict.findings if item.severity is not Severity.INFO)
    return ", ".join(dict.fromkeys(codes))


def event_record(event: object) -> dict[str, Any] | None:
    """Return an event for programs: ``event``, ``level``, ``text`` and its keys
    (docs/reference/monitoring.md).

    None for an event that isn't written: a file transfer has a hundred events a second.
    """
    if isinstance(event, Notice):
        return {"event": event.event, "level": event.level, "text": event.text, **event.keys}
    if not isinstance(event, _EVENTS):
        return None
    text = describe_run(event.run) if isinstance(event, RunStored) else event_text(event)
    name = re.sub("(?<!^)(?=[A-Z])", "-", type(event).__name__).lower()
    return {**_keys_of(event), "event": name, "level": _level_of(event), "text": text}


def _level_of(event: object) -> str:
    match event:
        case RunStored(run=run) if run.outcome in {
            Outcome.FAILED,
            Outcome.TIMED_OUT,
            Outcome.ABORTED,
        }:
            return "error"
        case RunStored(run=run) if run.outcome is not Outcome.COMPLETED:
            return "warning"
        case DeviceNote(is_problem=True):
            return "warning"
        case DeviceFinished(left=left) | CampaignEnded(left=left) if left:
            return "warning"
        case _:
            return "info"


def _keys_of(event: Any) -> dict[str, object]:  # noqa: ANN401 - any of the events
    """Return the plain fields of an event, and the keys of its records."""
    keys: dict[str, object] = {}
    for item in fields(event):
        match getattr(event, item.name):
            case RunRecord() as run:
                keys |= _run_keys(run)
            case Invocation(case=case, run_pass=run_pass, number=number):
                keys |= {**_case_keys(case), "run_pass": str(run_pass), "invocation": number + 1}
            case Campaign(campaign_id=campaign_id, name=name, host=host, status=status):
                keys |= {"campaign_id": campaign_id, "campaign": name, "host": host}
                keys["status"] = str(status)
            case str() | int() | float() as value:
                keys[_KEYS.get(item.name, item.name)] = value
    return keys


def _case_keys(case: Case) -> dict[str, object]:
    return {
        "serial": case.serial,
        "case_key": case.case_key,
        "model": case.model_name,
        "configuration": case.configuration,
    }


def _run_keys(run: RunRecord) -> dict[str, object]:
    state = run.state_after or run.state_before
    return {
        **_case_keys(run.case),
        "run_id": run.run_id,
        "run_pass": str(run.run_pass),
        "invocation": run.invocation + 1,
        "outcome": str(run.outcome),
        "reason_code": run.reason_code,
        "quality": str(run.verdict.quality),
        "latency_us": run.measured_us,
        "duration_s": round(run.duration_s, 3),
        "battery_heat_c": state.battery_heat_c if state is not None else None,
        "is_virtual": run.is_virtual,
    }
