"""``benchfarm farm``: giving plans to a farm of many hosts, schedules, looking at it, and a host's worker."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from orchestrator.app import farm_schedules, farm_submitting, farm_worker, nights
from orchestrator.app.farm_control import WATCH_S, held_text, is_open, read_state, wait_for
from orchestrator.app.farm_phones import away_text
from orchestrator.app.farm_schedules import ScheduleRequest
from orchestrator.app.farm_worker import WorkerRequest
from orchestrator.bootstrap import Settings
from orchestrator.cli.files import format_of
from orchestrator.cli.progress import observer_for_stderr, tell
from orchestrator.cli.result import CUT_EXIT_CODE, CommandResult, table
from orchestrator.cli.terminal import say
from orchestrator.errors import InterruptedByUserError
from orchestrator.report.escapes import one_line
from orchestrator.units import format_duration

#: So many submissions are told of, of those that are over.
_RECENT: Final = 20
#: So many cases that there was no time for are listed of a phone.
_CUT_LISTED: Final = 20


def submit(settings: Settings, path: Path, *, priority: int, name: str) -> CommandResult:
    """Queue a plan; the exit code is 1 when it names a phone that has no job, or means one that is away."""
    done = farm_submitting.submit(settings, path, priority=priority, name=name)
    jobs = [job for _, job in done.jobs]
    lines = [f"{done.submission}: {len(jobs)} jobs queued, for {', '.join(job.serial for job in jobs)}"]
    lines[0] += f"; {done.files} files, {done.uploaded} of them new to the farm"
    if done.waits:
        lines[0] += f"; their window opens at {done.opens_at:%Y-%m-%d %H:%M} UTC"
    lines += [f"{serial}: not meant: {reason}" for serial, reason in done.left_out.items()]
    lines += [f"{serial}: its host's own program is used: {why[0]}" for serial, why in done.without_program.items()]
    return CommandResult(
        text="\n".join(map(one_line, lines)),
        data={
            "submission": done.submission,
            "jobs": [
                {"job_id": number, "serial": job.serial, "campaign_id": job.campaign_id} for number, job in done.jobs
            ],
            "files": done.files,
            "uploaded": done.uploaded,
            "opens_at": done.opens_at,
            "left_out": done.left_out,
            "away": done.away,
            "without_program": done.without_program,
        },
        exit_code=int(not done.is_whole),
    )


def submit_and_wait(settings: Settings, path: Path, *, priority: int, name: str, out: Path | None) -> CommandResult:
    """Submit a plan, wait for the end of all its jobs and return what became of them, as ``status`` does.

    ``out``: for one report of all its phones. Ctrl-C ends the waiting; the jobs go on.
    """
    from orchestrator.cli import reports

    format_of("", out, reports.FORMATS, default="html")
    sent = submit(settings, path, priority=priority, name=name)
    assert isinstance(sent.data, dict), "as submit makes it"
    submission = sent.data["submission"]
    tell(settings.log_format, "submitted", sent.text)
    try:
        wait_for(settings, submission, lambda text: tell(settings.log_format, "waiting", text))
    except KeyboardInterrupt:
        hint = f"'benchfarm farm status {submission}' shows them, 'benchfarm farm cancel {submission}' ends them"
        raise InterruptedByUserError(f"nobody waits for {submission} any more; its jobs continue", hint=hint) from None
    ended = status(settings, submission)
    assert isinstance(ended.data, dict), "as status makes it"
    text, data = ended.text, {**sent.data, "outcome": ended.data}
    # Without any run there is nothing to report.
    if out is not None and "done" in {job["status"] for job in ended.data["jobs"]}:
        report = reports.render(settings, (submission,), form="", out=out, published=False)
        text, data = f"{text}\n\n{report.text}", {**data, "report": out}
    return CommandResult(text=text, data=data, exit_code=sent.exit_code or ended.exit_code)


def status(settings: Settings, submission: str) -> CommandResult:
    """Tell of the hosts, their phones and the jobs; of one submission also what there was no time for.

    The exit code is 1 when a job asked for failed or a run of it gave no result, else 6 when the time didn't reach for
    all.
    """
    state = read_state(settings, submission)
    hosts = [(row["name"], row["state"], row["benchfarm_version"], row["note"]) for row in state.hosts]
    phones = [(row["serial"], row["host"], _phone_state(row, state.holds)) for row in state.phones]
    phones += [(row["serial"], "", away_text(row)) for row in state.away]
    jobs = [
        (str(j["job_id"]), j["submission"], j["serial"], _job_state(j), str(j["priority"]), j["host"], _job_note(j))
        for j in state.jobs
        if submission or j["status"] in {"waits", "runs", "failed", "replaced"}
    ]
    lines = [table(("host", "state", "benchfarm", "note"), hosts)]
    lines += ["", table(("phone", "host", "state"), phones)]
    lines += ["", table(("job", "submission", "phone", "status", "priority", "host", "note"), jobs)]
    if not submission:
        lines += ["", *_recent(state.jobs)]
    lines += ["", held_text(state.holds)] if state.holds else []
    for serial, items in state.cut.items():
        lines += [f"{serial}: {nights.told(items)}", *map(_cut_text, items[:_CUT_LISTED])]
        lines += [f"  and {len(items) - _CUT_LISTED} more, which --json lists"] if len(items) > _CUT_LISTED else []
    return CommandResult(
        text="\n".join(lines),
        data={
            "hosts": state.hosts,
            "phones": state.phones,
            "away": [{key: row[key] for key in ("serial", "host", "seen_at")} for row in state.away],
            "jobs": state.jobs,
            "holds": state.holds,
            "no_time_for": state.cut,
            "without_result": {serial: given.without_result for serial, given in state.lacking.items()},
        },
        exit_code=int(state.has_failed or bool(state.lacking)) or CUT_EXIT_CODE * bool(state.cut),
    )


def watch(settings: Settings, submission: str, *, every_s: float = WATCH_S) -> CommandResult:
    """Show the status again and again until no job waits or runs; Ctrl-C ends it too. See ``status``."""
    is_terminal = sys.stdout.isatty()
    shown = ""
    while True:
        result = status(settings, submission)
        assert isinstance(result.data, dict), "as status makes it"
        if not is_open(result.data["jobs"]):
            return result
        if result.text != shown:
            say(f"{result.text}\n", end="" if is_terminal else "\n", clears=is_terminal)
            shown = result.text
        time.sleep(every_s)


def _recent(jobs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what became of the newest submissions, the newest last."""
    counts: dict[str, Counter[str]] = {}
    for job in jobs:
        counts.setdefault(job["submission"], Counter())[job["status"]] += 1
    rows = [
        (name, ", ".join(f"{count} {status}" for status, count in sorted(of_status.items())))
        for name, of_status in [*counts.items()][-_RECENT:]
    ]
    return [table(("submission", "jobs"), rows)] if rows else []


def _cut_text(item: Mapping[str, object]) -> str:
    threads = f", {item['threads']} threads" if item["threads"] else ""
    return one_line(f"  {item['model']}, {item['delegate']}{threads}, {item['tool']}: {item['reason']}")


def _phone_state(phone: Mapping[str, object], holds: Mapping[str, str]) -> str:
    """Return what becomes of a phone, as people are told: also which job it does, and what keeps it from one."""
    scopes = ("farm", f"host:{phone['host']}", f"phone:{phone['serial']}")
    words = {
        "busy": f"job {phone['job']}",
        "unusable": str(phone["unusable"]),
        "silent": "its host is silent",
        "held": "; ".join(f"{scope}: {holds[scope]}" for scope in scopes if scope in holds),
    }
    state = str(phone["state"])
    return words.get(state) or state


def _job_state(job: Mapping[str, Any]) -> str:
    if job["status"] == "waits" and job["waits_s"]:
        return f"waits {format_duration(job['waits_s'])}"
    return str(job["status"])


def _job_note(job: Mapping[str, Any]) -> str:
    came = [
        "came later" if job["came_later"] else "",
        f"in the place of {job['replaces']}" if job["replaces"] else "",
        str(job["note"]),
        f"{job['replaced_by']} takes its place" if job["replaced_by"] else "",
    ]
    return "; ".join(text for text in came if text)


def add_schedule(settings: Settings, request: ScheduleRequest) -> CommandResult:
    """Keep a plan with all that it names, to be submitted by cron; raises as the use case."""
    done = farm_schedules.add(settings, request)
    when = f"{request.name}: {done.cron.text} {done.cron.timezone}, first {_moment(done.next_at)}"
    lines = [f"{when}; {done.files} files, {done.uploaded} new"]
    lines += [f"phones now: {', '.join(done.phones)}"] if done.phones else []
    return CommandResult(
        text="\n".join(map(one_line, [*lines, *done.notes])),
        data={
            "name": request.name,
            "next_at": done.next_at,
            "phones": done.phones,
            "files": done.files,
            "uploaded": done.uploaded,
            "notes": done.notes,
        },
    )


def list_schedules(settings: Settings) -> CommandResult:
    """List schedules with their next and last times.

    The exit code is 1 when one goes on whose last time went wrong: it wasn't submitted, a job of it failed, or a phone
    measured all for nothing.
    """
    schedules = farm_schedules.listed(settings)
    rows, lines = [], []
    for item in schedules:
        last = item["ticks"][0] if item["ticks"] else None
        rows.append(
            (
                item["name"],
                f"{item['cron']} {item['timezone']}",
                "paused" if item["paused"] else _moment(item["next_at"]),
                f"{_moment(last['tick_at'])} {last['outcome']}" if last else "",
                _limits_text(item),
                item["plan_name"],
                str(item["priority"]),
            )
        )
        lines += [f"{last['submission']}: {item['lacking']}"] if last and item["lacking"] else []
        lines += [
            f"{item['name']}, {_moment(tick['tick_at'])}: {tick['outcome']}: {tick['note']}"
            for tick in item["ticks"]
            if tick["outcome"] != "submitted"
        ]
    text = (
        table(("schedule", "when", "next", "last", "limits", "plan", "priority"), rows)
        if rows
        else "there are no schedules"
    )
    return CommandResult(
        text="\n".join([text, *map(one_line, lines)]),
        data={"schedules": schedules},
        exit_code=int(any(item["went_wrong"] for item in schedules)),
    )


def _limits_text(item: Mapping[str, Any]) -> str:
    time = format_duration(item["phone_time_s"]) if item["phone_time_s"] else ""
    return ", ".join(text for text in (item["window"], time) if text)


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone():%Y-%m-%d %H:%M %Z}"


def work(settings: Settings, request: WorkerRequest) -> CommandResult:
    """Work until the worker is stopped or drained; raises as the use case."""
    done = farm_worker.work(
        settings,
        request,
        tell=partial(tell, settings.log_format, "worker", host=request.host),
        observer=partial(observer_for_stderr, settings.log_format),
    )
    text = f"{done.jobs} jobs ended on {done.host}"
    if done.drained:
        text += f"; {done.drained} is drained: 'benchfarm farm resume {done.drained}', then start the worker again"
    return CommandResult(text=text, data=done)
